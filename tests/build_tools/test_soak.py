"""The tasks soak and fuzz: what they would build and run, and that a failing program fails the step.

Counterpart: `build_tools/soak.py`. The sanitized builds themselves take minutes and are not made here.
"""

import io
from pathlib import Path

import pytest

from build_tools.__main__ import chosen_steps, parser
from build_tools.errors import StepError
from build_tools.progress import Reporter
from build_tools.soak import (
    FUZZERS,
    FuzzPlan,
    SoakPlan,
    fuzz_steps,
    progress_line,
    sanitizer_options,
    soak_steps,
)
from build_tools.steps import Step, StepRun
from build_tools.workspace import Workspace


@pytest.fixture
def clone(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "clone", tmp_path / "cache")


def pretend(program: Path, script: str) -> None:
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def run(step: Step, workspace: Workspace) -> str:
    """Runs a step's action and returns its note."""
    step_run = StepRun(step.name, workspace, Reporter(io.StringIO()))
    step_run.log.parent.mkdir(parents=True, exist_ok=True)
    return step.action(step_run)


def names(steps: list[Step]) -> list[str]:
    return [step.name for step in steps]


def test_both_sanitizers_are_built_and_run(workspace: Workspace) -> None:
    built_and_run = ["native-asan", "soak-address", "native-tsan", "soak-thread"]
    assert names(soak_steps(workspace, SoakPlan())) == ["sources", *built_and_run]


def test_the_command_line_chooses(workspace: Workspace) -> None:
    words = ["soak", "--sanitizer", "thread", "--operations", "77", "--seconds", "5", "--seed", "3"]
    steps = chosen_steps(parser().parse_args(words), workspace)
    assert names(steps) == ["sources", "native-tsan", "soak-thread"]
    assert "77 random operations" in steps[-1].title
    steps = chosen_steps(parser().parse_args(["fuzz", "--fuzzer", "gguf", "--seconds", "9"]), workspace)
    assert names(steps) == ["sources", "native-asan", "fuzz-gguf"]
    assert steps[-1].title.endswith("for 9 s")


def test_an_unknown_sanitizer_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parser().parse_args(["soak", "--sanitizer", "memory"])
    assert "invalid choice: 'memory'" in capsys.readouterr().err


def test_the_soak_gets_its_plan_and_its_summary_is_the_note(clone: Workspace) -> None:
    pretend(clone.build / "tsan" / "headrace_soak", 'echo "$TSAN_OPTIONS"; echo "soak: $*"')
    step = soak_steps(clone, SoakPlan(["thread"], operations=50, seconds=7, seed=9))[-1]
    note = run(step, clone)
    assert note.startswith("soak: ")
    assert note.endswith("--operations 50 --seconds 7 --seed 9")
    assert "moe-trained-q4_k_m.gguf" in note
    assert (clone.build / "soak" / "soak-thread").is_dir()
    assert "native/soak/tsan.supp" in (clone.logs / "soak-thread.log").read_text()


def test_a_soak_that_fails_fails_the_step(clone: Workspace) -> None:
    pretend(clone.build / "asan" / "headrace_soak", 'echo "violation: a slot is lost"; exit 1')
    with pytest.raises(StepError) as caught:
        run(soak_steps(clone, SoakPlan(["address"]))[-1], clone)
    assert "violation: a slot is lost" in caught.value.lines


@pytest.mark.parametrize("fuzzer", FUZZERS)
def test_a_fuzzer_s_finding_fails_the_step_and_tells_where_it_is(clone: Workspace, fuzzer: str) -> None:
    pretend(clone.build / "asan" / f"headrace_fuzz_{fuzzer}", 'touch "$2/crash-1"; exit 1')
    with pytest.raises(StepError) as caught:
        run(fuzz_steps(clone, FuzzPlan([fuzzer]))[-1], clone)
    assert f"build/soak/fuzz-{fuzzer}" in caught.value.hint
    assert (clone.build / "soak" / f"fuzz-{fuzzer}" / "crash-1").exists()


def test_progress_is_read() -> None:
    parse = progress_line("operations")
    assert parse("progress 12 100") == "12 of 100 operations"
    assert parse("soak: 12 operations") is None


def test_the_suppressions_are_there_and_say_why(workspace: Workspace) -> None:
    path = workspace.root / "native" / "soak" / "tsan.supp"
    assert str(path) in sanitizer_options(workspace)["TSAN_OPTIONS"]
    reason = False
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            assert reason, f"{line} has no reason above it"
        reason = line.startswith("#")
