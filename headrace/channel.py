"""What the engine's thread has for one reader: items, then an end. Read from any thread or event loop.

Counterpart: `engine_thread.py`, which writes. Not a queue of commands: those go the other way, by a
`queue.SimpleQueue`.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from headrace.errors import HeadraceError


class Channel:
    """Written under `lock`, which all channels of an engine share.

    `items` are fractions while a model loads and `tokens` events while a request runs; `accepted` is
    that event, `result` what `ready` or `done` brought, `error` what the request or the load failed with.
    """

    def __init__(self, lock: "threading.RLock") -> None:
        self.items: deque[Any] = deque()
        self.accepted: Mapping[str, Any] | None = None
        self.result: Mapping[str, Any] | None = None
        self.error: HeadraceError | None = None
        self._changed = threading.Condition(lock)
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def finished(self) -> bool:
        """Whether the end has come; items may still wait to be read."""
        return self.result is not None or self.error is not None

    @property
    def answered(self) -> bool:
        """Whether the engine has accepted the request, or ended it."""
        return self.accepted is not None or self.finished

    def raise_error(self) -> None:
        """Raises what this ended with, if it failed: a copy, for each reader's traceback is its own."""
        if self.error:
            raise HeadraceError.from_wire(self.error.to_wire())

    def wait_finished(self) -> None:
        """Blocks until `finished`."""
        self._wait(lambda: self.finished)

    def wait_answered(self) -> None:
        """Blocks until `answered`."""
        self._wait(lambda: self.answered)

    def next_item(self) -> Any | None:
        """Blocks for the next item; None after the last one."""
        with self._changed:
            self._wait(self._readable)
            return self.items.popleft() if self.items else None

    async def until_finished(self) -> None:
        """Waits until `finished`, without blocking the event loop."""
        await self._until(lambda: self.finished)

    async def until_answered(self) -> None:
        """Waits until `answered`, without blocking the event loop."""
        await self._until(lambda: self.answered)

    async def until_next_item(self) -> Any | None:
        """The next item, without blocking the event loop; None after the last one."""
        while True:
            await self._until(self._readable)
            with self._changed:
                # Another reader may have been faster.
                if self._readable():
                    return self.items.popleft() if self.items else None

    def stir(self) -> list["asyncio.Future[None]"]:
        """Wakes the threads that wait; returns the futures of event loops, for `wake`. The lock is held."""
        self._changed.notify_all()
        waiting, self._waiting = self._waiting, []
        return waiting

    def _readable(self) -> bool:
        return bool(self.items) or self.finished

    def _wait(self, enough: Callable[[], bool]) -> None:
        # Without a timeout, so that nothing polls; a signal such as Ctrl-C still ends the wait.
        with self._changed:
            self._changed.wait_for(enough)

    async def _until(self, enough: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            with self._changed:
                if enough():
                    return
                future = loop.create_future()
                self._waiting.append(future)
            try:
                await future
            finally:
                with self._changed, suppress(ValueError):
                    self._waiting.remove(future)


def wake(futures: Iterable["asyncio.Future[None]"]) -> None:
    """Lets the tasks behind `futures` look again: one call per event loop, however many wait there."""
    by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for future in futures:
        by_loop.setdefault(future.get_loop(), []).append(future)
    for loop, waiting in by_loop.items():
        # A loop that was closed has no tasks left to tell.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_resolve, waiting)


def _resolve(futures: Iterable["asyncio.Future[None]"]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
