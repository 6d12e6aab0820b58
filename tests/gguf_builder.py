"""Small GGUF files for tests: read one, change it, write it; or make a model whose answer is known.

Counterpart: `native/engine/model.cpp` through llama.cpp, which must take or refuse what is written
here. Not a general GGUF library: only the value types the tests meet, version 3, 32-byte alignment.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

MAGIC = b"GGUF"
VERSION = 3
ALIGNMENT = 32

# Metadata value types of the format, by number.
UINT16, UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 2, 4, 5, 6, 7, 8, 9
SCALARS = {
    0: "B",
    1: "b",
    UINT16: "H",
    3: "h",
    UINT32: "I",
    INT32: "i",
    FLOAT32: "f",
    BOOL: "?",
    10: "Q",
    11: "q",
    12: "d",
}

# Tensor types used here.
F32 = 0

# Token types of tokenizer.ggml.token_type.
NORMAL, CONTROL = 1, 3


@dataclass
class Value:
    """A metadata value; for arrays `kind` is ARRAY and `element` the type of `data`'s items."""

    kind: int
    data: Any
    element: int = STRING


@dataclass
class Tensor:
    """A tensor's declaration; `data` is its bytes, padding excluded."""

    name: str
    shape: Sequence[int]
    kind: int
    data: bytes


@dataclass
class Gguf:
    """A whole file."""

    metadata: dict[str, Value] = field(default_factory=dict)
    tensors: list[Tensor] = field(default_factory=list)

    def write(self, path: Path, *, alignment: int = ALIGNMENT) -> Path:
        """Writes the file and returns `path`. Another alignment also needs `general.alignment`.

        Padding takes no room on the disk, however large the alignment.
        """
        header = self.header([len(tensor.data) for tensor in self.tensors], alignment)
        with path.open("wb") as file:
            for part in (header, *(tensor.data for tensor in self.tensors)):
                file.seek(_aligned(file.tell(), alignment))
                file.write(part)
            file.truncate(_aligned(file.tell(), alignment))
        return path

    def header(self, sizes: Sequence[int], alignment: int = ALIGNMENT) -> bytes:
        """All before the padding that precedes the first tensor; `sizes` are those of the tensors' data."""
        header = bytearray(MAGIC + struct.pack("<IQQ", VERSION, len(self.tensors), len(self.metadata)))
        for key, value in self.metadata.items():
            header += _string(key) + struct.pack("<I", value.kind) + _encode(value)
        offset = 0
        for tensor, size in zip(self.tensors, sizes, strict=True):
            header += _string(tensor.name) + struct.pack("<I", len(tensor.shape))
            header += struct.pack(f"<{len(tensor.shape)}Q", *tensor.shape)
            header += struct.pack("<IQ", tensor.kind, offset)
            offset += _aligned(size, alignment)
        return bytes(header)


def read_gguf(path: Path) -> Gguf:
    """Reads a file whose tensors lie one after the other, as all writers leave them."""
    reader = _Reader(path.read_bytes())
    assert reader.take(4) == MAGIC
    _version, tensor_count, key_count = reader.unpack("<IQQ")
    gguf = Gguf()
    for _ in range(key_count):
        key = reader.string()
        (kind,) = reader.unpack("<I")
        gguf.metadata[key] = reader.value(kind)
    declarations = []
    for _ in range(tensor_count):
        name = reader.string()
        (dimensions,) = reader.unpack("<I")
        shape = reader.unpack(f"<{dimensions}Q")
        kind, offset = reader.unpack("<IQ")
        declarations.append((name, shape, kind, offset))
    data = reader.data[-(-reader.at // ALIGNMENT) * ALIGNMENT :]
    ends = [offset for *_, offset in declarations[1:]] + [len(data)]
    for (name, shape, kind, offset), end in zip(declarations, ends, strict=True):
        gguf.tensors.append(Tensor(name, shape, kind, data[offset:end]))
    return gguf


def parrot(
    cycle: Sequence[bytes], *, context: int = 4096, template: str | None = None, ends: bool = False
) -> Gguf:
    """A llama model that says the pieces of `cycle` one after the other, over and over.

    Each piece is one token; after piece i comes piece i+1, whatever came before. All of them must
    differ. Bytes may be parts of a character. With `ends` the last piece is followed by the
    end-of-turn token `<|end|>`, otherwise by the first piece again. Other texts are tokenised byte by
    byte, and lead into the cycle's first piece.
    """
    bytes_first = [bytes([value]) for value in range(256)]
    pieces = bytes_first + [piece for piece in cycle if len(piece) > 1] + [b"<|end|>"]
    index = {piece: token for token, piece in enumerate(pieces)}
    end = len(pieces) - 1
    order = [index[piece] for piece in cycle]
    successor = dict.fromkeys(range(len(pieces)), order[0])
    successor |= dict(zip(order, order[1:] + ([end] if ends else [order[0]]), strict=True))

    width = -(-len(pieces) // 32) * 32
    head, hidden = 32, 32
    # Token t is the unit vector t; the output row of its successor reads exactly that component.
    embedding = _matrix(width, len(pieces), {(token, token): 1.0 for token in range(len(pieces))})
    output = _matrix(width, len(pieces), {(after, token): 1.0 for token, after in successor.items()})
    ones = struct.pack(f"<{width}f", *[1.0] * width)
    layer = {
        "attn_q": (width, head),
        "attn_k": (width, head),
        "attn_v": (width, head),
        "attn_output": (head, width),
    }
    layer |= {"ffn_gate": (width, hidden), "ffn_up": (width, hidden), "ffn_down": (hidden, width)}

    gguf = Gguf()
    gguf.metadata = {
        "general.architecture": Value(STRING, "llama"),
        "general.name": Value(STRING, "Parrot"),
        "llama.block_count": Value(UINT32, 1),
        "llama.context_length": Value(UINT32, context),
        "llama.embedding_length": Value(UINT32, width),
        "llama.feed_forward_length": Value(UINT32, hidden),
        "llama.attention.head_count": Value(UINT32, 1),
        "llama.attention.key_length": Value(UINT32, head),
        "llama.attention.value_length": Value(UINT32, head),
        "llama.attention.layer_norm_rms_epsilon": Value(FLOAT32, 1e-6),
        "llama.rope.dimension_count": Value(UINT32, head),
        "tokenizer.ggml.model": Value(STRING, "gpt2"),
        "tokenizer.ggml.pre": Value(STRING, "smollm"),
        "tokenizer.ggml.tokens": Value(ARRAY, [*map(_spell, pieces[:-1]), "<|end|>"]),
        "tokenizer.ggml.token_type": Value(ARRAY, [NORMAL] * (len(pieces) - 1) + [CONTROL], INT32),
        "tokenizer.ggml.merges": Value(ARRAY, ["Ġ Ġ"]),
        "tokenizer.ggml.eos_token_id": Value(UINT32, end),
        "tokenizer.ggml.add_bos_token": Value(BOOL, False),
    }
    if template is not None:
        gguf.metadata["tokenizer.chat_template"] = Value(STRING, template)
    gguf.tensors = [
        Tensor("token_embd.weight", (width, len(pieces)), F32, embedding),
        Tensor("output_norm.weight", (width,), F32, ones),
        Tensor("output.weight", (width, len(pieces)), F32, output),
        Tensor("blk.0.attn_norm.weight", (width,), F32, ones),
        Tensor("blk.0.ffn_norm.weight", (width,), F32, ones),
    ]
    for name, shape in layer.items():
        gguf.tensors.append(Tensor(f"blk.0.{name}.weight", shape, F32, bytes(4 * shape[0] * shape[1])))
    return gguf


def far_apart(path: Path, alignment: int) -> Path:
    """Writes a parrot of "abc" whose 20 tensors each begin at a multiple of `alignment`; returns `path`.

    What is between them takes no room on the disk. All that the answer depends on comes last.
    """
    gguf = parrot([b"a", b"b", b"c"])
    width, head, hidden = 288, 32, 32
    biases = {"attn_q": head, "attn_k": head, "attn_v": head, "attn_output": width}
    biases |= {"ffn_gate": hidden, "ffn_up": hidden, "ffn_down": width}
    for name, size in biases.items():
        gguf.tensors.insert(0, Tensor(f"blk.0.{name}.bias", (size,), F32, bytes(4 * size)))
    gguf.tensors.sort(key=lambda tensor: tensor.name in ("token_embd.weight", "output.weight"))
    gguf.metadata["general.alignment"] = Value(UINT32, alignment)
    return gguf.write(path, alignment=alignment)


def split(gguf: Gguf, count: int) -> list[Gguf]:
    """The model as shards with about as many tensors each; the first one has the metadata."""
    tensors = gguf.tensors
    shards = []
    for index in range(count):
        shard = Gguf(dict(gguf.metadata) if index == 0 else {})
        shard.metadata["split.no"] = Value(UINT16, index)
        shard.metadata["split.count"] = Value(UINT16, count)
        shard.metadata["split.tensors.count"] = Value(INT32, len(tensors))
        shard.tensors = tensors[len(tensors) * index // count : len(tensors) * (index + 1) // count]
        shards.append(shard)
    return shards


def write_shards(gguf: Gguf, count: int, folder: Path, name: str = "model") -> list[Path]:
    """Writes the model as shards under the names that tell each other's; returns them in order."""
    return [
        shard.write(folder / f"{name}-{index:05}-of-{count:05}.gguf")
        for index, shard in enumerate(split(gguf, count), 1)
    ]


def embedder() -> Gguf:
    """A BERT of one layer, as embedding models are: it has no next token to give."""
    width, hidden, context = 32, 32, 64
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "\u2581a", "\u2581b", "\u2581c"]
    gguf = Gguf()
    gguf.metadata = {
        "general.architecture": Value(STRING, "bert"),
        "bert.block_count": Value(UINT32, 1),
        "bert.context_length": Value(UINT32, context),
        "bert.embedding_length": Value(UINT32, width),
        "bert.feed_forward_length": Value(UINT32, hidden),
        "bert.attention.head_count": Value(UINT32, 1),
        "bert.attention.layer_norm_epsilon": Value(FLOAT32, 1e-12),
        "bert.attention.causal": Value(BOOL, False),
        "bert.pooling_type": Value(UINT32, 1),
        "tokenizer.ggml.model": Value(STRING, "bert"),
        "tokenizer.ggml.pre": Value(STRING, "jina-v2-en"),
        "tokenizer.ggml.token_type_count": Value(UINT32, 2),
        "tokenizer.ggml.tokens": Value(ARRAY, tokens),
        "tokenizer.ggml.token_type": Value(ARRAY, [CONTROL] * 5 + [NORMAL] * 3, INT32),
        "tokenizer.ggml.padding_token_id": Value(UINT32, 0),
        "tokenizer.ggml.unknown_token_id": Value(UINT32, 1),
        "tokenizer.ggml.bos_token_id": Value(UINT32, 2),
        "tokenizer.ggml.eos_token_id": Value(UINT32, 3),
        "tokenizer.ggml.seperator_token_id": Value(UINT32, 3),
        "tokenizer.ggml.mask_token_id": Value(UINT32, 4),
    }
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (width, len(tokens)),
        "token_types.weight": (width, 2),
        "position_embd.weight": (width, context),
        "token_embd_norm.weight": (width,),
        "token_embd_norm.bias": (width,),
    }
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_up", "ffn_down"):
        shapes |= {f"blk.0.{name}.weight": (width, width), f"blk.0.{name}.bias": (width,)}
    for name in ("attn_output_norm", "layer_output_norm"):
        shapes |= {f"blk.0.{name}.weight": (width,), f"blk.0.{name}.bias": (width,)}
    gguf.tensors = [Tensor(name, shape, F32, bytes(4 * prod(shape))) for name, shape in shapes.items()]
    return gguf


def t5_encoder() -> Gguf:
    """The encoder half of a T5, which llama.cpp runs in a way of its own.

    Its layers add nothing: a token's vector is the unit vector of that token, as a parrot's.
    """
    gguf = renamed(parrot([b"a", b"b", b"c"]), "t5encoder")
    gguf.metadata["t5encoder.attention.relative_buckets_count"] = Value(UINT32, 8)
    for tensor in gguf.tensors:
        if tensor.name.startswith("blk."):
            tensor.name = f"enc.{tensor.name}".replace("attn_output", "attn_o")
        elif tensor.name == "output_norm.weight":
            tensor.name = "enc.output_norm.weight"
    gguf.tensors.append(Tensor("enc.blk.0.attn_rel_b.weight", (1, 8), F32, bytes(4 * 8)))
    return gguf


def contradictory(path: Path) -> Gguf:
    """The model at `path` with rope dimensions its heads do not have.

    It loads, and ggml gives up (GGML_ASSERT) when the first graph is made.
    """
    gguf = read_gguf(path)
    architecture = gguf.metadata["general.architecture"].data
    gguf.metadata[f"{architecture}.rope.dimension_count"] = Value(UINT32, 1024)
    return gguf


def not_a_number() -> Gguf:
    """A model that loads and computes, and whose logits are NaN."""
    gguf = parrot([b"a", b"b", b"c"])
    for tensor in gguf.tensors:
        if tensor.name == "output_norm.weight":
            tensor.data = b"\xff" * len(tensor.data)
    return gguf


def unsound() -> Gguf:
    """A model that loads, and in whose first forward pass every compute thread of ggml gives up.

    Its rope dimensions do not fit its heads, which this architecture's graph does not check.
    """
    gguf = renamed(parrot([b"a", b"b", b"c"]), "nanbeige")
    gguf.metadata["nanbeige.rope.dimension_count"] = Value(UINT32, 64)
    return gguf


def renamed(gguf: Gguf, architecture: str) -> Gguf:
    """The file, which is changed, as one of another architecture."""
    before = gguf.metadata["general.architecture"].data
    named = {
        key.replace(f"{before}.", f"{architecture}.", 1) if key.startswith(f"{before}.") else key: value
        for key, value in gguf.metadata.items()
    }
    gguf.metadata = named | {"general.architecture": Value(STRING, architecture)}
    return gguf


def spell_bytes(text: str) -> list[bytes]:
    """A cycle for `parrot` in which every byte of `text` is a token of its own."""
    return [bytes([value]) for value in text.encode()]


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        self.at += count
        return self.data[self.at - count : self.at]

    def unpack(self, layout: str) -> tuple[Any, ...]:
        return struct.unpack(layout, self.take(struct.calcsize(layout)))

    def string(self) -> str:
        (length,) = self.unpack("<Q")
        return self.take(length).decode()

    def value(self, kind: int) -> Value:
        if kind == STRING:
            return Value(kind, self.string())
        if kind != ARRAY:
            return Value(kind, self.unpack("<" + SCALARS[kind])[0])
        element, count = self.unpack("<IQ")
        if element == STRING:
            return Value(kind, [self.string() for _ in range(count)], element)
        return Value(kind, list(self.unpack(f"<{count}{SCALARS[element]}")), element)


def _encode(value: Value) -> bytes:
    if value.kind == STRING:
        return _string(value.data)
    if value.kind != ARRAY:
        return struct.pack("<" + SCALARS[value.kind], value.data)
    head = struct.pack("<IQ", value.element, len(value.data))
    if value.element == STRING:
        return head + b"".join(map(_string, value.data))
    return head + struct.pack(f"<{len(value.data)}{SCALARS[value.element]}", *value.data)


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _aligned(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


def _matrix(columns: int, rows: int, entries: Mapping[tuple[int, int], float]) -> bytes:
    """A float32 matrix, rows after each other; `entries` maps (row, column) to what is not zero."""
    data = bytearray(4 * rows * columns)
    for (row, column), value in entries.items():
        struct.pack_into("<f", data, 4 * (row * columns + column), value)
    return bytes(data)


def _spell(piece: bytes) -> str:
    """A piece in the alphabet of byte-level BPE, which gives every byte a printable character."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [value for value in range(256) if value not in printable]
    return "".join(chr(value if value in printable else 256 + others.index(value)) for value in piece)
