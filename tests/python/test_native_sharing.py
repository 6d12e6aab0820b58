"""Requests that share an engine: who waits, who advances, and what is computed only once.

Cases G4, G6, H2, H3, H4. Counterparts: `native/engine/scheduler.cpp` and `kv_cache.cpp`, whose own tests use
a fake decoder; here are the real one and trained models.
"""

import os
import statistics
import threading
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import HeadraceError
from headrace.native import Engine
from headrace.wire import Message
from tests.gguf_builder import parrot
from tests.python.conftest import OpenEngine, OpenWire

GREEDY = {"temperature": 0}
CYCLE = [b"a", b"b", b"c"]
RULES = [f"Rule {number}: never mention number {number}." for number in range(90)]
"""Each about eleven tokens, all of them more than a thousand; the tests that only count make do with some."""

QUESTIONS = ["What is water?", "Name a colour.", "Who are you?"]


def conversation(question: str, rules: list[str]) -> list[Message]:
    return [{"role": "system", "content": " ".join(rules)}, {"role": "user", "content": question}]


def talk(question: int) -> list[Message]:
    return conversation(QUESTIONS[question], RULES[:12])


def metrics(engine: Engine) -> Mapping[str, Any]:
    return engine.metrics().result()


def test_one_more_request_than_slots_waits_and_is_answered(open_engine: OpenEngine) -> None:
    """Case G4: N+1 on N slots, with each answer its own."""
    slots = 4
    engine = open_engine(parrot(CYCLE), context_size=256, slots=slots)
    runs = [
        engine.query("x" * index + ">", GREEDY | {"max_tokens": 100 + index}) for index in range(slots + 1)
    ]
    for index, run in enumerate(runs):
        assert run.result().text == ("abc" * 40)[: 100 + index]
    told = metrics(engine)
    assert (told["finished"], told["running"], told["waiting"]) == (slots + 1, 0, 0)


def test_engines_open_while_others_open_and_run(
    open_engine: OpenEngine, library_path: Path, tmp_path: Path
) -> None:
    """Case G4: add during add, while somebody else's request runs; close during generate."""
    path = parrot(CYCLE).write(tmp_path / "shared.gguf")
    first = open_engine(path, context_size=4096)
    running = first.query(">", GREEDY | {"max_tokens": 4000})
    engines: list[Engine] = []

    def open_one() -> None:
        engines.append(Engine(path, {"threads": 1, "context_size": 256}, library=library_path))

    openers = [threading.Thread(target=open_one) for _ in range(3)]
    for opener in openers:
        opener.start()
    for opener in openers:
        opener.join(60)
    assert len(engines) == 3
    answers = [engine.query(">", GREEDY | {"max_tokens": 200}) for engine in engines]
    engines[0].close()
    with pytest.raises(HeadraceError) as caught:
        engines[0].query(">")
    assert caught.value.code == "engine_closed"
    assert answers[0].finished, "answered, or ended by the close"
    for answer in answers[1:]:
        assert answer.result().text == ("abc" * 67)[:200]
    for engine in engines:
        engine.close()
    assert running.result().text == ("abc" * 1334)[:4000]


def test_streams_and_a_long_prompt_all_advance(open_wire: OpenWire, demo_model: Path) -> None:
    """Case H2: three streams get a token each in every pass, also while a long prompt is computed."""
    engine = open_wire(demo_model, slots=4, threads=2, contextSize=1024)
    options = {"temperature": 0, "maxTokens": 400, "logitBias": {"0": -100, "2": -100}}
    streams = [engine.submit("query", prompt=f"{n}. Once upon a", options=options) for n in range(3)]
    spoken: Counter[int] = Counter()
    while len(spoken) < 3:
        engine.tick()
        spoken.update(event["id"] for event in engine.events() if event["type"] == "tokens")

    prompt = engine.submit("query", prompt="the quick brown fox " * 40, options=options | {"maxTokens": 1})
    spoken.clear()
    computed, passes = [], 0
    done: list[int] = []
    while prompt not in done and passes < 300:
        assert engine.tick() > 0
        passes += 1
        for event in engine.events():
            if event["type"] == "tokens":
                spoken[event["id"]] += len(event["tokenIds"])
            elif event["type"] == "done":
                done.append(event["id"])
        if passes % 10 == 0:
            computed.append(engine.ask("metrics")["prefillTokens"])
    assert done == [prompt], "the prompt was computed while every stream went on"
    assert passes > 5, "in more than a few passes, or nothing was tried"
    # One pass, the last, may hold its tokens back to the next tick.
    assert {spoken[stream] for stream in streams} <= {passes - 1, passes, passes + 1}
    assert computed == sorted(set(computed)), "each ten passes the prompt has moved on"


def test_what_is_skipped_is_really_not_computed(open_engine: OpenEngine, demo_model: Path) -> None:
    """Case G6: what the result says was cached is missing from the engine's own count of decoded tokens."""
    engine = open_engine(demo_model, context_size=2048, threads=2)
    options = GREEDY | {"max_tokens": 4, "context_key": "a"}
    before = metrics(engine)["prefill_tokens"]
    texts = []
    for use in range(2):
        result = engine.chat(talk(0), options).result()
        texts.append(result.text)
        after = metrics(engine)["prefill_tokens"]
        assert after - before == result.usage.input_tokens - result.usage.cached_tokens
        assert (result.usage.cached_tokens > 120) == (use == 1)
        before = after
    assert texts[0] == texts[1]


def test_a_system_prompt_is_paid_once(open_engine: OpenEngine, demo_model: Path) -> None:
    """Case H4: under another context key only the other question is computed, and the answer is the same."""
    engine = open_engine(demo_model, context_size=2048, slots=2, threads=2)
    options = GREEDY | {"max_tokens": 8}
    engine.chat(talk(0), options | {"context_key": "first"}).result()
    before = metrics(engine)
    second = engine.chat(talk(1), options | {"context_key": "second"}).result()
    after = metrics(engine)
    assert after["prefill_tokens"] - before["prefill_tokens"] < 30
    assert after["cached_tokens"] - before["cached_tokens"] > 120
    cold = open_engine(demo_model, context_size=2048, slots=2, threads=2)
    assert cold.chat(talk(1), options).result().text == second.text


def test_a_warm_prefix_answers_at_once(open_engine: OpenEngine, demo_model: Path, tmp_path: Path) -> None:
    """Case H4 by the clock: the time to the first token after a prefix of 1,000 tokens, of three tries each.

    The one test here that looks at the clock: computing the whole takes fifty times as long as its end.
    """

    def open_one() -> Engine:
        options = {"context_size": 2048, "slots": 2, "threads": 2, "prefix_cache_folder": str(tmp_path / "s")}
        return open_engine(demo_model, **options)

    def ask(engine: Engine, question: str, attempt: int, key: str) -> str:
        options = GREEDY | {"max_tokens": 1, "context_key": f"{key} {attempt}"}
        rules = [f"Talk {attempt}.", *RULES]
        result = engine.chat(conversation(question, rules), options).result()
        assert result.usage.input_tokens > 1000
        source = str(result.stats["cache"]["source"])
        took[source].append(result.stats["ttft_ms"])
        return source if result.usage.cached_tokens > 1000 else "none"

    took: defaultdict[str, list[float]] = defaultdict(list)
    engine = open_one()
    for attempt in range(3):
        assert ask(engine, QUESTIONS[0], attempt, "first") == "none"
        assert ask(engine, QUESTIONS[1], attempt, "first") == "live"
        assert ask(engine, QUESTIONS[2], attempt, "second") == "prefix"
        engine.close()
        engine = open_one()
        assert ask(engine, QUESTIONS[1], attempt, "third") == "disk"
    cold = statistics.median(took["none"])
    for source in ("live", "prefix", "disk"):
        assert statistics.median(took[source]) <= 0.15 * cold, took


@pytest.mark.parametrize("touched", [False, True])
def test_a_replaced_file_is_not_answered_from_the_old_one_s_state(
    library_path: Path, tmp_path: Path, touched: bool
) -> None:
    """Case H3: the same path, size and time, another model; its snapshots are its own."""
    path, folder = tmp_path / "model.gguf", str(tmp_path / "snapshots")
    options = {"threads": 1, "context_size": 256, "prefix_cache_folder": folder}
    prompt = "a long prompt " * 10

    def ask() -> tuple[str, str]:
        with Engine(path, options, library=library_path) as engine:
            result = engine.query(prompt, GREEDY | {"max_tokens": 6}).result()
            return result.text, result.stats["cache"]["source"]

    parrot([b"a", b"b", b"c"]).write(path)
    stat = path.stat()
    assert ask() == ("abcabc", "none")
    assert ask() == ("abcabc", "disk")
    content = parrot([b"x", b"y", b"z"]).write(tmp_path / "other.gguf").read_bytes()
    assert len(content) == stat.st_size
    with path.open("r+b") as file:
        file.write(content)
    if not touched:
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        assert (path.stat().st_mtime_ns, path.stat().st_ino) == (stat.st_mtime_ns, stat.st_ino)
    assert ask() == ("xyzxyz", "none")
    assert ask() == ("xyzxyz", "disk")
