"""Room for models: how much there is, and which models may go for others.

Counterpart: `web/models/quota.js`, the same rules over the browser's quota.
"""

from contextlib import suppress
from dataclasses import dataclass

from headrace.errors import HeadraceError
from headrace.models.catalog import Catalog
from headrace.models.manifest import Manifest


@dataclass(frozen=True)
class Usage:
    """Bytes: of all files in the folder, of whole models; what the file system could still give with these.

    `limit_bytes` is the store's own limit, None when it has none.
    """

    used_bytes: int
    quota_bytes: int
    model_bytes: int
    limit_bytes: int | None
    folder: str

    def to_record(self) -> dict[str, object]:
        """As `--json` shows it."""
        return {
            "usedBytes": self.used_bytes,
            "quotaBytes": self.quota_bytes,
            "modelBytes": self.model_bytes,
            "limitBytes": self.limit_bytes,
            "storage": "folder",
            "folder": self.folder,
        }


def usage(catalog: Catalog, limit_bytes: int | None) -> Usage:
    """What is used, of what there is."""
    folder = catalog.folder
    used = sum(size for _, size in folder.list())
    return Usage(
        used_bytes=used,
        quota_bytes=used + folder.free_bytes(),
        model_bytes=sum(file.size for file in catalog.content()),
        limit_bytes=limit_bytes,
        folder=str(folder.path),
    )


def reserve(catalog: Catalog, needed: int, limit_bytes: int | None, *, evict: bool) -> None:
    """Sees to it that `needed` bytes more have room, or raises storage_full.

    Models that nobody uses and nobody has pinned are deleted for it, those first that were not used for the
    longest time, with `evict`; none when all of them together were too few.
    """
    missing = needed - available(catalog, limit_bytes)
    if missing <= 0:
        return
    evictable = evictable_models(catalog)
    if not evict or sum(model.size for model in evictable) < missing:
        raise storage_full(catalog, needed, limit_bytes)
    for model in evictable:
        if needed <= available(catalog, limit_bytes):
            return
        # Somebody may have opened it just now.
        with suppress(HeadraceError):
            catalog.delete(model.id, wait=False)
    if needed > available(catalog, limit_bytes):
        raise storage_full(catalog, needed, limit_bytes)


def available(catalog: Catalog, limit_bytes: int | None) -> int:
    """Bytes that may still be written."""
    free = catalog.folder.free_bytes()
    if limit_bytes is None:
        return free
    return min(free, max(limit_bytes - sum(size for _, size in catalog.folder.list()), 0))


def evictable_models(catalog: Catalog) -> list[Manifest]:
    """Those that may go for others, the first to go first."""
    models = [model for model in catalog.all() if not model.pinned and not catalog.in_use(model.id)]
    return sorted(models, key=lambda model: model.used_at)


def storage_full(
    catalog: Catalog, needed: int, limit_bytes: int | None, cause: BaseException | None = None
) -> HeadraceError:
    """The error that says what is needed and what could be done."""
    free = available(catalog, limit_bytes)
    evictable = [
        {"id": model.id, "name": model.name, "size": model.size} for model in evictable_models(catalog)
    ]
    what = "the model store's limit" if limit_bytes is not None else "the disk"
    return HeadraceError(
        "storage_full",
        f"there is no room for the model: it needs {needed} bytes more, and {what} has {free} left",
        {
            "neededBytes": needed,
            "availableBytes": free,
            "missingBytes": max(needed - free, 0),
            "evictable": evictable,
        },
        cause=cause,
    )
