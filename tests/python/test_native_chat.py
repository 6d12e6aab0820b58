"""Tools, reasoning and structured answers of a chat, through headrace/native.py.

The models are parrots (tests/gguf_builder.py) that say a scripted text under the chat templates of known
families, which lie in llama.cpp's source tree. Which schemas are refused is tested in
native/tests/schema_check_test.cpp.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from headrace.errors import HeadraceError
from headrace.native import Engine
from headrace.run import Run
from headrace.wire import Message, Result, TokenBatch, ToolCall
from tests.gguf_builder import read_gguf
from tests.python.chat_requests import ASK, CALL, CLOCK, WEATHER
from tests.python.conftest import OpenEngine
from tests.python.scripted_chats import FAMILIES, HERMES_CALL, pieces, scripted

PARIS = {"city": "Paris, naïve 😀"}
OpenScript = Callable[..., Engine]


@pytest.fixture
def open_script(open_engine: OpenEngine, template: Callable[[str], str]) -> OpenScript:
    """Opens a model that says `text` under a template, `size` bytes a token and `markers` one each."""

    def open_script(
        name: str, text: str, markers: Sequence[str] = (), size: int = 3, slots: int = 1
    ) -> Engine:
        return open_engine(scripted(text, template(name), markers, size), context_size=4096, slots=slots)

    return open_script


def follow(run: Run) -> tuple[list[TokenBatch], Result]:
    return list(run), run.result()


def calls_of(result: Result) -> tuple[ToolCall, ...]:
    assert result.tool_calls is not None
    return result.tool_calls


def joined_calls(batches: Sequence[TokenBatch]) -> tuple[ToolCall, ...]:
    """The calls that the deltas add up to, with checks that each begins with its id and name."""
    calls: list[ToolCall] = []
    for delta in (delta for batch in batches for delta in batch.tool_calls or ()):
        if delta.index == len(calls):
            assert delta.id
            assert delta.name
            calls.append(ToolCall(delta.id, delta.name, ""))
        else:
            assert (delta.index, delta.id, delta.name) == (len(calls) - 1, None, None)
        calls[-1] = replace(calls[-1], arguments=calls[-1].arguments + delta.arguments)
    return tuple(calls)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("choice", ["auto", "required"])
def test_a_tool_call_is_streamed_as_deltas(open_script: OpenScript, family: str, choice: str) -> None:
    name, text, markers = FAMILIES[family]
    engine = open_script(name, text, markers)
    options = {"temperature": 0, "tools": [WEATHER, CLOCK], "tool_choice": choice}
    batches, result = follow(engine.chat(ASK, options))
    assert result.finish_reason == "tool_calls", result
    assert [call.name for call in calls_of(result)] == ["get_weather"]
    assert json.loads(calls_of(result)[0].arguments) == PARIS
    assert result.text.strip() == ""
    assert "".join(batch.text for batch in batches) == result.text
    assert joined_calls(batches) == calls_of(result)
    assert sum(len(batch.token_ids) for batch in batches) == len(result.token_ids)


def test_the_deltas_add_up_to_the_same_whatever_the_tokens(open_script: OpenScript) -> None:
    script = f"Let me look.\n{HERMES_CALL}"
    told: set[tuple[str, ...]] = set()
    for size in (2, 5, 50):
        engine = open_script("Qwen-Qwen2.5-7B-Instruct", script, size=size)
        batches, result = follow(engine.chat(ASK, {"temperature": 0, "tools": [WEATHER]}))
        assert joined_calls(batches) == calls_of(result)
        assert "".join(batch.text for batch in batches) == result.text
        (call,) = calls_of(result)
        told.add((result.text, call.name, call.arguments))
        engine.close()
    assert len(told) == 1
    assert next(iter(told))[0].strip() == "Let me look."


def test_two_calls_in_one_answer(open_script: OpenScript) -> None:
    script = f'{HERMES_CALL}\n<tool_call>\n{{"name": "clock", "arguments": {{}}}}\n</tool_call>'
    engine = open_script("Qwen-Qwen2.5-7B-Instruct", script, size=6)
    batches, result = follow(engine.chat(ASK, {"temperature": 0, "tools": [WEATHER, CLOCK]}))
    assert [call.name for call in calls_of(result)] == ["get_weather", "clock"]
    assert json.loads(calls_of(result)[1].arguments) == {}
    assert joined_calls(batches) == calls_of(result)
    assert len({call.id for call in calls_of(result)}) == 2


def test_ids_are_unique_and_fit_every_template(open_script: OpenScript) -> None:
    engine = open_script("Qwen-Qwen2.5-7B-Instruct", HERMES_CALL, size=8)
    runs = [engine.chat(ASK, {"temperature": 0, "tools": [WEATHER]}) for _ in range(4)]
    ids = [calls_of(run.result())[0].id for run in runs]
    assert len(set(ids)) == 4
    assert all(len(each) == 9 and each.isalnum() for each in ids)


@pytest.mark.parametrize(
    "script",
    [
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Pa',
        "<tool_call>",
        "Let me look.\n<tool_call>",
        "Plain text, no call.",
    ],
)
def test_what_is_no_call_is_text(open_script: OpenScript, script: str) -> None:
    engine = open_script("Qwen-Qwen2.5-7B-Instruct", script)
    run = engine.chat(ASK, {"temperature": 0, "tools": [WEATHER], "max_tokens": len(pieces(script, (), 3))})
    batches, result = follow(run)
    assert result.tool_calls == ()
    assert result.finish_reason != "tool_calls"
    assert result.text.strip() == script.strip()
    assert "".join(batch.text for batch in batches) == result.text


def test_a_call_before_a_broken_one_is_kept(open_script: OpenScript) -> None:
    script = f'{HERMES_CALL}\n<tool_call>\n{{"name": "clock", "argum'
    engine = open_script("Qwen-Qwen2.5-7B-Instruct", script, size=6)
    options = {"temperature": 0, "tools": [WEATHER, CLOCK], "max_tokens": len(pieces(script, (), 6))}
    _, result = follow(engine.chat(ASK, options))
    assert [call.name for call in calls_of(result)] == ["get_weather"]
    assert result.text.strip() == '<tool_call>\n{"name": "clock", "argum'


@pytest.mark.parametrize(
    ("name", "script"),
    [
        ("Qwen-Qwen3-0.6B", "<think>\nIt rains.\n</think>\n\nTake an umbrella."),
        ("Qwen-QwQ-32B", "It rains.\n</think>\n\nTake an umbrella."),
        ("deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "It rains.\n</think>\n\nTake an umbrella."),
        (
            "openai-gpt-oss-120b",
            "<|channel|>analysis<|message|>It rains.<|end|><|start|>assistant"
            "<|channel|>final<|message|>Take an umbrella.",
        ),
    ],
)
def test_reasoning_is_told_apart(open_script: OpenScript, name: str, script: str) -> None:
    engine = open_script(name, script)
    batches, result = follow(engine.chat(ASK, {"temperature": 0}))
    assert (result.reasoning or "").strip() == "It rains."
    assert result.text == "Take an umbrella."
    assert "".join(batch.reasoning or "" for batch in batches) == result.reasoning
    assert "".join(batch.text for batch in batches) == result.text
    assert result.tool_calls == ()


def test_reasoning_before_a_call(open_script: OpenScript) -> None:
    engine = open_script("Qwen-Qwen3-0.6B", f"<think>\nIt rains.\n</think>\n\n{HERMES_CALL}", size=5)
    _, result = follow(engine.chat(ASK, {"temperature": 0, "tools": [WEATHER]}))
    assert (result.reasoning or "").strip() == "It rains."
    assert json.loads(calls_of(result)[0].arguments) == PARIS


def test_reasoning_may_stay_in_the_text(open_script: OpenScript) -> None:
    script = "<think>\nIt rains.\n</think>\n\nTake an umbrella."
    engine = open_script("Qwen-Qwen3-0.6B", script)
    result = engine.chat(ASK, {"temperature": 0, "reasoning": "text"}).result()
    assert result.text == script
    assert "reasoning" not in result.record


def test_reasoning_off_asks_the_template(open_script: OpenScript) -> None:
    engine = open_script("Qwen-Qwen3-0.6B", "Take an umbrella.")
    run = engine.chat(ASK, {"temperature": 0, "reasoning": "off"})
    assert run.prompt_tokens > engine.chat(ASK).prompt_tokens, "the template adds an empty thought"
    assert run.result().text == "Take an umbrella."


def test_a_plain_chat_is_not_parsed(engine: Engine) -> None:
    result = engine.chat([{"role": "user", "content": "Hello!"}], {"temperature": 0}).result()
    assert "toolCalls" not in result.record
    assert "reasoning" not in result.record


def test_tools_under_a_template_without_a_place_for_them(engine: Engine) -> None:
    with pytest.raises(HeadraceError, match="get_weather") as caught:
        engine.chat(ASK, {"tools": [WEATHER]})
    assert caught.value.code == "template_rejected"
    assert engine.chat(ASK).result().token_ids


def test_tool_choice(open_script: OpenScript) -> None:
    engine = open_script("Qwen-Qwen2.5-7B-Instruct", HERMES_CALL, size=8)
    prompt = [engine.chat(ASK, {"tools": tools}).prompt_tokens for tools in ([], [CLOCK], [CLOCK, WEATHER])]
    assert all(less < more for less, more in pairwise(prompt))
    none = engine.chat(ASK, {"temperature": 0, "tools": [CLOCK, WEATHER], "tool_choice": "none"})
    assert none.prompt_tokens == prompt[2]
    assert none.result().text == HERMES_CALL
    one = {"type": "function", "function": {"name": "clock"}}
    assert engine.chat(ASK, {"tools": [CLOCK, WEATHER], "tool_choice": one}).prompt_tokens == prompt[1]


AFTER_A_CALL: list[Message] = [
    *ASK,
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "content": "rain", "tool_call_id": "abcdefghi", "name": "get_weather"},
]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_turn_after_a_tool_s_result(open_script: OpenScript, family: str) -> None:
    name, *_ = FAMILIES[family]
    engine = open_script(name, "It rains.")
    options = {"temperature": 0, "tools": [WEATHER]}
    run = engine.chat(AFTER_A_CALL, options)
    assert run.prompt_tokens > engine.chat(ASK, options).prompt_tokens
    assert run.result().text == "It rains."
    # Case G9: a structured answer in that turn.
    schema = {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}
    structured = engine.chat(AFTER_A_CALL, {**options, "tool_choice": "none", "response_format": schema})
    assert structured.options["response_format"]["json_schema"]["schema"] == {"type": "object"}


def test_two_grammars_exclude_each_other(open_script: OpenScript) -> None:
    engine = open_script("Qwen-Qwen3-0.6B", "It rains.")
    json_object = {"type": "json_object"}
    for options in (
        {"tools": [WEATHER], "response_format": json_object},
        {"reasoning": "text", "response_format": json_object},
        {"grammar": 'root ::= "a"', "response_format": json_object},
        {"grammar": 'root ::= "a"', "tools": [WEATHER]},
    ):
        with pytest.raises(HeadraceError) as caught:
            engine.chat(ASK, options)
        assert caught.value.code == "invalid_request", options
    assert engine.chat(ASK, {"temperature": 0}).result().text == "It rains."


def test_a_strict_tool_s_schema_is_checked(open_script: OpenScript) -> None:
    engine = open_script("Qwen-Qwen2.5-7B-Instruct", "It rains.")
    function = {"name": "mail", "parameters": {"properties": {"to": {"type": "string", "format": "email"}}}}
    loose = {"type": "function", "function": function}
    assert engine.chat(ASK, {"temperature": 0, "tools": [loose]}).result().text == "It rains."
    with pytest.raises(HeadraceError, match=r"mail.*#/properties/to/format") as caught:
        engine.chat(ASK, {"tools": [{"type": "function", "function": {**function, "strict": True}}]})
    assert caught.value.code == "grammar_invalid"
    with pytest.raises(HeadraceError, match="ref") as caught:
        engine.chat(
            ASK, {"tools": [{"type": "function", "function": {"name": "a", "parameters": {"$ref": "x"}}}]}
        )
    assert caught.value.code == "grammar_invalid"


SYSTEM: list[Message] = [{"role": "system", "content": "Be brief."}, *ASK]


@pytest.mark.parametrize("name", ["google-gemma-2-2b-it", "mistralai-Mistral-Nemo-Instruct-2407"])
def test_a_template_that_wants_turns_to_alternate(open_script: OpenScript, name: str) -> None:
    """Case G7: its own words, and the conversation goes on; a system turn is joined to the next."""
    engine = open_script(name, "It rains.")
    with pytest.raises(HeadraceError, match="roles must alternate") as caught:
        engine.chat([*ASK, *ASK])
    assert caught.value.code == "template_rejected"
    for messages in (ASK, SYSTEM):
        assert engine.chat(messages, {"temperature": 0}).result().text == "It rains."
    assert engine.chat(SYSTEM).prompt_tokens > engine.chat(ASK).prompt_tokens


def test_a_cancelled_chat_with_tools_leaves_nothing_behind(open_script: OpenScript) -> None:
    engine = open_script("Qwen-Qwen2.5-7B-Instruct", HERMES_CALL, slots=2)
    queued = [engine.chat(ASK, {"temperature": 0, "tools": [WEATHER]}) for _ in range(8)]
    queued[7].cancel()
    assert queued[7].result().finish_reason in ("cancelled", "tool_calls")
    assert [run.result().finish_reason for run in queued[:7]] == ["tool_calls"] * 7


def test_a_template_of_a_trained_model_takes_no_harm(
    open_engine: OpenEngine, tiny_model: Path, template: Callable[[str], str]
) -> None:
    gguf = read_gguf(tiny_model)
    gguf.metadata["tokenizer.chat_template"].data = template("Qwen-Qwen2.5-7B-Instruct")
    engine = open_engine(gguf, context_size=1024)
    result = engine.chat(ASK, {"temperature": 0, "tools": [WEATHER], "max_tokens": 40}).result()
    assert result.token_ids
