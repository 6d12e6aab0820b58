"""What the engine makes of broken, foreign or odd files: a typed error in one sentence, never a crash.

Counterpart: `native/engine/model.cpp` and `native/chat/`, reached through headrace/native.py. Files are
made by tests/gguf_builder.py.
"""

import asyncio
from collections.abc import Callable
from math import prod
from pathlib import Path

import pytest

from headrace.errors import HeadraceError
from headrace.wire import Message
from tests.gguf_builder import (
    INT32,
    NORMAL,
    STRING,
    UINT32,
    Gguf,
    Value,
    contradictory,
    embedder,
    not_a_number,
    parrot,
    read_gguf,
    renamed,
    unsound,
)
from tests.python.conftest import OpenEngine

GREEDY = {"temperature": 0}
HELLO: list[Message] = [{"role": "user", "content": "Hello!"}]
CYCLE = [b"a", b"b", b"c"]
BYTES_OF = {24: 1, 26: 4, 28: 8}
"""Tensor types without a kernel → bytes of an element."""

LFS_POINTER = b"""version https://git-lfs.github.com/spec/v1
oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393
size 98362432
"""

HTML_PAGE = b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body>Sign in first</body></html>\n"


def refusal(open_engine: OpenEngine, model: Path | Gguf) -> HeadraceError:
    with pytest.raises(HeadraceError) as caught:
        open_engine(model)
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 400
    assert "GGML_ASSERT" not in caught.value.message
    return caught.value


def test_a_missing_file_is_named(open_engine: OpenEngine, tmp_path: Path) -> None:
    error = refusal(open_engine, tmp_path / "nowhere.gguf")
    assert error.code == "model_not_found"
    assert "nowhere.gguf" in error.message


def test_a_folder_is_no_model(open_engine: OpenEngine, tmp_path: Path) -> None:
    assert refusal(open_engine, tmp_path).code in ("model_not_found", "model_invalid")


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (HTML_PAGE, "HTML"),
        (b"\n  <html lang=en>", "HTML"),
        (LFS_POINTER, "LFS"),
        (b"1, 2, 3\n", ""),
        (b"", ""),
        (b"GG", ""),
        (b"GGUF", ""),
        (b"GGUF\x03\x00\x00\x00", ""),
        (b"PK\x03\x04" + bytes(100), ""),
    ],
)
def test_a_foreign_file_is_recognised(
    open_engine: OpenEngine, tmp_path: Path, content: bytes, hint: str
) -> None:
    """Case F7: told from the first bytes."""
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    error = refusal(open_engine, path)
    assert error.code in ("model_invalid", "model_truncated")
    assert hint in error.message


def test_no_blocks_is_refused(open_engine: OpenEngine, tiny_model: Path) -> None:
    """Case F5: an error, not the text of an assertion."""
    gguf = read_gguf(tiny_model)
    gguf.metadata["qwen3moe.block_count"] = Value(UINT32, 0)
    assert refusal(open_engine, gguf).code == "model_invalid"


@pytest.mark.parametrize("key", ["general.architecture", "tokenizer.ggml.tokens", "llama.embedding_length"])
def test_missing_metadata_is_refused(open_engine: OpenEngine, key: str) -> None:
    gguf = parrot(CYCLE)
    del gguf.metadata[key]
    assert refusal(open_engine, gguf).code == "model_invalid"


def test_an_unknown_architecture_is_refused(open_engine: OpenEngine) -> None:
    gguf = parrot(CYCLE)
    gguf.metadata["general.architecture"] = Value(STRING, "perpetuum")
    error = refusal(open_engine, gguf)
    assert error.code == "model_invalid"
    assert "perpetuum" in error.message


def test_a_missing_tensor_is_refused(open_engine: OpenEngine) -> None:
    gguf = parrot(CYCLE)
    del gguf.tensors[5]
    assert refusal(open_engine, gguf).code == "model_invalid"


@pytest.mark.parametrize("kind", [24, 26, 28], ids=["i8", "i32", "f64"])
def test_weights_of_a_type_nothing_multiplies_by_are_refused(open_engine: OpenEngine, kind: int) -> None:
    gguf = parrot(CYCLE)
    tensor = next(tensor for tensor in gguf.tensors if tensor.name == "blk.0.ffn_up.weight")
    tensor.kind, tensor.data = kind, bytes(prod(tensor.shape) * BYTES_OF[kind])
    error = refusal(open_engine, gguf)
    assert error.code == "model_invalid"
    assert "blk.0.ffn_up.weight" in error.message


@pytest.mark.parametrize("heads", [0, 100_000, None])
@pytest.mark.parametrize("architecture", ["llama", "olmo2"])
def test_heads_that_divide_nothing_are_refused(
    open_engine: OpenEngine, architecture: str, heads: int | None
) -> None:
    """Case F5."""
    gguf = parrot(CYCLE)
    gguf.metadata = {key.replace("llama.", f"{architecture}."): value for key, value in gguf.metadata.items()}
    gguf.metadata["general.architecture"] = Value(STRING, architecture)
    if heads is None:
        del gguf.metadata[f"{architecture}.attention.head_count"]
    else:
        gguf.metadata[f"{architecture}.attention.head_count"] = Value(UINT32, heads)
    error = refusal(open_engine, gguf)
    assert error.code == "model_invalid"
    assert "head_count" in error.message


def test_a_tensor_as_large_as_numbers_go_is_refused(open_engine: OpenEngine) -> None:
    """Case F6, by a size that overflows."""
    gguf = parrot(CYCLE)
    # Its end, counted from the file's beginning, does not fit into 64 bits.
    gguf.tensors[-1].shape = (2**30 - 1, 2**32)
    assert refusal(open_engine, gguf).code in ("model_truncated", "model_invalid")


@pytest.mark.parametrize("keep", [0.001, 0.01, 0.02, 0.05, 0.5, 0.999])
def test_a_truncated_file_is_refused(
    open_engine: OpenEngine, tiny_model: Path, tmp_path: Path, keep: float
) -> None:
    """Case F6: cut anywhere."""
    data = tiny_model.read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(data[: int(len(data) * keep)])
    assert refusal(open_engine, path).code in ("model_truncated", "model_invalid")


def test_a_last_tensor_that_ends_after_the_file_is_refused(open_engine: OpenEngine, tmp_path: Path) -> None:
    """Case F6: by one byte."""
    gguf = parrot(CYCLE)
    assert len(gguf.tensors[-1].data) % 32 == 0, "so that padding hides nothing"
    whole = gguf.write(tmp_path / "whole.gguf").read_bytes()
    path = tmp_path / "short.gguf"
    path.write_bytes(whole[:-1])
    error = refusal(open_engine, path)
    assert error.code == "model_truncated"
    assert len(whole) in error.detail.values()
    assert len(whole) - 1 in error.detail.values()


def test_bytes_after_the_last_tensor_do_no_harm(open_engine: OpenEngine, tmp_path: Path) -> None:
    path = parrot(CYCLE).write(tmp_path / "longer.gguf")
    path.write_bytes(path.read_bytes() + bytes(100))
    assert open_engine(path).query(">", GREEDY | {"max_tokens": 3}).result().text == "abc"


def test_an_end_of_turn_token_typed_as_normal_still_ends(open_engine: OpenEngine, tiny_model: Path) -> None:
    """Case F9: a control-looking token that is not typed as control."""
    gguf = read_gguf(tiny_model)
    types = gguf.metadata["tokenizer.ggml.token_type"]
    end = gguf.metadata["tokenizer.ggml.tokens"].data.index("<|im_end|>")
    types.data[end] = NORMAL
    result = open_engine(gguf).chat(HELLO, GREEDY | {"max_tokens": 200}).result()
    assert result.finish_reason == "stop"
    assert result.text == "Hello! I am a tiny mixture of experts model made for tests."


def test_an_end_of_turn_token_nobody_names_still_ends(open_engine: OpenEngine, tiny_model: Path) -> None:
    """Case F9: the template ends a turn with a normal-typed token, the metadata names another one."""
    gguf = read_gguf(tiny_model)
    tokens = gguf.metadata["tokenizer.ggml.tokens"].data
    gguf.metadata["tokenizer.ggml.token_type"].data[tokens.index("<|im_end|>")] = NORMAL
    gguf.metadata["tokenizer.ggml.eos_token_id"] = Value(UINT32, tokens.index("<|endoftext|>"))
    result = open_engine(gguf).chat(HELLO, GREEDY | {"max_tokens": 200}).result()
    assert result.finish_reason == "stop"
    assert result.text == "Hello! I am a tiny mixture of experts model made for tests."


TURNS = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
NO_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    + TURNS
)
ALTERNATE = (
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant') }}{% endif %}"
    "{{ m['content'] }}{% endfor %}"
)
SYSTEM: Message = {"role": "system", "content": "Be brief."}
USER: Message = {"role": "user", "content": ">"}


def test_a_template_that_refuses_says_why(open_engine: OpenEngine) -> None:
    """Case G7."""
    engine = open_engine(parrot(CYCLE, template=ALTERNATE))
    with pytest.raises(HeadraceError, match="roles must alternate") as caught:
        engine.chat([USER, USER], GREEDY)
    assert caught.value.code == "template_rejected"
    assert engine.chat([USER], GREEDY | {"max_tokens": 3}).result().text == "abc"


def test_a_template_without_a_system_role_gets_it_with_the_first_turn(open_engine: OpenEngine) -> None:
    """Case G7."""
    engine = open_engine(parrot(CYCLE, template=NO_SYSTEM))
    run = engine.chat([SYSTEM, USER], GREEDY | {"max_tokens": 3})
    assert run.prompt_tokens >= len("Be brief.>"), "nothing that was said is left out"
    assert run.result().text == "abc"
    assert engine.chat([USER], GREEDY | {"max_tokens": 3}).result().text == "abc"


def test_chat_needs_a_template(open_engine: OpenEngine) -> None:
    engine = open_engine(parrot(CYCLE))
    assert engine.model["chat_template"] is False
    with pytest.raises(HeadraceError) as caught:
        engine.chat([USER], GREEDY)
    assert caught.value.code == "template_missing"
    assert engine.query(">", GREEDY | {"max_tokens": 3}).result().text == "abc"


@pytest.mark.parametrize(
    "template", ["{% for m in", "{{ nothing.at.all }}", "{{ messages | no_such_filter }}"]
)
def test_a_broken_template_leaves_query_usable(open_engine: OpenEngine, template: str) -> None:
    engine = open_engine(parrot(CYCLE, template=template))
    with pytest.raises(HeadraceError) as caught:
        engine.chat([USER], GREEDY)
    assert caught.value.code in ("template_rejected", "template_missing", "invalid_request")
    assert engine.query(">", GREEDY | {"max_tokens": 3}).result().text == "abc"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda gguf: gguf.metadata.update({"llama.attention.head_count": Value(UINT32, 0)}),
        lambda gguf: gguf.metadata.update({"llama.embedding_length": Value(UINT32, 0)}),
        lambda gguf: gguf.metadata.update({"llama.context_length": Value(UINT32, 0)}),
        lambda gguf: gguf.metadata.update({"llama.block_count": Value(STRING, "one")}),
        lambda gguf: gguf.metadata.update({"tokenizer.ggml.eos_token_id": Value(INT32, -5)}),
        lambda gguf: gguf.metadata.update({"general.alignment": Value(UINT32, 0)}),
    ],
)
def test_odd_metadata_is_refused_or_works(open_engine: OpenEngine, spoil: Callable[[Gguf], None]) -> None:
    gguf = parrot(CYCLE)
    spoil(gguf)
    try:
        outcome = open_engine(gguf).query(">", GREEDY | {"max_tokens": 3}).result().text
    except HeadraceError as error:
        outcome = error.code
    assert outcome in ("abc", "model_invalid")


def test_an_assertion_of_ggml_is_an_error_and_the_process_goes_on(
    open_engine: OpenEngine, tiny_model: Path
) -> None:
    with pytest.raises(HeadraceError) as caught:
        open_engine(contradictory(tiny_model))
    assert caught.value.code == "model_invalid"
    assert "contradicts itself" in caught.value.message
    assert "src/models/" in caught.value.message, "from llama.cpp's root on, not from this machine's"
    assert open_engine(tiny_model).chat(HELLO, GREEDY).result().finish_reason == "stop"


def test_an_empty_metadata_key_is_damage_not_truncation(open_engine: OpenEngine) -> None:
    """Case F3."""
    gguf = parrot(CYCLE)
    gguf.metadata[""] = Value(STRING, "nameless")
    error = refusal(open_engine, gguf)
    assert error.code == "model_invalid"
    assert "empty" in error.message


def test_an_embedding_model_is_not_made_to_talk(open_engine: OpenEngine) -> None:
    engine = open_engine(embedder())
    with pytest.raises(HeadraceError, match="cannot query") as caught:
        engine.query("a")
    assert caught.value.code == "unsupported_operation"
    with pytest.raises(HeadraceError, match="cannot chat") as caught:
        engine.chat(HELLO)
    assert caught.value.code == "unsupported_operation"


def test_a_diffusion_model_is_refused(open_engine: OpenEngine) -> None:
    error = refusal(open_engine, renamed(parrot(CYCLE), "llada"))
    assert error.code == "model_invalid"
    assert "neither generates text token by token nor embeds it" in error.message


def test_the_end_marker_written_out_in_letters_is_text(open_engine: OpenEngine) -> None:
    """Case F9, turned round: only the marker's own token ends a turn; a model may write about the marker."""
    template = (
        "{% for m in messages %}<|user|>{{ m['content'] }}<|end|>{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )
    letters = [b"x", b"<", b"|", b"end", b"|>", b"y"]
    engine = open_engine(parrot(letters, template=template, ends=True))
    result = engine.chat(HELLO, GREEDY).result()
    assert result.text == "x<|end|>y"
    assert result.finish_reason == "stop"


@pytest.mark.parametrize("threads", [1, 3])
def test_an_assertion_in_a_forward_pass_ends_its_requests_and_no_other_engine(
    open_engine: OpenEngine, tiny_model: Path, threads: int
) -> None:
    sound = open_engine(tiny_model)
    running = sound.chat(HELLO, GREEDY)
    broken = open_engine(unsound(), threads=threads, self_test=False)

    async def ask(prompt: str) -> object:
        return await broken.query(prompt, GREEDY)

    async def ask_both() -> tuple[object, ...]:
        return await asyncio.gather(ask("Hi"), ask("Ho"), return_exceptions=True)

    for error in asyncio.run(ask_both()):
        assert isinstance(error, HeadraceError)
        assert error.code == "engine_aborted"
        assert "GGML_ASSERT" in error.message
    with pytest.raises(HeadraceError) as refused:
        broken.query("Hey", GREEDY)
    assert refused.value.code in ("engine_aborted", "engine_closed")
    broken.close()
    assert running.result().finish_reason == "stop"


@pytest.mark.parametrize("temperature", [0, 0.8])
def test_logits_that_are_no_numbers_are_an_error_not_an_answer(
    open_engine: OpenEngine, temperature: float
) -> None:
    engine = open_engine(not_a_number())
    for _ in range(2):
        with pytest.raises(HeadraceError) as caught:
            engine.query("Hi", {"temperature": temperature}).result()
        assert caught.value.code == "numeric_fault"
        assert caught.value.detail["notNumbers"] == caught.value.detail["logits"]


@pytest.mark.parametrize("alignment", [8, 16])
def test_a_file_of_a_small_alignment_answers(open_engine: OpenEngine, tmp_path: Path, alignment: int) -> None:
    """Case F2: alignments smaller than what ggml asks for."""
    gguf = parrot(CYCLE)
    gguf.metadata["general.alignment"] = Value(UINT32, alignment)
    path = gguf.write(tmp_path / "aligned.gguf", alignment=alignment)
    assert open_engine(path).query("x", GREEDY | {"max_tokens": 4}).result().text == "abca"
