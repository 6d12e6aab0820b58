"""The engine's shared library through ctypes: found, opened, checked, and one engine's calls.

Counterpart: `native/include/headrace.h`. Not a thread and not an API for applications: an `EngineHandle`
is driven by `engine_thread.py`.
"""

import ctypes
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from headrace.errors import HeadraceError

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


class EngineHandle:
    """One `hr_engine`. All calls, the first and the last too, are made by the same thread.

    Commands and events are those of the wire format. ctypes lets other threads run during a call.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._engine: int = library.hr_engine_create()
        if not self._engine:
            raise HeadraceError("out_of_memory", "there is no memory for an engine")

    def load(self, command: bytes, progress: Callable[[float], bool]) -> None:
        """Loads the model; leaves `ready` or `engine_failed`. `progress` must not raise, False ends it."""
        function = ProgressFunction(lambda _user, fraction: progress(fraction))
        self._library.hr_engine_load(self._engine, command, len(command), function, None)

    def submit(self, command: bytes) -> None:
        """Queues a request; leaves `accepted`, `done` or `failed`."""
        self._library.hr_engine_submit(self._engine, command, len(command))

    def cancel(self, request_id: int) -> None:
        """Ends a request at the next tick; an id that is unknown or has ended is ignored."""
        self._library.hr_engine_cancel(self._engine, request_id)

    def tick(self, budget_ms: float) -> int:
        """Works for `budget_ms`, at least a step; the number of unfinished requests, -1 after a failure."""
        unfinished: int = self._library.hr_engine_tick(self._engine, budget_ms)
        return unfinished

    def events(self) -> list[dict[str, Any]]:
        """Takes the events since the last call."""
        length = ctypes.c_size_t()
        address = self._library.hr_engine_events(self._engine, ctypes.byref(length))
        events: list[dict[str, Any]] = json.loads(ctypes.string_at(address, length.value))
        return events

    def free(self) -> None:
        """Frees the engine; nothing may be called afterwards."""
        self._library.hr_engine_free(self._engine)
