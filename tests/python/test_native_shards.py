"""Models in several files: loaded in any order, and refused by name when they are not one whole model.

Counterparts: `native/engine/model_shards.cpp` and `model_file.cpp`; cases F10, F11, F12, F13 and F14.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from headrace.errors import HeadraceError
from headrace.native import Engine
from tests.gguf_builder import UINT16, Value, parrot, split, write_shards

CYCLE = [b"a", b"b", b"c"]
OPTIONS = {"threads": 1, "context_size": 256}

Say = Callable[..., str]


@pytest.fixture
def say(library_path: Path) -> Say:
    """What a model says, given as one path or several."""

    def say(model: str | Path | Sequence[str | Path]) -> str:
        with Engine(model, OPTIONS, library=library_path) as engine:
            return engine.query(">", {"temperature": 0, "max_tokens": 6}).result().text

    return say


def refusal(say: Say, model: Path | Sequence[Path]) -> tuple[str, str]:
    with pytest.raises(HeadraceError) as caught:
        say(model)
    return caught.value.code, caught.value.message


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_a_list_of_shards_in_any_order(say: Say, tmp_path: Path, order: tuple[int, ...]) -> None:
    """Case F10, and names that tell nothing."""
    paths = [
        path.rename(tmp_path / f"part {index}")
        for index, path in enumerate(write_shards(parrot(CYCLE), 3, tmp_path))
    ]
    assert say([paths[index] for index in order]) == "abcabc"


@pytest.mark.parametrize("chosen", [0, 1, 2])
def test_one_shard_finds_the_others_by_name(say: Say, tmp_path: Path, chosen: int) -> None:
    """Case F11."""
    assert say(write_shards(parrot(CYCLE), 3, tmp_path)[chosen]) == "abcabc"


def test_names_of_shards_on_one_whole_file_and_in_capitals(say: Say, tmp_path: Path) -> None:
    """Case F13."""
    assert say(parrot(CYCLE).write(tmp_path / "model-00001-of-00001.gguf")) == "abcabc"
    capitals = [path.rename(path.with_suffix(".GGUF")) for path in write_shards(parrot(CYCLE), 2, tmp_path)]
    assert say(capitals[1]) == "abcabc"


def test_a_first_shard_without_tensors(say: Say, tmp_path: Path) -> None:
    """As llama-gguf-split --no-tensor-first-split writes it."""
    shards = split(parrot(CYCLE), 2)
    shards[1].tensors = shards[0].tensors + shards[1].tensors
    shards[0].tensors = []
    assert say([shard.write(tmp_path / f"{index}") for index, shard in enumerate(shards)]) == "abcabc"


def test_a_missing_sibling_is_named(say: Say, tmp_path: Path) -> None:
    """Case F14."""
    paths = write_shards(parrot(CYCLE), 3, tmp_path)
    paths[1].unlink()
    code, message = refusal(say, paths[0])
    assert code == "model_not_found"
    assert message == (
        "model-00001-of-00003.gguf is shard 1 of 3, and there is no file model-00002-of-00003.gguf beside it"
    )
    code, message = refusal(say, [paths[2], paths[0]])
    assert code == "invalid_request"
    assert message == "model-00003-of-00003.gguf is shard 3 of 3: all of them are needed, missing 2"
    code, message = refusal(say, paths[0].rename(tmp_path / "model.gguf"))
    assert code == "invalid_request"
    assert message == "model.gguf is shard 1 of 3: all of them are needed, missing 2, 3"


def test_joined_shards_are_told(say: Say, tmp_path: Path) -> None:
    """Case F12."""
    paths = write_shards(parrot(CYCLE), 2, tmp_path)
    joined = tmp_path / "joined.gguf"
    joined.write_bytes(b"".join(path.read_bytes() for path in paths))
    code, message = refusal(say, joined)
    assert code == "model_invalid"
    assert message == "the file is shard 1 of 2 with others joined to it: give the shards as separate files"


def test_shards_of_different_models(say: Say, tmp_path: Path) -> None:
    two, three = (write_shards(parrot(CYCLE), count, tmp_path, f"of{count}") for count in (2, 3))
    code, message = refusal(say, [two[0], three[1]])
    assert code == "invalid_request"
    assert message.endswith("they are not of one model")
    whole = parrot(CYCLE).write(tmp_path / "whole.gguf")
    assert refusal(say, [two[0], whole])[0] == "invalid_request"
    assert refusal(say, [whole, whole])[0] == "invalid_request"
    twin = write_shards(parrot([b"x", b"yy"]), 2, tmp_path, "twin")
    twin[1].write_bytes(two[1].read_bytes()[:-4096])
    code, message = refusal(say, [two[0], twin[1]])
    assert code == "model_truncated"
    assert message.startswith("twin-00002-of-00002.gguf: the file is cut short")


@pytest.mark.parametrize("key", ["split.no", "split.count"])
def test_numbers_of_another_type_are_refused(say: Say, tmp_path: Path, key: str) -> None:
    shards = split(parrot(CYCLE), 2)
    shards[0].metadata[key] = Value(4, shards[0].metadata[key].data)
    paths = [shard.write(tmp_path / f"{index}.gguf") for index, shard in enumerate(shards)]
    assert refusal(say, paths) == ("model_invalid", f"0.gguf: the file's {key} is no 16-bit number")


def test_a_number_past_the_count_is_refused(say: Say, tmp_path: Path) -> None:
    shards = split(parrot(CYCLE), 2)
    shards[1].metadata["split.no"] = Value(UINT16, 2)
    paths = [shard.write(tmp_path / f"{index}.gguf") for index, shard in enumerate(shards)]
    code, message = refusal(say, paths)
    assert code == "model_invalid"
    assert re.search(r"one of 2 shards, but does not say which", message)


def test_a_shard_that_was_replaced_gets_no_old_snapshots(library_path: Path, tmp_path: Path) -> None:
    """Case H3: every shard's bytes count, also of those that were found by name."""
    folder = tmp_path / "snapshots"
    prompt = "abc" * 40

    def source(model: Path) -> str:
        options = {**OPTIONS, "prefix_cache_folder": str(folder)}
        with Engine(model, options, library=library_path) as engine:
            result = engine.query(prompt, {"temperature": 0, "max_tokens": 1}).result()
        return str(result.stats["cache"]["source"])

    folder.mkdir()
    paths = write_shards(parrot(CYCLE), 2, tmp_path)
    assert [source(paths[0]), source(paths[0])] == ["none", "disk"]
    data = bytearray(paths[1].read_bytes())
    data[-1] ^= 1  # within the last tensor, or its padding: other bytes, whatever they mean
    paths[1].write_bytes(data)
    assert source(paths[0]) == "none"


def test_the_list_is_checked_before_anything_is_opened(say: Say, tmp_path: Path) -> None:
    assert refusal(say, []) == ("invalid_request", "model must hold a path at least")
    assert refusal(say, [tmp_path / "a\0b"])[0] == "model_not_found"
    assert refusal(say, [tmp_path / "none.gguf"])[0] == "model_not_found"


def test_memory_tells_what_the_model_occupies(library_path: Path, tmp_path: Path) -> None:
    model = parrot(CYCLE)
    tensors = sum(len(tensor.data) for tensor in model.tensors)
    with Engine(model.write(tmp_path / "m.gguf"), OPTIONS, library=library_path) as engine:
        memory = dict(engine.memory)
    with Engine(tmp_path / "m.gguf", {**OPTIONS, "context_size": 512}, library=library_path) as engine:
        larger = dict(engine.memory)
    assert tensors <= memory["model_bytes"] < tensors + 65536
    # One layer with one head of 32 numbers, 16 bits each, for keys and values.
    assert memory["context_bytes"] == 256 * 2 * 32 * 2
    assert larger["context_bytes"] == 2 * memory["context_bytes"]
    assert memory["compute_bytes"] > 0
