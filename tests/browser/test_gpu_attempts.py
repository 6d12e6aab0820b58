"""What the worker tries on the GPU, gives up, and remembers, with the real store, engine and browser.

Counterparts: `web/worker/backend_attempts.js`, `gpu_verdicts.js` and `engine_loader.js`, and their tests in
`tests/web`, which have every case on fakes. What an endpoint does on the GPU is in test_gpu_endpoint.py.
"""

from collections.abc import Mapping
from typing import Any

import pytest
from playwright.sync_api import Route

from tests.browser.broken_kernels import Q4_K_VECTOR
from tests.browser.conftest import OpenTab
from tests.browser.gpu_wrapper import EngineGpu, GpuTraits
from tests.browser.tab import Tab

pytestmark = pytest.mark.browser

ANSWER = "Hello! I am a tiny mixture of experts model made for tests."

LOAD = """(options) => told(
  client.add("model", Endpoint.local({ model: "/models/tiny.gguf", threads: 1, ...options }))
    .then((model) => client.capabilities(model)))"""

REMOVE = "() => client.remove('model')"

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

NO_DEVICE = GpuTraits(device="rejects")


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


def test_an_adapter_without_f16_is_not_touched(open_swiftshader_tab: OpenTab) -> None:
    """Case E3."""
    tab = open_swiftshader_tab(gpu=GpuTraits())
    found = load(tab, allowSoftwareAdapter=True)["value"]
    assert found["backend"] == "cpu"
    assert "shader-f16" in found["reasons"][0]
    assert EngineGpu(tab).seen()["devices"] == 0
    assert tab.run(CHAT) == ANSWER


def test_a_limit_that_is_too_small_leads_to_the_cpu(open_gpu_tab: OpenTab) -> None:
    """Case E4."""
    tab = open_gpu_tab(gpu=GpuTraits(limits={"maxComputeWorkgroupSizeX": 256}))
    found = load(tab, allowSoftwareAdapter=True)["value"]
    assert found["backend"] == "cpu"
    assert "maxComputeWorkgroupSizeX of 256, and 1024 is needed" in found["reasons"][0]


def test_fewer_layers_when_the_gpu_has_little_room(open_gpu_tab: OpenTab) -> None:
    """Case E6."""
    tab = open_gpu_tab(gpu=GpuTraits())
    in_worker(tab, LITTLE_ROOM.replace("ROOM", str(3 * 2**20)))
    found = load(tab, allowSoftwareAdapter=True, artifact="st")["value"]
    assert found["backend"] == "webgpu", found["reasons"]
    assert EngineGpu(tab).seen()["devices"] == 2, "one for each attempt"
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
    tab = open_gpu_tab(gpu=GpuTraits(), gpu_workers=[NO_DEVICE])
    in_worker(tab, COUNT_THREADS)
    found = load(tab, allowSoftwareAdapter=True, artifact="mt", threads=2)["value"]
    assert (found["backend"], found["threads"]) == ("cpu", 2)
    assert tab.page.workers[0].evaluate("() => threads") == {"started": 2, "ended": 1}
    assert tab.run(CHAT) == ANSWER


def self_test(tab: Tab, **options: Any) -> tuple[int, int]:
    """Loads on the GPU: operations that were compared, and those that were known to agree."""
    found = load(tab, backend="webgpu", **options)["value"]["gpu"]["selfTest"]
    tab.run(REMOVE)
    return found["tested"], found["known"]


def test_what_has_agreed_is_not_compared_again(open_gpu_tab: OpenTab) -> None:
    tab = open_gpu_tab()
    tested, known = self_test(tab)
    assert tested > 0
    assert known == 0
    assert self_test(tab) == (0, tested)
    assert self_test(tab, gpuSelfTest="force") == (tested, 0)
    assert self_test(tab, gpuSelfTest="skip")[0] == 0
    files = tab.run(
        """async () => {
          const root = await navigator.storage.getDirectory();
          const folder = await root.getDirectoryHandle("headrace-webgpu");
          const names = [];
          for await (const name of folder.keys()) names.push(name);
          return names;
        }"""
    )
    assert len(files) == 1
    assert files[0].endswith(".json")


def test_a_gpu_that_was_found_wrong_is_not_started_again(open_gpu_tab: OpenTab) -> None:
    """Case E7."""
    tab = open_gpu_tab(gpu=GpuTraits(shader_edits=[Q4_K_VECTOR]))
    for beginning, devices in [("CPU after all, because", 1), ("CPU: on ", 0)]:
        found = load(tab, allowSoftwareAdapter=True)["value"]
        assert found["backend"] == "cpu"
        assert found["reasons"][-1].startswith(beginning)
        assert "MUL_MAT" in found["reasons"][-1]
        assert EngineGpu(tab).seen()["devices"] == devices
        assert tab.run(CHAT) == ANSWER
        tab.run(REMOVE)
