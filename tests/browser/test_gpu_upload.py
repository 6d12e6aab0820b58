"""Weights on their way to the GPU: in pieces, through a memory that stays small.

Counterparts: `native/patches/0007`, `native/webgpu/webgpu_cpp.cpp`; test_store_promises.py for the CPU.
"""

from collections.abc import Mapping
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser.conftest import TabsIn
from tests.browser.gpu_wrapper import EngineGpu, GpuTraits
from tests.large_gguf import heavy_parrot

pytestmark = pytest.mark.browser

MIB = 2**20

LOAD = """async (options) => {
  const settings = { artifact: "st", backend: "webgpu", context: { size: 128 }, store: "memory" };
  await client.add(options.model, Endpoint.local({ ...settings, ...options }));
  const { text } = await client.query(options.model, "a", { maxTokens: 5, temperature: 0 }).response;
  const { backend, heapBytes } = client.capabilities(options.model);
  return { text, backend, heapBytes };
}"""


def test_a_quarter_of_a_gigabyte_needs_little_of_the_heap(
    f16_browser: Browser, tabs_in: TabsIn, model_files: Mapping[str, Path], tmp_path: Path
) -> None:
    # Wider layers than these are the CPU's: what they compute for a batch would be past what a binding holds.
    heavy = heavy_parrot(tmp_path / "heavy.gguf", hidden=36_000, blocks=2)
    assert heavy.stat().st_size > 240e6
    files = {**model_files, "heavy.gguf": heavy}
    with tabs_in(f16_browser, model_files=files) as open_tab:
        tab = open_tab(gpu=GpuTraits())
        empty = tab.run(LOAD, {"model": "/models/abc.gguf"})
        loaded = tab.run(LOAD, {"model": "/models/heavy.gguf"})
        seen = EngineGpu(tab).seen()
    assert (loaded["text"], loaded["backend"]) == (empty["text"], "webgpu")
    assert loaded["heapBytes"] - empty["heapBytes"] <= 96 * MIB
    # All of it went there, and no piece was large.
    assert seen["bytes"]["writeBuffer"] > heavy.stat().st_size
    assert seen["largest"]["writeBuffer"] <= 8 * MIB


def test_a_tensor_too_large_for_a_binding_stays_on_the_cpu(
    f16_browser: Browser, tabs_in: TabsIn, model_files: Mapping[str, Path], tmp_path: Path
) -> None:
    """Case E4: 145 MB where a binding holds 128 MiB. The audit says so, and the model speaks."""
    wide = heavy_parrot(tmp_path / "wide.gguf", hidden=126_000)
    with tabs_in(f16_browser, model_files={**model_files, "wide.gguf": wide}) as open_tab:
        tab = open_tab()
        empty = tab.run(LOAD, {"model": "/models/abc.gguf"})
        loaded = tab.run(LOAD, {"model": "/models/wide.gguf"})
        ops = tab.run("() => client.audit('/models/wide.gguf')")
    assert loaded["text"] == empty["text"]
    places = {op["op"]: op["backend"] for op in ops if op["op"] != "MUL_MAT"}
    assert "CPU" in {op["backend"] for op in ops if op["op"] == "MUL_MAT"}
    assert "WebGPU" in places.values()
