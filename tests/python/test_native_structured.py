"""Structured answers of trained models: what is said conforms to the schema (cases G8, G9)."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from headrace.native import Engine
from headrace.wire import Message
from tests.python.conftest import OpenEngine

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[A-Za-z ]{1,12}$"},
        "size": {"type": "integer", "minimum": 1, "maximum": 9},
        "kind": {"enum": ["cat", "dog", None]},
        "marks": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 2},
    },
    "required": ["name", "size", "kind", "marks"],
}
FORMAT = {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}}
ASK: list[Message] = [{"role": "user", "content": "Write a JSON object."}]


def check(text: str) -> None:
    value = json.loads(text)
    assert list(value) == ["name", "size", "kind", "marks"], "in the schema's own order"
    assert re.fullmatch("[A-Za-z ]{1,12}", value["name"])
    assert isinstance(value["size"], int)
    assert 1 <= value["size"] <= 9
    assert value["kind"] in ("cat", "dog", None)
    assert 1 <= len(value["marks"]) <= 2
    assert all(isinstance(mark, bool) for mark in value["marks"])


@pytest.fixture(params=["tiny", "demo"])
def trained(request: pytest.FixtureRequest, open_engine: OpenEngine) -> Engine:
    model: Path = request.getfixturevalue(f"{request.param}_model")
    return open_engine(model, context_size=512)


@pytest.mark.parametrize("options", [{"temperature": 0}, {"temperature": 1.5, "seed": 7}])
def test_an_answer_conforms_to_its_schema(trained: Engine, options: dict[str, Any]) -> None:
    result = trained.chat(ASK, {**options, **FORMAT, "max_tokens": 200}).result()
    assert result.finish_reason == "stop"
    check(result.text)
    check(trained.query("A JSON object: ", {**options, **FORMAT, "max_tokens": 200}).result().text)


def test_a_json_object_is_one(open_engine: OpenEngine, tiny_model: Path) -> None:
    engine = open_engine(tiny_model, context_size=512)
    options = {"temperature": 0, "max_tokens": 200, "response_format": {"type": "json_object"}}
    assert isinstance(json.loads(engine.chat(ASK, options).result().text), dict)
