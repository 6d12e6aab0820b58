"""What the measurements' command lines have in common.

Counterparts: `decode.py`, `store.py` and `streams.py`, whose `main` ends here. Measures nothing.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from build_tools.chromium import find_chromium
from build_tools.sources import demo_model_path
from build_tools.workspace import Workspace
from headrace.errors import HeadraceError

Table = Callable[[Mapping[str, Any]], str]
"""Figures for people."""


class MeasureInPage(Protocol):
    """A measurement of a model file that needs a page."""

    def __call__(
        self,
        model: Path,
        *,
        chromium: Path,
        web_dir: Path,
        artifacts_dir: Path,
        repeats: int,
        log: Callable[[str], None],
    ) -> dict[str, Any]: ...


def page_command(
    prog: str, description: str, measure: MeasureInPage, table: Table, arguments: Sequence[str] | None
) -> int:
    """The command line of a measurement in a page; returns the exit code."""
    workspace = Workspace.default()
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument(
        "--model", type=Path, default=demo_model_path(workspace), help="a GGUF file (default: the demo model)"
    )
    parser.add_argument("--repeats", type=int, default=3, help="measured rounds (default: 3)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parsed = parser.parse_args(arguments)

    def measured() -> dict[str, Any]:
        if not parsed.model.is_file():
            raise HeadraceError("model_not_found", f"there is no file {parsed.model}")
        return measure(
            parsed.model,
            chromium=find_chromium() or Path("chromium"),
            web_dir=workspace.root / "web",
            artifacts_dir=workspace.artifacts,
            repeats=max(parsed.repeats, 1),
            log=log,
        )

    return report(measured, table, as_json=parsed.json)


def report(measured: Callable[[], Mapping[str, Any]], table: Table, *, as_json: bool) -> int:
    """Prints what a measurement gives, or why it gives nothing; returns the exit code."""
    try:
        figures = measured()
    except HeadraceError as error:
        print(f"bench: {error.message} [{error.code}]", file=sys.stderr)
        return 1
    print(json.dumps(figures, indent=2) if as_json else table(figures))
    return 0


def log(line: str) -> None:
    """How far a measurement is, apart from its figures."""
    print(line, file=sys.stderr)
