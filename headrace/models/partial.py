"""The bytes of one published file while they arrive: in one stored file, or in shards that are cut at once.

Counterpart: `web/models/partial.js`. Decides neither what to fetch (`download.py`) nor where to cut
(`split.py`).
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.errors import HeadraceError
from headrace.models.folder import DataFile, Folder
from headrace.models.gguf import GgufHeader, parse_header
from headrace.models.journal import Journal, Ranges
from headrace.models.manifest import HashedFile, now
from headrace.models.split import Piece, plan_pieces, require_separate

FIRST_HEADER_BYTES = 1 << 20
_READ_BYTES = 1 << 20


@dataclass(frozen=True)
class SplitSizes:
    """Files larger than `max_whole_bytes` are cut into shards of `shard_bytes`."""

    max_whole_bytes: int = 1 << 31
    shard_bytes: int = 512 << 20


@dataclass(frozen=True)
class FetchedFile:
    """A published file that has come whole and has the right hash, still under its `partial-` names."""

    part: HashedFile
    files: tuple[tuple[HashedFile, str], ...]
    etag: str | None
    header: GgufHeader


def journal_name(key: str) -> str:
    """The name of the journal of the published file with this key."""
    return f"partial-{key}.json"


def read_journal(folder: Folder, key: str) -> Journal | None:
    """What has come of it so far; None when nothing is known."""
    text = folder.read_text(journal_name(key))
    journal = Journal.from_json(text) if text is not None else None
    return journal if journal is not None and journal.key == key else None


def discard_partial(folder: Folder, key: str) -> None:
    """Removes all that has come of a published file."""
    folder.remove(journal_name(key))
    for name, _size in folder.list():
        if name.startswith(f"partial-{key}-"):
            folder.remove(name)


class Partial:
    """What has come of a published file. Nothing but the hash may run beside its other methods.

    `ranges` is what lies in the files; the journal follows with `flush`.
    """

    def __init__(self, folder: Folder, key: str, display: str, name: str, sizes: SplitSizes) -> None:
        self._folder = folder
        self._sizes = sizes
        self._files: dict[str, DataFile] = {}
        self.pieces: tuple[Piece, ...] = ()
        self.header: GgufHeader | None = None
        self._hash = hashlib.sha256()
        self._piece_hashes: list[hashlib._Hash] = []
        self._header_bytes_to_try = FIRST_HEADER_BYTES
        self.hashed = 0
        self.journal = read_journal(folder, key) or Journal(key, display, name, now())
        self.ranges = self.journal.ranges.copy()
        if self.ranges.total:
            self.plan()
        if not self.ranges.total or not self._is_all_there():
            self.discard()
            self.pieces, self.header = (), None
            self.journal = Journal(key, display, name, now())
            self.ranges = Ranges()

    @property
    def size(self) -> int | None:
        return self.journal.size

    @property
    def is_complete(self) -> bool:
        return self.size is not None and self.ranges.total == self.size

    @property
    def is_planned(self) -> bool:
        """Whether it is decided where bytes go; before, only what follows the frontier may be written."""
        return bool(self.pieces)

    @property
    def header_bytes_wanted(self) -> int:
        """How many bytes the next `plan` needs from the beginning on."""
        return min(self._header_bytes_to_try, self.size or self._header_bytes_to_try)

    def set_size(self, size: int | None) -> None:
        """Once it is known, or surely will not be before the end."""
        self.journal.size = size
        self.plan()

    def plan(self) -> None:
        """Decides where bytes go, as soon as what has come tells. Raises model_invalid, model_truncated."""
        if self.is_planned:
            return
        size = self.size
        if size is None or size <= self._sizes.max_whole_bytes:
            self.pieces = (Piece(None, 0, size),)
            self._begin_hashes()
            return
        if self.ranges.frontier < self.header_bytes_wanted:
            return
        self._read_header(size)
        if self.header is None:
            return
        self._require_whole(self.header, size)
        head = self._head_file()
        start = self.header.data_start
        self.pieces = tuple(
            plan_pieces(
                self.header,
                head.read(start, 0),
                size,
                name=self.journal.name,
                max_whole_bytes=self._sizes.max_whole_bytes,
                shard_bytes=self._sizes.shard_bytes,
            )
        )
        self._begin_hashes()
        for index, piece in enumerate(self.pieces):
            self._piece_file(index).write(piece.header or b"", 0)
        # What came with the header is data already.
        first = self.pieces[0].start
        for at in range(first, self.ranges.frontier, _READ_BYTES):
            self._put(memoryview(head.read(min(_READ_BYTES, self.ranges.frontier - at), at)), at)

    def check_header(self) -> None:
        """Once the beginning is there: refuses what cannot be a whole model, before the rest is fetched."""
        if self.size is None or not self.is_planned:
            return
        self._read_header(self.size)
        if self.header is not None:
            self._require_whole(self.header, self.size)

    def write(self, data: bytes, at: int) -> int:
        """Writes published bytes; returns how many of them are new."""
        if self.is_planned:
            self._put(memoryview(data), at)
        else:
            self._head_file().write(data, at)
        new = self.ranges.add(at, at + len(data))
        if not self.is_planned:
            self.plan()
        return new

    def read(self, size: int, at: int) -> bytes:
        """Published bytes that have come; may return fewer, up to where another file goes on."""
        file, start, end, place = self._place(at)
        if end is not None:
            size = min(size, end - at)
        return file.read(size, place + at - start)

    def flush(self, ranges: Ranges) -> None:
        """Makes the bytes of these ranges, and then the journal that names them, survive a crash."""
        for file in list(self._files.values()):
            file.flush()
        self.journal.ranges = ranges
        self._folder.write_text(journal_name(self.journal.key), self.journal.to_json())

    def hash_until(self, end: int) -> None:
        """Takes what has come up to there into the hashes."""
        while self.hashed < end:
            data = self.read(min(_READ_BYTES, end - self.hashed), self.hashed)
            if not data:
                raise HeadraceError("storage_failed", f"{self.journal.name}: bytes that were stored are gone")
            self._hash.update(data)
            for index, piece in enumerate(self.pieces):
                if piece.header is not None and self._holds(piece, self.hashed):
                    self._piece_hashes[index].update(data)
            self.hashed += len(data)

    def finish(self) -> FetchedFile:
        """When all has come and is hashed. Raises model_invalid and model_truncated."""
        size = self.size
        assert size is not None
        assert self.hashed == size
        self.check_header()
        assert self.header is not None
        following = self.read(self.header.alignment + 8, min(self.header.data_end, size - 1))
        require_separate(self.header, size, self.journal.name, following)
        part = HashedFile(self._hash.hexdigest(), size)
        files = []
        for index, piece in enumerate(self.pieces):
            header = piece.header or b""
            stored = len(header) + (size if piece.end is None else piece.end) - piece.start
            digest = part.sha256 if piece.header is None else self._piece_hashes[index].hexdigest()
            file = self._piece_file(index)
            file.truncate(stored)
            files.append((HashedFile(digest, stored), file.name))
        self.flush(self.ranges.copy())
        return FetchedFile(part, tuple(files), self.journal.etag, self.header)

    def discard(self) -> None:
        """Removes all of it."""
        self.close()
        discard_partial(self._folder, self.journal.key)

    def close(self) -> None:
        """May be called again."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _is_all_there(self) -> bool:
        """Whether the files are as long as the ranges tell."""
        for start, end in self.ranges.to_list():
            for byte in (start, end - 1, *(p.end - 1 for p in self.pieces if p.end and start < p.end <= end)):
                file, first, _, place = self._place(byte)
                if (self._folder.size(file.name) or 0) <= place + byte - first:
                    return False
        return True

    def _read_header(self, size: int) -> None:
        read = self._head_file().read if not self.is_planned else self.read
        wanted = self.header_bytes_wanted
        while self.header is None and wanted <= self.ranges.frontier:
            head = b""
            while len(head) < wanted and (more := read(wanted - len(head), len(head))):
                head += more
            self.header = parse_header(head, self.journal.name, size)
            if self.header is None:
                self._header_bytes_to_try = min(2 * wanted, size)
                wanted = self._header_bytes_to_try

    def _require_whole(self, header: GgufHeader, size: int) -> None:
        if header.data_end > size:
            raise HeadraceError(
                "model_truncated",
                f"{self.journal.name} ends before its tensors do: it has {size} bytes",
                {"name": self.journal.name, "expectedBytes": header.data_end, "actualBytes": size},
            )
        require_separate(header, size, self.journal.name)

    def _begin_hashes(self) -> None:
        self._piece_hashes = [hashlib.sha256(piece.header or b"") for piece in self.pieces]

    def _put(self, data: memoryview, at: int) -> None:
        while data:
            file, start, end, place = self._place(at)
            count = len(data) if end is None else min(len(data), end - at)
            file.write(data[:count], place + at - start)
            data, at = data[count:], at + count

    def _place(self, at: int) -> tuple[DataFile, int, int | None, int]:
        """Which file holds a published byte; its published first and last, and where the first lies there."""
        if not self.pieces:
            return self._head_file(), 0, None, 0
        if at < self.pieces[0].start:
            return self._head_file(), 0, self.pieces[0].start, 0
        for index, piece in enumerate(self.pieces):
            if self._holds(piece, at):
                return self._piece_file(index), piece.start, piece.end, len(piece.header or b"")
        raise HeadraceError("internal", f"{self.journal.name}: there is no byte {at}")

    @staticmethod
    def _holds(piece: Piece, at: int) -> bool:
        return piece.start <= at and (piece.end is None or at < piece.end)

    def _head_file(self) -> DataFile:
        return self._file("head")

    def _piece_file(self, index: int) -> DataFile:
        return self._file(str(index + 1))

    def _file(self, suffix: str) -> DataFile:
        name = f"partial-{self.journal.key}-{suffix}.gguf"
        if name not in self._files:
            self._files[name] = DataFile(self._folder, name)
        return self._files[name]


def metadata_text(metadata: Mapping[str, object], key: str) -> str | None:
    """A text of a header; None when it has none of this key."""
    value = metadata.get(key)
    return value if isinstance(value, str) and value else None
