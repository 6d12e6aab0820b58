"""Models that say a scripted text under the chat templates of known families.

The models are parrots (tests/gguf_builder.py), the templates lie in llama.cpp's source tree; the fixture
`template` of conftest.py reads them.
"""

from collections.abc import Sequence

from tests.gguf_builder import CONTROL, Gguf, parrot

# family: (template, what a model of it writes to call get_weather, markers that are control tokens)
HERMES_CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris, naïve 😀"}}\n</tool_call>'
FAMILIES: dict[str, tuple[str, str, Sequence[str]]] = {
    "hermes": ("NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", HERMES_CALL, ()),
    "qwen2.5": ("Qwen-Qwen2.5-7B-Instruct", HERMES_CALL, ("<tool_call>", "</tool_call>")),
    "qwen3": ("Qwen-Qwen3-0.6B", HERMES_CALL, ("<tool_call>", "</tool_call>", "<think>", "</think>")),
    "qwen3-coder": (
        "Qwen3-Coder",
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis, naïve 😀\n</parameter>\n"
        "</function>\n</tool_call>",
        ("<tool_call>", "</tool_call>"),
    ),
    "llama3.1": (
        "meta-llama-Llama-3.1-8B-Instruct",
        '{"name": "get_weather", "parameters": {"city": "Paris, naïve 😀"}}',
        (),
    ),
    "mistral": (
        "mistralai-Mistral-Nemo-Instruct-2407",
        '[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Paris, naïve 😀"}, "id": "123456789"}]',
        ("[TOOL_CALLS]",),
    ),
    "granite": ("ibm-granite-granite-4.0", HERMES_CALL, ("<tool_call>", "</tool_call>")),
    "gemma4": (
        "google-gemma-4-31B-it",
        '<|tool_call>call:get_weather{city:<|"|>Paris, naïve 😀<|"|>}<tool_call|>',
        ("<|tool_call>", "<tool_call|>"),
    ),
    "gpt-oss": (
        "openai-gpt-oss-120b",
        "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
        '{"city": "Paris, naïve 😀"}',
        ("<|channel|>", "<|constrain|>", "<|message|>"),
    ),
}


def scripted(text: str, template: str, markers: Sequence[str] = (), size: int = 3) -> Gguf:
    cycle = pieces(text, markers, size)
    gguf = parrot(cycle, template=template, ends=True)
    tokens = gguf.metadata["tokenizer.ggml.tokens"].data
    for marker in markers:
        if marker in tokens:
            gguf.metadata["tokenizer.ggml.token_type"].data[tokens.index(marker)] = CONTROL
    return gguf


def pieces(text: str, markers: Sequence[str], size: int) -> list[bytes]:
    """The text in pieces that all differ and are longer than a byte, every marker a piece of its own.

    A marker that comes twice is one only the first time.
    """
    rest, cycle = text.encode(), list[bytes]()
    ends = [marker.encode() for marker in markers]
    while rest:
        marker = next((end for end in ends if rest.startswith(end) and end not in cycle), None)
        length = len(marker) if marker else size
        if not marker:
            cut = min(
                (at for end in ends if end not in cycle and (at := rest.find(end)) > 0), default=len(rest)
            )
            while length < cut and (rest[:length] in cycle or cut - length == 1):
                length += 1
            length = min(length, cut)
        cycle.append(rest[:length])
        rest = rest[length:]
    assert all(len(piece) > 1 for piece in cycle), cycle
    assert len(set(cycle)) == len(cycle), cycle
    return cycle
