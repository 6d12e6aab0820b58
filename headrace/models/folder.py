"""The model store's folder: a flat one, whose small files are written whole or not at all.

Counterpart: `web/models/opfs_storage.js`, the same over the browser's private file system. Knows nothing of
models: what the names mean is told in ARCHITECTURE.md, "The model store".
"""

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.errors import HeadraceError

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
# EFBIG: a limit on the size of files, such as `ulimit -f` sets.
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def default_folder() -> Path:
    """Where models are kept: `$HEADRACE_MODELS`, else `store` in the user's cache of Headrace."""
    if chosen := os.environ.get("HEADRACE_MODELS"):
        return Path(chosen)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "headrace" / "store"


@contextmanager
def typed_errors(doing: str) -> Iterator[None]:
    """Turns the system's errors into storage_full or storage_failed; `doing` completes "cannot …"."""
    try:
        yield
    except OSError as error:
        full = error.errno in _NO_ROOM
        reason = "there is no room left" if full else error.strerror or str(error)
        raise HeadraceError(
            "storage_full" if full else "storage_failed", f"cannot {doing}: {reason}", cause=error
        ) from error


class Folder:
    """Files by name: letters, digits, ".", "-" and "_". Names that begin with a dot are its own.

    Every method may raise storage_failed, those that write storage_full too.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with typed_errors(f"make the folder {path}"):
            path.mkdir(parents=True, exist_ok=True)

    def path_of(self, name: str) -> Path:
        """Where a file lies, or would."""
        if not _NAME.fullmatch(name):
            raise HeadraceError("internal", f"{name!r} is no name for a stored file")
        return self.path / name

    def list(self) -> list[tuple[str, int]]:
        """Names and sizes in bytes, in the order of the names."""
        found = []
        with typed_errors(f"list {self.path}"), os.scandir(self.path) as entries:
            for entry in entries:
                if _NAME.fullmatch(entry.name) and entry.is_file():
                    found.append((entry.name, entry.stat().st_size))
        return sorted(found)

    def size(self, name: str) -> int | None:
        """None when there is no such file."""
        with typed_errors(f"look at {name}"):
            try:
                return self.path_of(name).stat().st_size
            except FileNotFoundError:
                return None

    def read_text(self, name: str) -> str | None:
        """None when there is no such file, or one that is no text."""
        with typed_errors(f"read {name}"):
            try:
                return self.path_of(name).read_text(encoding="utf-8")
            except (FileNotFoundError, UnicodeDecodeError):
                return None

    def write_text(self, name: str, text: str) -> None:
        """Whole or not at all, also in a crash. Two may not write one name at once."""
        # Always the same name: what a process that dies leaves is replaced by the next one that writes.
        temporary = self.path / f".{name}"
        with typed_errors(f"write {name}"):
            try:
                with temporary.open("w", encoding="utf-8") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                temporary.replace(self.path_of(name))
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
            self.flush_names()

    def rename(self, old: str, new: str) -> None:
        """Replaces `new`."""
        with typed_errors(f"rename {old}"):
            self.path_of(old).replace(self.path_of(new))
            self.flush_names()

    def remove(self, name: str) -> None:
        """Nothing happens when there is no such file."""
        with typed_errors(f"remove {name}"):
            self.path_of(name).unlink(missing_ok=True)

    def flush_names(self) -> None:
        """Returns when the names of files would survive a crash."""
        folder = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def free_bytes(self) -> int:
        """What the file system still has for this user."""
        with typed_errors(f"measure {self.path}"):
            return shutil.disk_usage(self.path).free


class DataFile:
    """A file that is written at any place, and read back. Made when it is not there, else as it was left."""

    def __init__(self, folder: Folder, name: str) -> None:
        self.name = name
        with typed_errors(f"open {name}"):
            self._descriptor = os.open(folder.path_of(name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def write(self, source: bytes | memoryview, at: int) -> None:
        """All of `source` at byte `at`; a gap before it holds zeros."""
        rest = memoryview(source)
        with typed_errors(f"write {self.name}"):
            while rest:
                written = os.pwrite(self._descriptor, rest, at)
                rest, at = rest[written:], at + written

    def read(self, size: int, at: int) -> bytes:
        """As many bytes as there are, at most `size`."""
        with typed_errors(f"read {self.name}"):
            return os.pread(self._descriptor, size, at)

    def truncate(self, size: int) -> None:
        """Cuts the file, or fills it with zeros."""
        with typed_errors(f"write {self.name}"):
            os.ftruncate(self._descriptor, size)

    def flush(self) -> None:
        """Returns when what was written would survive a crash."""
        with typed_errors(f"write {self.name}"):
            os.fdatasync(self._descriptor)

    def close(self) -> None:
        """May be called again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
