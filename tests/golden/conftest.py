"""Fixtures of the golden tests: one browser for all pages, and the models by the names of golden.json."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from headrace.headless import launch


@pytest.fixture(scope="module")
def browser(chromium: Path) -> Iterator[Browser]:
    with launch(chromium) as browser:
        yield browser


@pytest.fixture(scope="session")
def models(demo_model: Path, tiny_model: Path) -> Mapping[str, Path]:
    return {"demo": demo_model, "tiny": tiny_model}
