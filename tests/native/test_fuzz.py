"""The fuzzers for some seconds each, without a sanitizer: they start, run, and find nothing.

Counterpart: `native/soak/fuzz_*.cpp`; the long run under AddressSanitizer is `python3 -m build_tools fuzz`.
"""

import re
import subprocess
from pathlib import Path

import pytest

from build_tools.soak import FUZZERS
from build_tools.workspace import Workspace


def program(workspace: Workspace, fuzzer: str) -> Path:
    path = workspace.build / "native" / f"headrace_fuzz_{fuzzer}"
    assert path.exists(), "build it with: python3 -m build_tools test"
    return path


@pytest.mark.parametrize("fuzzer", FUZZERS)
def test_nothing_is_found(fuzzer: str, workspace: Workspace, tiny_model: Path, tmp_path: Path) -> None:
    argv: list[str | Path] = [
        program(workspace, fuzzer),
        tiny_model,
        tmp_path,
        "--seconds",
        "4",
        "--seed",
        "5",
    ]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    summary = re.search(r"^fuzz: (\d+) executions in .* findings (\d+)$", ran.stdout, re.MULTILINE)
    assert summary, ran.stdout
    assert int(summary[1]) > 30
    assert int(summary[2]) == 0
    # It gets through to the engine, and not only to the first check.
    outcomes = re.findall(r"^ +\d+  (.*)$", ran.stdout, re.MULTILINE)
    assert len(outcomes) > 8
    assert any(outcome in ("done", "tokens", "accepted", "loaded, done") for outcome in outcomes), outcomes
