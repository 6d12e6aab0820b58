"""Fetches one published file: in parallel ranges, again and again until all has come, resuming what has.

Counterpart: `web/models/download.js`, the same rules. Knows nothing of models that are stored already, nor of
room for new ones: `on_start` asks the store.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import httpx

from headrace.errors import HeadraceError
from headrace.models.folder import Folder
from headrace.models.gguf import SNIFF_BYTES, GgufHeader, require_gguf
from headrace.models.journal import Range
from headrace.models.partial import FetchedFile, Partial
from headrace.models.published import Changed, PublishedFile
from headrace.models.retries import DownloadLimits, GivenUp, Retries, Transient
from headrace.models.sources import RemoteFile
from headrace.models.transport import Answer, request

T = TypeVar("T")

HEAD_BYTES = 1 << 20
_HASH_BYTES = 4 << 20
_NOTHING_KEPT = frozenset(
    {"hash_mismatch", "invalid_request", "model_invalid", "model_truncated", "storage_full"}
)


class Download:
    """One published file on its way into the folder; whoever makes it holds the lock of its download.

    `on_bytes` is told how much has come, and of how much. `on_start` is awaited once when size and ETag are
    known, as far as they ever are before the end; what it raises ends the download.
    """

    def __init__(
        self,
        file: RemoteFile,
        folder: Folder,
        client: httpx.AsyncClient,
        limits: DownloadLimits,
        on_bytes: Callable[[int, int | None], object],
        on_start: Callable[["Download"], Awaitable[object]],
    ) -> None:
        self.file = file
        self._folder = folder
        self._client = client
        self._limits = limits
        self._on_bytes = on_bytes
        self._on_start = on_start
        self._begin()

    async def run(self) -> FetchedFile:
        """Fetches what is missing. Raises HeadraceError.

        download_failed: gone, forbidden, or broken too often; what has come is kept. hash_mismatch,
        model_invalid, model_truncated, storage_full: nothing is kept.
        """
        try:
            try:
                return await self._fetch_all()
            except Changed:
                self._partial.discard()
                self._begin()
                return await self._fetch_all()
        except Changed:
            self._partial.discard()
            raise self._told.failure("it changes while it is being downloaded") from None
        except GivenUp as error:
            raise self._told.failure(str(error), error.status) from error
        except HeadraceError as error:
            if error.code in _NOTHING_KEPT:
                self._partial.discard()
            raise
        finally:
            self._partial.close()

    @property
    def size(self) -> int | None:
        return self._partial.size

    @property
    def etag(self) -> str | None:
        return self._told.etag

    @property
    def expected_sha256(self) -> str | None:
        """As the caller wants it, or a header tells it."""
        return self._told.expected_sha256

    @property
    def missing_bytes(self) -> int:
        return (self.size or 0) - self._partial.ranges.total

    @property
    def header(self) -> GgufHeader | None:
        """When it has come whole already."""
        return self._partial.header

    def head(self) -> bytes:
        """What has come of the beginning, at most `HEAD_BYTES`."""
        count = min(self._partial.ranges.frontier, HEAD_BYTES)
        return self._partial.read(count, 0) if count else b""

    async def read_remote(self, start: int, end: int) -> bytes | None:
        """Published bytes that are not kept; None when the server does not give just these."""
        try:
            async with request(self._client, self.file, (start, end), self._told.validator) as answer:
                if answer.status != 206 or answer.encoded or answer.start != start:
                    return None
                data = b""
                async for chunk in answer.chunks():
                    data += chunk
                    if len(data) >= end - start:
                        break
                return data[: end - start] if len(data) >= end - start else None
        except httpx.TransportError:
            return None

    def _begin(self) -> None:
        file = self.file
        self._partial = Partial(self._folder, file.key, file.display, file.name, self._limits.sizes)
        self._told = PublishedFile(file, self._partial)
        self._retries = Retries(self._limits)
        self._sniffed = self._told.is_known
        self._started = False
        self._claimed: list[Range] = []
        self._whole_body: Answer | None = None
        self._unflushed = 0
        self._more_to_hash = asyncio.Event()
        self._more_to_flush = asyncio.Event()
        self._flushed = asyncio.Event()
        if self._partial.is_complete:
            self._wake()

    async def _fetch_all(self) -> FetchedFile:
        try:
            await _all(self._keep_journal(), self._hash_what_comes(), self._fetch_what_is_missing())
            fetched = self._partial.finish()
        finally:
            if self._unflushed:
                self._partial.flush(self._partial.ranges.copy())
        self._told.require_hash(fetched.part.sha256)
        return fetched

    async def _fetch_what_is_missing(self) -> None:
        # One connection until it is known what the file is and where its bytes go.
        while not (self._told.is_known and self._partial.is_planned and self._partial.ranges.total):
            await self._try(self._next_head_gap())
        self._partial.check_header()
        await self._start()
        await _all(*(self._work() for _ in range(self._limits.connections)))

    async def _start(self) -> None:
        if not self._started:
            self._started = True
            await self._on_start(self)

    def _next_head_gap(self) -> Range:
        start = self._partial.ranges.frontier
        return start, max(self._partial.header_bytes_wanted, start + 1)

    async def _work(self) -> None:
        while not self._partial.is_complete and self._whole_body is None:
            gap = self._claim()
            if gap is None:
                return
            self._claimed.append(gap)
            try:
                await self._try(gap)
            finally:
                self._claimed.remove(gap)

    def _claim(self) -> Range | None:
        """The next bytes that nobody fetches yet."""
        size = self._partial.size
        if size is None or not self._told.ranged:
            start = self._partial.ranges.frontier
            return None if self._claimed else (start, size or -1)
        busy = self._partial.ranges.copy()
        for gap in self._claimed:
            busy.add(*gap)
        gaps = busy.gaps(0, size)
        if not gaps:
            return None
        start, end = gaps[0]
        return start, min(end, start + self._limits.gap_bytes)

    async def _try(self, gap: Range) -> None:
        """One request for these bytes (to -1: to the end); what has not come then is asked for again."""
        arrived = self._retries.arrived
        try:
            await self._request(gap[0], None if gap[1] < 0 else gap[1])
            came = self._retries.arrived > arrived
            if came or self._partial.is_complete or self._whole_body is not None:
                return
            reason = Transient("the server sends nothing")
        except Transient as error:
            reason = error
        except httpx.TimeoutException:
            reason = Transient("no byte comes any more")
        except (httpx.TransportError, httpx.DecodingError) as error:
            reason = Transient(str(error) or type(error).__name__)
        except httpx.TooManyRedirects:
            raise self._told.failure("its server redirects in a circle") from None
        except (httpx.InvalidURL, UnicodeError):
            raise self._told.failure("its server redirects to what is no address") from None
        await self._retries.wait(reason)

    async def _request(self, start: int, end: int | None) -> None:
        byte_range = (start, end) if self._told.ranged else None
        async with request(self._client, self.file, byte_range, self._told.validator) as answer:
            if answer.status == 416:
                if self._told.is_known and self._partial.size is None and answer.total == start:
                    self._end(start)
                    return
                # Whether the file has changed or the server cannot count: the whole file tells.
                self._told.ranged = False
                raise Transient("the server refuses the range", 416)
            self._told.refuse_status(answer)
            if answer.status == 206 and (answer.encoded or answer.start != start):
                self._told.ranged = False
                raise Transient("the server sends another range", 206)
            self._told.learn(answer)
            if answer.status == 206:
                await self._copy(answer, start, end)
            elif self._whole_body is None:
                # No ranges: this body is the file. What is here of it already is skipped.
                self._whole_body = answer
                try:
                    # It is read to its end: the store is asked before, as far as it can be.
                    if self._partial.size is not None:
                        await self._start()
                    await self._copy(answer, 0, None)
                finally:
                    self._whole_body = None

    async def _copy(self, answer: Answer, at: int, end: int | None) -> None:
        head = b""
        async for chunk in answer.chunks():
            if not self._sniffed:
                head += chunk
                if len(head) < SNIFF_BYTES and len(head) != self._partial.size:
                    continue
                chunk = self._sniff(head)
            if end is not None:
                chunk = chunk[: end - at]
            at = self._take(chunk, at)
            # A disk that flushes slowly must not leave much that the journal does not know.
            while self._unflushed >= self._limits.journal_bytes and not self._partial.is_complete:
                self._flushed.clear()
                await self._flushed.wait()
            if end is not None and at >= end:
                return
        if not self._sniffed:
            at = self._take(self._sniff(head), at)
        if end is None and self._partial.size is None:
            self._end(at)

    def _sniff(self, head: bytes) -> bytes:
        require_gguf(head, self.file.name)
        self._sniffed = True
        return head

    def _take(self, chunk: bytes, at: int) -> int:
        """Writes what of a chunk is missing."""
        size = self._partial.size
        behind = at + len(chunk)
        for start, end in self._partial.ranges.gaps(at, behind if size is None else min(behind, size)):
            new = self._partial.write(chunk[start - at : end - at], start)
            self._retries.progress(new)
            self._unflushed += new
        self._more_to_hash.set()
        if self._unflushed >= self._limits.journal_bytes or self._partial.is_complete:
            self._more_to_flush.set()
        self._on_bytes(self._partial.ranges.total, self._partial.size)
        return behind

    def _end(self, size: int) -> None:
        """A file whose size was unknown has ended, unless its header says that more belongs to it."""
        if size < self._partial.ranges.total:
            raise Changed
        journal = self._partial.journal
        journal.size = size
        try:
            self._partial.check_header()
        except HeadraceError as error:
            if error.code != "model_truncated":
                raise
            journal.size = None
            raise Transient("the connection ends before the file does") from error
        self._wake()

    def _wake(self) -> None:
        self._more_to_hash.set()
        self._more_to_flush.set()

    async def _hash_what_comes(self) -> None:
        partial = self._partial
        while not partial.is_complete or partial.hashed < partial.ranges.frontier:
            end = min(partial.ranges.frontier, partial.hashed + _HASH_BYTES) if partial.is_planned else 0
            if end > partial.hashed:
                await _in_thread(partial.hash_until, end)
            else:
                self._more_to_hash.clear()
                await self._more_to_hash.wait()

    async def _keep_journal(self) -> None:
        while not self._partial.is_complete:
            await self._more_to_flush.wait()
            self._more_to_flush.clear()
            self._unflushed = 0
            self._flushed.set()
            await _in_thread(self._partial.flush, self._partial.ranges.copy())
            self._flushed.set()


async def _all(*work: Coroutine[Any, Any, object]) -> None:
    """Waits for all; when one fails, the others are ended and its error is raised."""
    tasks = [asyncio.ensure_future(item) for item in work]
    try:
        for task in asyncio.as_completed(tasks):
            await task
    finally:
        for unfinished in tasks:
            unfinished.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _in_thread(work: Callable[[T], object], argument: T) -> None:
    """Runs it beside the event loop; when cancelled, returns only after it has ended."""
    job = asyncio.get_running_loop().run_in_executor(None, work, argument)
    try:
        await asyncio.shield(job)
    except asyncio.CancelledError:
        await asyncio.gather(job, return_exceptions=True)
        raise
