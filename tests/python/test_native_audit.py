"""The op audit through the C ABI: what a load proves, and what the operation `audit` tells.

Counterpart of native/engine/op_audit.cpp. That a missing kernel is found is tested in
native/tests/op_watch_test.cpp: no model file can ask for an op that the CPU does not compute.
"""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import HeadraceError
from tests.gguf_builder import Gguf, not_a_number, parrot, unsound
from tests.python.wire_engine import WireEngine

CYCLE = [b"a", b"b", b"c"]


def audit(library_path: Path, model: Path, **options: Any) -> list[dict[str, Any]]:
    """The rows of the operation `audit`."""
    with closing(WireEngine(library_path, model, **options)) as engine:
        rows: list[dict[str, Any]] = engine.ask("audit")["ops"]
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
    with (
        closing(WireEngine(library_path, tiny_model)) as engine,
        pytest.raises(HeadraceError, match="options") as caught,
    ):
        engine.ask("audit", options={})
    assert caught.value.code == "invalid_request"


@pytest.mark.parametrize("self_test", [True, False])
def test_answers_are_the_same_with_and_without(library_path: Path, tmp_path: Path, self_test: bool) -> None:
    model = written(parrot(CYCLE), tmp_path)
    with closing(WireEngine(library_path, model, selfTest=self_test, contextSize=64)) as engine:
        assert engine.ready["options"]["selfTest"] is self_test
        asked = engine.submit("query", prompt="x", options={"temperature": 0, "maxTokens": 6})
        engine.tick()
        engine.submit("audit")
        assert engine.wait(asked)["text"] == "abcabc"


def test_a_model_whose_numbers_are_none_is_computed_all_the_same(library_path: Path, tmp_path: Path) -> None:
    """Its weights are NaN: that is a numeric fault of its answers, no missing kernel."""
    assert audit(library_path, written(not_a_number(), tmp_path))


def test_a_model_that_cannot_be_computed_is_refused_at_load(library_path: Path, tmp_path: Path) -> None:
    with pytest.raises(HeadraceError, match="GGML_ASSERT") as caught:
        WireEngine(library_path, written(unsound(), tmp_path))
    assert caught.value.code == "model_invalid"


def test_without_a_self_test_such_a_model_ends_its_engine_when_it_is_audited(
    library_path: Path, tmp_path: Path
) -> None:
    with closing(WireEngine(library_path, written(unsound(), tmp_path), selfTest=False)) as engine:
        engine.submit("audit")
        failed, ended = engine.events()
    assert failed["error"]["code"] == ended["error"]["code"] == "engine_aborted"
    assert ended["type"] == "engine_failed"
