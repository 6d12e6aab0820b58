"""What has come of a published file so far, as it is written down, and arithmetic of ranges.

Counterpart: `Journal` in `web/models/types.js`, whose form this is. Does not write: `partial.py` does, after
the bytes.
"""

import bisect
import json
from dataclasses import dataclass, field

Range = tuple[int, int]


class Ranges:
    """Bytes of a file: from a first byte to the one behind the last, sorted, apart from each other."""

    def __init__(self, ranges: list[Range] | None = None) -> None:
        self._ranges: list[Range] = []
        for start, end in ranges or []:
            self.add(start, end)

    def add(self, start: int, end: int) -> int:
        """Adds a range; returns how many bytes of it are new."""
        if start >= end:
            return 0
        before = self.total
        first = bisect.bisect_left(self._ranges, start, key=lambda item: item[1])
        last = bisect.bisect_right(self._ranges, end, key=lambda item: item[0])
        if first < last:
            start, end = min(start, self._ranges[first][0]), max(end, self._ranges[last - 1][1])
        self._ranges[first:last] = [(start, end)]
        return self.total - before

    @property
    def total(self) -> int:
        return sum(end - start for start, end in self._ranges)

    @property
    def frontier(self) -> int:
        """How many bytes there are from the beginning on, without a gap."""
        return self._ranges[0][1] if self._ranges and self._ranges[0][0] == 0 else 0

    def gaps(self, start: int, end: int) -> list[Range]:
        """What is missing between these bytes."""
        missing = []
        for first, last in self._ranges:
            if last <= start:
                continue
            if first >= end:
                break
            if first > start:
                missing.append((start, first))
            start = last
        if start < end:
            missing.append((start, end))
        return missing

    def copy(self) -> "Ranges":
        made = Ranges()
        made._ranges = list(self._ranges)
        return made

    def to_list(self) -> list[Range]:
        return list(self._ranges)


@dataclass
class Journal:
    """`partial-<key>.json`. A range is in it only after its bytes were flushed."""

    key: str
    display: str
    name: str
    started_at: str
    size: int | None = None
    etag: str | None = None
    last_modified: str | None = None
    ranges: Ranges = field(default_factory=Ranges)

    def to_json(self) -> str:
        record = {
            "version": 1,
            "key": self.key,
            "display": self.display,
            "name": self.name,
            "size": self.size,
            "etag": self.etag,
            "lastModified": self.last_modified,
            "ranges": self.ranges.to_list(),
            "startedAt": self.started_at,
        }
        return json.dumps(record, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "Journal | None":
        """None for what is no journal of this version: its download starts over."""
        try:
            record = json.loads(text)
            if record["version"] != 1:
                return None
            size = record["size"]
            ranges = [(int(start), int(end)) for start, end in record["ranges"]]
            journal = cls(
                key=_text(record["key"]),
                display=_text(record["display"]),
                name=_text(record["name"]),
                started_at=_text(record["startedAt"]),
                size=None if size is None else int(size),
                etag=_text_or_none(record["etag"]),
                last_modified=_text_or_none(record["lastModified"]),
                ranges=Ranges(ranges),
            )
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        last = max((end for _, end in ranges), default=0)
        in_order = all(0 <= start < end for start, end in ranges)
        return journal if in_order and (size is None or last <= size) else None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _text_or_none(value: object) -> str | None:
    return None if value is None else _text(value)
