"""Builds the wheel: the Python package with web/, its types and the artifacts inside.

Counterpart: pyproject.toml, which lists what the wheel holds. Publishes nothing.
"""

import sys
from pathlib import Path

from build_tools.errors import StepError
from build_tools.files import remove_folder
from build_tools.steps import Step, StepRun
from build_tools.workspace import Workspace


def package_step(workspace: Workspace) -> Step:
    """The step that leaves one wheel in build/dist."""
    folder = workspace.build / "dist"

    def action(run: StepRun) -> str:
        remove_folder(folder)
        command = (sys.executable, "-m", "pip", "wheel", "--disable-pip-version-check", "--no-deps")
        run.run([*command, "--wheel-dir", folder, workspace.root])
        wheel = built_wheel(workspace)
        return f"{workspace.shown(wheel)}, {wheel.stat().st_size / 1e6:.1f} MB"

    return Step("package", "building the wheel", lambda: False, action)


def built_wheel(workspace: Workspace) -> Path:
    """The wheel that the step left."""
    wheels = sorted((workspace.build / "dist").glob("headrace-*.whl"))
    if len(wheels) != 1:
        raise StepError(f"one wheel expected in build/dist, found {len(wheels)}")
    return wheels[0]
