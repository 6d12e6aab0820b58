"""Fixtures for all tests: where the build left its results, and models to run.

Counterpart: `build_tools/workspace.py`. `python3 -m build_tools test` makes what they name; a test whose
means are missing is skipped with the command that makes them.
"""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from build_tools.chromium import find_chromium
from build_tools.errors import StepError
from build_tools.sources import demo_model_path
from build_tools.workspace import Workspace
from headrace.headless import launch
from tests.minilm import Precision, minilm

# A run in the background of a shell script inherits an ignored Ctrl-C, one under nohup an ignored hang-up,
# and so would the programs that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Runs what needs a browser last, after the faster tests.

    Playwright's synchronous interface leaves an event loop running in this thread for as long as the browser
    lives, and under it no test could run one of its own.
    """
    items.sort(key=lambda item: "browser" in getattr(item, "fixturenames", ()))


def _made(path: Path, task: str) -> Path:
    if not path.exists():
        pytest.skip(f"{path} is not there: python3 -m build_tools {task}")
    return path


@pytest.fixture(scope="session")
def workspace() -> Workspace:
    """This clone and the cache it uses."""
    return Workspace.default()


@pytest.fixture(scope="session")
def repo_root(workspace: Workspace) -> Path:
    return workspace.root


@pytest.fixture(scope="session")
def artifacts_dir(workspace: Workspace) -> Path:
    """The WebAssembly artifacts with their manifest."""
    return _made(workspace.artifacts / "manifest.json", "wasm").parent


@pytest.fixture(scope="session")
def types_dir(workspace: Workspace) -> Path:
    """The .d.ts files of web/, as users get them."""
    return _made(workspace.generated / "types" / "declarations.d.ts", "types").parent


@pytest.fixture(scope="session")
def library_path(workspace: Workspace) -> Path:
    """The native build of the engine."""
    return _made(workspace.native_library, "native")


@pytest.fixture(scope="session")
def demo_model(workspace: Workspace) -> Path:
    """SmolLM2-135M-Instruct: a real model, 98 MB."""
    return _made(demo_model_path(workspace), "setup")


@pytest.fixture(scope="session")
def tiny_model(repo_root: Path) -> Path:
    """A trained mixture of experts of 4 MB with a chat template; it knows eight answers by heart."""
    return repo_root / "tests" / "data" / "moe-trained-q4_k_m.gguf"


@pytest.fixture(scope="session", params=["f16", "q8_0"])
def minilm_model(request: pytest.FixtureRequest, workspace: Workspace) -> Path:
    """all-MiniLM-L6-v2 in both precisions: a real embedding model of 22 M parameters."""
    return _minilm(workspace, request.param)


@pytest.fixture(scope="session")
def minilm_f16(workspace: Workspace) -> Path:
    """The same in f16 alone."""
    return _minilm(workspace, "f16")


def _minilm(workspace: Workspace, precision: Precision) -> Path:
    try:
        return minilm(workspace, precision)
    except StepError as error:
        pytest.skip(f"MiniLM's weights cannot be fetched: {error}")


@pytest.fixture(scope="session")
def chromium() -> Path:
    """The browser that pages run in."""
    found = find_chromium()
    if found is None:
        pytest.skip("there is no Chromium: python3 -m build_tools setup")
    return found


@pytest.fixture(scope="session")
def browser(chromium: Path) -> Iterator[Browser]:
    """One Chromium for all tests: Playwright's blocking interface can be entered once per thread."""
    with launch(chromium) as browser:
        yield browser


@pytest.fixture(scope="session")
def node() -> Path:
    """Node.js, from the environment the tests run in."""
    return _made(Path(sys.prefix) / "bin" / "node", "setup")


@pytest.fixture(scope="session")
def is_root() -> bool:
    """Whether tests run with root's rights, before which file permissions do not count."""
    return os.geteuid() == 0
