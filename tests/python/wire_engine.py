"""An engine by its C functions alone: commands as JSON in, events as JSON out.

Counterpart: `native/include/headrace.h`. For tests of the wire format; the classes of headrace/native.py are
not involved.
"""

import ctypes
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.errors import HeadraceError
from headrace.library import ProgressFunction, load_library

Event = dict[str, Any]


class WireEngine:
    """`options` are load options by their names on the wire. Raises HeadraceError if loading fails."""

    def __init__(self, library: Path, model: Path, **options: object) -> None:
        self._library = load_library(library)
        self._handle = self._library.hr_engine_create()
        self._last_id = 0
        command = json.dumps({"model": str(model), "options": {"threads": 1, **options}}).encode()
        self._library.hr_engine_load(
            self._handle, command, len(command), ProgressFunction(lambda _user, _fraction: 1), None
        )
        (event,) = self.events()
        if event["type"] != "ready":
            self.close()
            raise HeadraceError.from_wire(event["error"])
        self.ready = event

    def submit(self, operation: str, **fields: object) -> int:
        """Returns the request's id."""
        self._last_id += 1
        command = json.dumps({"id": self._last_id, "operation": operation, **fields}).encode()
        self._library.hr_engine_submit(self._handle, command, len(command))
        return self._last_id

    def cancel(self, request_id: int) -> None:
        self._library.hr_engine_cancel(self._handle, request_id)

    def tick(self, budget_ms: float = 0) -> int:
        """At least one step; returns how many requests are unfinished."""
        unfinished: int = self._library.hr_engine_tick(self._handle, budget_ms)
        return unfinished

    def events(self) -> list[Event]:
        """What has happened since the last call."""
        length = ctypes.c_size_t()
        address = self._library.hr_engine_events(self._handle, ctypes.byref(length))
        events: list[Event] = json.loads(ctypes.string_at(address, length.value))
        return events

    def run_until(self, enough: Callable[[list[Event]], bool]) -> list[Event]:
        """Ticks until `enough` of the events so far is true; returns these."""
        events = self.events()
        while not enough(events):
            unfinished = self.tick()
            events += self.events()
            assert unfinished > 0 or enough(events), f"the engine is idle, after {events}"
        return events

    def ask(self, operation: str, **fields: object) -> Any:
        """The result of a request. Raises the HeadraceError that it ended with."""
        return self.wait(self.submit(operation, **fields))

    def wait(self, request_id: int) -> Any:
        """The result of a request that was submitted; events of others are dropped."""
        ends = ("done", "failed")
        events = self.run_until(lambda seen: any(e["type"] in ends and e["id"] == request_id for e in seen))
        (end,) = (e for e in events if e["type"] in ends and e["id"] == request_id)
        if end["type"] == "failed":
            raise HeadraceError.from_wire(end["error"])
        return end["result"]

    def close(self) -> None:
        if self._handle:
            self._library.hr_engine_free(self._handle)
            self._handle = None
