"""What gpu_wrapper.py promises, in the page and in the engine's worker: poorer adapters and lost devices.

Counterpart: test_gpu_adapter.py, the adapter as it is. The engine itself computes on the processor here; what
it does with such adapters is tested elsewhere.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, BrowserContext
from starlette.applications import Starlette

from build_tools.gpu_adapter import GpuChromium
from tests.browser.conftest import OpenTab, TabsIn
from tests.browser.downloads import MIB
from tests.browser.gpu import gpu_browser
from tests.browser.gpu_wrapper import (
    SMALL_LIMITS,
    WORKER,
    EngineGpu,
    GpuTraits,
    Loss,
    ShaderEdit,
    crash_gpu_process,
    wrap_gpu,
)
from tests.browser.profiles import origin
from tests.browser.tab import Tab

pytestmark = pytest.mark.browser

Place = Literal["page", "worker"]
PLACES: Sequence[Place] = ("page", "worker")
everywhere = pytest.mark.parametrize("place", PLACES)

PROBE = Path(__file__).with_name("gpu_probe.js")

# Fails of WebGPU reach a test as their class and message.
CALL = """async ({ probe, name, argument }) => {
  const url = URL.createObjectURL(new Blob([probe], { type: "text/javascript" }));
  try {
    return { value: await (await import(url))[name](argument) };
  } catch (error) {
    return { error: `${error.name}: ${error.message}` };
  }
}"""

START_WORKER = """(address) => {
  globalThis.worker = new Worker(address, { type: "module" });
}"""

IS_STARTED = """async () => {
  while (!globalThis.onmessage) await new Promise((resolve) => setTimeout(resolve, 5));
}"""

START_ENGINE = """async () => {
  const address = new URL("/models/abc.gguf", location.href).href;
  const model = await client.add("model", Endpoint.local({ model: address, backend: "cpu" }));
  return (await client.query(model, "a", { maxTokens: 3, temperature: 0 }).response).text;
}"""


def start_worker(tab: Tab) -> None:
    """The engine's worker, which waits for its first command: the quickest that has its adapter."""
    with tab.page.expect_worker() as started:
        tab.run(START_WORKER, WORKER)
    started.value.evaluate(IS_STARTED)


def start_engine(tab: Tab) -> None:
    assert tab.run(START_ENGINE) == "bca"


def call(tab: Tab, place: Place, name: str, argument: object = None) -> Mapping[str, Any]:
    """A function of gpu_probe.js in the page, or in the worker of the engine that was started last."""
    given = {"probe": PROBE.read_text(), "name": name, "argument": argument}
    if place == "page":
        answer: dict[str, Any] = tab.run(CALL, given)
    else:
        worker = [worker for worker in tab.page.workers if worker.url.endswith(WORKER)][-1]
        answer = worker.evaluate(CALL, given)
    return answer


def open_with(open_tab: OpenTab, place: Place, traits: GpuTraits, workers: Sequence[GpuTraits] = ()) -> Tab:
    tab = open_tab(gpu=traits, gpu_workers=workers)
    if place == "worker":
        start_worker(tab)
    return tab


@everywhere
def test_small_limits_are_told_and_kept(open_gpu_tab: OpenTab, place: Place) -> None:
    """Case E4."""
    tab = open_with(open_gpu_tab, place, GpuTraits(limits=SMALL_LIMITS))
    tab.allow("exceeds the max|workgroup|Invalid|too large")
    told = call(tab, place, "measure")["value"]
    assert {name: told["limits"][name] for name in SMALL_LIMITS} == SMALL_LIMITS
    assert told["limits"]["maxStorageBuffersPerShaderStage"] > 0
    assert "shader-f16" in told["features"]
    kept = call(tab, place, "tryLimits", {"invocations": 512})["value"]
    assert {name: kept["device"][name] for name in SMALL_LIMITS} == SMALL_LIMITS
    assert set(kept["errors"]) == {"buffer", "binding", "invocations", "workgroupStorage", "workgroups"}
    asked = call(tab, place, "tryDevice", {"requiredLimits": {"maxComputeInvocationsPerWorkgroup": 512}})
    assert asked["error"].startswith("OperationError")
    real = open_gpu_tab()
    assert call(real, "page", "measure")["value"]["limits"]["maxBufferSize"] > SMALL_LIMITS["maxBufferSize"]
    assert call(real, "page", "tryDevice", {"requiredLimits": {"maxBufferSize": 2**30}}) == {
        "value": "device"
    }


def test_a_limit_that_nothing_would_keep_is_refused(open_gpu_tab: OpenTab) -> None:
    tab = open_with(open_gpu_tab, "page", GpuTraits(limits={"maxBufferSize": 2**20}))
    assert "below WebGPU's default" in call(tab, "page", "tryDevice", {})["error"]
    tab = open_with(open_gpu_tab, "page", GpuTraits(limits={"maxSize": 1}))
    assert "there is no limit maxSize" in call(tab, "page", "measure")["error"]


@everywhere
def test_a_feature_can_be_missing(open_gpu_tab: OpenTab, place: Place) -> None:
    """Case E3."""
    tab = open_with(open_gpu_tab, place, GpuTraits(without_features=["shader-f16"]))
    assert "shader-f16" not in call(tab, place, "measure")["value"]["features"]
    assert call(tab, place, "compute", [1])["error"].startswith("TypeError")


@everywhere
def test_there_can_be_no_adapter_or_no_device(open_gpu_tab: OpenTab, place: Place) -> None:
    tab = open_with(open_gpu_tab, place, GpuTraits(adapter="none"))
    assert call(tab, place, "tryDevice", {})["error"] == "Error: no adapter"
    tab = open_with(open_gpu_tab, place, GpuTraits(device="rejects"))
    assert "shader-f16" in call(tab, place, "measure")["value"]["features"]
    assert call(tab, place, "tryDevice", {})["error"].startswith("OperationError")


@everywhere
def test_the_adapter_s_description_can_be_another(open_gpu_tab: OpenTab, place: Place) -> None:
    tab = open_with(open_gpu_tab, place, GpuTraits(info={"isFallbackAdapter": False, "vendor": "acme"}))
    info = call(tab, place, "measure")["value"]["info"]
    assert (info["isFallbackAdapter"], info["vendor"]) == (False, "acme")
    assert info["subgroupMinSize"] == 8


@everywhere
def test_a_gpu_can_compute_something_else(open_gpu_tab: OpenTab, place: Place) -> None:
    """Case E7."""
    tab = open_with(open_gpu_tab, place, GpuTraits(shader_edits=[ShaderEdit(r"x \* 1\.5", "x * 2.5")]))
    assert call(tab, place, "compute", [1])["value"] == {"results": [2.5, 3.5], "errors": []}


@everywhere
@pytest.mark.parametrize("reason", ["unknown", "destroyed"])
def test_a_device_is_lost_at_a_call(
    open_gpu_tab: OpenTab, place: Place, reason: Literal["unknown", "destroyed"]
) -> None:
    """Case E5."""
    tab = open_with(open_gpu_tab, place, GpuTraits(lose_at=Loss("submit", 3, reason)))
    for _ in range(2):
        assert call(tab, place, "compute", [1])["value"]["results"] == [2.5, 2.5]
    assert call(tab, place, "compute", [1])["error"].startswith("AbortError")
    assert call(tab, place, "lastLoss")["value"] == reason
    # Lost once; the next device is sound.
    assert call(tab, place, "compute", [1])["value"]["results"] == [2.5, 2.5]


def test_the_engine_s_device_is_lost_on_demand(open_gpu_tab: OpenTab) -> None:
    """Case E5."""
    tab = open_with(open_gpu_tab, "worker", GpuTraits())
    gpu = EngineGpu(tab)
    assert call(tab, "worker", "compute", [1, 2])["value"]["results"] == [2.5, 2.5, 4, 4]
    seen = gpu.seen()
    assert (seen["devices"], seen["losses"], seen["errors"]) == (1, 0, [])
    assert seen["calls"]["submit"] == seen["calls"]["mapAsync"] == seen["calls"]["writeBuffer"] == 1
    assert (seen["largest"]["writeBuffer"], seen["bytes"]["createBuffer"]) == (8, 8 + 16 + 16)
    # The page has its own.
    assert tab.run("() => wrappedGpu.devices") == 0

    gpu.lose_at("mapAsync")
    assert call(tab, "worker", "compute", [1])["error"].startswith("AbortError")
    assert call(tab, "worker", "keepDevice")["value"] == "kept"
    gpu.lose()
    assert call(tab, "worker", "lastLoss")["value"] == "unknown"
    assert gpu.seen()["losses"] == 2


def test_each_restart_can_have_its_own_adapter(open_gpu_tab: OpenTab) -> None:
    """Case E5: removed, then added again."""
    traits = [GpuTraits(lose_at=Loss("submit")), GpuTraits(adapter="none"), GpuTraits()]
    tab = open_with(open_gpu_tab, "worker", GpuTraits(), traits)
    assert call(tab, "worker", "compute", [1])["error"].startswith("AbortError")
    start_worker(tab)
    assert call(tab, "worker", "compute", [1])["error"] == "Error: no adapter"
    for _ in range(2):
        start_worker(tab)
        assert call(tab, "worker", "compute", [1])["value"]["results"] == [2.5, 2.5]


def test_an_engine_in_a_profile_on_the_disk_can_have_it_too(
    f16_person: BrowserContext, app: Starlette
) -> None:
    wrap_gpu(app, GpuTraits(), [GpuTraits(without_features=["subgroups"])])
    with origin(f16_person, app) as site:
        tab = site.open()
        start_engine(tab)
        features = {place: set(call(tab, place, "measure")["value"]["features"]) for place in PLACES}
        assert features["page"] - features["worker"] == {"subgroups"}


@everywhere
def test_a_crash_of_the_gpu_process_is_a_loss_and_its_successor_serves(
    open_gpu_tab: OpenTab, place: Place
) -> None:
    """Case E5, by the browser's own doing."""
    tab = open_with(open_gpu_tab, place, GpuTraits())
    for _ in range(4):
        assert call(tab, place, "keepDevice")["value"] == "kept"
        crash_gpu_process(tab)
        assert call(tab, place, "lastLoss")["value"] == "unknown"
    assert call(tab, place, "compute", [1])["value"]["results"] == [2.5, 2.5]


def test_the_gpu_s_memory_can_end(browser: Browser, f16_chromium: GpuChromium, tabs_in: TabsIn) -> None:
    """Case E6: the browser's own out-of-memory error, from the driver up."""
    with (
        gpu_browser(browser, f16_chromium.with_memory(256 * MIB)) as started,
        tabs_in(started) as open_tab,
    ):
        tab = open_tab()
        for _ in range(3):
            filled = call(tab, "page", "fillMemory", {"blockBytes": 16 * MIB, "most": 64})["value"]
            assert (filled["kind"], filled["errors"], filled["lost"]) == ("GPUOutOfMemoryError", [], None)
            assert 8 <= filled["blocks"] <= 16
            # What was freed serves again.
            assert call(tab, "page", "compute", [1])["value"]["results"] == [2.5, 2.5]


def test_a_person_s_browser_refuses_its_gpu_after_two_crashes(
    browser: Browser, f16_chromium: GpuChromium, tabs_in: TabsIn
) -> None:
    with (
        gpu_browser(browser, f16_chromium, arguments=()) as started,
        tabs_in(started) as open_tab,
    ):
        tab = open_tab()
        for _ in range(2):
            assert call(tab, "page", "keepDevice")["value"] == "kept"
            crash_gpu_process(tab)
            assert call(tab, "page", "lastLoss")["value"] == "unknown"
        assert call(tab, "page", "tryDevice", {})["error"] == "Error: no adapter"
