"""headrace/__init__.py: what the package offers, and its version."""

import tomllib
from pathlib import Path

import headrace


def test_the_public_names_are_there_once_each() -> None:
    assert len(headrace.__all__) == len(set(headrace.__all__))
    assert all(hasattr(headrace, name) for name in headrace.__all__)


def test_the_version_is_the_project_s(repo_root: Path) -> None:
    project = tomllib.loads((repo_root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert headrace.__version__ == project["version"]
