"""headrace/server.py on a real port: addresses, headers, ranges, and what it refuses."""

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from headrace.errors import HeadraceError
from headrace.server import ISOLATION_HEADERS, background_server, create_app

GGUF = b"GGUF" + bytes(range(256)) * 4
BUILD = "0123456789abcdef"


class Reply:
    """A response, read to its end."""

    def __init__(self, base: str, path: str, headers: Mapping[str, str], method: str) -> None:
        connection = HTTPConnection(urlsplit(base).netloc, timeout=10)
        try:
            # Not urllib: it would tidy up the paths that are tested here.
            connection.request(method, path, headers=dict(headers))
            response = connection.getresponse()
            self.status, self.body = response.status, response.read()
            self.headers = {name.lower(): value for name, value in response.getheaders()}
        finally:
            connection.close()


def get(base: str, path: str, headers: Mapping[str, str] | None = None, method: str = "GET") -> Reply:
    return Reply(base, path, headers or {}, method)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("site")
    files = {
        "web/index.js": b"export const one = 1;\n",
        "web/worker/tick_loop.js": b"export {};\n",
        "web/playground/index.html": b"<!doctype html><title>Playground</title>",
        "web/playground/playground.css": b"body { margin: 0 }\n",
        f"artifacts/{BUILD}/headrace-st.wasm": b"\0asm\1\0\0\0",
        f"artifacts/{BUILD}/headrace-st.js": b"export default 1;\n",
        "artifacts/other/headrace-st.js": b"export default 2;\n",
        "artifacts/manifest.json": b'{"abiVersion": 1}',
        "models/a b.gguf": GGUF,
        "secret.txt": b"secret",
    }
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return root


def serve_site(site: Path, *, isolation: bool = True) -> Iterator[str]:
    models = {"a b.gguf": site / "models" / "a b.gguf", "gone.gguf": site / "models" / "gone.gguf"}
    app = create_app(
        web_dir=site / "web", artifacts_dir=site / "artifacts", models=models, isolation=isolation
    )
    with background_server(app) as base:
        yield base


@pytest.fixture(scope="module")
def base(site: Path) -> Iterator[str]:
    yield from serve_site(site)


@pytest.mark.parametrize(
    ("path", "media_type", "content"),
    [
        ("/", "text/html; charset=utf-8", b"<!doctype"),
        ("/playground/", "text/html; charset=utf-8", b"<!doctype"),
        ("/playground/index.html", "text/html; charset=utf-8", b"<!doctype"),
        ("/playground/playground.css", "text/css; charset=utf-8", b"body"),
        ("/headrace/index.js", "text/javascript; charset=utf-8", b"export const"),
        ("/headrace/worker/tick_loop.js", "text/javascript; charset=utf-8", b"export"),
        (f"/headrace/artifacts/{BUILD}/headrace-st.wasm", "application/wasm", b"\0asm"),
        (f"/headrace/artifacts/{BUILD}/headrace-st.js", "text/javascript; charset=utf-8", b"export default"),
        ("/headrace/artifacts/manifest.json", "application/json", b"{"),
        ("/models/a%20b.gguf", "application/octet-stream", b"GGUF"),
    ],
)
def test_everything_has_its_address_and_type(base: str, path: str, media_type: str, content: bytes) -> None:
    reply = get(base, path)
    assert (reply.status, reply.headers["content-type"]) == (200, media_type)
    assert reply.body.startswith(content)
    assert get(base, path, method="HEAD").headers["content-length"] == str(len(reply.body))


def test_models_are_listed_with_working_addresses(base: str) -> None:
    listed = json.loads(get(base, "/models/").body)
    assert listed == [{"name": "a b.gguf", "bytes": len(GGUF), "url": "/models/a%20b.gguf"}]
    assert get(base, listed[0]["url"]).body == GGUF


def test_a_range_of_a_model(base: str) -> None:
    part = get(base, "/models/a%20b.gguf", {"Range": "bytes=4-7"})
    assert (part.status, part.body) == (206, GGUF[4:8])
    assert part.headers["content-range"] == f"bytes 4-7/{len(GGUF)}"
    assert get(base, "/models/a%20b.gguf", {"Range": f"bytes={len(GGUF)}-"}).status == 416
    assert get(base, "/models/a%20b.gguf").headers["accept-ranges"] == "bytes"


def test_sources_are_revalidated(base: str) -> None:
    first = get(base, "/headrace/index.js")
    assert first.headers["cache-control"] == "no-cache"
    again = get(base, "/headrace/index.js", {"If-None-Match": first.headers["etag"]})
    assert (again.status, again.body) == (304, b"")
    assert again.headers["cache-control"] == "no-cache"


def test_only_what_lies_in_a_build_s_folder_is_kept_for_ever(base: str) -> None:
    def caching(path: str) -> str:
        return get(base, path).headers["cache-control"]

    assert "immutable" in caching(f"/headrace/artifacts/{BUILD}/headrace-st.wasm")
    assert "immutable" in caching(f"/headrace/artifacts/{BUILD}/headrace-st.js")
    assert caching("/headrace/artifacts/other/headrace-st.js") == "no-cache"
    assert caching("/headrace/artifacts/manifest.json") == "no-cache"
    assert caching(f"/headrace/index.js?v={BUILD}") == "no-cache"
    assert caching("/") == "no-cache"


@pytest.mark.parametrize("path", ["/", "/models/", "/models/a%20b.gguf", "/headrace/index.js", "/nowhere"])
def test_every_response_isolates(base: str, path: str) -> None:
    headers = get(base, path).headers
    assert {name: headers[name.lower()] for name in ISOLATION_HEADERS} == ISOLATION_HEADERS


def test_isolation_can_be_left_out(site: Path) -> None:
    for base in serve_site(site, isolation=False):
        assert not {name.lower() for name in ISOLATION_HEADERS} & get(base, "/").headers.keys()


@pytest.mark.parametrize(
    "path",
    [
        "/nowhere",
        "/headrace/nowhere.js",
        "/headrace/",
        "/headrace/worker",
        "/models/nowhere.gguf",
        "/models/gone.gguf",
        "/headrace/../secret.txt",
        "/headrace/%2e%2e/secret.txt",
        "/headrace/..%2fsecret.txt",
        "/headrace/artifacts/../../secret.txt",
        "/models/../secret.txt",
        "/models/%2e%2e%2fsecret.txt",
        "/playground/%2e%2e/%2e%2e/secret.txt",
    ],
)
def test_what_is_not_there_is_plain_text(base: str, path: str) -> None:
    reply = get(base, path)
    assert (reply.status, reply.headers["content-type"]) == (404, "text/plain; charset=utf-8")
    assert b"secret\n" not in reply.body
    assert reply.body != b"secret"
    assert reply.body.startswith(b"Not found: /")


def test_a_link_out_of_the_folder_is_not_followed(site: Path, base: str) -> None:
    link = site / "web" / "link.txt"
    link.symlink_to(site / "secret.txt")
    assert get(base, "/headrace/link.txt").status == 404


def test_only_reading_is_allowed(base: str) -> None:
    assert get(base, "/headrace/index.js", method="POST").status == 405
    assert get(base, "/models/a%20b.gguf", method="DELETE").status == 405


def test_a_busy_port_is_one_sentence(site: Path) -> None:
    app = create_app(web_dir=site, artifacts_dir=site, models={})
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(HeadraceError, match=f"port {port}") as caught, background_server(app, port=port):
            pass
    assert caught.value.code == "environment_unsupported"


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_cannot_be_is_one_sentence(site: Path, port: int) -> None:
    app = create_app(web_dir=site, artifacts_dir=site, models={})
    with pytest.raises(HeadraceError, match=str(port)), background_server(app, port=port):
        pass


def test_the_port_is_free_again(site: Path) -> None:
    app = create_app(web_dir=site, artifacts_dir=site, models={})
    with background_server(app) as first:
        port = urlsplit(first).port
        assert port
        assert get(first, "/models/").status == 200
    with background_server(app, port=port) as second:
        assert second == first


SERVE = """
import sys
from pathlib import Path
from headrace.server import create_app, serve
app = create_app(web_dir=Path(sys.argv[1]), artifacts_dir=Path(sys.argv[1]), models={})
serve(app, host="127.0.0.1", port=0, on_ready=lambda url: print(url, flush=True))
print("ended", flush=True)
"""


def test_serve_ends_quietly_at_ctrl_c(site: Path, repo_root: Path) -> None:
    command = [sys.executable, "-c", SERVE, str(site)]
    with subprocess.Popen(
        command, cwd=repo_root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stderr
        base = process.stdout.readline().strip()
        assert get(base, "/models/").status == 200
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == "ended\n"
        assert process.stderr.read() == ""
        assert process.wait(10) == 0
        assert time.monotonic() - began < 5
