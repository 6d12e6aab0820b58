"""Files that are whole or absent: content hashes, atomic writes, folders swapped in, locks between processes.

Counterpart: `steps.py` and everything that fills the shared cache. Not a general file library.
"""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from build_tools.errors import StepError


def file_sha256(path: Path) -> str:
    """The sha256 of a file's bytes, as 64 hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def content_hash(root: Path, paths: Iterable[Path], *facts: str) -> str:
    """One sha256 over the names and contents of files, folders (walked) and further facts such as flags.

    A path that does not exist counts as absent, so that its appearing changes the hash.
    """
    digest = hashlib.sha256()
    for fact in facts:
        digest.update(f"fact {fact}\0".encode())
    for path in paths:
        for file in _walk(path):
            name = os.path.relpath(file, root)
            digest.update(f"file {name} {file_sha256(file)}\0".encode())
    return digest.hexdigest()


def _walk(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    elif path.is_dir():
        for entry in sorted(path.rglob("*")):
            if entry.is_file() and "__pycache__" not in entry.parts:
                yield entry


def write_atomically(path: Path, data: bytes | str) -> None:
    """Writes a file so that a reader, or the next run after an interrupt, sees the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(data.encode() if isinstance(data, str) else data)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def copy_atomically(source: Path, target: Path) -> None:
    """Copies a file's bytes with the promise of `write_atomically`, without holding them in memory."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        shutil.copyfile(source, partial)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def remove_folder(folder: Path, mountinfo: Path = Path("/proc/self/mountinfo")) -> None:
    """Deletes a folder if it is there; refuses while something is mounted in it, whose files would go too."""
    inside = str(folder.resolve()) + os.sep
    if mountinfo.is_file():
        for line in mountinfo.read_text().splitlines():
            mounted = line.split()[4].encode().decode("unicode_escape")
            if mounted.startswith(inside):
                raise StepError(
                    f"{folder} cannot be removed: {mounted} is mounted in it",
                    hint=f"umount {mounted}, then run the same command again",
                )
    if folder.exists():
        shutil.rmtree(folder)


@contextmanager
def lock(path: Path, on_wait: Callable[[str], None] = lambda text: None) -> Iterator[None]:
    """Holds an exclusive lock on a file; ends with the process, so a crash leaves nothing to clean up.

    on_wait is told once, if another process holds it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait(f"waiting for another Headrace build (it holds {path})")
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield
