"""tests/fault_server.py itself: each fault is what a client on a real socket sees, and the log tells it."""

import gzip
import hashlib
import http.client
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.fault_scenarios import Answer, Break, Exchange, IgnoreRange, digest, linked_etag, repr_digest
from tests.fault_server import FaultServer, fault_server

DATA = bytes(range(256)) * 2048


class Reply:
    """A response as far as it came; `fault` is the exception that ended it."""

    def __init__(
        self, url: str, headers: Mapping[str, str] | None = None, method: str = "GET", seconds: float = 5
    ) -> None:
        parts = urlsplit(url)
        self.fault: Exception | None = None
        self.body = b""
        with closing(http.client.HTTPConnection(parts.netloc, timeout=seconds)) as connection:
            try:
                connection.request(method, parts.path, headers=dict(headers or {}))
                # The response keeps the socket open beside the connection.
                with connection.getresponse() as response:
                    self.read(response)
            except (http.client.HTTPException, OSError) as error:
                self.fault = error

    def read(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        while chunk := response.read1(65536):
            self.body += chunk
        if response.length:
            self.fault = http.client.IncompleteRead(b"", response.length)


@pytest.fixture(scope="module")
def running() -> Iterator[FaultServer]:
    with fault_server() as server:
        yield server


@pytest.fixture
def server(running: FaultServer) -> FaultServer:
    """One for all tests, because starting one takes longer than a test; its log is that of the test."""
    running.log.clear()
    return running


def ask(client: socket.socket, url: str) -> None:
    parts = urlsplit(url)
    client.connect((parts.hostname, parts.port))
    client.sendall(f"GET {parts.path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())


def only(server: FaultServer) -> Exchange:
    (exchange,) = server.settle()
    return exchange


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
def test_a_file_without_faults(server: FaultServer, framing: str) -> None:
    served = server.serve("/a.gguf", DATA, framing=framing)
    reply = Reply(served.url)
    assert (reply.status, reply.body, reply.fault) == (200, DATA, None)
    assert ("content-length" in reply.headers) == (framing == "length")
    exchange = only(server)
    assert (exchange.method, exchange.path, exchange.range) == ("GET", "/a.gguf", None)
    assert (exchange.status, exchange.sent, exchange.outcome) == (200, len(DATA), "complete")
    assert server.bytes_sent("/a.gguf") == server.bytes_sent() == len(DATA)


def test_a_file_on_disk(server: FaultServer, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(DATA)
    reply = Reply(server.serve("/x.gguf", path).url, {"Range": "bytes=1000-1999"})
    assert (reply.status, reply.body) == (206, DATA[1000:2000])


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [("0-0", 0, 1), ("7-", 7, len(DATA)), ("-9", len(DATA) - 9, len(DATA)), ("5-99999999", 5, len(DATA))],
)
def test_ranges(server: FaultServer, asked: str, start: int, end: int) -> None:
    reply = Reply(server.serve("/a", DATA).url, {"Range": f"bytes={asked}"})
    assert (reply.status, reply.body) == (206, DATA[start:end])
    assert reply.headers["content-range"] == f"bytes {start}-{end - 1}/{len(DATA)}"
    assert only(server).range == f"bytes={asked}"


def test_a_range_behind_the_end(server: FaultServer) -> None:
    reply = Reply(server.serve("/a", DATA).url, {"Range": f"bytes={len(DATA)}-"})
    assert (reply.status, reply.headers["content-range"]) == (416, f"bytes */{len(DATA)}")


def test_if_range_decides_between_a_part_and_the_whole(server: FaultServer) -> None:
    served = server.serve("/a", DATA, etag='"x"')
    assert Reply(served.url, {"Range": "bytes=0-9", "If-Range": '"x"'}).status == 206
    served.change(DATA[::-1], '"y"')
    reply = Reply(served.url, {"Range": "bytes=0-9", "If-Range": '"x"'})
    assert (reply.status, reply.body, reply.headers["etag"]) == (200, DATA[::-1], '"y"')
    assert Reply(served.url, {"If-None-Match": '"y"'}).status == 304


def test_a_server_without_ranges(server: FaultServer) -> None:
    reply = Reply(server.serve("/a", DATA, ranges=False).url, {"Range": "bytes=0-9"})
    assert (reply.status, reply.body) == (200, DATA)
    assert "accept-ranges" not in reply.headers


def test_a_range_is_ignored_the_second_time_only(server: FaultServer) -> None:
    served = server.serve("/a", DATA, faults=[IgnoreRange(skip=1, ranged=True)])
    assert [Reply(served.url, {"Range": "bytes=5-9"}).status for _ in range(3)] == [206, 200, 206]


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_cut_after_so_many_bytes_and_then_no_more(server: FaultServer, framing: str) -> None:
    served = server.serve("/a", DATA, framing=framing, faults=[Break(after=100_000, times=2)])
    for _ in range(2):
        reply = Reply(served.url)
        assert reply.body == DATA[:100_000]
        assert reply.fault is not None
    assert Reply(served.url).body == DATA
    assert [(exchange.sent, exchange.outcome) for exchange in server.settle()] == [
        (100_000, "cut"),
        (100_000, "cut"),
        (len(DATA), "complete"),
    ]


def test_cut_at_bytes_of_the_file(server: FaultServer) -> None:
    served = server.serve("/a", DATA)
    served.break_at([1000, 3000])
    bodies = [Reply(served.url, {"Range": f"bytes={start}-"}).body for start in (0, 1000, 3000, 5000)]
    assert bodies == [DATA[:1000], DATA[1000:3000], DATA[3000:], DATA[5000:]]
    assert served.faults == []


def test_a_reset_is_no_end(server: FaultServer) -> None:
    served = server.serve("/a", DATA, faults=[Break(after=200_000, how="reset")])
    reply = Reply(served.url)
    assert isinstance(reply.fault, ConnectionResetError)
    assert len(reply.body) <= 200_000
    assert only(server).outcome == "cut"


def test_a_stall_ends_with_the_client(server: FaultServer) -> None:
    served = server.serve("/a", DATA, faults=[Break(after=1000, how="stall")])
    reply = Reply(served.url, seconds=0.3)
    assert (reply.body, type(reply.fault)) == (DATA[:1000], TimeoutError)
    assert (only(server).sent, only(server).outcome) == (1000, "left")


def test_the_end_of_the_server_ends_a_stall() -> None:
    with socket.socket() as client, fault_server() as server:
        served = server.serve("/a", DATA, faults=[Break(after=1000, how="stall")])
        ask(client, served.url)
        server.wait_until(lambda: server.bytes_sent() == 1000)
        began = time.monotonic()
    assert time.monotonic() - began < 1.5
    assert only(server).outcome == "left"


@pytest.mark.parametrize(("declared", "complete"), [(len(DATA) + 50, False), (len(DATA) - 50, True)])
def test_a_length_that_is_wrong(server: FaultServer, declared: int, complete: bool) -> None:
    reply = Reply(server.serve("/a", DATA, declared_bytes=declared).url)
    assert reply.headers["content-length"] == str(declared)
    assert (reply.fault is None) == complete
    assert reply.body == DATA[:declared]


def test_gzip(server: FaultServer) -> None:
    reply = Reply(server.serve("/a", DATA, gzip=True).url, {"Range": "bytes=0-9"})
    assert (reply.status, gzip.decompress(reply.body)) == (200, DATA)
    assert reply.headers["content-encoding"] == "gzip"
    assert int(reply.headers["content-length"]) == len(reply.body) < len(DATA)


@pytest.mark.parametrize("refused", [None, 403, 405])
def test_head(server: FaultServer, refused: int | None) -> None:
    reply = Reply(server.serve("/a", DATA, head_status=refused).url, method="HEAD")
    assert (reply.status, reply.body) == (refused or 200, b"")
    assert reply.headers.get("content-length") == (str(len(DATA)) if refused is None else "0")
    assert only(server).sent == 0


def test_a_redirect_to_another_origin(server: FaultServer) -> None:
    with fault_server() as other:
        target = other.serve("/b", DATA)
        reply = Reply(server.serve("/a", b"", redirect=(target.url, 307)).url)
        assert (reply.status, reply.headers["location"]) == (307, target.url)
        assert urlsplit(target.url).netloc != urlsplit(server.url).netloc


def test_a_token(server: FaultServer) -> None:
    served = server.serve("/a", DATA, token="s3cret")
    assert Reply(served.url).status == 401
    assert Reply(served.url, {"Authorization": "Bearer other"}).status == 401
    assert Reply(served.url, {"Authorization": "Bearer s3cret"}).body == DATA


def test_other_answers_now_and_then(server: FaultServer) -> None:
    busy = Answer(status=503, headers={"Retry-After": "1"}, body=b"busy", times=2)
    served = server.serve("/a", DATA, faults=[busy])
    replies = [Reply(served.url) for _ in range(3)]
    assert [reply.status for reply in replies] == [503, 503, 200]
    assert (replies[0].headers["retry-after"], replies[0].body) == ("1", b"busy")
    assert Reply(f"{server.url}/nowhere").status == 404


def test_what_another_origin_may_see(server: FaultServer) -> None:
    asked = {"Access-Control-Request-Headers": "authorization,if-range", "Origin": "http://a"}
    served = server.serve("/a", DATA)
    allowed = Reply(served.url, asked, "OPTIONS")
    assert (allowed.status, allowed.headers["access-control-allow-origin"]) == (204, "*")
    assert allowed.headers["access-control-allow-headers"] == "authorization,if-range"
    part = Reply(served.url, {"Range": "bytes=0-9"})
    assert part.headers["cross-origin-resource-policy"] == "cross-origin"
    assert "Content-Range" in part.headers["access-control-expose-headers"]
    served.exposed = ()
    assert "access-control-expose-headers" not in Reply(served.url).headers
    served.cors = False
    assert "access-control-allow-origin" not in Reply(served.url).headers


def test_the_pace(server: FaultServer) -> None:
    served = server.serve("/a", DATA[:60_000], rate=100_000)
    began = time.monotonic()
    assert Reply(served.url).body == DATA[:60_000]
    assert 0.5 < time.monotonic() - began < 2


def test_what_is_sent_is_about_what_is_received(server: FaultServer) -> None:
    """A client that stops reading is not said to have been sent the whole file."""
    served = server.serve("/a", DATA * 32, rate=10**9)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        ask(client, served.url)
        server.wait_until(lambda: server.bytes_sent() > 0)
        time.sleep(0.3)
        assert server.bytes_sent() < 1_000_000
    assert only(server).outcome == "left"


def test_hashes_in_headers(server: FaultServer) -> None:
    headers = repr_digest(DATA) | digest(DATA) | linked_etag(DATA)
    reply = Reply(server.serve("/a", DATA, headers=headers).url)
    sha256 = hashlib.sha256(DATA)
    assert reply.headers["x-linked-etag"] == f'"{sha256.hexdigest()}"'
    assert reply.headers["repr-digest"].startswith("sha-256=:")
    assert reply.headers["digest"].startswith("SHA-256=")


def test_a_hook_sees_each_request_first(server: FaultServer) -> None:
    seen: list[str | None] = []
    served = server.serve("/a", DATA, before=lambda exchange: seen.append(exchange.range))
    Reply(served.url, {"Range": "bytes=0-9"})
    Reply(served.url)
    assert seen == ["bytes=0-9", None]
