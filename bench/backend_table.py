"""Results of test-backend-ops: kept in a file while they come, and written down as a table for people.

Counterparts: `backend_ops.py`, whose results these are; `docs/webgpu-ops.md`, the table. Runs nothing.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from bench.backend_cases import FUSED, OPS, TYPES, Case

DOCUMENT = Path("docs/webgpu-ops.md")

TEXT = """\
# What ggml-webgpu computes in a page

llama.cpp's own `test-backend-ops`, compiled to WebAssembly and run in a page of headless Chromium on a
WebGPU adapter with shader-f16. Every result is compared with that of ggml's CPU backend (its reference
implementations), within the limits that llama.cpp sets. The adapter is Mesa's software driver: it computes
as a GPU does, but other GPUs have other drivers. That is why the engine tests a model's ops on the adapter
at hand before it uses it.

{versions}, {date}: {passed} cases passed, {failed} failed, {unsupported} are not supported by the backend.
Not run: {missing} of the {whole} cases chosen{unrun}.

Written by the measurement itself; repeat it with

    python3 -m build_tools bench -- backend-ops --again --write

test-backend-ops has thousands of cases. Of each op and type those are chosen that show every pair of values
of two parameters, sizes by their class (of a product's columns: 1, 2–8, 9–16, 17–63, more), up to a number
that `bench/backend_cases.py` sets. Left out are cases of attention that would take minutes each. Inputs are
random and differ from run to run.

`7`: so many cases passed. `7, cpu 2`: 2 further ones are not supported, the engine computes them on the
CPU. `cpu`: none is supported. Of these cases three at most are named. `FAILED 1 of 7`: see below. `–`:
test-backend-ops has no such case. `?`: not run.

A column is the type of the weights (or of the cache, or of what is copied to or from); other inputs are of
any of these types.
"""

FUSED_TEXT = """\
## Fused ops

Graphs of several ops that the backend may compute at once. test-backend-ops does not list them: the first
few of each were run.
"""

Outcome = Literal["passed", "unsupported", "failed"]


@dataclass(frozen=True)
class Result:
    """How a case went. error: what the tests say of a failure, with its figures."""

    case: Case
    outcome: Outcome
    error: str = ""


@dataclass(frozen=True)
class Versions:
    """What was tested. program: the hash of the tests' WebAssembly."""

    ggml: str
    chromium: str
    mesa: str
    program: str


class Results:
    """Results in a file with one of them a line, after a line with what was tested."""

    def __init__(self, path: Path, versions: Versions, results: Iterable[Result]) -> None:
        self._path = path
        self.versions = versions
        self.all = list(dict.fromkeys(results))
        self._write()

    @classmethod
    def open(cls, path: Path, versions: Versions) -> "Results":
        """Goes on with the results in the file, unless something else was tested."""
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        records = [json.loads(line) for line in lines]
        if not records or records[0] != asdict(versions):
            return cls(path, versions, [])
        return cls(path, versions, (_from_record(record) for record in records[1:]))

    @property
    def named(self) -> set[str]:
        """Names of the cases that have a result."""
        return {result.case.name for result in self.all}

    def of(self, op: str) -> list[Result]:
        """The results of one op."""
        return [result for result in self.all if result.case.op == op]

    def add(self, result: Result) -> None:
        """Keeps one more, at once. Some cases come twice in the tests: the same again is not counted."""
        if result in self.all:
            return
        self.all.append(result)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(_record(result)) + "\n")

    def forget(self, what: Callable[[Case], bool]) -> None:
        """Drops the results of some cases."""
        self.all = [result for result in self.all if not what(result.case)]
        self._write()

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        lines = [asdict(self.versions), *(_record(result) for result in self.all)]
        self._path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def _record(result: Result) -> dict[str, str]:
    case = result.case
    return {"op": case.op, "parameters": case.parameters, "outcome": result.outcome, "error": result.error}


def _from_record(record: Mapping[str, Any]) -> Result:
    case = Case(record["op"], record["parameters"], record["outcome"] != "unsupported")
    return Result(case, record["outcome"], record["error"])


def summary(results: Sequence[Result]) -> str:
    """One line for a terminal, and one for each failure."""
    counts = Counter(result.outcome for result in results)
    lines = [f"{counts['passed']} passed, {counts['failed']} failed, {counts['unsupported']} not supported"]
    lines += [f"FAILED {result.case.name} {result.error}" for result in results if result.outcome == "failed"]
    return "\n".join(lines)


def document(results: Results, whole: Sequence[Case]) -> str:
    """The table as Markdown. whole: every case that a whole run takes, fused ops apart."""
    versions = results.versions
    counts = Counter(result.outcome for result in results.all)
    missing = [case for case in whole if case.name not in results.named]
    failed = [result for result in results.all if result.outcome == "failed"]
    unrun = [op for op in FUSED if not results.of(op)]
    text = TEXT.format(
        versions=f"ggml {versions.ggml}, Chromium {versions.chromium}, {versions.mesa}",
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        passed=counts["passed"],
        failed=counts["failed"],
        unsupported=counts["unsupported"],
        missing=len(missing),
        whole=len(whole),
        unrun=f"; of fused ops {', '.join(unrun)}" if unrun else "; no fused op is left out",
    )
    lines = [
        text,
        *_table("Op", list(OPS), results.all, missing),
        "",
        FUSED_TEXT,
        *_table("Graph", list(FUSED), results.all, []),
        "",
        "## Failures",
        "",
        *([f"- `{result.case.name}`: {result.error or 'no figures'}" for result in failed] or ["None."]),
    ]
    return "\n".join(lines) + "\n"


def _table(title: str, ops: Sequence[str], results: Sequence[Result], missing: Sequence[Case]) -> list[str]:
    """Op × type; ops with nothing to say are left out."""
    cells: dict[tuple[str, str], list[Outcome]] = {}
    for result in results:
        cells.setdefault((result.case.op, result.case.type), []).append(result.outcome)
    left = {(case.op, case.type) for case in missing}
    shown = [op for op in ops if any((op, name) in cells or (op, name) in left for name in TYPES)]
    rows = [[title, *TYPES], ["---"] * (len(TYPES) + 1)]
    rows += [[op, *(_cell(cells.get((op, name)), (op, name) in left) for name in TYPES)] for op in shown]
    return [f"| {' | '.join(row)} |" for row in rows]


def _cell(outcomes: Sequence[Outcome] | None, left: bool) -> str:
    if not outcomes:
        return "?" if left else "–"
    counts = Counter(outcomes)
    run = counts["passed"] + counts["failed"]
    unsupported = counts["unsupported"]
    if counts["failed"]:
        text = f"**FAILED {counts['failed']} of {run}**"
    elif not run:
        return "cpu"
    else:
        text = str(run)
    return text + (f", cpu {unsupported}" if unsupported else "") + (", ?" if left else "")
