"""Questions about texts: tokenize, detokenize, countTokens and applyTemplate, answered without a tick.

Counterpart: `native/engine/engine.cpp` and `native/abi/`, reached through the C ABI alone.
"""

from pathlib import Path
from typing import Any

import pytest

from headrace.errors import HeadraceError
from tests.gguf_builder import BOOL, STRING, UINT32, Value, embedder, parrot
from tests.python.conftest import OpenWire
from tests.python.wire_engine import Event, WireEngine

HELLO = [{"role": "user", "content": "Hello!"}]
CYCLE = [b"a", b"b", b"c"]


@pytest.fixture
def engine(open_wire: OpenWire, tiny_model: Path) -> WireEngine:
    return open_wire(tiny_model, contextSize=512)


def at_once(engine: WireEngine, operation: str, **fields: object) -> Event:
    """The only event that a request leaves, before any tick."""
    request = engine.submit(operation, **fields)
    (event,) = engine.events()
    assert event["id"] == request
    return event


def answer(engine: WireEngine, operation: str, **fields: object) -> Any:
    event = at_once(engine, operation, **fields)
    assert event["type"] == "done", event
    assert engine.tick() == 0
    return event["result"]


def refusal(engine: WireEngine, operation: str, **fields: object) -> HeadraceError:
    event = at_once(engine, operation, **fields)
    assert event["type"] == "failed", event
    return HeadraceError.from_wire(event["error"])


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "Hello!",
        "  two  spaces\n\n\ttab ",
        "Привет, 世界! 👩‍👩‍👧‍👦",
        "e\u0301 \ufffd",
        "a\0b",
        "<|im_start|>",
    ],
)
def test_a_text_comes_back(open_wire: OpenWire, demo_model: Path, text: str) -> None:
    engine = open_wire(demo_model, contextSize=256)
    for parse_special in (True, False):
        tokenized = answer(engine, "tokenize", text=text, options={"parseSpecial": parse_special})
        assert tokenized.keys() == {"tokenIds"}
        ids = tokenized["tokenIds"]
        assert answer(engine, "detokenize", tokenIds=ids) == {"text": text}
        assert answer(engine, "countTokens", text=text, options={"parseSpecial": parse_special}) == {
            "tokens": len(ids)
        }


def test_special_tokens_are_named_or_spelled(engine: WireEngine) -> None:
    named = answer(engine, "tokenize", text="<|im_end|>")["tokenIds"]
    spelled = answer(engine, "tokenize", text="<|im_end|>", options={"parseSpecial": False})["tokenIds"]
    assert len(named) == 1
    assert len(spelled) > 1
    assert named[0] not in spelled


def test_the_model_s_own_tokens_are_added_or_not(open_wire: OpenWire) -> None:
    gguf = parrot(CYCLE)
    gguf.metadata["tokenizer.ggml.add_bos_token"] = Value(BOOL, True)
    gguf.metadata["tokenizer.ggml.bos_token_id"] = Value(UINT32, ord("^"))
    engine = open_wire(gguf)
    plain = [ord("a"), ord("b")]
    assert answer(engine, "tokenize", text="ab") == {"tokenIds": [ord("^"), *plain]}
    assert answer(engine, "tokenize", text="ab", options={"addSpecial": False}) == {"tokenIds": plain}
    assert answer(engine, "countTokens", text="ab") == {"tokens": 3}
    assert answer(engine, "countTokens", text="ab", options={"addSpecial": False}) == {"tokens": 2}


def test_an_encoder_answers_as_well(open_wire: OpenWire) -> None:
    engine = open_wire(embedder())
    assert answer(engine, "tokenize", text="a c") == {"tokenIds": [2, 5, 7, 3]}
    text = answer(engine, "detokenize", tokenIds=[2, 5, 7, 3])["text"]
    assert text.replace(" ", "") == "[CLS]ac[SEP]"
    assert answer(engine, "countTokens", text="a c") == {"tokens": 4}
    assert refusal(engine, "applyTemplate", messages=HELLO).code == "template_missing"


def test_bytes_that_are_no_character_are_replaced(open_wire: OpenWire) -> None:
    engine = open_wire(parrot(CYCLE))
    emoji = "😀".encode()
    assert answer(engine, "detokenize", tokenIds=list(emoji)) == {"text": "😀"}
    assert answer(engine, "detokenize", tokenIds=[ord("a"), *emoji[:3], ord("b"), 0xFF]) == {
        "text": "a\ufffdb\ufffd"
    }


def test_no_tokens_are_no_text(engine: WireEngine) -> None:
    assert answer(engine, "detokenize", tokenIds=[]) == {"text": ""}


@pytest.mark.parametrize("invalid", [-1, 4096, 2**31, -(2**40), 2**64, 1.5, 1.0, "1", None, True, [1]])
def test_a_token_the_vocabulary_does_not_have_is_named(engine: WireEngine, invalid: object) -> None:
    error = refusal(engine, "detokenize", tokenIds=[0, 4095, invalid, -1])
    assert error.code == "invalid_request"
    assert "tokenIds[2]" in error.message
    assert error.detail == {"index": 2}


@pytest.mark.parametrize(
    ("operation", "fields"),
    [
        ("tokenize", {}),
        ("tokenize", {"text": 7}),
        ("tokenize", {"text": ["a"]}),
        ("tokenize", {"text": "a", "prompt": "a"}),
        ("detokenize", {}),
        ("detokenize", {"tokenIds": 7}),
        ("detokenize", {"tokenIds": {"0": 1}}),
        ("detokenize", {"tokenIds": [1], "options": {}}),
        ("countTokens", {}),
        ("countTokens", {"text": None}),
        ("countTokens", {"messages": []}),
        ("countTokens", {"text": "a", "messages": HELLO}),
        ("applyTemplate", {}),
        ("applyTemplate", {"messages": "Hello!"}),
        ("applyTemplate", {"messages": HELLO, "text": "a"}),
    ],
)
def test_a_question_of_another_shape_is_refused(
    engine: WireEngine, operation: str, fields: dict[str, object]
) -> None:
    assert refusal(engine, operation, **fields).code == "invalid_request"
    assert answer(engine, "countTokens", text="") == {"tokens": 0}


def test_a_wrong_option_is_refused_by_name(engine: WireEngine) -> None:
    for options, named in (({"addSpecial": 1}, "addSpecial"), ({"maxTokens": 1}, "maxTokens")):
        error = refusal(engine, "tokenize", text="a", options=options)
        assert (error.code, error.detail["option"]) == ("invalid_option", named)


def test_the_template_is_the_one_that_chat_uses(engine: WireEngine) -> None:
    messages = [{"role": "system", "content": "Be brief."}, *HELLO]
    prompt = answer(engine, "applyTemplate", messages=messages)["prompt"]
    assert prompt.endswith("<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\n")
    assert "Be brief." in prompt
    counted = answer(engine, "countTokens", messages=messages)
    assert counted == answer(engine, "countTokens", text=prompt)
    options = {"temperature": 0, "maxTokens": 5}
    engine.submit("chat", messages=messages, options=options)
    (accepted,) = engine.events()
    assert accepted["promptTokens"] == counted["tokens"]
    chat = engine.wait(accepted["id"])
    assert engine.ask("query", prompt=prompt, options=options)["text"] == chat["text"]


def test_a_template_that_refuses_says_why(open_wire: OpenWire) -> None:
    engine = open_wire(parrot(CYCLE, template="{{ raise_exception('roles must alternate') }}"))
    for operation in ("applyTemplate", "countTokens"):
        error = refusal(engine, operation, messages=HELLO)
        assert error.code == "template_rejected"
        assert "roles must alternate" in error.message


def test_a_text_is_longer_than_any_context(engine: WireEngine) -> None:
    text = "All work and no play. " * 50_000
    ids = answer(engine, "tokenize", text=text)["tokenIds"]
    assert len(ids) > 100_000
    assert answer(engine, "detokenize", tokenIds=ids) == {"text": text}


@pytest.mark.parametrize("letter", ["a", " ", "7", "é", "\n", "."])
def test_one_endless_word(engine: WireEngine, letter: str) -> None:
    text = letter * 200_000
    assert answer(engine, "detokenize", **answer(engine, "tokenize", text=text)) == {"text": text}


@pytest.mark.parametrize("letter", ["a", "\t", ".", "世"])
@pytest.mark.parametrize("splitter", ["gpt-4o", "deepseek-v3", "default", "tekken"])
def test_one_endless_word_does_not_overflow_the_stack(
    open_wire: OpenWire, splitter: str, letter: str
) -> None:
    """These vocabularies are split by std::regex, which in libstdc++ recurses once per character."""
    gguf = parrot(CYCLE)
    gguf.metadata["tokenizer.ggml.pre"] = Value(STRING, splitter)
    text = letter * 200_000
    counted = answer(open_wire(gguf), "countTokens", text=text)
    assert counted == {"tokens": len(text.encode())}


def test_questions_do_not_disturb_a_stream(engine: WireEngine) -> None:
    options = {"temperature": 0}
    alone = engine.ask("chat", messages=HELLO, options=options)
    stream = engine.submit("chat", messages=HELLO, options=options)
    events: list[Event] = []
    while engine.tick():
        engine.submit("countTokens", text="How many?")
        engine.submit("applyTemplate", messages=HELLO)
        events += engine.events()
    events += engine.events()
    (done,) = (event for event in events if event["type"] == "done" and event["id"] == stream)
    assert done["result"]["tokenIds"] == alone["tokenIds"]
    assert sum(event["type"] == "done" for event in events) > 10
