"""The task list as typed: help without an environment, and names that exist."""

import re
import subprocess
import sys

import pytest

from build_tools.__main__ import main, parser
from build_tools.tasks import TASKS, bench_steps, serve_steps, steps_before_tests, task_steps
from build_tools.workspace import Workspace

COMMANDS = {"test", "clean"}
"""Tasks that are more than steps."""


def test_every_task_has_steps(workspace: Workspace) -> None:
    for task in TASKS:
        assert bool(task_steps(task, workspace)) != (task in COMMANDS), task


def test_steps_log_to_files_of_their_own(workspace: Workspace) -> None:
    for task in TASKS:
        names = [step.name for step in task_steps(task, workspace)]
        assert len(names) == len(set(names))


def test_fast_tests_need_neither_browser_nor_wasm(workspace: Workspace) -> None:
    fast = {step.name for step in steps_before_tests(workspace, fast=True)}
    whole = {step.name for step in steps_before_tests(workspace, fast=False)}
    assert whole - fast == {"toolchain", "wasm", "chromium", "gpu-adapter"}
    assert fast < whole


def test_measurements_need_no_more_than_they_measure(workspace: Workspace) -> None:
    names = {kind: [step.name for step in bench_steps(workspace, kind)] for kind in ("scheduler", "streams")}
    assert names["scheduler"] == ["sources", "native-tests"]
    assert names["streams"][:2] == ["sources", "native"]
    assert "wasm" not in names["streams"]
    for other in ("", "decode", "store", "--json"):
        assert [step.name for step in bench_steps(workspace, other)] == [
            step.name for step in task_steps("bench", workspace)
        ]


def test_serving_needs_no_more_than_it_serves(workspace: Workspace) -> None:
    names = [step.name for step in serve_steps(workspace, demo_model=False, browser=False)]
    assert names == ["toolchain", "sources", "wasm", "vendor"]
    names = [step.name for step in serve_steps(workspace, demo_model=True, browser=True)]
    assert names == ["toolchain", "sources", "wasm", "vendor", "demo-model", "chromium"]


def test_help_needs_nothing_but_the_standard_library(workspace: Workspace) -> None:
    # -S -E: neither site-packages nor PYTHONPATH.
    for command in (["-m", "build_tools"], ["serve.py"]):
        argv = [sys.executable, "-S", "-E", *command, "--help"]
        ended = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=workspace.root)
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.startswith("usage: ")


def test_help_lists_every_task(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    text = capsys.readouterr().out
    for task in TASKS:
        assert re.search(rf"^    {task}\s", text, re.MULTILINE)


def test_arguments_after_two_dashes_are_pytest_s() -> None:
    parsed = parser().parse_args(["test", "--fast", "--", "-k", "cmake", "-x"])
    assert parsed.fast is True
    assert parsed.arguments == ["-k", "cmake", "-x"]


def test_an_unknown_task_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["frobnicate"])
    assert "invalid choice: 'frobnicate'" in capsys.readouterr().err
