"""Names and records of the wire format as Python sees them: the only place where camelCase ends.

Counterpart: ARCHITECTURE.md, "The wire format". Not a validator: the engine refuses what is wrong,
by name.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

Operation = Literal[
    "query",
    "chat",
    "embed",
    "tokenize",
    "detokenize",
    "countTokens",
    "applyTemplate",
    "audit",
    "metrics",
]
FinishReason = Literal["stop", "length", "cancelled", "tool_calls"]


class TextPart(TypedDict):
    """A piece of a message's content, as OpenAI-style clients send it."""

    type: Literal["text"]
    text: str


class Message(TypedDict):
    """One turn of a conversation, in the form that OpenAI-style clients use.

    `role` is one the model's template knows: system, user, assistant or tool. An assistant's turn may hold
    the `tool_calls` it made and its `reasoning`; a tool's turn names the call it answers. Passed on as it
    is: these are the wire's names.
    """

    role: str
    content: NotRequired[str | Sequence[TextPart] | None]
    tool_calls: NotRequired[Sequence[Mapping[str, object]]]
    reasoning: NotRequired[str]
    tool_call_id: NotRequired[str]
    name: NotRequired[str]


class Adapter(TypedDict):
    """A LoRA adapter to load with the model: the name requests choose it by, its file, its weight (1.0)."""

    name: str
    path: str | Path
    scale: NotRequired[float]


@dataclass(frozen=True)
class TokenLogprob:
    """A token, its text, and the natural logarithm of its probability; `top` are the likeliest instead."""

    token_id: int
    text: str
    logprob: float
    top: "tuple[TokenLogprob, ...]" = ()


@dataclass(frozen=True)
class ToolCall:
    """A tool that the model wants called; `arguments` is JSON text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class ToolCallDelta:
    """What a batch adds to call number `index`: its id and name come once, `arguments` piece by piece."""

    index: int
    id: str | None
    name: str | None
    arguments: str


@dataclass(frozen=True)
class TokenBatch:
    """What one tick added to a run: whole UTF-8 characters, and the tokens they came from.

    `reasoning` is added text of the model's reasoning, `tool_calls` what was added to its calls, `logprobs`
    those of the tokens; None where nothing was added or asked for.
    """

    text: str
    token_ids: tuple[int, ...]
    reasoning: str | None = None
    tool_calls: tuple[ToolCallDelta, ...] | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None


@dataclass(frozen=True)
class Usage:
    """Token counts: the prompt's, the answer's, and how many of the prompt's needed no computing."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int


@dataclass(frozen=True)
class Result:
    """A finished run.

    `stats` are the engine's timings (`*_ms` in milliseconds, `*_per_second` in tokens per second)
    and facts; `record` is the same result with the wire's own names. `tool_calls` and `reasoning` are a
    chat's, `logprobs` there if they were asked for; None otherwise.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    usage: Usage
    stats: Mapping[str, Any]
    record: Mapping[str, Any]
    tool_calls: tuple[ToolCall, ...] | None = None
    reasoning: str | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None


@dataclass(frozen=True)
class EmbedResult:
    """The vectors of an `embed`, one per input in the inputs' order, each of `dimensions` numbers."""

    vectors: tuple[tuple[float, ...], ...]
    dimensions: int
    usage: Usage
    stats: Mapping[str, Any]
    record: Mapping[str, Any]


def camel_case(name: str) -> str:
    """`max_tokens` → `maxTokens`."""
    return re.sub(r"_([a-z0-9])", lambda match: match[1].upper(), name)


def snake_case(name: str) -> str:
    """`maxTokens` → `max_tokens`."""
    return re.sub(r"[A-Z]", lambda match: "_" + match[0].lower(), name)


def encode_names(record: Mapping[str, object]) -> dict[str, object]:
    """A record with the wire's names; values are passed on as they are."""
    return {camel_case(name): value for name, value in record.items()}


def decode_names(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record with Python's names, nested records included."""
    return {
        snake_case(name): decode_names(value) if isinstance(value, Mapping) else value
        for name, value in record.items()
    }


def decode_batch(event: Mapping[str, Any]) -> TokenBatch:
    """The batch of a `tokens` event."""
    calls = event.get("toolCalls")
    return TokenBatch(
        text=event["text"],
        token_ids=tuple(event["tokenIds"]),
        reasoning=event.get("reasoning"),
        tool_calls=None if calls is None else tuple(_decode_call_delta(call) for call in calls),
        logprobs=_decode_logprobs(event.get("logprobs")),
    )


def decode_result(record: Mapping[str, Any]) -> Result:
    """The result of a `done` event of `query` or `chat`."""
    calls = record.get("toolCalls")
    return Result(
        text=record["text"],
        token_ids=tuple(record["tokenIds"]),
        finish_reason=record["finishReason"],
        usage=_decode_usage(record["usage"]),
        stats=decode_names(record["stats"]),
        record=record,
        tool_calls=None if calls is None else tuple(_decode_call(call) for call in calls),
        reasoning=record.get("reasoning"),
        logprobs=_decode_logprobs(record.get("logprobs")),
    )


def decode_embed_result(record: Mapping[str, Any]) -> EmbedResult:
    """The result of a `done` event of `embed`."""
    return EmbedResult(
        vectors=tuple(tuple(vector) for vector in record["vectors"]),
        dimensions=record["dimensions"],
        usage=_decode_usage(record["usage"]),
        stats=decode_names(record["stats"]),
        record=record,
    )


def _decode_usage(record: Mapping[str, Any]) -> Usage:
    return Usage(record["inputTokens"], record["outputTokens"], record["cachedTokens"])


def _decode_call(record: Mapping[str, Any]) -> ToolCall:
    return ToolCall(record["id"], record["name"], record["arguments"])


def _decode_call_delta(record: Mapping[str, Any]) -> ToolCallDelta:
    return ToolCallDelta(record["index"], record.get("id"), record.get("name"), record.get("arguments", ""))


def _decode_logprobs(records: Sequence[Mapping[str, Any]] | None) -> tuple[TokenLogprob, ...] | None:
    if records is None:
        return None
    return tuple(
        TokenLogprob(
            record["tokenId"],
            record["text"],
            record["logprob"],
            _decode_logprobs(record.get("top")) or (),
        )
        for record in records
    )
