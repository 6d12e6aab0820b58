"""A few of llama.cpp's own tests of ggml-webgpu, in a page with shader-f16; also with broken kernels.

Counterpart: `bench/backend_ops.py`, which runs what text models need and writes docs/webgpu-ops.md. Cases
E7 and G12: a GPU that computes something else, without an error.
"""

from collections.abc import Iterator, Sequence

import pytest
from playwright.sync_api import Browser, Page

from bench.backend_cases import TYPES, Case
from bench.backend_program import PROGRAM, BackendOps, program_page
from bench.backend_table import Outcome, Result
from build_tools.workspace import Workspace
from tests.browser.broken_kernels import Q4_K_TILE, Q4_K_VECTOR
from tests.browser.gpu_wrapper import GpuTraits, ShaderEdit

pytestmark = pytest.mark.browser

REST = "bs=[1,1],nr=[1,1],per=[0,1,2,3],k_v=0,o=1,src_overlap=0,m_v=0,pad=0"


def product(weights: str, columns: int) -> Case:
    return Case("MUL_MAT", f"type_a={weights},type_b=f32,m=16,n={columns},k=256,{REST}")


CASES = [product(weights, columns) for weights in ("q4_K", "q4_0") for columns in (1, 16)]


@pytest.fixture(scope="module")
def page(f16_browser: Browser, workspace: Workspace) -> Iterator[Page]:
    if not (workspace.build / "wasm-st" / f"{PROGRAM}.wasm").is_file():
        pytest.skip(f"{PROGRAM} is not built: python3 -m build_tools wasm")
    with program_page(workspace, f16_browser) as page:
        yield page


def outcomes(page: Page, cases: Sequence[Case], edits: Sequence[ShaderEdit] = ()) -> dict[str, Result]:
    prologue = GpuTraits(shader_edits=edits).script() if edits else ""
    results: list[Result] = []
    program = BackendOps(page, prologue)
    program.run_cases(cases, results.append)
    program.close()
    return {result.case.name: result for result in results}


def test_the_backend_multiplies_by_weights_of_every_type_that_is_claimed(page: Page) -> None:
    program = BackendOps(page)
    listed = program.list_cases()
    program.close()
    assert set(CASES) <= set(listed)
    products = {case.type for case in listed if case.op == "MUL_MAT" and case.supported}
    assert products >= set(TYPES)


def test_what_the_gpu_computes_is_what_the_cpu_computes(page: Page) -> None:
    results = outcomes(page, CASES)
    assert {name: result.outcome for name, result in results.items()} == {
        case.name: "passed" for case in CASES
    }


@pytest.mark.parametrize(("edit", "columns"), [(Q4_K_VECTOR, 1), (Q4_K_TILE, 16)], ids=["vector", "tile"])
def test_a_broken_kernel_fails_and_no_other_does(page: Page, edit: ShaderEdit, columns: int) -> None:
    broken, sound = product("q4_K", columns), product("q4_0", columns)
    results = outcomes(page, [broken, sound], [edit])
    expected: dict[str, Outcome] = {broken.name: "failed", sound.name: "passed"}
    assert {name: result.outcome for name, result in results.items()} == expected
    assert "[MUL_MAT] ERR = " in results[broken.name].error


def test_an_abort_is_a_failure_and_the_next_case_is_run(page: Page) -> None:
    broken, sound = product("q4_K", 1), product("q4_0", 1)
    results = outcomes(page, [broken, sound], [ShaderEdit(Q4_K_VECTOR.find, "no WGSL")])
    assert results[broken.name].outcome == "failed"
    assert "no WGSL" in results[broken.name].error
    assert results[sound.name].outcome == "passed"


def test_a_case_that_the_program_does_not_know_is_no_success(page: Page) -> None:
    unknown = Case("MUL_MAT", "type_a=q4_K,n=never")
    assert outcomes(page, [unknown])[unknown.name].outcome == "failed"
