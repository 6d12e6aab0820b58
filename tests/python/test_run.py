"""headrace/run.py: replies and runs as plain callers and coroutines see them, the same for both.

On a fake engine where timing matters; what only coroutines can do is in test_native_async.py.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace.errors import HeadraceError
from headrace.native import Engine
from headrace.run import Reply, Run
from headrace.wire import Message, TokenBatch
from tests.gguf_builder import parrot
from tests.python.conftest import Caller, OpenEngine, OpenFake, put_in_place
from tests.python.fake_engine import FakeEngine

pytestmark = pytest.mark.timeout(60)

HELLO: list[Message] = [{"role": "user", "content": "Hello!"}]
GREEDY = {"temperature": 0}


def test_batches_and_the_result_agree(engine: Engine, caller: Caller) -> None:
    batches: list[TokenBatch] = []

    def see(batch: TokenBatch) -> bool:
        batches.append(batch)
        return True

    run = caller.read(lambda: engine.chat(HELLO, GREEDY), see)
    result = caller.answer(lambda: run)
    assert "".join(batch.text for batch in batches) == result.text
    assert result.text == "Hello! I am a tiny mixture of experts model made for tests."
    assert run.finished
    assert run.prompt_tokens == result.usage.input_tokens > 0
    assert run.options["temperature"] == 0


def test_what_the_engine_refuses_is_raised(engine: Engine, caller: Caller) -> None:
    for use in (caller.answer, caller.read):
        with pytest.raises(HeadraceError) as caught:
            use(lambda: engine.chat(HELLO, {"max_token": 3}))
        assert caught.value.code == "invalid_option"
    assert caller.answer(lambda: engine.chat(HELLO, GREEDY)).text.startswith("Hello!")


def test_leaving_the_loop_early_frees_the_slot(open_engine: OpenEngine, caller: Caller) -> None:
    engine = open_engine(parrot([b"a", b"b", b"c"]), context_size=4096, slots=1)
    run = caller.read(lambda: engine.query(">", GREEDY | {"max_tokens": 4000}), lambda _batch: False)
    assert caller.answer(lambda: engine.query(">", GREEDY | {"max_tokens": 3})).text == "abc"
    assert caller.answer(lambda: run).finish_reason == "cancelled"


def test_a_reader_that_throws_frees_the_slot(open_fake: OpenFake, caller: Caller) -> None:
    engine = open_fake(FakeEngine())
    runs: list[Run] = []

    def ask() -> Run:
        runs.append(engine.query("a"))
        return runs[0]

    def throw(_batch: TokenBatch) -> bool:
        raise RuntimeError("an error of the reader")

    with pytest.raises(RuntimeError, match="of the reader"):
        caller.read(ask, throw)
    assert caller.answer(lambda: runs[0]).finish_reason == "cancelled"


@pytest.mark.parametrize("use", ["answer", "read"])
def test_closing_ends_whoever_waits(open_fake: OpenFake, caller: Caller, use: str) -> None:
    engine = open_fake(FakeEngine())
    threading.Timer(0.05, engine.close).start()
    with pytest.raises(HeadraceError) as caught:
        getattr(caller, use)(lambda: engine.query("a"))
    assert caught.value.code == "engine_closed"


def test_batches_before_an_error_are_not_lost(open_fake: OpenFake, caller: Caller) -> None:
    engine = open_fake(FakeEngine())
    seen: list[TokenBatch] = []

    def see(batch: TokenBatch) -> bool:
        seen.append(batch)
        engine.close()
        return True

    with pytest.raises(HeadraceError) as caught:
        caller.read(lambda: engine.query("a"), see)
    assert caught.value.code == "engine_closed"
    assert seen
    assert {batch.text for batch in seen} == {"a"}


def test_a_run_may_be_waited_for_again_and_elsewhere(open_fake: OpenFake, caller: Caller) -> None:
    engine = open_fake(FakeEngine(length=3))
    run = caller.read(lambda: engine.query("a"))
    assert caller.answer(lambda: run) == caller.answer(lambda: run) == run.result()
    told: list[str] = []
    thread = threading.Thread(target=lambda: told.append(caller.answer(lambda: run).text))
    thread.start()
    thread.join()
    assert told == ["aaa"]


def test_readers_in_several_threads_do_not_disturb_each_other(open_fake: OpenFake, caller: Caller) -> None:
    engine = open_fake(FakeEngine(length=20))
    texts: list[str] = []

    def use() -> None:
        shown: list[str] = []

        def see(batch: TokenBatch) -> bool:
            shown.append(batch.text)
            return True

        caller.read(lambda: engine.query("a"), see)
        texts.append("".join(shown))

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == ["a" * 20] * 8


def interrupt_soon() -> None:
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()


def read_by_hand(run: Run) -> None:
    kept.append(iter(run))
    while True:
        next(kept[-1])


kept: list[Iterator[TokenBatch]] = []


@pytest.mark.parametrize("wait", [lambda run: run.result(), list, read_by_hand])
def test_ctrl_c_ends_a_wait_at_once(open_fake: OpenFake, wait: Callable[[Run], object]) -> None:
    fake = FakeEngine()
    engine = open_fake(fake)
    run = engine.query("a")
    fake.gate.clear()
    began = time.monotonic()
    interrupt_soon()
    with pytest.raises(KeyboardInterrupt):
        wait(run)
    assert time.monotonic() - began < 5
    fake.gate.set()
    assert run.result().finish_reason == "cancelled"


def test_ctrl_c_ends_a_load_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeEngine()
    fake.fractions = [0.0] * 100_000
    put_in_place(monkeypatch, fake)
    with pytest.raises(KeyboardInterrupt):
        Engine("fake.gguf", on_progress=lambda _fraction: signal.raise_signal(signal.SIGINT))
    assert fake.freed
    assert fake.reports < 100_000, "the load did not go on"


EMBEDDED = {
    "vectors": [[0.6, 0.8], [1.0, 0.0]],
    "dimensions": 2,
    "usage": {"inputTokens": 4, "outputTokens": 0, "cachedTokens": 0},
    "stats": {"queueMs": 0.1, "totalMs": 2.5, "tokensPerSecond": 1600.0, "backend": "cpu"},
}
REPLIES = {
    "embed": EMBEDDED,
    "tokenize": {"tokenIds": [1, 7, 9]},
    "detokenize": {"text": "ab"},
    "countTokens": {"tokens": 3},
    "applyTemplate": {"prompt": "<user>Hello!"},
    "audit": {
        "ops": [
            {
                "phase": "decode",
                "op": "MUL_MAT",
                "inputs": ["q4_K", "f32"],
                "output": "f32",
                "backend": "cpu",
                "kernel": "q4_K_q8_K",
                "count": 12,
            }
        ]
    },
    "metrics": {"decodedTokens": 7, "cacheHits": {"prefixTokens": 2}},
}


def test_embed_by_the_wire_format(open_fake: OpenFake, caller: Caller) -> None:
    fake = FakeEngine(replies=REPLIES)
    engine = open_fake(fake)
    embedded = caller.answer(lambda: engine.embed(["a", "b"], {"normalize": True}))
    assert embedded.vectors == ((0.6, 0.8), (1.0, 0.0))
    assert (embedded.dimensions, embedded.usage.input_tokens) == (2, 4)
    assert embedded.stats["tokens_per_second"] == 1600.0
    assert embedded.record == EMBEDDED
    caller.answer(lambda: engine.embed("a"))
    assert fake.commands == [
        {"id": 1, "operation": "embed", "inputs": ["a", "b"], "options": {"normalize": True}},
        {"id": 2, "operation": "embed", "inputs": ["a"]},
    ]


def test_what_is_answered_at_once_by_the_wire_format(open_fake: OpenFake, caller: Caller) -> None:
    fake = FakeEngine(replies=REPLIES)
    engine = open_fake(fake)
    assert caller.answer(lambda: engine.tokenize("ab", {"add_special": False})) == (1, 7, 9)
    assert caller.answer(lambda: engine.detokenize([7, 9])) == "ab"
    assert caller.answer(lambda: engine.count_tokens("ab")) == 3
    assert caller.answer(lambda: engine.count_tokens(HELLO)) == 3
    assert caller.answer(lambda: engine.apply_template(HELLO, {"tools": []})) == "<user>Hello!"
    (row,) = caller.answer(engine.audit)
    assert (row["op"], row["inputs"], row["count"]) == ("MUL_MAT", ["q4_K", "f32"], 12)
    assert caller.answer(engine.metrics) == {"decoded_tokens": 7, "cache_hits": {"prefix_tokens": 2}}
    assert [{**command, "id": 0} for command in fake.commands] == [
        {"id": 0, "operation": "tokenize", "text": "ab", "options": {"addSpecial": False}},
        {"id": 0, "operation": "detokenize", "tokenIds": [7, 9]},
        {"id": 0, "operation": "countTokens", "text": "ab"},
        {"id": 0, "operation": "countTokens", "messages": HELLO},
        {"id": 0, "operation": "applyTemplate", "messages": HELLO, "options": {"tools": []}},
        {"id": 0, "operation": "audit"},
        {"id": 0, "operation": "metrics"},
    ]


def test_an_operation_that_the_engine_lacks_is_an_error(open_fake: OpenFake, caller: Caller) -> None:
    engine = open_fake(FakeEngine())
    asks: list[Callable[[], Reply[Any]]] = [lambda: engine.embed("a"), engine.metrics, engine.audit]
    for ask in asks:
        with pytest.raises(HeadraceError) as caught:
            caller.answer(ask)
        assert caught.value.code == "invalid_request"
