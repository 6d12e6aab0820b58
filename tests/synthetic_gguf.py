"""A GGUF file of gigabytes that lies nowhere: each of its bytes is computed when it is read.

Counterpart: `tests/fault_server.py`, which serves it. No model: its tensors hold noise.
"""

import hashlib
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tests.gguf_builder import ALIGNMENT, ARRAY, F32, STRING, UINT32, Gguf, Tensor, Value

BLOCK_BYTES = 2**20
STEP = 0x9E3779B97F4A7C15
"""Odd, so that no two blocks within 2**64 are the same."""

TYPES = [
    # Type, elements of a block, bytes of a block.
    (F32, 1, 4),
    (1, 1, 2),  # F16
    (2, 32, 18),  # Q4_0
    (8, 32, 34),  # Q8_0
    (12, 256, 144),  # Q4_K
    (14, 256, 210),  # Q6_K
    (30, 1, 2),  # BF16
]
COLUMNS = 2048
ROWS = [1, 7000, 40_000, 130, 90_001, 12_345, 60_000, 3]


class TensorDigest(NamedTuple):
    name: str
    size: int
    sha256: str


class Synthetic:
    """A file of at least `size` bytes, with a header of more than one MiB and tensors of many types."""

    def __init__(self, size: int) -> None:
        gguf = Gguf()
        gguf.metadata = {
            "general.architecture": Value(STRING, "llama"),
            "general.name": Value(STRING, "Synthetic"),
            "general.alignment": Value(UINT32, ALIGNMENT),
            "tokenizer.ggml.tokens": Value(ARRAY, [f"token {number:05}" for number in range(70_000)]),
        }
        self._sizes: list[int] = []
        total = 0
        while total < size:
            number = len(self._sizes)
            kind, elements, block = TYPES[number % len(TYPES)]
            rows = ROWS[number % len(ROWS)]
            gguf.tensors.append(Tensor(f"blk.{number}.weight", (COLUMNS, rows), kind, b""))
            self._sizes.append(COLUMNS * rows // elements * block)
            total += _aligned(self._sizes[-1])
        self._names = [tensor.name for tensor in gguf.tensors]
        header = gguf.header(self._sizes)
        self._head = header + bytes(_aligned(len(header)) - len(header))
        self.size = len(self._head) + total
        self._noise = np.random.default_rng(1).integers(0, 2**64, BLOCK_BYTES // 8, np.uint64)
        self._block = lru_cache(maxsize=16)(self._compute)

    def read(self, start: int, length: int) -> bytes:
        """`length` bytes from `start` on."""
        end = start + length
        parts = [self._head[start:end]]
        at = max(start, len(self._head))
        while at < end:
            number, offset = divmod(at, BLOCK_BYTES)
            part = self._block(number)[offset : offset + end - at]
            parts.append(part)
            at += len(part)
        return b"".join(parts)

    def digests(self) -> tuple[str, list[TensorDigest]]:
        """The sha256 of the file, and of each tensor's data, in their order."""
        whole = hashlib.sha256(self._head)
        tensors = []
        at = len(self._head)
        for name, size in zip(self._names, self._sizes, strict=True):
            one = hashlib.sha256()
            end = at + size
            padded = at + _aligned(size)
            while at < padded:
                data = self.read(at, min(padded - at, BLOCK_BYTES))
                whole.update(data)
                one.update(data[: max(end - at, 0)])
                at += len(data)
            tensors.append(TensorDigest(name, size, one.hexdigest()))
        return whole.hexdigest(), tensors

    def _compute(self, number: int) -> bytes:
        return (self._noise + np.uint64(number * STEP % 2**64)).tobytes()


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
