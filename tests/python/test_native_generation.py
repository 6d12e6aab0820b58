"""What the engine generates, through headrace/native.py: text, stop strings, cancelling, the context's end.

Most models here are parrots (tests/gguf_builder.py), whose next token is known. What trained models say
is in tests/golden/.
"""

from pathlib import Path

import pytest

from headrace.errors import HeadraceError
from headrace.native import Engine
from headrace.wire import Message
from tests.gguf_builder import parrot, spell_bytes
from tests.python.conftest import OpenEngine

GREEDY = {"temperature": 0}
HELLO: list[Message] = [{"role": "user", "content": "Hello!"}]
MIXED = "😀語ж"


def letters(text: str) -> list[bytes]:
    return [letter.encode() for letter in text]


def test_batches_add_up_to_the_result(engine: Engine) -> None:
    run = engine.chat(HELLO, GREEDY)
    batches, result = list(run), run.result()
    assert list(run) == [], "each batch is given once"
    assert "".join(batch.text for batch in batches) == result.text
    assert sum((batch.token_ids for batch in batches), ()) == result.token_ids
    assert result.usage.input_tokens == run.prompt_tokens
    assert result.usage.output_tokens >= len(result.token_ids) > 0
    assert result.stats["decode_tokens_per_second"] > 0
    assert result.stats["total_ms"] >= result.stats["ttft_ms"] > 0
    assert result.record["usage"] == {
        "inputTokens": result.usage.input_tokens,
        "outputTokens": result.usage.output_tokens,
        "cachedTokens": 0,
    }


def test_chat_is_query_with_the_template_applied(engine: Engine) -> None:
    laid_out = (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\n"
    )
    chat = engine.chat([{"role": "system", "content": "Be brief."}, *HELLO], GREEDY)
    query = engine.query(laid_out, GREEDY)
    assert chat.prompt_tokens == query.prompt_tokens
    assert chat.result().token_ids == query.result().token_ids


def test_the_same_seed_gives_the_same_text(engine: Engine) -> None:
    def text(seed: int) -> str:
        return engine.query("a", {"temperature": 2, "seed": seed, "max_tokens": 24}).result().text

    assert text(7) == text(7)
    assert len({text(seed) for seed in range(5)}) > 1


@pytest.mark.parametrize("count", range(1, 19))
def test_characters_are_never_cut(open_engine: OpenEngine, count: int) -> None:
    """Case G1: cut across tokens, wherever the answer ends."""
    engine = open_engine(parrot(spell_bytes(MIXED)), context_size=256)
    run = engine.query(">", GREEDY | {"max_tokens": count})
    batches = [batch.text for batch in run]
    spoken = (MIXED.encode() * 3)[:count]
    assert "".join(batches) == spoken.decode(errors="ignore") == run.result().text
    assert all(set(batch) <= set(MIXED) for batch in batches)
    assert run.result().usage.output_tokens == count


def test_random_bytes_stay_valid_text(engine: Engine) -> None:
    """Case G1."""
    for seed in range(8):
        run = engine.query("é", {"temperature": 5, "top_k": 0, "top_p": 1, "min_p": 0, "seed": seed})
        batches = [batch.text for batch in run]
        assert "".join(batches) == run.result().text
        for batch in batches:
            batch.encode()


def test_a_character_of_the_prompt_is_read_whole(engine: Engine) -> None:
    run = engine.query(MIXED, GREEDY | {"max_tokens": 1})
    assert run.prompt_tokens <= len(MIXED.encode())
    run.result()


@pytest.mark.parametrize(
    ("cycle", "stop", "text"),
    [
        (letters("abcdef"), ["d"], "abc"),
        (letters("abcdef"), ["cde"], "ab"),
        (letters("abcdef"), ["fab"], "abcde"),
        (letters("abcdef"), ["a"], ""),
        (letters("abcdef"), ["cdx", "ef"], "abcd"),
        (letters("abcdef"), ["ef", "cde"], "ab"),
        ([b"ab", b"cd", b"ef"], ["bc"], "a"),
        ([b"ab", b"cd", b"ef"], ["d"], "abc"),
        ([b"abcabd", b"x"], ["abd"], "abc"),
        (spell_bytes(MIXED), ["語"], "😀"),
        (spell_bytes(MIXED), ["語ж😀"], "😀"),
    ],
)
def test_a_stop_string_never_shows(
    open_engine: OpenEngine, cycle: list[bytes], stop: list[str], text: str
) -> None:
    """Case G2."""
    engine = open_engine(parrot(cycle), context_size=256)
    run = engine.query(">", GREEDY | {"max_tokens": 40, "stop": stop})
    shown = ""
    for batch in run:
        shown += batch.text
        assert text.startswith(shown)
    assert shown == text == run.result().text
    assert run.result().finish_reason == "stop"


@pytest.mark.parametrize("stop", [["abd"], ["fabcdx", "bcdefx"], ["zzz"], ["語"]])
def test_the_beginning_of_a_stop_string_is_not_lost(open_engine: OpenEngine, stop: list[str]) -> None:
    """Case G2."""
    engine = open_engine(parrot(letters("abcdef")), context_size=256)
    for count in range(1, 14):
        run = engine.query(">", GREEDY | {"max_tokens": count, "stop": stop})
        assert "".join(batch.text for batch in run) == ("abcdef" * 3)[:count]
        assert run.result().finish_reason == "length"


def test_the_end_of_turn_token_ends_the_text(open_engine: OpenEngine) -> None:
    engine = open_engine(parrot(letters("abc"), ends=True), context_size=256)
    result = engine.query(">", GREEDY | {"max_tokens": 40}).result()
    assert (result.text, result.finish_reason) == ("abc", "stop")


def test_a_long_prefill_can_be_cancelled(open_engine: OpenEngine) -> None:
    """Case G3."""
    engine = open_engine(parrot(letters("abc")), context_size=4096, batch_size=16)
    run = engine.query("x" * 4000, GREEDY)
    # Accepted and in the middle of 250 steps.
    assert not run.finished
    run.cancel()
    run.cancel()
    result = run.result()
    assert (result.finish_reason, result.text) == ("cancelled", "")
    run.cancel()
    assert engine.query(">", GREEDY | {"max_tokens": 3}).result().text == "abc"


def test_a_request_right_after_a_cancel_is_answered(open_engine: OpenEngine) -> None:
    """Case G3."""
    engine = open_engine(parrot(letters("abc")), context_size=4096)
    first = engine.query(">", GREEDY | {"max_tokens": 4000})
    shown = next(iter(first)).text
    first.cancel()
    second = engine.query(">", GREEDY | {"max_tokens": 6})
    assert second.result().text == "abcabc"
    assert first.result().finish_reason == "cancelled"
    assert first.result().text.startswith(shown)


@pytest.mark.parametrize("slots", [1, 2])
def test_a_prompt_that_was_cancelled_can_be_asked_again_under_its_key(
    open_engine: OpenEngine, slots: int
) -> None:
    """Case G3: at once, with the same key, and with a prompt that parts from it."""
    engine = open_engine(parrot(letters("abc")), context_size=4096, batch_size=16, slots=slots)
    options = GREEDY | {"max_tokens": 6, "context_key": "document"}
    for letter, end in (("x", ""), ("y", "."), ("z", "..")):
        first = engine.query(letter * 3000, options)
        first.cancel()
        second = engine.query(letter * 3000 + end, options)
        assert second.result().text == "abcabc"
        assert second.result().usage.input_tokens == 3000 + len(end)
        assert first.result().finish_reason == "cancelled"


def test_a_reader_that_stops_or_never_reads_holds_up_nobody(open_engine: OpenEngine) -> None:
    """Case G3: what nobody reads is kept for later; a loop that is left cancels."""
    engine = open_engine(parrot(letters("abc")), context_size=4096, slots=2)
    unread = engine.query(">", GREEDY | {"max_tokens": 2000})
    left = engine.query(">", GREEDY | {"max_tokens": 4000})
    for _batch in left:
        break
    assert engine.query(">", GREEDY | {"max_tokens": 3}).result().text == "abc"
    assert left.result().finish_reason == "cancelled"
    assert unread.result().text == ("abc" * 667)[:2000]
    assert "".join(batch.text for batch in unread) == unread.result().text


def test_a_waiting_request_can_be_cancelled(open_engine: OpenEngine) -> None:
    """Case G3."""
    engine = open_engine(parrot(letters("abc")), context_size=4096, slots=1)
    first = engine.query(">", GREEDY | {"max_tokens": 3999})
    second = engine.query(">", GREEDY)
    second.cancel()
    assert (second.result().finish_reason, second.result().text) == ("cancelled", "")
    assert first.result().text == "abc" * 1333


def test_a_reader_that_throws_frees_the_slot(open_engine: OpenEngine) -> None:
    """Case G3."""
    engine = open_engine(parrot(letters("abc")), context_size=4096, slots=1)
    run = engine.query(">", GREEDY | {"max_tokens": 4000})

    def read() -> None:
        for _batch in run:
            raise RuntimeError("an error of the reader")

    with pytest.raises(RuntimeError, match="of the reader"):
        read()
    assert run.result().finish_reason == "cancelled"
    assert engine.query(">", GREEDY | {"max_tokens": 3}).result().text == "abc"


@pytest.mark.parametrize("excess", [0, 1, 1000])
def test_a_prompt_that_fills_the_context_is_refused(open_engine: OpenEngine, excess: int) -> None:
    """Case G5."""
    engine = open_engine(parrot(letters("abc")), context_size=256)
    with pytest.raises(HeadraceError) as caught:
        engine.query("x" * (256 + excess), GREEDY).result()
    assert caught.value.code == "context_overflow"
    assert 256 in caught.value.detail.values()
    assert 256 + excess in caught.value.detail.values()
    assert engine.query(">", GREEDY | {"max_tokens": 3}).result().text == "abc"


@pytest.mark.parametrize("prompt_tokens", [1, 128, 254, 255])
def test_generation_ends_with_the_context(open_engine: OpenEngine, prompt_tokens: int) -> None:
    """Case G5."""
    engine = open_engine(parrot(letters("abc")), context_size=256)
    result = engine.query("x" * prompt_tokens, GREEDY | {"max_tokens": 1000}).result()
    assert result.finish_reason == "length"
    assert result.usage.input_tokens == prompt_tokens
    assert 256 - prompt_tokens <= result.usage.output_tokens <= 257 - prompt_tokens
    assert result.text == ("abc" * 100)[: result.usage.output_tokens]
    assert engine.query(">", GREEDY | {"max_tokens": 3}).result().text == "abc"


@pytest.mark.parametrize("tokens", [255, 256, 257, 511, 5000])
@pytest.mark.parametrize("speculation", ["none", "prompt"])
def test_a_context_that_slides_holds_any_prompt(
    open_engine: OpenEngine, tokens: int, speculation: str
) -> None:
    """Case G5, with the other overflow mode: what slid out is told, and the answer goes on past the end."""
    engine = open_engine(parrot(letters("abc")), context_size=256, speculation=speculation)
    options = GREEDY | {"overflow": "shift", "max_tokens": 600}
    for _ in range(2):
        result = engine.query("x" * tokens, options).result()
        assert (result.text, result.finish_reason) == ("abc" * 200, "length")
        assert result.stats["shifted"] >= tokens + 600 - 257
    assert engine.query(">", GREEDY | {"max_tokens": 3}).result().text == "abc"


def test_context_size_zero_is_the_trained_one(open_engine: OpenEngine, tiny_model: Path) -> None:
    assert open_engine(tiny_model, context_size=0).options["context_size"] == 2048


def test_a_context_is_never_longer_than_the_trained_one(open_engine: OpenEngine, tiny_model: Path) -> None:
    assert open_engine(tiny_model, context_size=100_000).options["context_size"] == 2048


def test_a_context_of_one_token_refuses_every_prompt_and_stays_usable(open_engine: OpenEngine) -> None:
    engine = open_engine(parrot(letters("abc")), context_size=1)
    for overflow in ("error", "shift"):
        with pytest.raises(HeadraceError) as caught:
            engine.query("xyz", {"overflow": overflow})
        assert caught.value.code == "context_overflow"
    assert engine.tokenize("xyz").result()
