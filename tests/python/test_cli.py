"""headrace/cli.py: the `headrace` command on the real engine.

On a fake one where what was asked matters, or an answer of a certain form.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headrace import __version__
from headrace.cli import main
from headrace.errors import ERROR_CODES
from tests.python.conftest import put_in_place
from tests.python.fake_engine import STATS, USAGE, FakeEngine


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


def records(model: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert main(["run", str(model), "--temperature", "0", "--threads", "1", "--json", *arguments]) == 0
    record = json.loads(capsys.readouterr().out)
    return record if isinstance(record, list) else [record]


def test_options_by_name_in_either_case(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def text(*options: str) -> str:
        arguments = [part for option in options for part in ("--option", option)]
        (record,) = records(tiny_model, capsys, "--query", "a", "--max-tokens", "9", *arguments)
        return str(record["text"])

    assert text("max_tokens=3") == text("maxTokens=3") == text("maxTokens=3", "top_k=7")
    assert len(text("max_tokens=3")) < len(text())
    first = text()[0]
    assert text(f'stop=["{first}"]') == ""


def test_load_options_by_name(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--query", "x " * 300, "--load-option", "context_size=256", "--load-option", "batchSize=64"]
    assert main(["run", str(tiny_model), *arguments]) == 1
    assert capsys.readouterr().err.endswith("[context_overflow]\n")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--option", "top_k=many"], "invalid_option"),
        (["--option", "no_such_option=1"], "invalid_option"),
        (["--load-option", "noSuchOption=1"], "invalid_option"),
        (["--option", "temperature=NaN"], "invalid_request"),
        (["--slots", "0"], "invalid_option"),
    ],
)
def test_an_option_that_the_engine_refuses(
    tiny_model: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: str
) -> None:
    assert main(["run", str(tiny_model), "--query", "a", *arguments]) == 1
    captured = capsys.readouterr()
    assert captured.err.endswith(f"[{code}]\n")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["--option", "temperature"],
        ["--option", "=1"],
        ["--load-option", "slots"],
        ["--repeat", "0"],
        ["--parallel", "-1"],
        ["--parallel", "two"],
        ["--chat", "b"],
    ],
)
def test_what_is_no_command_is_a_usage_error(
    tiny_model: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["run", str(tiny_model), "--query", "a", *arguments])
    assert caught.value.code == 2
    assert "usage: headrace run" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--repeat", "3"], ["--parallel", "3"]])
def test_several_answers_come_in_order(
    tiny_model: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert main(["run", str(tiny_model), "--chat", "Hello!", "--temperature", "0", *arguments]) == 0
    captured = capsys.readouterr()
    assert captured.out == "\n".join(["Hello! I am a tiny mixture of experts model made for tests.\n"] * 3)
    lines = captured.err.splitlines()
    assert [line.split(":")[0] for line in lines] == ["run 1", "run 2", "run 3"]
    assert all(" ttft " in line and " tokens/s" in line for line in lines)


def test_several_records_are_a_list(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--query", "a", "--max-tokens", "4", "--repeat", "2", "--parallel", "2"]
    found = records(tiny_model, capsys, *arguments)
    assert len(found) == 4
    assert len({record["text"] for record in found}) == 1


def fake_commands(
    monkeypatch: pytest.MonkeyPatch, replies: Mapping[str, object], *arguments: str
) -> FakeEngine:
    fake = FakeEngine(length=2, replies=replies)
    put_in_place(monkeypatch, fake)
    assert main(list(arguments)) == 0
    return fake


def test_context_keys_are_kept_or_numbered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ["run", "fake.gguf", "--query", "a", "--context-key", "doc"]

    def keys(*arguments: str) -> list[str]:
        fake = fake_commands(monkeypatch, {}, *run, *arguments)
        return [command["options"]["contextKey"] for command in fake.commands]

    assert keys() == ["doc"]
    assert keys("--repeat", "2") == ["doc", "doc"]
    assert "run 2: ttft 1 ms, 2 tokens, 3.0 tokens/s, cache live, 4 tokens\n" in capsys.readouterr().err
    assert keys("--parallel", "2", "--repeat", "2") == ["doc-1", "doc-2"] * 2


@pytest.mark.parametrize(
    ("arguments", "slots"),
    [([], None), (["--parallel", "3"], 3), (["--parallel", "3", "--slots", "2"], 2), (["--slots", "4"], 4)],
)
def test_copies_get_a_slot_each(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], slots: int | None
) -> None:
    fake = fake_commands(monkeypatch, {}, "run", "fake.gguf", "--query", "a", *arguments)
    assert fake.load_command["options"].get("slots") == slots


def test_embed_prints_a_vector_per_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record = {"vectors": [[0.5, -1.0], [2.0, 0.0]], "dimensions": 2, "usage": USAGE, "stats": STATS}
    fake = fake_commands(monkeypatch, {"embed": record}, "embed", "fake.gguf", "a", "b", "--normalize")
    assert capsys.readouterr().out == "0.5 -1.0\n2.0 0.0\n"
    assert fake.commands == [
        {"id": 1, "operation": "embed", "inputs": ["a", "b"], "options": {"normalize": True}}
    ]
    fake_commands(monkeypatch, {"embed": record}, "embed", "fake.gguf", "a", "b", "--json")
    assert json.loads(capsys.readouterr().out) == record


def test_tokenize_prints_the_ids(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    reply = {"tokenize": {"tokenIds": [1, 7, 9]}}
    fake = fake_commands(monkeypatch, reply, "tokenize", "fake.gguf", "ab", "--option", "add_special=false")
    assert capsys.readouterr().out == "1 7 9\n"
    assert fake.commands[0]["options"] == {"addSpecial": False}


def test_audit_prints_a_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"phase": "decode", "op": "MUL_MAT", "inputs": ["q4_K", "f32"], "output": "f32"}
    ops = [{**row, "backend": "cpu", "kernel": "q4_K_q8_K", "count": 12}, {**row, "kernel": None, "count": 1}]
    fake_commands(monkeypatch, {"audit": {"ops": ops}}, "audit", "fake.gguf")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["phase", "op", "inputs", "output", "backend", "kernel", "count"]
    assert lines[1].split() == ["decode", "MUL_MAT", "q4_K,", "f32", "f32", "cpu", "q4_K_q8_K", "12"]
    assert len(lines) == 3


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
