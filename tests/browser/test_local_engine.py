"""What the engine can do, from a page: every operation and load option through web/client.js.

Counterparts: tests/python/, where the same is tested of the native build and in more detail. Here are both
artifacts, and that nothing is lost between the engine and the application. One tab serves all tests of an
artifact; a model that the test before has loaded in the same way is used again.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from build_tools.workspace import Workspace
from tests.browser.conftest import TabsIn
from tests.browser.tab import Tab
from tests.gguf_builder import embedder, parrot
from tests.lora_builder import lora

pytestmark = pytest.mark.browser

GREEDY = {"temperature": 0}
HELLO = [{"role": "user", "content": "Hello!"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris, naïve 😀"}}\n</tool_call>'
TEMPLATE = "models/templates/Qwen-Qwen2.5-7B-Instruct.jinja"

LOAD = """async ({ model, ...options }) => {
  for (const endpoint of client.list()) await client.remove(endpoint);
  globalThis.progress = [];
  const onProgress = (event) => progress.push(event);
  return told(client.add("model", Endpoint.local({ model, threads: 1, onProgress, ...options }))
    .then((reference) => { globalThis.model = reference; return client.capabilities(reference); }));
}"""

# A run, read to its end.
RUN = """async ({ method, input, options }) => {
  const run = client[method](model, input, options);
  const batches = [];
  try { for await (const batch of run.tokens) batches.push(batch); } catch {}
  return { ...await told(run.response), batches, accepted: run.accepted };
}"""

ASK = "({ method, args }) => told((async () => client[method](model, ...args))())"

# Runs side by side: what each gave, and in which order their batches and ends came.
RACE = """async (requests) => {
  const order = [];
  const outcomes = requests.map(async ({ name, prompt, options }) => {
    const run = client.query(model, prompt, { temperature: 0, ...options });
    try { for await (const batch of run.tokens) order.push(name); } catch {}
    order.push(`${name} ends`);
    return told(run.response);
  });
  return { outcomes: await Promise.all(outcomes), order };
}"""


@dataclass
class Local:
    """A tab, the artifact to run in it, and how its model was loaded."""

    tab: Tab
    artifact: str
    loaded: dict[str, Any] = field(default_factory=dict)
    outcome: dict[str, Any] = field(default_factory=dict)

    def try_load(self, model: str, **options: Any) -> dict[str, Any]:
        argument = {"model": f"/models/{model}", "artifact": self.artifact, **options}
        if argument != self.loaded:
            self.outcome = self.tab.run(LOAD, argument)
            self.loaded = argument
        return self.outcome

    def load(self, model: str, **options: Any) -> dict[str, Any]:
        outcome = self.try_load(model, **options)
        assert "value" in outcome, outcome
        capabilities: dict[str, Any] = outcome["value"]
        assert capabilities["artifact"] == self.artifact
        return capabilities

    def run(self, method: str, input: object, **options: Any) -> dict[str, Any]:
        """The outcome, with `batches` and `accepted`."""
        outcome: dict[str, Any] = self.tab.run(RUN, {"method": method, "input": input, "options": options})
        return outcome

    def result(self, method: str, input: object, **options: Any) -> dict[str, Any]:
        outcome = self.run(method, input, **options)
        assert "value" in outcome, outcome
        result: dict[str, Any] = outcome["value"]
        return result

    def refusal(self, method: str, input: object, **options: Any) -> dict[str, Any]:
        outcome = self.run(method, input, **options)
        assert "error" in outcome, outcome
        error: dict[str, Any] = outcome["error"]
        return error

    def ask(self, method: str, *args: object) -> Any:
        outcome = self.tab.run(ASK, {"method": method, "args": args})
        assert "value" in outcome, outcome
        return outcome["value"]

    def race(self, *requests: tuple[str, dict[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
        named = [{"name": name, "prompt": ">", "options": options} for name, options in requests]
        outcome = self.tab.run(RACE, named)
        return outcome["outcomes"], outcome["order"]


@pytest.fixture(scope="module")
def model_files(
    model_files: Mapping[str, Path],
    tiny_model: Path,
    workspace: Workspace,
    tmp_path_factory: pytest.TempPathFactory,
) -> Mapping[str, Path]:
    """Also an adapter for the tiny model, an encoder, and a parrot that says CALL and knows of tools."""
    template = workspace.llama / TEMPLATE
    if not template.exists():
        pytest.skip(f"{template} is not there: python3 -m build_tools native")
    call = CALL.encode()
    pieces = [call[at : at + 7] for at in range(0, len(call), 7)]
    caller = parrot(pieces, template=template.read_text(encoding="utf-8"), ends=True)
    folder = tmp_path_factory.mktemp("engine-models")
    made = {"adapter.gguf": lora(tiny_model), "encoder.gguf": embedder(), "caller.gguf": caller}
    return {**model_files, **{name: gguf.write(folder / name) for name, gguf in made.items()}}


@pytest.fixture(scope="module", params=["st", "mt"])
def local(
    request: pytest.FixtureRequest, browser: Browser, tabs_in: TabsIn, model_files: Mapping[str, Path]
) -> Iterator[Local]:
    with tabs_in(browser, model_files=model_files) as open_tab:
        yield Local(open_tab(), request.param)


def test_two_streams_run_side_by_side_and_a_third_waits(local: Local) -> None:
    assert local.load("abc.gguf", context={"slots": 2})["options"]["slots"] == 2
    outcomes, order = local.race(
        ("a", {"maxTokens": 600}), ("b", {"maxTokens": 600}), ("c", {"maxTokens": 3})
    )
    first, second, third = (outcome["value"] for outcome in outcomes)
    assert [first["text"], second["text"], third["text"]] == ["abc" * 200, "abc" * 200, "abc"]
    for one, other in ("ab", "ba"):
        assert order.index(one) < order.index(f"{other} ends")
    ended = min(len(order) - order[::-1].index(name) for name in "ab")
    assert order.index("c") >= ended, "in the tick after, or the same one"
    waited = third["stats"]["queueMs"]
    assert waited > max(first["stats"]["queueMs"], second["stats"]["queueMs"])
    assert waited > min(first["stats"]["totalMs"], second["stats"]["totalMs"]) / 2


def test_what_was_computed_is_not_computed_again(local: Local) -> None:
    local.load("abc.gguf", context={"slots": 2, "size": 1024})
    prompt = "x" * 100
    short = {**GREEDY, "maxTokens": 6}
    cold = local.result("query", prompt, contextKey="one", **short)
    assert (cold["usage"]["cachedTokens"], cold["stats"]["cache"]) == (0, {"source": "none", "tokens": 0})
    warm = local.result("query", prompt + cold["text"] + "y", contextKey="one", **short)
    assert warm["stats"]["cache"]["source"] == "live"
    assert warm["usage"]["cachedTokens"] == warm["stats"]["cache"]["tokens"] >= 100
    other = local.result("query", prompt + "z" * 20, contextKey="two", **short)
    assert other["stats"]["cache"] == {"source": "prefix", "tokens": 100}
    assert other["usage"] == {"inputTokens": 120, "outputTokens": 6, "cachedTokens": 100}
    assert {cold["text"], warm["text"], other["text"]} == {"abcabc"}


def test_after_a_cancel_the_same_key_goes_on(local: Local) -> None:
    local.load("abc.gguf")
    results = local.tab.run(
        """async () => {
          const options = { temperature: 0, contextKey: "one" };
          const run = client.query(model, ">", { ...options, maxTokens: 4000 });
          for await (const batch of run.tokens) break;
          const next = client.query(model, ">", { ...options, maxTokens: 3 });
          return [await run.response, await next.response];
        }"""
    )
    assert [result["finishReason"] for result in results] == ["cancelled", "length"]
    assert results[1]["text"] == "abc"


def test_the_engine_tells_what_computes_and_what_it_has_done(local: Local) -> None:
    local.load("abc.gguf")
    operations = local.ask("audit")
    assert {row["phase"] for row in operations} == {"prefill", "decode"}
    assert all(row["backend"] == "CPU" and row["count"] > 0 for row in operations)
    assert "MUL_MAT" in {row["op"] for row in operations}
    before = local.ask("metrics")
    local.result("query", ">>", maxTokens=3, **GREEDY)
    after = local.ask("metrics")
    assert after["accepted"] - before["accepted"] == after["finished"] - before["finished"] == 1
    prompt = sum(after[name] - before[name] for name in ("prefillTokens", "cachedTokens"))
    assert prompt == 2
    assert "endpoint" not in after
    assert after["snapshots"]["diskEntries"] == 0


def test_who_waits_is_told_by_priority_limit_and_deadline(local: Local) -> None:
    local.load("abc.gguf", queueLimit=2)
    outcomes, order = local.race(
        ("running", {"maxTokens": 400}),
        ("low", {"maxTokens": 3, "priority": -1}),
        ("high", {"maxTokens": 3, "priority": 1}),
        ("refused", {"maxTokens": 3}),
    )
    assert order.index("high ends") < order.index("low ends")
    error = outcomes[3]["error"]
    assert (error["code"], error["detail"]["queueLimit"]) == ("queue_full", 2)
    late = local.refusal("query", ">", maxTokens=4000, deadlineMs=1, **GREEDY)
    assert late["code"] == "deadline_exceeded"
    assert local.result("query", ">", maxTokens=3, **GREEDY)["text"] == "abc"


def test_a_load_option_out_of_range_is_named(local: Local) -> None:
    error = local.try_load("abc.gguf", schedule="fast")["error"]
    assert (error["code"], error["detail"]) == ("invalid_option", {"option": "schedule"})
    options = {"batchSize": 64, "schedule": "latency", "unifiedCache": True, "healthWatch": "off"}
    in_force = local.load("abc.gguf", prefixCacheBytes=0, **options)["options"]
    assert {name: in_force[name] for name in options} == options
    assert in_force["prefixCacheBytes"] == 0


def test_texts_become_vectors(local: Local) -> None:
    capabilities = local.load("tiny.gguf", context={"size": 512})
    assert capabilities["operations"] == ["query", "chat", "embed"]
    texts = ["A mill wheel.", "A river 😀", "A mill wheel."]
    outcome = local.run("embed", texts, normalize=True)
    result = outcome["value"]
    assert outcome["batches"] == []
    assert outcome["accepted"]["options"]["normalize"] is True
    assert (result["endpoint"], len(result["vectors"])) == ("model", 3)
    for vector in result["vectors"]:
        assert len(vector) == result["dimensions"] > 1
        assert math.isfinite(sum(vector))
        assert math.hypot(*vector) == pytest.approx(1, abs=1e-5)
    first, second, third = result["vectors"]
    assert first == pytest.approx(third, abs=1e-5)
    assert first != pytest.approx(second, abs=1e-2)
    assert result["usage"]["inputTokens"] == sum(local.ask("countTokens", text) for text in texts)
    (alone,) = local.result("embed", texts[0], normalize=True)["vectors"]
    assert alone == pytest.approx(first, abs=1e-4)


def test_a_text_is_the_sum_of_its_tokens(local: Local) -> None:
    local.load("tiny.gguf", context={"size": 512})
    for text in ("Привет, 世界! 👩‍👩‍👧‍👦 e\u0301", ""):
        ids = local.ask("tokenize", text)
        assert local.ask("detokenize", ids) == text
        assert local.ask("countTokens", text) == len(ids)
    spelled = local.ask("tokenize", "<|im_end|>", {"parseSpecial": False})
    assert len(local.ask("tokenize", "<|im_end|>")) == 1 < len(spelled)


def test_a_conversation_is_counted_as_chat_lays_it_out(local: Local) -> None:
    local.load("tiny.gguf", context={"size": 512})
    prompt = local.ask("applyTemplate", HELLO)
    counted = local.ask("countTokens", HELLO)
    outcome = local.run("chat", HELLO, **GREEDY)
    assert outcome["accepted"]["promptTokens"] == counted == local.ask("countTokens", prompt) == 45
    assert local.result("query", prompt, **GREEDY)["text"] == outcome["value"]["text"]


def test_a_grammar_and_a_schema_force_the_answer(local: Local) -> None:
    local.load("tiny.gguf", context={"size": 512})
    forced = local.result("chat", HELLO, grammar='root ::= "語" [0-9]{3} "😀"', **GREEDY)
    assert (forced["text"][0], forced["text"][-1], len(forced["text"])) == ("語", "😀", 5)
    properties = {"zebra": {"type": "boolean"}, "apple": {"enum": ["red", "green"]}}
    schema = {"type": "object", "properties": properties, "required": ["zebra", "apple"]}
    response_format = {"type": "json_schema", "json_schema": {"schema": schema}}
    for method, input in (("chat", HELLO), ("query", "{")):
        text = local.result(method, input, responseFormat=response_format, maxTokens=60, **GREEDY)["text"]
        value = json.loads(text)
        assert list(value) == ["zebra", "apple"], "in the schema's own order"
        assert value["zebra"] in (True, False)
        assert value["apple"] in ("red", "green")
    assert local.refusal("chat", HELLO, grammar="root ::= (")["code"] == "grammar_invalid"


def test_probabilities_come_with_the_tokens(local: Local) -> None:
    local.load("tiny.gguf", context={"size": 512})
    outcome = local.run("chat", HELLO, logprobs=True, topLogprobs=2, maxTokens=5, **GREEDY)
    told = outcome["value"]["logprobs"]
    assert [entry["tokenId"] for entry in told] == outcome["value"]["tokenIds"]
    assert [entry for batch in outcome["batches"] for entry in batch["logprobs"]] == told
    for entry in told:
        assert entry["logprob"] == entry["top"][0]["logprob"] >= entry["top"][1]["logprob"]


def test_an_adapter_changes_only_the_answers_that_ask_for_it(local: Local) -> None:
    files = {"name": "loud", "model": "/models/adapter.gguf"}
    local.load("tiny.gguf", context={"size": 512}, adapters=[files, {**files, "name": "off", "scale": 0}])
    downloads = {event["file"] for event in local.tab.run("() => progress") if event["phase"] == "download"}
    # The second adapter is the same file, and the model may be stored already.
    assert {"adapters.loud"} <= downloads <= {"model", "adapters.loud"}

    def text(*adapters: str) -> str:
        chosen = local.result("chat", HELLO, adapters=adapters, maxTokens=16, **GREEDY)["text"]
        assert isinstance(chosen, str)
        return chosen

    plain = text()
    assert plain.startswith("Hello! I am a tiny")
    assert text("loud") != plain
    assert text("off") == text("loud:0") == text() == plain
    unknown = local.refusal("chat", HELLO, adapters=["quiet"])
    assert (unknown["code"], unknown["detail"]["option"]) == ("invalid_option", "adapters")


def test_a_draft_model_guesses_and_changes_nothing(local: Local) -> None:
    options = {"draftModel": "/models/tiny.gguf", "speculation": "draft", "draftTokens": 4}
    options["threads"] = 2 if local.artifact == "mt" else 1
    capabilities = local.load("tiny.gguf", context={"size": 512}, **options)
    assert (capabilities["options"]["speculation"], capabilities["options"]["draftTokens"]) == ("draft", 4)
    result = local.result("chat", HELLO, **GREEDY)
    assert result["text"] == "Hello! I am a tiny mixture of experts model made for tests."
    guesses = result["stats"]["speculation"]
    assert 0 < guesses["accepted"] <= guesses["drafted"]


def test_a_tool_call_comes_in_pieces(local: Local) -> None:
    local.load("caller.gguf")
    outcome = local.run("chat", HELLO, tools=[WEATHER], **GREEDY)
    result = outcome["value"]
    assert result["finishReason"] == "tool_calls"
    (call,) = result["toolCalls"]
    assert (call["name"], json.loads(call["arguments"])) == ("get_weather", {"city": "Paris, naïve 😀"})
    deltas = [delta for batch in outcome["batches"] for delta in batch.get("toolCalls", [])]
    assert (deltas[0]["id"], deltas[0]["name"]) == (call["id"], "get_weather")
    assert "".join(delta["arguments"] for delta in deltas) == call["arguments"]
    assert {delta["index"] for delta in deltas} == {0}

    turns = [
        {
            "role": "assistant",
            "tool_calls": [
                {
                    "id": call["id"],
                    "type": "function",
                    "function": {"name": call["name"], "arguments": call["arguments"]},
                }
            ],
        },
        {"role": "tool", "tool_call_id": call["id"], "content": "Rain."},
    ]
    prompt = local.ask("applyTemplate", HELLO + turns, {"tools": [WEATHER]})
    assert "naïve 😀" in prompt
    assert "Rain." in prompt
    half = {"type": "function", "function": {"name": "f", "parameters": {"properties": {"x": {}}}}}
    mended = local.tab.run(
        """(tool) => {
          tool.function.parameters.properties = { "\\ud83d": {} };
          return client.applyTemplate(model, [{ role: "user", content: "Hi" }], { tools: [tool] });
        }""",
        half,
    )
    assert "\ufffd" in mended


def test_an_encoder_refuses_what_it_cannot_do(local: Local) -> None:
    assert local.load("encoder.gguf")["operations"] == ["embed"]
    for method, input in (("query", ">"), ("chat", HELLO)):
        error = local.refusal(method, input)
        assert error["code"] == "unsupported_operation"
        assert method in error["message"]
    assert local.ask("countTokens", "a c") == 4


def test_vectors_of_an_embedding_model(
    browser: Browser,
    tabs_in: TabsIn,
    model_files: Mapping[str, Path],
    minilm_f16: Path,
    repo_root: Path,
) -> None:
    reference = json.loads((repo_root / "tests/data/minilm_vectors.json").read_text())
    files = {**model_files, "minilm.gguf": minilm_f16}
    with tabs_in(browser, model_files=files) as open_tab:
        local = Local(open_tab(), "mt")
        assert local.load("minilm.gguf", threads=2)["operations"] == ["embed"]
        vectors = local.result("embed", reference["sentences"][:3], normalize=True)["vectors"]
    for ours, original in zip(vectors, reference["vectors"][:3], strict=True):
        assert sum(x * y for x, y in zip(ours, original, strict=True)) >= 0.9999
