"""A model that was cut into shards is the same model, and the right files are found to be one.

Counterparts: `headrace/models/split.py`, `web/models/split.js`. What both plan alike is tested in
test_models_gguf.py.
"""

import hashlib
import random
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import HeadraceError
from headrace.models.gguf import GgufHeader, parse_header
from headrace.models.split import (
    NamedHeader,
    Piece,
    Shard,
    order_shards,
    plan_pieces,
    require_separate,
    shard_of,
)
from tests.gguf_builder import F32, STRING, UINT32, Gguf, Tensor, Value, read_gguf
from tests.python.conftest import OpenEngine
from tests.python.models_twins import in_javascript, in_python

GREEDY = {"temperature": 0, "max_tokens": 16}
PROMPT = "The capital of France is"


def header_of(data: bytes) -> GgufHeader:
    header = parse_header(data, "x")
    assert header is not None
    return header


def plan(data: bytes, shard_bytes: int) -> list[Piece]:
    return plan_pieces(header_of(data), data, len(data), max_whole_bytes=0, shard_bytes=shard_bytes)


def shards_of(data: bytes, shard_bytes: int) -> list[bytes]:
    pieces = plan(data, shard_bytes)
    assert len(pieces) > 1
    return [(piece.header or b"") + data[piece.start : piece.end] for piece in pieces]


def tensor_digests(data: bytes) -> dict[str, tuple[tuple[int, ...], int, str]]:
    header = header_of(data)
    digests = {}
    for tensor in header.tensors:
        begin = header.data_start + tensor.offset
        digest = hashlib.sha256(data[begin : begin + tensor.bytes]).hexdigest()
        digests[tensor.name] = (tensor.shape, tensor.type, digest)
    return digests


def check_shards(data: bytes, shards: list[bytes], shard_bytes: int) -> None:
    """What must hold of any splitting."""
    whole = header_of(data)
    found: dict[str, tuple[tuple[int, ...], int, str]] = {}
    for number, shard in enumerate(shards, 1):
        header = header_of(shard)
        assert shard_of(header) == Shard(number, len(shards))
        assert header.metadata["split.tensors.count"] == len(whole.tensors)
        assert header.alignment == whole.alignment
        assert len(shard) <= shard_bytes or len({tensor.offset for tensor in header.tensors}) == 1
        assert header.data_end <= len(shard)
        found |= tensor_digests(shard)
    assert found == tensor_digests(data)
    named = [NamedHeader(str(place), header_of(shard)) for place, shard in enumerate(shards)]
    assert order_shards(named[::-1]) == list(range(len(shards)))[::-1]


def refusal(action: Callable[[], object]) -> HeadraceError:
    with pytest.raises(HeadraceError) as caught:
        action()
    assert "\n" not in caught.value.message
    return caught.value


def save(shards: list[bytes], folder: Path) -> Path:
    for number, shard in enumerate(shards, 1):
        (folder / f"x-{number:05}-of-{len(shards):05}.gguf").write_bytes(shard)
    return folder / f"x-00001-of-{len(shards):05}.gguf"


@pytest.mark.parametrize("shard_bytes", [25_000_000, 40_000_000])
def test_a_split_model_gives_the_same_answer(
    open_engine: OpenEngine, demo_model: Path, tmp_path: Path, shard_bytes: int
) -> None:
    data = demo_model.read_bytes()
    shards = shards_of(data, shard_bytes)
    check_shards(data, shards, shard_bytes)
    whole = open_engine(demo_model, context_size=128)
    split = open_engine(save(shards, tmp_path), context_size=128)
    expected = whole.query(PROMPT, GREEDY).result()
    answer = split.query(PROMPT, GREEDY).result()
    assert answer.text == expected.text
    assert len(answer.text) > 10


def test_a_split_mixture_gives_the_same_answer(
    open_engine: OpenEngine, tiny_model: Path, tmp_path: Path
) -> None:
    """One tensor alone in each shard, where that is all that fits."""
    data = tiny_model.read_bytes()
    shards = shards_of(data, 1000)
    check_shards(data, shards, 1000)
    split = open_engine(save(shards, tmp_path), context_size=128)
    expected = open_engine(tiny_model, context_size=128).query(PROMPT, GREEDY).result()
    assert split.query(PROMPT, GREEDY).result().text == expected.text


def built(folder: Path, sizes: list[int], alignment: int = 32) -> bytes:
    gguf = Gguf({"general.architecture": Value(STRING, "llama"), "split.foreign": Value(UINT32, 1)})
    if alignment != 32:
        gguf.metadata["general.alignment"] = Value(UINT32, alignment)
    for index, size in enumerate(sizes):
        content = bytes([index % 251 + 1]) * (4 * size)
        gguf.tensors.append(Tensor(f"blk.{index}.weight", (size,), F32, content))
    return gguf.write(folder / "built.gguf", alignment=alignment).read_bytes()


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 60), min_size=2, max_size=12),
    alignment=st.sampled_from([1, 8, 32, 128]),
    shard_bytes=st.integers(1, 1500),
    tail=st.integers(0, 70),
)
def test_any_splitting_keeps_every_tensor(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], alignment: int, shard_bytes: int, tail: int
) -> None:
    data = built(tmp_path_factory.mktemp("split"), sizes, alignment) + b"x" * tail
    pieces = plan(data, shard_bytes)
    assert pieces[-1].end == len(data)
    if len(pieces) == 1:
        assert pieces == [Piece(None, 0, len(data))]
        return
    assert pieces[0].start == header_of(data).data_start
    assert all(one.end == other.start for one, other in pairwise(pieces))
    shards = [(piece.header or b"") + data[piece.start : piece.end] for piece in pieces]
    check_shards(data, shards, shard_bytes)
    assert "split.foreign" not in header_of(shards[0]).metadata
    assert "general.architecture" in header_of(shards[0]).metadata


def test_javascript_plans_the_same_bytes(node: Path, tmp_path: Path, demo_model: Path) -> None:
    chance = random.Random(11)
    cases = [
        {"path": str(demo_model), "maxWholeBytes": 0, "shardBytes": bytes_} for bytes_ in (10**7, 4 * 10**7)
    ]
    for _ in range(200):
        sizes = [chance.randrange(60) for _ in range(chance.randrange(1, 12))]
        data = built(tmp_path, sizes, chance.choice([1, 8, 32, 128])) + b"x" * chance.randrange(70)
        cases.append({"hex": data.hex(), "maxWholeBytes": 0, "shardBytes": chance.randrange(1, 1500)})
    expected = in_python(files=cases)["files"]
    assert in_javascript(node, files=cases)["files"] == expected
    assert sum(len(answer["pieces"]) > 1 for answer in expected) > 100


def test_tensors_in_any_order_are_cut_where_they_lie(tmp_path: Path) -> None:
    data = built(tmp_path, [8, 8, 8])
    # The first two change places: their offsets are the last eight bytes of each declaration.
    places = [data.index(b"blk.%d.weight" % index) + 12 + 4 + 8 + 4 for index in range(2)]
    swapped = bytearray(data)
    for place, other in zip(places, places[::-1], strict=True):
        swapped[place : place + 8] = data[other : other + 8]
    shards = shards_of(bytes(swapped), 1)
    assert [header_of(shard).tensors[0].name for shard in shards] == [
        "blk.1.weight",
        "blk.0.weight",
        "blk.2.weight",
    ]
    check_shards(bytes(swapped), shards, 1)
    swapped[places[0] : places[0] + 8] = swapped[places[1] : places[1] + 8]
    assert refusal(lambda: plan(bytes(swapped), 1)).code == "model_invalid"


def test_what_stays_whole(tmp_path: Path) -> None:
    data = built(tmp_path, [8, 8])
    header, size = header_of(data), len(data)
    whole = [Piece(None, 0, size)]
    assert plan_pieces(header, data, size, max_whole_bytes=size, shard_bytes=1) == whole
    assert plan_pieces(header, data, None, max_whole_bytes=0, shard_bytes=1) == [Piece(None, 0, None)]
    assert len(plan_pieces(header, data, size, max_whole_bytes=size - 1, shard_bytes=1)) == 2
    shard = shards_of(built(tmp_path, [8, 8, 8, 8]), 1)[0]
    assert plan(shard, 1) == [Piece(None, 0, len(shard))]


def test_a_file_that_ends_too_early_is_not_planned(tmp_path: Path) -> None:
    """Case F6."""
    data = built(tmp_path, [8, 8])
    header = header_of(data)
    error = refusal(lambda: plan_pieces(header, data, header.data_end - 1))
    assert error.code == "model_truncated"
    assert error.detail["expectedBytes"] == header.data_end


@pytest.fixture
def trio(tmp_path: Path) -> list[NamedHeader]:
    """Three shards with their usual names."""
    shards = shards_of(built(tmp_path, [8, 8, 8]), 1)
    return [
        NamedHeader(f"m-{number:05}-of-00003.gguf", header_of(shard))
        for number, shard in enumerate(shards, 1)
    ]


def test_shards_in_any_order(trio: list[NamedHeader]) -> None:
    """Case F10: in the order 3, 1, 2, also as Blobs that have no names."""
    assert order_shards([trio[2], trio[0], trio[1]]) == [1, 2, 0]
    unnamed = [NamedHeader("the blob", header) for _, header in trio]
    assert order_shards([unnamed[2], unnamed[0], unnamed[1]]) == [1, 2, 0]


def test_one_shard_chosen(trio: list[NamedHeader]) -> None:
    """Case F11: the sentence says which others are needed."""
    error = refusal(lambda: order_shards([trio[1]]))
    assert error.code == "invalid_request"
    assert error.detail["missing"] == ["m-00001-of-00003.gguf", "m-00003-of-00003.gguf"]
    assert "m-00002-of-00003.gguf is shard 2 of 3: m-00001-of-00003.gguf, m-00003" in error.message
    renamed = NamedHeader("renamed.gguf", trio[1].header)
    assert refusal(lambda: order_shards([renamed])).detail["missing"] == ["shard 1", "shard 3"]


def test_a_shard_missing_doubled_or_foreign(trio: list[NamedHeader], tmp_path: Path) -> None:
    """Case F14."""
    assert refusal(lambda: order_shards(trio[:2])).detail["missing"] == ["m-00003-of-00003.gguf"]
    assert "doubled" in refusal(lambda: order_shards([*trio, trio[0]])).detail
    other = shards_of(built(tmp_path, [9, 9, 9, 9]), 1)
    for foreign in (other[2], shards_of(built(tmp_path, [7, 7, 7]), 1)[1], built(tmp_path, [8])):
        stranger = NamedHeader("stranger.gguf", header_of(foreign))
        error = refusal(partial(order_shards, [*trio[:2], stranger]))
        assert error.code == "invalid_request"
        assert "stranger.gguf" in error.message
    assert refusal(lambda: order_shards([])).code == "invalid_request"
    whole = NamedHeader("whole.gguf", header_of(built(tmp_path, [8])))
    assert order_shards([whole]) == [0]
    assert refusal(lambda: order_shards([whole, whole])).detail == {"foreign": ["whole.gguf"]}


def test_joined_shards_are_recognised(tmp_path: Path) -> None:
    """Case F12: shards joined with cat."""
    shards = shards_of(built(tmp_path, [8, 8, 8]), 1)
    joined = b"".join(shards)
    header = header_of(joined)
    following = joined[header.data_end :]
    for known in (None, following):
        error = refusal(partial(require_separate, header, len(joined), "big.gguf", known))
        assert error.code == "model_invalid"
        assert "big.gguf is made of several of the 3 shards" in error.message
    require_separate(header, len(shards[0]), "one.gguf")
    require_separate(header, len(shards[0]), "one.gguf", shards[0][header.data_end :])


def test_joined_models_are_recognised_and_a_longer_file_is_not(tmp_path: Path) -> None:
    """Case F12, for files that are no shards."""
    data = built(tmp_path, [8])
    header = header_of(data)
    assert refusal(lambda: require_separate(header, 2 * len(data), "two", data)).code == "model_invalid"
    require_separate(header, 2 * len(data), "two", bytes(100))
    require_separate(header, 2 * len(data), "two")


@pytest.mark.parametrize("number", [None, 3, 70_000])
def test_a_shard_that_does_not_say_which(tmp_path: Path, number: int | None) -> None:
    built(tmp_path, [8])
    gguf = read_gguf(tmp_path / "built.gguf")
    gguf.metadata["split.count"] = Value(UINT32, 3)
    if number is not None:
        gguf.metadata["split.no"] = Value(UINT32, number)
    header = header_of(gguf.write(tmp_path / "odd.gguf").read_bytes())
    assert refusal(lambda: shard_of(header)).code == "model_invalid"
