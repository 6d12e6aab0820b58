"""GGUF files that are large, or come in shards, made for tests of downloads and of the model store.

Counterpart: `tests/gguf_builder.py`, which writes each of them. Most of their bytes are padding, so that they
are models that answer, and fast ones; but padding of random bytes, so that one that is misplaced, left out or
fetched from elsewhere changes the file's hash.
"""

import random
from pathlib import Path

from tests.gguf_builder import F32, INT32, STRING, UINT32, Gguf, Tensor, Value, parrot

UINT16 = 2
TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"


def roomy_parrot(path: Path, alignment: int, *, seed: int = 1, says: str = "abc") -> Path:
    """Writes a parrot of 15 times the alignment, a power of two from 1 MiB on; returns `path`."""
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


def shards_of(gguf: Gguf, count: int) -> list[Gguf]:
    """The same model in `count` files, as llama.cpp's own tool splits one."""
    shards = []
    for number in range(count):
        part = Gguf(dict(gguf.metadata) if number == 0 else {})
        part.metadata |= {
            "split.no": Value(UINT16, number),
            "split.count": Value(UINT16, count),
            "split.tensors.count": Value(INT32, len(gguf.tensors)),
        }
        first, last = (len(gguf.tensors) * index // count for index in (number, number + 1))
        part.tensors = gguf.tensors[first:last]
        shards.append(part)
    return shards


def write_shards(folder: Path, name: str = "abc", count: int = 3) -> list[Path]:
    """Writes a parrot of "abc" in `count` shards with the usual names; returns them in their order."""
    gguf = parrot([b"a", b"b", b"c"], template=TEMPLATE)
    return [
        shard.write(folder / f"{name}-{number:05}-of-{count:05}.gguf")
        for number, shard in enumerate(shards_of(gguf, count), 1)
    ]
