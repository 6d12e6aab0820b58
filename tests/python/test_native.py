"""headrace/native.py: the ABI's round trip, options and requests by name, and an engine's life.

Needs the native library. What the engine generates is in test_native_generation.py, what it makes of
broken files in test_native_models.py, how coroutines use it in test_native_async.py.
"""

import gc
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import HeadraceError
from headrace.library import describe
from headrace.native import Engine
from headrace.run import Run
from headrace.wire import Message, decode_names, snake_case
from tests.python.conftest import OpenEngine

HELLO: list[Message] = [{"role": "user", "content": "Hello!"}]


@pytest.fixture(scope="module")
def declarations(library_path: Path) -> dict[str, Any]:
    return describe(library_path)


# Of options whose values are records; test_native_chat.py says more of them.
OTHER_RECORDS: dict[str, object] = {
    "Tool[]": [],  # the model's template has no place for tools
    "ToolChoice": "none",
    "ResponseFormat": {"type": "json_object"},
}


def other_value(option: Mapping[str, Any]) -> object:
    """A valid value that is not the default, exact as a 32-bit float."""
    if option["name"] == "deadlineMs":
        return 60_000  # 7 ms would end the request on a busy machine
    if option["type"] in OTHER_RECORDS:
        return OTHER_RECORDS[option["type"]]
    if option["type"] == "boolean":
        return not option["default"]
    if option["choices"]:
        return next(choice for choice in option["choices"] if choice != option["default"])
    if option["name"] == "grammar":
        return "root ::= .+"
    if option["type"] == "map<number>":
        return {"7": 0.5, "4095": -100}
    if option["type"] == "string":
        return "other"
    if option["type"] == "string[]":
        return ["never said", "nor this"]
    candidates = [7, 64, 1024, 1] if option["type"] == "integer" else [0.5, 0.25, 1.5]
    return next(
        value
        for value in candidates
        if option["minimum"] <= value <= option["maximum"] and value != option["default"]
    )


def invalid_values(option: Mapping[str, Any]) -> list[object]:
    """Values of a wrong type, and for numbers out of range."""
    match option["type"]:
        case "integer":
            return ["7", None, True, 1.5, [1], option["minimum"] - 1, option["maximum"] + 1, 1e300]
        case "number":
            return ["0.5", None, True, [0.5], option["minimum"] - 1, option["maximum"] + 1]
        case "map<number>":
            return [
                *["text", 7, [7], None, {"x": 1}, {"-1": 1}, {"1.5": 1}, {"": 1}, {"99999999999": 1}],
                *[{"7": "a"}, {"7": None}, {"7": option["maximum"] + 1}, {"7": option["minimum"] - 1}],
                {str(token): 1 for token in range(1025)},
            ]
        case "string[]":
            return ["text", 7, [7], [None], {"0": "text"}, ["x"] * (int(option["maximum"]) + 1)]
        case "Tool[]" | "ToolChoice" | "ResponseFormat":
            return [7, None, "text", ["text"], [None], {"type": "none"}]
        case "boolean":
            return [7, None, "true", [True]]
        case "string" if option["choices"]:
            return [7, None, ["text"], "none of these"]
        case _:
            return [7, None, ["text"]]


def test_every_request_option_is_echoed(engine: Engine, declarations: dict[str, Any]) -> None:
    # Adapters must have been loaded, and a grammar excludes tools: each has tests of its own.
    left_out = {"adapters": [], "grammar": ""}
    declared = [
        option
        for option in declarations["options"]
        if option["scope"] == "request" and option["name"] not in left_out
    ]
    chosen = {snake_case(option["name"]): other_value(option) for option in declared}
    chosen["deadline_ms"] = 60_000  # 7 ms are not enough where others work, too
    run = engine.chat(HELLO, chosen)
    assert run.options == {**chosen, **left_out}
    assert run.result().text


def test_every_request_option_has_its_default_in_force(engine: Engine, declarations: dict[str, Any]) -> None:
    declared = {o["name"]: o["default"] for o in declarations["options"] if o["scope"] == "request"}
    in_force = engine.chat(HELLO).options
    assert in_force["seed"] >= 0, "the seed that was drawn is told, to repeat the run"
    assert {**in_force, "seed": -1} == decode_names(declared)


def test_webgpu_is_for_pages(open_engine: OpenEngine, tiny_model: Path) -> None:
    with pytest.raises(HeadraceError, match="no WebGPU backend") as caught:
        open_engine(tiny_model, backend="webgpu")
    assert caught.value.code == "environment_unsupported"


def test_every_load_option_is_echoed(
    open_engine: OpenEngine, tiny_model: Path, declarations: dict[str, Any]
) -> None:
    declared = [option for option in declarations["options"] if option["scope"] == "load"]
    chosen = {snake_case(option["name"]): other_value(option) for option in declared}
    chosen |= {"context_size": 256, "slots": 2, "threads": 2, "batch_size": 128}
    chosen["backend"] = "cpu"  # the other one is for pages
    assert open_engine(tiny_model, **chosen).options == chosen


def test_ready_tells_what_was_loaded(engine: Engine, tiny_model: Path) -> None:
    assert engine.model["architecture"] == "qwen3moe"
    assert engine.model["vocabulary"] == 4096
    assert engine.model["trained_context"] == 2048
    assert engine.model["chat_template"] is True
    assert 0 < engine.model["bytes"] <= tiny_model.stat().st_size
    assert engine.load_ms > 0


def test_a_wrong_value_is_refused_by_name(engine: Engine, declarations: dict[str, Any]) -> None:
    for option in declarations["options"]:
        if option["scope"] != "request":
            continue
        for value in invalid_values(option):
            with pytest.raises(HeadraceError) as caught:
                engine.chat(HELLO, {snake_case(option["name"]): value})
            assert caught.value.code == "invalid_option", (option["name"], value)
            assert caught.value.detail["option"] == option["name"]
            assert option["name"] in caught.value.message
            assert "-9223372036854775808" not in caught.value.message
    assert engine.chat(HELLO, {"temperature": 0}).result().text


def test_a_wrong_load_value_is_refused_by_name(
    open_engine: OpenEngine, tiny_model: Path, declarations: dict[str, Any]
) -> None:
    for option in declarations["options"]:
        if option["scope"] != "load":
            continue
        for value in invalid_values(option):
            with pytest.raises(HeadraceError) as caught:
                open_engine(tiny_model, **{snake_case(option["name"]): value})
            assert caught.value.code == "invalid_option", (option["name"], value)
            assert caught.value.detail["option"] == option["name"]


def test_a_folder_with_a_zero_byte_is_refused(open_engine: OpenEngine, tiny_model: Path) -> None:
    """Snapshots would be written to the path that ends there."""
    with pytest.raises(HeadraceError) as caught:
        open_engine(tiny_model, prefix_cache_folder="a\0b")
    assert (caught.value.code, caught.value.detail["option"]) == ("invalid_option", "prefixCacheFolder")


def test_an_unknown_option_is_refused_by_name(
    engine: Engine, open_engine: OpenEngine, tiny_model: Path
) -> None:
    with pytest.raises(HeadraceError, match="maxToken") as caught:
        engine.chat(HELLO, {"max_token": 3})
    assert (caught.value.code, caught.value.detail["option"]) == ("invalid_option", "maxToken")
    with pytest.raises(HeadraceError, match="slot") as caught:
        open_engine(tiny_model, slot=1)
    assert (caught.value.code, caught.value.detail["option"]) == ("invalid_option", "slot")


@pytest.mark.parametrize(
    "messages",
    [
        None,
        7,
        [],
        "Hello!",
        ["Hello!"],
        [{"role": "user"}],
        [{"content": "Hello!"}],
        [{"role": "user", "content": 7}],
        [{"role": 7, "content": "Hello!"}],
        [{"role": "user", "content": "Hello!", "name": "Ann"}],
        [{"role": "user", "content": [{"type": "text", "text": "Hello!", "cache": True}]}],
    ],
)
def test_malformed_messages_are_refused(engine: Engine, messages: Any) -> None:
    with pytest.raises(HeadraceError) as caught:
        engine.chat(messages)
    assert caught.value.code == "invalid_request"
    assert engine.chat(HELLO, {"temperature": 0}).result().text.startswith("Hello!")


@pytest.mark.parametrize("prompt", [7, None, ["text"], b"bytes", "half a pair: \ud83d", ""])
def test_a_prompt_that_is_no_text_is_refused(engine: Engine, prompt: Any) -> None:
    with pytest.raises(HeadraceError) as caught:
        engine.query(prompt)
    assert caught.value.code == "invalid_request"
    assert engine.chat(HELLO, {"temperature": 0}).result().text.startswith("Hello!")


def test_runs_on_two_slots_advance_side_by_side(open_engine: OpenEngine, tiny_model: Path) -> None:
    assert interleaved(open_engine(tiny_model, context_size=256, slots=2)) == alone(
        open_engine(tiny_model, context_size=256)
    )


def test_more_runs_than_slots_wait_for_their_turn(open_engine: OpenEngine, tiny_model: Path) -> None:
    """Case G4."""
    engine = open_engine(tiny_model, context_size=256, slots=1)
    assert interleaved(engine) == alone(engine)


def alone(engine: Engine) -> list[str]:
    return [run.result().text for run in (story(engine), hello(engine))]


def interleaved(engine: Engine) -> list[str]:
    runs = [story(engine), hello(engine)]
    readers = [iter(run) for run in runs]
    texts = ["", ""]
    unread = {0, 1}
    while unread:
        for which in sorted(unread):
            batch = next(readers[which], None)
            if batch is None:
                unread.discard(which)
            else:
                texts[which] += batch.text
    assert texts == [run.result().text for run in runs]
    return texts


def story(engine: Engine) -> Run:
    return engine.chat([{"role": "user", "content": "Tell me a story."}], {"temperature": 0})


def hello(engine: Engine) -> Run:
    return engine.chat(HELLO, {"temperature": 0})


def test_two_engines_are_independent(open_engine: OpenEngine, tiny_model: Path) -> None:
    """Case G4."""
    first, second = open_engine(tiny_model, context_size=256), open_engine(tiny_model, context_size=256)
    running = story(first)
    assert hello(second).result().text.startswith("Hello!")
    second.close()
    assert running.result().finish_reason == "stop"


def test_progress_is_told_in_order(library_path: Path, tiny_model: Path) -> None:
    told: list[float] = []
    with Engine(tiny_model, library=library_path, on_progress=told.append):
        pass
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert told[0] >= 0.0


def test_an_exception_in_progress_ends_the_load(library_path: Path, tiny_model: Path) -> None:
    def refuse(_fraction: float) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        Engine(tiny_model, library=library_path, on_progress=refuse)


def test_closing_ends_runs_and_refuses_more(engine: Engine) -> None:
    """Case G4."""
    running = story(engine)
    engine.close()
    engine.close()
    for action in (
        running.result,
        lambda: list(running),
        lambda: hello(engine),
        lambda: engine.tokenize("a"),
    ):
        with pytest.raises(HeadraceError) as caught:
            action()
        assert caught.value.code == "engine_closed"
    running.cancel()


def test_any_thread_may_use_an_engine_and_its_runs(engine: Engine) -> None:
    running = story(engine)
    told: dict[str, str] = {}

    def use() -> None:
        told["story"] = "".join(batch.text for batch in running)
        told["hello"] = hello(engine).result().text
        engine.close()

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert told["story"] == running.result().text
    assert told["hello"].startswith("Hello!")
    with pytest.raises(HeadraceError) as caught:
        hello(engine)
    assert caught.value.code == "engine_closed"


def test_a_request_that_is_no_json_leaves_nothing_behind(engine: Engine) -> None:
    with pytest.raises(HeadraceError, match="this is not JSON") as caught:
        engine.query("1, 2,", {"stop": {"a set"}})
    assert caught.value.code == "invalid_request"
    assert not engine._thread._requests
    assert hello(engine).result().text.startswith("Hello!")


@pytest.mark.timeout(30)
def test_a_number_that_the_engine_cannot_read_ends_its_request(engine: Engine) -> None:
    with pytest.raises(HeadraceError) as caught:
        engine.query("x", {"max_tokens": 10**400}).result()
    assert caught.value.code == "invalid_request"
    assert not engine._thread._requests
    assert hello(engine).result().text.startswith("Hello!")


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ([1], "invalid_request"),
        ([], "invalid_request"),
        ("x", "invalid_request"),
        (0, "invalid_request"),
        ({5: 1}, "invalid_option"),
        ({None: 1}, "invalid_option"),
        ({"stop": nested(100_000)}, "invalid_request"),
        ({"max_tokens": 10**5000}, "invalid_request"),
    ],
    ids=["list", "empty list", "text", "zero", "number as name", "none as name", "deep", "long number"],
)
def test_options_of_another_shape_are_refused(
    engine: Engine, library_path: Path, tiny_model: Path, options: Any, code: str
) -> None:
    for action in (
        lambda: engine.query("x", options),
        lambda: engine.chat(HELLO, options),
        lambda: Engine(tiny_model, options, library=library_path),
    ):
        with pytest.raises(HeadraceError) as caught:
            action()
        assert caught.value.code == code
        assert "\n" not in caught.value.message
    assert hello(engine).result().text.startswith("Hello!")


@pytest.mark.parametrize("name", ["model.gguf\0", "\0", "m\udcffdel.gguf"])
def test_a_path_that_no_file_can_have_for_the_engine(
    library_path: Path, tiny_model: Path, tmp_path: Path, name: str
) -> None:
    # Up to the NUL, the name is that of a model.
    (tmp_path / "model.gguf").symlink_to(tiny_model)
    with pytest.raises(HeadraceError) as caught:
        Engine(tmp_path / name, library=library_path)
    assert caught.value.code == "model_not_found"
    assert caught.value.message.isprintable()
    assert repr(name)[1:-1] in caught.value.message


def test_an_engine_that_is_dropped_is_freed(library_path: Path, tiny_model: Path) -> None:
    def mapped() -> bool:
        return tiny_model.name in Path("/proc/self/maps").read_text()

    gc.collect()
    assert not mapped()
    engine = Engine(tiny_model, {"threads": 1}, library=library_path)
    assert mapped()
    dropped = weakref.ref(engine)
    # A run and its loop in one cycle with the engine: the collector takes them in an order of its own.
    run: Any = story(engine)
    run.loop = iter(run)
    next(run.loop)
    del engine, run
    gc.collect()
    assert dropped() is None
    # The engine's thread ends after its tick, nobody having asked to wait for it.
    end = time.monotonic() + 10
    while mapped() and time.monotonic() < end:
        time.sleep(0.01)
    assert not mapped()


def test_a_run_keeps_its_engine(library_path: Path, tiny_model: Path) -> None:
    run = hello(Engine(tiny_model, {"threads": 1}, library=library_path))
    gc.collect()
    assert run.result().text.startswith("Hello!")


OPEN = """
import asyncio, os, sys
from pathlib import Path
from headrace import Engine
from headrace.library import EngineHandle

free = EngineHandle.free
EngineHandle.free = lambda engine: (free(engine), os.write(1, b"freed"))
model, library = sys.argv[1], Path(sys.argv[2])
"""


@pytest.mark.parametrize(
    "script",
    [
        "engine = Engine(model, library=library)",
        "engine = Engine(model, library=library); run = engine.query('Hello', {'max_tokens': 100_000})",
        "engine = Engine(model, library=library); engine.query('x').result(); sys.exit(0)",
        """
async def main():
    engine = await Engine.open(model, library=library)
    async for batch in engine.query('Hello', {'max_tokens': 100_000}):
        sys.modules['kept'] = engine
        return
asyncio.run(main())
""",
        """
async def main():
    opening = asyncio.ensure_future(Engine.open(model, library=library))
    await asyncio.sleep(0)
    return opening
asyncio.run(main())
""",
        """
import threading
engine = Engine(model, library=library)
run = engine.query('Hello', {'max_tokens': 100_000})
threading.Thread(target=run.result, daemon=True).start()
""",
    ],
    ids=["idle", "running", "exit", "coroutine", "loading", "daemon thread"],
)
def test_an_engine_that_is_left_open_does_not_disturb_the_exit(
    library_path: Path, tiny_model: Path, repo_root: Path, script: str
) -> None:
    command = [sys.executable, "-c", OPEN + script, str(tiny_model), str(library_path)]
    ended = subprocess.run(command, cwd=repo_root, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "freed", "")


def test_a_model_s_path_may_be_a_string(library_path: Path, tiny_model: Path) -> None:
    with Engine(str(tiny_model), {"threads": 1}, library=library_path) as engine:
        assert engine.model["architecture"]
