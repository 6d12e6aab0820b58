"""The manifests of a folder and the files they tell of: found, kept, deleted, and repaired.

Counterpart: the lower half of `web/models/model_store.js`. Fetches nothing, makes no room: `store.py` does.
"""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from headrace.errors import HeadraceError
from headrace.models.folder import Folder
from headrace.models.gguf import GgufHeader, parse_header
from headrace.models.locks import Locks
from headrace.models.manifest import (
    HashedFile,
    Manifest,
    Origin,
    id_of,
    manifest_name,
    model_id,
    now,
    parse_manifest,
)
from headrace.models.partial import FIRST_HEADER_BYTES, FetchedFile, metadata_text
from headrace.models.sources import RemoteModel
from headrace.models.split import NamedHeader, order_shards, shard_of

_CONTENT = re.compile(r"([0-9a-f]{64})\.gguf")
_PARTIAL = re.compile(r"(partial-[0-9a-f]{64})(?:\.json|-\w+\.gguf)")
_STALE_SECONDS = 24 * 3600


@dataclass(frozen=True)
class Repaired:
    """`found`: models whose manifests were lost. `removed`: broken manifests, leftovers of dead processes.

    `unknown` are content files that belong to no whole model; they are left alone.
    """

    found: tuple[Manifest, ...] = ()
    removed: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def use_lock(id: str) -> str:
    """Shared by all who read the model; whoever deletes it has it alone."""
    return f"headrace-use-{id}"


class Catalog:
    """Every method may raise storage_failed, and version_mismatch for a store of a newer version."""

    def __init__(self, folder: Folder, locks: Locks) -> None:
        self.folder = folder
        self.locks = locks

    def all(self) -> list[Manifest]:
        """Manifests that can be read, whether or not their files are whole."""
        names = [name for name, _ in self.folder.list()]
        return [manifest for name in names if (id := id_of(name)) and (manifest := self.get(id))]

    def get(self, id: str) -> Manifest | None:
        text = self.folder.read_text(manifest_name(id))
        return parse_manifest(text, id) if text is not None else None

    def stored_as(self, remote: RemoteModel) -> Manifest | None:
        """What is stored whole of an address, and has the hashes that the caller wants."""
        keys = {file.key for file in remote.files}
        wanted = {file.sha256 for file in remote.files if file.sha256 is not None}
        for manifest in self.all():
            if (
                len(manifest.parts) == len(remote.files)
                and wanted <= {part.sha256 for part in manifest.parts}
                and any(source.key in keys for source in manifest.sources)
                and self.is_whole(manifest)
            ):
                return manifest
        return None

    def is_whole(self, manifest: Manifest) -> bool:
        """Whether its files are there and as long as they should be; `verify` tells more."""
        return all(self.folder.size(file.stored_name) == file.size for file in manifest.files)

    def in_use(self, id: str) -> bool:
        return self.locks.is_held(use_lock(id))

    def content(self) -> list[HashedFile]:
        """The stored files of models, also of lost ones."""
        listed = self.folder.list()
        return [HashedFile(match[1], size) for name, size in listed if (match := _CONTENT.fullmatch(name))]

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Whoever changes manifests does so alone."""
        with self.locks.hold("headrace-manifests"):
            yield

    def update(self, id: str, change: Callable[[Manifest], Manifest]) -> Manifest | None:
        """Changes a manifest; None when it has gone meanwhile."""
        with self.changing():
            manifest = self.get(id)
            if manifest is not None:
                manifest = change(manifest)
                self._save(manifest)
            return manifest

    def keep(
        self,
        fetched: Sequence["FetchedFile | Manifest"],
        name: str,
        origin: Origin | None,
        *,
        pinned: bool = False,
        projector: str | None = None,
    ) -> Manifest:
        """Makes a stored model of files that have come whole, or that other models have already."""
        with self.changing():
            parts: list[HashedFile] = []
            files: list[HashedFile] = []
            header: GgufHeader | None = None
            for item in fetched:
                if isinstance(item, Manifest):
                    parts += item.parts
                    files += item.files
                    continue
                header = header or item.header
                parts.append(item.part)
                for file, partial_name in item.files:
                    files.append(file)
                    if self.folder.size(file.stored_name) == file.size:
                        self.folder.remove(partial_name)
                    else:
                        self.folder.rename(partial_name, file.stored_name)
            header = header or self._read_header(files[0])
            id = model_id(parts)
            known = self.get(id)
            manifest = known or Manifest(
                id,
                name,
                tuple(parts),
                tuple(files),
                license=metadata_text(header.metadata, "general.license") if header else None,
                architecture=metadata_text(header.metadata, "general.architecture") if header else None,
            )
            if origin is not None:
                # A name from a header gives way to that of a file.
                manifest = replace(manifest, name=manifest.name if manifest.sources else name)
                manifest = manifest.with_source(origin)
                self._forget_source(origin.key, id)
            manifest = replace(
                manifest,
                files=tuple(files),
                pinned=manifest.pinned or pinned,
                projector=projector or manifest.projector,
                used_at=now(),
            )
            self._save(manifest)
            return manifest

    def delete(self, id: str, *, wait: bool) -> None:
        """Deletes a model when nobody reads it any more; without `wait`, model_in_use if somebody does."""
        with self.locks.hold(use_lock(id), wait=wait), self.changing():
            manifest = self.get(id)
            if manifest is None:
                return
            shared = {file.sha256 for other in self.all() if other.id != id for file in other.files}
            # The manifest last: without its files it is removed by `repair`, files without it are a model.
            for file in manifest.files:
                if file.sha256 not in shared:
                    self.folder.remove(file.stored_name)
            self.folder.remove(manifest.file_name)

    def repair(self) -> Repaired:
        """Makes manifests and files fit each other again (case D2). Quick when they do."""
        if not self._needs_repair():
            return Repaired()
        with self.changing():
            found, unknown = self._find_lost()
            removed = [name for name in self._leftovers() if name not in {one.file_name for one in found}]
            for name in removed:
                with suppress(OSError):
                    (self.folder.path / name).unlink()
            return Repaired(tuple(found), tuple(removed), tuple(unknown))

    def _needs_repair(self) -> bool:
        known = {file.sha256 for manifest in self.all() for file in manifest.files}
        return bool(self._leftovers()) or any(file.sha256 not in known for file in self.content())

    def _leftovers(self) -> list[str]:
        """Manifests that cannot be read, and old files that no download can go on with."""
        names = [path.name for path in self.folder.path.iterdir()]
        useless = [name for name in names if (id := id_of(name)) and self.get(id) is None]
        for name in names:
            partial = _PARTIAL.fullmatch(name)
            loose = partial is not None and f"{partial[1]}.json" not in names
            if loose or name.startswith((".model-", ".partial-")):
                with suppress(FileNotFoundError):
                    if (self.folder.path / name).stat().st_mtime < time.time() - _STALE_SECONDS:
                        useless.append(name)
        return useless

    def _find_lost(self) -> tuple[list[Manifest], list[str]]:
        known = {file.sha256 for manifest in self.all() for file in manifest.files}
        orphans = [file for file in self.content() if file.sha256 not in known]
        found: list[Manifest] = []
        unknown: list[str] = []
        sets: dict[tuple[int, object], list[tuple[HashedFile, GgufHeader]]] = {}
        for file in orphans:
            header = self._read_header(file)
            if header is None or header.data_end > file.size:
                unknown.append(file.stored_name)
                continue
            shard = shard_of(header)
            if shard is None:
                found.append(self._manifest_of([file], header))
            else:
                # The first shard alone has the name of its model.
                tensors = header.metadata.get("split.tensors.count")
                sets.setdefault((shard.total, tensors), []).append((file, header))
        for shards in sets.values():
            try:
                order = order_shards([NamedHeader(file.stored_name, header) for file, header in shards])
            except HeadraceError:
                unknown += [file.stored_name for file, _ in shards]
                continue
            files = [shards[index][0] for index in order]
            found.append(self._manifest_of(files, shards[order[0]][1]))
        return found, unknown

    def _manifest_of(self, files: Sequence[HashedFile], header: GgufHeader) -> Manifest:
        id = model_id(files)
        manifest = Manifest(
            id,
            metadata_text(header.metadata, "general.name") or f"model {files[0].sha256[:8]}",
            tuple(files),
            tuple(files),
            license=metadata_text(header.metadata, "general.license"),
            architecture=metadata_text(header.metadata, "general.architecture"),
        )
        self._save(manifest)
        return manifest

    def _forget_source(self, key: str, but_in: str) -> None:
        """What this URL gave before is a model of its own now."""
        for other in self.all():
            if other.id != but_in and any(source.key == key for source in other.sources):
                rest = tuple(source for source in other.sources if source.key != key)
                self._save(replace(other, sources=rest))

    def _save(self, manifest: Manifest) -> None:
        self.folder.write_text(manifest.file_name, manifest.to_json())

    def _read_header(self, file: HashedFile) -> GgufHeader | None:
        """None for what is no GGUF, or a part of one."""
        count = FIRST_HEADER_BYTES
        try:
            with self.folder.path_of(file.stored_name).open("rb") as data:
                while True:
                    data.seek(0)
                    header = parse_header(data.read(count), file.stored_name)
                    if header is not None or count >= file.size:
                        return header
                    count *= 2
        except (HeadraceError, OSError):
            return None
