"""A worker that dies in mid-stream, in a real page: the stream goes on, no piece twice and none left out.

Counterparts: web/endpoints/local_session.js and recovery.js; native/engine/replay.cpp. On fake workers:
tests/web/recovery.test.js. Case E9.
"""

from typing import Any

import pytest

from tests.browser.conftest import OpenTab
from tests.browser.profiles import Origin
from tests.browser.tab import Tab

pytestmark = pytest.mark.browser

LOAD = """async (options) => {
  globalThis.progress = [];
  const onProgress = (event) => progress.push(event);
  globalThis.model = await client.add("model", Endpoint.local({
    backend: "cpu", threads: 1, onProgress, ...options }));
}"""

# Reads a run, and ends the worker whenever the text has come to one of the lengths in `kills`.
READ = """async (request) => {
  globalThis.stream ??= async ({ operation = "query", input = ">", options, kills = [] }) => {
    const run = client[operation](model, input, { temperature: 0, ...options });
    const left = [...kills];
    let text = "", reasoning = "", calls = "", error = null;
    const tokenIds = [];
    try {
      for await (const batch of run.tokens) {
        text += batch.text;
        reasoning += batch.reasoning ?? "";
        tokenIds.push(...batch.tokenIds);
        for (const call of batch.toolCalls ?? []) calls += (call.name ?? "") + call.arguments;
        if (tokenIds.length >= left[0]) {
          left.shift();
          model._worker.terminate();
        }
      }
    } catch {}
    const { value, error: reason } = await told(run.response);
    const seen = { text, reasoning, calls, tokenIds };
    return { ...seen, kills: kills.length - left.length, result: value, error: reason };
  };
  return Array.isArray(request) ? Promise.all(request.map(stream)) : stream(request);
}"""

ABC = "abc" * 2000


def load(tab: Tab, model: str, **options: object) -> None:
    tab.run(LOAD, {"model": f"/models/{model}", **options})


def read(tab: Tab, **request: object) -> Any:
    return tab.run(READ, request)


def check(outcome: dict[str, Any], text: str, restarts: int = 1) -> dict[str, Any]:
    """The whole text, once; and the result says what has happened."""
    result: dict[str, Any] = outcome["result"]
    assert outcome["error"] is None, outcome["error"]
    assert outcome["text"] == text == result["text"]
    assert outcome["tokenIds"] == result["tokenIds"]
    assert result["usage"]["outputTokens"] == len(result["tokenIds"])
    often = {0: [], 1: ["once"], 2: ["twice"]}[restarts]
    told = [reason for reason in result["reasons"] if "restarted" in reason]
    assert [word for word in often if word in told[0]] == often if often else told == []
    assert (result["stats"]["replayed"] > 0) == (restarts > 0)
    return result


@pytest.mark.parametrize("artifact", ["st", "mt"])
def test_a_stream_goes_on(open_tab: OpenTab, artifact: str) -> None:
    tab = open_tab()
    load(tab, "abc.gguf", artifact=artifact)
    outcome = read(tab, options={"maxTokens": 3000}, kills=[700])
    result = check(outcome, ABC[:3000])
    assert outcome["kills"] == 1
    assert 700 <= result["stats"]["replayed"] < 3000
    assert result["finishReason"] == "length"
    phases = [event["phase"] for event in tab.run("() => progress")]
    assert phases.count("start") == 4, "loading was told twice, from 0 to 1"
    # And the endpoint is as good as new.
    check(read(tab, options={"maxTokens": 5}), ABC[:5], restarts=0)
    assert "restarted once" in tab.run("() => client.capabilities(model).reasons.at(-1)")


def test_characters_and_stop_strings_that_were_half_seen(open_tab: OpenTab) -> None:
    """Of "mixed.gguf" each byte is a token: wherever it is cut, it is within a character somewhere."""
    tab = open_tab()
    load(tab, "mixed.gguf")
    spoken = "😀語ж" * 200
    for kills in range(1, 10):
        options = {"maxTokens": 900, "stop": ["語ж😀語xy"]}
        check(read(tab, options=options, kills=[kills]), spoken.encode()[:900].decode(errors="ignore"))


def test_several_streams_go_on_and_the_queue_with_them(open_tab: OpenTab) -> None:
    tab = open_tab()
    load(tab, "abc.gguf", context={"size": 1024, "slots": 3})
    requests: list[dict[str, Any]] = [
        {"options": {"maxTokens": 800}, "kills": [300]},
        {"options": {"maxTokens": 700, "contextKey": "x"}},
        {"options": {"maxTokens": 600, "contextKey": "x"}},  # waits for the one before
        {"options": {"maxTokens": 500, "logprobs": True, "topLogprobs": 1}},
        {"options": {"maxTokens": 400}},
        {"options": {"maxTokens": 300}},
    ]
    outcomes = tab.run(READ, requests)
    for outcome, request in zip(outcomes, requests, strict=True):
        assert outcome["error"] is None
        assert outcome["text"] == outcome["result"]["text"] == ABC[: request["options"]["maxTokens"]]
        assert outcome["tokenIds"] == outcome["result"]["tokenIds"]
    assert sum(outcome["result"]["stats"]["replayed"] > 0 for outcome in outcomes) == 3
    logprobs = outcomes[3]["result"]["logprobs"]
    assert [entry["tokenId"] for entry in logprobs] == outcomes[3]["result"]["tokenIds"]


def test_a_prompt_that_was_being_computed_is_computed_again(open_tab: OpenTab) -> None:
    tab = open_tab()
    load(tab, "abc.gguf", context={"size": 4096})
    result = tab.run(
        """async () => {
          const run = client.query(model, "x".repeat(3900), { maxTokens: 30, temperature: 0 });
          while (!run.accepted) await new Promise((resolve) => setTimeout(resolve, 0));
          model._worker.terminate();
          return run.response;
        }"""
    )
    assert (result["text"], result["usage"]["inputTokens"]) == (ABC[:30], 3900)
    assert "restarted once" in result["reasons"][-1]


@pytest.mark.parametrize("seed", [-1, 3])
def test_an_answer_that_is_drawn_goes_on(open_tab: OpenTab, seed: int) -> None:
    """Not always with the tokens that would have come: rounding may move a draw. Nothing is told twice."""
    tab = open_tab()
    load(tab, "tiny.gguf")
    chat = {"operation": "chat", "input": [{"role": "user", "content": "Hello!"}]}
    options = {"temperature": 1.5, "seed": seed, "maxTokens": 120, "logitBias": {"2": -100}}
    outcome = read(tab, **chat, options=options, kills=[20])
    result = check(outcome, outcome["text"])
    assert len(result["tokenIds"]) == 120
    assert tab.run("(ids) => client.detokenize(model, ids)", result["tokenIds"]) == result["text"]


def test_a_structured_answer_stays_one(open_tab: OpenTab) -> None:
    tab = open_tab()
    load(tab, "tiny.gguf")
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 12}, "good": {"type": "boolean"}},
        "required": ["name", "good"],
    }
    answer_format = {"type": "json_schema", "json_schema": {"schema": schema}}
    chat = {"operation": "chat", "input": [{"role": "user", "content": "Hello!"}]}
    options = {"maxTokens": 100, "responseFormat": answer_format}
    whole = read(tab, **chat, options=options)
    for kills in (1, 3, 6):
        check(read(tab, **chat, options=options, kills=[kills]), whole["text"])


def test_what_is_not_generated_is_asked_again(open_tab: OpenTab) -> None:
    tab = open_tab()
    load(tab, "tiny.gguf")
    before, after = tab.run(
        """async () => {
          const ask = () => Promise.all([
            client.embed(model, ["one", "two"]).response.then(({ vectors }) => vectors),
            client.tokenize(model, "one two"),
            client.countTokens(model, "one two three"),
          ]);
          const before = await ask();
          const asked = ask();
          model._worker.terminate();
          return [before, await asked];
        }"""
    )
    assert after[1:] == before[1:]
    for ours, theirs in zip(before[0], after[0], strict=True):
        assert ours == pytest.approx(theirs, abs=1e-5)


def test_the_second_time_too_and_the_third_is_the_end(open_tab: OpenTab) -> None:
    """Case E9: every pending promise rejects, when there is no hope any more."""
    tab = open_tab()
    load(tab, "abc.gguf", context={"slots": 2})
    check(read(tab, options={"maxTokens": 3000}, kills=[300, 900]), ABC[:3000], restarts=2)

    outcomes = tab.run(
        READ, [{"options": {"maxTokens": 4000}, "kills": [300, 900, 1500]}, {"options": {"maxTokens": 4000}}]
    )
    for outcome in outcomes:
        assert outcome["error"]["code"] == "worker_crashed"
        assert outcome["error"]["detail"]["restarts"] == 2
        assert "restarted twice before" in outcome["error"]["message"]
        assert outcome["text"] == ABC[: len(outcome["text"])], "what was told was right"
        assert len(outcome["text"]) >= 900
    later = tab.run("() => told(client.query(model, '>').response)")
    assert later["error"]["code"] == "worker_crashed"
    tab.run("() => client.remove(model)")
    load(tab, "abc.gguf")
    check(read(tab, options={"maxTokens": 3}), "abc", restarts=0)


def test_a_cancel_without_an_engine_ends_a_run_at_once(open_tab: OpenTab) -> None:
    tab = open_tab()
    load(tab, "abc.gguf")
    left, broken, unread = tab.run(
        """async () => {
          const options = { maxTokens: 3000, temperature: 0 };
          const [left, broken, unread] = [1, 2, 3].map(() => client.query(model, ">", options));
          let text = "";
          for await (const batch of left.tokens) {
            text += batch.text;
            if (text.length < 200) continue;
            model._worker.terminate();
            left.cancel();
          }
          for await (const batch of broken.tokens) break;
          return [{ text, ...await left.response }, await broken.response, await unread.response];
        }"""
    )
    assert left["finishReason"] == broken["finishReason"] == "cancelled"
    assert left["text"] == ABC[: len(left["text"])]
    assert len(left["tokenIds"]) == len(left["text"]) >= 200
    assert unread["text"] == ABC[:3000], "whoever reads or not, it goes on"


@pytest.mark.parametrize("moment", ["at once", "while it loads"])
def test_an_endpoint_is_removed_while_it_is_restarted(open_tab: OpenTab, moment: str) -> None:
    tab = open_tab()
    load(tab, "abc.gguf")
    error = tab.run(
        """async (moment) => {
          const run = client.query(model, ">", { maxTokens: 4000, temperature: 0 });
          const response = told(run.response);
          for await (const batch of run.tokens) {
            if (progress.at(-1).phase !== "load") break;
            const worker = model._worker;
            worker.terminate();
            while (moment !== "at once" && model._worker === worker) {
              await new Promise((resolve) => setTimeout(resolve, 0));
            }
            await client.remove(model);
            break;
          }
          return (await response).error;
        }""",
        moment,
    )
    assert error["code"] == "engine_closed"
    load(tab, "abc.gguf")
    check(read(tab, options={"maxTokens": 3}), "abc", restarts=0)


def test_the_model_comes_from_the_store_and_is_not_fetched_again(site: Origin) -> None:
    tab = site.open()
    fetched: list[str] = []
    tab.page.context.on("request", lambda request: fetched.append(request.url))
    load(tab, "abc.gguf")
    check(read(tab, options={"maxTokens": 1000}, kills=[100]), ABC[:1000])
    assert len([url for url in fetched if url.endswith("abc.gguf")]) <= 2, "the probe and the download"
    assert len([url for url in fetched if url.endswith("abc.gguf")]) >= 1
    assert [event["phase"] for event in tab.run("() => progress")].count("start") == 4


def test_a_file_of_the_user_is_used_again(open_tab: OpenTab) -> None:
    tab = open_tab()
    tab.run(
        """async () => {
          const bytes = await (await fetch("/models/abc.gguf")).arrayBuffer();
          const file = new File([bytes], "mine.gguf");
          globalThis.model = await client.add("model", Endpoint.local({ backend: "cpu", model: file }));
        }"""
    )
    check(read(tab, options={"maxTokens": 1000}, kills=[100]), ABC[:1000])
