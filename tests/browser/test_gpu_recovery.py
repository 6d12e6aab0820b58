"""A GPU that goes away in mid-stream: the stream goes on, no piece twice and none left out.

Counterparts: web/endpoints/local_session.js and recovery.js, web/worker/gpu_binding.js.
The same without a GPU: test_recovery.py.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.browser.conftest import OpenTab
from tests.browser.gpu_wrapper import EngineGpu, GpuTraits, Loss, crash_gpu_process
from tests.browser.tab import Tab

pytestmark = pytest.mark.browser

GREETING = "Hello! I am a tiny mixture of experts model made for tests."

LOAD = """async (options) => {
  globalThis.model = await client.add("model", Endpoint.local({
    model: "/models/tiny.gguf", context: { size: 256 }, ...options }));
  return client.capabilities(model);
}"""

# A greeting, which the model knows by heart; or one that is said over and over, as it may not end.
BEGIN = """(maxTokens) => {
  const grammar = maxTokens > 32 ? 'root ::= ("Hello! " | "Hi ")+' : "";
  const options = { temperature: 0, maxTokens, logitBias: { 2: maxTokens > 32 ? -100 : 0 }, grammar };
  const run = client.chat(model, [{ role: "user", content: "Hello!" }], options);
  globalThis.stream = { run, text: "", tokens: 0, batches: run.tokens[Symbol.asyncIterator]() };
}"""

# Reads until so many tokens have come, or to the end.
READ = """async (tokens) => {
  for (;;) {
    if (stream.tokens >= tokens) return null;
    const { done, value } = await stream.batches.next();
    if (done) break;
    stream.text += value.text;
    stream.tokens += value.tokenIds.length;
  }
  return { text: stream.text, tokens: stream.tokens, result: await stream.run.response,
    capabilities: client.capabilities(model) };
}"""

FOREVER = 10**6


def load(tab: Tab, **options: object) -> Mapping[str, Any]:
    capabilities: Mapping[str, Any] = tab.run(LOAD, options)
    return capabilities


def finish(tab: Tab) -> Mapping[str, Any]:
    """Reads the rest of the stream, which must be what the model knows by heart."""
    outcome: Mapping[str, Any] = tab.run(READ, FOREVER)
    assert outcome["text"] == outcome["result"]["text"] == GREETING
    assert outcome["tokens"] == len(outcome["result"]["tokenIds"])
    return outcome


@pytest.mark.parametrize("artifact", ["st", "mt"])
@pytest.mark.parametrize("reason", ["unknown", "destroyed"])
def test_a_device_that_is_lost_in_mid_stream(open_gpu_tab: OpenTab, artifact: str, reason: Any) -> None:
    """Case E5: removed during decode, then there again. With "destroyed" as by `device.destroy()`."""
    tab = open_gpu_tab(gpu=GpuTraits())
    assert load(tab, backend="webgpu", artifact=artifact)["backend"] == "webgpu"
    tab.run(BEGIN, 32)
    tab.run(READ, 5)
    EngineGpu(tab).lose(reason)
    outcome = finish(tab)
    assert outcome["capabilities"]["backend"] == outcome["result"]["stats"]["backend"] == "webgpu"
    assert 5 <= outcome["result"]["stats"]["replayed"] < 22
    assert "restarted once" in outcome["result"]["reasons"][-1]


def test_a_gpu_process_that_crashes(open_gpu_tab: OpenTab) -> None:
    """As when a driver is reset: every device of the browser is gone."""
    tab = open_gpu_tab(gpu=GpuTraits())
    load(tab, backend="webgpu")
    tab.run(BEGIN, 32)
    tab.run(READ, 5)
    crash_gpu_process(tab)
    outcome = finish(tab)
    assert "restarted" in outcome["result"]["reasons"][-1]


def test_a_device_that_is_lost_while_a_prompt_is_computed(open_gpu_tab: OpenTab) -> None:
    tab = open_gpu_tab(gpu=GpuTraits())
    load(tab, backend="webgpu")
    EngineGpu(tab).lose_at("submit")
    tab.run(BEGIN, 32)
    outcome = finish(tab)
    assert outcome["result"]["stats"]["replayed"] == 0
    assert "restarted once" in outcome["result"]["reasons"][-1]


def lose_thrice(tab: Tab) -> None:
    """Each time once the engine that took over has told something: far more than may be on its way."""
    tab.run(BEGIN, 150)
    for tokens in (10, 50, 90):
        tab.run(READ, tokens)
        EngineGpu(tab).lose()


def test_lost_three_times_auto_turns_to_the_cpu(open_gpu_tab: OpenTab) -> None:
    tab = open_gpu_tab(gpu=GpuTraits())
    before = load(tab, backend="auto", allowSoftwareAdapter=True)
    assert before["backend"] == "webgpu", before["reasons"]
    lose_thrice(tab)
    outcome = tab.run(READ, FOREVER)
    result = outcome["result"]
    assert outcome["text"] == result["text"]
    assert outcome["tokens"] == len(result["tokenIds"]) == 150
    assert set(result["text"].split()) <= {"Hello!", "Hi"}
    assert outcome["capabilities"]["backend"] == result["stats"]["backend"] == "cpu"
    assert outcome["capabilities"]["gpu"] is None
    for reasons in (outcome["capabilities"]["reasons"], result["reasons"]):
        assert reasons[0].startswith("CPU: WebGPU failed 3 times in a row")


def test_lost_three_times_webgpu_by_name_is_an_error(open_gpu_tab: OpenTab) -> None:
    tab = open_gpu_tab(gpu=GpuTraits())
    load(tab, backend="webgpu")
    lose_thrice(tab)
    error = tab.run("async () => (await told(stream.run.response)).error")
    assert error["code"] == "device_lost"
    assert error["detail"]["restarts"] == 2


def test_lost_again_while_it_is_restarted(open_gpu_tab: OpenTab) -> None:
    """Case E5: during load. Under "auto" the worker turns to the CPU by itself."""
    lost = GpuTraits(lose_at=Loss("submit"))
    tab = open_gpu_tab(gpu=GpuTraits(), gpu_workers=[GpuTraits(), lost])
    load(tab, backend="auto", allowSoftwareAdapter=True)
    tab.run(BEGIN, 32)
    tab.run(READ, 5)
    EngineGpu(tab).lose()
    outcome = finish(tab)
    assert outcome["result"]["stats"]["backend"] == "cpu"
    assert any("CPU after all" in reason for reason in outcome["result"]["reasons"])
