"""Brings models into the store: from the network, or from files of this computer.

Counterpart: `web/models/fetch_model.js`. Decides what has to be fetched at all; `download.py` fetches.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from headrace.errors import HeadraceError
from headrace.models.adoption import Adopted, adopt, stored_as
from headrace.models.catalog import Catalog
from headrace.models.download import Download
from headrace.models.local_files import import_file, import_key, require_files
from headrace.models.manifest import Manifest, Origin
from headrace.models.partial import FetchedFile, discard_partial, read_journal
from headrace.models.progress import Meter, OnProgress
from headrace.models.quota import reserve, storage_full
from headrace.models.retries import DownloadLimits
from headrace.models.sources import RemoteModel
from headrace.models.split import NamedHeader, order_shards
from headrace.models.transport import open_client, probe


@dataclass(frozen=True)
class Transfer:
    """How one model is brought in; `evict` allows that others go for it."""

    catalog: Catalog
    limits: DownloadLimits
    limit_bytes: int | None
    evict: bool
    on_progress: OnProgress | None
    cancel: threading.Event | None = None


async def fetch_model(
    transfer: Transfer, remote: RemoteModel, *, pinned: bool, projector: str | None, known: Manifest | None
) -> Manifest:
    """Fetches what is missing; `known` is returned when the server has nothing newer.

    Whoever calls holds the locks of all files. Raises what `Download.run` raises, invalid_request for shards
    that are no set, storage_full.
    """
    catalog = transfer.catalog
    fetched: list[FetchedFile | Manifest] = []
    etag: str | None = None
    async with open_client(transfer.limits.connections, transfer.limits.stall_seconds) as client:
        sizes = [await _size_of(client, transfer, remote, index) for index in range(len(remote.files))]
        if known is not None:
            head = await probe(client, remote.files[0])
            if head is not None and known.is_unchanged(remote.files[0].key, head.etag, head.total):
                return known
        meter = Meter("download", transfer.on_progress)
        for index, file in enumerate(remote.files):
            before = sum(size or 0 for size in sizes[:index])

            def on_bytes(loaded: int, total: int | None, index: int = index, before: int = before) -> None:
                sizes[index] = total
                whole = None if None in sizes else sum(size or 0 for size in sizes)
                meter.update(before + loaded, whole, last=before + loaded == whole)

            async def on_start(download: Download, index: int = index) -> None:
                if len(remote.files) == 1 and download.header is not None:
                    order_shards([NamedHeader(download.file.name, download.header)])
                await adopt(catalog, download)
                rest = sum(size or 0 for size in sizes[index + 1 :])
                reserve(catalog, download.missing_bytes + rest, transfer.limit_bytes, evict=transfer.evict)

            item: FetchedFile | Manifest | None = None
            if file.sha256 is not None:
                item = stored_as(catalog, file.sha256)
            if item is None:
                download = Download(file, catalog.folder, client, transfer.limits, on_bytes, on_start)
                try:
                    item = await download.run()
                except Adopted as found:
                    item = found.model
                except HeadraceError as error:
                    raise _told(error, transfer, remote, download.missing_bytes) from error
                if index == 0:
                    etag = download.etag
            if isinstance(item, Manifest):
                discard_partial(catalog.folder, file.key)
            sizes[index] = (
                sum(part.size for part in item.parts) if isinstance(item, Manifest) else item.part.size
            )
            fetched.append(item)
    first = remote.files[0]
    manifest = catalog.keep(
        _in_order(fetched, remote),
        remote.name,
        Origin(first.key, first.display, etag),
        pinned=pinned,
        projector=projector,
    )
    for file in remote.files:
        discard_partial(catalog.folder, file.key)
    return manifest


def import_model(
    transfer: Transfer, paths: Sequence[Path], name: str | None, *, pinned: bool, projector: str | None
) -> Manifest:
    """Copies files into the store: one, or the shards of one model in any order."""
    catalog = transfer.catalog
    total = require_files(paths)
    reserve(catalog, total, transfer.limit_bytes, evict=transfer.evict)
    meter = Meter("import", transfer.on_progress)
    fetched: list[FetchedFile] = []
    try:
        for path in paths:
            before = sum(item.part.size for item in fetched)

            def on_bytes(loaded: int, before: int = before) -> None:
                meter.update(before + loaded, total, last=before + loaded == total)

            sizes = transfer.limits.sizes
            fetched.append(import_file(path, catalog.folder, sizes, on_bytes, transfer.cancel))
        order = order_shards(
            [NamedHeader(path.name, item.header) for path, item in zip(paths, fetched, strict=True)],
        )
        ordered = [fetched[index] for index in order]
        title = name or paths[order[0]].name
        return catalog.keep(ordered, title, None, pinned=pinned, projector=projector)
    except HeadraceError as error:
        if error.code == "storage_full":
            raise storage_full(catalog, total, transfer.limit_bytes, error) from error
        raise
    finally:
        for path in paths:
            discard_partial(catalog.folder, import_key(path))


async def _size_of(
    client: httpx.AsyncClient, transfer: Transfer, remote: RemoteModel, index: int
) -> int | None:
    """What is known of a file's size; of several, all are asked for before the first is fetched."""
    file = remote.files[index]
    journal = read_journal(transfer.catalog.folder, file.key)
    if journal is not None and journal.size is not None:
        return journal.size
    if len(remote.files) == 1:
        return None
    head = await probe(client, file)
    return head.total if head is not None else None


def _in_order(fetched: Sequence[FetchedFile | Manifest], remote: RemoteModel) -> list[FetchedFile | Manifest]:
    files = [item for item in fetched if isinstance(item, FetchedFile)]
    if len(files) < len(fetched) or (len(fetched) == 1 and len(files[0].files) > 1):
        # What is stored already, or split here, was in order before.
        return list(fetched)
    named = [NamedHeader(file.name, item.header) for file, item in zip(remote.files, files, strict=True)]
    return [fetched[index] for index in order_shards(named)]


def _told(error: HeadraceError, transfer: Transfer, remote: RemoteModel, missing: int) -> HeadraceError:
    """A write that found no room says what is missing, and leaves nothing of the model (case D6)."""
    if error.code != "storage_full":
        return error
    for file in remote.files:
        discard_partial(transfer.catalog.folder, file.key)
    if "neededBytes" in error.detail:
        return error
    return storage_full(transfer.catalog, missing, transfer.limit_bytes, error)
