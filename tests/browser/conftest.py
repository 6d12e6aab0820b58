"""Fixtures of the browser tests: tabs on servers of their own that watch their console.

Every module in this folder marks its tests `browser`.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext
from starlette.applications import Starlette

from build_tools.gpu_adapter import GpuChromium, swiftshader_chromium
from build_tools.workspace import Workspace
from headrace.server import background_server, create_app
from tests.browser.downloads import MIB, Published
from tests.browser.gpu import CRASHES_ALLOWED, f16_chromium_or_skip, gpu_browser
from tests.browser.gpu_wrapper import GpuTraits, wrap_gpu
from tests.browser.profiles import Origin, origin, profile
from tests.browser.tab import SETUP, Tab
from tests.fault_server import FaultServer, fault_server
from tests.gguf_builder import contradictory, parrot, spell_bytes, unsound
from tests.large_gguf import roomy_parrot

OpenTab = Callable[..., Tab]
TabsIn = Callable[..., AbstractContextManager[OpenTab]]


@pytest.fixture(scope="session")
def model_files(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """What the server has under /models/: the tiny chat model, two parrots, and broken files."""
    folder = tmp_path_factory.mktemp("models")
    data = tiny_model.read_bytes()
    files = {
        "page.gguf": b"<!DOCTYPE html><html><body>Sign in</body></html>",
        "pointer.gguf": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
        "text.gguf": b"1, 2, 3\n",
        "empty.gguf": b"",
        "truncated.gguf": data[: len(data) // 2],
        "short.gguf": data[:-1],
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    parrot([b"a", b"b", b"c"], template=template).write(folder / "abc.gguf")
    contradictory(tiny_model).write(folder / "contradictory.gguf")
    unsound().write(folder / "unsound.gguf")
    parrot(spell_bytes("😀語ж"), template=template).write(folder / "mixed.gguf")
    return {"tiny.gguf": tiny_model} | {path.name: path for path in folder.iterdir()}


@pytest.fixture
def artifacts_copy(artifacts_dir: Path, tmp_path: Path) -> Path:
    """The built artifacts, to be spoilt by the test."""
    return Path(shutil.copytree(artifacts_dir, tmp_path / "artifacts"))


@pytest.fixture(scope="session")
def person(
    browser: Browser, chromium: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrowserContext]:
    """A profile on the disk, shared by the tests; each of them has an origin of its own in it."""
    with profile(browser, chromium, tmp_path_factory.mktemp("profile")) as context:
        yield context


@pytest.fixture(scope="session")
def f16_chromium(workspace: Workspace, chromium: Path) -> GpuChromium:
    """How to start a Chromium whose WebGPU adapter has shader-f16."""
    return f16_chromium_or_skip(workspace, chromium)


@pytest.fixture(scope="session")
def f16_browser(browser: Browser, f16_chromium: GpuChromium) -> Iterator[Browser]:
    """One such Chromium for all tests."""
    with gpu_browser(browser, f16_chromium) as started:
        yield started


@pytest.fixture(scope="session")
def swiftshader_browser(browser: Browser, chromium: Path) -> Iterator[Browser]:
    """One Chromium for all tests whose WebGPU adapter lacks shader-f16."""
    with gpu_browser(browser, swiftshader_chromium(chromium)) as started:
        yield started


@pytest.fixture(scope="session")
def f16_person(
    browser: Browser, f16_chromium: GpuChromium, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrowserContext]:
    """As `person`, with the adapter that has shader-f16."""
    with profile(
        browser,
        f16_chromium.program,
        tmp_path_factory.mktemp("f16-profile"),
        arguments=[*f16_chromium.arguments, *CRASHES_ALLOWED],
        environment=f16_chromium.environment,
    ) as context:
        yield context


@pytest.fixture
def app(model_files: Mapping[str, Path], repo_root: Path, artifacts_dir: Path) -> Starlette:
    """The pages, the library and the models of `model_files`."""
    return create_app(web_dir=repo_root / "web", artifacts_dir=artifacts_dir, models=model_files)


@pytest.fixture
def site(person: BrowserContext, app: Starlette) -> Iterator[Origin]:
    """An origin that has stored nothing yet, in a browser that keeps what it stores."""
    with origin(person, app) as site:
        yield site


@pytest.fixture
def f16_site(f16_person: BrowserContext, app: Starlette) -> Iterator[Origin]:
    """As `site`, with the adapter that has shader-f16."""
    with origin(f16_person, app) as site:
        yield site


@pytest.fixture
def faults() -> Iterator[FaultServer]:
    """Where the test's models are published: another origin than the page's."""
    with fault_server() as server:
        yield server


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Published:
    """15 MiB; says "abcabc"."""
    return Published.of(roomy_parrot(tmp_path_factory.mktemp("small") / "abc.gguf", MIB))


@pytest.fixture(scope="session")
def roomy_model(tmp_path_factory: pytest.TempPathFactory) -> Published:
    """60 MiB, enough for several connections; says "abcabc"."""
    return Published.of(roomy_parrot(tmp_path_factory.mktemp("roomy") / "abc.gguf", 4 * MIB))


@pytest.fixture(scope="session")
def other_roomy_model(tmp_path_factory: pytest.TempPathFactory) -> Published:
    """As large, and other bytes."""
    return Published.of(roomy_parrot(tmp_path_factory.mktemp("other") / "abc.gguf", 4 * MIB, seed=2))


@contextmanager
def tab_opener(
    browser: Browser, model_files: Mapping[str, Path], repo_root: Path, artifacts_dir: Path
) -> Iterator[OpenTab]:
    """Gives what opens a tab on a server of its own; keywords say what differs.

    `demo` is the model that the server lists first; `gpu` and `gpu_workers` change the adapter as `wrap_gpu`
    says; other keywords are Playwright's, of the context.

    At the end, an unexpected complaint of a tab's console is an error.
    """
    with ExitStack() as stack:
        tabs: list[Tab] = []

        def open_tab(
            *,
            isolation: bool = True,
            artifacts: Path = artifacts_dir,
            path: str = "/playground/headless.html",
            init_script: str | None = None,
            demo: str = "tiny.gguf",
            gpu: GpuTraits | None = None,
            gpu_workers: Sequence[GpuTraits] = (),
            **context_options: Any,
        ) -> Tab:
            app = create_app(
                web_dir=repo_root / "web",
                artifacts_dir=artifacts,
                models={demo: model_files[demo], **model_files},
                isolation=isolation,
            )
            if gpu:
                wrap_gpu(app, gpu, gpu_workers)
            base = stack.enter_context(background_server(app))
            context = stack.enter_context(browser.new_context(**context_options))
            if init_script:
                context.add_init_script(init_script)
            tab = Tab(context.new_page())
            tabs.append(tab)
            tab.page.goto(base + path)
            tab.run(SETUP)
            return tab

        yield open_tab
    complaints = [text for tab in tabs for text in tab.unexpected()]
    assert not complaints, complaints


@pytest.fixture(scope="module")
def tabs_in(model_files: Mapping[str, Path], repo_root: Path, artifacts_dir: Path) -> TabsIn:
    """`tab_opener` of a browser, with the models and artifacts of these tests unless others are named."""
    return partial(tab_opener, model_files=model_files, repo_root=repo_root, artifacts_dir=artifacts_dir)


@pytest.fixture
def open_tab(browser: Browser, tabs_in: TabsIn) -> Iterator[OpenTab]:
    """Opens tabs for one test, see `tab_opener`."""
    with tabs_in(browser) as open_tab:
        yield open_tab


@pytest.fixture
def open_gpu_tab(f16_browser: Browser, tabs_in: TabsIn) -> Iterator[OpenTab]:
    """As `open_tab`, with the adapter that has shader-f16."""
    with tabs_in(f16_browser) as open_tab:
        yield open_tab


@pytest.fixture
def open_swiftshader_tab(swiftshader_browser: Browser, tabs_in: TabsIn) -> Iterator[OpenTab]:
    """As `open_tab`, with an adapter that lacks shader-f16."""
    with tabs_in(swiftshader_browser) as open_tab:
        yield open_tab
