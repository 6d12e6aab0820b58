"""What a page is told when the model's file or the engine's artifacts are not what they should be.

Counterparts: web/models/, web/worker/artifact.js. Each failure is a code and a sentence, and the client
stays usable.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import OpenTab, Tab

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
    tab = open_tab()
    error = refusal(tab, ADD, {"model": f"/models/{name}"})
    assert error["code"] == code
    assert hint in error["message"]
    assert_client_usable(tab)


@pytest.mark.parametrize(("name", "code", "hint"), BROKEN)
def test_a_broken_file_of_the_user_is_refused(open_tab: OpenTab, name: str, code: str, hint: str) -> None:
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


def test_an_unknown_option_of_the_endpoint_is_named(open_tab: OpenTab) -> None:
    tab = open_tab()
    outcome = tab.run("() => told((async () => Endpoint.local({ model: '/models/abc.gguf', thread: 2 }))())")
    assert (outcome["error"]["code"], outcome["error"]["detail"]) == ("invalid_option", {"option": "thread"})


def test_a_cancelled_download_is_over(open_tab: OpenTab) -> None:
    tab = open_tab()
    outcome = tab.run(
        """async () => {
          const controller = new AbortController();
          const adding = told(client.add("model", Endpoint.local({
            model: "/models/tiny.gguf", signal: controller.signal, onProgress: () => controller.abort(),
          })));
          return adding;
        }"""
    )
    assert outcome["error"]["code"] == "cancelled"
    assert_client_usable(tab)


def edit_manifest(folder: Path, **changes: Any) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_artifacts_of_another_version_are_named(open_tab: OpenTab, artifacts_copy: Path) -> None:
    edit_manifest(artifacts_copy, abiVersion=2)
    tab = open_tab(artifacts=artifacts_copy)
    error = refusal(tab, ADD, {"model": "/models/abc.gguf"})
    assert error["code"] == "version_mismatch"


def test_a_wasm_of_another_build_is_a_version_mismatch(open_tab: OpenTab, artifacts_copy: Path) -> None:
    """An old script with a new engine: no LinkError, but a sentence that says to reload."""
    (artifacts_copy / "headrace-st.wasm").write_bytes((artifacts_copy / "headrace-mt.wasm").read_bytes())
    tab = open_tab(artifacts=artifacts_copy)
    error = refusal(tab, ADD, {"model": "/models/abc.gguf", "artifact": "st"})
    assert error["code"] == "version_mismatch"
    assert "LinkError" not in error["message"]


@pytest.mark.parametrize("name", ["manifest.json", "headrace-st.js", "headrace-st.wasm"])
def test_a_missing_artifact_is_named(open_tab: OpenTab, artifacts_copy: Path, name: str) -> None:
    (artifacts_copy / name).unlink()
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
    (artifacts_copy / name).write_text(content)
    tab = open_tab(artifacts=artifacts_copy)
    error = refusal(tab, ADD, {"model": "/models/abc.gguf", "artifact": "st"})
    assert error["code"] in ("artifact_missing", "version_mismatch")


@pytest.mark.parametrize("artifact", ["st", "mt"])
def test_an_assertion_of_ggml_is_an_error_and_the_page_goes_on(open_tab: OpenTab, artifact: str) -> None:
    tab = open_tab()
    error = refusal(tab, ADD, {"model": "/models/contradictory.gguf", "artifact": artifact})
    assert error["code"] == "engine_aborted"
    assert "GGML_ASSERT" in error["message"]
    assert_client_usable(tab)
