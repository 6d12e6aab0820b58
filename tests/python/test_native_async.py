"""headrace/native.py for coroutines: opening, cancelling tasks, several event loops.

What coroutines and plain callers share is in test_run.py.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import HeadraceError
from headrace.native import Engine
from headrace.run import Run
from headrace.wire import Adapter, Message
from tests.python.conftest import OpenFake, put_in_place
from tests.python.fake_engine import FakeEngine

pytestmark = pytest.mark.timeout(60)

HELLO: list[Message] = [{"role": "user", "content": "Hello!"}]
GREEDY = {"temperature": 0}


def test_open_loads_while_the_event_loop_goes_on(library_path: Path, tiny_model: Path) -> None:
    told: list[tuple[float, int]] = []

    def report(fraction: float) -> None:
        asyncio.get_running_loop()
        told.append((fraction, threading.get_ident()))

    async def main() -> str:
        async with await Engine.open(
            tiny_model, {"threads": 1, "slots": 4}, library=library_path, on_progress=report
        ) as engine:
            assert engine.options["slots"] == 4
            assert engine.model["architecture"] == "qwen3moe"
            assert engine.load_ms > 0
            texts = [
                run.text for run in await asyncio.gather(*(engine.chat(HELLO, GREEDY) for _ in range(6)))
            ]
            assert len(set(texts)) == 1
            return texts[0]

    assert asyncio.run(main()).startswith("Hello!")
    fractions = [fraction for fraction, _ in told]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    assert {thread for _, thread in told} == {threading.get_ident()}


def test_a_file_that_is_no_model_is_refused(library_path: Path, tmp_path: Path) -> None:
    with pytest.raises(HeadraceError) as caught:
        asyncio.run(Engine.open(tmp_path / "nowhere.gguf", library=library_path))
    assert caught.value.code == "model_not_found"


def test_an_exception_in_progress_ends_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeEngine()
    fake.fractions = [0.0] * 100_000
    put_in_place(monkeypatch, fake)

    def refuse(_fraction: float) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        asyncio.run(Engine.open("fake.gguf", on_progress=refuse))
    wait_for(lambda: fake.freed)
    assert fake.reports < 100_000


def test_cancelling_open_ends_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeEngine()
    fake.fractions = [0.0] * 3
    fake.gate.clear()
    put_in_place(monkeypatch, fake)

    async def main() -> None:
        opening = asyncio.ensure_future(Engine.open("fake.gguf"))
        await asyncio.sleep(0.05)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening

    asyncio.run(main())
    fake.gate.set()
    wait_for(lambda: fake.freed)
    assert fake.reports == 1


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


async def read(run: Run) -> None:
    async for _batch in run:
        pass


async def answer(run: Run) -> None:
    await run


@pytest.mark.parametrize("wait", [read, answer])
def test_cancelling_the_task_cancels_the_request(
    open_fake: OpenFake, wait: Callable[[Run], Coroutine[Any, Any, None]]
) -> None:
    engine = open_fake(FakeEngine())

    async def main() -> str:
        run = engine.query("a")
        task = asyncio.ensure_future(wait(run))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()
        return (await run).finish_reason

    assert asyncio.run(main()) == "cancelled"


def test_a_timeout_cancels_the_request(open_fake: OpenFake) -> None:
    engine = open_fake(FakeEngine())

    async def main() -> str:
        run = engine.query("a")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(run, 0.05)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await engine.query("a")
        return (await run).finish_reason

    assert asyncio.run(main()) == "cancelled"


def test_a_timeout_for_one_batch_cancels_the_request(open_fake: OpenFake) -> None:
    fake = FakeEngine()
    engine = open_fake(fake)

    async def main() -> str:
        run = engine.query("a")
        kept = aiter(run)
        await anext(kept)
        fake.gate.clear()

        async def read_on() -> None:
            while True:
                await anext(kept)

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(read_on(), 0.1)
        fake.gate.set()
        return (await run).finish_reason

    assert asyncio.run(main()) == "cancelled"


def test_leaving_the_loop_cancels_before_the_next_line(open_fake: OpenFake) -> None:
    fake = FakeEngine()
    engine = open_fake(fake)

    async def main() -> None:
        run = engine.query("a")
        async for _batch in run:
            break
        # No other task, nor the event loop, has had a turn in between.
        run.result()

    asyncio.run(main())


def test_asking_does_not_wait_for_the_tick(open_fake: OpenFake) -> None:
    fake = FakeEngine(length=2)
    engine = open_fake(fake)

    async def main() -> None:
        fake.gate.clear()
        runs = [engine.query("a") for _ in range(5)]
        assert [run.prompt_tokens for run in runs[1:]] == [0] * 4
        assert not any(run.finished for run in runs)
        fake.gate.set()
        await asyncio.gather(*(run.accepted() for run in runs))
        assert [run.prompt_tokens for run in runs] == [1] * 5
        assert [(await run).text for run in runs] == ["aa"] * 5

    asyncio.run(main())


def test_a_refusal_is_raised_by_the_run(library_path: Path, tiny_model: Path) -> None:
    async def main() -> None:
        async with await Engine.open(tiny_model, {"threads": 1}, library=library_path) as engine:
            run = engine.chat(HELLO, {"top_k": -7})
            for wait in (run.accepted(), read(run), answer(run)):
                with pytest.raises(HeadraceError, match="topK") as caught:
                    await wait
                assert caught.value.code == "invalid_option"
            # What cannot be sent at all is refused at once.
            with pytest.raises(HeadraceError, match="not JSON"):
                engine.chat(HELLO, {"stop": {"a set"}})
            accepted = engine.chat(HELLO, {"max_tokens": 1})
            await accepted.accepted()
            assert accepted.prompt_tokens > 0
            assert accepted.options["max_tokens"] == 1
            assert (await accepted).finish_reason == "length"

    asyncio.run(main())


def test_several_event_loops_share_an_engine(open_fake: OpenFake) -> None:
    engine = open_fake(FakeEngine(length=10))
    shared: list[str] = []
    run = engine.query("a")

    async def main() -> str:
        shared.append((await run).text)
        return (await engine.query("b")).text

    told: list[str] = []
    threads = [threading.Thread(target=lambda: told.append(asyncio.run(main()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told == shared == ["a" * 10] * 4


def test_closing_in_a_coroutine_does_not_block_it(open_fake: OpenFake) -> None:
    fake = FakeEngine()
    engine = open_fake(fake)

    async def main() -> None:
        run = engine.query("a")
        await anext(aiter(run))
        fake.gate.clear()
        closing = asyncio.ensure_future(engine.aclose())
        waiting = engine.query("b")
        await asyncio.sleep(0.05)
        for ended in (waiting, run):
            with pytest.raises(HeadraceError) as caught:
                await ended
            assert caught.value.code == "engine_closed"
        assert not closing.done()
        fake.gate.set()
        await closing
        assert fake.freed

    asyncio.run(main())


def test_draft_model_and_adapters_go_with_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeEngine()
    put_in_place(monkeypatch, fake)
    adapters: list[Adapter] = [{"name": "fr", "path": Path("fr.gguf"), "scale": 0.5}]

    async def main() -> None:
        async with await Engine.open(
            "big.gguf", {"batch_size": 64}, draft_model=Path("small.gguf"), adapters=adapters
        ):
            pass

    asyncio.run(main())
    assert fake.load_command == {
        "model": "big.gguf",
        "draftModel": "small.gguf",
        "adapters": [{"name": "fr", "path": "fr.gguf", "scale": 0.5}],
        "options": {"batchSize": 64},
    }
    for wrong in ([{"name": "fr"}], ["fr.gguf"]):
        with pytest.raises(HeadraceError) as caught:
            asyncio.run(Engine.open("big.gguf", adapters=wrong))  # type: ignore[arg-type]
        assert caught.value.code == "invalid_request"
