"""Tiny models with random weights, one for each way in which llama.cpp remembers a sequence.

Counterpart: `native/engine/kv_cache.cpp` on llama.cpp's memories: the plain KV cache, the one with sliding
windows, recurrent states, and both together. What these models say is gibberish, but it depends on every
token before it (in sliding-window layers: in the window), and strongly: a state that is not exactly the one
of its tokens shows in the log probabilities. Made with tests/gguf_builder.py, which has the models whose
answer is known.
"""

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import prod, sqrt
from random import Random
from string import ascii_letters

from tests.gguf_builder import ARRAY, F32, FLOAT32, STRING, UINT32, Gguf, Tensor, Value, parrot

WIDTH, HIDDEN, HEADS, KV_HEADS, HEAD = 64, 96, 2, 1, 32
LAYERS = 4
WINDOW = 16
CONTEXT = 1024
INNER, STATE, RANK, CONV = 2 * WIDTH, 8, 8, 4
SHORTCONV = 3
WKV_HEAD, WKV_RANK = 64, 8

# Log probabilities of answers to the same prompt differ by less, however it was split into batches: by
# rounding only, of which attention has most (in float16). Those of answers to prompts that differ in one
# early token differ by far more (test_native_memory.py checks it).
TOLERANCES = {
    "plain": 0.08,
    "sliding": 0.05,
    "recurrent": 1e-4,
    "rwkv": 1e-4,
    "hybrid": 0.01,
    "hybrid_sliding": 0.01,
}

# Only letters are ever said, so that an answer can be the text of the next prompt.
SPOKEN = frozenset(ascii_letters.encode())


@dataclass
class _Weights:
    """Tensors as they are added, drawn from one seed."""

    seed: int
    tensors: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)

    def matrix(self, name: str, columns: int, rows: int, gain: float = 1.0) -> None:
        """A matrix that keeps the size of its input, times `gain`."""
        self.normal(name, (columns, rows), gain / sqrt(columns))

    def normal(self, name: str, shape: Sequence[int], deviation: float, mean: float = 0.0) -> None:
        draw = self.random.gauss
        self.values(name, shape, [draw(mean, deviation) for _ in range(prod(shape))])

    def uniform(self, name: str, shape: Sequence[int], low: float, high: float) -> None:
        draw = self.random.uniform
        self.values(name, shape, [draw(low, high) for _ in range(prod(shape))])

    def constant(self, name: str, size: int, value: float) -> None:
        self.values(name, (size,), [value] * size)

    def values(self, name: str, shape: Sequence[int], values: Sequence[float]) -> None:
        self.tensors.append(Tensor(name, shape, F32, array("f", values).tobytes()))


def _start(seed: int, tokens: int, size: float = 1.0) -> _Weights:
    """Embeddings, of which each number is about `size`, and logits."""
    weights = _Weights(seed)
    weights.normal("token_embd.weight", (WIDTH, tokens), size)
    deviation = 3 / sqrt(WIDTH)
    rows = [
        [weights.random.gauss(0, deviation) if token in SPOKEN else 0.0 for _ in range(WIDTH)]
        for token in range(tokens)
    ]
    weights.values("output.weight", (WIDTH, tokens), [value for row in rows for value in row])
    return weights


def _attention(weights: _Weights, layer: int, *, norms: bool = False) -> None:
    """Sharp, so that single tokens count."""
    prefix = f"blk.{layer}."
    weights.matrix(prefix + "attn_q.weight", WIDTH, HEADS * HEAD, 1.0 if norms else 1.6)
    weights.matrix(prefix + "attn_k.weight", WIDTH, KV_HEADS * HEAD, 1.0 if norms else 1.6)
    weights.matrix(prefix + "attn_v.weight", WIDTH, KV_HEADS * HEAD, 2.0)
    weights.matrix(prefix + "attn_output.weight", HEADS * HEAD, WIDTH)
    if norms:
        weights.constant(prefix + "attn_q_norm.weight", HEAD, 1.5)
        weights.constant(prefix + "attn_k_norm.weight", HEAD, 1.5)


def _feed_forward(weights: _Weights, layer: int) -> None:
    prefix = f"blk.{layer}."
    weights.constant(prefix + "ffn_norm.weight", WIDTH, 1.0)
    weights.matrix(prefix + "ffn_gate.weight", WIDTH, HIDDEN)
    weights.matrix(prefix + "ffn_up.weight", WIDTH, HIDDEN)
    weights.matrix(prefix + "ffn_down.weight", HIDDEN, WIDTH)


def _mamba(weights: _Weights, layer: int, *, norms: bool = False) -> None:
    """With decays so slow that a hundred tokens later the first one still counts."""
    prefix = f"blk.{layer}."
    weights.matrix(prefix + "ssm_in.weight", WIDTH, 2 * INNER)
    weights.matrix(prefix + "ssm_conv1d.weight", CONV, INNER)
    weights.normal(prefix + "ssm_conv1d.bias", (INNER,), 0.1)
    weights.matrix(prefix + "ssm_x.weight", INNER, RANK + 2 * STATE)
    weights.matrix(prefix + "ssm_dt.weight", RANK, INNER, 0.5)
    weights.normal(prefix + "ssm_dt.bias", (INNER,), 0.2, -1.0)
    weights.uniform(prefix + "ssm_a", (STATE, INNER), -0.05, -0.001)
    weights.normal(prefix + "ssm_d", (INNER,), 0.5)
    weights.matrix(prefix + "ssm_out.weight", INNER, WIDTH)
    if norms:
        for name, size in (("dt", RANK), ("b", STATE), ("c", STATE)):
            weights.constant(prefix + f"ssm_{name}_norm.weight", size, 1.0)


def _rwkv(weights: _Weights, layer: int) -> None:
    prefix = f"blk.{layer}."
    for name in ("attn_norm", "attn_norm_2", "time_mix_ln"):
        weights.constant(f"{prefix}{name}.weight", WIDTH, 1.0)
        weights.constant(f"{prefix}{name}.bias", WIDTH, 0.0)
    # The decay is exp(-0.6 * sigmoid(w0 + …)): near 1, so that the state lasts.
    for name, mean in (("w", -6.0), ("a", -1.0), ("v", 0.0)):
        weights.normal(f"{prefix}time_mix_{name}0.weight", (WIDTH,), 0.3, mean)
        weights.matrix(f"{prefix}time_mix_{name}1.weight", WIDTH, WKV_RANK)
        weights.matrix(f"{prefix}time_mix_{name}2.weight", WKV_RANK, WIDTH, 0.3)
    weights.matrix(prefix + "time_mix_g1.weight", WIDTH, WKV_RANK)
    weights.matrix(prefix + "time_mix_g2.weight", WKV_RANK, WIDTH, 2.0)
    weights.uniform(prefix + "time_mix_lerp_fused.weight", (WIDTH, 1, 1, 6), 0, 1)
    weights.normal(prefix + "time_mix_k_k.weight", (WIDTH,), 0.1, 1.0)
    weights.normal(prefix + "time_mix_k_a.weight", (WIDTH,), 0.1, 1.0)
    weights.normal(prefix + "time_mix_r_k.weight", (WIDTH,), 0.1)
    for name in ("key", "value", "receptance", "output"):
        weights.matrix(f"{prefix}time_mix_{name}.weight", WIDTH, WIDTH)
    weights.uniform(prefix + "channel_mix_lerp_k.weight", (WIDTH, 1, 1), 0, 1)
    weights.matrix(prefix + "channel_mix_key.weight", WIDTH, HIDDEN)
    weights.matrix(prefix + "channel_mix_value.weight", HIDDEN, WIDTH)


def _make(
    architecture: str, weights: _Weights, settings: Mapping[str, Value], norm: str = "output_norm"
) -> Gguf:
    """The weights with the vocabulary of `parrot`: a token for each byte, and one for the end."""
    gguf = parrot([b"a", b"b"])
    tokenizer = {key: value for key, value in gguf.metadata.items() if key.startswith("tokenizer.")}
    common = {
        "block_count": Value(UINT32, LAYERS),
        "context_length": Value(UINT32, CONTEXT),
        "embedding_length": Value(UINT32, WIDTH),
        "feed_forward_length": Value(UINT32, HIDDEN),
        "attention.head_count": Value(UINT32, HEADS),
        "attention.head_count_kv": Value(UINT32, KV_HEADS),
        "attention.key_length": Value(UINT32, HEAD),
        "attention.value_length": Value(UINT32, HEAD),
        "attention.layer_norm_rms_epsilon": Value(FLOAT32, 1e-6),
        "attention.layer_norm_epsilon": Value(FLOAT32, 1e-5),
        **settings,
    }
    gguf.metadata = {
        "general.architecture": Value(STRING, architecture),
        "general.name": Value(STRING, f"Random {architecture}"),
        **{f"{architecture}.{key}": value for key, value in common.items()},
        **tokenizer,
    }
    weights.constant(f"{norm}.weight", WIDTH, 1.0)
    gguf.tensors = weights.tensors
    return gguf


def _tokens() -> int:
    return len(parrot([b"a", b"b"]).metadata["tokenizer.ggml.tokens"].data)


_MAMBA_SETTINGS = {
    "ssm.conv_kernel": Value(UINT32, CONV),
    "ssm.inner_size": Value(UINT32, INNER),
    "ssm.state_size": Value(UINT32, STATE),
    "ssm.time_step_rank": Value(UINT32, RANK),
}


def plain(seed: int = 1) -> Gguf:
    """A llama: every layer attends to everything."""
    weights = _start(seed, _tokens())
    for layer in range(LAYERS):
        weights.constant(f"blk.{layer}.attn_norm.weight", WIDTH, 1.0)
        _attention(weights, layer)
        _feed_forward(weights, layer)
    return _make("llama", weights, {"rope.dimension_count": Value(UINT32, HEAD)})


def sliding(seed: int = 1) -> Gguf:
    """A gemma3: every second layer sees only the last `WINDOW` tokens."""
    weights = _start(seed, _tokens(), 1 / sqrt(WIDTH))  # this architecture multiplies them
    for layer in range(LAYERS):
        for name in ("attn_norm", "post_attention_norm", "post_ffw_norm"):
            weights.constant(f"blk.{layer}.{name}.weight", WIDTH, 1.0)
        _attention(weights, layer, norms=True)
        _feed_forward(weights, layer)
    window = {
        "attention.sliding_window": Value(UINT32, WINDOW),
        "attention.sliding_window_pattern": Value(UINT32, 2),
    }
    return _make("gemma3", weights, window)


def recurrent(seed: int = 1) -> Gguf:
    """A Mamba: a state of fixed size in each layer."""
    weights = _start(seed, _tokens())
    for layer in range(LAYERS):
        weights.constant(f"blk.{layer}.attn_norm.weight", WIDTH, 1.0)
        _mamba(weights, layer)
    return _make("mamba", weights, _MAMBA_SETTINGS)


def rwkv(seed: int = 1) -> Gguf:
    """An RWKV of version 7."""
    weights = _start(seed, _tokens())
    for layer in range(LAYERS):
        _rwkv(weights, layer)
    for name in ("token_embd_norm", "output_norm"):
        weights.constant(f"{name}.bias", WIDTH, 0.0)
    weights.constant("token_embd_norm.weight", WIDTH, 1.0)
    settings = {"wkv.head_size": Value(UINT32, WKV_HEAD), "attention.head_count": Value(UINT32, 0)}
    settings["attention.head_count_kv"] = Value(UINT32, 0)
    settings |= {f"attention.{name}_lora_rank": Value(UINT32, WKV_RANK) for name in _RWKV_RANKS}
    return _make("rwkv7", weights, settings)


_RWKV_RANKS = ("decay", "iclr", "value_residual_mix", "gate")


def hybrid(seed: int = 1) -> Gguf:
    """A Jamba: layers of Mamba and of attention by turns."""
    weights = _start(seed, _tokens())
    for layer in range(LAYERS):
        weights.constant(f"blk.{layer}.attn_norm.weight", WIDTH, 1.0)
        if layer % 2 == 0:
            _mamba(weights, layer, norms=True)
        else:
            _attention(weights, layer)
        _feed_forward(weights, layer)
    return _make("jamba", weights, _MAMBA_SETTINGS | {"attention.head_count_kv": _BY_TURNS})


def hybrid_sliding(seed: int = 1) -> Gguf:
    """An LFM2 with short convolutions and sliding-window attention by turns."""
    weights = _start(seed, _tokens())
    for layer in range(LAYERS):
        weights.constant(f"blk.{layer}.attn_norm.weight", WIDTH, 1.0)
        if layer % 2 == 0:
            prefix = f"blk.{layer}.shortconv."
            weights.matrix(prefix + "conv.weight", SHORTCONV, WIDTH)
            weights.matrix(prefix + "in_proj.weight", WIDTH, 3 * WIDTH)
            weights.matrix(prefix + "out_proj.weight", WIDTH, WIDTH)
        else:
            _attention(weights, layer, norms=True)
        _feed_forward(weights, layer)
    settings = {
        "shortconv.l_cache": Value(UINT32, SHORTCONV),
        "attention.sliding_window": Value(UINT32, WINDOW),
        "attention.head_count_kv": _BY_TURNS,
    }
    return _make("lfm2", weights, settings, norm="token_embd_norm")


_BY_TURNS = Value(ARRAY, [KV_HEADS * (layer % 2) for layer in range(LAYERS)], UINT32)

MODELS: Mapping[str, Callable[[int], Gguf]] = {
    "plain": plain,
    "sliding": sliding,
    "recurrent": recurrent,
    "rwkv": rwkv,
    "hybrid": hybrid,
    "hybrid_sliding": hybrid_sliding,
}


@cache
def memory_model(name: str, seed: int = 1) -> Gguf:
    """The model of this name in `MODELS`; made once."""
    return MODELS[name](seed)
