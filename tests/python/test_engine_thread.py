"""headrace/engine_thread.py: who calls the engine and when, on an engine that ticks when the test lets it."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from headrace.channel import Channel
from headrace.engine_thread import EngineThread
from headrace.errors import HeadraceError
from tests.python.fake_engine import FakeEngine

pytestmark = pytest.mark.timeout(30)

StartThread = Callable[..., EngineThread]


@pytest.fixture
def start() -> Iterator[StartThread]:
    """Starts a thread around a fake engine; it is stopped when the test ends, and has to end."""
    with ExitStack() as stack:

        def start(engine: FakeEngine) -> EngineThread:
            thread = EngineThread(lambda: engine, b"{}")

            def end() -> None:
                engine.gate.set()
                thread.close()
                thread.join(10)
                assert engine.freed
                assert len(engine.threads) == 1, "one thread makes every call"

            stack.callback(end)
            return thread

        yield start


def query(thread: EngineThread) -> tuple[int, Channel]:
    return thread.submit(lambda request_id: command(request_id, "query"))


def command(request_id: int, operation: str) -> bytes:
    return json.dumps({"id": request_id, "operation": operation}).encode()


def test_an_idle_engine_is_not_ticked(start: StartThread) -> None:
    engine = FakeEngine(length=2)
    thread = start(engine)
    query(thread)[1].wait_finished()
    ticks = engine.ticks
    before = time.process_time()
    time.sleep(0.2)
    assert engine.ticks == ticks
    assert time.process_time() - before < 0.1, "it sleeps"


def test_a_tick_wakes_each_event_loop_once(start: StartThread) -> None:
    engine = FakeEngine(length=3)
    thread = start(engine)

    async def main() -> list[int]:
        loop: Any = asyncio.get_running_loop()
        engine.gate.clear()
        engine.in_tick.clear()
        channels = [query(thread)[1] for _ in range(10)]
        readers = [asyncio.ensure_future(read(channel)) for channel in channels]
        await asyncio.sleep(0.1)
        calls: list[object] = []
        tell = loop.call_soon_threadsafe

        def count(*arguments: Any) -> object:
            calls.append(arguments)
            return tell(*arguments)

        loop.call_soon_threadsafe = count
        ticks = engine.ticks
        engine.gate.set()
        counts = await asyncio.gather(*readers)
        loop.call_soon_threadsafe = tell
        # One per tick, and one for the requests that were accepted between two of them.
        assert 0 < len(calls) <= engine.ticks - ticks + 2
        return counts

    assert asyncio.run(main()) == [3] * 10


async def read(channel: Channel) -> int:
    count = 0
    while await channel.until_next_item() is not None:
        count += 1
    return count


def test_closing_answers_at_once_and_frees_after_the_tick(start: StartThread) -> None:
    engine = FakeEngine()
    thread = start(engine)
    engine.gate.clear()
    engine.in_tick.clear()
    _, channel = query(thread)
    engine.in_tick.wait()
    thread.close()
    channel.wait_finished()
    assert channel.error
    assert channel.error.code == "engine_closed"
    assert not thread.ended.finished
    assert not engine.freed
    engine.gate.set()
    thread.ended.wait_finished()
    assert engine.freed
    with pytest.raises(HeadraceError) as caught:
        query(thread)
    assert caught.value.code == "engine_closed"


def test_stopping_ends_a_load_at_its_next_report(start: StartThread) -> None:
    engine = FakeEngine()
    engine.fractions = [0.0] * 1000
    engine.gate.clear()
    thread = start(engine)
    thread.stop()
    engine.gate.set()
    thread.ended.wait_finished()
    assert len(thread.loading.items) == 1
    assert thread.loading.error


def test_a_request_that_the_engine_forgets_is_not_waited_for(start: StartThread) -> None:
    engine = FakeEngine()
    engine.forgets = True
    _, channel = query(start(engine))
    channel.wait_finished()
    assert channel.error
    assert channel.error.code == "internal"
    assert "has not ended" in channel.error.message


@pytest.mark.parametrize("method", ["load", "submit", "tick", "events"])
def test_a_failure_of_our_own_ends_every_wait(
    start: StartThread, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    engine = FakeEngine()

    def break_down(*_arguments: object) -> None:
        engine.threads.add(threading.get_ident())
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(engine, method, break_down)
    thread = start(engine)
    try:
        _, channel = query(thread)
    except HeadraceError as error:
        found: HeadraceError | None = error
    else:
        channel.wait_finished()
        found = channel.error
    assert found
    assert found.code == "internal"
    assert "a bug" in found.message


def test_a_refusal_without_an_id_belongs_to_the_request_just_made(start: StartThread) -> None:
    engine = FakeEngine()
    thread = start(engine)
    _, running = query(thread)
    _, refused = thread.submit(lambda request_id: command(request_id, "sing"))
    refused.wait_finished()
    assert refused.error
    assert refused.error.code == "invalid_request"
    assert not running.finished


def test_an_exception_while_a_request_is_written_leaves_nothing_behind(start: StartThread) -> None:
    engine = FakeEngine(length=1)
    thread = start(engine)

    def refuse(_request_id: int) -> bytes:
        raise HeadraceError("invalid_request", "no")

    with pytest.raises(HeadraceError):
        thread.submit(refuse)
    query(thread)[1].wait_finished()
    assert [command["id"] for command in engine.commands] == [2]


def test_an_engine_that_cannot_be_made_says_why() -> None:
    def make() -> FakeEngine:
        raise HeadraceError("out_of_memory", "there is no memory for an engine")

    thread = EngineThread(make, b"{}")
    thread.loading.wait_finished()
    assert thread.loading.error
    assert thread.loading.error.code == "out_of_memory"
    thread.ended.wait_finished()
