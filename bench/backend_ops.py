"""llama.cpp's test-backend-ops in a page, on a WebGPU adapter with shader-f16: is ggml-webgpu right?

Run by `python3 -m build_tools bench -- backend-ops`. Counterparts: `backend_program.py`, the program in the
page; `backend_cases.py`, which chooses the cases; `backend_table.py`, which writes the results down. The
adapter is Mesa's software driver: what it says of speed means nothing.
"""

import argparse
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.backend_cases import FUSED, FUSED_BY_TYPE, OPS, TYPES, Case, choose
from bench.backend_program import PROGRAM, BackendOps, program_page
from bench.backend_table import DOCUMENT, Result, Results, Versions, document, summary
from bench.command import log
from build_tools.chromium import find_chromium
from build_tools.files import file_sha256
from build_tools.gpu_adapter import adapter_folder, find_f16_chromium
from build_tools.workspace import Workspace
from headrace.errors import HeadraceError
from headrace.headless import LAUNCH_ARGUMENTS, launch


@contextmanager
def opened(workspace: Workspace) -> Iterator[tuple[BackendOps, Versions]]:
    """The program in a page of a browser with an adapter that has shader-f16."""
    chromium = find_chromium()
    gpu = find_f16_chromium(workspace, chromium)
    if chromium is None or gpu is None:
        raise HeadraceError("environment_unsupported", "this machine has no adapter with shader-f16")
    mesa = (adapter_folder(workspace) / "complete").read_text().strip()
    with launch(chromium) as browser:
        # Playwright's interface can be entered once per thread, which `launch` has done.
        started = browser.browser_type.launch(
            executable_path=gpu.program,
            args=[*LAUNCH_ARGUMENTS, *gpu.arguments],
            env={**os.environ, **gpu.environment},
        )
        try:
            with program_page(workspace, started) as page:
                program = file_sha256(workspace.build / "wasm-st" / f"{PROGRAM}.wasm")[:16]
                yield BackendOps(page), Versions(ggml_version(workspace), started.version, mesa, program)
        finally:
            started.close()


def ggml_version(workspace: Workspace) -> str:
    """As ggml's CMakeLists.txt says."""
    text = (workspace.llama / "ggml" / "CMakeLists.txt").read_text()
    parts = (re.search(rf"GGML_VERSION_{part} (\d+)", text) for part in ("MAJOR", "MINOR", "PATCH"))
    return ".".join(part[1] if part else "?" for part in parts)


def measure(
    path: Path, ops: Sequence[str], types: Sequence[str], minutes: float, *, again: bool
) -> tuple[Results, list[Case]]:
    """Runs, within the time, what no former run of this file has run; returns all results and what there is.

    path: of the results, which a run goes on from. ops, types: if not empty, only these.
    again: also what has been run, as if it had not.
    """
    deadline = time.monotonic() + minutes * 60
    workspace = Workspace.default()
    with opened(workspace) as (program, versions):
        whole = choose(program.list_cases())
        results = Results.open(path, versions)
        if again:
            results.forget(lambda case: _is_asked_for(case, ops, types))
        cases = [case for case in whole if _is_asked_for(case, ops, types) and case.name not in results.named]
        log(f"{len(whole)} cases in a whole run beside those of fused ops, {len(cases)} of them now")

        def tell(result: Result) -> None:
            results.add(result)
            log(f"{len(results.all)} {result.outcome} {result.case.name} {result.error}".strip())

        for case in cases:
            if not case.supported:
                results.add(Result(case, "unsupported"))
        program.run_cases([case for case in cases if case.supported], tell, deadline)
        for op, count in FUSED.items():
            if (ops and op not in ops) or types or results.of(op):
                continue
            for weights in TYPES if op in FUSED_BY_TYPE else (None,):
                if time.monotonic() < deadline:
                    program.run_first(op, count, tell, deadline, weights)
    return results, whole


def _is_asked_for(case: Case, ops: Sequence[str], types: Sequence[str]) -> bool:
    return (not ops or case.op in ops) and (not types or case.type in types)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code: 1 also if a case failed."""
    workspace = Workspace.default()
    parser = argparse.ArgumentParser(
        prog="bench backend-ops", description="ggml-webgpu against ggml's CPU backend."
    )
    parser.add_argument(
        "--op", nargs="*", default=[], choices=sorted([*OPS, *FUSED]), metavar="OP", help="only these"
    )
    parser.add_argument("--types", nargs="*", default=[], choices=TYPES, metavar="TYPE", help="only these")
    parser.add_argument("--minutes", type=float, default=60, help="stop after so many (default: 60)")
    parser.add_argument("--again", action="store_true", help="also what a former run has run")
    parser.add_argument(
        "--results",
        type=Path,
        default=workspace.build / "backend-ops.jsonl",
        help="where results are kept, and where a run goes on (default: %(default)s)",
    )
    parser.add_argument("--write", action="store_true", help=f"write all results to {DOCUMENT}")
    parsed = parser.parse_args(arguments)
    try:
        results, whole = measure(parsed.results, parsed.op, parsed.types, parsed.minutes, again=parsed.again)
    except HeadraceError as error:
        print(f"bench: {error.message} [{error.code}]", file=sys.stderr)
        return 1
    if parsed.write:
        (workspace.root / DOCUMENT).parent.mkdir(exist_ok=True)
        (workspace.root / DOCUMENT).write_text(document(results, whole), encoding="utf-8")
    print(summary(results.all))
    return 1 if any(result.outcome == "failed" for result in results.all) else 0
