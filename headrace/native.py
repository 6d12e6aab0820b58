"""The native engine for CPython: a GGUF model in this process, for coroutines and plain callers alike.

Counterpart: `web/endpoints/local.js`, the same engine as WebAssembly in a worker. Not where the engine
is driven: each lives in a thread of its own, `engine_thread.py`.
"""

import asyncio
import json
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from headrace.engine_thread import EngineThread
from headrace.errors import HeadraceError
from headrace.library import EngineHandle, load_library
from headrace.run import Reply, Run
from headrace.wire import (
    Adapter,
    EmbedResult,
    Message,
    Operation,
    decode_embed_result,
    decode_names,
    encode_names,
)

T = TypeVar("T")

# Names to values; the engine refuses by name what is wrong in them.
Options = Mapping[str, object]

# One file, or the shards of one model.
ModelPath = str | Path | Sequence[str | Path]


class Engine:
    """A model loaded into this process.

    `model` is the path of a GGUF file, or a list of the shards of one model, in any order; of a single shard
    the others are found beside it by their names. `options` are the load options of `describe()`, in
    snake_case (default: the engine's defaults). `draft_model` is a small model, given likewise, that drafts
    tokens for this one, `adapters` are LoRA adapters that requests may name. `on_progress` is told the
    loaded fraction, 0 to 1; an exception raised in it ends the load and reaches the caller.

    In a coroutine: `engine = await Engine.open("model.gguf")`, best as `async with await
    Engine.open(…) as engine`. Elsewhere: `with Engine("model.gguf") as engine`, which blocks until the
    model is loaded. Both raise `HeadraceError` if it can't be.

    Every method returns at once with a handle: `await` it in a coroutine, call its `result()` elsewhere.
    Only `query` and `chat` wait outside coroutines, until the engine has accepted or refused the
    request, and raise what it was refused for; in a coroutine the run raises that (`Run.accepted`,
    its loop, or awaiting it). What cannot be sent at all is refused at once by every method.

    Any thread and any event loop may use an engine and its runs. One that is dropped unclosed is freed
    with the last of its runs; the interpreter's exit ends those that are left. The file is mapped into
    memory and must not be shortened while the engine lives: what is then missing ends the process.

    After loading, `model` holds the model's facts, `options` the load options in force, `memory` what is
    occupied in bytes (`model_bytes` of tensors, `context_bytes` of KV caches, `compute_bytes` of working
    memory) and `load_ms` how long it took.
    """

    def __init__(
        self,
        model: ModelPath,
        options: Options | None = None,
        *,
        draft_model: ModelPath | None = None,
        adapters: Sequence[Adapter] | None = None,
        library: Path | None = None,
        on_progress: Callable[[float], object] | None = None,
    ) -> None:
        self._start(_load_command(model, options, draft_model, adapters), library)
        loading = self._thread.loading
        try:
            while (fraction := loading.next_item()) is not None:
                if on_progress:
                    on_progress(fraction)
            self._take_ready()
        except BaseException:
            self.close()
            raise

    @classmethod
    async def open(
        cls,
        model: ModelPath,
        options: Options | None = None,
        *,
        draft_model: ModelPath | None = None,
        adapters: Sequence[Adapter] | None = None,
        library: Path | None = None,
        on_progress: Callable[[float], object] | None = None,
    ) -> "Engine":
        """Loads a model without blocking the event loop, in which `on_progress` is called.

        Cancelling the task ends the load; its memory is freed a moment later.
        """
        engine = cls.__new__(cls)
        engine._start(_load_command(model, options, draft_model, adapters), library)
        loading = engine._thread.loading
        try:
            while (fraction := await loading.until_next_item()) is not None:
                if on_progress:
                    on_progress(fraction)
            engine._take_ready()
        except BaseException:
            engine._thread.close()
            raise
        return engine

    def query(self, prompt: str, options: Options | None = None) -> Run:
        """Continues `prompt` as it is, without a template. `options` are request options in snake_case."""
        return self._run("query", {"prompt": prompt}, options)

    def chat(self, messages: Sequence[Message], options: Options | None = None) -> Run:
        """Answers a conversation, laid out by the model's own chat template."""
        return self._run("chat", {"messages": _turns(messages)}, options)

    def embed(self, inputs: str | Sequence[str], options: Options | None = None) -> Reply[EmbedResult]:
        """One vector per input, such as a model for embeddings makes. `options`: `normalize` and others."""
        texts = [inputs] if isinstance(inputs, str) else _list("inputs", "texts", inputs)
        return self._submit("embed", {"inputs": texts}, options, decode_embed_result)

    def tokenize(self, text: str, options: Options | None = None) -> Reply[tuple[int, ...]]:
        """The token ids of `text`. `options`: `add_special` (begin and end tokens, default true) and
        `parse_special` (special tokens written out in the text count as such, default true).
        """
        return self._submit("tokenize", {"text": text}, options, lambda result: tuple(result["tokenIds"]))

    def detokenize(self, token_ids: Sequence[int]) -> Reply[str]:
        """The text of tokens."""
        ids = _list("token_ids", "numbers", token_ids)
        return self._submit("detokenize", {"tokenIds": ids}, None, lambda result: str(result["text"]))

    def count_tokens(self, text: str | Sequence[Message]) -> Reply[int]:
        """How many tokens a text is, or a conversation laid out by the model's template."""
        fields = {"text": text} if isinstance(text, str) else {"messages": _turns(text)}
        return self._submit("countTokens", fields, None, lambda result: int(result["tokens"]))

    def apply_template(self, messages: Sequence[Message], options: Options | None = None) -> Reply[str]:
        """The prompt that `chat` would make of these messages and its options, such as `tools`."""
        fields = {"messages": _turns(messages)}
        return self._submit("applyTemplate", fields, options, lambda result: str(result["prompt"]))

    def audit(self) -> Reply[tuple[Mapping[str, Any], ...]]:
        """Every kind of operation in the model's graphs, with the backend and the kernel that compute it.

        Rows of `phase`, `op`, `inputs`, `output`, `backend`, `kernel` and `count`.
        """
        return self._submit(
            "audit", {}, None, lambda result: tuple(decode_names(row) for row in result["ops"])
        )

    def metrics(self) -> Reply[Mapping[str, Any]]:
        """The engine's counters since it was loaded, in snake_case."""
        return self._submit("metrics", {}, None, decode_names)

    def cancel(self, reply: Reply[Any]) -> None:
        """Ends a request after the tick in progress; too late or twice is no error."""
        self._thread.cancel(reply.id)

    def describe(self) -> dict[str, Any]:
        """The declarations of this engine's library, see `headrace.describe`."""
        declarations: dict[str, Any] = json.loads(self._library.hr_describe())
        return declarations

    def close(self) -> None:
        """Frees the model and blocks until that is done. Closing twice is no error.

        Unfinished requests end at once with the error `engine_closed`.
        """
        self._thread.close()
        if not self._thread.is_current():
            self._thread.ended.wait_finished()

    async def aclose(self) -> None:
        """`close` without blocking the event loop."""
        self._thread.close()
        await self._thread.ended.until_finished()

    def __enter__(self) -> "Engine":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> "Engine":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _start(self, command: bytes, library: Path | None) -> None:
        self.model: Mapping[str, Any] = {}
        self.options: Mapping[str, Any] = {}
        self.memory: Mapping[str, int] = {}
        self.load_ms = 0.0
        opened = self._library = load_library(library)
        # The thread knows nothing of this object, or it would never be dropped.
        self._thread = EngineThread(lambda: EngineHandle(opened), command)
        # The exit is the thread's own affair, which waits for its end.
        weakref.finalize(self, self._thread.stop).atexit = False

    def _take_ready(self) -> None:
        loading = self._thread.loading
        loading.raise_error()
        assert loading.result is not None
        self.model = decode_names(loading.result["model"])
        self.options = decode_names(loading.result["options"])
        self.memory = decode_names(loading.result["memory"])
        self.load_ms = float(loading.result["loadMs"])

    def _run(self, operation: Operation, fields: Mapping[str, object], options: Options | None) -> Run:
        run = Run(self, *self._thread.submit(_encoder(operation, fields, options)))
        if not _in_coroutine():
            run._wait_accepted()
        return run

    def _submit(
        self,
        operation: Operation,
        fields: Mapping[str, object],
        options: Options | None,
        decode: Callable[[Mapping[str, Any]], T],
    ) -> Reply[T]:
        return Reply(self, *self._thread.submit(_encoder(operation, fields, options)), decode)


def _in_coroutine() -> bool:
    """Whether an event loop runs in this thread, which then must not be blocked."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _load_command(
    model: ModelPath,
    options: Options | None,
    draft_model: ModelPath | None,
    adapters: Sequence[Adapter] | None,
) -> bytes:
    command: dict[str, object] = {"model": _wire_model(model), "options": _wire_options(options)}
    if draft_model is not None:
        command["draftModel"] = _wire_model(draft_model)
    if adapters is not None:
        command["adapters"] = [_wire_adapter(adapter) for adapter in adapters]
    return _encode(command)


def _encoder(
    operation: Operation, fields: Mapping[str, object], options: Options | None
) -> Callable[[int], bytes]:
    command = {"operation": operation, **fields}
    if options is not None:
        command["options"] = _wire_options(options)
    return lambda request_id: _encode({"id": request_id, **command})


def _encode(command: Mapping[str, object]) -> bytes:
    try:
        return json.dumps(command, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise HeadraceError("invalid_request", f"this is not JSON: {error}", cause=error) from error
    except RecursionError as error:
        raise HeadraceError("invalid_request", "this is nested too deep for JSON", cause=error) from error


def _wire_options(options: Options | None) -> dict[str, object]:
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise HeadraceError(
            "invalid_request", f"options is a mapping of names to values, not {_kind(options)}"
        )
    for name in options:
        if not isinstance(name, str):
            raise HeadraceError(
                "invalid_option", f"an option's name is a string, not {_kind(name)}", {"option": repr(name)}
            )
    return encode_names(options)


def _wire_model(model: ModelPath) -> str | list[str]:
    if isinstance(model, str | Path):
        return _path_text(model)
    return [_path_text(path) for path in _list("model", "paths", model)]


def _wire_adapter(adapter: Adapter) -> dict[str, object]:
    if not isinstance(adapter, Mapping) or "path" not in adapter:
        raise HeadraceError("invalid_request", "an adapter is a mapping with a name and a path")
    return {**adapter, "path": _path_text(adapter["path"])}


def _turns(messages: Sequence[Message]) -> list[object]:
    return _list("messages", "turns", messages)


def _list(name: str, of: str, value: Iterable[object]) -> list[object]:
    if not isinstance(value, Iterable):
        raise HeadraceError("invalid_request", f"{name} is a list of {of}, not {_kind(value)}")
    return list(value)


def _path_text(model: object) -> str:
    """A model's path as the engine reads it; the C side would take another file for one with a NUL."""
    path = str(model)
    if "\0" in path:
        raise HeadraceError("model_not_found", f"there is no file at {path!r}: a path cannot hold a NUL")
    try:
        path.encode()
    except UnicodeEncodeError as error:
        message = f"the model's path {path!r} is not UTF-8, rename it to be opened"
        raise HeadraceError("model_not_found", message, cause=error) from error
    return path


def _kind(value: object) -> str:
    return type(value).__name__
