"""What a page is told when the model's file or the engine's artifacts are not what they should be.

Counterparts: web/models/, web/worker/artifact.js. Each failure is a code and a sentence, and the client
stays usable.
"""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from headrace.server import background_server
from tests.browser.conftest import OpenTab
from tests.browser.tab import Tab

pytestmark = pytest.mark.browser

ADD = "(options) => told(client.add('model', Endpoint.local(options)).then(() => 'added'))"
ADD_FILE = """async ({ url, name }) => {
  const bytes = await (await fetch(url)).arrayBuffer();
  const model = name === null ? new Blob([bytes]) : new File([bytes], name);
  return told(client.add("model", Endpoint.local({ model })).then(() => "added"));
}"""
FAILED_TO_LOAD = "Failed to load resource"


def refusal(tab: Tab, script: str, argument: dict[str, Any]) -> dict[str, Any]:
    outcome = tab.run(script, argument)
    assert "error" in outcome, outcome
    error: dict[str, Any] = outcome["error"]
    assert "\n" not in error["message"]
    assert len(error["message"]) < 400
    return error


def assert_client_usable(tab: Tab) -> None:
    assert tab.run(ADD, {"model": "/models/abc.gguf"}) == {"value": "added"}


BROKEN = [
    ("page.gguf", "model_invalid", "HTML"),
    ("pointer.gguf", "model_invalid", "LFS"),
    ("text.gguf", "model_invalid", ""),
    ("empty.gguf", "model_invalid", ""),
    ("truncated.gguf", "model_truncated", ""),
    ("short.gguf", "model_truncated", ""),
]


@pytest.mark.parametrize(("name", "code", "hint"), BROKEN)
def test_a_broken_download_is_refused(open_tab: OpenTab, name: str, code: str, hint: str) -> None:
    """Cases F6 and F7."""
    tab = open_tab()
    error = refusal(tab, ADD, {"model": f"/models/{name}"})
    assert error["code"] == code
    assert hint in error["message"]
    assert_client_usable(tab)


@pytest.mark.parametrize(("name", "code", "hint"), BROKEN)
def test_a_broken_file_of_the_user_is_refused(open_tab: OpenTab, name: str, code: str, hint: str) -> None:
    """Cases F6 and F7."""
    tab = open_tab()
    error = refusal(tab, ADD_FILE, {"url": f"/models/{name}", "name": "mine.gguf"})
    assert error["code"] == code
    assert hint in error["message"]
    assert_client_usable(tab)


def test_a_missing_file_tells_the_status(open_tab: OpenTab) -> None:
    tab = open_tab()
    tab.allow(FAILED_TO_LOAD)
    error = refusal(tab, ADD, {"model": "/models/nowhere.gguf"})
    assert (error["code"], error["detail"]["status"]) == ("download_failed", 404)
    assert_client_usable(tab)


def test_a_server_that_is_not_there(open_tab: OpenTab) -> None:
    tab = open_tab()
    tab.allow(FAILED_TO_LOAD)
    error = refusal(tab, ADD, {"model": "http://127.0.0.1:9/model.gguf"})
    assert error["code"] == "download_failed"
    assert_client_usable(tab)


@pytest.mark.parametrize(
    ("options", "code", "detail"),
    [
        ({"threads": 500}, "environment_unsupported", {"missing": ["500 threads"]}),
        ({"threads": 2, "artifact": "st"}, "invalid_option", {"option": "threads"}),
    ],
)
def test_threads_that_cannot_be_had_are_refused(
    open_tab: OpenTab, options: dict[str, Any], code: str, detail: dict[str, Any]
) -> None:
    tab = open_tab()
    error = refusal(tab, ADD, {"model": "/models/abc.gguf", **options})
    assert (error["code"], error["detail"]) == (code, detail)
    assert str(options["threads"]) in error["message"]
    assert_client_usable(tab)


def test_an_unknown_option_of_the_endpoint_is_named(open_tab: OpenTab) -> None:
    tab = open_tab()
    outcome = tab.run("() => told((async () => Endpoint.local({ model: '/models/abc.gguf', thread: 2 }))())")
    assert (outcome["error"]["code"], outcome["error"]["detail"]) == ("invalid_option", {"option": "thread"})


class StuckServer(NamedTuple):
    """Sends the first half of a model and then waits."""

    url: str
    given_up: threading.Event  # set when the page has closed the connection


@pytest.fixture
def stuck_server(tiny_model: Path) -> Iterator[StuckServer]:
    data = tiny_model.read_bytes()
    given_up = threading.Event()

    async def half() -> AsyncIterator[bytes]:
        try:
            yield data[: len(data) // 2]
            await asyncio.sleep(60)
        finally:
            given_up.set()

    async def model(_request: Request) -> Response:
        headers = {"Content-Length": str(len(data)), "Access-Control-Allow-Origin": "*"}
        return StreamingResponse(half(), headers=headers)

    with background_server(Starlette(routes=[Route("/model.gguf", model)])) as base:
        yield StuckServer(f"{base}/model.gguf", given_up)


@pytest.mark.parametrize("by", ["signal", "remove"])
def test_a_cancelled_download_is_over(open_tab: OpenTab, stuck_server: StuckServer, by: str) -> None:
    tab = open_tab()
    outcome = tab.run(
        """async ({ model, by }) => {
          const controller = new AbortController();
          const seen = [];
          const onProgress = ({ phase, loaded, total }) => {
            seen.push(phase);
            if (phase !== "download" || loaded === 0 || loaded >= total) return;
            if (by === "signal") controller.abort();
            else client.remove("model");
          };
          const { signal } = controller;
          const adding = client.add("model", Endpoint.local({ model, signal, onProgress }));
          return { ...await told(adding), seen, left: client.list().length };
        }""",
        {"model": stuck_server.url, "by": by},
    )
    assert outcome["error"]["code"] == {"signal": "cancelled", "remove": "engine_closed"}[by]
    assert outcome["seen"][-1] == "download"
    assert outcome["left"] == 0
    assert stuck_server.given_up.wait(10)
    assert_client_usable(tab)


def built(folder: Path, name: str) -> Path:
    """A file of the build in a folder of artifacts: the manifest, or one in the folder it names."""
    (path,) = folder.rglob(name)
    return path


def edit_manifest(folder: Path, **changes: Any) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_artifacts_of_another_version_are_named(open_tab: OpenTab, artifacts_copy: Path) -> None:
    edit_manifest(artifacts_copy, abiVersion=2)
    tab = open_tab(artifacts=artifacts_copy)
    error = refusal(tab, ADD, {"model": "/models/abc.gguf"})
    assert error["code"] == "version_mismatch"


def test_a_wasm_of_another_build_is_a_version_mismatch(open_tab: OpenTab, artifacts_copy: Path) -> None:
    """Case D9: an old script with a new engine: no LinkError, but a sentence that says to reload."""
    st, mt = (built(artifacts_copy, f"headrace-{artifact}.wasm") for artifact in ("st", "mt"))
    st.write_bytes(mt.read_bytes())
    tab = open_tab(artifacts=artifacts_copy)
    error = refusal(tab, ADD, {"model": "/models/abc.gguf", "artifact": "st"})
    assert error["code"] == "version_mismatch"
    assert "LinkError" not in error["message"]


@pytest.mark.parametrize("name", ["manifest.json", "headrace-st.js", "headrace-st.wasm"])
def test_a_missing_artifact_is_named(open_tab: OpenTab, artifacts_copy: Path, name: str) -> None:
    built(artifacts_copy, name).unlink()
    tab = open_tab(artifacts=artifacts_copy)
    tab.allow(FAILED_TO_LOAD)
    error = refusal(tab, ADD, {"model": "/models/abc.gguf", "artifact": "st"})
    assert error["code"] == "artifact_missing"
    assert name in error["message"]


@pytest.mark.parametrize(
    ("name", "content"),
    [("manifest.json", "<!doctype html>"), ("headrace-st.js", "<html>"), ("headrace-st.wasm", "<html>")],
)
def test_an_artifact_that_is_a_page_is_refused(
    open_tab: OpenTab, artifacts_copy: Path, name: str, content: str
) -> None:
    built(artifacts_copy, name).write_text(content)
    tab = open_tab(artifacts=artifacts_copy)
    error = refusal(tab, ADD, {"model": "/models/abc.gguf", "artifact": "st"})
    assert error["code"] in ("artifact_missing", "version_mismatch")


@pytest.mark.parametrize("artifact", ["st", "mt"])
def test_a_model_that_cannot_be_computed_is_refused_when_it_is_added(
    open_tab: OpenTab, artifact: str
) -> None:
    tab = open_tab()
    error = refusal(tab, ADD, {"model": "/models/unsound.gguf", "artifact": artifact})
    assert error["code"] == "model_invalid"
    assert "GGML_ASSERT" in error["message"]
    assert_client_usable(tab)


@pytest.mark.parametrize("artifact", ["st", "mt"])
def test_an_assertion_of_ggml_is_an_error_and_the_page_goes_on(open_tab: OpenTab, artifact: str) -> None:
    tab = open_tab()
    error = refusal(tab, ADD, {"model": "/models/contradictory.gguf", "artifact": artifact})
    assert error["code"] == "model_invalid"
    assert "GGML_ASSERT" in error["message"]
    assert_client_usable(tab)


ASK_UNSOUND = """async (options) => {
  const model = await client.add("unsound", Endpoint.local({
    model: "/models/unsound.gguf", selfTest: false, ...options }));
  return told(client.query(model, "Hi").response);
}"""


@pytest.mark.parametrize(("artifact", "threads"), [("st", 1), ("mt", 1), ("mt", 2)])
def test_an_assertion_in_a_forward_pass_is_an_error_and_the_page_goes_on(
    open_tab: OpenTab, artifact: str, threads: int
) -> None:
    """With two threads, the one that gives up may be a worker of the engine's worker."""
    tab = open_tab()
    error = refusal(tab, ASK_UNSOUND, {"artifact": artifact, "threads": threads})
    assert error["code"] == "engine_aborted"
    assert "GGML_ASSERT" in error["message"]
    assert_client_usable(tab)
