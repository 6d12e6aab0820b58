"""LoRA adapters for tests: small random changes to a model's attention, or none at all.

Counterpart: `llama_adapter_lora_init`, which must take what is written here for its base model. Nothing is
trained: an adapter changes the answer, and that is all it is good for.
"""

import random
import struct
from collections.abc import Sequence
from pathlib import Path

from tests.gguf_builder import F32, FLOAT32, STRING, Gguf, Tensor, Value, read_gguf

RANK = 4
TARGETS = ("attn_q", "attn_v")


def lora(
    base: Path,
    *,
    strength: float = 3.0,
    seed: int = 1,
    targets: Sequence[str] = TARGETS,
    architecture: str | None = None,
) -> Gguf:
    """A rank-4 adapter for the model at `base`: every `targets` weight of every block, changed at random.

    `strength` is the size of a change relative to what it is added to, roughly: 3 makes the trained tiny
    model say something else even where it knows its answer by heart, 0.1 only moves its logits, 0 writes an
    adapter of zeros that changes nothing. Another `seed` is another change. `architecture` other than the
    base's makes one that must be refused.
    """
    model = read_gguf(base)
    draw = random.Random(seed)
    gguf = Gguf()
    gguf.metadata = {
        "general.type": Value(STRING, "adapter"),
        "general.architecture": Value(STRING, architecture or model.metadata["general.architecture"].data),
        "general.name": Value(STRING, "Test adapter"),
        "adapter.type": Value(STRING, "lora"),
        # The change is scaled by alpha / rank: by 1.
        "adapter.lora.alpha": Value(FLOAT32, float(RANK)),
    }
    for tensor in model.tensors:
        parts = tensor.name.split(".")
        if parts[0] == "blk" and parts[2] in targets and parts[3] == "weight":
            inputs, outputs = tensor.shape
            gguf.tensors += [
                _random_matrix(draw, f"{tensor.name}.lora_a", (inputs, RANK), inputs**-0.5),
                _random_matrix(draw, f"{tensor.name}.lora_b", (RANK, outputs), strength * RANK**-0.5),
            ]
    return gguf


def _random_matrix(draw: random.Random, name: str, shape: tuple[int, int], deviation: float) -> Tensor:
    count = shape[0] * shape[1]
    values = [draw.gauss(0, 1) * deviation for _ in range(count)]
    return Tensor(name, shape, F32, struct.pack(f"<{count}f", *values))
