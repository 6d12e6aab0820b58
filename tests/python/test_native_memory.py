"""The KV cache manager on every kind of memory that llama.cpp has: only what is valid is reused.

Counterpart: `native/engine/kv_cache.cpp` and `prefix_store.cpp`, whose decisions native/tests/ checks on a
fake decoder. Here real states are saved, restored, cut and shifted; the measure is always an engine that was
opened for the prompt and remembers nothing. Files of snapshots: test_native_memory_folder.py; random orders
of events: test_native_memory_random.py.
"""

import math
from contextlib import closing

import pytest

from headrace.errors import HeadraceError
from headrace.wire import decode_result, encode_names
from tests.memory_models import TOLERANCES
from tests.python.memory_cases import (
    OPTIONS,
    STATEFUL,
    TOKENS,
    WINDOWED,
    Bench,
    Kind,
    ask,
    bench,
    each_kind,
    each_model,
    memory_folder,
    source,
    start,
    words,
)
from tests.python.wire_engine import WireEngine

__all__ = ["bench", "memory_folder"]

COMMON = words(1, 60)
FIRST = COMMON + words(2, 40)
SECOND = COMMON + words(3, 40)
THIRD = COMMON + words(4, 40)


@each_model
def test_the_models_depend_on_their_whole_reach(bench: Bench, model: str) -> None:
    """Else nothing here proves anything. The first token counts; with windows only, one in the window."""
    at = 80 if model == "hybrid_sliding" else 0
    changed = FIRST[:at] + ("A" if FIRST[at] != "A" else "B") + FIRST[at + 1 :]
    expected, other = bench.cold(model, FIRST), bench.cold(model, changed)
    assert expected.logprobs is not None
    assert other.logprobs is not None
    differences = [abs(a.logprob - b.logprob) for a, b in zip(expected.logprobs, other.logprobs, strict=True)]
    assert max(differences) > 4 * TOLERANCES[model]
    assert len(set(expected.token_ids)) > 2


@each_kind
def test_the_same_prompt_again_costs_one_token(bench: Bench, kind: Kind) -> None:
    engine = bench.open(kind, slots=2)
    first = ask(engine, FIRST, "one")
    assert (source(first), first.usage.cached_tokens) == ("none", 0)
    bench.check(kind, first, FIRST)
    for key in ("one", "two", ""):
        again = ask(engine, FIRST, key)
        assert again.usage.cached_tokens == len(FIRST) - 1, key
        goes_back = kind.model not in STATEFUL and not kind.sliding
        # No key takes the sequence that is missed least: the first one's, which has all of it.
        assert source(again) == ("live" if key != "two" and goes_back else "prefix"), key
        bench.check(kind, again, FIRST)


@each_kind
def test_a_common_beginning_is_computed_once(bench: Bench, kind: Kind) -> None:
    """A state that cannot be cut serves from the third prompt on: the second leaves one at the parting."""
    engine = bench.open(kind, slots=2)
    ask(engine, FIRST, "one")
    second = ask(engine, SECOND, "two")
    assert second.usage.cached_tokens == (len(COMMON) if kind.model == "plain" else 0)
    bench.check(kind, second, SECOND)
    third = ask(engine, THIRD, "three")
    assert third.usage.cached_tokens == len(COMMON)
    assert source(third) in (("prefix",) if kind.model in STATEFUL else ("live", "prefix"))
    bench.check(kind, third, THIRD)


@each_kind
def test_a_conversation_goes_on_where_it_was(bench: Bench, kind: Kind) -> None:
    engine = bench.open(kind, slots=2)
    prompt, known = FIRST, 0
    for turn in range(4):
        answer = ask(engine, prompt, "talk")
        bench.check(kind, answer, prompt)
        assert source(answer) == ("none" if turn == 0 else "live")
        assert answer.usage.cached_tokens == known
        known = len(prompt) + TOKENS - 1  # the last token was sampled, not computed
        prompt += answer.text + words(10 + turn, 20)


@each_kind
def test_going_back_in_a_conversation_is_never_wrong(bench: Bench, kind: Kind) -> None:
    """To every length, also where the window has moved on."""
    engine = bench.open(kind, slots=2)
    whole = FIRST
    for turn in range(3):
        whole += ask(engine, whole, "talk").text + words(20 + turn, 30)
    ask(engine, whole, "talk")
    for back in (1, 2, 10, 15, 16, 17, 18, 40, 70, 100, 150, len(whole) - 5):
        for fresh in ("", words(30 + back, 12)):
            prompt = whole[: len(whole) - back] + fresh
            answer = ask(engine, prompt, "talk")
            bench.check(kind, answer, prompt)
    bench.check(kind, ask(engine, whole, "talk"), whole)


@each_kind
def test_what_was_evicted_comes_back_from_its_snapshot(bench: Bench, kind: Kind) -> None:
    engine = bench.open(kind, slots=1)
    answer = ask(engine, FIRST, "one")
    for number in range(3):
        other = words(40 + number, 90)
        bench.check(kind, ask(engine, other, f"other {number}"), other)
    longer = FIRST + answer.text + words(50, 20)
    back = ask(engine, longer, "one")
    assert source(back) == "prefix"
    assert back.usage.cached_tokens >= len(FIRST) - 1
    bench.check(kind, back, longer)


@each_kind
def test_going_back_behind_a_restored_snapshot_is_never_wrong(bench: Bench, kind: Kind) -> None:
    """Of a window it holds nothing but the end."""
    engine = bench.open(kind, slots=1)
    for back in (1, 14, 15, 16, 17, 30, 70):
        ask(engine, FIRST, "one")
        ask(engine, words(41, 90), "two")
        restored = ask(engine, FIRST + words(back, 20), "one", max_tokens=1)
        assert source(restored) == "prefix"
        prompt = FIRST[:-back] + words(42 + back, 5)
        bench.check(kind, ask(engine, prompt, "one"), prompt)


@each_kind
def test_slots_side_by_side_answer_as_alone(bench: Bench, kind: Kind) -> None:
    engine = bench.open(kind, slots=4, batch_size=32)
    prompts = [FIRST, words(60, 17), SECOND, words(61, 130), THIRD, words(62, 50), FIRST]
    for _ in range(2):
        runs = [start(engine, prompt, f"key {number}") for number, prompt in enumerate(prompts)]
        for prompt, run in zip(prompts, runs, strict=True):
            bench.check(kind, run.result(), prompt)


@each_kind
@pytest.mark.parametrize("steps", [1, 7, 100])
def test_a_cancelled_prefill_leaves_nothing_wrong(bench: Bench, kind: Kind, steps: int) -> None:
    """Step by step, so that the cancel comes in the middle on machines of any speed."""
    load = encode_names({"context_size": 512, "slots": 2, "batch_size": 2, **kind.options})
    prompt = words(200, 450)
    request = {"prompt": prompt, "options": encode_names(OPTIONS | {"context_key": "one"})}
    with closing(WireEngine(bench.library, bench.path(kind.model), **load)) as engine:
        cancelled = engine.submit("query", **request)
        for _ in range(steps):
            engine.tick()
        engine.cancel(cancelled)
        assert engine.wait(cancelled)["finishReason"] == "cancelled"
        answer = decode_result(engine.ask("query", **request))
    bench.check(kind, answer, prompt)
    assert 0 < answer.usage.cached_tokens < 449


_TWO = ((FIRST, "one"), (SECOND, "two"))


@each_kind
def test_a_full_context_slides_or_is_refused(bench: Bench, kind: Kind) -> None:
    engine = bench.open(kind, slots=2, context_size=128)
    if kind.model in STATEFUL or kind.sliding:
        with pytest.raises(HeadraceError) as caught:
            ask(engine, FIRST, overflow="shift")
        assert caught.value.code == "invalid_option"
        assert "overflow" in caught.value.message
        return
    runs = [start(engine, prompt, key, overflow="shift", max_tokens=500) for prompt, key in _TWO]
    for run in runs:
        result = run.result()
        assert result.stats["shifted"] > 4 * 48, "it was full several times"
        assert result.usage.output_tokens == 500
        assert result.logprobs is not None
        assert all(math.isfinite(token.logprob) for token in result.logprobs)
        # Neither random nor frozen: about as sure of itself as before it slid.
        before = sum(token.logprob for token in result.logprobs[:28]) / 28
        after = sum(token.logprob for token in result.logprobs[-100:]) / 100
        assert after > 3 * before - 0.5
    # What has slid is the state of no text: only the part before the gap may serve.
    text = runs[0].result().text
    for prompt in (FIRST, FIRST + text[:20], FIRST + text[-20:]):
        bench.check(kind, ask(engine, prompt, "one", max_tokens=4), prompt, tokens=4)


@each_kind
def test_guesses_change_nothing(bench: Bench, kind: Kind) -> None:
    engine = bench.open(kind, slots=2, speculation="prompt", batch_size=64)
    block = words(80, 12)
    prompts = [block * 8, FIRST + FIRST[:50], SECOND]
    drafted = 0
    for _ in range(2):
        runs = [start(engine, prompt, f"key {n}", max_tokens=60) for n, prompt in enumerate(prompts)]
        for prompt, run in zip(prompts, runs, strict=True):
            result = run.result()
            drafted += result.stats["speculation"]["drafted"]
            bench.check(kind, result, prompt, tokens=60)
    goes_back = kind.model not in STATEFUL and not kind.sliding
    assert (drafted > 0) == goes_back


@each_kind
def test_all_contexts_can_be_full_at_once(bench: Bench, kind: Kind) -> None:
    """Of a unified cache too: nothing that is left over from before may take the place."""
    engine = bench.open(kind, slots=4, context_size=128, batch_size=16)  # 512: llama.cpp adds nothing to it
    for turn in range(3):
        prompts = [words(300 + 10 * turn + number, 100 + number) for number in range(4)]
        runs = [start(engine, prompt, f"key {n}", max_tokens=200) for n, prompt in enumerate(prompts)]
        for prompt, run in zip(prompts, runs, strict=True):
            result = run.result()
            assert result.finish_reason == "length"
            assert len(prompt) + result.usage.output_tokens in (128, 129)
            tokens = result.usage.output_tokens
            bench.check(kind, result, prompt, tokens=tokens)


@each_kind
@pytest.mark.parametrize("budget", [0, 1000, 40_000, 120_000])
def test_any_budget_of_the_store_is_right(bench: Bench, kind: Kind, budget: int) -> None:
    engine = bench.open(kind, slots=1, prefix_cache_bytes=budget)
    for turn in range(2):
        for number, prompt in enumerate((FIRST, SECOND, THIRD)):
            answer = ask(engine, prompt, f"key {number}")
            bench.check(kind, answer, prompt)
            if budget <= 1000:
                assert source(answer) in ("none", "live"), turn


def test_windows_are_named() -> None:
    assert set(WINDOWED) == {"sliding", "hybrid_sliding"}
