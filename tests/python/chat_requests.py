"""A question, tools and a call, as tests of chat use them."""

from typing import Any

from headrace.wire import Message

ASK: list[Message] = [{"role": "user", "content": "How is the weather?"}]
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CLOCK: dict[str, Any] = {"type": "function", "function": {"name": "clock", "description": "The time."}}
CALL: dict[str, Any] = {
    "id": "abcdefghi",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'},
}
