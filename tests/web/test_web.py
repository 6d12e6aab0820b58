"""Runs the tests of web/ that need no browser: each *.test.js beside this file, with `node --test`.

Counterpart: `tests/browser/`, for everything that needs a page, a worker or the engine.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = sorted(Path(__file__).parent.glob("*.test.js"))
TIMEOUT_SECONDS = 120


def _node() -> str:
    # The environment's own node, so that every machine tests with the same one.
    node = shutil.which("node", path=str(Path(sys.executable).parent)) or shutil.which("node")
    assert node is not None, "there is no node: the environment was not set up by build_tools"
    return node


@pytest.mark.parametrize("script", TESTS, ids=lambda path: path.name)
def test_web(script: Path) -> None:
    outcome = subprocess.run(
        [_node(), "--test", str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stdout


def test_every_module_test_is_found() -> None:
    assert {path.name.removesuffix(".test.js") for path in TESTS} >= {
        "backend_choice",
        "download",
        "errors",
        "gguf",
        "run",
    }
