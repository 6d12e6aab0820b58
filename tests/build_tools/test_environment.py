"""The environment these tests run in is the clone's own, and asking for it again costs nothing."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from build_tools.environment import ensure_environment, environment_python, environment_step
from build_tools.progress import Reporter
from build_tools.workspace import Workspace


@pytest.fixture(autouse=True)
def _inside(workspace: Workspace) -> None:
    if Path(sys.prefix).resolve() != workspace.environment.resolve():
        pytest.skip("not run by python3 -m build_tools test")
    if not environment_step(workspace).is_current():
        pytest.skip("pyproject.toml is newer than .venv: python3 -m build_tools setup")


def test_inside_it_is_a_matter_of_milliseconds(workspace: Workspace) -> None:
    started = time.perf_counter()
    ensure_environment(workspace, Reporter(sys.stdout))
    assert time.perf_counter() - started < 0.1


def test_pyproject_s_content_decides_whether_it_is_current(workspace: Workspace, tmp_path: Path) -> None:
    pyproject, stamp = tmp_path / "pyproject.toml", tmp_path / ".venv" / "headrace-stamp"
    pyproject.write_text("[project]\n")
    step = environment_step(Workspace(tmp_path, tmp_path))
    assert not step.is_current()
    stamp.parent.mkdir()
    stamp.write_text((workspace.environment / "headrace-stamp").read_text())
    assert not step.is_current()


def test_the_system_s_python_restarts_the_command_inside(workspace: Workspace) -> None:
    base = Path(sys.base_prefix) / "bin" / "python3"
    program = (
        "import sys; from build_tools.workspace import Workspace; from build_tools.progress import Reporter;"
        "from build_tools.environment import ensure_environment;"
        "ensure_environment(Workspace.default(), Reporter(sys.stdout)); print(sys.prefix, sys.argv[1])"
    )
    argv = [str(base), "-c", program, "an argument"]
    ended = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=workspace.root)
    assert ended.stdout == f"{environment_python(workspace).parent.parent} an argument\n"
