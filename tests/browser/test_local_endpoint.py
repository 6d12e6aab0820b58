"""web/endpoints/local.js and its worker in a real page: streaming, cancelling, the fallback, a dying worker.

Needs Chromium and the artifacts. What broken files and artifacts lead to is in test_local_failures.py.
"""

import struct
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Route

from tests.browser.conftest import OpenTab
from tests.browser.tab import Tab
from tests.gguf_builder import Gguf, parrot

pytestmark = pytest.mark.browser

# Loads a model under the name "model" and keeps the reference.
LOAD = """async ({ model, ...options }) => {
  globalThis.progress = [];
  const onProgress = (event) => progress.push(event);
  return told(client.add("model", Endpoint.local({ model, onProgress, ...options }))
    .then((reference) => { globalThis.model = reference; return client.capabilities(reference); }));
}"""

# Reads a run to its end; `early` counts the batches that came before the result did.
READ = """async ({ operation, input, options }) => {
  const run = client[operation](model, input, options);
  const batches = [];
  let early = 0, settled = false;
  run.response.finally(() => { settled = true; }).catch(() => {});
  for await (const batch of run.tokens) {
    batches.push(batch);
    if (!settled) early += 1;
  }
  return { batches, early, result: await run.response, accepted: run.accepted };
}"""


FILLERS = [b"<%d>" % number for number in range(1500)]


def large_parrot() -> Gguf:
    """A parrot with two tensors of 12.4 MB, whose first answer is the last of its many pieces.

    Output's last row must be read right to say that piece, the embedding's to go on after it.
    """
    model = parrot(FILLERS)
    output = next(tensor for tensor in model.tensors if tensor.name == "output.weight")
    (width, pieces), data = output.shape, bytearray(output.data)
    last = pieces - 2  # after it comes <|end|> only
    struct.pack_into("<f", data, 4 * (width * last + ord(">")), 2.0)
    output.data = bytes(data)
    return model


@pytest.fixture(scope="session")
def model_files(
    model_files: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Path]:
    """Also a parrot for long prompts, and one with large tensors."""
    folder = tmp_path_factory.mktemp("more-models")
    long = parrot([b"a", b"b", b"c"], context=16384).write(folder / "long.gguf")
    large = large_parrot().write(folder / "large.gguf")
    return {**model_files, "long.gguf": long, "large.gguf": large}


def load(tab: Tab, model: str = "tiny.gguf", **options: Any) -> dict[str, Any]:
    # One thread unless a test says otherwise: for models this small, more only wait for each other.
    outcome = tab.run(LOAD, {"model": f"/models/{model}", "threads": 1} | options)
    assert "value" in outcome, outcome
    capabilities: dict[str, Any] = outcome["value"]
    return capabilities


def query(tab: Tab, prompt: str = ">", **options: Any) -> dict[str, Any]:
    answer: dict[str, Any] = tab.run(
        READ, {"operation": "query", "input": prompt, "options": {"temperature": 0} | options}
    )
    return answer


def chat(tab: Tab, text: str, **options: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    answer: dict[str, Any] = tab.run(
        READ, {"operation": "chat", "input": messages, "options": {"temperature": 0} | options}
    )
    return answer


def assert_usable(tab: Tab) -> None:
    """The parrot's slot is free."""
    assert query(tab, maxTokens=3)["result"]["text"] == "abc"


def test_an_answer_streams(open_tab: OpenTab) -> None:
    tab = open_tab()
    capabilities = load(tab, threads=2)
    assert (capabilities["artifact"], capabilities["threads"]) == ("mt", 2)
    answer = chat(tab, "Tell me a story.", maxTokens=300)
    result = answer["result"]
    assert result["text"].startswith("Once upon a time there was a little robot")
    assert (result["finishReason"], result["stats"]["artifact"]) == ("stop", "mt")
    assert answer["early"] > 3
    assert "".join(batch["text"] for batch in answer["batches"]) == result["text"]
    assert [token for batch in answer["batches"] for token in batch["tokenIds"]] == result["tokenIds"]
    assert answer["accepted"]["options"]["maxTokens"] == 300
    assert answer["accepted"]["promptTokens"] == result["usage"]["inputTokens"]
    assert result["stats"]["decodeTokensPerSecond"] > 0


def test_loading_tells_its_progress(open_tab: OpenTab) -> None:
    tab = open_tab()
    load(tab)
    progress = tab.run("() => progress")
    # The artifact is started first, so that a wrong build is told before a long download.
    assert [phase for phase, _ in groupby(event["phase"] for event in progress)] == [
        "start",
        "download",
        "load",
    ]
    for phase in ("start", "load"):
        last = [event for event in progress if event["phase"] == phase][-1]
        assert (last["loaded"], last["total"]) == (1, 1)
    downloads = [event for event in progress if event["phase"] == "download"]
    assert downloads[-1]["loaded"] == downloads[-1]["total"] == 3812128


@pytest.mark.parametrize("artifact", ["st", "mt"])
def test_a_tensor_larger_than_one_read_of_the_file_is_read_whole(open_tab: OpenTab, artifact: str) -> None:
    tab = open_tab()
    slice_bytes = tab.run('async () => (await import("/headrace/models/blob_file.js")).SLICE_BYTES')
    assert max(len(tensor.data) for tensor in large_parrot().tensors) > slice_bytes
    load(tab, "large.gguf", artifact=artifact)
    assert query(tab, maxTokens=3)["result"]["text"] == "<1499><0><1>"


@pytest.mark.parametrize("artifact", ["st", "mt"])
def test_a_cancelled_run_frees_its_slot(open_tab: OpenTab, artifact: str) -> None:
    """Case G3, twice and once more afterwards."""
    tab = open_tab()
    load(tab, "abc.gguf", artifact=artifact)
    result = tab.run(
        """async () => {
          const run = client.query(model, ">", { maxTokens: 4000, temperature: 0 });
          for await (const batch of run.tokens) {
            run.cancel();
            run.cancel();
          }
          const result = await run.response;
          run.cancel();
          return result;
        }"""
    )
    assert result["finishReason"] == "cancelled"
    assert 0 < result["usage"]["outputTokens"] < 4000
    assert result["text"].startswith("a")
    assert_usable(tab)


def test_a_signal_cancels_a_prefill_and_the_next_request_is_answered_at_once(open_tab: OpenTab) -> None:
    """Case G3."""
    tab = open_tab()
    load(tab, "long.gguf", context={"size": 16384})
    whole, first, second = tab.run(
        """async () => {
          const options = { maxTokens: 3, temperature: 0 };
          const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
          const whole = await client.query(model, "y".repeat(16000), options).response;

          // Another prompt, of which nothing is known yet.
          const controller = new AbortController();
          const first = client.query(model, "x".repeat(16000), { ...options, signal: controller.signal });
          while (!first.accepted) await sleep(5);
          await sleep(100);
          controller.abort();
          const second = client.query(model, ">", options);
          return Promise.all([whole, first.response, second.response]);
        }"""
    )
    assert (whole["usage"]["inputTokens"], first["usage"]["inputTokens"]) == (16000, 16000)
    assert whole["stats"]["prefillMs"] > 1000
    assert (first["finishReason"], first["usage"]["outputTokens"], first["text"]) == ("cancelled", 0, "")
    worked = first["stats"]["totalMs"] - first["stats"]["queueMs"]
    assert 50 < worked < whole["stats"]["prefillMs"] / 2
    assert second["text"] == "abc"


@pytest.mark.parametrize(
    ("options", "option"), [("{ signal: {} }", "signal"), ("null", "options"), ("7", "options")]
)
def test_options_that_are_none_are_told_by_the_run(open_tab: OpenTab, options: str, option: str) -> None:
    tab = open_tab()
    load(tab, "abc.gguf")
    error = tab.run(f"() => told(client.query(model, '>', {options}).response)")["error"]
    assert (error["code"], error["detail"]) == ("invalid_option", {"option": option})
    assert_usable(tab)


def test_a_reader_that_throws_frees_the_slot(open_tab: OpenTab) -> None:
    """Case G3."""
    tab = open_tab()
    load(tab, "abc.gguf")
    outcome = tab.run(
        """async () => {
          const run = client.query(model, ">", { maxTokens: 4000, temperature: 0 });
          let reason = null;
          try {
            for await (const batch of run.tokens) throw new Error("of the reader");
          } catch (error) {
            reason = error.message;
          }
          return { reason, result: await run.response };
        }"""
    )
    assert (outcome["reason"], outcome["result"]["finishReason"]) == ("of the reader", "cancelled")
    assert_usable(tab)


def test_a_page_without_isolation_runs_on_one_thread_and_says_why(open_tab: OpenTab) -> None:
    tab = open_tab(isolation=False)
    assert tab.run("() => crossOriginIsolated") is False
    load(tab)
    result = chat(tab, "Hello!")["result"]
    assert result["text"] == "Hello! I am a tiny mixture of experts model made for tests."
    assert (result["stats"]["artifact"], result["stats"]["threads"]) == ("st", 1)
    assert "not cross-origin isolated" in " ".join(result["reasons"])


def test_threads_without_isolation_are_refused(open_tab: OpenTab) -> None:
    tab = open_tab(isolation=False)
    outcome = tab.run(LOAD, {"model": "/models/tiny.gguf", "artifact": "mt"})
    assert outcome["error"]["code"] == "environment_unsupported"
    assert "Cross-Origin-Opener-Policy" in outcome["error"]["message"]


def test_characters_are_never_cut(open_tab: OpenTab) -> None:
    """Case G1."""
    tab = open_tab()
    load(tab, "mixed.gguf", artifact="st")
    for count in [*range(1, 12), 40]:
        answer = query(tab, maxTokens=count)
        spoken = ("😀語ж".encode() * 10)[:count].decode(errors="ignore")
        assert answer["result"]["text"] == spoken == "".join(batch["text"] for batch in answer["batches"])
        assert all(set(batch["text"]) <= set("😀語ж") for batch in answer["batches"])


def test_a_stop_string_never_shows(open_tab: OpenTab) -> None:
    """Case G2."""
    tab = open_tab()
    load(tab, "abc.gguf")
    answer = query(tab, maxTokens=100, stop=["cab"])
    assert answer["result"]["text"] == "ab" == "".join(batch["text"] for batch in answer["batches"])


def test_workers_that_are_terminated_thrice_reject_everything(open_tab: OpenTab) -> None:
    """Case E9. Before that the endpoint recovers: test_recovery.py."""
    tab = open_tab()
    load(tab, "abc.gguf")
    outcome = tab.run(
        """async () => {
          const runs = [1, 2].map(() => client.query(model, ">", { maxTokens: 4000, temperature: 0 }));
          const responses = runs.map((run) => told(run.response));
          const read = told((async () => {
            for await (const batch of runs[0].tokens) model._worker.terminate();
          })());
          const ended = await Promise.all([...responses, read]);
          const later = await told(client.query(model, ">", {}).response);
          await client.remove(model);
          return [...ended, later];
        }"""
    )
    assert [answer["error"]["code"] for answer in outcome] == ["worker_crashed"] * 4
    assert [answer["error"]["detail"]["restarts"] for answer in outcome] == [2] * 4
    load(tab, "abc.gguf")
    assert_usable(tab)


def test_a_removed_endpoint_rejects_its_runs(open_tab: OpenTab) -> None:
    """Case G4: remove during generate."""
    tab = open_tab()
    load(tab, "abc.gguf")
    outcome = tab.run(
        """async () => {
          const run = client.query(model, ">", { maxTokens: 4000, temperature: 0 });
          const response = told(run.response);
          for await (const batch of run.tokens) { await client.remove(model); break; }
          return [await response, await told(client.query(model, ">", {}).response), client.list().length];
        }"""
    )
    assert outcome[0]["error"]["code"] == "engine_closed"
    assert outcome[1]["error"]["code"] == "endpoint_unknown"
    assert outcome[2] == 0


def test_two_models_at_once(open_tab: OpenTab) -> None:
    """Case G4: add during add."""
    tab = open_tab()
    texts = tab.run(
        """async () => {
          const [one, two] = await Promise.all([
            client.add("one", Endpoint.local({ model: "/models/abc.gguf", threads: 1 })),
            client.add("two", Endpoint.local({ model: "/models/tiny.gguf", threads: 1 })),
          ]);
          const runs = [
            client.query(one, ">", { maxTokens: 6, temperature: 0 }),
            client.chat(two, [{ role: "user", content: "Hello!" }], { temperature: 0 }),
            client.query(one, ">", { maxTokens: 3, temperature: 0 }),
          ];
          return Promise.all(runs.map(async (run) => (await run.response).text));
        }"""
    )
    assert texts == ["abcabc", "Hello! I am a tiny mixture of experts model made for tests.", "abc"]


@pytest.mark.parametrize(
    "wrap", ["new File([bytes], 'mine.gguf')", "new File([bytes], '..')", "new Blob([bytes])"]
)
def test_a_file_of_the_user(open_tab: OpenTab, wrap: str) -> None:
    tab = open_tab()
    text = tab.run(
        """async () => {
          const bytes = await (await fetch("/models/abc.gguf")).arrayBuffer();
          const model = await client.add("file", Endpoint.local({ model: """
        + wrap
        + """ }));
          return (await client.query(model, ">", { maxTokens: 3, temperature: 0 }).response).text;
        }"""
    )
    assert text == "abc"


def test_a_browser_without_promise_integration(open_tab: OpenTab) -> None:
    without = "delete WebAssembly.Suspending; delete WebAssembly.promising;"

    def serve_worker(route: Route) -> None:
        # An import, because a module's imports run before its own first line.
        original = route.fetch()
        route.fulfill(response=original, body=f'import "data:text/javascript,{without}";\n{original.text()}')

    tab = open_tab(init_script=without)
    tab.page.route("**/engine_worker.js", serve_worker)
    assert tab.run("() => measureEnvironment().jspi") is False
    load(tab, "abc.gguf")
    assert tab.page.workers[0].evaluate("() => 'Suspending' in WebAssembly") is False
    assert_usable(tab)


def test_errors_keep_code_and_detail(open_tab: OpenTab) -> None:
    tab = open_tab()
    load(tab, "abc.gguf", context={"size": 256})
    ask = "(options) => told(client.query(model, options.prompt ?? '>', options.options ?? {}).response)"
    unknown = tab.run(ask, {"options": {"maxToken": 3}})["error"]
    assert (unknown["code"], unknown["detail"]) == ("invalid_option", {"option": "maxToken"})
    overflow = tab.run(ask, {"prompt": "x" * 300})["error"]
    assert (overflow["code"], overflow["detail"]["contextSize"]) == ("context_overflow", 256)
    assert_usable(tab)
