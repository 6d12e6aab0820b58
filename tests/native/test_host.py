"""Runs the host tests of native/tests, one pytest case for each of their test cases.

Counterpart of native/tests/*.cpp, which test the engine over a fake decoder; nothing is tested here itself.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

REPO_ROOT = Path(__file__).resolve().parents[2]
PROGRAM = REPO_ROOT / "build" / "native" / "headrace_tests"


def list_cases() -> list[str]:
    if not PROGRAM.exists():
        return []
    listed = subprocess.run(
        [PROGRAM, "--list-test-cases", "--no-intro=1"], capture_output=True, text=True, check=True
    )
    return [line for line in listed.stdout.splitlines() if ": " in line and not line.startswith("[doctest]")]


def test_host_tests_are_built() -> None:
    assert PROGRAM.exists(), "build them with: python3 -m build_tools test"
    assert len(list_cases()) > 20


@pytest.mark.parametrize("case", list_cases())
def test_host(case: str) -> None:
    # doctest's filter splits at commas and treats * as a wildcard.
    pattern = case.replace(",", "?").replace("*", "?")
    ran = subprocess.run(
        [PROGRAM, f"--test-case={pattern}", "--no-intro=1"], capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 passed" in ran.stdout, f"the case did not run: {ran.stdout}"
