"""Steps are skipped when current, redone when their inputs change, and fail in words, not tracebacks."""

import io
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from build_tools.errors import StepError
from build_tools.files import content_hash
from build_tools.progress import Reporter
from build_tools.steps import Step, StepRun, run_steps, stamped_step
from build_tools.workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "clone", tmp_path / "cache")


class Copying:
    """A step that copies a file, and counts."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.input = workspace.root / "input"
        self.output = workspace.build / "output"
        self.input.parent.mkdir(parents=True)
        self.input.write_text("one")
        self.runs = 0
        self.stream = io.StringIO()
        self.step = stamped_step(
            workspace,
            "copy",
            "copying",
            fingerprint=lambda: content_hash(workspace.root, [self.input]),
            outputs=[self.output],
            action=self.action,
        )

    def action(self, run: StepRun) -> str:
        self.runs += 1
        run.run(["cp", self.input, self.output])
        return "copied"

    def go(self) -> int:
        run_steps([self.step], self.workspace, Reporter(self.stream))
        return self.runs


@pytest.fixture
def copying(workspace: Workspace) -> Copying:
    return Copying(workspace)


def test_a_step_runs_once_while_nothing_changes(copying: Copying) -> None:
    assert [copying.go(), copying.go()] == [1, 1]
    started, done, skipped = copying.stream.getvalue().splitlines()
    assert started == "[copy] copying (log: build/logs/copy.log)"
    assert done.startswith("[copy] done in 0.")
    assert done.endswith(" s: copied")
    assert skipped.startswith("[copy] up to date (0.")
    assert "$ cp " in (copying.workspace.logs / "copy.log").read_text()


def test_a_step_runs_again_when_input_or_output_changes(copying: Copying) -> None:
    copying.go()
    copying.input.write_text("two")
    assert copying.go() == 2
    assert copying.output.read_text() == "two"
    copying.output.unlink()
    assert copying.go() == 3
    assert copying.output.read_text() == "two"


def test_a_step_that_failed_or_was_interrupted_runs_again(copying: Copying) -> None:
    copying.go()
    copying.input.unlink()
    with pytest.raises(StepError) as caught:
        copying.go()
    assert caught.value.step == "copy"
    assert caught.value.log == copying.workspace.logs / "copy.log"
    copying.input.write_text("one")
    assert copying.go() == 3


def test_input_changed_while_the_step_runs_makes_it_run_again(copying: Copying) -> None:
    action = copying.action

    def late_edit(run: StepRun) -> str:
        note = action(run)
        copying.input.write_text(f"edited {copying.runs}")
        return note

    copying.step = stamped_step(
        copying.workspace,
        "copy",
        "copying",
        fingerprint=lambda: content_hash(copying.workspace.root, [copying.input]),
        outputs=[copying.output],
        action=late_edit,
    )
    assert [copying.go(), copying.go()] == [1, 2]


def test_steps_after_a_failed_one_do_not_run(workspace: Workspace) -> None:
    ran: list[str] = []

    def fail(run: StepRun) -> str:
        raise StepError("no")

    def note(run: StepRun) -> str:
        ran.append(run.name)
        return ""

    steps = [Step("first", "", lambda: False, fail), Step("second", "", lambda: False, note)]
    with pytest.raises(StepError):
        run_steps(steps, workspace, Reporter(io.StringIO()))
    assert ran == []


PROGRAM = """
import sys
from pathlib import Path
from build_tools.errors import StepError
from build_tools.progress import Reporter
from build_tools.steps import Step, guarded, run_steps
from build_tools.workspace import Workspace

def compile(run):
    run.run(["sh", "-c", "echo 'x.cpp:3: error: no such type'; exit 1"], hint="correct x.cpp")
def wait(run):
    run.run(["sh", "-c", "echo waiting; sleep 600"], parse=lambda line: print(line, flush=True))
def fault(run):
    return {}["absent"]
def full(run):
    raise OSError(28, "No space left on device", "/x")

workspace = Workspace(Path(sys.argv[1]), Path(sys.argv[1]))
step = Step("wasm", "compiling", lambda: False, globals()[sys.argv[2]])
reporter = Reporter(sys.stdout)
sys.exit(guarded(lambda: run_steps([step], workspace, reporter) or 0, workspace, reporter))
"""


def run_program(folder: Path, action: str) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-c", PROGRAM, str(folder), action]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def test_a_failing_step_says_which_why_where_and_what_to_try(tmp_path: Path) -> None:
    ended = run_program(tmp_path, "compile")
    assert ended.returncode == 1
    assert ended.stderr == ""
    assert ended.stdout.splitlines() == [
        "[wasm] compiling (log: build/logs/wasm.log)",
        "error: step wasm failed: sh -c … ended with status 1",
        "  | x.cpp:3: error: no such type",
        "  log: build/logs/wasm.log",
        "  try: correct x.cpp",
    ]


def test_a_full_disk_is_an_error_in_words(tmp_path: Path) -> None:
    ended = run_program(tmp_path, "full")
    assert ended.returncode == 1
    assert "error: [Errno 28] No space left on device: '/x'" in ended.stdout
    assert "Traceback" not in ended.stdout + ended.stderr


def test_a_fault_of_our_own_keeps_its_traceback_in_a_log(tmp_path: Path) -> None:
    ended = run_program(tmp_path, "fault")
    assert ended.returncode == 1
    assert "error: KeyError: 'absent'" in ended.stdout
    assert "log: build/logs/fault.log" in ended.stdout
    assert "Traceback" not in ended.stdout + ended.stderr
    assert "Traceback" in (tmp_path / "build/logs/fault.log").read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_says_how_to_continue(tmp_path: Path, number: signal.Signals) -> None:
    argv = [sys.executable, "-c", PROGRAM, str(tmp_path), "wait"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        assert program.stdout.readline().startswith("[wasm] compiling")
        assert program.stdout.readline() == "waiting\n"
        program.send_signal(number)
        assert program.wait(20) == 130
        assert program.stdout.read() == "interrupted; run the same command to continue\n"
        assert program.stderr.read() == ""
