"""Headers that contradict themselves or the format: refused in one sentence, or computed (cases F1-F5, F8).

Counterpart: `native/engine/model_file.cpp`. Foreign, cut and odd files are in test_native_models.py, headers
that nobody thought of in tests/native/test_fuzz.py.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.errors import HeadraceError
from headrace.native import Engine
from tests.gguf_builder import (
    ARRAY,
    BOOL,
    F32,
    FLOAT32,
    INT32,
    STRING,
    UINT32,
    Gguf,
    Tensor,
    Value,
    far_apart,
    parrot,
    read_gguf,
    renamed,
)
from tests.python.conftest import OpenEngine

GREEDY = {"temperature": 0, "max_tokens": 3}
CYCLE = [b"a", b"b", b"c"]
UINT8, INT8, UINT16, INT16, UINT64, INT64, FLOAT64 = 0, 1, 2, 3, 10, 11, 12

OpenDamaged = Callable[[Gguf], str]


@pytest.fixture
def outcome(library_path: Path, tmp_path: Path) -> OpenDamaged:
    """What a parrot's file leads to: its answer, or the code of the error, whose sentence is looked at."""

    def outcome(gguf: Gguf) -> str:
        path = gguf.write(tmp_path / "model.gguf")
        try:
            with Engine(path, {"threads": 1, "context_size": 256}, library=library_path) as engine:
                return engine.query(">", GREEDY).result().text
        except HeadraceError as error:
            refused = error
        assert "\n" not in refused.message
        assert len(refused.message) < 400
        assert "GGML_ASSERT" not in refused.message
        return refused.code

    return outcome


def tensor_named(gguf: Gguf, name: str) -> Tensor:
    return next(tensor for tensor in gguf.tensors if tensor.name == name)


@pytest.mark.parametrize("name", [tensor.name for tensor in parrot(CYCLE).tensors])
def test_a_weight_with_a_dimension_of_zero_is_refused(outcome: OpenDamaged, name: str) -> None:
    """Case F1, in weights that the model needs: every one, every dimension."""
    for position in range(len(tensor_named(parrot(CYCLE), name).shape)):
        gguf = parrot(CYCLE)
        tensor = tensor_named(gguf, name)
        shape = list(tensor.shape)
        shape[position] = 0
        tensor.shape, tensor.data = shape, b""
        assert outcome(gguf) == "model_invalid"


@pytest.mark.parametrize("place", ["first", "middle", "last"])
@pytest.mark.parametrize("dimensions", [1, 2, 3, 4])
def test_a_further_tensor_with_a_dimension_of_zero_is_refused(
    outcome: OpenDamaged, dimensions: int, place: str
) -> None:
    """Case F1, in a tensor that nobody needs: every number of dimensions, every position, every place."""
    for position in range(dimensions):
        gguf = parrot(CYCLE)
        shape = [4] * dimensions
        shape[position] = 0
        at = {"first": 0, "middle": 5, "last": len(gguf.tensors)}[place]
        gguf.tensors.insert(at, Tensor("extra.weight", shape, F32, b""))
        assert outcome(gguf) == "model_invalid"


@pytest.mark.parametrize(
    "value",
    [
        *(Value(kind, 32) for kind in (UINT8, INT8, UINT16, INT16, INT32, UINT64, INT64)),
        *(Value(kind, 32.0) for kind in (FLOAT32, FLOAT64)),
        Value(BOOL, True),
        Value(STRING, "32"),
        Value(ARRAY, [32], UINT32),
        Value(ARRAY, [], UINT32),
        *(Value(UINT32, number) for number in (0, 3, 24, 33, 2**32 - 1)),
    ],
    ids=lambda value: f"{value.kind}-{value.data}",
)
def test_an_alignment_that_is_none_is_refused(outcome: OpenDamaged, value: Value) -> None:
    """Case F2: of another type, or no power of two."""
    gguf = parrot(CYCLE)
    gguf.metadata["general.alignment"] = value
    assert outcome(gguf) == "model_invalid"


@pytest.mark.parametrize("alignment", [2**exponent for exponent in (20, 30, 31)])
def test_an_alignment_that_the_file_does_not_have_is_refused(outcome: OpenDamaged, alignment: int) -> None:
    """Case F2: so large that the tensors' data would begin after the file's end, or end there."""
    gguf = parrot(CYCLE)
    gguf.metadata["general.alignment"] = Value(UINT32, alignment)
    assert outcome(gguf) in ("model_invalid", "model_truncated")


@pytest.mark.parametrize("kind", [UINT32, STRING, BOOL])
def test_an_empty_key_is_refused(outcome: OpenDamaged, kind: int) -> None:
    """Case F3, whatever its value is."""
    gguf = parrot(CYCLE)
    gguf.metadata[""] = Value(kind, {UINT32: 1, STRING: "", BOOL: True}[kind])
    assert outcome(gguf) == "model_invalid"


@pytest.mark.parametrize("name", ["", "token_embd.weight"])
def test_a_tensor_without_a_name_of_its_own_is_refused(outcome: OpenDamaged, name: str) -> None:
    """Case F3, of tensors."""
    gguf = parrot(CYCLE)
    gguf.tensors.append(Tensor(name, (8,), F32, bytes(32)))
    assert outcome(gguf) == "model_invalid"


@pytest.mark.parametrize("dimensions", [5, 6, 64, 1000])
def test_more_than_four_dimensions_are_refused(outcome: OpenDamaged, dimensions: int) -> None:
    """Case F4, in a tensor that nobody needs and in one that the model needs."""
    gguf = parrot(CYCLE)
    gguf.tensors.append(Tensor("extra.weight", [1] * dimensions, F32, bytes(4)))
    assert outcome(gguf) == "model_invalid"
    gguf = parrot(CYCLE)
    weight = tensor_named(gguf, "blk.0.ffn_up.weight")
    weight.shape = (*weight.shape, *[1] * (dimensions - 2))
    assert outcome(gguf) == "model_invalid"


@pytest.mark.parametrize("dimensions", [3, 4])
def test_up_to_four_dimensions_are_read(outcome: OpenDamaged, dimensions: int) -> None:
    """Case F4, the other side of its limit."""
    gguf = parrot(CYCLE)
    weight = tensor_named(gguf, "blk.0.ffn_up.weight")
    weight.shape = (*weight.shape, *[1] * (dimensions - 2))
    assert outcome(gguf) == "abc"


ODD_NUMBERS = [
    *(Value(UINT32, number) for number in (0, 3, 2**16, 2**31, 2**32 - 1)),
    *(Value(kind, number) for kind, number in ((INT32, -1), (INT64, -1), (UINT64, 2**63), (FLOAT32, 1.0))),
    *(Value(ARRAY, numbers, INT32) for numbers in ([], [0], [-1], [1] * 600)),
]
"""For a number that the file says of the model; none of them is right for the models here."""


@pytest.mark.parametrize(
    ("architecture", "key"),
    [
        ("olmo2", "attention.head_count"),
        ("llama", "attention.head_count"),
        ("llama", "attention.head_count_kv"),
        ("llama", "attention.key_length"),
        ("llama", "block_count"),
        ("llama", "embedding_length"),
        ("llama", "feed_forward_length"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(outcome: OpenDamaged, architecture: str, key: str) -> None:
    """Case F5: counts and lengths of every kind. olmo2 divides by them without a look, in llama.cpp."""
    for value in ODD_NUMBERS:
        gguf = renamed(parrot(CYCLE), architecture)
        gguf.metadata[f"{architecture}.{key}"] = value
        assert outcome(gguf) == "model_invalid", value


@pytest.mark.parametrize(
    ("key", "numbers"),
    [
        ("block_count", (0, 513, 2**31)),
        ("expert_count", (0, 1, 1025, 2**31)),
        ("expert_used_count", (0, 1000, 2**31)),
    ],
)
def test_counts_of_experts_that_do_not_fit_are_refused(
    outcome: OpenDamaged, tiny_model: Path, key: str, numbers: tuple[int, ...]
) -> None:
    """Case F5: of a mixture of experts."""
    for number in numbers:
        gguf = read_gguf(tiny_model)
        gguf.metadata[f"qwen3moe.{key}"] = Value(UINT32, number)
        assert outcome(gguf) == "model_invalid", number


@pytest.mark.parametrize(
    ("length", "expected"),
    [(0, "model_invalid"), (1, "context_overflow"), (3, "abc"), (2**31, "abc"), (2**32 - 1, "abc")],
)
def test_a_trained_context_of_any_length(outcome: OpenDamaged, length: int, expected: str) -> None:
    """Case F5: a huge context costs what the options ask for, not what the file says."""
    gguf = parrot(CYCLE, context=length)
    assert outcome(gguf) == expected


@pytest.mark.parametrize("key", ["eos", "bos", "padding", "unknown", "eot"])
def test_a_token_outside_the_vocabulary_is_nobody_s(outcome: OpenDamaged, key: str) -> None:
    """Case F5, of token ids."""
    for number in (257, 2**32 - 1):
        gguf = parrot(CYCLE)
        gguf.metadata[f"tokenizer.ggml.{key}_token_id"] = Value(UINT32, number)
        assert outcome(gguf) == "abc", number


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -1.0])
@pytest.mark.parametrize("key", ["rope.freq_base", "attention.layer_norm_rms_epsilon"])
def test_numbers_that_spoil_the_pass_are_told(open_engine: OpenEngine, key: str, number: float) -> None:
    """Case F5, of what is no count: a typed error, or the right answer where it does not matter."""
    gguf = parrot(CYCLE)
    gguf.metadata[f"llama.{key}"] = Value(FLOAT32, number)
    try:
        told = open_engine(gguf).query(">", GREEDY).result().text
    except HeadraceError as error:
        told = error.code
    assert told in ("abc", "model_invalid", "numeric_fault")


def test_a_file_of_more_than_two_gigabytes_answers(open_engine: OpenEngine, tmp_path: Path) -> None:
    """Case F8, natively; tests/browser/test_large_files.py has it in a page."""
    path = far_apart(tmp_path / "far.gguf", 2**27)
    assert path.stat().st_size > 2**31
    assert open_engine(path).query(">", GREEDY).result().text == "abc"
