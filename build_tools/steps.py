"""Steps: named pieces of work that log, show progress, are skipped when current, and fail in plain words.

Counterpart: the modules that make steps (`toolchain.py`, `sources.py`, `wasm.py`, …) and the two commands
that run them (`__main__.py`, `serve.py`). Not a dependency graph: steps run in the order they are given.
"""

import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from build_tools.errors import StepError
from build_tools.files import lock, write_atomically
from build_tools.progress import Reporter
from build_tools.run import Completed, run_command
from build_tools.workspace import Workspace

INTERRUPTED = 130


@dataclass(frozen=True)
class StepRun:
    """What a step's action works with: the workspace, its log, and a line to show progress on."""

    name: str
    workspace: Workspace
    reporter: Reporter

    @property
    def log(self) -> Path:
        return self.workspace.logs / f"{self.name}.log"

    def progress(self, text: str) -> None:
        """Shows how far the step has come."""
        self.reporter.progress(f"[{self.name}] {text}")

    def say(self, text: str) -> None:
        """Writes a line that stays."""
        self.reporter.line(f"[{self.name}] {text}")

    def run(
        self,
        argv: Sequence[str | Path],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        parse: Callable[[str], str | None] | None = None,
        echo: BinaryIO | None = None,
        check: bool = True,
        hint: str = "",
    ) -> Completed:
        """Runs a program (see `run_command`) into the step's log.

        parse: makes the text of a progress line out of a line of output, or None.
        """

        def show(line: str) -> None:
            if parse is not None and (text := parse(line)) is not None:
                self.progress(text)

        where = cwd or self.workspace.root
        return run_command(
            argv, cwd=where, env=env, log=self.log, on_line=show, echo=echo, check=check, hint=hint
        )


@dataclass(frozen=True)
class Step:
    """A named piece of work.

    title: what it does, as said when it starts.
    is_current: whether its result is already there; must be quick and must not change anything.
    action: does the work; returns a note for the closing line, or "".
    """

    name: str
    title: str
    is_current: Callable[[], bool]
    action: Callable[[StepRun], str]


def stamped_step(
    workspace: Workspace,
    name: str,
    title: str,
    *,
    fingerprint: Callable[[], str],
    outputs: Sequence[Path],
    action: Callable[[StepRun], str],
) -> Step:
    """A step that is current when its outputs exist and were made from the same inputs.

    fingerprint: content hash of everything the result depends on. It is taken before the action, so a file
    edited while the step runs makes the next run do it again.
    """
    stamp = workspace.stamps / name

    def is_current() -> bool:
        return (
            all(output.exists() for output in outputs)
            and stamp.is_file()
            and stamp.read_text() == fingerprint()
        )

    def stamped_action(run: StepRun) -> str:
        made_from = fingerprint()
        stamp.unlink(missing_ok=True)
        note = action(run)
        write_atomically(stamp, made_from)
        return note

    return Step(name, title, is_current, stamped_action)


def run_steps(steps: Sequence[Step], workspace: Workspace, reporter: Reporter) -> None:
    """Runs steps in order, one build per clone at a time. Raises StepError, with step and log filled in."""
    with lock(workspace.build / "lock", reporter.line):
        for step in steps:
            _run_step(step, StepRun(step.name, workspace, reporter))


def _run_step(step: Step, run: StepRun) -> None:
    started = time.monotonic()
    try:
        if step.is_current():
            run.say(f"up to date ({time.monotonic() - started:.2f} s)")
            return
        run.say(f"{step.title} (log: {run.workspace.shown(run.log)})")
        run.log.parent.mkdir(parents=True, exist_ok=True)
        run.log.write_bytes(b"")
        note = step.action(run)
    except StepError as error:
        error.step = error.step or step.name
        error.log = error.log or (run.log if run.log.is_file() else None)
        raise
    run.say(f"done in {time.monotonic() - started:.1f} s{': ' if note else ''}{note}")


def print_error(error: StepError, workspace: Workspace, reporter: Reporter) -> None:
    """Says which step failed, why, where the log is, and what to try."""
    where = f"step {error.step} failed: " if error.step else ""
    reporter.line(f"error: {where}{error.message}")
    for line in error.lines:
        reporter.line(f"  | {line}")
    if error.log is not None:
        reporter.line(f"  log: {workspace.shown(error.log)}")
    if error.hint:
        reporter.line(f"  try: {error.hint}")


def guarded(main: Callable[[], int], workspace: Workspace, reporter: Reporter) -> int:
    """Runs a command's body and turns every way it can fail into plain words and an exit status.

    Returns what `main` returns; 1 after a StepError, an operating system error or a fault of our own (whose
    traceback goes to a log); 130 after an interrupt. SIGTERM and SIGHUP count as interrupts, unless
    the caller (nohup) had them ignored.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    try:
        return main()
    except StepError as error:
        print_error(error, workspace, reporter)
        return 1
    except KeyboardInterrupt:
        reporter.line("interrupted; run the same command to continue")
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    except OSError as error:
        print_error(StepError(str(error)), workspace, reporter)
        return 1
    except Exception as error:
        log = workspace.logs / "fault.log"
        write_atomically(log, traceback.format_exc())
        fault = StepError(f"{type(error).__name__}: {error}", hint="report this fault with its log")
        fault.log = log
        print_error(fault, workspace, reporter)
        return 1
