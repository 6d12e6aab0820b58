"""Runs a coroutine to its end for a plain caller, who may be in an event loop himself, and may interrupt it.

No counterpart: JavaScript has no plain callers.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from concurrent.futures import TimeoutError as StillRunning
from typing import Any, TypeVar

from headrace.errors import HeadraceError

T = TypeVar("T")

_POLL_SECONDS = 0.1


def run_to_end(make: Callable[[], Coroutine[Any, Any, T]], cancel: threading.Event | None = None) -> T:
    """The coroutine's result, from an event loop in a thread of its own.

    `cancel`, once set, and Ctrl-C end it: what it cleans up is done before this raises. Raises cancelled for
    the first.
    """
    outcome: Future[T] = Future()
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[T]]] = Future()

    async def main() -> T:
        task = asyncio.ensure_future(make())
        started.set_result((asyncio.get_running_loop(), task))
        return await task

    def run() -> None:
        try:
            outcome.set_result(asyncio.run(main()))
        except BaseException as error:
            outcome.set_exception(error)

    thread = threading.Thread(target=run, name="headrace-store", daemon=True)
    thread.start()
    loop, task = started.result()
    try:
        while True:
            try:
                return outcome.result(_POLL_SECONDS)
            except StillRunning:
                if outcome.done():
                    raise
            if cancel is not None and cancel.is_set():
                raise HeadraceError("cancelled", "cancelled; what has come is kept")
    finally:
        if not outcome.done():
            loop.call_soon_threadsafe(task.cancel)
        thread.join()
