"""GGUF headers are read as the engine reads them, alike in Python and JavaScript, whatever is broken in them.

Counterparts: `headrace/models/gguf.py`, `web/models/gguf_header.js`.
"""

import json
import random
import struct
import time
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from build_tools.workspace import Workspace
from headrace.errors import HeadraceError
from headrace.models.gguf import GgufArray, GgufHeader, parse_header, require_gguf
from headrace.models.gguf_types import TENSOR_TYPES
from headrace.models.split import plan_pieces
from tests.gguf_builder import ARRAY, F32, FLOAT32, INT32, STRING, UINT32, Gguf, Tensor, Value
from tests.python.models_twins import in_javascript, in_python


def small(**metadata: Value) -> Gguf:
    gguf = Gguf({"general.architecture": Value(STRING, "llama")})
    gguf.metadata |= {key.replace("__", "."): value for key, value in metadata.items()}
    gguf.metadata["tokens"] = Value(ARRAY, ["a", "bc", "é", ""], STRING)
    gguf.metadata["scores"] = Value(ARRAY, [0.5, 1.5], FLOAT32)
    for index in range(4):
        gguf.tensors.append(Tensor(f"blk.{index}.weight", (8, index + 1), F32, bytes(32 * (index + 1))))
    return gguf


def written(gguf: Gguf, folder: Path) -> bytes:
    return gguf.write(folder / "small.gguf").read_bytes()


def header_of(data: bytes) -> GgufHeader:
    header = parse_header(data, "small.gguf")
    assert header is not None
    return header


def refusal(data: bytes) -> HeadraceError:
    with pytest.raises(HeadraceError) as caught:
        parse_header(data, "small.gguf")
    assert "\n" not in caught.value.message
    assert "small.gguf" in caught.value.message
    return caught.value


def test_types_are_those_of_ggml(workspace: Workspace) -> None:
    path = workspace.generated / "declarations.json"
    declared = json.loads(path.read_text()).get("tensorTypes") if path.exists() else None
    if declared is None:
        pytest.skip(f"{path} is not there, or older than the tensor types: python3 -m build_tools codegen")
    assert {
        entry["id"]: (entry["name"], entry["blockElements"], entry["blockBytes"]) for entry in declared
    } == TENSOR_TYPES


def test_types_are_the_same_in_javascript(node: Path) -> None:
    types = in_javascript(node)["types"]
    assert {number: tuple(entry.values()) for number, entry in types} == TENSOR_TYPES


def test_a_header_says_what_was_written(tmp_path: Path) -> None:
    data = written(small(answer=Value(INT32, -42)), tmp_path)
    header = header_of(data)
    assert header.metadata["general.architecture"] == "llama"
    assert header.metadata["answer"] == -42
    assert header.metadata["tokens"] == GgufArray(STRING, 4)
    assert [tensor.bytes for tensor in header.tensors] == [32, 64, 96, 128]
    assert header.data_end == len(data)


def test_every_shorter_start_wants_more(tmp_path: Path) -> None:
    data = written(small(), tmp_path)
    end = data.index(b"blk.3.weight") + len("blk.3.weight") + 4 + 16 + 4 + 8
    assert all(parse_header(data[:length], "x") is None for length in range(end))
    assert parse_header(data[:end], "x") == header_of(data)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (Value(INT32, 32), "not a uint32"),
        (Value(UINT32, 0), "not a power of two"),
        (Value(UINT32, 24), "not a power of two"),
    ],
)
def test_an_alignment_that_is_none(tmp_path: Path, value: Value, sentence: str) -> None:
    """Case F2."""
    error = refusal(written(small(general__alignment=value), tmp_path))
    assert error.code == "model_invalid"
    assert sentence in error.message


def start(tensors: int, keys: int) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, keys)


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def tensor(name: bytes, shape: tuple[int, ...], kind: int = F32, offset: int = 0) -> bytes:
    declared = text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return declared + struct.pack("<IQ", kind, offset)


BROKEN = {
    "more keys than any file holds": start(0, 2**40),
    "more tensors than any file holds": start(2**63, 0),
    "a key of endless length": start(0, 1) + struct.pack("<Q", 2**50),
    "a key of more than 53 bits": start(0, 1) + struct.pack("<Q", 2**64 - 1),
    "an empty key (case F3)": start(0, 1) + text(b"") + struct.pack("<IB", 0, 1) + bytes(32),
    "a key twice": start(0, 2) + (text(b"key") + struct.pack("<IB", 0, 1)) * 2,
    "an unknown type of value": start(0, 1) + text(b"key") + struct.pack("<I", 13) + bytes(32),
    "an array of arrays": start(0, 1) + text(b"key") + struct.pack("<IIQ", ARRAY, ARRAY, 1) + bytes(32),
    "an endless array": start(0, 1) + text(b"key") + struct.pack("<IIQ", ARRAY, 10, 2**40),
    "an endless vocabulary": start(0, 1) + text(b"key") + struct.pack("<IIQ", ARRAY, STRING, 2**40),
    "five dimensions (case F4)": start(1, 0) + tensor(b"t", (1, 1, 1, 1, 1)),
    "an element count that overflows": start(1, 0) + tensor(b"t", (2**40, 2**40)),
    "half a block": start(1, 0) + tensor(b"t", (33,), 8),
    "an unknown type of tensor": start(1, 0) + tensor(b"t", (32,), 4),
    "a tensor that begins askew": start(1, 0) + tensor(b"t", (32,), F32, 8),
    "a tensor twice": start(2, 0) + tensor(b"t", (8,)) + tensor(b"t", (8,), F32, 32),
    "a tensor that ends nowhere": start(1, 0) + tensor(b"t", (8,), F32, 2**53 - 32),
    "a name that is too long": start(1, 0) + tensor(b"t" * 128, (8,)),
    "version 1": b"GGUF" + struct.pack("<IQQ", 1, 0, 0),
    "big-endian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "no GGUF": b"GGUX" + struct.pack("<IQQ", 3, 0, 0),
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_what_cannot_be_is_refused(data: bytes) -> None:
    assert refusal(data).code == "model_invalid"


def test_an_empty_tensor_is_left_to_the_engine() -> None:
    """Case F1."""
    header = header_of(start(1, 0) + tensor(b"t", (8, 0)))
    assert header.tensors[0].bytes == 0


def test_a_header_that_cannot_lie_in_the_file_is_refused_at_once(tmp_path: Path) -> None:
    """Case F6: nobody waits for bytes that never come."""
    data = written(small(), tmp_path)
    assert parse_header(data[:100], "x", len(data)) is None
    with pytest.raises(HeadraceError) as caught:
        parse_header(data[:100], "x", 100)
    assert caught.value.code == "model_truncated"


def test_a_large_vocabulary_is_passed_over_quickly() -> None:
    words = b"".join(text(b"word%d" % index) for index in range(300_000))
    data = start(0, 1) + text(b"tokens") + struct.pack("<IIQ", ARRAY, STRING, 300_000) + words
    begin = time.perf_counter()
    assert header_of(data).metadata["tokens"] == GgufArray(STRING, 300_000)
    assert time.perf_counter() - begin < 3


def test_javascript_judges_the_same(node: Path, tmp_path: Path, tiny_model: Path) -> None:
    """Broken headers, and seeded damage to whole ones: the same header, plan, code and sentence."""
    limits = {"maxWholeBytes": 100, "shardBytes": 700}
    cases = [{"hex": data.hex(), "size": 10**6, **limits} for data in BROKEN.values()]
    cases += [{"hex": data.hex(), "take": len(data), **limits} for data in BROKEN.values()]
    whole = written(small(), tmp_path)
    chance = random.Random(4)
    for _ in range(1500):
        data = damaged(whole, chance)
        cases.append({"hex": data.hex(), "take": chance.choice([len(data), len(data) // 2]), **limits})
    cases += [
        {"path": str(tiny_model), "maxWholeBytes": 1000, "shardBytes": bytes_}
        for bytes_ in (1000, 300_000, 10**6, 2 * 10**6, 10**9)
    ]
    cases.append({"path": str(tiny_model), "take": 5000, **limits})
    expected = in_python(files=cases)["files"]
    assert in_javascript(node, files=cases)["files"] == expected
    outcomes = [answer and answer.get("error", {"code": "header"})["code"] for answer in expected]
    assert {"header", "model_invalid", "model_truncated", None} == set(outcomes)
    assert sum(answer is not None and len(answer.get("pieces", [])) > 1 for answer in expected) > 100


def damaged(whole: bytes, chance: random.Random) -> bytes:
    data = bytearray(whole)
    for _ in range(chance.randrange(3)):
        at = chance.randrange(650)
        match chance.randrange(4):
            case 0:
                data[at] ^= 1 << chance.randrange(8)
            case 1:
                data[at : at + 8] = struct.pack("<Q", chance.choice([0, 1, 33, 2**31, 2**53, 2**64 - 1]))
            case 2:
                data[at] = chance.randrange(256)
            case _:
                del data[at : at + chance.randrange(9)]
    return bytes(data)


@settings(max_examples=300, deadline=1000)
@given(seed=st.randoms(use_true_random=False), tail=st.binary(max_size=80))
def test_damage_ends_in_a_header_or_a_refusal(seed: random.Random, tail: bytes) -> None:
    whole = start(2, 1) + text(b"key") + struct.pack("<II", UINT32, 7)
    whole += tensor(b"a", (8, 2)) + tensor(b"b", (32,), 8, 64) + tail
    data = bytearray(whole + bytes(300))
    for _ in range(seed.randrange(4)):
        data[seed.randrange(len(whole))] = seed.randrange(256)
    code: str | None = None
    try:
        header = parse_header(bytes(data), "x")
        pieces = header and plan_pieces(header, bytes(data), len(data), max_whole_bytes=10, shard_bytes=300)
    except HeadraceError as error:
        code = error.code
    else:
        assert all(one.end == other.start for one, other in pairwise(pieces or []))
    assert code in (None, "model_invalid", "model_truncated")


HEADS = [
    b"",
    b"<!DOCTYPE html><html>",
    b"\n  <html lang=en>",
    b"\xef\xbb\xbf<!doctype html>",
    b'<?xml version="1.0"?><Error>',
    b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n",
    b'{"error": "Repository not found"}',
    b"\x1f\x8b\x08\x00",
    b"PK\x03\x04",
    b'\x10\x01\0\0\0\0\0\0{"__metadata__"',
    b"Dear diary",
    start(0, 0)[:23],
    start(0, 0),
    b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
]


def test_what_is_no_model_is_recognised_alike(node: Path) -> None:
    """Case F7."""
    heads = [head.hex() for head in HEADS]
    answers = in_python(heads=heads)["heads"]
    assert in_javascript(node, heads=heads)["heads"] == answers
    assert [answer is None for answer in answers].count(True) == 1
    with pytest.raises(HeadraceError, match="model is an HTML page"):
        require_gguf(HEADS[1], "model")
