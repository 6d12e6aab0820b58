"""Finds a Chrome or Chromium to run pages without a display, or installs Debian's.

Counterpart: `headrace/headless.py` and the browser tests, which are handed its path. Not a browser driver.
"""

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from build_tools.apt import ensure_apt_packages
from build_tools.errors import StepError
from build_tools.steps import Step, StepRun
from build_tools.workspace import Workspace

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")


def find_chromium(environment: Mapping[str, str] | None = None) -> Path | None:
    """The browser to use: $HEADRACE_CHROMIUM, else one on PATH, else one Playwright downloaded; else None.

    Raises StepError if $HEADRACE_CHROMIUM names no program.
    """
    environment = os.environ if environment is None else environment
    if chosen := environment.get("HEADRACE_CHROMIUM"):
        if not os.access(chosen, os.X_OK) or not Path(chosen).is_file():
            raise StepError(f"HEADRACE_CHROMIUM is {chosen}, which is not a program")
        return Path(chosen)
    for name in NAMES:
        if found := shutil.which(name, path=environment.get("PATH", "")):
            return Path(found)
    return _playwrights_own(environment)


def _playwrights_own(environment: Mapping[str, str]) -> Path | None:
    home = Path(environment.get("HOME", "/nonexistent"))
    folder = Path(environment.get("PLAYWRIGHT_BROWSERS_PATH") or home / ".cache" / "ms-playwright")
    found = [*folder.glob("chromium-*/chrome-linux*/chrome"), *folder.glob("chromium-*/chrome-mac*/*.app")]
    return max(found, key=_revision, default=None)


def _revision(program: Path) -> int:
    """The number in Playwright's folder name: chromium-1200/chrome-linux/chrome → 1200."""
    match = re.fullmatch(r"chromium-(\d+)", program.parts[-3])
    return int(match[1]) if match else 0


def chromium_step(workspace: Workspace) -> Step:
    """The step after which `find_chromium` finds one."""

    def action(run: StepRun) -> str:
        try:
            ensure_apt_packages(run, ["chromium"], "running pages without a display")
        except StepError as error:
            error.hint += "; or set HEADRACE_CHROMIUM to the path of a Chrome or Chromium"
            raise
        if (found := find_chromium()) is None:
            raise StepError("the package chromium is installed, but its program is not on PATH")
        return str(found)

    return Step("chromium", "installing Chromium", lambda: find_chromium() is not None, action)
