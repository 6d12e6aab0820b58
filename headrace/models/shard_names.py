"""The names of a model's shards, as gguf-split gives them: model-00002-of-00003.gguf.

Counterpart: `web/models/shard_names.js`. What a file really is, its header says: `split.py`.
"""

import re
from typing import NamedTuple

_PATTERN = re.compile(r"(.*-)([0-9]{5})(-of-)([0-9]{5})(\.gguf)", re.IGNORECASE | re.DOTALL)


class ShardNames(NamedTuple):
    """Which shard a name is of (`number`, from 1), of how many, and the names of all."""

    number: int
    total: int
    names: list[str]


def shard_names(name: str) -> ShardNames | None:
    """The shards that `name` is one of, in upper or lower case; None when it is not a shard's name."""
    match = _PATTERN.fullmatch(name)
    if match is None:
        return None
    prefix, number, of, total, ending = match.groups()
    if not 1 <= int(number) <= int(total):
        return None
    names = [f"{prefix}{one:05}{of}{total}{ending}" for one in range(1, int(total) + 1)]
    return ShardNames(int(number), int(total), names)
