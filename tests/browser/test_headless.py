"""headrace/headless.py through the real thing: server, Chromium, page, worker, engine."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette

from headrace.errors import HeadraceError
from headrace.headless import ask
from headrace.server import create_app

pytestmark = pytest.mark.browser

DEFAULTS: Mapping[str, Any] = {
    "operation": "query",
    "text": ">",
    "model": "abc.gguf",
    "options": {"temperature": 0, "max_tokens": 6},
    "threads": None,
    "artifact": None,
    "on_text": lambda _text: None,
}


@pytest.fixture
def app(repo_root: Path, artifacts_dir: Path, model_files: Mapping[str, Path]) -> Starlette:
    return create_app(web_dir=repo_root / "web", artifacts_dir=artifacts_dir, models=model_files)


@pytest.fixture
def run_ask(app: Starlette, chromium: Path) -> Callable[..., dict[str, Any]]:
    def run_ask(**changes: Any) -> dict[str, Any]:
        # In a thread, because this one already has a Playwright of its own.
        arguments: dict[str, Any] = {"chromium": chromium, "app": app, **DEFAULTS, **changes}
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(lambda: ask(**arguments)).result()

    return run_ask


RunAsk = Callable[..., dict[str, Any]]


def test_chat_streams_and_returns_the_record(run_ask: RunAsk) -> None:
    shown: list[str] = []
    record = run_ask(
        operation="chat",
        text="Hello!",
        model="tiny.gguf",
        options={"temperature": 0, "max_tokens": 100},
        threads=2,
        artifact="mt",
        on_text=shown.append,
    )
    assert record["text"] == "Hello! I am a tiny mixture of experts model made for tests."
    assert "".join(shown) == record["text"]
    assert len(shown) > 1
    assert (record["stats"]["artifact"], record["stats"]["threads"]) == ("mt", 2)
    assert record["usage"]["inputTokens"] == 45


def test_the_page_chooses_when_nothing_is_asked_for(run_ask: RunAsk) -> None:
    record = run_ask()
    assert (record["text"], record["stats"]["artifact"]) == ("abcabc", "mt")


def test_an_error_keeps_its_code(run_ask: RunAsk) -> None:
    with pytest.raises(HeadraceError) as caught:
        run_ask(options={"max_token": 3})
    assert (caught.value.code, caught.value.detail["option"]) == ("invalid_option", "maxToken")


@pytest.mark.parametrize(
    ("model", "code"),
    [
        ("truncated.gguf", "model_truncated"),
        ("page.gguf", "model_invalid"),
        ("nowhere.gguf", "download_failed"),
        ("http://127.0.0.1:9/model.gguf", "download_failed"),
    ],
)
def test_a_bad_model_keeps_its_code(run_ask: RunAsk, model: str, code: str) -> None:
    with pytest.raises(HeadraceError) as caught:
        run_ask(model=model)
    assert caught.value.code == code
    assert "\n" not in caught.value.message


def test_a_reader_that_throws_is_heard(run_ask: RunAsk) -> None:
    def refuse(_text: str) -> None:
        raise BrokenPipeError("nobody reads")

    with pytest.raises(BrokenPipeError, match="nobody reads"):
        run_ask(on_text=refuse, options={"temperature": 0, "max_tokens": 4000})


def test_a_browser_that_is_not_there(run_ask: RunAsk, tmp_path: Path) -> None:
    with pytest.raises(HeadraceError) as caught:
        run_ask(chromium=tmp_path / "chromium")
    assert caught.value.code == "environment_unsupported"
    assert "\n" not in caught.value.message


def test_a_page_that_is_not_there(chromium: Path, tmp_path: Path) -> None:
    app = create_app(web_dir=tmp_path, artifacts_dir=tmp_path, models={})
    arguments: dict[str, Any] = {"chromium": chromium, "app": app, **DEFAULTS}
    with ThreadPoolExecutor(1) as pool, pytest.raises(HeadraceError) as caught:
        pool.submit(lambda: ask(**arguments)).result()
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("victim", ["browser", "renderer"])
def test_a_browser_that_dies_ends_it(run_ask: RunAsk, victim: str) -> None:
    others = set(chromium_processes(victim))
    killed: list[int] = []

    def kill(_text: str) -> None:
        if not killed:
            killed.extend(set(chromium_processes(victim)) - others)
            for process in killed:
                os.kill(process, signal.SIGKILL)

    with pytest.raises(HeadraceError) as caught:
        run_ask(on_text=kill, options={"temperature": 0, "max_tokens": 4000})
    assert caught.value.code == "worker_crashed"
    assert killed


def chromium_processes(kind: str) -> list[int]:
    """The browser processes, or their renderers, below this process."""
    parents, commands = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                status = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                parents[int(entry.name)] = int(status[1])
                commands[int(entry.name)] = (entry / "cmdline").read_bytes().decode(errors="replace")

    def is_below(process: int) -> bool:
        while process in parents and process != os.getpid():
            process = parents[process]
        return process == os.getpid()

    def is_kind(command: str) -> bool:
        if kind == "renderer":
            return "--type=renderer" in command
        return "--remote-debugging" in command and "--type=" not in command

    return [process for process, command in commands.items() if is_kind(command) and is_below(process)]


INTERRUPTED = """
import sys
from pathlib import Path
from headrace.headless import ask
from headrace.server import create_app
web, artifacts, model, chromium = map(Path, sys.argv[1:])
app = create_app(web_dir=web, artifacts_dir=artifacts, models={"model.gguf": model})
try:
    ask(chromium=chromium, app=app, operation="query", text=">", model="model.gguf",
        options={"temperature": 0, "max_tokens": 4000}, threads=None, artifact=None,
        on_text=lambda text: print("text", flush=True))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_ends_it(
    repo_root: Path, artifacts_dir: Path, model_files: Mapping[str, Path], chromium: Path
) -> None:
    paths = [repo_root / "web", artifacts_dir, model_files["abc.gguf"], chromium]
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, *map(str, paths)],
        cwd=repo_root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout
        assert process.stderr
        assert process.stdout.readline() == "text\n"
        # Ctrl-C in a terminal reaches the whole group, the browser and its driver included.
        os.killpg(process.pid, signal.SIGINT)
        output, errors = process.communicate(timeout=30)
    assert output.endswith("interrupted\n"), errors
    assert errors == ""
