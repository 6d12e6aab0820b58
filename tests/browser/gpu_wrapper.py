"""A site whose pages and engine see the real WebGPU adapter made poorer, watched, or lost on demand.

Counterpart: gpu_wrapper.js, which does it in the browser. The product is served as it is, but for one line
before the page's scripts and one before the engine's worker: Playwright's init scripts do not reach workers.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Worker
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.browser.tab import Tab

Call = Literal[
    "createBuffer",
    "createBindGroup",
    "createShaderModule",
    "createComputePipeline",
    "createComputePipelineAsync",
    "mapAsync",
    "onSubmittedWorkDone",
    "submit",
    "writeBuffer",
]
LossReason = Literal["unknown", "destroyed"]

SMALL_LIMITS: Mapping[str, int] = {
    "maxStorageBufferBindingSize": 128 * 2**20,
    "maxBufferSize": 256 * 2**20,
    "maxComputeInvocationsPerWorkgroup": 256,
    "maxComputeWorkgroupSizeX": 256,
    "maxComputeWorkgroupSizeY": 256,
    "maxComputeWorkgroupStorageSize": 16 * 2**10,
    "maxComputeWorkgroupsPerDimension": 65535,
}
"""Case E4: WebGPU's own defaults, which every device has and a device need not exceed."""

WORKER = "/headrace/worker/engine_worker.js"
SCRIPTS = "/testing/gpu/"
WRAPPER = Path(__file__).with_name("gpu_wrapper.js")


@dataclass(frozen=True)
class Loss:
    """All devices are lost at the count-th call of a method; reason: what `device.lost` tells of it."""

    call: Call
    count: int = 1
    reason: LossReason = "unknown"


@dataclass(frozen=True)
class ShaderEdit:
    """A change to the source of every shader: `find` is a regular expression of JavaScript."""

    find: str
    replace: str


@dataclass(frozen=True)
class GpuTraits:
    """How the adapter differs from the real one, and when its devices are lost.

    adapter: "none": there is no adapter.
    device: "rejects": the adapter gives no device.
    limits: upper bounds (lower ones for alignments), kept by the device too; none below WebGPU's defaults.
    without_features: what the adapter lacks.
    info: replaces parts of `adapter.info`, such as `isFallbackAdapter`.
    shader_edits: for a GPU that computes something else (case E7).
    """

    adapter: Literal["real", "none"] = "real"
    device: Literal["real", "rejects"] = "real"
    limits: Mapping[str, int] = field(default_factory=dict)
    without_features: Sequence[str] = ()
    info: Mapping[str, object] = field(default_factory=dict)
    shader_edits: Sequence[ShaderEdit] = ()
    lose_at: Loss | None = None

    def script(self) -> str:
        """What must run before the first look at the adapter."""
        traits = {
            "adapter": self.adapter,
            "device": self.device,
            "limits": dict(self.limits),
            "withoutFeatures": list(self.without_features),
            "info": dict(self.info),
            "shaderEdits": [asdict(edit) for edit in self.shader_edits],
            "loseAt": self.lose_at and asdict(self.lose_at),
        }
        return f"{WRAPPER.read_text(encoding='utf-8')}\nwrapGpu({json.dumps(traits)});\n"


def wrap_gpu(app: Starlette, page: GpuTraits, workers: Sequence[GpuTraits] = ()) -> None:
    """Lets the pages and engines of `app` see an adapter with these traits; before it serves its first page.

    page: of the page. workers: of the first engine's worker that is started, of the second, and so on; the
    last ones hold for all further workers. By default each has the page's, so that a device is lost again
    and again after restarts.
    """
    app.add_middleware(WrappedGpu, page=page, workers=workers)


class WrappedGpu:
    """ASGI middleware, see `wrap_gpu`."""

    def __init__(self, app: ASGIApp, page: GpuTraits, workers: Sequence[GpuTraits]) -> None:
        self.app = app
        self.page = page
        self.workers = workers or [page]
        self.started = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if path.startswith(SCRIPTS):
            await self._script(path.removeprefix(SCRIPTS))(scope, receive, send)
        elif path == WORKER:
            import_line = f'import "{SCRIPTS}{self.started}";'
            self.started += 1
            await _with_first_line(self.app, import_line, scope, receive, send)
        elif path == "/" or path.endswith((".html", "/playground/")):
            # Without a doctype before the script, the page would be laid out in quirks mode.
            line = f'<!doctype html><script src="{SCRIPTS}page"></script>'
            await _with_first_line(self.app, line, scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def _script(self, name: str) -> Response:
        worker = self.workers[min(int(name), len(self.workers) - 1)] if name != "page" else None
        headers = {"Cache-Control": "no-store", "Cross-Origin-Resource-Policy": "same-origin"}
        return Response((worker or self.page).script(), headers=headers, media_type="text/javascript")


async def _with_first_line(app: ASGIApp, line: str, scope: Scope, receive: Receive, send: Send) -> None:
    """The app's answer with a line before it, on the same first line, so that lines keep their numbers."""
    first = line.encode()
    kept = [(name, value) for name, value in scope["headers"] if not name.startswith(b"if-")]

    async def send_more(message: Message) -> None:
        nonlocal first
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["Content-Length"] = str(
                int(Headers(raw=message["headers"])["Content-Length"]) + len(first)
            )
            headers["Cache-Control"] = "no-store"
            del headers["ETag"]
        else:
            message = {**message, "body": first + message.get("body", b"")}
            first = b""
        await send(message)

    await app({**scope, "headers": kept}, receive, send_more)


class EngineGpu:
    """The WebGPU devices of the engine that a tab has started last."""

    def __init__(self, tab: Tab) -> None:
        self._tab = tab

    def lose(self, reason: LossReason = "unknown") -> None:
        """Loses every device now; what the engine is in the middle of ends as after any loss."""
        self._worker().evaluate("(reason) => wrappedGpu.lose(reason)", reason)

    def lose_at(self, call: Call, count: int = 1, reason: LossReason = "unknown") -> None:
        """Loses every device at the count-th call of a method from now on."""
        self._worker().evaluate(
            "([call, count, reason]) => wrappedGpu.loseAt(call, count, reason)", [call, count, reason]
        )

    def seen(self) -> dict[str, Any]:
        """`calls`, `largest` and `bytes` by method; `errors` nobody caught; `devices`, `losses` so far."""
        counts: dict[str, Any] = self._worker().evaluate("() => JSON.parse(JSON.stringify(wrappedGpu))")
        return counts

    def _worker(self) -> Worker:
        return [worker for worker in self._tab.page.workers if worker.url.endswith(WORKER)][-1]


def crash_gpu_process(tab: Tab) -> None:
    """Ends the browser's GPU process as a crash does: every device of every tab is lost, for real."""
    tab.allow("external Instance reference no longer exists|Failed to create WebGPU Context Provider")
    session = tab.page.context.new_cdp_session(tab.page)
    session.send("Browser.crashGpuProcess")
    session.detach()
