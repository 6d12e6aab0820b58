"""headrace/wire.py: names in both directions, and records."""

from pathlib import Path

import pytest

from headrace.library import describe
from headrace.wire import camel_case, decode_names, decode_result, encode_names, snake_case


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


def test_a_result_has_python_s_names_and_keeps_the_record() -> None:
    record = {
        "text": " 7",
        "tokenIds": [216, 39],
        "finishReason": "length",
        "usage": {"inputTokens": 17, "outputTokens": 2, "cachedTokens": 0},
        "stats": {"ttftMs": 121.0, "itlMs": None, "artifact": "native"},
    }
    result = decode_result(record)
    assert (result.text, result.token_ids, result.finish_reason) == (" 7", (216, 39), "length")
    assert (result.usage.input_tokens, result.usage.output_tokens, result.usage.cached_tokens) == (17, 2, 0)
    assert result.stats == {"ttft_ms": 121.0, "itl_ms": None, "artifact": "native"}
    assert result.record is record
