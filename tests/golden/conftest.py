"""Fixtures of the golden tests: one browser for all pages, and models by their names in golden.json."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from headrace.headless import launch


@pytest.fixture(scope="module")
def browser(chromium: Path) -> Iterator[Browser]:
    with launch(chromium) as browser:
        yield browser


@pytest.fixture
def model_path(model: str, request: pytest.FixtureRequest) -> Path:
    """The file behind a test's parameter `model`: "tiny" or "demo"."""
    path: Path = request.getfixturevalue(f"{model}_model")
    return path
