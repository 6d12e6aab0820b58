"""The native engine for CPython: `native/include/headrace.h` through ctypes.

Counterpart: `web/worker/engine_port.js`, which drives the same engine as WebAssembly. Not
asynchronous and without a thread of its own: the engine works while its caller waits for tokens,
or calls `Engine.tick`.
"""

import ctypes
import json
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from headrace.errors import HeadraceError
from headrace.wire import (
    Message,
    Operation,
    Result,
    TokenBatch,
    decode_batch,
    decode_names,
    decode_result,
    encode_names,
    snake_case,
)

ABI_VERSION = 1

ProgressFunction = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_double)

# name → (result, arguments), in the order of the header.
PROTOTYPES: Mapping[str, tuple[Any, list[Any]]] = {
    "hr_abi_version": (ctypes.c_int32, []),
    "hr_describe": (ctypes.c_char_p, []),
    "hr_engine_create": (ctypes.c_void_p, []),
    "hr_engine_load": (
        ctypes.c_int32,
        [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ProgressFunction, ctypes.c_void_p],
    ),
    "hr_engine_submit": (None, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]),
    "hr_engine_cancel": (None, [ctypes.c_void_p, ctypes.c_double]),
    "hr_engine_tick": (ctypes.c_int32, [ctypes.c_void_p, ctypes.c_double]),
    "hr_engine_events": (ctypes.c_void_p, [ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)]),
    "hr_engine_free": (None, [ctypes.c_void_p]),
}


def find_library() -> Path:
    """The engine's library: `$HEADRACE_LIBRARY`, else beside this package or in a checkout's build folder."""
    package = Path(__file__).resolve().parent
    chosen = os.environ.get("HEADRACE_LIBRARY")
    candidates = (
        [Path(chosen)]
        if chosen
        else [package / "libheadrace.so", package.parent / "build" / "native" / "libheadrace.so"]
    )
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise HeadraceError(
        "artifact_missing",
        f"the native engine is not at {candidates[-1]}; build it with: python3 -m build_tools native",
        {"searched": [str(candidate) for candidate in candidates]},
    )


def load_library(path: Path | None = None) -> ctypes.CDLL:
    """Opens the library at `path` (default: `find_library()`) and makes sure that its ABI version is ours."""
    path = path or find_library()
    try:
        library = ctypes.CDLL(str(path))
        for name, (result, arguments) in PROTOTYPES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise HeadraceError(
            "artifact_missing",
            f"{path} is not a usable engine ({error}); build it with: python3 -m build_tools native",
            cause=error,
        ) from error
    version = library.hr_abi_version()
    if version != ABI_VERSION:
        raise HeadraceError(
            "version_mismatch",
            f"{path} has ABI version {version}, this package needs {ABI_VERSION}; rebuild the native engine",
            {"expected": ABI_VERSION, "found": version},
        )
    return library


def describe(library: Path | None = None) -> dict[str, Any]:
    """What the engine declares about itself: build facts, every option, every error code (`hr_describe`)."""
    declarations: dict[str, Any] = json.loads(load_library(library).hr_describe())
    return declarations


class Run:
    """One request in progress: iterate for token batches, or call `result()` to wait for the end.

    Leaving the loop early cancels the request, so its slot is free again; so does an exception in
    the loop's body. `options` are all options in force, `prompt_tokens` is the prompt's length.
    """

    def __init__(self, engine: "Engine", request_id: int) -> None:
        self.id = request_id
        self.options: Mapping[str, Any] = {}
        self.prompt_tokens = 0
        self._engine = engine
        self._batches: deque[TokenBatch] = deque()
        self._result: Result | None = None
        self._error: HeadraceError | None = None

    @property
    def finished(self) -> bool:
        """Whether the engine has ended this request; batches may still wait to be read."""
        return self._result is not None or self._error is not None

    def __iter__(self) -> Iterator[TokenBatch]:
        try:
            while True:
                while self._batches:
                    yield self._batches.popleft()
                if self.finished:
                    break
                self._advance()
        finally:
            self.cancel()
        if self._error:
            raise self._error

    def result(self) -> Result:
        """Waits for the end. Raises the `HeadraceError` the request ended with, if it failed."""
        while not self.finished:
            self._advance()
        if self._error:
            raise self._error
        assert self._result is not None
        return self._result

    def cancel(self) -> None:
        """Ends the request at the next tick; without effect once it has ended."""
        self._engine.cancel(self)

    def _advance(self) -> None:
        # An engine without work never ends this request: waiting on would be for ever.
        if self._engine.tick() == 0 and not self.finished:
            raise HeadraceError("internal", "the engine has no work left, but this request has not ended")

    def _receive(self, event: Mapping[str, Any]) -> None:
        match event["type"]:
            case "accepted":
                # Their names alone: a schema among the values keeps its own.
                self.options = {snake_case(name): value for name, value in event["options"].items()}
                self.prompt_tokens = event["promptTokens"]
            case "tokens":
                self._batches.append(decode_batch(event))
            case "done":
                self._result = decode_result(event["result"])
            case "failed":
                self._error = HeadraceError.from_wire(event["error"])


class Engine:
    """A model loaded into this process.

    `model` is the path of a GGUF file. `options` are the load options of `describe()` in snake_case
    (default: the engine's defaults). `on_progress` is told the loaded fraction, 0 to 1; an exception
    raised in it ends the load and reaches the caller. Raises `HeadraceError` if the model can't be
    loaded. The file is mapped into memory and must not be shortened while the engine lives: what is
    then missing ends the process. Belongs to the thread that created it; close it, or use it as a
    context manager. One that is dropped unclosed is freed with its last reference.

    After loading, `model` holds the model's facts and `options` the load options in force.
    """

    def __init__(
        self,
        model: str | Path,
        options: Mapping[str, object] | None = None,
        *,
        library: Path | None = None,
        on_progress: Callable[[float], object] | None = None,
    ) -> None:
        self.model: Mapping[str, Any] = {}
        self.options: Mapping[str, Any] = {}
        self.load_ms = 0.0
        self._library = load_library(library)
        self._owner = threading.get_ident()
        self._runs: dict[int, Run] = {}
        self._last_id = 0
        self._failure: HeadraceError | None = None
        self._handle: int = self._library.hr_engine_create()
        if not self._handle:
            raise HeadraceError("out_of_memory", "there is no memory for an engine")
        self._free = weakref.finalize(self, self._library.hr_engine_free, self._handle)
        # At exit the memory goes with the process, while a daemon thread may still be in a tick.
        self._free.atexit = False
        try:
            self._load(model, options, on_progress)
        except BaseException:
            self.close()
            raise

    def query(self, prompt: str, options: Mapping[str, object] | None = None) -> Run:
        """Continues `prompt` as it is, without a template. `options` are request options in snake_case."""
        return self._submit("query", {"prompt": prompt}, options)

    def chat(self, messages: Sequence[Message], options: Mapping[str, object] | None = None) -> Run:
        """Answers a conversation, laid out by the model's own chat template."""
        if not isinstance(messages, Iterable):
            raise HeadraceError("invalid_request", f"messages is a list of turns, not {_kind(messages)}")
        return self._submit("chat", {"messages": list(messages)}, options)

    def cancel(self, run: Run) -> None:
        """Ends `run` at the next tick with the finish reason `cancelled`; too late or twice is no error."""
        # The collector may free an engine before it closes a loop over one of its runs.
        if run.id in self._runs and self._free.alive:
            self._library.hr_engine_cancel(self._use(), run.id)

    def tick(self, budget_ms: float = 20.0) -> int:
        """Works for about `budget_ms` milliseconds, at least a step; returns how many runs are unfinished."""
        unfinished: int = self._library.hr_engine_tick(self._use(), budget_ms)
        self._drain()
        if unfinished < 0 and not self._failure:
            self._fail(HeadraceError("internal", "the engine failed without saying why"))
        return max(unfinished, 0)

    def describe(self) -> dict[str, Any]:
        """The declarations of this engine's library, see `describe()`."""
        declarations: dict[str, Any] = json.loads(self._library.hr_describe())
        return declarations

    def close(self) -> None:
        """Frees the model. Unfinished runs end with the error `engine_closed`; closing twice is no error."""
        if self._free.alive:
            self._check_thread()
            self._free()
            self._fail(HeadraceError("engine_closed", "the engine was closed"))

    def __enter__(self) -> "Engine":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _use(self) -> int:
        """The engine's handle, after making sure that it may be used here and now."""
        if self._failure:
            raise self._failure
        assert self._free.alive
        self._check_thread()
        return self._handle

    def _check_thread(self) -> None:
        if threading.get_ident() != self._owner:
            raise HeadraceError("invalid_request", "an engine may only be used by the thread that created it")

    def _load(
        self,
        model: str | Path,
        options: Mapping[str, object] | None,
        on_progress: Callable[[float], object] | None,
    ) -> None:
        interruption: list[BaseException] = []

        # ctypes can't carry an exception through C: it is kept here and raised after the call.
        def progress(_user: object, fraction: float) -> int:
            try:
                if on_progress:
                    on_progress(fraction)
            except BaseException as error:
                interruption.append(error)
            return 0 if interruption else 1

        command = _encode({"model": _path_text(model), "options": _wire_options(options)})
        self._library.hr_engine_load(self._use(), command, len(command), ProgressFunction(progress), None)
        self._drain()
        if interruption:
            raise interruption[0]
        if self._failure:
            raise self._failure

    def _submit(
        self, operation: Operation, fields: Mapping[str, object], options: Mapping[str, object] | None
    ) -> Run:
        handle = self._use()
        run = Run(self, self._last_id + 1)
        command = _encode({"id": run.id, "operation": operation, **fields, "options": _wire_options(options)})
        self._last_id = run.id
        self._runs[run.id] = run
        self._library.hr_engine_submit(handle, command, len(command))
        self._drain()
        if run._error:
            raise run._error
        return run

    def _drain(self) -> None:
        length = ctypes.c_size_t()
        address = self._library.hr_engine_events(self._handle, ctypes.byref(length))
        for event in json.loads(ctypes.string_at(address, length.value)):
            match event["type"]:
                case "ready":
                    self.model = decode_names(event["model"])
                    self.options = decode_names(event["options"])
                    self.load_ms = event["loadMs"]
                case "engine_failed":
                    self._fail(HeadraceError.from_wire(event["error"]))
                case _:
                    # Id 0: the submission just made could not be read as far as its id.
                    # A run that an engine_failed before this event has ended is not listed any more.
                    if run := self._runs.get(event["id"] or self._last_id):
                        run._receive(event)
                        if run.finished:
                            del self._runs[run.id]

    def _fail(self, failure: HeadraceError) -> None:
        self._failure = failure
        for run in self._runs.values():
            run._error = failure
        self._runs.clear()


def _encode(command: Mapping[str, object]) -> bytes:
    try:
        return json.dumps(command, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise HeadraceError("invalid_request", f"this is not JSON: {error}", cause=error) from error
    except RecursionError as error:
        raise HeadraceError("invalid_request", "this is nested too deep for JSON", cause=error) from error


def _wire_options(options: Mapping[str, object] | None) -> dict[str, object]:
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


def _path_text(model: str | Path) -> str:
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
