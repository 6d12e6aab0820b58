"""Names and records of the wire format as Python sees them: the only place where camelCase ends.

Counterpart: ARCHITECTURE.md, "The wire format". Not a validator: the engine refuses what is wrong,
by name.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NotRequired, TypedDict

Operation = Literal["query", "chat"]
FinishReason = Literal["stop", "length", "cancelled", "tool_calls"]


class Message(TypedDict):
    """One turn of a conversation; `role` is system, user, assistant or tool.

    An assistant's turn may hold the `tool_calls` it made, with `content` None; a tool's turn names the
    call it answers by `tool_call_id`.
    """

    role: str
    content: str | None
    tool_calls: NotRequired[list[dict[str, Any]]]
    tool_call_id: NotRequired[str]
    name: NotRequired[str]
    reasoning: NotRequired[str]


@dataclass(frozen=True)
class TokenBatch:
    """What one tick added to a run: whole UTF-8 characters, and the tokens they came from.

    In a chat that thinks or has tools, `reasoning` is what the model thought, and `tool_calls` are
    pieces of calls: {index, arguments}, the first of a call with its id and name.
    """

    text: str
    token_ids: tuple[int, ...]
    reasoning: str = ""
    tool_calls: tuple[Mapping[str, Any], ...] = ()


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
    and facts; `record` is the same result with the wire's own names. `reasoning` and `tool_calls`
    ({id, name, arguments as JSON text}) are those of a chat that thinks or has tools.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    usage: Usage
    stats: Mapping[str, Any]
    record: Mapping[str, Any]
    reasoning: str = ""
    tool_calls: tuple[Mapping[str, Any], ...] = ()


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
    return TokenBatch(
        text=event["text"],
        token_ids=tuple(event["tokenIds"]),
        reasoning=event.get("reasoning", ""),
        tool_calls=tuple(event.get("toolCalls", ())),
    )


def decode_result(record: Mapping[str, Any]) -> Result:
    """The result of a `done` event."""
    return Result(
        text=record["text"],
        token_ids=tuple(record["tokenIds"]),
        finish_reason=record["finishReason"],
        usage=Usage(**{name: int(count) for name, count in decode_names(record["usage"]).items()}),
        stats=decode_names(record["stats"]),
        record=record,
        reasoning=record.get("reasoning", ""),
        tool_calls=tuple(record.get("toolCalls", ())),
    )
