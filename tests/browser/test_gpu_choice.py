"""The choice of the GPU in real pages: taken where all is there, left with a reason where not, no abort.

Counterparts: `tests/web/backend_choice.test.js` and `tests/web/backend_attempts.test.js` have every case, on
facts and fakes; here it is the browser, the worker and the engine that decide.
"""

from collections.abc import Mapping
from typing import Any

import pytest
from playwright.sync_api import Route

from tests.browser.conftest import OpenTab
from tests.browser.tab import Tab

pytestmark = pytest.mark.browser

ANSWER = "Hello! I am a tiny mixture of experts model made for tests."

LOAD = """(options) => told(
  client.add("model", Endpoint.local({ model: "/models/tiny.gguf", threads: 1, ...options }))
    .then((model) => client.capabilities(model)))"""

CHAT = """async () => {
  const messages = [{ role: "user", content: "Hello!" }];
  return (await client.chat("model", messages, { maxTokens: 32, temperature: 0 }).response).text;
}"""

# A GPU on which buffers above ROOM bytes do not exist, counted since the device was made.
LITTLE_ROOM = """
const { createBuffer, popErrorScope } = GPUDevice.prototype;
const used = new WeakMap();
const full = new WeakSet();
GPUDevice.prototype.createBuffer = function (descriptor) {
  used.set(this, (used.get(this) ?? 0) + descriptor.size);
  if (used.get(this) > ROOM) full.add(this);
  return createBuffer.call(this, descriptor);
};
GPUDevice.prototype.popErrorScope = async function () {
  const error = await popErrorScope.call(this);
  return full.has(this) ? new GPUOutOfMemoryError("there is no room in this test") : error;
};
"""

NO_DEVICE = 'GPUAdapter.prototype.requestDevice = () => Promise.reject(new Error("no device today"));'

COUNT_THREADS = """
globalThis.threads = { started: 0, ended: 0 };
globalThis.Worker = class extends Worker {
  constructor(...given) {
    super(...given);
    threads.started += 1;
  }
  terminate() {
    super.terminate();
    threads.ended += 1;
  }
};
"""

# An adapter with smaller limits (case E4).
SMALLER = """
const { requestAdapter } = GPU.prototype;
GPU.prototype.requestAdapter = async function (options) {
  const adapter = await requestAdapter.call(this, options);
  const limits = {};
  for (const name in adapter.limits) limits[name] = adapter.limits[name];
  Object.defineProperty(adapter, "limits", { value: { ...limits, ...LIMITS } });
  return adapter;
};
"""


def load(tab: Tab, **options: Any) -> Mapping[str, Any]:
    outcome: Mapping[str, Any] = tab.run(LOAD, options)
    return outcome


def in_worker(tab: Tab, script: str) -> None:
    """Runs a script in the engine's worker before its own."""

    def serve(route: Route) -> None:
        # An import, because a module's imports run before its own first line.
        original = route.fetch()
        route.fulfill(
            response=original,
            body=f'import "/headrace/before.js";\n{original.text()}',
        )

    tab.page.route("**/engine_worker.js", serve)
    tab.page.route("**/before.js", lambda route: route.fulfill(body=script, content_type="text/javascript"))


def test_auto_leaves_a_software_adapter_alone_and_says_why(open_gpu_tab: OpenTab) -> None:
    tab = open_gpu_tab()
    found = load(tab)["value"]
    assert (found["backend"], found["gpu"]) == ("cpu", None)
    assert "software" in found["reasons"][0]
    assert tab.run(CHAT) == ANSWER


@pytest.mark.parametrize("artifact", ["st", "mt"])
def test_the_gpu_computes_where_it_is_wanted(open_gpu_tab: OpenTab, artifact: str) -> None:
    tab = open_gpu_tab()
    found = load(tab, allowSoftwareAdapter=True, artifact=artifact)["value"]
    assert found["backend"] == "webgpu", found["reasons"]
    assert found["gpu"]["adapter"]["features"].count("shader-f16") == 1
    assert tab.run(CHAT) == ANSWER


def test_an_adapter_without_f16_is_not_touched(open_swiftshader_tab: OpenTab) -> None:
    """Case E3."""
    tab = open_swiftshader_tab()
    in_worker(tab, 'GPU.prototype.requestAdapter = () => { throw new Error("touched"); };')
    found = load(tab, allowSoftwareAdapter=True)["value"]
    assert found["backend"] == "cpu"
    assert "shader-f16" in found["reasons"][0]
    assert tab.run(CHAT) == ANSWER


def test_what_is_missing_for_the_gpu_by_name_is_an_error(open_swiftshader_tab: OpenTab) -> None:
    """Case E3."""
    error = load(open_swiftshader_tab(), backend="webgpu")["error"]
    assert error["code"] == "environment_unsupported"
    assert error["detail"]["missing"] == ["shader-f16"]


def test_limits_that_are_too_small_lead_to_the_cpu(open_gpu_tab: OpenTab) -> None:
    """Case E4."""
    limits = "{ maxComputeInvocationsPerWorkgroup: 128 }"
    tab = open_gpu_tab(init_script=SMALLER.replace("LIMITS", limits))
    found = load(tab, allowSoftwareAdapter=True)["value"]
    assert found["backend"] == "cpu"
    assert "maxComputeInvocationsPerWorkgroup of 128, and 256 is needed" in found["reasons"][0]


@pytest.mark.parametrize("artifact", ["st", "mt"])
def test_a_gpu_that_fails_leads_to_the_cpu(open_gpu_tab: OpenTab, artifact: str) -> None:
    """Case E5: the worker's adapter gives no device."""
    tab = open_gpu_tab()
    in_worker(tab, NO_DEVICE)
    found = load(tab, allowSoftwareAdapter=True, artifact=artifact)["value"]
    assert (found["backend"], found["gpu"]) == ("cpu", None)
    assert found["reasons"][-1].startswith("CPU after all")
    assert "no device today" in found["reasons"][-1]
    assert tab.run(CHAT) == ANSWER


def test_a_gpu_asked_for_by_name_that_fails_is_an_error(open_gpu_tab: OpenTab) -> None:
    """Case E5."""
    tab = open_gpu_tab()
    in_worker(tab, NO_DEVICE)
    error = load(tab, backend="webgpu")["error"]
    assert error["code"] == "gpu_failed"
    assert "no device today" in error["message"]


def test_fewer_layers_when_the_gpu_has_little_room(open_gpu_tab: OpenTab) -> None:
    """Case E6."""
    tab = open_gpu_tab()
    in_worker(tab, LITTLE_ROOM.replace("ROOM", str(4 * 2**20)))
    found = load(tab, allowSoftwareAdapter=True, artifact="st")["value"]
    assert found["backend"] == "webgpu", found["reasons"]
    assert "layers on the GPU: more did not fit" in found["reasons"][-1]
    assert tab.run(CHAT) == ANSWER


def test_no_room_for_the_layers_that_were_asked_for_leads_to_the_cpu(open_gpu_tab: OpenTab) -> None:
    """Case E6."""
    tab = open_gpu_tab()
    in_worker(tab, LITTLE_ROOM.replace("ROOM", "0"))
    found = load(tab, allowSoftwareAdapter=True, gpuLayers=100, artifact="st")["value"]
    assert found["backend"] == "cpu"
    assert "there is no room in this test" in found["reasons"][-1]
    assert tab.run(CHAT) == ANSWER


def test_a_failed_attempt_leaves_no_threads_behind(open_gpu_tab: OpenTab) -> None:
    tab = open_gpu_tab()
    in_worker(tab, NO_DEVICE + COUNT_THREADS)
    found = load(tab, allowSoftwareAdapter=True, artifact="mt", threads=2)["value"]
    assert (found["backend"], found["threads"]) == ("cpu", 2)
    assert tab.page.workers[0].evaluate("() => threads") == {"started": 2, "ended": 1}
    assert tab.run(CHAT) == ANSWER
