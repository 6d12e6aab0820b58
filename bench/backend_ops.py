"""llama.cpp's test-backend-ops in a page, on a WebGPU adapter with shader-f16: is ggml-webgpu right?

Run by `python3 -m build_tools bench -- backend-ops`. Counterparts: `backend_ops.js`, the worker that calls
the tests; `backend_cases.py`, which chooses them; `backend_table.py`, which writes them down;
`tests/browser/test_backend_ops.py`, which keeps this alive. The adapter is Mesa's software driver: what it
says of speed means nothing.
"""

import argparse
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page

from bench.backend_cases import FUSED, FUSED_BY_TYPE, OPS, TYPES, Case, choose, read_cases
from bench.backend_table import DOCUMENT, Outcome, Result, Results, Versions, document, summary
from bench.command import log
from build_tools.chromium import find_chromium
from build_tools.files import file_sha256
from build_tools.gpu_adapter import adapter_folder, find_f16_chromium
from build_tools.workspace import Workspace
from headrace.errors import HeadraceError
from headrace.headless import LAUNCH_ARGUMENTS, launch
from headrace.server import background_server, create_app

PROGRAM = "headrace_backend_ops"
WORKER = Path(__file__).with_suffix(".js")

CASE_SECONDS = 300
"""A case that takes longer counts as hung, and the program is started again."""

BATCH = 40
"""Cases for each call of the program, which goes through the whole list of its tests every time."""

START = """async ({ script, program }) => {
  const url = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
  const worker = new Worker(url, { type: "module" });
  globalThis.told = [];
  globalThis.worker = worker;
  worker.onmessage = ({ data }) => told.push(data);
  worker.onerror = ({ message }) => told.push({ error: message });
  const folder = new URL("/headrace/artifacts/", location.href);
  const [glue, wasm] = ["js", "wasm"].map((end) => new URL(`${program}.${end}`, folder).href);
  worker.postMessage({ origin: location.origin, glue, wasm });
}"""

LISTEN = """async (ms) => {
  const end = performance.now() + ms;
  while (told.length === 0 && performance.now() < end) await new Promise((done) => setTimeout(done, 20));
  return told.splice(0);
}"""

COLOURS = re.compile("\x1b\\[[0-9;]*m")
RESULT = re.compile(r"^(?P<error>.*?)\s*(?P<op>[A-Z][A-Z0-9_]*)\((?P<parameters>.*)\): (?P<said>.*?)\s*$")


def parse_result(line: str) -> Result | None:
    """What one printed line says of a case; None if it is about something else."""
    match = RESULT.match(COLOURS.sub("", line))
    if match is None:
        return None
    said = match["said"]
    outcome: Outcome | None = "passed" if said == "OK" else "failed" if said == "FAIL" else None
    if said.startswith("not supported"):
        outcome = "unsupported"
    if outcome is None:
        return None
    case = Case(match["op"], match["parameters"], outcome != "unsupported")
    return Result(case, outcome, match["error"].strip())


class BackendOps:
    """The program in a worker of a page, which runs one at a time.

    prologue: a script that comes before the worker's own.
    """

    def __init__(self, page: Page, prologue: str = "") -> None:
        self._page = page
        self._script = prologue + WORKER.read_text(encoding="utf-8")
        self._started = False

    def list_cases(self, seconds: float = 300) -> list[Case]:
        """Every case that the program can list, with whether the backend computes it."""
        lines: list[str] = []
        error = self._run(["support", "--output", "csv"], lines.append, time.monotonic() + seconds, seconds)
        if error:
            raise HeadraceError("internal", f"the tests could not be listed: {error}")
        return read_cases(lines)

    def run_cases(
        self, cases: Sequence[Case], tell: Callable[[Result], None], deadline: float = float("inf")
    ) -> None:
        """Runs them in their order, as far as the deadline (of time.monotonic) allows.

        What ends or hangs the program counts as failed, and the next case begins in a new one.
        """
        left = list(cases)
        while left and time.monotonic() < deadline:
            batch = left[:BATCH]
            done: set[str] = set()

            def hear(line: str, done: set[str] = done) -> None:
                result = parse_result(line)
                if result is not None:
                    done.add(result.case.name)
                    tell(result)

            error = self._run(["-o", ",".join(case.name for case in batch)], hear, deadline)
            remaining = [case for case in batch if case.name not in done]
            if error is None and remaining:
                for case in remaining:
                    tell(Result(case, "failed", "the program does not know it"))
                remaining = []
            elif error is not None and remaining and time.monotonic() < deadline:
                tell(Result(remaining.pop(0), "failed", error))
            left = remaining + left[BATCH:]

    def run_first(
        self,
        op: str,
        count: int,
        tell: Callable[[Result], None],
        deadline: float = float("inf"),
        weights: str | None = None,
    ) -> None:
        """Runs the first `count` cases of an op that is in no list; `weights`: only those of this type."""
        chosen = ["-o", op] if weights is None else ["-o", op, "-p", f"^type(_a)?={weights},"]
        told = 0

        def hear(line: str) -> None:
            nonlocal told
            result = parse_result(line)
            if result is not None and told < count:
                told += 1
                tell(result)

        error = self._run(chosen, hear, deadline, enough=lambda: told >= count)
        if error is not None and told < count and time.monotonic() < deadline:
            tell(Result(Case(op, f"case {told + 1}"), "failed", error))

    def _run(
        self,
        arguments: Sequence[str],
        hear: Callable[[str], None],
        deadline: float,
        patience: float = CASE_SECONDS,
        enough: Callable[[], bool] = lambda: False,
    ) -> str | None:
        """One call of the program; why it did not come to its end, or None."""
        if not self._started:
            self._page.evaluate(START, {"script": self._script, "program": PROGRAM})
            self._started = True
            error = self._listen(lambda line: None, deadline, patience)
            if error:
                return error
        self._page.evaluate("(args) => worker.postMessage(args)", list(arguments))
        return self._listen(hear, deadline, patience, enough)

    def _listen(
        self,
        hear: Callable[[str], None],
        deadline: float,
        patience: float,
        enough: Callable[[], bool] = lambda: False,
    ) -> str | None:
        since_result: list[str] = []
        heard = time.monotonic()
        while True:
            for message in self._page.evaluate(LISTEN, 1000):
                heard = time.monotonic()
                if "line" in message:
                    if parse_result(message["line"]) is None:
                        since_result.append(message["line"].strip())
                    else:
                        since_result.clear()
                    hear(message["line"])
                elif "error" in message:
                    self._stop()
                    return " ".join([message["error"], *since_result])
                else:
                    return None
            now = time.monotonic()
            if enough() or now > deadline or now - heard > patience:
                self._stop()
                return None if enough() else f"no answer for {now - heard:.0f} s"

    def close(self) -> None:
        """Ends the worker."""
        if self._started:
            self._stop()

    def _stop(self) -> None:
        self._page.evaluate("() => worker.terminate()")
        self._started = False


@contextmanager
def program_page(workspace: Workspace, browser: Browser) -> Iterator[Page]:
    """A page of a browser, on a server that has the program among its artifacts."""
    with tempfile.TemporaryDirectory() as folder:
        for end in ("js", "wasm"):
            shutil.copy(workspace.build / "wasm-st" / f"{PROGRAM}.{end}", folder)
        app = create_app(web_dir=workspace.root / "web", artifacts_dir=Path(folder), models={})
        with background_server(app) as base:
            page = browser.new_page()
            page.goto(f"{base}/playground/headless.html")
            yield page
            page.close()


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
