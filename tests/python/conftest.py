"""Fixtures of the Python package's tests: engines that are closed when the test ends, and what stores need.

And the two ways to use an engine: every scenario that both know is a test with the parameter `caller`.
"""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

import pytest

from build_tools.workspace import Workspace
from headrace import native
from headrace.models import ModelStore
from headrace.native import Engine
from headrace.run import Reply, Run
from headrace.wire import TokenBatch
from tests.fault_server import FaultServer, fault_server
from tests.gguf_builder import Gguf
from tests.large_gguf import roomy_parrot
from tests.python.fake_engine import FakeEngine
from tests.python.store_cases import MIB, QUICK, Published
from tests.python.wire_engine import WireEngine

T = TypeVar("T")

OpenEngine = Callable[..., Engine]
OpenFake = Callable[[FakeEngine], Engine]
See = Callable[[TokenBatch], bool]
OpenWire = Callable[..., WireEngine]


@pytest.fixture
def open_engine(library_path: Path, tmp_path: Path) -> Iterator[OpenEngine]:
    """Opens a model, given as a path or as a `Gguf` to be written first, with load options as keywords.

    One thread unless said otherwise: for models this small, more only wait for each other.
    """
    with ExitStack() as stack:

        def open_engine(model: Path | Gguf, **options: object) -> Engine:
            path = model.write(tmp_path / "model.gguf") if isinstance(model, Gguf) else model
            return stack.enter_context(Engine(path, {"threads": 1, **options}, library=library_path))

        yield open_engine


@pytest.fixture
def engine(open_engine: OpenEngine, tiny_model: Path) -> Engine:
    """The tiny chat model with a short context."""
    return open_engine(tiny_model, context_size=512)


@pytest.fixture
def open_wire(library_path: Path, tmp_path: Path) -> Iterator[OpenWire]:
    """As `open_engine`, but by the C functions alone; load options by their names on the wire."""
    with ExitStack() as stack:

        def open_wire(model: Path | Gguf, **options: object) -> WireEngine:
            path = model.write(tmp_path / "model.gguf") if isinstance(model, Gguf) else model
            engine = WireEngine(library_path, path, **options)
            stack.callback(engine.close)
            return engine

        yield open_wire


@pytest.fixture
def template(workspace: Workspace) -> Callable[[str], str]:
    """The text of a template by its file's name."""

    def read(name: str) -> str:
        path = workspace.llama / "models/templates" / f"{name}.jinja"
        if not path.exists():
            pytest.skip(f"{path} is not there: python3 -m build_tools native")
        return path.read_text(encoding="utf-8")

    return read


@pytest.fixture
def open_fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenFake]:
    """Opens an `Engine` around a fake one."""
    with ExitStack() as stack:

        def open_fake(fake: FakeEngine) -> Engine:
            put_in_place(monkeypatch, fake)
            engine = stack.enter_context(Engine("fake.gguf"))
            stack.callback(fake.gate.set)
            return engine

        yield open_fake


def put_in_place(monkeypatch: pytest.MonkeyPatch, fake: FakeEngine) -> None:
    """Whatever opens an engine from here on gets `fake`."""
    monkeypatch.setattr(native, "load_library", lambda _path: None)
    monkeypatch.setattr(native, "EngineHandle", lambda _library: fake)


class PlainCaller:
    """Blocks."""

    def answer(self, ask: Callable[[], Reply[T]]) -> T:
        return ask().result()

    def read(self, ask: Callable[[], Run], see: See = lambda _batch: True) -> Run:
        """Reads batches until there are none or `see` returns False."""
        run = ask()
        for batch in run:
            if not see(batch):
                break
        return run


class CoroutineCaller:
    """Each action in an event loop of its own."""

    def answer(self, ask: Callable[[], Reply[T]]) -> T:
        async def main() -> T:
            return await ask()

        return asyncio.run(main())

    def read(self, ask: Callable[[], Run], see: See = lambda _batch: True) -> Run:
        """Reads batches until there are none or `see` returns False."""

        async def main() -> Run:
            run = ask()
            async for batch in run:
                if not see(batch):
                    break
            return run

        return asyncio.run(main())


Caller = PlainCaller | CoroutineCaller


@pytest.fixture(params=[PlainCaller, CoroutineCaller], ids=["plain", "coroutine"])
def caller(request: pytest.FixtureRequest) -> Caller:
    """Someone who uses an engine, with or without asyncio."""
    made: Caller = request.param()
    return made


@pytest.fixture
def server() -> Iterator[FaultServer]:
    """Serves models, as badly as a test wants."""
    with fault_server() as server:
        yield server


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Published:
    """15 MiB that run, and of which every byte counts."""
    return Published.of(roomy_parrot(tmp_path_factory.mktemp("model") / "model.gguf", MIB))


@pytest.fixture(scope="session")
def other(tmp_path_factory: pytest.TempPathFactory) -> Published:
    """Another of the same size, whose header and beginning are the same."""
    path = roomy_parrot(tmp_path_factory.mktemp("model") / "other.gguf", MIB)
    with path.open("r+b") as file:
        for at in range(2, 15):
            file.seek(at * MIB + MIB // 2)
            file.write(os.urandom(MIB // 2))
    return Published.of(path)


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    """An empty one, which loses no time over failures."""
    return ModelStore(tmp_path / "store", limits=QUICK)
