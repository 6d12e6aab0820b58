"""An answer that one engine has begun and another one goes on with, by the wire format and on real models.

From every message that a host may have seen last, the second engine tells the rest: no piece twice, none left
out. Counterparts: `native/engine/replay.cpp`, `native/abi/replay_json.cpp`; over a fake decoder in
`native/tests/replay_test.cpp`.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import HeadraceError
from tests.gguf_builder import parrot
from tests.python.chat_requests import ASK, CLOCK, WEATHER
from tests.python.conftest import OpenWire
from tests.python.scripted_chats import FAMILIES, HERMES_CALL, scripted
from tests.python.wire_engine import Event, WireEngine

Fields = dict[str, Any]
Told = dict[str, Any]

GREETING = [{"role": "user", "content": "Hello!"}]
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "pattern": "^[A-Za-z ]{1,12}$"}, "size": {"type": "integer"}},
    "required": ["name", "size"],
}
JSON_ANSWER = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}


def nothing() -> Told:
    return {"tokenIds": [], "text": "", "reasoning": "", "toolCalls": [], "logprobs": []}


def with_batch(told: Told, batch: Event) -> Told:
    """What a host has been told once it has read `batch`, too."""
    calls = [dict(call) for call in told["toolCalls"]]
    for delta in batch.get("toolCalls", ()):
        if delta["index"] == len(calls):
            calls.append({"id": delta["id"], "name": delta["name"], "arguments": ""})
        else:
            assert "id" not in delta, "a call is announced once"
        calls[delta["index"]]["arguments"] += delta["arguments"]
    return {
        "tokenIds": told["tokenIds"] + batch["tokenIds"],
        "text": told["text"] + batch["text"],
        "reasoning": told["reasoning"] + batch.get("reasoning", ""),
        "toolCalls": calls,
        "logprobs": told["logprobs"] + batch.get("logprobs", []),
    }


def run(engine: WireEngine, operation: str, fields: Fields) -> tuple[list[Event], dict[str, Any]]:
    """The batches of a request, tick by tick, and its result."""
    request = engine.submit(operation, **fields)
    events = engine.run_until(lambda seen: any(e["type"] in ("done", "failed") for e in seen))
    end = events[-1]
    if end["type"] == "failed":
        raise HeadraceError.from_wire(end["error"])
    assert end["type"] == "done"
    assert {event["id"] for event in events} == {request}
    return [event for event in events if event["type"] == "tokens"], end["result"]


def without_figures(result: dict[str, Any]) -> dict[str, Any]:
    """What must be the same; a call that was not told yet gets an id of its own."""
    calls = [{**call, "id": "any"} for call in result.get("toolCalls", ())]
    plain = {name: value for name, value in result.items() if name not in ("stats", "logprobs", "usage")}
    tokens = {name: result["usage"][name] for name in ("inputTokens", "outputTokens")}
    return {**plain, "toolCalls": calls, "usage": tokens}


def check_every_cut(
    first: WireEngine, second: WireEngine, operation: str, fields: Fields, least: int = 4
) -> dict[str, Any]:
    """`least`: messages that the answer must have, so that there is something to cut."""
    batches, whole = run(first, operation, fields)
    assert len(batches) >= least
    told = nothing()
    # A host that has read the last batch has the result as well: they are one message.
    for batch in [None, *batches[:-1]]:
        told = with_batch(told, batch) if batch else told
        rest, result = run(second, operation, {**fields, "replay": told})
        assert without_figures(result) == without_figures(whole), told
        assert result["stats"]["replayed"] == len(told["tokenIds"])
        joined = told
        for more in rest:
            joined = with_batch(joined, more)
        assert joined["text"] == result["text"], told
        assert joined["tokenIds"] == result["tokenIds"], told
        assert joined["reasoning"] == result.get("reasoning", "")
        if result["finishReason"] == "tool_calls":
            assert joined["toolCalls"] == result["toolCalls"], "deltas and ids are those of the result"
        assert joined["logprobs"] == result.get("logprobs", [])
        for ours, theirs in zip(result.get("logprobs", ()), whole.get("logprobs", ()), strict=True):
            assert ours["logprob"] == pytest.approx(theirs["logprob"], abs=1e-3)
    assert told["tokenIds"], "something was replayed"
    return whole


@pytest.fixture
def pair(open_wire: OpenWire, tiny_model: Path) -> tuple[WireEngine, WireEngine]:
    """Two engines with the same trained model."""
    return open_wire(tiny_model, contextSize=512), open_wire(tiny_model, contextSize=512)


Pair = tuple[WireEngine, WireEngine]


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0, "logprobs": True, "topLogprobs": 2},
        {"temperature": 0, "maxTokens": 7},
        {"temperature": 0, "stop": ["mixture of exports", "expert"]},
        {"temperature": 0, "repeatPenalty": 1.3, "penaltyWindow": 20, "maxTokens": 24},
        {"temperature": 1.5, "seed": 7, "maxTokens": 24, "topK": 60},
        {"temperature": 1, "seed": 4, "maxTokens": 24, "presencePenalty": 0.5},
        {"temperature": 0, "responseFormat": JSON_ANSWER},
        {"temperature": 0, "grammar": 'root ::= ("Hello" | "Bye") "! " [a-zA-Z .]+ "tests."'},
    ],
    ids=lambda options: "-".join(options),
)
def test_the_rest_is_what_would_have_come(pair: Pair, options: Fields) -> None:
    """Greedy, and with a temperature where the draws can be counted, token for token.

    The second engine has the cuts before in its cache: what is the same is the sampling, down to rounding.
    """
    check_every_cut(*pair, "chat", {"messages": GREETING, "options": options})


def test_an_engine_that_has_computed_nothing_yet(open_wire: OpenWire, tiny_model: Path) -> None:
    """As after a crash: what was told is computed in one pass, not token by token as before."""
    first = open_wire(tiny_model, contextSize=512)
    fields = {"messages": GREETING, "options": {"temperature": 0}}
    batches, whole = run(first, "chat", fields)
    told = nothing()
    for batch in batches[:-1]:
        told = with_batch(told, batch)
        second = open_wire(tiny_model, contextSize=512)
        rest, result = run(second, "chat", {**fields, "replay": told})
        second.close()
        assert without_figures(result) == without_figures(whole)
        assert told["text"] + "".join(more["text"] for more in rest) == whole["text"]
        assert result["stats"]["cache"]["tokens"] == 0


def test_guesses_do_not_change_what_goes_on(open_wire: OpenWire, tiny_model: Path) -> None:
    first, second = (open_wire(tiny_model, contextSize=512, speculation=kind) for kind in ("none", "prompt"))
    fields = {"prompt": "one two three one two three one", "options": {"temperature": 0, "maxTokens": 40}}
    check_every_cut(first, second, "query", fields)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_characters_across_tokens(open_wire: OpenWire, size: int) -> None:
    """With stop strings that are half seen, and bytes that are no character."""
    text = "naïve 😀 cafés € ¿qué? 👍🏽 one tw two ".encode() + b"\xf0\x9f \x80 end"
    cycle = [text[at : at + size] for at in range(0, len(text), size)]
    unique = list(dict.fromkeys(piece for piece in cycle if len(piece) > 1 or size == 1))
    model = parrot(unique)
    first, second = open_wire(model, contextSize=256), open_wire(model, contextSize=256)
    for stop in ([], ["twx", "€ ?", "😀😀"], [b"\xc2\xbfqu".decode()]):
        fields = {"prompt": "say", "options": {"temperature": 0, "maxTokens": 2 * len(unique), "stop": stop}}
        whole = check_every_cut(first, second, "query", fields)
        assert whole["finishReason"] in ("stop", "length")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("choice", ["auto", "required"])
def test_a_tool_call(open_wire: OpenWire, template: Callable[[str], str], family: str, choice: str) -> None:
    """Lazy grammars and strict ones; ids that were told stay."""
    name, text, markers = FAMILIES[family]
    model = scripted(text, template(name), markers)
    options = {"temperature": 0, "tools": [WEATHER, CLOCK], "toolChoice": choice}
    whole = check_every_cut(open_wire(model), open_wire(model), "chat", {"messages": ASK, "options": options})
    assert whole["finishReason"] == "tool_calls"


@pytest.mark.parametrize(
    "script",
    [
        f"<think>\nIt rains 😀.\n</think>\n\nLet me look.\n{HERMES_CALL}",
        "<think>\nA short thought.\n</think>\n\nThe answer is 4.",
        f'{HERMES_CALL}\n<tool_call>\n{{"name": "clock", "arguments": {{}}}}\n</tool_call>',
        'Look: <tool_call>\n{"name": "get_wea',
    ],
)
def test_thoughts_and_several_calls(open_wire: OpenWire, template: Callable[[str], str], script: str) -> None:
    model = scripted(script, template("Qwen-Qwen3-0.6B"), size=5)
    options = {"temperature": 0, "maxTokens": 60, "tools": [WEATHER, CLOCK]}
    fields = {"messages": ASK, "options": options}
    check_every_cut(open_wire(model), open_wire(model), "chat", fields)


def test_a_context_that_slides_goes_on(open_wire: OpenWire, tiny_model: Path) -> None:
    """What is left of it is computed anew, so the rest may differ; it has its length, and nothing twice."""
    first, second = open_wire(tiny_model, contextSize=64), open_wire(tiny_model, contextSize=64)
    options = {"temperature": 0, "maxTokens": 150, "overflow": "shift", "logitBias": {"2": -100, "0": -100}}
    batches, whole = run(first, "query", {"prompt": "one two three", "options": options})
    assert whole["usage"]["outputTokens"] == 150
    told = nothing()
    for count, batch in enumerate(batches[:-1]):
        told = with_batch(told, batch)
        if count % 10:
            continue
        replay = {**told, "logprobs": []}
        rest, result = run(second, "query", {"prompt": "one two three", "options": options, "replay": replay})
        assert result["tokenIds"][: len(told["tokenIds"])] == told["tokenIds"]
        assert result["text"] == told["text"] + "".join(more["text"] for more in rest)
        assert result["usage"] == {**whole["usage"], "cachedTokens": result["usage"]["cachedTokens"]}
        assert result["stats"]["shifted"] == whole["stats"]["shifted"]


def test_a_cancel_tells_all_that_was_told(pair: Pair) -> None:
    first, second = pair
    fields = {"messages": GREETING, "options": {"temperature": 0}}
    batches, whole = run(first, "chat", fields)
    told = nothing()
    for batch in batches[:3]:
        told = with_batch(told, batch)
    request = second.submit("chat", **fields, replay={**told, "elapsedMs": 12.5})
    second.cancel(request)
    result = second.wait(request)
    assert (result["finishReason"], result["tokenIds"]) == ("cancelled", told["tokenIds"])
    assert result["text"] == told["text"]
    assert whole["text"].startswith(result["text"])


def test_accepted_says_what_it_said_before(pair: Pair) -> None:
    """Options and the prompt's length, not that of the prompt with the answer."""
    fields = {"messages": GREETING, "options": {"temperature": 1, "seed": 5, "maxTokens": 8}}
    said: list[Event] = []
    told = nothing()
    for engine in pair:
        request = engine.submit("chat", **fields, replay=told)
        events = engine.run_until(lambda seen: seen[-1:] != [] and seen[-1]["type"] == "done")
        said.append({**events[0], "id": 0})
        told = with_batch(nothing(), next(e for e in events if e["type"] == "tokens" and e["id"] == request))
    assert said[0] == said[1]


def test_a_seed_that_the_first_engine_took_is_used_again(pair: Pair) -> None:
    fields = {"messages": GREETING, "options": {"temperature": 1.5, "maxTokens": 24}}
    first, second = pair
    request = first.submit("chat", **fields)
    events = first.run_until(lambda seen: seen[-1:] != [] and seen[-1]["type"] == "done")
    seed = events[0]["options"]["seed"]
    told = with_batch(nothing(), next(event for event in events if event["type"] == "tokens"))
    _, result = run(second, "chat", {**fields, "replay": {**told, "seed": seed}})
    assert events[-1]["id"] == request
    assert result["tokenIds"] == events[-1]["result"]["tokenIds"]


def test_the_time_before_counts_towards_the_deadline(pair: Pair) -> None:
    engine, _ = pair
    fields = {"messages": GREETING, "options": {"temperature": 0, "deadlineMs": 60_000}}
    run(engine, "chat", {**fields, "replay": {"elapsedMs": 1000}})
    with pytest.raises(HeadraceError, match="within 60000 ms") as caught:
        run(engine, "chat", {**fields, "replay": {"elapsedMs": 60_001}})
    assert caught.value.code == "deadline_exceeded"


REFUSED: Sequence[tuple[str, Fields, str]] = [
    ("query", {"replay": []}, "replay must be an object"),
    ("query", {"replay": {"tokens": []}}, "unknown field"),
    ("query", {"replay": {"tokenIds": 7}}, "tokenIds must be a list"),
    ("query", {"replay": {"tokenIds": ["a"]}}, "tokenIds[0] must be a token's number"),
    ("query", {"replay": {"tokenIds": [10**12]}}, "tokenIds[0] must be a token's number"),
    ("query", {"replay": {"tokenIds": [4096]}}, "replay.tokenIds[0] is 4096, the vocabulary has"),
    ("query", {"replay": {"tokenIds": [-1]}}, "replay.tokenIds[0] is -1, the vocabulary has"),
    ("query", {"replay": {"tokenIds": [500], "text": "never"}}, "text is not the text"),
    ("query", {"replay": {"text": 7}}, "text must be a string"),
    ("query", {"replay": {"reasoning": "Hm."}}, "neither reasoning nor toolCalls"),
    ("chat", {"replay": {"toolCalls": [{"id": "a", "name": "b", "arguments": ""}]}}, "neither reasoning nor"),
    ("chat", {"replay": {"toolCalls": [{"id": "a"}]}}, "name must be a string"),
    ("chat", {"replay": {"toolCalls": ["a"]}}, "must hold objects"),
    ("chat", {"replay": {"elapsedMs": -1}}, "elapsedMs must be a number"),
    (
        "chat",
        {"replay": {"logprobs": [{"tokenId": 5, "text": "a", "logprob": -1}]}},
        "logprobs must have one",
    ),
    ("chat", {"replay": {"logprobs": [{"tokenId": 5, "text": "a", "logprob": "x"}]}}, "must be a number"),
    ("chat", {"replay": {"logprobs": [{"tokenId": "5", "text": "a"}]}}, "must be a token's number"),
    ("query", {"replay": {"seed": -1}}, "seed must be a whole number"),
    ("query", {"replay": {"seed": 1.5}}, "seed must be a whole number"),
    ("embed", {"replay": {}}, "unknown field"),
    ("applyTemplate", {"replay": {}}, "unknown field"),
    ("countTokens", {"replay": {}}, "unknown field"),
]


@pytest.mark.parametrize(("operation", "fields", "why"), REFUSED)
def test_what_cannot_have_been_told_is_refused(pair: Pair, operation: str, fields: Fields, why: str) -> None:
    engine, _ = pair
    inputs: dict[str, Fields] = {"query": {"prompt": "one"}, "embed": {"inputs": ["one"]}}
    with pytest.raises(HeadraceError) as caught:
        run(engine, operation, {**inputs.get(operation, {"messages": GREETING}), **fields})
    assert caught.value.code == "invalid_request"
    assert why in caught.value.message
    run(engine, "chat", {"messages": GREETING, "options": {"temperature": 0}})


def test_a_token_that_the_grammar_refuses_is_refused(pair: Pair) -> None:
    engine, _ = pair
    options = {"temperature": 0, "responseFormat": JSON_ANSWER}
    _, whole = run(engine, "chat", {"messages": GREETING, "options": options})
    assert json.loads(whole["text"])
    wrong = whole["tokenIds"][:2] + whole["tokenIds"][:1]
    with pytest.raises(HeadraceError, match="is not what the grammar allows") as caught:
        run(engine, "chat", {"messages": GREETING, "options": options, "replay": {"tokenIds": wrong}})
    assert caught.value.code == "invalid_request"
    assert caught.value.detail["index"] == 2
