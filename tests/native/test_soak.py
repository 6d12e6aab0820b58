"""A short soak without a sanitizer, and proof that it tells when an engine breaks its promises.

Counterpart: `native/soak/`; the long soak under sanitizers is `python3 -m build_tools soak`.
"""

import re
import subprocess
from pathlib import Path

import pytest

from build_tools.workspace import Workspace
from tests.gguf_builder import parrot

TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


@pytest.fixture
def program(workspace: Workspace) -> Path:
    path = workspace.build / "native" / "headrace_soak"
    assert path.exists(), "build it with: python3 -m build_tools test"
    return path


def soak(program: Path, model: Path, folder: Path, operations: int) -> subprocess.CompletedProcess[str]:
    argv: list[str | Path] = [
        program,
        model,
        "--folder",
        folder,
        "--operations",
        str(operations),
        "--seed",
        "11",
    ]
    return subprocess.run(argv, capture_output=True, text=True, timeout=240, check=False)


def test_no_slot_is_lost_and_every_request_ends_once(program: Path, tiny_model: Path, tmp_path: Path) -> None:
    ran = soak(program, tiny_model, tmp_path, 1500)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    summary = ran.stdout.splitlines()[-1]
    assert summary.startswith("soak: 1500 operations ")
    assert summary.endswith("violations 0")
    figures = {name: int(count) for name, count in re.findall(r"(\w[\w ]*?) (\d+)", summary)}
    # What the run is worth: all three ways to end, refusals by name, and slots looked at.
    for name in ("stop", "length", "cancelled", "invalid_option", "context_overflow", "slot checks"):
        assert any(key.endswith(name) and count > 0 for key, count in figures.items()), (name, summary)


def test_wrong_answers_are_told(program: Path, tmp_path: Path) -> None:
    # It loads and chats, but does not know what the tiny model knows.
    model = parrot([b"x", b"y", b"z"], template=TEMPLATE, ends=True).write(tmp_path / "parrot.gguf")
    ran = soak(program, model, tmp_path, 300)
    assert ran.returncode == 1
    assert re.search(r'^violation: request \d+ answered "x?yz" instead of "', ran.stdout, re.MULTILINE), (
        ran.stdout
    )


def test_a_model_that_does_not_load_is_told(program: Path, tmp_path: Path) -> None:
    ran = soak(program, tmp_path / "absent.gguf", tmp_path, 10)
    assert ran.returncode == 1
    assert "violation: the model was not loaded" in ran.stdout
