"""The task list: what each task's name stands for, in steps.

Counterpart: `__main__.py`, which parses the command line. `serve.py` takes its steps from here, too.
"""

import sys
from collections.abc import Sequence

from build_tools.chromium import chromium_step, find_chromium
from build_tools.codegen import codegen_step
from build_tools.environment import environment_python
from build_tools.files import remove_folder
from build_tools.gpu_adapter import gpu_adapter_step
from build_tools.host import native_step
from build_tools.lint import format_step, lint_step
from build_tools.package import package_step
from build_tools.progress import Reporter
from build_tools.run import run_command
from build_tools.soak import FuzzPlan, SoakPlan, fuzz_steps, soak_steps
from build_tools.sources import demo_model_step, sources_step
from build_tools.steps import Step, run_steps
from build_tools.toolchain import toolchain_step
from build_tools.typescript import types_step, typescript_step
from build_tools.vendor import vendor_step
from build_tools.wasm import wasm_step
from build_tools.workspace import Workspace

TASKS = {
    "setup": "get and build everything that tests need",
    "toolchain": "find or unpack Emscripten",
    "sources": "get llama.cpp's source and apply native/patches",
    "wasm": "build the WebAssembly artifacts",
    "native": "build the native library",
    "codegen": "generate declarations from the native library",
    "vendor": "get what web/ uses of other projects",
    "types": "check web/ with tsc and emit its declarations",
    "lint": "check style and types of Python and C++",
    "format": "format Python and C++ sources",
    "test": "set up, check and run every test",
    "soak": "random operations on the engine under sanitizers",
    "fuzz": "damaged commands and models under a sanitizer",
    "bench": "measure speed: decode (unless named), store, streams or scheduler; or try GPU ops: backend-ops",
    "package": "build the wheel",
    "all": "set up and build everything, the wheel included",
    "clean": "delete the build folder; the shared cache stays",
}
"""Task → what it does, in the order of --help."""


def task_steps(task: str, workspace: Workspace) -> list[Step]:
    """The steps of a task; empty for those that are no more than a command (clean)."""
    toolchain, sources = toolchain_step(workspace), sources_step(workspace)
    wasm, native = wasm_step(workspace), native_step(workspace)
    vendor = vendor_step(workspace)
    typescript = [typescript_step(workspace), types_step(workspace)]
    host = [sources, native, codegen_step(workspace)]
    steps = {
        "setup": setup_steps(workspace),
        "toolchain": [toolchain],
        "sources": [sources],
        "wasm": [toolchain, sources, wasm],
        "native": [sources, native],
        "codegen": host,
        "vendor": [vendor],
        "types": [*host, *typescript],
        "lint": [lint_step(workspace)],
        "format": [format_step(workspace)],
        "soak": soak_steps(workspace, SoakPlan()),
        "fuzz": fuzz_steps(workspace, FuzzPlan()),
        "bench": [toolchain, *host, vendor, wasm, chromium_step(workspace), demo_model_step(workspace)],
        "package": [toolchain, *host, vendor, *typescript, wasm, package_step(workspace)],
        "all": [*setup_steps(workspace), package_step(workspace)],
    }
    return steps.get(task, [])


def bench_steps(workspace: Workspace, measurement: str) -> list[Step]:
    """What a measurement of the bench package needs; any other word stands for the one of a page."""
    sources = sources_step(workspace)
    steps = {
        "scheduler": [sources, native_step(workspace, tests=True)],
        "streams": [sources, native_step(workspace), demo_model_step(workspace)],
        "backend-ops": [
            *(toolchain_step(workspace), sources, wasm_step(workspace)),
            *(chromium_step(workspace), gpu_adapter_step(workspace)),
        ],
    }
    return steps.get(measurement) or task_steps("bench", workspace)


def serve_steps(workspace: Workspace, *, demo_model: bool, browser: bool) -> list[Step]:
    """What serve.py needs: the artifacts, the demo model unless another is named, a browser to ask it in."""
    return [
        *task_steps("wasm", workspace),
        vendor_step(workspace),
        *([demo_model_step(workspace)] if demo_model else []),
        *([chromium_step(workspace)] if browser else []),
    ]


def setup_steps(workspace: Workspace, fast: bool = False) -> list[Step]:
    """What must be there before the tests. fast: without artifacts and browser."""
    host = [sources_step(workspace), native_step(workspace, tests=True), codegen_step(workspace)]
    whole = [
        toolchain_step(workspace),
        wasm_step(workspace),
        chromium_step(workspace),
        gpu_adapter_step(workspace),
    ]
    return [
        *host,
        vendor_step(workspace),
        typescript_step(workspace),
        types_step(workspace),
        demo_model_step(workspace),
        *([] if fast else whole),
    ]


def steps_before_tests(workspace: Workspace, fast: bool) -> list[Step]:
    """What must be there, and pass, before the tests. fast: as for `setup_steps`."""
    return [lint_step(workspace), *setup_steps(workspace, fast)]


def run_tests(workspace: Workspace, reporter: Reporter, *, fast: bool, arguments: Sequence[str]) -> int:
    """Runs the steps, then pytest. Returns pytest's exit status; its closing line is printed last."""
    run_steps(steps_before_tests(workspace, fast), workspace, reporter)
    chosen = ["-m", "not browser and not wasm"] if fast else []
    color = "yes" if sys.stdout.isatty() else "no"
    argv = [environment_python(workspace), "-m", "pytest", f"--color={color}", *chosen, *arguments]
    return _run_in_view(workspace, "test", argv)


def run_bench(workspace: Workspace, reporter: Reporter, arguments: Sequence[str]) -> int:
    """Runs the steps, then the bench package. Returns its exit status."""
    run_steps(bench_steps(workspace, arguments[0] if arguments else ""), workspace, reporter)
    return _run_in_view(workspace, "bench", [environment_python(workspace), "-m", "bench", *arguments])


def _run_in_view(workspace: Workspace, name: str, argv: Sequence[object]) -> int:
    log = workspace.logs / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(b"")
    sys.stdout.flush()
    browser = find_chromium()
    return run_command(
        [str(part) for part in argv],
        cwd=workspace.root,
        env={"HEADRACE_CHROMIUM": str(browser)} if browser else None,
        log=log,
        echo=sys.stdout.buffer,
        check=False,
    ).returncode


def clean(workspace: Workspace, reporter: Reporter) -> None:
    """Deletes the build folder."""
    remove_folder(workspace.build)
    reporter.line(f"deleted {workspace.build}; the shared cache {workspace.cache} is as it was")
