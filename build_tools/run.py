"""The one place where the build runs another program.

Counterpart: `steps.py`, whose steps call it with their log. Not for long-lived servers: it waits for the end.
"""

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from build_tools.errors import StepError

_SHOWN_LINES = 12
_REASON = re.compile(r"(?i)\berror\b|\bfatal\b|^FAILED|\bnot found\b|no space left|\bE: ")
_GRACE_SECONDS = 5.0


@dataclass(frozen=True)
class Completed:
    """How a command ended: its exit status and all it wrote (standard output and error, in order)."""

    returncode: int
    output: str


def reason_lines(output: str, count: int = _SHOWN_LINES) -> list[str]:
    """The lines of a failed command's output worth showing: where an error is first named, and the end."""
    lines = [line.rstrip() for line in re.split(r"[\r\n]+", output) if line.strip()]
    ending = max(len(lines) - count // 2, 0)
    for index, line in enumerate(lines[:ending]):
        if _REASON.search(line) and index + count < len(lines):
            return [*lines[index : index + count // 2], "…", *lines[ending:]]
    return lines[-count:]


def run_command(
    argv: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    log: Path | None = None,
    on_line: Callable[[str], None] | None = None,
    echo: BinaryIO | None = None,
    keep_stderr: bool = True,
    check: bool = True,
    hint: str = "",
) -> Completed:
    """Runs a program to its end, without a terminal to ask questions on.

    env: additions to this process's environment.
    log: file to which the command line and all output are appended.
    on_line: called with every line as it comes (a carriage return also ends one).
    echo: stream that gets the output as it comes, unchanged.
    keep_stderr: False drops standard error, for programs whose output is parsed.
    check: raise StepError, with `hint`, if the exit status is not 0; a program that is missing always raises.

    The program runs in a process group of its own. When this function is left by an exception, an interrupt
    above all, the whole group is ended first.
    """
    command = [str(part) for part in argv]
    output = bytearray()
    with open(log or os.devnull, "ab") as record:
        record.write(f"$ {shlex.join(command)}\n".encode())
        record.flush()
        try:
            process = subprocess.Popen(
                command,
                cwd=cwd,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if keep_stderr else subprocess.DEVNULL,
                start_new_session=True,
            )
        except (FileNotFoundError, PermissionError) as error:
            raise StepError(f"{command[0]} cannot be run: {error.strerror}", hint=hint) from error
        with process:
            try:
                _pump(process, output, record, on_line, echo)
                returncode = process.wait()
            except BaseException:
                _end_group(process)
                raise
    completed = Completed(returncode, output.decode(errors="replace"))
    if check and returncode != 0:
        ending = f"was ended by signal {-returncode}" if returncode < 0 else f"ended with status {returncode}"
        program = shlex.join(command[:2]) if len(command) > 1 else command[0]
        raise StepError(f"{program} … {ending}", hint=hint, lines=reason_lines(completed.output))
    return completed


def _pump(
    process: "subprocess.Popen[bytes]",
    output: bytearray,
    record: BinaryIO,
    on_line: Callable[[str], None] | None,
    echo: BinaryIO | None,
) -> None:
    assert process.stdout is not None
    pending = b""
    while chunk := os.read(process.stdout.fileno(), 65536):
        output += chunk
        record.write(chunk)
        record.flush()
        if echo is not None:
            echo.write(chunk)
            echo.flush()
        if on_line is not None:
            *lines, pending = re.split(rb"[\r\n]+", pending + chunk)
            for line in lines:
                on_line(line.decode(errors="replace"))
    if on_line is not None and pending:
        on_line(pending.decode(errors="replace"))


def _end_group(process: "subprocess.Popen[bytes]") -> None:
    # Asked politely first: pytest tears its fixtures down, ninja removes the half-written object.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(_GRACE_SECONDS)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
