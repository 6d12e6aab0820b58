"""Speculative decoding on real models: the ids of plain decoding, fewer passes, and it gives up by itself.

Counterpart of native/engine/{speculation,ngram_drafter,model_drafter}; the scheduler's part is tested over a
fake decoder in native/tests/scheduler_drafts_test.cpp.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import HeadraceError
from headrace.native import Engine
from tests.gguf_builder import parrot, read_gguf

GREEDY = {"temperature": 0, "max_tokens": 64}
STORY = "The mill wheel turned by the river, and the river turned the mill wheel. "
PROMPTS = [
    STORY * 3 + "Once more: " + STORY[:20],
    "1, 2, 3, 4, 5, 6,",
    "Write a JSON object.",
]


def ids(model: Path, library: Path, options: dict[str, object] | None = None, **load: Any) -> list[Any]:
    draft_model = load.pop("draft_model", None)
    with Engine(
        model, {"threads": 1, "context_size": 1024, **load}, draft_model=draft_model, library=library
    ) as engine:
        return [engine.query(prompt, {**GREEDY, **(options or {})}).result() for prompt in PROMPTS]


@pytest.mark.parametrize("draft_tokens", [1, 4, 16])
@pytest.mark.parametrize("options", [{}, {"temperature": 0.9, "seed": 7}, {"stop": ["wheel turned"]}])
def test_guesses_from_the_prompt_change_nothing(
    library_path: Path, tiny_model: Path, draft_tokens: int, options: dict[str, object]
) -> None:
    plain = ids(tiny_model, library_path, options)
    drafted = ids(tiny_model, library_path, options, speculation="prompt", draft_tokens=draft_tokens)
    for expected, result in zip(plain, drafted, strict=True):
        assert result.token_ids == expected.token_ids
        assert result.text == expected.text
        assert expected.stats["speculation"] == {"drafted": 0, "accepted": 0}


def test_guesses_from_the_prompt_are_accepted_where_a_text_repeats(
    library_path: Path, demo_model: Path
) -> None:
    plain = ids(demo_model, library_path, threads=2)
    drafted = ids(demo_model, library_path, threads=2, speculation="prompt")
    assert [result.token_ids for result in drafted] == [result.token_ids for result in plain]
    # How many are tried depends on what passes cost on this machine; most of them are right.
    told = drafted[0].stats["speculation"]
    assert told["accepted"] > 0
    assert told["accepted"] >= told["drafted"] / 2


def test_a_draft_model_as_slow_as_the_model_is_right_and_still_given_up(
    library_path: Path, tiny_model: Path
) -> None:
    plain = ids(tiny_model, library_path)
    drafted = ids(tiny_model, library_path, speculation="draft", draft_model=tiny_model)
    assert [result.token_ids for result in drafted] == [result.token_ids for result in plain]
    told = [result.stats["speculation"] for result in drafted]
    assert sum(t["accepted"] for t in told) > 0
    assert sum(t["drafted"] for t in told) < sum(len(result.token_ids) for result in drafted) / 2


def test_a_draft_model_that_says_something_else_changes_nothing(
    library_path: Path, tiny_model: Path, tmp_path: Path
) -> None:
    other = read_gguf(tiny_model)
    for tensor in other.tensors:
        if "attn_q" in tensor.name or "attn_k" in tensor.name:
            tensor.data = bytes(len(tensor.data))
    draft_model = other.write(tmp_path / "deaf.gguf")
    plain = ids(tiny_model, library_path)
    drafted = ids(tiny_model, library_path, speculation="draft", draft_model=draft_model)
    assert [result.token_ids for result in drafted] == [result.token_ids for result in plain]
    assert sum(result.stats["speculation"]["drafted"] for result in drafted) > 0


def test_streams_side_by_side_each_have_their_own_guesses(library_path: Path, tiny_model: Path) -> None:
    alone = [result.token_ids for result in ids(tiny_model, library_path)]
    load = {"threads": 1, "context_size": 1024, "slots": 3, "speculation": "prompt"}

    async def together() -> list[tuple[int, ...]]:
        async with await Engine.open(tiny_model, load, library=library_path) as engine:
            runs = [engine.query(prompt, GREEDY) for prompt in PROMPTS]
            return [(await run).token_ids for run in runs]

    assert asyncio.run(together()) == alone


def test_a_draft_model_of_another_vocabulary_is_refused(
    library_path: Path, tiny_model: Path, tmp_path: Path
) -> None:
    other = parrot([b"a", b"b"]).write(tmp_path / "parrot.gguf")
    with pytest.raises(HeadraceError, match="another vocabulary") as caught:
        Engine(tiny_model, {"speculation": "draft"}, draft_model=other, library=library_path)
    assert caught.value.code == "model_invalid"


def test_a_draft_model_and_the_option_need_each_other(library_path: Path, tiny_model: Path) -> None:
    for options, draft_model in [({"speculation": "draft"}, None), ({}, tiny_model)]:
        with pytest.raises(HeadraceError, match="draftModel") as caught:
            Engine(tiny_model, options, draft_model=draft_model, library=library_path)
        assert caught.value.code == "invalid_request"
