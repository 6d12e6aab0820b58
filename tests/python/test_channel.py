"""headrace/channel.py: what a reader finds, and who is woken."""

import asyncio
import threading

import pytest

from headrace.channel import Channel, wake
from headrace.errors import HeadraceError

pytestmark = pytest.mark.timeout(30)


def stir(channel: Channel) -> list["asyncio.Future[None]"]:
    """As the engine's thread does it, with the lock held."""
    with channel._changed:
        return channel.stir()


@pytest.fixture
def channel() -> Channel:
    return Channel(threading.RLock())


def test_items_come_before_the_end(channel: Channel) -> None:
    channel.items += [1, 2]
    channel.result = {}
    assert [channel.next_item() for _ in range(4)] == [1, 2, None, None]


def test_coroutines_share_the_items_of_a_channel(channel: Channel) -> None:
    async def read() -> list[int]:
        items = []
        while (item := await channel.until_next_item()) is not None:
            items.append(item)
        return items

    async def main() -> list[int]:
        readers = [asyncio.ensure_future(read()) for _ in range(3)]
        await asyncio.sleep(0)
        channel.items.append(1)
        wake(stir(channel))
        await asyncio.sleep(0.01)
        channel.items += [2, 3]
        channel.result = {}
        wake(stir(channel))
        return [item for items in await asyncio.gather(*readers) for item in items]

    assert sorted(asyncio.run(main())) == [1, 2, 3]


def test_who_stops_waiting_is_forgotten(channel: Channel) -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(channel.until_finished(), 0.01)
        assert stir(channel) == []

    asyncio.run(main())


def test_an_event_loop_that_was_closed_is_passed_over(channel: Channel) -> None:
    gone = asyncio.new_event_loop()
    lost = gone.create_future()
    gone.close()

    async def main() -> None:
        waiting = asyncio.ensure_future(channel.until_finished())
        await asyncio.sleep(0)
        channel.result = {}
        wake([lost, *stir(channel)])
        await waiting

    asyncio.run(main())


def test_each_reader_gets_an_error_of_its_own(channel: Channel) -> None:
    channel.error = HeadraceError("context_overflow", "too long", {"tokens": 7})
    caught = []
    for _ in range(2):
        with pytest.raises(HeadraceError) as raised:
            channel.raise_error()
        caught.append(raised.value)
    assert caught[0] is not caught[1]
    assert caught[0].to_wire() == caught[1].to_wire() == channel.error.to_wire()
    assert channel.error.__traceback__ is None
