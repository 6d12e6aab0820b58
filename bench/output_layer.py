"""How much of a model's multiplications its output layer is, from the head of the GGUF file.

Counterpart: web/models/gguf.js, which reads such heads in a page. Not a validator: the engine is one.
"""

import math
import struct
from pathlib import Path
from typing import BinaryIO

SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""GGUF's type of a value → its bytes."""
STRING, ARRAY = 8, 9


def output_layer_share(path: Path) -> float:
    """Of the weights that each token is multiplied with, those of the output layer; 0 to 1.

    Right for dense models: a mixture of experts multiplies each token with few of its weights.
    """
    with path.open("rb") as file:
        _magic, _version, tensors, keys = _unpack(file, "<4sIQQ")
        for _ in range(keys):
            _text(file)
            _skip(file, *_unpack(file, "<I"))
        matrices = {}
        for _ in range(tensors):
            name = _text(file)
            (dimensions,) = _unpack(file, "<I")
            shape = _unpack(file, f"<{dimensions}Q")
            _unpack(file, "<IQ")
            if dimensions >= 2:
                matrices[name] = math.prod(shape)
    # Without an output layer of its own, a model multiplies with its embeddings once more.
    embeddings = matrices.pop("token_embd.weight")
    output = matrices.setdefault("output.weight", embeddings)
    return output / sum(matrices.values())


def _unpack(file: BinaryIO, form: str) -> tuple[int, ...]:
    return struct.unpack(form, file.read(struct.calcsize(form)))


def _text(file: BinaryIO) -> str:
    (length,) = _unpack(file, "<Q")
    return file.read(length).decode()


def _skip(file: BinaryIO, kind: int) -> None:
    if kind == STRING:
        _text(file)
    elif kind == ARRAY:
        inner, count = _unpack(file, "<IQ")
        for _ in range(count):
            _skip(file, inner)
    else:
        file.seek(SCALARS[kind], 1)
