"""An engine without a model, for what depends on when something happens: it ticks when a test lets it.

Counterpart: `headrace/library.py`, whose `EngineHandle` it stands in for. What it answers is written like
the wire format in ARCHITECTURE.md; not a test of what the real engine answers.
"""

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

STATS = {
    "ttftMs": 1.0,
    "totalMs": 2.0,
    "decodeTokensPerSecond": 3.0,
    "cache": {"source": "live", "tokens": 4},
}
USAGE = {"inputTokens": 1, "outputTokens": 2, "cachedTokens": 0}


def result(text: str, finish_reason: str = "stop") -> dict[str, Any]:
    return {"text": text, "tokenIds": [], "finishReason": finish_reason, "usage": USAGE, "stats": STATS}


class FakeEngine:
    """Every query or chat says "a" in each tick until it is cancelled, or until `length` ticks are over.

    `gate` holds back every tick while it is not set. `replies` has, by operation, the result of what is
    answered at once; what it has nothing for is refused.
    """

    def __init__(self, length: int | None = None, replies: Mapping[str, object] | None = None) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.in_tick = threading.Event()
        self.commands: list[dict[str, Any]] = []
        self.ticks = 0
        self.freed = False
        self.threads: set[int] = set()
        self.forgets = False
        self.load_command: dict[str, Any] = {}
        self.fractions = [0.0, 1.0]
        self.reports = 0
        self._length = length
        self._replies = replies or {}
        self._events: list[dict[str, Any]] = []
        self._said: dict[int, str] = {}
        self._cancelled: set[int] = set()

    def load(self, command: bytes, progress: Callable[[float], bool]) -> None:
        self.threads.add(threading.get_ident())
        self.load_command = json.loads(command)
        for fraction in self.fractions:
            self.gate.wait()
            self.reports += 1
            if not progress(fraction):
                error = {"code": "cancelled", "message": "the load was cancelled", "detail": {}}
                self._events.append({"type": "engine_failed", "error": error})
                return
        self._events.append({"type": "ready", "model": {}, "options": {}, "memory": {}, "loadMs": 1.0})

    def submit(self, command: bytes) -> None:
        self.threads.add(threading.get_ident())
        request = json.loads(command)
        self.commands.append(request)
        if request["operation"] in ("query", "chat"):
            self._said[request["id"]] = ""
            self._events.append({"type": "accepted", "id": request["id"], "options": {}, "promptTokens": 1})
        elif request["operation"] in self._replies:
            answer = self._replies[request["operation"]]
            self._events.append({"type": "done", "id": request["id"], "result": answer})
        else:
            # As the engine does for what it cannot read as far as its id.
            error = {"code": "invalid_request", "message": "no", "detail": {}}
            self._events.append({"type": "failed", "id": 0, "error": error})

    def cancel(self, request_id: int) -> None:
        self.threads.add(threading.get_ident())
        self._cancelled.add(request_id)

    def tick(self, budget_ms: float) -> int:
        self.threads.add(threading.get_ident())
        self.ticks += 1
        self.in_tick.set()
        if self._said:
            # Not faster than a reader could ever be.
            threading.Event().wait(budget_ms / 1000 / 8)
        self.gate.wait()
        for request_id in list(self._said):
            if self.forgets:
                del self._said[request_id]
            elif request_id in self._cancelled:
                self._end(request_id, "cancelled")
            else:
                self._said[request_id] += "a"
                self._events.append({"type": "tokens", "id": request_id, "text": "a", "tokenIds": [7]})
                if len(self._said[request_id]) == self._length:
                    self._end(request_id, "length")
        return len(self._said)

    def events(self) -> list[dict[str, Any]]:
        self.threads.add(threading.get_ident())
        events, self._events = self._events, []
        return events

    def free(self) -> None:
        self.threads.add(threading.get_ident())
        self.freed = True

    def _end(self, request_id: int, finish_reason: str) -> None:
        text = self._said.pop(request_id)
        self._events.append({"type": "done", "id": request_id, "result": result(text, finish_reason)})
