"""Requests with options in random combination, side by side, answer as each does alone; a storm of cancels.

Counterparts: `native/engine/scheduler.cpp`, `kv_cache.cpp` and `speculation.cpp` together. Commands in random
order are tested in `native/soak/`, which does not look at what is answered.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headrace.errors import HeadraceError
from headrace.native import Engine
from headrace.wire import Adapter, Message, Result
from tests.gguf_builder import parrot
from tests.lora_builder import lora
from tests.python.conftest import OpenEngine

QUESTIONS = ["Hello!", "Tell me a story.", "What is two plus two?", "Count to ten."]
GRAMMAR = 'root ::= ([0-9a-zA-Z .,!]+ "\\n"?)+'
REQUESTS = 24

TIE = 0.2
"""Two tokens this close in log probability may change places when sums are rounded in another order."""

Options = dict[str, Any]


def options(random: Random) -> Options:
    """What decides the answer."""
    chosen: Options = {"temperature": 0, "logprobs": True, "max_tokens": random.choice([1, 5, 40, 100])}
    for share, name, values in (
        (0.4, "grammar", [GRAMMAR]),
        (0.3, "stop", [["the", "time"], [" a", "robot"], ["four"]]),
        (0.4, "adapters", [["loud"], ["other"], ["loud", "other:0.5"]]),
        (0.3, "overflow", ["shift"]),
        (0.2, "logit_bias", [{"314": -100}]),
    ):
        if random.random() < share:
            chosen[name] = random.choice(values)
    return chosen


def circumstances(random: Random) -> Options:
    """What does not."""
    chosen: Options = {"priority": random.randint(-100, 100)}
    if random.random() < 0.5:
        chosen["context_key"] = random.choice("abc")
    if random.random() < 0.3:
        chosen["deadline_ms"] = 86_400_000
    return chosen


def assert_same(one: Result, other: Result) -> None:
    """Equal, or different only from a tie on."""
    for ours, theirs in zip(one.logprobs or (), other.logprobs or (), strict=False):
        if ours.token_id != theirs.token_id:
            assert abs(ours.logprob - theirs.logprob) < TIE, (one.text, other.text)
            return
    assert (one.text, one.token_ids, one.finish_reason) == (other.text, other.token_ids, other.finish_reason)


@pytest.mark.parametrize("context_size", [64, 256])
@pytest.mark.parametrize(
    "load",
    [
        {"slots": 4, "speculation": "prompt", "draft_tokens": 64, "batch_size": 8},
        {"slots": 64},
        {"slots": 1, "batch_size": 1, "prefix_cache_bytes": 1},
    ],
    ids=["drafts", "slots", "small"],
)
def test_any_combination_answers_as_it_does_alone(
    library_path: Path, tiny_model: Path, tmp_path: Path, load: Mapping[str, Any], context_size: int
) -> None:
    files = {name: lora(tiny_model, seed=seed) for seed, name in enumerate(("loud", "other"))}
    adapters: list[Adapter] = [
        {"name": name, "path": str(gguf.write(tmp_path / f"{name}.gguf"))} for name, gguf in files.items()
    ]

    def open_one(**load: Any) -> Engine:
        common = {"threads": 1, "context_size": context_size}
        return Engine(tiny_model, common | load, adapters=adapters, library=library_path)

    random = Random(context_size)
    requests: list[tuple[Sequence[Message], Options]] = [
        ([{"role": "user", "content": random.choice(QUESTIONS)}], options(random)) for _ in range(REQUESTS)
    ]
    with open_one(prefix_cache_bytes=0) as plain, open_one(**load) as engine:
        alone = [plain.chat(messages, chosen).result() for messages, chosen in requests]
        runs = [engine.chat(messages, chosen | circumstances(random)) for messages, chosen in requests]
        embedding = engine.embed(QUESTIONS)
        for run, expected in zip(runs, alone, strict=True):
            assert_same(run.result(), expected)
        assert len(embedding.result().vectors) == len(QUESTIONS)


def test_a_storm_of_requests_and_cancels_loses_none(open_engine: OpenEngine) -> None:
    """1,000 at once, half of them cancelled at random moments; then the engine is idle and answers."""
    engine = open_engine(parrot([b"a", b"b", b"c"]), context_size=128, slots=4, queue_limit=500)
    random = Random(1)
    ends: Counter[str] = Counter()

    async def ask() -> str:
        chosen: Options = {"temperature": 0, "max_tokens": 30} | circumstances(random)
        if random.random() < 0.1:
            chosen["deadline_ms"] = random.choice([1, 5, 50])
        run = engine.query(">", chosen)
        if random.random() < 0.5:
            await asyncio.sleep(random.choice([0, 0, 0.001, 0.1]))
            run.cancel()
        try:
            result = await run
        except HeadraceError as error:
            return error.code
        assert ("abc" * 10).startswith(result.text)
        assert result.finish_reason == "cancelled" or len(result.text) == 30
        return result.finish_reason

    async def ask_all() -> None:
        ends.update(await asyncio.gather(*(ask() for _ in range(1000))))

    asyncio.run(asyncio.wait_for(ask_all(), 60))
    assert sum(ends.values()) == 1000
    assert set(ends) <= {"length", "cancelled", "queue_full", "deadline_exceeded"}
    assert min(ends["length"], ends["cancelled"]) > 0
    told = engine.metrics().result()
    assert (told["running"], told["waiting"]) == (0, 0)
    assert told["accepted"] == told["finished"] + told["cancelled"] + told["failed"]
    assert engine.query(">", {"temperature": 0, "max_tokens": 3}).result().text == "abc"
