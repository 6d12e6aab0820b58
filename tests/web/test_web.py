"""Runs the tests of web/ that need no browser: each *.test.js beside this file, with `node --test`.

Counterpart: `tests/browser/`, for everything that needs a page, a worker or the engine.
"""

import shutil
import sys
from pathlib import Path

import pytest

from build_tools.run import run_command

SCRIPTS = sorted(Path(__file__).parent.glob("*.test.js"))


def node() -> str:
    # The environment's own node first, so that every machine tests with the same one.
    found = shutil.which("node", path=str(Path(sys.executable).parent)) or shutil.which("node")
    assert found is not None, "there is no node: python3 -m build_tools setup"
    return found


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_script(script: Path) -> None:
    outcome = run_command([node(), "--test", script], check=False)
    assert outcome.returncode == 0, outcome.output


def test_every_script_is_found() -> None:
    names = {script.name.removesuffix(".test.js") for script in SCRIPTS}
    assert names >= {"backend_choice", "client", "download", "errors", "gguf", "local", "local_session"}
    assert names >= {"gguf_header", "locks", "manifest", "memory_storage", "model_store", "progress", "quota"}
    assert names >= {"blob_file", "hash_pump", "mounted_file", "request_json", "run", "sha256"}
    assert names >= {"sources", "split"}
    assert names >= {"backend_attempts", "gpu_adapter", "gpu_layers", "gpu_verdicts"}
