"""headrace/wire.py: names in both directions, and records."""

from pathlib import Path

import pytest

from headrace.library import describe
from headrace.wire import (
    TokenLogprob,
    ToolCall,
    ToolCallDelta,
    camel_case,
    decode_batch,
    decode_embed_result,
    decode_names,
    decode_result,
    encode_names,
    snake_case,
)


@pytest.mark.parametrize(
    ("snake", "camel"),
    [
        ("stop", "stop"),
        ("max_tokens", "maxTokens"),
        ("top_k", "topK"),
        ("prefill_tokens_per_second", "prefillTokensPerSecond"),
        ("ttft_ms", "ttftMs"),
    ],
)
def test_names_go_both_ways(snake: str, camel: str) -> None:
    assert camel_case(snake) == camel
    assert snake_case(camel) == snake


def test_every_declared_option_goes_both_ways(library_path: Path) -> None:
    for option in describe(library_path)["options"]:
        assert camel_case(snake_case(option["name"])) == option["name"]


def test_values_are_passed_on_as_they_are() -> None:
    value = {"snake_case": [1]}
    assert encode_names({"stop": ["a_b"], "response_format": value}) == {
        "stop": ["a_b"],
        "responseFormat": value,
    }
    assert decode_names({"itlMs": {"p50": 1.5}, "text": "aB"}) == {"itl_ms": {"p50": 1.5}, "text": "aB"}


RECORD = {
    "text": " 7",
    "tokenIds": [216, 39],
    "finishReason": "length",
    "usage": {"inputTokens": 17, "outputTokens": 2, "cachedTokens": 0},
    "stats": {"ttftMs": 121.0, "itlMs": None, "artifact": "native"},
}
LOGPROBS = [
    {
        "tokenId": 216,
        "text": " ",
        "logprob": -0.25,
        "top": [
            {"tokenId": 216, "text": " ", "logprob": -0.25},
            {"tokenId": 9, "text": "x", "logprob": -2.5},
        ],
    },
    {"tokenId": 39, "text": "7", "logprob": -0.5, "top": []},
]
READ_LOGPROBS = (
    TokenLogprob(216, " ", -0.25, (TokenLogprob(216, " ", -0.25), TokenLogprob(9, "x", -2.5))),
    TokenLogprob(39, "7", -0.5),
)


def test_a_result_has_python_s_names_and_keeps_the_record() -> None:
    record = RECORD
    result = decode_result(record)
    assert (result.text, result.token_ids, result.finish_reason) == (" 7", (216, 39), "length")
    assert (result.usage.input_tokens, result.usage.output_tokens, result.usage.cached_tokens) == (17, 2, 0)
    assert result.stats == {"ttft_ms": 121.0, "itl_ms": None, "artifact": "native"}
    assert result.record is record


def test_what_a_result_does_not_have_is_none() -> None:
    result = decode_result(RECORD)
    assert (result.tool_calls, result.reasoning, result.logprobs) == (None, None, None)
    batch = decode_batch({"text": "a", "tokenIds": [7]})
    assert (batch.text, batch.token_ids) == ("a", (7,))
    assert (batch.tool_calls, batch.reasoning, batch.logprobs) == (None, None, None)


def test_a_result_with_calls_reasoning_and_logprobs() -> None:
    call = {"id": "call-1", "name": "add", "arguments": '{"a_b": 1}'}
    result = decode_result(
        {
            **RECORD,
            "finishReason": "tool_calls",
            "toolCalls": [call],
            "reasoning": "Let me add.",
            "logprobs": LOGPROBS,
            "stats": {
                "cache": {"source": "prefix", "tokens": 12},
                "speculation": {"drafted": 8, "accepted": 5},
                "shifted": 0,
            },
        }
    )
    assert result.finish_reason == "tool_calls"
    assert result.tool_calls == (ToolCall("call-1", "add", '{"a_b": 1}'),)
    assert result.reasoning == "Let me add."
    assert result.logprobs == READ_LOGPROBS
    assert result.stats["cache"] == {"source": "prefix", "tokens": 12}
    assert result.stats["speculation"]["accepted"] == 5


def test_a_batch_with_calls_reasoning_and_logprobs() -> None:
    batch = decode_batch(
        {
            "text": "",
            "tokenIds": [216, 39],
            "reasoning": "Let",
            "toolCalls": [
                {"index": 0, "id": "call-1", "name": "add", "arguments": ""},
                {"index": 0, "arguments": '{"a'},
            ],
            "logprobs": LOGPROBS,
        }
    )
    assert batch.reasoning == "Let"
    assert batch.tool_calls == (
        ToolCallDelta(0, "call-1", "add", ""),
        ToolCallDelta(0, None, None, '{"a'),
    )
    assert batch.logprobs == READ_LOGPROBS


def test_vectors_keep_the_order_of_the_inputs() -> None:
    record = {
        "vectors": [[0.5, -1.0], [2.0, 0.0]],
        "dimensions": 2,
        "usage": {"inputTokens": 5, "outputTokens": 0, "cachedTokens": 0},
        "stats": {"totalMs": 1.5, "tokensPerSecond": 3333.0, "artifact": "native"},
    }
    result = decode_embed_result(record)
    assert result.vectors == ((0.5, -1.0), (2.0, 0.0))
    assert (result.dimensions, result.usage.input_tokens) == (2, 5)
    assert result.stats == {"total_ms": 1.5, "tokens_per_second": 3333.0, "artifact": "native"}
    assert result.record is record
