"""GGUF files that are large, made for tests of downloads and of the model store.

Counterparts: `tests/gguf_builder.py`, which writes each of them; `tests/synthetic_gguf.py`, whose gigabytes
are nowhere.
"""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.gguf_builder import F32, STRING, UINT32, Tensor, Value, parrot

TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"


def roomy_parrot(path: Path, alignment: int, *, seed: int = 1, says: str = "abc") -> Path:
    """Writes a parrot of 15 times the alignment, a power of two from 1 MiB on; returns `path`.

    Most of its bytes are padding, so that it is fast; but padding of random bytes, so that one that is
    misplaced, left out or fetched from elsewhere changes the file's hash.
    """
    gguf = parrot([letter.encode() for letter in says], template=TEMPLATE)
    for name in ("attn_q", "attn_k"):
        gguf.tensors.append(Tensor(f"blk.0.{name}.bias", (32,), F32, bytes(4 * 32)))
    gguf.metadata["general.alignment"] = Value(UINT32, alignment)
    gguf.metadata["general.license"] = Value(STRING, "apache-2.0")
    gguf.write(path, alignment=alignment)
    noise = random.Random(seed)
    with path.open("r+b") as file:
        at = path.stat().st_size
        for tensor in reversed(gguf.tensors):
            at -= alignment
            file.seek(at + len(tensor.data))
            file.write(noise.randbytes(alignment - len(tensor.data)))
    return path


def heavy_parrot(path: Path, hidden: int = 72_000, blocks: int = 1) -> Path:
    """Writes a parrot of "abc" whose tensors are as large as the file: 249 MB; returns `path`.

    What its wide feed-forward layers compute is zero, so that the answer is the same.
    """
    gguf = parrot([b"a", b"b", b"c"], template=TEMPLATE)
    gguf.metadata["llama.block_count"] = Value(UINT32, blocks)
    block = [tensor for tensor in gguf.tensors if tensor.name.startswith("blk.0.")]
    for number in range(1, blocks):
        gguf.tensors += [replace(one, name=one.name.replace("blk.0", f"blk.{number}")) for one in block]
    gguf.metadata["llama.feed_forward_length"] = Value(UINT32, hidden)
    noise = np.random.default_rng(1)
    for tensor in gguf.tensors:
        if "ffn_" in tensor.name and "norm" not in tensor.name:
            width = 288
            tensor.shape = (hidden, width) if "down" in tensor.name else (width, hidden)
            bits = noise.random(width * hidden, np.float32)
            tensor.data = bytes(bits.nbytes) if "gate" in tensor.name else bits.tobytes()
    return gguf.write(path)
