"""Locks by name that processes share, and that the death of their holder frees: `flock` on small files.

Counterpart: `web/models/locks.js`, with the same names over Web Locks. Not locks of data: each is an
agreement of those who ask for it.
"""

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.errors import HeadraceError

_POLL_SECONDS = 0.05


class Locks:
    """The locks of one folder.

    Two threads exclude each other as two processes do. A process that is made by `fork` alone shares those
    that are held.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / ".locks"

    @contextmanager
    def hold(
        self,
        name: str,
        *,
        shared: bool = False,
        wait: bool = True,
        cancel: threading.Event | None = None,
        on_wait: Callable[[], object] = lambda: None,
    ) -> Iterator[None]:
        """Held while the context is open; beside a shared one there may be other shared ones.

        `on_wait` is called again and again while another has it. Raises model_in_use when it is taken and
        `wait` is False, cancelled when `cancel` is set.
        """
        descriptor = self._take(name, shared, wait, cancel, on_wait)
        try:
            yield
        finally:
            # Whoever waits for this file finds it gone, and opens the next one.
            if not shared:
                (self._folder / name).unlink(missing_ok=True)
            os.close(descriptor)

    def is_held(self, name: str) -> bool:
        """Whether anybody has it, exclusively or shared."""
        try:
            with self.hold(name, wait=False):
                return False
        except HeadraceError as error:
            if error.code != "model_in_use":
                raise
            return True

    def _take(
        self,
        name: str,
        shared: bool,
        wait: bool,
        cancel: threading.Event | None,
        on_wait: Callable[[], object],
    ) -> int:
        mode = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
        while True:
            descriptor = self._open(name)
            try:
                fcntl.flock(descriptor, mode)
                if self._is_current(descriptor, name):
                    return descriptor
                os.close(descriptor)
                continue
            except BlockingIOError:
                os.close(descriptor)
            except OSError as error:
                os.close(descriptor)
                raise HeadraceError("storage_failed", f"cannot lock {name}: {error}", cause=error) from error
            if not wait:
                raise HeadraceError(
                    "model_in_use", "it is in use, here or in another process", {"lock": name}
                )
            if cancel is not None and cancel.is_set():
                raise HeadraceError("cancelled", "cancelled while waiting for another process")
            on_wait()
            time.sleep(_POLL_SECONDS)

    def _open(self, name: str) -> int:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            return os.open(self._folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise HeadraceError("storage_failed", f"cannot lock {name}: {error}", cause=error) from error

    def _is_current(self, descriptor: int, name: str) -> bool:
        """Whether the file that is locked still is the one of that name."""
        try:
            named = (self._folder / name).stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(os.fstat(descriptor), named)
