"""The development server: the library, its artifacts, the playground and models, as a page expects them.

Counterpart: `serve.py`, which builds what is served here. Not for the open internet: there is no
authentication and no TLS.
"""

import errno
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.errors import HeadraceError

# Said here because Python's own table depends on the machine's; pages refuse modules of a wrong type.
MEDIA_TYPES = {
    ".css": "text/css",
    ".gguf": "application/octet-stream",
    ".html": "text/html",
    ".js": "text/javascript",
    ".json": "application/json",
    ".map": "application/json",
    ".mjs": "text/javascript",
    ".svg": "image/svg+xml",
    ".ts": "text/plain",
    ".wasm": "application/wasm",
}

ISOLATION_HEADERS = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
}

REVALIDATE = "no-cache"
FOR_EVER = "public, max-age=31536000, immutable"

BUILD_NAME = re.compile("[0-9a-f]{16}")
"""How `build_tools/wasm.py` names the folder of a build's artifacts."""

SHUTDOWN_SECONDS = 2
START_SECONDS = 10


class ResponseHeaders:
    """ASGI middleware: adds the same headers to every response."""

    def __init__(self, app: ASGIApp, headers: Mapping[str, str]) -> None:
        self.app = app
        self.headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self.headers)
            await send(message)

        await self.app(scope, receive, send_with_headers)


class SourceFiles(StaticFiles):
    """A folder's files with the right types, revalidated at each use."""

    def file_response(
        self, full_path: Any, stat_result: Any, scope: Scope, status_code: int = 200
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        suffix = Path(full_path).suffix.lower()
        if suffix in MEDIA_TYPES and isinstance(response, FileResponse):
            response.headers["Content-Type"] = _content_type(suffix)
        response.headers["Cache-Control"] = self.caching(full_path)
        return response

    def caching(self, path: Any) -> str:
        """The Cache-Control header for the file at `path`."""
        return REVALIDATE


class ArtifactFiles(SourceFiles):
    """A build's files, in a folder named by their content; the manifest beside it says which is current."""

    def caching(self, path: Any) -> str:
        return FOR_EVER if BUILD_NAME.fullmatch(Path(path).parent.name) else REVALIDATE


def create_app(
    *, web_dir: Path, artifacts_dir: Path, models: Mapping[str, Path], isolation: bool = True
) -> Starlette:
    """The server as an ASGI application.

    `web_dir` is served under /headrace/ (its playground also at / and /playground/), `artifacts_dir`
    under /headrace/artifacts/, and each of `models` (name → file) as /models/<name>, with a list of
    them at /models/. `isolation=False` leaves out the headers that make a page cross-origin isolated,
    to try what a page does without them.
    """

    async def index(_request: Request) -> Response:
        page = web_dir / "playground" / "index.html"
        if not page.is_file():
            raise HTTPException(404)
        return FileResponse(page, headers={"Cache-Control": REVALIDATE}, media_type=MEDIA_TYPES[".html"])

    async def list_models(_request: Request) -> Response:
        entries = [
            {"name": name, "bytes": path.stat().st_size, "url": f"/models/{quote(name)}"}
            for name, path in models.items()
            if path.is_file()
        ]
        return JSONResponse(entries, headers={"Cache-Control": REVALIDATE})

    async def model(request: Request) -> Response:
        path = models.get(request.path_params["name"])
        if path is None or not path.is_file():
            raise HTTPException(404)
        return FileResponse(path, headers={"Cache-Control": REVALIDATE}, media_type=MEDIA_TYPES[".gguf"])

    return Starlette(
        routes=[
            Route("/", index),
            Route("/models/", list_models),
            Route("/models/{name:path}", model),
            Mount("/headrace/artifacts", ArtifactFiles(directory=artifacts_dir, check_dir=False)),
            Mount("/headrace", SourceFiles(directory=web_dir, check_dir=False)),
            Mount("/playground", SourceFiles(directory=web_dir / "playground", html=True, check_dir=False)),
        ],
        middleware=[Middleware(ResponseHeaders, headers=ISOLATION_HEADERS)] if isolation else [],
        exception_handlers={404: _not_found},
    )


def serve(app: Starlette, *, host: str, port: int, on_ready: Callable[[str], None]) -> None:
    """Serves until Ctrl-C. `on_ready` is told the address, as a URL without a slash at its end."""
    with _listen(host, port) as listener:
        server = _Server(app, lambda: on_ready(_url(host, listener)))
        # uvicorn shuts down at Ctrl-C, and then hands the signal on.
        with suppress(KeyboardInterrupt):
            server.run(sockets=[listener])


@contextmanager
def background_server(app: Starlette, host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
    """Serves from a thread while the context is open, and gives the address; port 0 takes a free one."""
    with _listen(host, port) as listener:
        ready = threading.Event()
        server = _Server(app, ready.set)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="headrace-server")
        thread.start()
        try:
            if not ready.wait(START_SECONDS):
                raise HeadraceError("internal", f"the server did not start within {START_SECONDS} seconds")
            yield _url(host, listener)
        finally:
            server.should_exit = True
            thread.join()


class _Server(uvicorn.Server):
    """uvicorn, quiet, and telling when it listens."""

    def __init__(self, app: Starlette, on_ready: Callable[[], object]) -> None:
        super().__init__(
            uvicorn.Config(
                app, log_level="error", ws="none", lifespan="off", timeout_graceful_shutdown=SHUTDOWN_SECONDS
            )
        )
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._on_ready()


def _listen(host: str, port: int) -> socket.socket:
    # Bound here and not by uvicorn, which ends the process when the port is taken.
    if not 0 <= port <= 65535:
        raise HeadraceError("invalid_option", f"a port is a number from 0 to 65535, not {port}")
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        busy = error.errno == errno.EADDRINUSE
        reason = "another program uses it; choose another port" if busy else str(error)
        raise HeadraceError(
            "environment_unsupported",
            f"cannot serve on {host}, port {port}: {reason}",
            {"host": host, "port": port},
            cause=error,
        ) from error


def _url(host: str, listener: socket.socket) -> str:
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{listener.getsockname()[1]}"


def _content_type(suffix: str) -> str:
    media_type = MEDIA_TYPES[suffix]
    return f"{media_type}; charset=utf-8" if media_type.startswith("text/") else media_type


async def _not_found(request: Request, _error: Exception) -> Response:
    return PlainTextResponse(f"Not found: {request.url.path}\n", status_code=404)
