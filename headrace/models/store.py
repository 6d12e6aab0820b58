"""The model store of CPython: models by id, name or address, in a folder that all processes share.

Counterpart: `web/models/model_store.js`, with the same files and the same decisions. Not a cache: nothing is
deleted without consent or a limit.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.errors import HeadraceError
from headrace.models.catalog import Catalog, Repaired, use_lock
from headrace.models.folder import Folder, default_folder
from headrace.models.local_files import damaged_files, export_files, import_key
from headrace.models.locks import Locks
from headrace.models.manifest import Manifest, is_stored_id, now
from headrace.models.obtain import Transfer, fetch_model, import_model
from headrace.models.partial import discard_partial, read_journal
from headrace.models.progress import Meter, OnProgress
from headrace.models.quota import Usage, usage
from headrace.models.retries import DownloadLimits
from headrace.models.sources import RemoteModel, resolve_remote
from headrace.models.tasks import run_to_end

_LEAST_PREFIX = 4

Source = str | Sequence[str]


@dataclass(frozen=True)
class StoredModel:
    """A model of the store, and whether anybody reads it. One that is not whole lacks bytes."""

    manifest: Manifest
    in_use: bool
    whole: bool = True


@dataclass(frozen=True)
class OpenModel:
    """A model that nobody can delete meanwhile; `paths` are in the order of loading."""

    manifest: Manifest
    paths: tuple[Path, ...]


class ModelStore:
    """Models in `folder` (default: `$HEADRACE_MODELS`, else `~/.cache/headrace/store`).

    `limit_bytes` is for all files of the folder: beyond it the least recently used models make room; without
    it none does unless `evict` says so. `hugging_face` is where `hf:` leads, as `resolve_remote` takes it.

    Threads and processes may use one folder at once. Methods block; those that take `on_progress` call it at
    most ten times a second, perhaps from another thread; what it raises ends them and reaches the caller.
    `cancel`, once set, ends them with the code cancelled, and so does Ctrl-C with KeyboardInterrupt: a
    download goes on from there the next time. All raise HeadraceError, also storage_failed.
    """

    def __init__(
        self,
        folder: str | Path | None = None,
        *,
        limit_bytes: int | None = None,
        hugging_face: str | None = None,
        limits: DownloadLimits | None = None,
    ) -> None:
        self._folder = Folder(Path(folder) if folder is not None else default_folder())
        self._locks = Locks(self._folder.path)
        self._catalog = Catalog(self._folder, self._locks)
        self._limit_bytes = limit_bytes
        self._hugging_face = hugging_face
        self._limits = limits or DownloadLimits()

    @property
    def folder(self) -> Path:
        return self._folder.path

    def obtain(
        self,
        source: Source,
        *,
        headers: Mapping[str, str] | None = None,
        sha256: str | Sequence[str] | None = None,
        pinned: bool | None = None,
        evict: bool | None = None,
        refresh: bool = False,
        projector: str | None = None,
        on_progress: OnProgress | None = None,
        cancel: threading.Event | None = None,
    ) -> Manifest:
        """The model of an address: as it is stored, without asking the network, or downloaded.

        `source` is a URL, `hf:owner/repo/path/file.gguf[@revision]`, or the URLs of all shards; that of one
        whose name tells stands for all. `headers` go with every request for it and are kept nowhere. `sha256`
        is what it must have, one for each file. `pinned` keeps it from eviction (default: as it is); `evict`
        lets others go for it (default: if the store has a limit). `refresh` asks the server whether there is
        a newer one. `projector` is the id of the stored model that is its multimodal projector.

        Raises download_failed, hash_mismatch, model_invalid, model_truncated, storage_full (its detail says
        what is missing and what could go), invalid_request for shards that are no set, invalid_option.
        """
        remote = self._resolve(source, headers, sha256)
        stored = None if refresh else self._catalog.stored_as(remote)
        if stored is None:
            transfer = self._transfer(evict, on_progress, cancel)
            with ExitStack() as stack:
                for key in sorted(file.key for file in remote.files):
                    stack.enter_context(self._fetching(key, remote, on_progress, cancel))
                # Whoever has waited finds here what another process has brought.
                stored = self._catalog.stored_as(remote)
                if stored is None or refresh:
                    known = stored
                    stored = run_to_end(
                        lambda: fetch_model(
                            transfer, remote, pinned=bool(pinned), projector=projector, known=known
                        ),
                        cancel,
                    )
        return self._with(stored, pinned, projector)

    def import_files(
        self,
        paths: Sequence[str | Path],
        *,
        name: str | None = None,
        pinned: bool | None = None,
        evict: bool | None = None,
        projector: str | None = None,
        on_progress: OnProgress | None = None,
        cancel: threading.Event | None = None,
    ) -> Manifest:
        """Copies files into the store: one model, as one file or as shards in any order.

        `name` is for people (default: that of the first file). Nothing is kept if it fails or is cancelled.
        """
        files = [Path(path) for path in paths]
        if not files:
            raise HeadraceError("invalid_request", "there is no file to import")
        with ExitStack() as stack:
            for key in sorted({import_key(path) for path in files}):
                stack.enter_context(self._locks.hold(f"headrace-fetch-{key}", cancel=cancel))
            transfer = self._transfer(evict, on_progress, cancel)
            return import_model(transfer, files, name, pinned=bool(pinned), projector=projector)

    def find(self, text: str) -> Manifest:
        """The model with this id, beginning of an id (of four digits at least), name or address.

        Raises model_not_found, and invalid_request when there are several.
        """
        models = self._catalog.all()
        prefix = text if text.startswith("sha256-") else f"sha256-{text}"
        found = [model for model in models if model.id == text]
        if not found and len(prefix) >= len("sha256-") + _LEAST_PREFIX:
            found = [model for model in models if model.id.startswith(prefix.lower())]
        if not found:
            found = [model for model in models if model.name == text]
        if not found and is_address(text):
            key = self._resolve(text, None, None).key
            found = [model for model in models if any(source.key == key for source in model.sources)]
        if not found:
            raise HeadraceError("model_not_found", f"the store has no model {_shown(text)}")
        if len(found) > 1:
            ids = [model.id for model in found]
            raise HeadraceError(
                "invalid_request",
                f"{len(ids)} stored models could be {_shown(text)}: give an id",
                {"ids": ids},
            )
        return found[0]

    def list(self) -> list[StoredModel]:
        """All models, those last that came last. Lost manifests are made anew before (case D2)."""
        self.repair()
        models = sorted(self._catalog.all(), key=lambda model: model.added_at)
        return [
            StoredModel(model, self._catalog.in_use(model.id), self._catalog.is_whole(model))
            for model in models
        ]

    @contextmanager
    def open(self, id: str, *, cancel: threading.Event | None = None) -> Iterator[OpenModel]:
        """The model's files; while the context is open, nobody can delete them. Raises model_not_found."""
        with self._locks.hold(use_lock(id), shared=True, cancel=cancel):
            manifest = self._catalog.get(id) if is_stored_id(id) else None
            if manifest is None:
                raise HeadraceError("model_not_found", f"the store has no model {_shown(id)}", {"id": id})
            if not self._catalog.is_whole(manifest):
                raise HeadraceError(
                    "model_not_found", f"bytes of the stored model {manifest.name} are missing", {"id": id}
                )
            self._catalog.update(id, lambda model: replace(model, used_at=now()))
            paths = tuple(self._folder.path_of(file.stored_name) for file in manifest.files)
            yield OpenModel(manifest, paths)

    def verify(
        self, id: str, *, on_progress: OnProgress | None = None, cancel: threading.Event | None = None
    ) -> Sequence[str]:
        """Hashes what is stored anew. Returns the names of files that are missing or damaged; none is good.

        A damaged file is removed unless it is in use: nobody can want it.
        """
        manifest = self._get(id)
        meter = Meter("verify", on_progress)
        with self._locks.hold(use_lock(id), shared=True, cancel=cancel):
            damaged = damaged_files(
                self._folder,
                manifest,
                lambda seen: meter.update(seen, manifest.size, last=seen == manifest.size),
                cancel,
            )
        if damaged and not self._catalog.in_use(id):
            for name in damaged:
                self._folder.remove(name)
        return damaged

    def pin(self, id: str, pinned: bool = True) -> Manifest:
        """A pinned model is never evicted."""
        changed = self._catalog.update(id, lambda model: replace(model, pinned=pinned))
        return changed or self._get(id)

    def delete(self, id: str, *, wait: bool = True) -> None:
        """Deletes a model, and its projector when no other has it.

        Waits until nobody uses it; raises model_in_use instead when `wait` is False.
        """
        manifest = self._get(id)
        try:
            self._catalog.delete(id, wait=wait)
        except HeadraceError as error:
            if error.code != "model_in_use":
                raise
            message = f"{manifest.name} is in use, here or in another process"
            raise HeadraceError("model_in_use", message, {"id": id}) from error
        projector = self._catalog.get(manifest.projector) if manifest.projector else None
        if projector is not None and not projector.pinned:
            users = [model for model in self._catalog.all() if model.projector == projector.id]
            if not users and not self._catalog.in_use(projector.id):
                self._catalog.delete(projector.id, wait=False)

    def discard(self, source: Source) -> int:
        """Removes what an unfinished download has left; returns how many bytes had come."""
        removed = 0
        for file in self._resolve(source, None, None).files:
            with self._locks.hold(f"headrace-fetch-{file.key}", wait=False):
                journal = read_journal(self._folder, file.key)
                removed += journal.ranges.total if journal is not None else 0
                discard_partial(self._folder, file.key)
        return removed

    def export(self, id: str, target: str | Path) -> Sequence[Path]:
        """Copies a model's files into a folder, named as shards are if there are several; returns where."""
        with self.open(id) as model:
            return export_files(self._folder, model.manifest, Path(target))

    def usage(self) -> Usage:
        """Bytes that are used, and that could be."""
        return usage(self._catalog, self._limit_bytes)

    def repair(self) -> Repaired:
        """Gives content without a manifest a new one, and removes what dead processes have left."""
        return self._catalog.repair()

    def _resolve(
        self, source: Source, headers: Mapping[str, str] | None, sha256: str | Sequence[str] | None
    ) -> RemoteModel:
        return resolve_remote(
            source, hugging_face=self._hugging_face, headers=dict(headers or {}), sha256=sha256
        )

    def _transfer(
        self, evict: bool | None, on_progress: OnProgress | None, cancel: threading.Event | None
    ) -> Transfer:
        may_evict = self._limit_bytes is not None if evict is None else evict
        return Transfer(self._catalog, self._limits, self._limit_bytes, may_evict, on_progress, cancel)

    @contextmanager
    def _fetching(
        self,
        key: str,
        remote: RemoteModel,
        on_progress: OnProgress | None,
        cancel: threading.Event | None,
    ) -> Iterator[None]:
        meter = Meter("wait", on_progress)

        def on_wait() -> None:
            journals = [read_journal(self._folder, file.key) for file in remote.files]
            loaded = sum(journal.ranges.total for journal in journals if journal is not None)
            sizes = [journal.size if journal is not None else None for journal in journals]
            meter.update(loaded, None if None in sizes else sum(size or 0 for size in sizes))

        with self._locks.hold(f"headrace-fetch-{key}", cancel=cancel, on_wait=on_wait):
            yield

    def _with(self, manifest: Manifest, pinned: bool | None, projector: str | None) -> Manifest:
        """Pinned, and with its projector, as the caller wants it; used now."""
        changed = self._catalog.update(
            manifest.id,
            lambda model: replace(
                model,
                used_at=now(),
                pinned=model.pinned if pinned is None else pinned,
                projector=projector or model.projector,
            ),
        )
        return changed or manifest

    def _get(self, id: str) -> Manifest:
        manifest = self._catalog.get(id) if is_stored_id(id) else None
        if manifest is None:
            raise HeadraceError("model_not_found", f"the store has no model {_shown(id)}")
        return manifest


def is_address(text: str) -> bool:
    """Whether this is meant as a URL or `hf:` address rather than a name."""
    return text.startswith(("http://", "https://", "hf:"))


def _shown(text: str) -> str:
    """An address may hold secrets behind its path, or before its host."""
    if not is_address(text) or text.startswith("hf:"):
        return text.partition("?")[0]
    scheme, _, rest = text.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path.partition('?')[0].partition('#')[0]}"
