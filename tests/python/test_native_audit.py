"""The op audit through the C ABI: what a load proves, and what the operation `audit` tells.

Counterpart of native/engine/op_audit.cpp. That a missing kernel is found is tested in
native/tests/op_watch_test.cpp: no model file can ask for an op that the CPU does not compute.
"""

import ctypes
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.library import ProgressFunction, load_library
from tests.gguf_builder import Gguf, not_a_number, parrot, unsound

CYCLE = [b"a", b"b", b"c"]


class RawEngine:
    """The C ABI as it is: JSON in, JSON out."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._handle = library.hr_engine_create()

    def load(self, model: Path, **options: Any) -> bool:
        command = json.dumps({"model": str(model), "options": {"threads": 1, **options}}).encode()
        loaded = self._library.hr_engine_load(self._handle, command, len(command), ProgressFunction(), None)
        return bool(loaded)

    def submit(self, **command: Any) -> None:
        text = json.dumps(command).encode()
        self._library.hr_engine_submit(self._handle, text, len(text))

    def tick(self) -> int:
        return int(self._library.hr_engine_tick(self._handle, 10.0))

    def events(self) -> list[dict[str, Any]]:
        length = ctypes.c_size_t()
        address = self._library.hr_engine_events(self._handle, ctypes.byref(length))
        written: list[dict[str, Any]] = json.loads(ctypes.string_at(address, length.value))
        return written

    def free(self) -> None:
        self._library.hr_engine_free(self._handle)


@contextmanager
def raw_engine(library_path: Path) -> Iterator[RawEngine]:
    engine = RawEngine(load_library(library_path))
    try:
        yield engine
    finally:
        engine.free()


def audit(library_path: Path, model: Path, **options: Any) -> list[dict[str, Any]]:
    """The rows of the operation `audit`, answered at once."""
    with raw_engine(library_path) as engine:
        assert engine.load(model, **options), engine.events()
        engine.events()
        engine.submit(id=1, operation="audit")
        (done,) = engine.events()
    assert (done["type"], done["id"]) == ("done", 1)
    rows: list[dict[str, Any]] = done["result"]["ops"]
    return rows


def written(gguf: Gguf, tmp_path: Path) -> Path:
    return gguf.write(tmp_path / "model.gguf")


@pytest.mark.parametrize("self_test", [True, False])
def test_every_op_of_both_graphs_is_listed(library_path: Path, tiny_model: Path, self_test: bool) -> None:
    rows = audit(library_path, tiny_model, selfTest=self_test)
    for phase in ("prefill", "decode"):
        ops = {row["op"] for row in rows if row["phase"] == phase}
        assert {"MUL_MAT", "MUL_MAT_ID", "GLU", "FLASH_ATTN_EXT", "SOFT_MAX", "RMS_NORM", "ROPE"} <= ops
        assert not ops & {"VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE", "NONE"}
    for row in rows:
        assert sorted(row) == ["backend", "count", "inputs", "kernel", "op", "output", "phase"]
        assert row["backend"] == "CPU"
        assert row["count"] > 0
        assert row["kernel"]
    assert len({tuple(sorted(row.items())) for row in rows}) == len(rows)


def test_a_matrix_product_tells_its_types_and_its_inner_loop(library_path: Path, tmp_path: Path) -> None:
    rows = audit(library_path, written(parrot(CYCLE), tmp_path))
    products = [row for row in rows if row["op"] == "MUL_MAT" and row["phase"] == "decode"]
    # One layer: q, k, v, the attention's output, gate, up, down; and the logits.
    assert sum(row["count"] for row in products) == 8
    assert {(row["inputs"], row["output"], row["kernel"]) for row in products} == {
        ("f32 × f32", "f32", "vec_dot f32 × f32")
    }


def test_an_audit_takes_no_options(library_path: Path, tiny_model: Path) -> None:
    with raw_engine(library_path) as engine:
        assert engine.load(tiny_model)
        engine.events()
        engine.submit(id=1, operation="audit", options={})
        (failed,) = engine.events()
    assert failed["error"]["code"] == "invalid_request"


@pytest.mark.parametrize("self_test", [True, False])
def test_answers_are_the_same_with_and_without(library_path: Path, tmp_path: Path, self_test: bool) -> None:
    with raw_engine(library_path) as engine:
        assert engine.load(written(parrot(CYCLE), tmp_path), selfTest=self_test, contextSize=64)
        (ready,) = engine.events()
        assert ready["options"]["selfTest"] is self_test
        engine.submit(id=1, operation="query", prompt="x", options={"temperature": 0, "maxTokens": 6})
        while engine.tick() > 0:
            engine.submit(id=2, operation="audit")
        done = [event for event in engine.events() if event["type"] == "done" and event["id"] == 1]
    assert done[0]["result"]["text"] == "abcabc"


def test_a_model_whose_numbers_are_none_is_computed_all_the_same(library_path: Path, tmp_path: Path) -> None:
    """Its weights are NaN: that is a numeric fault of its answers, no missing kernel."""
    assert audit(library_path, written(not_a_number(), tmp_path))


def test_a_model_that_cannot_be_computed_is_refused_at_load(library_path: Path, tmp_path: Path) -> None:
    with raw_engine(library_path) as engine:
        assert not engine.load(written(unsound(), tmp_path))
        (failed,) = engine.events()
    assert failed["error"]["code"] == "model_invalid"
    assert "GGML_ASSERT" in failed["error"]["message"]


def test_without_a_self_test_such_a_model_ends_its_engine_when_it_is_audited(
    library_path: Path, tmp_path: Path
) -> None:
    with raw_engine(library_path) as engine:
        assert engine.load(written(unsound(), tmp_path), selfTest=False)
        engine.events()
        engine.submit(id=1, operation="audit")
        failed, ended = engine.events()
    assert failed["error"]["code"] == ended["error"]["code"] == "engine_aborted"
    assert ended["type"] == "engine_failed"
