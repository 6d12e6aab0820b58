"""serve.py's command line: what is refused before anything is built, and what is handed on."""

import subprocess
import sys
from pathlib import Path

import pytest

import serve
from build_tools.workspace import Workspace


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
        (["--model", "http://example.org/x.gguf"], "--model URL goes with"),
        (["--model", "/nonexistent.gguf"], "there is no such file"),
        (["--model", "/tmp"], "is a folder"),
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
        ["--ask", "x", "--artifact", "mt", "--threads", "2", "--json"],
        ["--complete", " ", "--artifact", "st", "--threads", "1"],
        ["--ask", "x", "--model", "https://example.org/x.gguf"],
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
