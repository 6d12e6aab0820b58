"""The adapters that the tests of the GPU path stand on: what they can do, in the page and in a worker.

Counterparts: `build_tools/gpu_adapter.py` and gpu.py, which provide them. Nothing of Headrace is tested here.
"""

import math
import struct
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette

from build_tools.gpu_adapter import GpuChromium
from headrace.headless import launch
from headrace.server import background_server
from tests.browser.conftest import OpenTab
from tests.browser.profiles import Origin
from tests.browser.tab import Tab

pytestmark = pytest.mark.browser

PROBE = Path(__file__).with_name("gpu_probe.js")

IN_PAGE = """async ({ probe, name, argument }) => {
  const url = URL.createObjectURL(new Blob([probe], { type: "text/javascript" }));
  return (await import(url))[name](argument);
}"""

IN_WORKER = """async ({ probe, name, argument }) => {
  const url = URL.createObjectURL(new Blob([probe], { type: "text/javascript" }));
  const worker = new Worker(url, { type: "module" });
  const answer = await new Promise((resolve) => {
    worker.onmessage = ({ data }) => resolve(data);
    worker.onerror = ({ message }) => resolve({ error: message });
    worker.postMessage({ name, argument });
  });
  worker.terminate();
  if (answer.error) throw new Error(answer.error);
  return answer.value;
}"""

HAS_F16 = "async () => (await navigator.gpu.requestAdapter()).features.has('shader-f16')"

everywhere = pytest.mark.parametrize("script", [IN_PAGE, IN_WORKER], ids=["page", "worker"])


def call(tab: Tab, script: str, name: str, argument: object = None) -> Mapping[str, Any]:
    answer: Mapping[str, Any] = tab.run(
        script, {"probe": PROBE.read_text(), "name": name, "argument": argument}
    )
    return answer


def half(value: float) -> float:
    """Rounded to f16."""
    rounded: float = struct.unpack("e", struct.pack("e", value))[0]
    return rounded


@everywhere
def test_mesa_s_adapter_has_what_the_gpu_path_needs(open_gpu_tab: OpenTab, script: str) -> None:
    facts = call(open_gpu_tab(), script, "measure")
    assert facts["isWorker"] == (script is IN_WORKER)
    assert {"shader-f16", "subgroups"} <= set(facts["features"])
    # Small enough that a large embedding must be split or refused (case E4).
    assert facts["limits"]["maxStorageBufferBindingSize"] == 128 * 2**20
    assert facts["limits"]["maxBufferSize"] >= 2**30
    assert facts["limits"]["maxComputeInvocationsPerWorkgroup"] >= 256
    assert facts["crossOriginIsolated"] is True
    assert facts["suspending"] == "function"


@everywhere
def test_it_computes_in_f16(open_gpu_tab: OpenTab, script: str) -> None:
    values = [-3.0, 0.0, 0.1, 1.0, 1000.3, 1365.5, 65000.0, *(i / 7 for i in range(200))]
    answer = call(open_gpu_tab(), script, "compute", values)
    assert answer["errors"] == []
    for index, value in enumerate(values):
        in_f16, in_f32 = answer["results"][2 * index : 2 * index + 2]
        assert in_f32 == pytest.approx(value * 1.5 + 1, rel=1e-6)
        # A multiplication and an addition may be fused, or each rounded.
        stepwise = half(half(half(value) * 1.5) + 1) if value < 40000 else math.inf
        fused = half(half(value) * 1.5 + 1) if value < 40000 else math.inf
        assert in_f16 in (stepwise, fused), value
    # Nothing in f16 lies between 2048 and 2050: it is no f32 that we were given.
    assert answer["results"][2 * 5] != answer["results"][2 * 5 + 1]


@everywhere
def test_swiftshader_s_adapter_lacks_f16(open_swiftshader_tab: OpenTab, script: str) -> None:
    facts = call(open_swiftshader_tab(), script, "measure")
    assert "shader-f16" not in facts["features"]
    assert facts["crossOriginIsolated"] is True
    assert facts["suspending"] == "function"


def test_a_profile_on_the_disk_has_the_adapter_too(f16_site: Origin) -> None:
    assert "shader-f16" in call(f16_site.open(), IN_WORKER, "measure")["features"]


def test_a_measurement_can_start_it_without_pytest(f16_chromium: GpuChromium, app: Starlette) -> None:
    def has_f16() -> object:
        gpu = f16_chromium
        with (
            launch(gpu.program, arguments=gpu.arguments, environment=gpu.environment) as browser,
            background_server(app) as base,
        ):
            page = browser.new_page()
            page.goto(f"{base}/playground/headless.html")
            return page.evaluate(
                "async () => (await navigator.gpu.requestAdapter()).features.has('shader-f16')"
            )

    # Playwright's interface can be entered once per thread.
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(has_f16).result() is True
