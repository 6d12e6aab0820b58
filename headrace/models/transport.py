"""Requests for published files, and what their responses tell.

Counterpart: the requests in `web/models/download.js`, which uses fetch. Neither repeats a request nor writes
anything: see `download.py`.
"""

import base64
import binascii
import email.utils
import logging
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import httpx

from headrace.errors import HeadraceError
from headrace.models.sources import RemoteFile

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")
_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")
_LINKED_ETAG = re.compile(r'"?([0-9a-f]{64})"?')
# Of these, the first that has it: RFC 9530 (`sha-256=:…:`), then RFC 3230 (`sha-256=…`).
_DIGEST_HEADERS = ("repr-digest", "content-digest", "digest")
_DIGEST = re.compile(r"(?:^|,)\s*sha-256=:?([A-Za-z0-9+/]{43}=):?\s*(?:,|$)", re.IGNORECASE)
FINAL_STATUS = frozenset(range(400, 500)) - {408, 416, 425, 429}


@dataclass(frozen=True)
class Answer:
    """What the head of a response tells.

    `start` is the first byte that it holds, `total` the size of the file, None where it is not told.
    `encoded` is a body that is compressed on its way: what it tells of sizes is not of the file. `sha256` is
    a hash of the file's content, where a header truly is one.
    """

    status: int
    start: int
    total: int | None
    etag: str | None
    last_modified: str | None
    encoded: bool
    sha256: str | None
    retry_after: float | None
    response: httpx.Response

    def chunks(self) -> AsyncIterator[bytes]:
        return self.response.aiter_bytes() if self.encoded else self.response.aiter_raw()


@asynccontextmanager
async def open_client(connections: int, stall_seconds: float) -> AsyncIterator[httpx.AsyncClient]:
    """A client whose requests fail when no byte comes for `stall_seconds`, and are not logged."""
    timeout = httpx.Timeout(stall_seconds, pool=None)
    limits = httpx.Limits(max_connections=connections + 1)
    with _unlogged():
        async with httpx.AsyncClient(timeout=timeout, limits=limits, follow_redirects=True) as client:
            yield client


@asynccontextmanager
async def request(
    client: httpx.AsyncClient,
    file: RemoteFile,
    byte_range: tuple[int, int | None] | None,
    validator: str | None = None,
) -> AsyncIterator[Answer]:
    """Asks for a file, or a range of it; with `validator`, a range only of the version that has it."""
    headers = {**checked_headers(file.headers), "Accept-Encoding": "identity"}
    if byte_range is not None:
        start, end = byte_range
        headers["Range"] = f"bytes={start}-{'' if end is None else end - 1}"
        if validator is not None:
            headers["If-Range"] = validator
    async with client.stream("GET", file.url, headers=headers) as response:
        yield _read_head(response)


async def probe(client: httpx.AsyncClient, file: RemoteFile) -> Answer | None:
    """What HEAD tells of a file; None when the server refuses it, which only costs the knowledge."""
    headers = {**checked_headers(file.headers), "Accept-Encoding": "identity"}
    try:
        response = await client.head(file.url, headers=headers)
    except (httpx.RequestError, httpx.InvalidURL, UnicodeError):
        return None
    return _read_head(response) if response.status_code == 200 else None


def checked_headers(headers: Mapping[str, str]) -> Mapping[str, str]:
    """The headers as they are, or invalid_option: a message of the client would show what they hold."""
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise HeadraceError("invalid_option", "the name of a header has characters that none may have")
        if not _HEADER_VALUE.fullmatch(value):
            raise HeadraceError(
                "invalid_option", f"the header {name} has a value with characters that none may have"
            )
    return headers


def _read_head(response: httpx.Response) -> Answer:
    headers = response.headers
    encoded = headers.get("content-encoding", "identity").strip().lower() not in ("", "identity")
    start, total = 0, None
    if response.status_code in (206, 416):
        match = _CONTENT_RANGE.fullmatch(headers.get("content-range", "").strip())
        start = int(match[1]) if match and match[1] else -1
        total = int(match[3]) if match and match[3] != "*" else None
    elif not encoded and headers.get("content-length", "").isdecimal():
        total = int(headers["content-length"])
    return Answer(
        status=response.status_code,
        start=start,
        total=total,
        etag=headers.get("etag"),
        last_modified=headers.get("last-modified"),
        encoded=encoded,
        sha256=_content_hash(response, encoded),
        retry_after=_retry_after(headers.get("retry-after")),
        response=response,
    )


def _content_hash(response: httpx.Response, encoded: bool) -> str | None:
    for answer in (*response.history, response):
        if match := _LINKED_ETAG.fullmatch(answer.headers.get("x-linked-etag", "").strip()):
            return match[1]
    if response.status_code == 200 and not encoded:
        for name in _DIGEST_HEADERS:
            if match := _DIGEST.search(response.headers.get(name, "")):
                try:
                    return base64.b64decode(match[1], validate=True).hex()
                except binascii.Error:
                    continue
    return None


def _retry_after(text: str | None) -> float | None:
    """Seconds."""
    if text is None:
        return None
    if text.strip().isdecimal():
        return float(text)
    try:
        return max(email.utils.parsedate_to_datetime(text).timestamp() - time.time(), 0)
    except ValueError:
        return None


# --- What the client must not log: addresses and the places of redirects may hold secrets -----------------

_silent: ContextVar[bool] = ContextVar("headrace_silent", default=False)


class _Secrets(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return not _silent.get()


for _name in ("httpx", "httpcore.connection", "httpcore.http11", "httpcore.proxy"):
    logging.getLogger(_name).addFilter(_Secrets())


@contextmanager
def _unlogged() -> Iterator[None]:
    token = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(token)
