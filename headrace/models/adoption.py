"""Whether the bytes of a published file are here already, under another URL or without a manifest (case D2).

Counterpart: `web/models/adoption.js`, the same rules.
"""

import random
from collections.abc import Sequence

from headrace.models.catalog import Catalog
from headrace.models.download import HEAD_BYTES, Download
from headrace.models.manifest import HashedFile, Manifest, model_id

SAMPLES = 16
SAMPLE_BYTES = 16 << 10


class Adopted(Exception):
    """Ends a download: its bytes are those of this model."""

    def __init__(self, model: Manifest, etag: str | None) -> None:
        super().__init__(model.id)
        self.model = model
        self.etag = etag


async def adopt(catalog: Catalog, download: Download) -> None:
    """Raises `Adopted` when the file that is being downloaded is stored already.

    With a known hash, that decides. Else a stored file of the same size whose beginning and `SAMPLES` random
    ranges are the published ones is taken for it.
    """
    size, expected = download.size, download.expected_sha256
    if expected is not None:
        model = stored_as(catalog, expected)
        if model is not None:
            raise Adopted(model, download.etag)
        return
    head = download.head()
    if size is None or size <= HEAD_BYTES or len(head) < HEAD_BYTES:
        return
    for file in _of_size(catalog.content(), size):
        if await _looks_like(catalog, file, download, head):
            raise Adopted(_alone(file), download.etag)


def stored_as(catalog: Catalog, sha256: str) -> Manifest | None:
    """The published file with this hash, as it is stored."""
    for manifest in catalog.all():
        if [part.sha256 for part in manifest.parts] == [sha256] and catalog.is_whole(manifest):
            return manifest
    for file in catalog.content():
        if file.sha256 == sha256:
            return _alone(file)
    return None


def _of_size(content: Sequence[HashedFile], size: int) -> list[HashedFile]:
    return [file for file in content if file.size == size]


def _alone(file: HashedFile) -> Manifest:
    return Manifest(model_id([file]), "", (file,), (file,))


async def _looks_like(catalog: Catalog, file: HashedFile, download: Download, head: bytes) -> bool:
    with catalog.folder.path_of(file.stored_name).open("rb") as stored:
        if stored.read(len(head)) != head:
            return False
        for _ in range(SAMPLES):
            start = random.randrange(len(head), max(file.size - SAMPLE_BYTES, len(head) + 1))
            stored.seek(start)
            published = await download.read_remote(start, min(start + SAMPLE_BYTES, file.size))
            if published is None or published != stored.read(SAMPLE_BYTES):
                return False
    return True
