"""Installs packages of the npm registry into a folder of the build.

Counterpart: `web/package.json`, which says which packages, and in which versions.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from build_tools.errors import StepError
from build_tools.files import remove_folder, write_atomically
from build_tools.steps import StepRun
from build_tools.workspace import Workspace


def web_manifest(workspace: Workspace) -> Path:
    return workspace.root / "web" / "package.json"


def required(workspace: Workspace, kind: str, package: str) -> dict[str, str]:
    """Package → versions of one kind ("dependencies", …) in web/package.json, `package` among them."""
    packages: dict[str, str] = json.loads(web_manifest(workspace).read_text()).get(kind, {})
    if package not in packages:
        raise StepError(f"web/package.json names no {package} among its {kind}")
    return packages


def install(run: StepRun, folder: Path, packages: Mapping[str, str]) -> None:
    """Makes `folder` anew, with the packages in its node_modules."""
    remove_folder(folder)
    private = {"name": "headrace-build", "private": True, "dependencies": dict(packages)}
    write_atomically(folder / "package.json", json.dumps(private, indent=2))
    run.run(
        [
            run.workspace.environment / "bin" / "npm",
            *("install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"),
            "--loglevel=error",
        ],
        cwd=folder,
        env={"npm_config_cache": str(run.workspace.cache / "npm"), "npm_config_update_notifier": "false"},
        hint="check that npm can reach its registry (npm ping), then run the same command",
    )
