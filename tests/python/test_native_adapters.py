"""LoRA adapters on the native engine: loaded by name, scaled, chosen per request, never mixed up.

Counterpart of native/engine/intake.cpp (`find_adapters`) and llama_decoder.cpp; the adapters are random, made
by tests/lora_builder.py.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import HeadraceError
from headrace.native import Engine
from headrace.wire import Message
from tests.gguf_builder import FLOAT32, Value
from tests.lora_builder import lora

HELLO: list[Message] = [{"role": "user", "content": "Hello!"}]
GREEDY = {"temperature": 0, "max_tokens": 16}
LOAD = {"threads": 1, "context_size": 512, "slots": 3}


@pytest.fixture(scope="module")
def files(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("adapters")
    return {
        "loud": lora(tiny_model, strength=3).write(folder / "loud.gguf"),
        "other": lora(tiny_model, strength=3, seed=2).write(folder / "other.gguf"),
        "silent": lora(tiny_model, strength=0).write(folder / "silent.gguf"),
        "foreign": lora(tiny_model, architecture="llama").write(folder / "foreign.gguf"),
    }


@pytest.fixture
def engine(library_path: Path, tiny_model: Path, files: dict[str, Path]) -> Iterator[Engine]:
    adapters = [{"name": name, "path": str(files[name])} for name in ("loud", "other", "silent")]
    with Engine(tiny_model, LOAD, adapters=adapters, library=library_path) as engine:  # type: ignore[arg-type]
        yield engine


def answer(engine: Engine, *adapters: str, **options: Any) -> tuple[int, ...]:
    return engine.chat(HELLO, {**GREEDY, "adapters": list(adapters), **options}).result().token_ids


def test_an_adapter_changes_the_answer_only_of_requests_that_ask_for_it(engine: Engine) -> None:
    plain = answer(engine)
    assert answer(engine, "loud") != plain
    assert answer(engine, "other") != answer(engine, "loud")
    assert answer(engine, "silent") == plain
    assert answer(engine) == plain


def test_the_scale_counts(engine: Engine) -> None:
    plain = answer(engine)
    assert answer(engine, "loud:0") == plain
    assert answer(engine, "loud:1") == answer(engine, "loud")
    assert answer(engine, "loud:2.5") != answer(engine, "loud")
    assert answer(engine, "loud", "other") != answer(engine, "loud")


def test_requests_with_different_adapters_run_side_by_side_and_get_their_own_answer(engine: Engine) -> None:
    choices: list[list[str]] = [[], ["loud"], ["other"], ["loud:0.5"], ["loud"], []]
    alone = [answer(engine, *choice) for choice in choices]

    async def together() -> list[tuple[int, ...]]:
        runs = [engine.chat(HELLO, {**GREEDY, "adapters": choice}) for choice in choices]
        return [(await run).token_ids for run in runs]

    assert asyncio.run(together()) == alone


def test_a_context_key_never_continues_what_was_computed_with_other_adapters(engine: Engine) -> None:
    plain, loud = answer(engine), answer(engine, "loud")
    for adapters, expected in [([], plain), (["loud"], loud), ([], plain), (["loud"], loud)]:
        run = engine.chat(HELLO, {**GREEDY, "adapters": adapters, "context_key": "same"})
        assert run.result().token_ids == expected


@pytest.mark.parametrize(("wanted", "complaint"), [("nobody", "none was loaded"), ("loud:big", "no number")])
def test_an_adapter_that_is_not_there_is_refused_by_name(engine: Engine, wanted: str, complaint: str) -> None:
    with pytest.raises(HeadraceError, match=complaint) as caught:
        answer(engine, wanted)
    assert caught.value.code == "invalid_option"
    assert caught.value.detail["option"] == "adapters"
    assert answer(engine)


@pytest.mark.parametrize("name", ["foreign", "missing", "same"])
def test_a_file_that_is_no_adapter_of_this_model_ends_the_load(
    library_path: Path, tiny_model: Path, files: dict[str, Path], tmp_path: Path, name: str
) -> None:
    path = {"foreign": files["foreign"], "missing": tmp_path / "nowhere.gguf", "same": tiny_model}[name]
    with pytest.raises(HeadraceError) as caught:
        Engine(tiny_model, LOAD, adapters=[{"name": "x", "path": str(path)}], library=library_path)
    assert caught.value.code in ("model_invalid", "model_not_found")
    assert "adapter" in caught.value.message


@pytest.mark.parametrize("alpha", [float("nan"), float("inf")])
def test_an_adapter_whose_scale_is_no_number_ends_the_load(
    library_path: Path, tiny_model: Path, tmp_path: Path, alpha: float
) -> None:
    """Its answers would be nonsense without any sign of it."""
    gguf = lora(tiny_model)
    gguf.metadata["adapter.lora.alpha"] = Value(FLOAT32, alpha)
    path = gguf.write(tmp_path / "adapter.gguf")
    with pytest.raises(HeadraceError, match="alpha") as caught:
        Engine(tiny_model, LOAD, adapters=[{"name": "x", "path": str(path)}], library=library_path)
    assert caught.value.code == "model_invalid"


@pytest.mark.parametrize("scale", [1e39, -1e300])
def test_a_scale_that_no_float_holds_is_refused(
    library_path: Path, tiny_model: Path, files: dict[str, Path], scale: float
) -> None:
    adapters = [{"name": "x", "path": str(files["loud"]), "scale": scale}]
    with pytest.raises(HeadraceError, match="finite") as caught:
        Engine(tiny_model, LOAD, adapters=adapters, library=library_path)  # type: ignore[arg-type]
    assert caught.value.code == "invalid_request"


def test_two_adapters_need_two_names(library_path: Path, tiny_model: Path, files: dict[str, Path]) -> None:
    twice = [{"name": "x", "path": str(files["loud"])}] * 2
    with pytest.raises(HeadraceError, match="a name of its own") as caught:
        Engine(tiny_model, LOAD, adapters=twice, library=library_path)  # type: ignore[arg-type]
    assert caught.value.code == "invalid_request"
