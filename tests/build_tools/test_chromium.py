"""Which browser is taken."""

from pathlib import Path

import pytest

from build_tools.chromium import find_chromium
from build_tools.errors import StepError


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_chosen_one_then_path_then_playwright_s(tmp_path: Path) -> None:
    chosen = program(tmp_path / "chosen")
    on_path = program(tmp_path / "bin" / "google-chrome")
    program(tmp_path / "browsers" / "chromium-999" / "chrome-linux" / "chrome")
    newer = program(tmp_path / "browsers" / "chromium-1200" / "chrome-linux64" / "chrome")
    environment = {
        "HEADRACE_CHROMIUM": str(chosen),
        "PATH": str(tmp_path / "bin"),
        "PLAYWRIGHT_BROWSERS_PATH": str(tmp_path / "browsers"),
    }
    assert find_chromium(environment) == chosen
    del environment["HEADRACE_CHROMIUM"]
    assert find_chromium(environment) == on_path
    environment["PATH"] = "/nonexistent"
    assert find_chromium(environment) == newer
    environment["PLAYWRIGHT_BROWSERS_PATH"] = "/nonexistent"
    assert find_chromium(environment) is None


def test_chromium_itself_goes_before_other_names(tmp_path: Path) -> None:
    program(tmp_path / "google-chrome")
    assert find_chromium({"PATH": str(tmp_path), "HEADRACE_CHROMIUM": ""}) == tmp_path / "google-chrome"
    program(tmp_path / "chromium")
    assert find_chromium({"PATH": str(tmp_path)}) == tmp_path / "chromium"


@pytest.mark.parametrize("wrong", ["/nonexistent/chromium", "/tmp"])
def test_a_wrong_choice_is_an_error(wrong: str) -> None:
    with pytest.raises(StepError, match=f"HEADRACE_CHROMIUM is {wrong}"):
        find_chromium({"HEADRACE_CHROMIUM": wrong, "PATH": ""})
