"""The fixture of the golden tests: models by their names in golden.json."""

from pathlib import Path

import pytest


@pytest.fixture
def model_path(model: str, request: pytest.FixtureRequest) -> Path:
    """The file behind a test's parameter `model`: "tiny" or "demo"."""
    path: Path = request.getfixturevalue(f"{model}_model")
    return path
