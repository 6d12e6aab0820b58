"""What an engine's methods hand out: a reply to wait for, and the run of a query or chat.

Counterpart: `web/run.js`. Not where anything is computed: these read what `engine_thread.py` put into
their `Channel`.
"""

from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from headrace.channel import Channel
from headrace.wire import Result, TokenBatch, decode_batch, decode_result, snake_case

if TYPE_CHECKING:
    from headrace.native import Engine

T = TypeVar("T")


class Reply(Generic[T]):
    """An answer that is on its way: `await reply` in a coroutine, `reply.result()` elsewhere.

    Both raise the `HeadraceError` that the request failed with. May be waited for more than once, from
    any thread or event loop. Whoever is interrupted while waiting, by the cancellation of the task or
    Ctrl-C, cancels the request.
    """

    def __init__(
        self, engine: "Engine", request_id: int, channel: Channel, decode: Callable[[Mapping[str, Any]], T]
    ) -> None:
        self.id = request_id
        # Keeps the engine from being freed while somebody waits.
        self._engine = engine
        self._channel = channel
        self._decode = decode

    @property
    def finished(self) -> bool:
        """Whether the engine has ended this request; batches may still wait to be read."""
        return self._channel.finished

    def result(self) -> T:
        """Blocks until the end. Not for coroutines: their event loop would stand still."""
        try:
            self._channel.wait_finished()
        except BaseException:
            self.cancel()
            raise
        return self._outcome()

    def __await__(self) -> Generator[Any, None, T]:
        return self._wait().__await__()

    def cancel(self) -> None:
        """Ends the request after the tick in progress; too late or twice is no error.

        A query or chat then has the finish reason `cancelled` and the text so far.
        """
        if not self.finished:
            self._engine.cancel(self)

    async def _wait(self) -> T:
        try:
            await self._channel.until_finished()
        except BaseException:
            self.cancel()
            raise
        return self._outcome()

    def _outcome(self) -> T:
        self._channel.raise_error()
        assert self._channel.result is not None
        return self._decode(self._channel.result)


class Run(Reply[Result]):
    """A query or chat in progress: `async for` or `for` gives its token batches, then the result is there.

    Each batch is given once. Leaving the loop early cancels the request, so its slot is free again; so
    does an exception in the loop's body.
    """

    def __init__(self, engine: "Engine", request_id: int, channel: Channel) -> None:
        super().__init__(engine, request_id, channel, decode_result)

    @property
    def options(self) -> Mapping[str, Any]:
        """All options in force, the seed that was drawn among them; empty until accepted."""
        accepted = self._channel.accepted
        # Their names alone: a schema among the values keeps its own.
        options = accepted["options"] if accepted else {}
        return {snake_case(name): value for name, value in options.items()}

    @property
    def prompt_tokens(self) -> int:
        """The prompt's length; 0 until accepted."""
        accepted = self._channel.accepted
        return int(accepted["promptTokens"]) if accepted else 0

    async def accepted(self) -> None:
        """Waits until the engine has taken the request, or raises why it did not.

        For coroutines that must know before the first batch; outside of them `Engine.chat` has waited.
        """
        try:
            await self._channel.until_answered()
        except BaseException:
            self.cancel()
            raise
        self._raise_refusal()

    def __iter__(self) -> Iterator[TokenBatch]:
        return _Batches(self, self._channel)

    def __aiter__(self) -> AsyncIterator[TokenBatch]:
        return _Batches(self, self._channel)

    def _wait_accepted(self) -> None:
        try:
            self._channel.wait_answered()
        except BaseException:
            self.cancel()
            raise
        self._raise_refusal()

    def _raise_refusal(self) -> None:
        if self._channel.accepted is None:
            self._channel.raise_error()


class _Batches(Iterator[TokenBatch], AsyncIterator[TokenBatch]):
    """A loop over a run. A class and no generator: an asynchronous one would be ended late, by its loop."""

    def __init__(self, run: Run, channel: Channel) -> None:
        self._run = run
        self._channel = channel

    def __next__(self) -> TokenBatch:
        try:
            event = self._channel.next_item()
        except BaseException:
            self._run.cancel()
            raise
        if event is None:
            self._channel.raise_error()
            raise StopIteration
        return decode_batch(event)

    async def __anext__(self) -> TokenBatch:
        try:
            event = await self._channel.until_next_item()
        except BaseException:
            self._run.cancel()
            raise
        if event is None:
            self._channel.raise_error()
            raise StopAsyncIteration
        return decode_batch(event)

    def __del__(self) -> None:
        self._run.cancel()
