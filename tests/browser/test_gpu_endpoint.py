"""A local endpoint on WebGPU: chosen when it can be, refused by name, found out when it is wrong.

Counterparts: `web/backend_choice.js`, `web/worker/backend_attempts.js`, `native/engine/gpu_self_test.cpp`.
Whole models on GPU and CPU: test_gpu_agreement.py. Lost devices: test_gpu_recovery.py.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.browser.broken_kernels import Q4_K_VECTOR
from tests.browser.conftest import OpenTab
from tests.browser.gpu_wrapper import SMALL_LIMITS, GpuTraits
from tests.browser.tab import Tab

pytestmark = pytest.mark.browser

GREETING = "Hello! I am a tiny mixture of experts model made for tests."

# A greeting is what the model knows by heart; what is asked of each endpoint, and what it said of itself.
GREET = """async (options) => {
  const name = `endpoint ${globalThis.endpoints = (globalThis.endpoints ?? 0) + 1}`;
  const settings = { model: "/models/tiny.gguf", context: { size: 256 }, ...options };
  const added = await told(client.add(name, Endpoint.local(settings)));
  if (added.error) return added;
  const messages = [{ role: "user", content: "Hello!" }];
  const answer = await told(client.chat(name, messages, { temperature: 0, maxTokens: 32 }).response);
  const ops = await client.audit(name);
  const { backend, gpu, reasons, artifact } = client.capabilities(name);
  await client.remove(name);
  return { answer, backend, gpu, reasons, artifact, ops };
}"""


def greet(tab: Tab, **options: object) -> Mapping[str, Any]:
    answer: Mapping[str, Any] = tab.run(GREET, options)
    return answer


def text_of(run: Mapping[str, Any]) -> str:
    text: str = run["answer"]["value"]["text"]
    return text


@pytest.mark.parametrize("artifact", ["st", "mt"])
def test_both_artifacts_compute_on_the_gpu(open_gpu_tab: OpenTab, artifact: str) -> None:
    run = greet(open_gpu_tab(), backend="webgpu", artifact=artifact)
    assert text_of(run) == GREETING
    assert (run["backend"], run["artifact"]) == ("webgpu", artifact)
    assert run["answer"]["value"]["stats"]["backend"] == "webgpu"
    # Every op of this model has a kernel there: nothing was left to the CPU in silence.
    assert {op["backend"] for op in run["ops"]} == {"WebGPU"}
    assert run["gpu"]["layers"] == run["gpu"]["layersTotal"] == 3
    assert run["gpu"]["selfTest"]["tested"] > 10


def test_auto_takes_a_gpu_that_agrees_with_the_cpu(open_gpu_tab: OpenTab) -> None:
    run = greet(open_gpu_tab(), backend="auto", allowSoftwareAdapter=True)
    assert run["backend"] == "webgpu", run["reasons"]
    assert text_of(run) == GREETING
    assert any(reason.startswith("WebGPU") for reason in run["reasons"])


def test_auto_leaves_a_software_adapter_alone(open_gpu_tab: OpenTab) -> None:
    run = greet(open_gpu_tab(), backend="auto")
    assert (run["backend"], run["gpu"]) == ("cpu", None)
    assert text_of(run) == GREETING
    assert any("software" in reason for reason in run["reasons"])


def test_without_f16_auto_is_the_cpu_and_says_why(open_swiftshader_tab: OpenTab) -> None:
    """Case E3."""
    run = greet(open_swiftshader_tab(), backend="auto", allowSoftwareAdapter=True)
    assert run["backend"] == "cpu"
    assert text_of(run) == GREETING
    assert any("shader-f16" in reason for reason in run["reasons"])


def test_without_f16_webgpu_is_refused_by_name(open_swiftshader_tab: OpenTab) -> None:
    """Case E3."""
    tab = open_swiftshader_tab()
    error = greet(tab, backend="webgpu")["error"]
    assert error["code"] == "environment_unsupported"
    assert error["detail"]["missing"] == ["shader-f16"]
    assert text_of(greet(tab, backend="cpu")) == GREETING


def test_without_jspi_the_same_artifact_runs_on_the_cpu(open_gpu_tab: OpenTab) -> None:
    """Case E2."""
    script = "delete WebAssembly.Suspending; delete WebAssembly.promising;"
    tab = open_gpu_tab(init_script=script)
    run = greet(tab, backend="auto", allowSoftwareAdapter=True)
    assert run["backend"] == "cpu"
    assert any("JSPI" in reason for reason in run["reasons"])
    assert greet(tab, backend="webgpu")["error"]["detail"]["missing"] == ["JSPI (WebAssembly.Suspending)"]


def test_small_limits_are_enough(open_gpu_tab: OpenTab) -> None:
    """Case E4: the limits that every device has, and no more, are asked for and kept."""
    run = greet(open_gpu_tab(gpu=GpuTraits(limits=SMALL_LIMITS)), backend="webgpu")
    assert run["backend"] == "webgpu"
    assert text_of(run) == GREETING


def test_an_adapter_that_gives_no_device(open_gpu_tab: OpenTab) -> None:
    tab = open_gpu_tab(gpu=GpuTraits(device="rejects"))
    run = greet(tab, backend="auto", allowSoftwareAdapter=True)
    assert run["backend"] == "cpu"
    assert text_of(run) == GREETING
    assert any("CPU after all" in reason for reason in run["reasons"])
    assert greet(tab, backend="webgpu")["error"]["code"] == "gpu_failed"


def test_a_broken_kernel_is_found_before_the_first_token(open_gpu_tab: OpenTab) -> None:
    """Case E7."""
    tab = open_gpu_tab(gpu=GpuTraits(shader_edits=[Q4_K_VECTOR]))
    error = greet(tab, backend="webgpu")["error"]
    assert error["code"] == "gpu_mismatch"
    assert "MUL_MAT" in error["detail"]["op"]
    assert "_K" in error["detail"]["op"]
    assert error["detail"]["error"] > error["detail"]["limit"]

    run = greet(tab, backend="auto", allowSoftwareAdapter=True)
    assert run["backend"] == "cpu"
    assert text_of(run) == GREETING
    assert any("MUL_MAT" in reason for reason in run["reasons"])


def test_with_the_self_test_skipped_a_broken_kernel_speaks(open_gpu_tab: OpenTab) -> None:
    """The kernel of the test above is really wrong: it is the self-test that keeps it from speaking."""
    tab = open_gpu_tab(gpu=GpuTraits(shader_edits=[Q4_K_VECTOR]))
    run = greet(tab, backend="webgpu", gpuSelfTest="skip")
    answer = run["answer"]
    assert "error" in answer or answer["value"]["text"] != GREETING
