"""How a file that is served misbehaves: what breaks, what lies, what changes.

Counterpart: `tests/fault_server.py`, which does it. Only descriptions.
"""

import base64
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

EXPOSED = (
    "Accept-Ranges",
    "Content-Digest",
    "Content-Encoding",
    "Content-Range",
    "Digest",
    "ETag",
    "Repr-Digest",
    "Retry-After",
    "X-Linked-ETag",
    "X-Linked-Size",
)


class Content(Protocol):
    """Bytes that need not be in memory."""

    @property
    def size(self) -> int: ...

    def read(self, start: int, length: int) -> bytes:
        """`length` bytes from `start` on; never asked for more than there are."""
        ...


class Held:
    """Content in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)

    def read(self, start: int, length: int) -> bytes:
        return self.data[start : start + length]


class OnDisk:
    """Content of a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = path.stat().st_size

    def read(self, start: int, length: int) -> bytes:
        with self.path.open("rb") as file:
            file.seek(start)
            return file.read(length)


@dataclass
class Exchange:
    """A request and what became of it; `started` is of `time.monotonic`, `range` the Range header.

    `sent` counts bytes of the body. `outcome` is "open" while it goes on, then "complete", "cut" (by a fault)
    or "left" (the client, or the server's end, closed the connection).
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    started: float
    status: int = 0
    sent: int = 0
    outcome: Literal["open", "complete", "cut", "left"] = "open"

    @property
    def range(self) -> str | None:
        return self.headers.get("range")


@dataclass(kw_only=True)
class Fault:
    """What goes wrong, with the next `times` of those requests that it fits.

    `skip` of them pass unharmed before. `method` and `ranged` (with a Range header, or without) choose.
    """

    times: int = 1
    skip: int = 0
    method: str = "GET"
    ranged: bool | None = None

    def fits(self, exchange: Exchange) -> bool:
        ranged = exchange.range is not None
        return exchange.method == self.method and self.ranged in (None, ranged)

    def take(self) -> bool:
        """Counts a request that it fits; whether it is this one's turn to fail."""
        if self.skip > 0:
            self.skip -= 1
            return False
        self.times -= 1
        return True


@dataclass(kw_only=True)
class Break(Fault):
    """The body goes no further: after `after` of its bytes, or before byte `at` of the file.

    "cut" ends the connection so that the client gets all that was sent, "reset" drops what is on its way,
    "stall" keeps it open and silent. A body that is shorter, or has no byte `at`, is none that it fits.
    """

    after: int | None = None
    at: int | None = None
    how: Literal["cut", "reset", "stall"] = "cut"

    def bytes_of(self, start: int, end: int) -> int | None:
        """How much of the bytes [start, end) is sent; None where it does not fit."""
        count = self.after if self.at is None else self.at - start
        return count if count is not None and 0 <= count < end - start else None


@dataclass(kw_only=True)
class Answer(Fault):
    """Another response altogether, with the CORS headers."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(kw_only=True)
class IgnoreRange(Fault):
    """The whole file with status 200, whatever range was asked for."""


@dataclass
class Served:
    """One path, and how it behaves; may be changed at any time, and is looked at for each request.

    `declared_bytes` is a Content-Length that lies. `framing` "close" has neither length nor chunks. `rate` is
    in bytes per second for each connection. `head_status` refuses HEAD, `token` is wanted as a Bearer token,
    `redirect` is an address and its status. `headers` come with every 200 and 206. `before` is called with
    each request, before it is answered.
    """

    url: str
    content: Content
    etag: str | None = '"1"'
    last_modified: str | None = None
    ranges: bool = True
    framing: Literal["length", "chunked", "close"] = "length"
    declared_bytes: int | None = None
    gzip: bool = False
    rate: int | None = None
    head_status: int | None = None
    token: str | None = None
    redirect: tuple[str, int] | None = None
    cors: bool = True
    exposed: tuple[str, ...] = EXPOSED
    headers: dict[str, str] = field(default_factory=dict)
    media_type: str = "application/octet-stream"
    faults: list[Fault] = field(default_factory=list)
    before: Callable[[Exchange], None] = lambda _exchange: None

    def change(self, data: bytes, etag: str | None) -> None:
        """Publishes other bytes under the same address."""
        self.content, self.etag = Held(data), etag

    def break_at(self, offsets: list[int], how: Literal["cut", "reset", "stall"] = "cut") -> None:
        """Ends each connection that comes to one of these bytes of the file, once for each."""
        self.faults += [Break(at=offset, how=how) for offset in offsets]


def repr_digest(data: bytes) -> dict[str, str]:
    """The header Repr-Digest of these bytes (RFC 9530)."""
    return {"Repr-Digest": f"sha-256=:{_base64_sha256(data)}:"}


def digest(data: bytes) -> dict[str, str]:
    """The older header Digest of these bytes (RFC 3230)."""
    return {"Digest": f"SHA-256={_base64_sha256(data)}"}


def linked_etag(data: bytes) -> dict[str, str]:
    """The header by which Hugging Face tells the sha256 of a large file."""
    return {"X-Linked-ETag": f'"{hashlib.sha256(data).hexdigest()}"', "X-Linked-Size": str(len(data))}


def _base64_sha256(data: bytes) -> str:
    return base64.b64encode(hashlib.sha256(data).digest()).decode()
