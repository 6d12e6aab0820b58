"""native/webgpu alone, without ggml, on an adapter with shader-f16: the way to navigator.gpu and back.

Counterparts: `native/webgpu/tests/`, which holds the tests, and webgpu_layer.js, which runs them in a worker.
"""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from build_tools.workspace import Workspace
from tests.browser.conftest import TabsIn

pytestmark = pytest.mark.browser

PROGRAM = "headrace_webgpu_tests"
WORKER = Path(__file__).with_name("webgpu_layer.js")

RUN = """async ({ script, program }) => {
  const url = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
  const worker = new Worker(url, { type: "module" });
  const answer = new Promise((resolve) => {
    worker.onmessage = ({ data }) => resolve(data);
    worker.onerror = ({ message }) => resolve({ error: message });
  });
  const folder = new URL("/headrace/artifacts/", location.href);
  const [glue, wasm] = ["js", "wasm"].map((end) => new URL(`${program}.${end}`, folder).href);
  worker.postMessage({ origin: location.origin, glue, wasm });
  const { results, error } = await answer;
  worker.terminate();
  if (error) throw new Error(error);
  return results;
}"""


@pytest.fixture(scope="module")
def results(
    f16_browser: Browser,
    tabs_in: TabsIn,
    workspace: Workspace,
    artifacts_dir: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Mapping[str, Mapping[str, Any]]]:
    """Of every test in the program: its problem, and by how much handles and memory grew."""
    folder = tmp_path_factory.mktemp("webgpu") / "artifacts"
    shutil.copytree(artifacts_dir, folder)
    for end in ("js", "wasm"):
        shutil.copy(workspace.build / "wasm-st" / f"{PROGRAM}.{end}", folder)
    with tabs_in(f16_browser, artifacts_dir=folder) as open_tab:
        yield open_tab().run(RUN, {"script": WORKER.read_text(), "program": PROGRAM})


@pytest.mark.parametrize(
    "name",
    [
        *("device", "vector_add", "readback_in_parts", "idle_queue_needs_no_wait"),
        *(
            "out_of_memory",
            "validation_error",
            "shader_error",
            "many_objects",
            "kept_bind_groups",
            "device_lost",
        ),
    ],
)
def test_it_does_what_webgpu_says(results: Mapping[str, Mapping[str, Any]], name: str) -> None:
    assert results[name]["problem"] is None


def test_every_test_of_the_program_is_named_here(results: Mapping[str, Mapping[str, Any]]) -> None:
    assert len(results) == 10


def test_a_hundred_thousand_dispatches_leave_nothing(results: Mapping[str, Mapping[str, Any]]) -> None:
    assert results["many_objects"]["handles"] <= 0
    assert results["many_objects"]["bytes"] == 0


def test_what_is_kept_is_the_last_bind_group(results: Mapping[str, Mapping[str, Any]]) -> None:
    # A bind group, its layout and three buffers, until a buffer is destroyed; the device and its adapter.
    assert max(one["handles"] for one in results.values()) <= 5
    assert results["device"]["handles"] == 2
