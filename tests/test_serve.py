"""serve.py as typed: what is refused before anything is built, what is handed on, and what it answers.

What the page in between does is tested in tests/browser/.
"""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from signal import SIGINT
from typing import Any

import pytest

import serve
from build_tools.tasks import serve_steps
from build_tools.workspace import Workspace
from tests.gguf_builder import parrot


def refused(*arguments: str) -> str | None:
    return serve.refusal(serve.parser().parse_args(arguments))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--json"], "--json goes with --ask or --complete"),
        (["--threads", "2"], "--threads goes with"),
        (["--max-tokens", "2"], "--max-tokens goes with"),
        (["--temperature", "0"], "--temperature goes with"),
        (["--seed", "0"], "--seed goes with"),
        (["--artifact", "st"], "--artifact goes with"),
        (["--ask", ""], "--ask needs a text"),
        (["--complete", ""], "--complete needs a text"),
        (["--ask", "x", "--artifact", "mt", "--no-isolation"], "--artifact mt needs the isolation"),
        (["--ask", "x", "--artifact", "st", "--threads", "2"], "--artifact st has one thread"),
        (["--ask", "x", "--threads", "2", "--no-isolation"], "a page has one thread with --no-isolation"),
        (["--ask", "x", "--host", "127.0.0.1"], "--host goes with the playground"),
        (["--complete", "x", "--host", "0.0.0.0"], "--host goes with the playground"),
        (["--model", "http://example.org/x.gguf"], "--model URL goes with"),
        (["--model", "/nonexistent.gguf"], "there is no such file"),
        (["--model", "/tmp"], "is a folder"),
        (["--model", ""], "--model needs a file or an address"),
        (["--model", "~no-such-user/x.gguf"], "there is no such user"),
        (["--model", "x" * 300], "cannot be read: File name too long"),
        (["--model", "http://["], "--model URL goes with"),
        (["--ask", "x", "--model", "http://["], "is not an address"),
        (["--ask", "x", "--model", "http:"], "is not an address"),
        (["--ask", "x", "--model", "https:///x.gguf"], "is not an address"),
        (["--ask", "x", "--model", "http://localhost:99999/x.gguf"], "is not an address"),
        (["--ask", "x\udcff"], "--ask has bytes that are not UTF-8"),
        (["--complete", "\udcff"], "--complete has bytes that are not UTF-8"),
        (["--model", "\udcff.gguf"], "--model has bytes that are not UTF-8"),
        (["--host", "\udcff"], "--host has bytes that are not UTF-8"),
        (["--host", ""], "--host needs an address"),
    ],
)
def test_what_cannot_be_carried_out_is_refused_in_a_sentence(arguments: list[str], reason: str) -> None:
    problem = refused(*arguments)
    assert problem is not None
    assert reason in problem
    assert "\n" not in problem


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--no-isolation", "--port", "0", "--host", "0.0.0.0"],
        ["--ask", "x", "--artifact", "mt", "--threads", "2", "--json", "--port", "0"],
        ["--complete", " ", "--artifact", "st", "--threads", "1"],
        ["--ask", "x", "--model", "https://example.org/x.gguf"],
        ["--ask", "x", "--model", "HTTPS://example.org:8443/x.gguf"],
        ["--model", __file__],
    ],
)
def test_what_can_be_carried_out(arguments: list[str]) -> None:
    assert refused(*arguments) is None


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--port", "65536"], "argument --port: '65536' is not a whole number, from 0 to 65535"),
        (["--port", "x"], "'x' is not a whole number"),
        (["--ask", "x", "--max-tokens", "0"], "'0' is not a whole number, 1 or more"),
        (["--ask", "x", "--temperature", "nan"], "'nan' is not a number, 0 or more"),
        (["--ask", "x", "--temperature", "-1"], "0 or more"),
        (["--ask", "x", "--seed", "4294967295"], "from 0 to 4294967294"),
        (["--ask", "x", "--complete", "y"], "not allowed with argument --ask"),
        (["--ask", "x", "--artifact", "xt"], "invalid choice: 'xt'"),
    ],
)
def test_wrong_values_are_refused(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        serve.parser().parse_args(arguments)
    assert reason in capsys.readouterr().err


def test_a_wrong_path_ends_at_once_without_a_build(workspace: Workspace, tmp_path: Path) -> None:
    # The system's Python: a command that went on would first make or enter the environment.
    argv = [sys.executable, "-S", "serve.py", "--ask", "x", "--model", str(tmp_path / "absent.gguf")]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=workspace.root, timeout=20)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr == f"error: --model {tmp_path / 'absent.gguf'}: there is no such file\n"


def test_bytes_that_are_no_text_end_at_once_without_a_build(workspace: Workspace) -> None:
    argv: list[str | bytes] = [sys.executable, "-S", "serve.py", "--ask", b"caf\xe9"]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=workspace.root, timeout=20)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "error: --ask has bytes that are not UTF-8\n"


def test_a_file_that_cannot_be_read(tmp_path: Path, is_root: bool) -> None:
    if is_root:
        pytest.skip("root reads every file")
    secret = tmp_path / "x.gguf"
    secret.write_text("")
    secret.chmod(0)
    assert refused("--model", str(secret)) == f"--model {secret} cannot be read: Permission denied"


def test_the_served_models(tmp_path: Path) -> None:
    demo = tmp_path / "demo.gguf"
    own = tmp_path / "own model.gguf"
    assert serve.served_models(None, demo) == {"demo.gguf": demo}
    assert serve.served_models(str(own), demo) == {"own model.gguf": own}
    assert serve.served_models("https://example.org/x.gguf", demo) == {}


def test_only_given_options_are_handed_on() -> None:
    parsed = serve.parser().parse_args(["--ask", "x", "--temperature", "0", "--seed", "0"])
    assert serve.generation_options(parsed) == {"temperature": 0.0, "seed": 0}
    assert serve.generation_options(serve.parser().parse_args(["--ask", "x"])) == {"temperature": 0}


Ended = subprocess.CompletedProcess[str]
Serve = Callable[..., Ended]


@pytest.fixture
def environment(workspace: Workspace, chromium: Path) -> dict[str, str]:
    """The environment of a command for which everything is built; a test does not wait for a build."""
    for step in serve_steps(workspace, demo_model=False, browser=True):
        if not step.is_current():
            pytest.skip(f"the step {step.name} has not been made: python3 -m build_tools setup")
    return {**os.environ, "HEADRACE_CHROMIUM": str(chromium)}


@pytest.fixture
def run_serve(workspace: Workspace, environment: dict[str, str], tiny_model: Path) -> Serve:
    """Runs serve.py with the tiny model, or another, to its end."""

    def run_serve(*arguments: str, model: Path = tiny_model) -> Ended:
        argv = [sys.executable, "serve.py", "--model", str(model), *arguments]
        return subprocess.run(
            argv,
            capture_output=True,
            text=True,
            check=False,
            cwd=workspace.root,
            env=environment,
            timeout=120,
        )

    return run_serve


@pytest.fixture(scope="module")
def golden(repo_root: Path) -> dict[str, Any]:
    """What the tiny model answers to "Hello!"."""
    cases = json.loads((repo_root / "tests" / "data" / "golden.json").read_text())["cases"]
    case: dict[str, Any]
    (case,) = [case for case in cases if case["input"] == "Hello!"]
    return case


@pytest.mark.browser
@pytest.mark.parametrize("choice", [[], ["--artifact", "st"], ["--no-isolation"]])
def test_an_answer_is_all_there_is_on_standard_output(
    run_serve: Serve, golden: dict[str, Any], choice: list[str]
) -> None:
    ended = run_serve("--ask", "Hello!", *choice)
    assert (ended.returncode, ended.stdout) == (0, golden["text"] + "\n"), ended.stderr


@pytest.mark.browser
@pytest.mark.parametrize(("artifact", "threads"), [("st", 1), ("mt", 2)])
def test_json_is_the_result_record(
    run_serve: Serve, golden: dict[str, Any], artifact: str, threads: int
) -> None:
    ended = run_serve(
        "--ask", "Hello!", "--json", "--artifact", artifact, "--threads", str(threads), "--max-tokens", "5"
    )
    assert ended.returncode == 0, ended.stderr
    record = json.loads(ended.stdout)
    assert record["tokenIds"] == golden["tokenIds"][:5]
    assert record["finishReason"] == "length"
    assert record["usage"]["inputTokens"] == golden["promptTokens"]
    assert record["usage"]["outputTokens"] == 5
    assert (record["stats"]["artifact"], record["stats"]["threads"]) == (artifact, threads)


@pytest.mark.browser
@pytest.mark.parametrize(("kept", "code"), [(None, "model_invalid"), (0.5, "model_truncated")])
def test_a_file_that_is_no_whole_model_is_told_in_a_sentence(
    run_serve: Serve, tiny_model: Path, tmp_path: Path, kept: float | None, code: str
) -> None:
    data = tiny_model.read_bytes()
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"Dear diary,\n" * 100 if kept is None else data[: int(len(data) * kept)])
    ended = run_serve("--ask", "Hello!", model=broken)
    assert (ended.returncode, ended.stdout) == (1, "")
    (sentence,) = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
    assert sentence.endswith(f"({code})")
    assert ended.stderr.splitlines()[-1] == sentence
    assert "Traceback" not in ended.stderr


@pytest.mark.browser
def test_an_empty_answer_is_a_failure(run_serve: Serve, tmp_path: Path) -> None:
    # The last piece of the cycle is followed by the end of the turn.
    silent = parrot([b"a", b"b"], ends=True).write(tmp_path / "silent.gguf")
    ended = run_serve("--complete", "b", model=silent)
    assert (ended.returncode, ended.stdout) == (1, "\n")
    assert ended.stderr.endswith("error: the model ended its answer before the first word\n")


@pytest.mark.browser
def test_port_0_serves_the_playground_on_a_free_port(
    workspace: Workspace, environment: dict[str, str], tiny_model: Path
) -> None:
    argv = [sys.executable, "serve.py", "--port", "0", "--model", str(tiny_model)]
    with subprocess.Popen(
        argv,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=workspace.root,
        env=environment,
    ) as server:
        try:
            assert server.stdout is not None
            address = next(word for word in server.stdout.readline().split() if word.startswith("http"))
            assert not address.endswith((":0", ":8000"))
            with urllib.request.urlopen(f"{address}/models/", timeout=10) as reply:
                assert [entry["name"] for entry in json.load(reply)] == [tiny_model.name]
        finally:
            server.send_signal(SIGINT)
    assert server.returncode == 0
