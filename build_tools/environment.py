"""The clone's virtual environment: made once per pyproject.toml, and the command restarted inside it.

Counterpart: pyproject.toml, which names what goes in. Runs on the system's Python with the standard library.
"""

import importlib.util
import os
import sys
from pathlib import Path

from build_tools.apt import ensure_apt_packages
from build_tools.files import content_hash, write_atomically
from build_tools.progress import Reporter, pip_progress
from build_tools.steps import Step, StepRun, run_steps
from build_tools.workspace import Workspace

PIP = "pip>=24.1"
"""First pip that prints machine-readable progress."""


def ensure_environment(workspace: Workspace, reporter: Reporter) -> None:
    """Makes sure that this process runs inside `.venv` with what pyproject.toml asks for.

    Returns at once if it does; otherwise builds the environment where needed and replaces this process by the
    same command inside it.
    """
    step = environment_step(workspace)
    current = step.is_current()
    if current and _is_inside(workspace):
        return
    if not current:
        run_steps([step], workspace, reporter)
    python = str(environment_python(workspace))
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(python, [python, *sys.orig_argv[1:]])


def environment_python(workspace: Workspace) -> Path:
    """The environment's interpreter."""
    return workspace.environment / "bin" / "python"


def environment_step(workspace: Workspace) -> Step:
    """The step that creates `.venv` and installs the package with its development tools."""
    stamp = workspace.environment / "headrace-stamp"

    def fingerprint() -> str:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        # The package's path is written into an editable install: a moved clone needs a new one.
        return content_hash(
            workspace.root, [workspace.root / "pyproject.toml"], version, str(workspace.root), PIP
        )

    def is_current() -> bool:
        return stamp.is_file() and stamp.read_text() == fingerprint()

    def action(run: StepRun) -> str:
        made_from = fingerprint()
        stamp.unlink(missing_ok=True)
        if not _is_inside(workspace):
            _create(run)
        python = environment_python(workspace)
        online = "check that pip can reach its package index (pip config list), then run the same command"
        pip = (python, "-m", "pip", "install", "--disable-pip-version-check")
        run.run([*pip, "--upgrade", PIP], hint=online)
        run.run(
            [*pip, "--progress-bar", "raw", "--editable", f"{workspace.root}[dev]"],
            parse=_install_progress,
            hint=online,
        )
        write_atomically(stamp, made_from)
        return workspace.shown(workspace.environment)

    return Step("environment", "creating .venv and installing the Python tools", is_current, action)


def _is_inside(workspace: Workspace) -> bool:
    return Path(sys.prefix).resolve() == workspace.environment.resolve()


def _create(run: StepRun) -> None:
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        ensure_apt_packages(run, ["python3-venv"], "the virtual environment .venv")
    # --clear: what an interrupted run or another Python version left is not worth repairing.
    run.run([sys.executable, "-m", "venv", "--clear", run.workspace.environment])


def _install_progress(line: str) -> str | None:
    if line.startswith("Collecting "):
        return line
    return pip_progress(line)
