"""Programs that end well, fail, are missing, or are interrupted with all that they started."""

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from build_tools.errors import StepError
from build_tools.run import reason_lines, run_command


def test_output_goes_to_caller_log_lines_and_echo(tmp_path: Path) -> None:
    log, lines, echo = tmp_path / "x.log", list[str](), io.BytesIO()
    script = "printf 'one\\r50 %%\\rtwo\\n'; echo three >&2; printf last"
    completed = run_command(["sh", "-c", script], log=log, on_line=lines.append, echo=echo)
    assert completed.returncode == 0
    assert completed.output == "one\r50 %\rtwo\nthree\nlast"
    assert lines == ["one", "50 %", "two", "three", "last"]
    assert echo.getvalue().decode() == completed.output
    assert log.read_bytes().startswith(b"$ sh -c ")
    assert log.read_bytes().endswith(echo.getvalue())


def test_environment_is_added_and_standard_input_is_empty() -> None:
    completed = run_command(["sh", "-c", 'cat; echo $HR_TEST; test -n "$PATH"'], env={"HR_TEST": "set"})
    assert completed.output == "set\n"


def test_standard_error_can_be_dropped() -> None:
    assert run_command(["sh", "-c", "echo a; echo b >&2"], keep_stderr=False).output == "a\n"


def test_failure_carries_the_reason_and_the_hint() -> None:
    with pytest.raises(StepError, match="sh -c … ended with status 3") as caught:
        run_command(["sh", "-c", "echo 'fatal error: x.h: No such file'; exit 3"], hint="get x.h")
    assert caught.value.lines == ("fatal error: x.h: No such file",)
    assert caught.value.hint == "get x.h"


def test_failure_can_be_left_to_the_caller() -> None:
    assert run_command(["sh", "-c", "exit 3"], check=False).returncode == 3


def test_a_program_that_is_missing() -> None:
    with pytest.raises(StepError, match="hr-no-such-program cannot be run: No such file"):
        run_command(["hr-no-such-program"], check=False)


def test_a_program_ended_by_a_signal_says_so() -> None:
    with pytest.raises(StepError, match="ended by signal 9"):
        run_command(["sh", "-c", "kill -9 $$"])


def test_reason_lines_show_the_first_error_and_the_end() -> None:
    lines = [f"line {number}" for number in range(100)]
    lines[20] = "x.cpp:1: error: bad"
    shown = reason_lines("\n".join(lines))
    assert shown[0] == "x.cpp:1: error: bad"
    assert shown[-1] == "line 99"
    assert len(shown) <= 13
    assert reason_lines("a\n\nb\n") == ["a", "b"]


RUNNER = """
from build_tools.run import run_command
run_command(["sh", "-c", "sleep 600 & echo $!; wait"], on_line=lambda line: print(line, flush=True))
"""


@pytest.mark.parametrize("number", [signal.SIGINT])
def test_an_interrupt_ends_the_program_and_its_children(number: signal.Signals) -> None:
    argv = [sys.executable, "-c", RUNNER]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as runner:
        assert runner.stdout is not None
        child = int(runner.stdout.readline())
        runner.send_signal(number)
        runner.wait(20)
    deadline = time.monotonic() + 5
    while _is_running(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _is_running(child)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A dead child that nobody has waited for yet is not running.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
