"""headrace/cli.py: the `headrace` command on the real engine."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace import __version__
from headrace.cli import main
from headrace.errors import ERROR_CODES


@pytest.fixture(autouse=True)
def use_library(library_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_LIBRARY", str(library_path))


def test_chat_prints_the_answer(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(tiny_model), "--chat", "Hello!", "--temperature", "0"]) == 0
    assert capsys.readouterr().out == "Hello! I am a tiny mixture of experts model made for tests.\n"


def test_query_prints_the_record(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--query", "Hello", "--max-tokens", "3", "--seed", "7", "--threads", "1", "--json"]
    assert main(["run", str(tiny_model), *arguments]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["usage"]["outputTokens"] <= 3
    assert record["stats"]["threads"] == 1


@pytest.mark.parametrize(
    ("options", "code"), [(["--max-tokens", "0"], "invalid_option"), (["--threads", "-1"], "invalid_option")]
)
def test_a_bad_option_is_one_sentence(
    tiny_model: Path, capsys: pytest.CaptureFixture[str], options: list[str], code: str
) -> None:
    assert main(["run", str(tiny_model), "--chat", "Hello!", *options]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("headrace: ")
    assert captured.err.endswith(f"[{code}]\n")
    assert captured.err.count("\n") == 1


def test_a_bad_path_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(tmp_path / "nowhere.gguf"), "--chat", "Hello!"]) == 1
    captured = capsys.readouterr()
    assert "nowhere.gguf" in captured.err
    assert captured.err.count("\n") == 1


def test_describe_lists_options_and_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe", "--json"]) == 0
    declarations = json.loads(capsys.readouterr().out)
    assert main(["describe"]) == 0
    lines = capsys.readouterr().out.splitlines()
    first_words = {line.split(" ", 1)[0] for line in lines if line}
    assert {option["name"] for option in declarations["options"]} <= first_words
    assert first_words >= ERROR_CODES
    assert any("-1 to 4294967294" in line for line in lines), "whole numbers are written out"
    assert all(line == line.rstrip() for line in lines)


def test_the_command_runs_as_a_module(tiny_model: Path, repo_root: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "headrace", *arguments]
        return subprocess.run(command, cwd=repo_root, capture_output=True, text=True, check=False)

    assert run("--version").stdout == f"headrace {__version__}\n"
    assert "describe" in run("--help").stdout
    answer = run("run", str(tiny_model), "--chat", "Hello!", "--temperature", "0")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert run("run", str(tiny_model)).returncode == 2


@pytest.mark.parametrize("arguments", [["describe"], ["describe", "--json"], ["--help"]])
def test_output_that_cannot_be_written_is_no_traceback(repo_root: Path, arguments: list[str]) -> None:
    command = [sys.executable, "-m", "headrace", *arguments]
    # Without a buffer, argparse itself passes over a failed write of its help.
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}

    def run(output: int) -> tuple[int, str]:
        ended = subprocess.run(
            command,
            cwd=repo_root,
            env=environment,
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        return ended.returncode, ended.stderr

    unread, closed_pipe = os.pipe()
    os.close(unread)
    full_disk = os.open("/dev/full", os.O_WRONLY)
    try:
        assert run(closed_pipe) == (1, "")
        assert run(full_disk) == (1, "headrace: No space left on device\n")
    finally:
        os.close(closed_pipe)
        os.close(full_disk)


def test_a_pipe_that_closes_ends_a_run(tiny_model: Path, repo_root: Path) -> None:
    command = [sys.executable, "-m", "headrace", "run", str(tiny_model), "--chat", "Tell me a story."]
    with subprocess.Popen(command, cwd=repo_root, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


@pytest.mark.parametrize("json_wanted", [False, True])
def test_characters_that_the_terminal_lacks_are_escaped(
    tiny_model: Path, repo_root: Path, json_wanted: bool
) -> None:
    command = [sys.executable, "-m", "headrace", "describe", *(["--json"] if json_wanted else [])]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    ended = subprocess.run(command, cwd=repo_root, env=environment, capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert ended.stdout.isascii()
    if json_wanted:
        assert json.loads(ended.stdout)["abiVersion"]
