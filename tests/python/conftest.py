"""Fixtures of the Python package's tests: engines that are closed when the test ends."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from headrace.native import Engine
from tests.gguf_builder import Gguf
from tests.python.wire_engine import WireEngine

OpenEngine = Callable[..., Engine]
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
