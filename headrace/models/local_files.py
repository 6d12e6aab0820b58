"""Files of this computer on their way into the store, and out of it again.

Counterparts: `web/models/import_blob.js`; `download.py`, for published files.
"""

import hashlib
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from io import BufferedReader
from pathlib import Path

from headrace.errors import HeadraceError
from headrace.models.folder import Folder, typed_errors
from headrace.models.gguf import SNIFF_BYTES, require_gguf
from headrace.models.manifest import Manifest
from headrace.models.partial import FetchedFile, Partial, SplitSizes

_BLOCK_BYTES = 4 << 20


def import_key(path: Path) -> str:
    """Names what is imported, while it is, as the hash of a URL names a download."""
    return hashlib.sha256(f"import:{path.resolve()}".encode("utf-8", "surrogateescape")).hexdigest()


def import_file(
    path: Path,
    folder: Folder,
    sizes: SplitSizes,
    on_bytes: Callable[[int], object],
    cancel: threading.Event | None,
) -> FetchedFile:
    """Copies a file, split as a downloaded one would be. Nothing is kept if that fails.

    Raises model_not_found, model_invalid, model_truncated, storage_full, cancelled.
    """
    with _open(path) as source:
        require_gguf(source.read(SNIFF_BYTES), path.name)
        source.seek(0)
        partial = Partial(folder, import_key(path), path.name, path.name, sizes)
        if partial.ranges.total:
            partial.discard()
            partial = Partial(folder, import_key(path), path.name, path.name, sizes)
        try:
            partial.set_size(os.fstat(source.fileno()).st_size)
            at, checked = 0, False
            while data := source.read(_BLOCK_BYTES):
                if cancel is not None and cancel.is_set():
                    raise HeadraceError("cancelled", "cancelled; nothing was kept")
                partial.write(data, at)
                at += len(data)
                if not checked and partial.is_planned:
                    partial.check_header()
                    checked = True
                if partial.is_planned:
                    partial.hash_until(at)
                on_bytes(at)
            return partial.finish()
        except BaseException:
            partial.discard()
            raise
        finally:
            partial.close()


def export_names(manifest: Manifest) -> list[str]:
    """File names for the stored files of a model: several are named as shards are."""
    stem = "".join(c if c.isalnum() or c in "._- " else "_" for c in manifest.name).strip(". ")
    for suffix in (".gguf", ".GGUF"):
        stem = stem.removesuffix(suffix)
    stem = stem or manifest.id
    count = len(manifest.files)
    if count == 1:
        return [f"{stem}.gguf"]
    return [f"{stem}-{number:05d}-of-{count:05d}.gguf" for number in range(1, count + 1)]


def export_files(folder: Folder, manifest: Manifest, target: Path) -> list[Path]:
    """Copies a model's files into the folder `target`; those that are there already are not replaced."""
    names = export_names(manifest)
    made = [target / name for name in names]
    for path in made:
        if path.exists():
            raise HeadraceError("invalid_request", f"{path} is there already", {"path": str(path)})
    with typed_errors(f"write into {target}"):
        target.mkdir(parents=True, exist_ok=True)
        for file, path in zip(manifest.files, made, strict=True):
            unfinished = path.with_name(path.name + ".part")
            try:
                shutil.copyfile(folder.path_of(file.stored_name), unfinished)
                unfinished.replace(path)
            except BaseException:
                unfinished.unlink(missing_ok=True)
                raise
    return made


def damaged_files(
    folder: Folder, manifest: Manifest, on_bytes: Callable[[int], object], cancel: threading.Event | None
) -> list[str]:
    """Names of the stored files whose bytes are not what their names tell."""
    damaged, seen = [], 0
    for file in manifest.files:
        digest = hashlib.sha256()
        try:
            with folder.path_of(file.stored_name).open("rb") as data:
                while block := data.read(_BLOCK_BYTES):
                    if cancel is not None and cancel.is_set():
                        raise HeadraceError("cancelled", "cancelled")
                    digest.update(block)
                    seen += len(block)
                    on_bytes(seen)
        except OSError:
            damaged.append(file.stored_name)
            continue
        if digest.hexdigest() != file.sha256:
            damaged.append(file.stored_name)
    return damaged


def require_files(paths: Sequence[Path]) -> int:
    """Their bytes together; model_not_found for the first that is none."""
    total = 0
    for path in paths:
        with _open(path) as file:
            total += os.fstat(file.fileno()).st_size
    return total


def _open(path: Path) -> BufferedReader:
    try:
        return path.open("rb")
    except OSError as error:
        raise HeadraceError(
            "model_not_found",
            f"{path} cannot be read: {error.strerror or error}",
            {"path": str(path)},
            cause=error,
        ) from error
