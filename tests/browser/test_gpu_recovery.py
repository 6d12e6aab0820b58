"""A GPU that goes away in the middle of a stream: the stream goes on, with no token doubled or lost.

Counterparts: `web/endpoints/recovery.js`, test_recovery.py (the same for a worker that dies), gpu_wrapper.py.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.browser.conftest import OpenTab
from tests.browser.gpu_wrapper import EngineGpu, GpuTraits, Loss, crash_gpu_process
from tests.browser.tab import Tab

pytestmark = pytest.mark.browser

STORY = "Tell me a story."

SETTINGS = """{ model: "/models/tiny.gguf", artifact: "st", context: { size: 256 } }"""

ADD = """async (options) => {
  await client.add("gpu", Endpoint.local({ ...SETTINGS, ...options }));
  return client.capabilities("gpu").backend;
}""".replace("SETTINGS", SETTINGS)

# What an endpoint on the CPU says, in one piece.
EXPECTED = """async (prompt) => {
  await client.add("cpu", Endpoint.local({ ...SETTINGS, backend: "cpu" }));
  const messages = [{ role: "user", content: prompt }];
  const { text } = await client.chat("cpu", messages, { temperature: 0, maxTokens: 96 }).response;
  await client.remove("cpu");
  return text;
}""".replace("SETTINGS", SETTINGS)

# Starts a run and gives back what was told of it after `count` tokens; the rest is asked for by FINISH.
BEGIN = """async ({ prompt, count }) => {
  const messages = [{ role: "user", content: prompt }];
  globalThis.run = client.chat("gpu", messages, { temperature: 0, maxTokens: 96 });
  globalThis.heard = [];
  globalThis.batches = run.tokens[Symbol.asyncIterator]();
  while (heard.flatMap(({ tokenIds }) => tokenIds).length < count) heard.push((await batches.next()).value);
}"""

FINISH = """async () => {
  for (let batch = await batches.next(); !batch.done; batch = await batches.next()) heard.push(batch.value);
  const { text, tokenIds, finishReason, usage, stats, reasons } = await run.response;
  return {
    text, tokenIds, finishReason, usage, stats, reasons,
    heardText: heard.map((batch) => batch.text).join(""),
    heardTokens: heard.flatMap((batch) => batch.tokenIds),
    backend: client.capabilities("gpu").backend,
  };
}"""


def finish(tab: Tab) -> Mapping[str, Any]:
    outcome: Mapping[str, Any] = tab.run(FINISH)
    return outcome


def check_whole(outcome: Mapping[str, Any], expected: str) -> None:
    assert outcome["text"] == outcome["heardText"] == expected
    assert outcome["tokenIds"] == outcome["heardTokens"]
    assert outcome["usage"]["outputTokens"] == len(outcome["heardTokens"])
    assert outcome["finishReason"] == "stop"


def test_a_lost_device_is_no_lost_token(open_gpu_tab: OpenTab) -> None:
    """Case E5."""
    tab = open_gpu_tab(gpu=GpuTraits())
    expected = tab.run(EXPECTED, STORY)
    assert tab.run(ADD, {"backend": "webgpu"}) == "webgpu"
    tab.run(BEGIN, {"prompt": STORY, "count": 10})
    EngineGpu(tab).lose("destroyed")
    outcome = finish(tab)
    check_whole(outcome, expected)
    assert outcome["stats"]["replayed"] >= 10
    assert outcome["backend"] == "webgpu"
    assert any("restarted" in reason for reason in outcome["reasons"]), outcome["reasons"]


def test_a_device_lost_while_loading(open_gpu_tab: OpenTab) -> None:
    """Case E5."""
    loses = GpuTraits(lose_at=Loss("submit", count=3))
    tab = open_gpu_tab(gpu=GpuTraits(), gpu_workers=[loses])
    error = tab.run(
        "(options) => told(client.add('gpu', Endpoint.local({ ...options, model: '/models/tiny.gguf' })))",
        {"backend": "webgpu"},
    )["error"]
    assert error["code"] == "device_lost"


def test_a_gpu_that_is_lost_again_and_again_gives_way_to_the_cpu(open_gpu_tab: OpenTab) -> None:
    # After the first, each engine loses its device in the middle of its work.
    fine, loses = GpuTraits(), GpuTraits(lose_at=Loss("submit", count=300))
    tab = open_gpu_tab(gpu=fine, gpu_workers=[fine, fine, loses])
    expected = tab.run(EXPECTED, STORY)
    assert tab.run(ADD, {"backend": "auto", "allowSoftwareAdapter": True, "selfTest": False}) == "webgpu"
    tab.run(BEGIN, {"prompt": STORY, "count": 5})
    EngineGpu(tab).lose()
    outcome = finish(tab)
    check_whole(outcome, expected)
    assert outcome["backend"] == "cpu", outcome["reasons"]


def test_the_gpu_process_crashes(open_gpu_tab: OpenTab) -> None:
    """Case E5, for real."""
    tab = open_gpu_tab()
    expected = tab.run(EXPECTED, STORY)
    tab.run(ADD, {"backend": "webgpu"})
    tab.run(BEGIN, {"prompt": STORY, "count": 10})
    crash_gpu_process(tab)
    check_whole(finish(tab), expected)
