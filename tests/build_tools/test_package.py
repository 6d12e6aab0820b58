"""What the wheel holds."""

import io
import json
import sys
import zipfile
from pathlib import Path

import pytest

from build_tools.package import built_wheel, package_step
from build_tools.progress import Reporter
from build_tools.steps import StepRun
from build_tools.vendor import VENDORED
from build_tools.workspace import Workspace


@pytest.mark.wasm
def test_the_wheel_holds_the_package_the_pages_files_and_the_artifacts(
    workspace: Workspace, artifacts_dir: Path, types_dir: Path
) -> None:
    log = io.StringIO()
    run = StepRun("package", workspace, Reporter(log))
    workspace.logs.mkdir(exist_ok=True)
    package_step(workspace).action(run)
    with zipfile.ZipFile(built_wheel(workspace)) as wheel:
        names = set(wheel.namelist())
        manifest = json.loads(wheel.read("headrace/artifacts/manifest.json"))
        package = json.loads(wheel.read("headrace/web/package.json"))
    assert {"headrace/__init__.py", "headrace/web/index.js", "headrace/web/types/declarations.d.ts"} <= names
    assert {f"headrace/web/{package[entry]}" for entry in ("main", "types")} <= names
    for entry in manifest["artifacts"].values():
        assert {f"headrace/artifacts/{entry['glue']}", f"headrace/artifacts/{entry['wasm']}"} <= names
    assert {f"headrace/web/vendor/{name}" for name in VENDORED.values()} <= names
    for name in names:
        assert name.startswith("headrace/") or ".dist-info/" in name
        assert not name.startswith(("headrace/web/tsconfig", "headrace/web/node_modules"))
    assert not any("__pycache__" in name for name in names), sys.version
