"""The thread an engine lives in: it alone loads, submits, ticks and frees.

Counterpart: `web/worker/tick_loop.js`, the same loop in a page's worker. Commands come by a queue, on
which the thread sleeps while there is no work; what happened goes to one `Channel` per request, once per
tick. Not an API for applications: that is `native.py`.
"""

import asyncio
import atexit
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from headrace.channel import Channel, wake
from headrace.errors import HeadraceError

# How long a tick may run before cancel and submit are read: one frame, as in a page.
TICK_BUDGET_MS = 16.0

# How long the interpreter's exit waits for engines in the middle of a step.
EXIT_PATIENCE_S = 10.0


class Handle(Protocol):
    """What is driven: `library.EngineHandle`, see there."""

    def load(self, command: bytes, progress: Callable[[float], bool]) -> None: ...
    def submit(self, command: bytes) -> None: ...
    def cancel(self, request_id: int) -> None: ...
    def tick(self, budget_ms: float) -> int: ...
    def events(self) -> list[dict[str, Any]]: ...
    def free(self) -> None: ...


class EngineThread:
    """Makes an engine with `make` in a new thread and loads what `command` names.

    `loading` brings fractions, then the `ready` event or an error; `ended` finishes when the engine has
    been freed. Every method may be called from any thread.
    """

    def __init__(self, make: Callable[[], Handle], command: bytes) -> None:
        # Reentrant: the collector may run a finalizer that comes back here while the lock is held.
        self._lock = threading.RLock()
        # SimpleQueue, for its `put` may be interrupted by itself: finalizers cancel and stop.
        self._commands: SimpleQueue[tuple[str, int, bytes]] = SimpleQueue()
        self._requests: dict[int, Channel] = {}
        self._ids = count(1)
        self._failure: HeadraceError | None = None
        self._stopping = False
        self._silent = False
        self.loading = Channel(self._lock)
        self.ended = Channel(self._lock)
        self._thread = threading.Thread(
            target=self._main, args=(make, command), name="headrace-engine", daemon=True
        )
        _running.add(self)
        try:
            self._thread.start()
        except BaseException:
            _running.discard(self)
            raise

    def submit(self, encode: Callable[[int], bytes]) -> tuple[int, Channel]:
        """Queues the request that `encode` writes for its id; raises what ended the engine, if it has."""
        request_id = next(self._ids)
        command = encode(request_id)
        channel = Channel(self._lock)
        with self._lock:
            if self._failure:
                raise HeadraceError.from_wire(self._failure.to_wire())
            self._requests[request_id] = channel
            self._commands.put(("submit", request_id, command))
        return request_id, channel

    def cancel(self, request_id: int) -> None:
        """Ends a request after the tick in progress. Fit for finalizers: takes no lock."""
        self._commands.put(("cancel", request_id, b""))

    def stop(self) -> None:
        """Ends the load at its next report, or the thread after the tick in progress; as fit as `cancel`."""
        self._stopping = True
        self._commands.put(("stop", 0, b""))

    def close(self) -> None:
        """Ends every unfinished request with `engine_closed` now, and stops."""
        self._fail(_closed())
        self.stop()

    def is_current(self) -> bool:
        """Whether the caller is the engine's thread itself, which cannot wait for its own end."""
        return threading.current_thread() is self._thread

    def stop_for_exit(self) -> None:
        """`stop` without telling whoever waits."""
        self._silent = True
        self.stop()

    def join(self, timeout: float) -> None:
        """Waits for the thread's very end."""
        self._thread.join(timeout)

    def _main(self, make: Callable[[], Handle], command: bytes) -> None:
        handle: Handle | None = None
        failure = _closed()
        try:
            handle = make()
            handle.load(command, self._report)
            self._deliver(handle.events())
            if not self.loading.finished:
                raise HeadraceError("internal", "the engine was loaded without saying so")
            self._serve(handle)
        except HeadraceError as error:
            failure = error
        except BaseException as error:
            failure = HeadraceError("internal", f"the engine's thread ended over {error!r}", cause=error)
        # Before it is freed, which takes time: whoever waits need not. At the exit only daemon threads
        # can be waiting, and an error would be their last words on the terminal.
        if not self._silent:
            self._fail(failure)
        if handle:
            handle.free()
        with self._lock:
            self.ended.result = {}
            waiting = self.ended.stir()
        wake(waiting)
        _running.discard(self)

    def _serve(self, handle: Handle) -> None:
        unfinished = 0
        while not self._failure and not self._stopping:
            events: list[dict[str, Any]] = []
            for name, request_id, command in self._take(wait=unfinished == 0):
                match name:
                    case "submit":
                        handle.submit(command)
                        events += [_addressed(event, request_id) for event in handle.events()]
                    case "cancel":
                        handle.cancel(request_id)
                    case "stop":
                        return
            # What was refused or answered at once does not wait for the tick.
            self._deliver(events)
            unfinished = handle.tick(TICK_BUDGET_MS)
            self._deliver(handle.events())
            if unfinished < 0:
                raise HeadraceError("internal", "the engine failed without saying why")
            if unfinished == 0:
                self._end_what_is_lost()

    def _take(self, *, wait: bool) -> Iterable[tuple[str, int, bytes]]:
        commands = [self._commands.get()] if wait else []
        with suppress(Empty):
            while True:
                commands.append(self._commands.get_nowait())
        return commands

    def _report(self, fraction: float) -> bool:
        # Called from C, through which no exception can pass.
        with self._lock:
            self.loading.items.append(fraction)
            waiting = self.loading.stir()
        wake(waiting)
        return not self._stopping

    def _deliver(self, events: Iterable[Mapping[str, Any]]) -> None:
        with self._lock:
            changed: dict[Channel, None] = {}
            for event in events:
                if event["type"] == "engine_failed":
                    self._fail(HeadraceError.from_wire(event["error"]))
                elif channel := self._receive(event):
                    changed[channel] = None
            waiting = [future for channel in changed for future in channel.stir()]
        wake(waiting)

    def _receive(self, event: Mapping[str, Any]) -> Channel | None:
        if event["type"] == "ready":
            self.loading.result = event
            return self.loading
        # One that close() or a failure has ended is not listed any more.
        channel = self._requests.get(event["id"])
        if channel is None:
            return None
        match event["type"]:
            case "accepted":
                channel.accepted = event
            case "tokens":
                channel.items.append(event)
            case "done":
                channel.result = event["result"]
            case "failed":
                channel.error = HeadraceError.from_wire(event["error"])
        if channel.finished:
            del self._requests[event["id"]]
        return channel

    def _end_what_is_lost(self) -> None:
        """An engine without work never ends a request: waiting on would be for ever."""
        with self._lock:
            # With the lock held and nothing queued, all that is listed here has reached the engine.
            if not self._commands.empty():
                return
            lost = list(self._requests.values())
            self._requests.clear()
            error = HeadraceError("internal", "the engine has no work left, but this request has not ended")
            waiting = self._end(lost, error)
        wake(waiting)

    def _fail(self, failure: HeadraceError) -> None:
        with self._lock:
            self._failure = self._failure or failure
            loading = [] if self.loading.finished else [self.loading]
            channels = [*loading, *self._requests.values()]
            self._requests.clear()
            waiting = self._end(channels, failure)
        wake(waiting)

    @staticmethod
    def _end(channels: list[Channel], error: HeadraceError) -> "list[asyncio.Future[None]]":
        for channel in channels:
            channel.error = error
        return [future for channel in channels for future in channel.stir()]


def _closed() -> HeadraceError:
    return HeadraceError("engine_closed", "the engine was closed")


def _addressed(event: dict[str, Any], request_id: int) -> dict[str, Any]:
    """Id 0: the submission just made could not be read as far as its id."""
    return {**event, "id": request_id} if event.get("id") == 0 else event


_running: set[EngineThread] = set()


@atexit.register
def _stop_all() -> None:
    """A thread still in C while the process takes its libraries down could crash it."""
    threads = list(_running)
    for thread in threads:
        thread.stop_for_exit()
    end = time.monotonic() + EXIT_PATIENCE_S
    for thread in threads:
        thread.join(max(end - time.monotonic(), 0))
