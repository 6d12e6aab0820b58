"""A server of files whose connections break, whose headers lie and whose answers change.

Counterparts: `tests/fault_scenarios.py` says what may go wrong; `web/models/` and `headrace/models/`, whose
downloads it puts to the test. Connections and requests are uvicorn's; responses are written to the transport
by hand, because uvicorn rightly refuses to send what is asked for here. Not a server for anything else: every
response ends its connection.
"""

import asyncio
import gzip
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast

from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import Receive, Scope, Send

from headrace.server import background_server
from tests.fault_scenarios import Answer, Break, Content, Exchange, Fault, Held, IgnoreRange, OnDisk, Served

WRITE_BYTES = 64 * 1024
PACED_BUFFER_BYTES = 16 * 1024
PACES_PER_SECOND = 50


class FaultServer:
    """Files by path, and a log of all that was asked for them."""

    def __init__(self) -> None:
        self.url = ""
        self.log: list[Exchange] = []
        self._served: dict[str, Served] = {}
        self._open: set[asyncio.Transport] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def serve(self, path: str, content: bytes | Path | Content, **settings: Any) -> Served:
        """Publishes `content` under `path`, which begins with a slash; settings are those of `Served`."""
        if isinstance(content, bytes):
            content = Held(content)
        elif isinstance(content, Path):
            content = OnDisk(content)
        served = Served(self.url + path, content, **settings)
        self._served[path] = served
        return served

    def remove(self, path: str) -> None:
        """From now on 404."""
        del self._served[path]

    def requests(self, path: str | None = None, method: str | None = "GET") -> list[Exchange]:
        """The requests so far, in their order; of every path, or method, when it is None."""
        return [
            exchange
            for exchange in list(self.log)
            if path in (None, exchange.path) and method in (None, exchange.method)
        ]

    def bytes_sent(self, path: str | None = None) -> int:
        """Bytes of bodies so far."""
        return sum(exchange.sent for exchange in self.requests(path, None))

    def wait_until(self, condition: Callable[[], bool], seconds: float = 20) -> None:
        """Waits for what the server is to see; raises TimeoutError."""
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError(f"not within {seconds} seconds; the log: {self.log[-8:]}")
            time.sleep(0.005)

    def settle(self) -> list[Exchange]:
        """The log, when no request goes on any more; raises TimeoutError."""
        self.wait_until(lambda: all(exchange.outcome != "open" for exchange in list(self.log)))
        return self.log

    async def __call__(self, scope: Scope, receive: Receive, _send: Send) -> None:
        # uvicorn gives the application no transport, but the object that is behind `receive` has it.
        cycle = cast(Any, receive).__self__
        self._loop = asyncio.get_running_loop()
        self._open.add(cycle.transport)
        exchange = Exchange(
            scope["method"],
            scope["path"],
            scope["query_string"].decode(),
            {name.decode().lower(): value.decode("latin-1") for name, value in scope["headers"]},
            time.monotonic(),
        )
        self.log.append(exchange)
        served = self._served.get(exchange.path)
        try:
            await _Response(exchange, cycle).answer(served)
        finally:
            if exchange.outcome == "open":
                exchange.outcome = "left"
            cycle.transport.close()
            # uvicorn reports a request without a response unless the connection has gone.
            while (await receive())["type"] != "http.disconnect":
                pass
            self._open.discard(cycle.transport)

    def hang_up(self) -> None:
        """Ends all connections, those too that stall."""
        loop = self._loop
        if loop is None:
            return
        done = threading.Event()

        def abort() -> None:
            for transport in list(self._open):
                transport.abort()
            done.set()

        loop.call_soon_threadsafe(abort)
        done.wait(5)


class _Response:
    """Writes the response of one exchange."""

    def __init__(self, exchange: Exchange, cycle: Any) -> None:
        self.exchange = exchange
        self.transport: asyncio.Transport = cycle.transport
        self.flow = cycle.flow
        self.transport.set_write_buffer_limits(high=0)

    async def answer(self, served: Served | None) -> None:
        exchange = self.exchange
        if served is None:
            # Else a page would not even see the status.
            return await self._plain(404, {"Access-Control-Allow-Origin": "*"}, b"there is no such file\n")
        served.before(exchange)
        cors = self._cors(served)
        if exchange.method == "OPTIONS":
            return await self._plain(204 if served.cors else 403, cors)
        fault = self._fault(served)
        if isinstance(fault, Answer):
            return await self._plain(fault.status, {**cors, **fault.headers}, fault.body)
        if served.token is not None and exchange.headers.get("authorization") != f"Bearer {served.token}":
            return await self._plain(401, cors, b"a token is needed\n")
        if served.redirect:
            address, status = served.redirect
            return await self._plain(status, {**cors, "Location": address})
        if exchange.method == "HEAD" and served.head_status is not None:
            return await self._plain(served.head_status, cors)
        if served.etag is not None and exchange.headers.get("if-none-match") == served.etag:
            return await self._plain(304, {**cors, "ETag": served.etag})
        return await self._file(served, cors, fault)

    def _fault(self, served: Served) -> Fault | None:
        """The first fault whose turn it is; those that are used up are forgotten."""
        for fault in served.faults:
            if not fault.fits(self.exchange):
                continue
            if isinstance(fault, Break):
                start, end = self._range(served) or (0, served.content.size)
                if fault.bytes_of(start, end) is None:
                    continue
            if fault.take():
                served.faults = [fault for fault in served.faults if fault.times > 0]
                return fault
        return None

    def _range(self, served: Served) -> tuple[int, int] | None:
        """The bytes [start, end) that are asked for; None for the whole file, empty if there are none."""
        size = served.content.size
        match = re.fullmatch(r"bytes=(\d*)-(\d*)", self.exchange.range or "")
        validators = (None, served.etag, served.last_modified)
        if not match or not any(match.groups()) or not served.ranges or served.gzip:
            return None
        if self.exchange.headers.get("if-range") not in validators:
            return None
        first, last = match.groups()
        if not first:
            return max(size - int(last), 0), size
        end = min(int(last) + 1, size) if last else size
        return (int(first), end) if int(first) < end else (size, size)

    async def _file(self, served: Served, cors: Mapping[str, str], fault: Fault | None) -> None:
        content = served.content
        asked = None if isinstance(fault, IgnoreRange) else self._range(served)
        if asked and asked[0] >= asked[1]:
            return await self._plain(416, {**cors, "Content-Range": f"bytes */{content.size}"})
        start, end = asked or (0, content.size)
        headers = {**cors, "Content-Type": served.media_type, **served.headers}
        if served.gzip:
            content = Held(gzip.compress(content.read(0, content.size), 1))
            end = content.size
            headers["Content-Encoding"] = "gzip"
        if served.ranges and not served.gzip:
            headers["Accept-Ranges"] = "bytes"
        if served.etag is not None:
            headers["ETag"] = served.etag
        if served.last_modified is not None:
            headers["Last-Modified"] = served.last_modified
        if asked:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{content.size}"
        if served.framing == "length":
            declared = served.declared_bytes
            headers["Content-Length"] = str(end - start if declared is None else declared)
        elif served.framing == "chunked":
            headers["Transfer-Encoding"] = "chunked"
        await self._head(206 if asked else 200, headers)
        if self.exchange.method == "HEAD":
            self.exchange.outcome = "complete"
            return None
        stop = fault.bytes_of(start, end) if isinstance(fault, Break) else None
        # A client that has what it was told stops reading; more would be the start of another response.
        stop_at = end if stop is None else start + stop
        if not await self._body(served, content, start, stop_at):
            return None
        if isinstance(fault, Break) and stop is not None:
            return await self._break(fault)
        if served.framing == "chunked":
            await self._write(b"0\r\n\r\n")
        self.exchange.outcome = "complete"
        return None

    async def _body(self, served: Served, content: Content, start: int, end: int) -> bool:
        """Whether the client took it all."""
        if served.rate is not None:
            connection: socket.socket = self.transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, PACED_BUFFER_BYTES)
        began, first = time.monotonic(), start
        while start < end:
            step = WRITE_BYTES
            if served.rate is not None:
                step = min(PACED_BUFFER_BYTES, max(served.rate // PACES_PER_SECOND, 1))
                await asyncio.sleep(max((start - first) / served.rate - (time.monotonic() - began), 0))
            data = content.read(start, min(step, end - start))
            start += len(data)
            framed = b"%x\r\n%b\r\n" % (len(data), data) if served.framing == "chunked" else data
            if not await self._write(framed):
                return False
            self.exchange.sent += len(data)
        return True

    async def _break(self, fault: Break) -> None:
        if fault.how == "stall":
            while not self.transport.is_closing():
                await asyncio.sleep(0.02)
            return
        self.exchange.outcome = "cut"
        if fault.how == "reset":
            connection: socket.socket = self.transport.get_extra_info("socket")
            linger = struct.pack("ii", 1, 0)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.transport.abort()

    async def _plain(self, status: int, headers: Mapping[str, str], body: bytes = b"") -> None:
        if status not in (204, 304):
            headers = {"Content-Length": str(len(body)), "Content-Type": "text/plain", **headers}
        await self._head(status, headers)
        if self.exchange.method != "HEAD" and await self._write(body):
            self.exchange.sent = len(body)
        self.exchange.outcome = "complete"

    async def _head(self, status: int, headers: Mapping[str, str]) -> None:
        self.exchange.status = status
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        await self._write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))

    async def _write(self, data: bytes) -> bool:
        """Waits until the system has taken the data; whether there still is a client."""
        if self.transport.is_closing():
            return False
        self.transport.write(data)
        await self.flow.drain()
        # With little to do, nothing above ever waits, and other connections would.
        await asyncio.sleep(0)
        return not self.transport.is_closing()

    def _cors(self, served: Served) -> dict[str, str]:
        if not served.cors:
            return {}
        headers = {"Access-Control-Allow-Origin": "*", "Cross-Origin-Resource-Policy": "cross-origin"}
        if served.exposed:
            headers["Access-Control-Expose-Headers"] = ", ".join(served.exposed)
        if self.exchange.method == "OPTIONS":
            asked = self.exchange.headers.get("access-control-request-headers", "")
            headers |= {"Access-Control-Allow-Headers": asked} if asked else {}
            headers["Access-Control-Allow-Methods"] = "GET, HEAD"
        return headers


@contextmanager
def fault_server(host: str = "127.0.0.1") -> Iterator[FaultServer]:
    """A server of its own origin, on a free port, while the context is open."""
    server = FaultServer()
    with background_server(Starlette(routes=[Mount("/", server)]), host) as url:
        server.url = url
        try:
            yield server
        finally:
            server.hang_up()
