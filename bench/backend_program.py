"""llama.cpp's test-backend-ops as a program in a page: calls it, hears of each case, restarts it.

Counterparts: `backend_program.js`, the worker that it runs in; `backend_ops.py`, which measures with it;
`tests/browser/test_backend_ops.py`. Chooses no cases.
"""

import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page

from bench.backend_cases import Case, read_cases
from bench.backend_table import Outcome, Result
from build_tools.workspace import Workspace
from headrace.errors import HeadraceError
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
