"""Chat options, schemas and messages that are refused by name, before any work.

Counterparts: native/abi/chat_options_json.cpp, messages_json.cpp; what they allow is in test_native_chat.py.
"""

from typing import Any

import pytest

from headrace.errors import HeadraceError
from headrace.native import Engine
from tests.python.chat_requests import ASK, CALL, CLOCK, WEATHER


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"tools": {}}, "tools"),
        ({"tools": [7]}, "tools[0]"),
        ({"tools": [{"type": "function"}]}, "tools[0]"),
        ({"tools": [{**WEATHER, "extra": 1}]}, "tools[0]"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {"name": "a", "x": 1}}]}, "tools[0].function"),
        (
            {"tools": [{"type": "function", "function": {"name": "a", "description": 1}}]},
            "tools[0].function.description",
        ),
        (
            {"tools": [{"type": "function", "function": {"name": "a", "parameters": []}}]},
            "tools[0].function.parameters",
        ),
        (
            {"tools": [{"type": "function", "function": {"name": "a", "strict": 1}}]},
            "tools[0].function.strict",
        ),
        ({"tools": [CLOCK, CLOCK]}, "tools[1].function.name"),
        ({"tools": [CLOCK] * 129}, "tools"),
        ({"tool_choice": "maybe"}, "toolChoice"),
        ({"tool_choice": "required"}, "toolChoice"),
        ({"tool_choice": {"type": "function", "function": {"name": "clock"}}}, "toolChoice"),
        ({"tool_choice": {"type": "function"}}, "toolChoice"),
        ({"parallel_tool_calls": 1}, "parallelToolCalls"),
        ({"reasoning": "loud"}, "reasoning"),
        ({"reasoning": None}, "reasoning"),
        ({"response_format": "json"}, "responseFormat"),
        ({"response_format": {"type": "xml"}}, "responseFormat"),
        ({"response_format": {"type": "json_object", "schema": {}}}, "responseFormat"),
        ({"response_format": {"type": "json_schema"}}, "responseFormat.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {}}},
            "responseFormat.json_schema.schema",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {}, "strict": "yes"}}},
            "responseFormat.json_schema.strict",
        ),
    ],
)
def test_a_wrong_chat_option_is_refused_with_its_place(
    engine: Engine, options: dict[str, Any], place: str
) -> None:
    with pytest.raises(HeadraceError) as caught:
        engine.chat(ASK, options)
    assert caught.value.code == "invalid_option"
    assert caught.value.message.startswith(place)
    assert caught.value.detail["option"] == place.split(".")[0].split("[")[0]


@pytest.mark.parametrize("option", ["tools", "tool_choice", "parallel_tool_calls", "reasoning"])
def test_a_query_has_no_chat_options(engine: Engine, option: str) -> None:
    with pytest.raises(HeadraceError, match="chat") as caught:
        engine.query("1, 2,", {option: []})
    assert caught.value.code == "invalid_option"


def format_of(schema: object) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}


def deep(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "code", "named"),
    [
        ({"type": "string", "pattern": "^(a$"}, "grammar_invalid", "#/pattern"),
        ({"type": "string", "pattern": "[a-z]+"}, "grammar_invalid", "#/pattern"),
        ({"properties": {"a": {"not": {}}}}, "grammar_invalid", "#/properties/a/not"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "grammar_invalid", "#/$defs/a/$ref"),
        (deep(40), "grammar_invalid", "nested deeper"),
        (deep(400), "invalid_option", "nested deeper"),
        ({"enum": ["x" * 70_000]}, "invalid_option", "65536"),
    ],
)
def test_a_schema_that_cannot_be_enforced_is_refused(
    engine: Engine, schema: dict[str, Any], code: str, named: str
) -> None:
    for ask in (engine.chat, engine.query):
        with pytest.raises(HeadraceError) as caught:
            ask(ASK if ask == engine.chat else "{", format_of(schema))  # type: ignore[arg-type]
        assert caught.value.code == code
        assert named in caught.value.message
    assert engine.chat(ASK).result().token_ids


@pytest.mark.parametrize(
    "message",
    [
        {"role": "tool", "content": "rain"},
        {"role": "tool", "content": "rain", "tool_call_id": 7},
        {"role": "user", "content": "x", "tool_calls": [CALL]},
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": None, "tool_calls": {}},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "x"}]},
        {"role": "assistant", "content": None, "tool_calls": [{**CALL, "x": 1}]},
        {"role": "assistant", "content": None, "tool_calls": [{**CALL, "function": {"name": "a"}}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{**CALL, "function": {"name": "a", "arguments": "{"}}],
        },
        {"role": "developer", "content": "x"},
    ],
)
def test_a_malformed_turn_is_refused(engine: Engine, message: Any) -> None:
    with pytest.raises(HeadraceError) as caught:
        engine.chat([*ASK, message])
    assert caught.value.code == "invalid_request"
    assert "messages[1]" in caught.value.message
