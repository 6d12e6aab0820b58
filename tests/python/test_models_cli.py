"""headrace/models_cli.py, model_argument.py, progress_line.py: the store on the command line.

Counterpart: the playground's page of models.
"""

import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.cli import main
from headrace.model_argument import request_headers
from headrace.models import Progress
from headrace.progress_line import ProgressLine, bytes_text, progress_text
from tests.fault_scenarios import Answer
from tests.fault_server import FaultServer
from tests.python.store_cases import MIB, REPO_ROOT, Published

PATH = "/folder/model.gguf"


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library_path: Path) -> None:
    monkeypatch.setenv("HEADRACE_LIBRARY", str(library_path))
    monkeypatch.setenv("HEADRACE_MODELS", str(tmp_path / "store"))
    monkeypatch.delenv("HF_TOKEN", raising=False)


@pytest.fixture
def url(server: FaultServer, model: Published) -> str:
    return server.serve(PATH, model.data).url


def record(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["models", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_model_from_its_download_to_its_deletion(
    capsys: pytest.CaptureFixture[str], url: str, model: Published, tmp_path: Path
) -> None:
    downloaded = record(capsys, "download", url, "--sha256", model.sha256, "--pin")
    assert downloaded["id"] == f"sha256-{model.sha256}"
    assert downloaded["pinned"] is True
    (listed,) = record(capsys, "list")
    assert listed["inUse"] is False
    assert listed["name"] == "model.gguf"
    assert record(capsys, "unpin", "model.gguf")["pinned"] is False
    assert record(capsys, "pin", model.sha256[:8])["pinned"] is True
    assert record(capsys, "verify") == [{"id": listed["id"], "ok": True, "damaged": []}]
    usage = record(capsys, "usage", "--limit", "1GiB")
    assert usage["modelBytes"] == model.size
    assert usage["limitBytes"] == 1 << 30
    assert usage["folder"] == str(tmp_path / "store")
    (path,) = record(capsys, "export", listed["id"], str(tmp_path / "out"))
    assert Path(path).read_bytes() == model.data
    assert record(capsys, "delete", listed["id"], "--yes")["id"] == listed["id"]
    assert record(capsys, "list") == []
    imported = record(capsys, "import", path, "--name", "mine")
    assert (imported["id"], imported["name"]) == (listed["id"], "mine")
    assert record(capsys, "repair") == {"found": [], "removed": [], "unknown": []}


def test_tables_for_people(capsys: pytest.CaptureFixture[str], url: str, model: Published) -> None:
    assert main(["models", "download", url]) == 0
    assert capsys.readouterr().out == f"sha256-{model.sha256[:12]}  15.7 MB  model.gguf\n"
    for command in ("list", "verify", "usage", "repair"):
        assert main(["models", command]) == 0
    out = capsys.readouterr().out
    assert "model.gguf  ok" in out
    assert "15.7 MB of models" in out


def test_damage_is_a_failure(capsys: pytest.CaptureFixture[str], url: str, tmp_path: Path) -> None:
    record(capsys, "download", url)
    (path,) = (tmp_path / "store").glob("*.gguf")
    with path.open("r+b") as file:
        file.seek(MIB)
        file.write(b"damage")
    assert main(["models", "verify"]) == 1
    assert f"damaged: {path.name}" in capsys.readouterr().out


@pytest.mark.parametrize("named", ["url", "id", "prefix", "name", "path"])
def test_a_model_runs_by_whatever_names_it(
    capsys: pytest.CaptureFixture[str], url: str, model: Published, named: str
) -> None:
    if named not in ("url", "path"):
        record(capsys, "download", url)
    name = {
        "url": url,
        "id": f"sha256-{model.sha256}",
        "prefix": model.sha256[:10],
        "name": "model.gguf",
        "path": str(model.path),
    }[named]
    assert (
        main(["run", name, "--query", "a", "--max-tokens", "3", "--temperature", "0", "--threads", "1"]) == 0
    )
    assert capsys.readouterr().out == "bca\n"
    assert main(["tokenize", name, "a"]) == 0


def test_a_path_goes_before_a_stored_name(
    capsys: pytest.CaptureFixture[str],
    url: str,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record(capsys, "download", url)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.gguf").symlink_to(tiny_model)
    assert main(["run", "model.gguf", "--chat", "Hello!", "--temperature", "0"]) == 0
    assert capsys.readouterr().out.startswith("Hello! I am a tiny")


def test_a_model_that_nobody_knows(capsys: pytest.CaptureFixture[str], tmp_path: Path, url: str) -> None:
    assert main(["run", "none.gguf", "--query", "a"]) == 1
    assert capsys.readouterr().err.endswith("[model_not_found]\n")
    assert not (tmp_path / "store").exists()
    record(capsys, "download", url)
    assert main(["run", "none.gguf", "--query", "a"]) == 1
    assert "nor a stored model" in capsys.readouterr().err


def test_deleting_asks(capsys: pytest.CaptureFixture[str], url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    record(capsys, "download", url)
    assert main(["models", "delete", "model.gguf"]) == 1
    assert "--yes" in capsys.readouterr().err

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for typed, left in (("\n", 1), ("n\n", 1), ("y\n", 0)):
        monkeypatch.setattr(sys, "stdin", Terminal(typed))
        assert main(["models", "delete", "model.gguf"]) == 0
        assert "delete model.gguf, 15.7 MB?" in capsys.readouterr().err
        assert len(record(capsys, "list")) == left


def test_d10_tokens_are_sent_and_not_shown(
    capsys: pytest.CaptureFixture[str], server: FaultServer, model: Published, tmp_path: Path
) -> None:
    served = server.serve(PATH, model.data, token="hr_secret")
    header = ["--header", "Authorization: Bearer hr_secret"]
    served.faults.append(Answer(status=403))
    assert main(["models", "download", served.url, *header]) == 1
    shown = capsys.readouterr()
    assert main(["models", "download", served.url, *header, "--json"]) == 0
    also = capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["models", "download", served.url, "--header", "hr_secret"])
    usage = capsys.readouterr()
    assert all(exchange.headers["authorization"] == "Bearer hr_secret" for exchange in server.log)
    for text in (*shown, *also, *usage, *(path.read_text() for path in (tmp_path / "store").glob("*.json"))):
        assert "hr_secret" not in text


def test_d10_the_token_of_the_environment_is_for_hugging_face(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert request_headers("hf:a/b/c.gguf", []) == {"Authorization": "Bearer hf_secret"}
    assert request_headers("hf:a/b/c.gguf", [("authorization", "x")]) == {"authorization": "x"}
    assert request_headers("https://example.org/c.gguf", []) == {}


@pytest.mark.parametrize("limit", ["20", "1.5 GB", "3MiB", "4k"])
def test_limits_in_any_unit(capsys: pytest.CaptureFixture[str], limit: str) -> None:
    expected = {"20": 20, "1.5 GB": 1_500_000_000, "3MiB": 3 << 20, "4k": 4000}[limit]
    assert record(capsys, "usage", "--limit", limit)["limitBytes"] == expected


def test_a_limit_that_is_none_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["models", "usage", "--limit", "much"])
    assert "no number of bytes" in capsys.readouterr().err


def test_d6_no_room_is_one_sentence(capsys: pytest.CaptureFixture[str], url: str) -> None:
    assert main(["models", "download", url, "--limit", "5MB"]) == 1
    err = capsys.readouterr().err
    assert err.endswith("[storage_full]\n")
    assert err.count("\n") == 1


def start(url: str, terminal: int | None = None) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "headrace", "models", "download", url],
        cwd=REPO_ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if terminal is None else terminal,
    )


def test_d1_ctrl_c_keeps_what_has_come(
    capsys: pytest.CaptureFixture[str], server: FaultServer, model: Published
) -> None:
    served = server.serve(PATH, model.data, rate=5 * MIB)
    program = start(served.url)
    server.wait_until(lambda: server.bytes_sent() > 5 * MIB)
    program.send_signal(signal.SIGINT)
    _, err = program.communicate(timeout=20)
    assert program.returncode == 130
    assert re.fullmatch(rb"interrupted: [\d.]+ MB of 15\.7 MB are kept, .*\n", err), err
    served.rate = None
    assert record(capsys, "download", served.url)["id"] == f"sha256-{model.sha256}"
    assert server.bytes_sent() < model.size * 1.2


def test_what_is_left_of_a_download_can_be_deleted(
    capsys: pytest.CaptureFixture[str], server: FaultServer, model: Published, tmp_path: Path
) -> None:
    served = server.serve(PATH, model.data)
    served.break_at([5 * MIB] * 8)
    assert main(["models", "download", served.url]) == 1
    assert list((tmp_path / "store").glob("partial-*"))
    assert main(["models", "delete", served.url, "--yes"]) == 0
    assert "of an unfinished download" in capsys.readouterr().err
    assert not list((tmp_path / "store").glob("partial-*"))


def test_a_terminal_has_a_bar(server: FaultServer, model: Published) -> None:
    served = server.serve(PATH, model.data, rate=5 * MIB)
    ours, theirs = pty.openpty()
    program = start(served.url, theirs)
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 65536):
            shown += part
    except OSError:
        pass
    finally:
        os.close(ours)
    out, _ = program.communicate(timeout=20)
    assert model.sha256[:12] in out.decode()
    lines = shown.decode().split("\r")
    assert len(lines) > 10
    assert any("[####" in line and "/s" in line and "left" in line for line in lines)
    assert "15.7 MB of 15.7 MB" in shown.decode()


def test_lines_come_now_and_then_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("headrace.progress_line.time.monotonic", lambda: clock[0])
    stream = io.StringIO()
    line = ProgressLine(stream)
    for _ in range(120):
        clock[0] += 0.1
        line(Progress("download", 5, 10))
    line.end()
    assert stream.getvalue() == "downloading 5 B of 10 B\n" * 2


def test_what_is_unknown_is_left_out() -> None:
    assert progress_text(Progress("download", 1_500_000, None), bar=True) == "downloading 1.5 MB"
    text = progress_text(Progress("wait", 5, 10, 2.0, 4000.0))
    assert text == "waiting 5 B of 10 B 2 B/s 1 h 6 min left"
    assert [bytes_text(count) for count in (0, 999, 1000, 123_456, 5 * 10**12)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "123 kB",
        "5.0 TB",
    ]


@pytest.mark.parametrize(
    "command",
    ["", "list", "download", "import", "verify", "pin", "unpin", "delete", "export", "usage", "repair"],
)
def test_every_command_has_help(capsys: pytest.CaptureFixture[str], command: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["models", *command.split(), "--help"])
    assert caught.value.code == 0
    assert "usage: headrace models" in capsys.readouterr().out
