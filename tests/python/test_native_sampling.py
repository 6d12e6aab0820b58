"""Sampling options, grammars, log probabilities and the logit watch, through headrace/native.py.

What each option does to a distribution is in native/tests/sampling_test.cpp; here is what needs a model: its
vocabulary, its text, and the errors on the wire.
"""

import json
import math
import re
import struct
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import HeadraceError
from headrace.native import Engine
from headrace.wire import Message
from tests.gguf_builder import Gguf, not_a_number, parrot
from tests.python.conftest import OpenEngine

GREEDY = {"temperature": 0}
HELLO: list[Message] = [{"role": "user", "content": "Hello!"}]
JSON = r"""
# an object of two members
root ::= "{" ws "\"name\":" ws string "," ws "\"sizes\":" ws list "}"
list ::= "[" (number ("," ws number){0,3})? "]"
string ::= "\"" [a-zA-Z ]{1,12} "\""
number ::= "-"? [1-9] [0-9]{0,3}
ws ::= " "?
"""


@pytest.fixture(params=["tiny", "demo"])
def any_engine(request: pytest.FixtureRequest, open_engine: OpenEngine) -> Engine:
    """The tiny mixture of experts, and SmolLM2."""
    return open_engine(request.getfixturevalue(f"{request.param}_model"), context_size=512)


def letters(text: str) -> list[bytes]:
    return [letter.encode() for letter in text]


@pytest.mark.parametrize("temperature", [0, 1])
def test_a_grammar_forces_the_answer(any_engine: Engine, temperature: float) -> None:
    options = {"temperature": temperature, "seed": 3}
    free = any_engine.chat(HELLO, options | {"max_tokens": 8}).result().text
    for grammar, pattern in (
        ('root ::= "yes" | "no"', "yes|no"),
        ("root ::= [0-9]{5}", "[0-9]{5}"),
        ('root ::= "語" "ж" "😀"', "語ж😀"),
        ('root ::= "a" ("b" | "c")+ "d"', "a[bc]+d"),
    ):
        assert not re.fullmatch(pattern, free)
        result = any_engine.chat(HELLO, options | {"grammar": grammar, "max_tokens": 60}).result()
        if result.finish_reason == "stop":
            assert re.fullmatch(pattern, result.text), (grammar, result.text)
        else:
            assert pattern == "a[bc]+d"
            assert re.fullmatch("a[bc]*", result.text)


@pytest.mark.parametrize("seed", range(6))
def test_a_grammar_holds_at_any_temperature(any_engine: Engine, seed: int) -> None:
    options = {"grammar": JSON, "temperature": 3, "top_k": 0, "top_p": 1, "min_p": 0, "seed": seed}
    result = any_engine.chat(HELLO, options | {"max_tokens": 200}).result()
    assert result.finish_reason == "stop"
    assert set(json.loads(result.text)) == {"name", "sizes"}
    assert any_engine.chat(HELLO, options | {"max_tokens": 200}).result().token_ids == result.token_ids


@pytest.mark.parametrize("temperature", [0, 1])
def test_a_grammar_asked_about_the_likeliest_tokens_only_gives_the_same(
    any_engine: Engine, temperature: float
) -> None:
    # Any bias, also one of nothing, has the grammar asked about all tokens.
    options = {"temperature": temperature, "seed": 5, "top_k": 4, "max_tokens": 60}
    for grammar in (JSON, "root ::= [a-z ]{40}", "root ::= ([A-Z] [a-z]+ [.,!]){5}"):
        few = any_engine.chat(HELLO, options | {"grammar": grammar}).result()
        all_tokens = any_engine.chat(HELLO, options | {"grammar": grammar, "logit_bias": {0: 0}}).result()
        assert few.token_ids == all_tokens.token_ids
        assert few.text


def test_the_end_of_the_grammar_is_the_end_of_the_answer(engine: Engine) -> None:
    result = engine.chat(HELLO, GREEDY | {"grammar": 'root ::= "x"'}).result()
    assert (result.text, len(result.token_ids), result.finish_reason) == ("x", 1, "stop")
    optional = engine.chat(HELLO, GREEDY | {"grammar": 'root ::= "Hello!" [a-z ]*'}).result()
    assert re.fullmatch("Hello![a-z ]*", optional.text)


def test_the_end_of_a_turn_is_not_text_for_a_grammar(engine: Engine) -> None:
    control = str(engine.chat(HELLO, GREEDY).result().token_ids[-1])
    lifted = {str(token): 100 for token in (0, 1, 2)} | {control: 100}
    result = engine.chat(HELLO, {"grammar": "root ::= .{12}", "logit_bias": lifted, "seed": 1}).result()
    assert len(result.text) == 12
    assert result.finish_reason == "stop"


@pytest.mark.parametrize(
    ("grammar", "complaint"),
    [
        ("root := x", "line 1, byte 6"),
        ('\nroot ::= "x"\n  ) \n', "line 3"),
        ('other ::= "x"', "no rule named root"),
        ("root ::= missing", "the rule missing is not defined"),
        ('root ::= root "x" | "y"', "left recursion"),
        ('root ::= <no such token> "x"', "invalid token"),
        ('root ::= "a"{1,100000000}', "2000 repetitions"),
        ('root ::= "a"{5,2}', "before its beginning"),
        ('root ::= "a\0"', "zero byte"),
        ("root ::= " + "(" * 100_000, "brackets inside each other"),
        (" ", "no rule named root"),
    ],
)
def test_an_invalid_grammar_is_refused_before_it_is_queued(
    engine: Engine, capfd: pytest.CaptureFixture[str], grammar: str, complaint: str
) -> None:
    with pytest.raises(HeadraceError) as caught:
        engine.chat(HELLO, GREEDY | {"grammar": grammar})
    assert caught.value.code == "grammar_invalid"
    assert complaint in caught.value.message
    assert capfd.readouterr() == ("", "")
    assert engine.chat(HELLO, GREEDY).result().text.startswith("Hello!")


def test_a_grammar_that_the_vocabulary_cannot_follow_is_an_error_not_free_text(
    open_engine: OpenEngine,
) -> None:
    engine = open_engine(without_tokens(parrot(letters("abc")), "é"), context_size=256, slots=2)
    neighbour = engine.query(">", GREEDY | {"max_tokens": 30})
    run = engine.query(">", GREEDY | {"grammar": 'root ::= "ab" "é"', "max_tokens": 40})
    with pytest.raises(HeadraceError) as caught:
        run.result()
    assert caught.value.code == "grammar_invalid"
    assert neighbour.result().text == "abc" * 10


@pytest.mark.timeout(60)
def test_a_grammar_that_becomes_too_ambiguous_is_an_error(engine: Engine) -> None:
    options = {"grammar": "root ::= . root{0,2} root{0,2}", "temperature": 2, "seed": 1, "max_tokens": 20}
    run = engine.chat(HELLO, options)
    with pytest.raises(HeadraceError, match="too ambiguous") as caught:
        run.result()
    assert caught.value.code == "grammar_invalid"
    assert engine.chat(HELLO, GREEDY).result().text.startswith("Hello!")


def without_tokens(gguf: Gguf, text: str) -> Gguf:
    """The model with other tokens in the place of those for the bytes of `text`."""
    spelled = gguf.metadata["tokenizer.ggml.tokens"].data
    for value in text.encode():
        spelling = chr(value) if value >= 174 or 161 <= value < 173 else None
        assert spelling in spelled
        spelled[spelled.index(spelling)] = f"unused{value}"
    return gguf


def test_dry_ends_a_repetition_unless_a_breaker_is_in_it(open_engine: OpenEngine) -> None:
    engine = open_engine(parrot(letters("abc")), context_size=256)
    dry = GREEDY | {"max_tokens": 18, "dry_multiplier": 100}

    def text(**more: object) -> str:
        return engine.query(">", dry | more).result().text

    assert text(dry_multiplier=0) == "abc" * 6
    assert text() != "abc" * 6
    assert text().startswith("abcab")
    assert text(dry_sequence_breakers=["a"]) == "abc" * 6
    assert text(dry_penalty_last_n=2) == "abc" * 6
    assert text(dry_allowed_length=30) == "abc" * 6


@pytest.mark.parametrize("breaker", ["", "x" * 41, "x\0"])
def test_a_sequence_breaker_that_would_be_cut_is_refused(engine: Engine, breaker: str) -> None:
    with pytest.raises(HeadraceError) as caught:
        engine.chat(HELLO, {"dry_sequence_breakers": [breaker]})
    assert (caught.value.code, caught.value.detail["option"]) == ("invalid_option", "drySequenceBreakers")


def test_a_bias_on_a_token_outside_the_vocabulary_is_refused(engine: Engine) -> None:
    for bias in ({4096: 1}, {"4096": 1}, {2**31 - 1: 1}):
        with pytest.raises(HeadraceError, match="vocabulary ends with 4095") as caught:
            engine.chat(HELLO, {"logit_bias": bias})
        assert (caught.value.code, caught.value.detail["option"]) == ("invalid_option", "logitBias")
    token = engine.chat(HELLO, GREEDY).result().token_ids[3]
    forced = engine.chat(HELLO, GREEDY | {"logit_bias": {token: 100}, "max_tokens": 5}).result()
    assert forced.token_ids == (token,) * 5
    banned = engine.chat(HELLO, GREEDY | {"logit_bias": {token: -100}}).result()
    assert token not in banned.token_ids


def test_logprobs_are_those_of_the_model(any_engine: Engine) -> None:
    options = GREEDY | {"max_tokens": 12, "logprobs": True, "top_logprobs": 4}
    run = any_engine.chat(HELLO, options)
    streamed = [entry for batch in run for entry in batch.logprobs or ()]
    result = run.result()
    told = result.record["logprobs"]
    assert [entry["tokenId"] for entry in told] == list(result.token_ids)
    assert tuple(streamed) == result.logprobs
    for entry in told:
        top = entry["top"]
        values = [other["logprob"] for other in top]
        assert len(top) == 4
        assert values == sorted(values, reverse=True)
        assert top[0] == {name: entry[name] for name in ("tokenId", "text", "logprob")}, "greedy"
        assert 0 < sum(map(math.exp, values)) <= 1 + 1e-6
    assert "".join(entry["text"] for entry in told).startswith(result.text)
    warm = any_engine.chat(HELLO, options | {"temperature": 5, "seed": 1, "max_tokens": 1}).result()
    assert warm.record["logprobs"][0]["top"] == told[0]["top"], "before the temperature"


def test_all_logprobs_add_up_to_one(open_engine: OpenEngine) -> None:
    engine = open_engine(parrot(letters("abc")), context_size=64)
    total = 0.0
    for token in range(engine.model["vocabulary"]):
        options = GREEDY | {"logit_bias": {token: 100}, "max_tokens": 1, "logprobs": True}
        (entry,) = engine.query(">", options).result().record["logprobs"]
        assert (entry["tokenId"], entry["top"]) == (token, [])
        total += math.exp(entry["logprob"])
    assert total == pytest.approx(1, abs=1e-4)


def test_logprobs_come_only_when_asked_for(engine: Engine) -> None:
    assert "logprobs" not in engine.chat(HELLO, GREEDY).result().record
    with pytest.raises(HeadraceError, match="needs logprobs") as caught:
        engine.chat(HELLO, {"top_logprobs": 3})
    assert (caught.value.code, caught.value.detail["option"]) == ("invalid_option", "topLogprobs")


def test_a_token_that_is_half_a_character_is_told_as_such(open_engine: OpenEngine) -> None:
    engine = open_engine(parrot([b"\xe8", b"\xaa", b"\x9e"]), context_size=64)
    result = engine.query(">", GREEDY | {"max_tokens": 3, "logprobs": True}).result()
    assert result.text == "語"
    assert [entry["text"] for entry in result.record["logprobs"]] == ["\N{REPLACEMENT CHARACTER}"] * 3


def with_output(fill: Any) -> Gguf:
    """A parrot whose output matrix has one number per token, for each of its inputs."""
    gguf = parrot(letters("abc"))
    for tensor in gguf.tensors:
        if tensor.name == "output.weight":
            width, count = tensor.shape
            rows = [struct.pack("<f", fill(token)) * width for token in range(count)]
            tensor.data = b"".join(rows)
    return gguf


def fault(engine: Engine, temperature: float) -> HeadraceError:
    with pytest.raises(HeadraceError) as caught:
        engine.query(">", {"temperature": temperature, "max_tokens": 4}).result()
    assert caught.value.code == "numeric_fault"
    assert "healthWatch" in caught.value.message
    return caught.value


@pytest.mark.parametrize("temperature", [0, 0.8])
def test_the_watch_tells_what_is_wrong_with_the_logits(open_engine: OpenEngine, temperature: float) -> None:
    broken = fault(open_engine(not_a_number(), context_size=64), temperature)
    assert broken.detail["fault"] == "notFinite"
    assert broken.detail["notNumbers"] == broken.detail["logits"] != 0
    assert broken.detail["top"] == ""

    flat = fault(open_engine(with_output(lambda _token: 0.0), context_size=64), temperature)
    assert flat.detail["fault"] == "flat"
    assert flat.detail["minimum"] == flat.detail["maximum"] == 0


def test_the_shape_of_a_broken_pass_is_a_fault_unless_switched_off(open_engine: OpenEngine) -> None:
    def model(deviation: float) -> Gguf:
        return with_output(lambda token: (0 if token % 5 == 0 else deviation) / norm)

    norm = parrot_norm(open_engine)
    shape = fault(open_engine(model(20), context_size=64), 0)
    assert shape.detail["fault"] == "shape"
    assert shape.detail["mean"] == pytest.approx(16, rel=0.02)
    assert shape.detail["sharePositive"] == pytest.approx(0.8, abs=0.02)
    assert re.fullmatch(r"\d+:20( \d+:20){4}", str(shape.detail["top"]))
    for engine in (
        open_engine(model(20), context_size=64, health_watch="numbers"),
        open_engine(model(20), context_size=64, health_watch="off"),
        open_engine(model(12), context_size=64),
    ):
        assert engine.query(">", GREEDY | {"max_tokens": 4}).result().usage.output_tokens == 4


def parrot_norm(open_engine: OpenEngine) -> float:
    """What one unit in every entry of a row of the output matrix makes of its logit."""
    engine = open_engine(with_output(lambda token: float(token == 7)), context_size=64)
    options = GREEDY | {"max_tokens": 1, "logprobs": True, "top_logprobs": 2}
    top = engine.query(">", options).result().record["logprobs"][0]["top"]
    return float(top[0]["logprob"] - top[1]["logprob"])


def test_with_the_watch_off_nonsense_is_answered(open_engine: OpenEngine, tiny_model: Path) -> None:
    engine = open_engine(not_a_number(), context_size=64, health_watch="off")
    for options in (GREEDY, {}, {"top_k": 0, "typical_p": 0.5}, {"mirostat": 1}, {"top_n_sigma": 1.0}):
        assert engine.query(">", options | {"max_tokens": 4}).result().usage.output_tokens > 0
    with pytest.raises(HeadraceError) as caught:
        open_engine(tiny_model, health_watch="sometimes")
    assert caught.value.detail["option"] == "healthWatch"
