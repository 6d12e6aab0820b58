"""Where a large model is cut into shards on its way to the disk, and which files make up one model.

Counterparts: `web/models/split.js` is the JavaScript twin and plans the same bytes; llama.cpp's model loader
finds the shards by what is written here. Reads and writes no file.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headrace.errors import HeadraceError
from headrace.models.gguf import (
    ALIGNMENT_KEY,
    HEADER_START_BYTES,
    GgufHeader,
    HeaderSpans,
    Span,
    align_up,
    header_spans,
)
from headrace.models.shard_names import shard_names

MAX_WHOLE_BYTES = 2**31
"""A published file of up to so many bytes is stored whole."""
SHARD_BYTES = 2**29
"""A shard has at most so many bytes, its header included, unless a single tensor has more."""

_SPLIT_PREFIX = "split."
_SHARD_NUMBER = "split.no"
_SHARD_COUNT = "split.count"
_TENSOR_COUNT = "split.tensors.count"
_MAX_SHARDS = 0xFFFF
"""Their number is a uint16."""
_MAX_SPLIT_ALIGNMENT = 2**20
"""Every shard begins with a whole unit of the alignment: with a larger one than this a file stays whole."""

_UINT16, _INT32 = 2, 5
_NAMED = 5
"""How many missing shards a sentence names."""


class Piece(NamedTuple):
    """Which bytes of a published file lie in which stored file.

    A stored file begins with `header`, if it has one of its own, and goes on with the published bytes from
    `start` to `end` (None: to the end, which is not known yet).
    """

    header: bytes | None
    start: int
    end: int | None


class Shard(NamedTuple):
    """Which shard of how many: `number` counts from 1."""

    number: int
    total: int


class NamedHeader(NamedTuple):
    """A file's header, and how messages call the file."""

    name: str
    header: GgufHeader


@dataclass
class _Part:
    """Tensors by their places in the file's list, and the published bytes that hold them."""

    tensors: list[int]
    start: int
    end: int


def plan_pieces(
    header: GgufHeader,
    head: bytes,
    size: int | None,
    *,
    max_whole_bytes: int = MAX_WHOLE_BYTES,
    shard_bytes: int = SHARD_BYTES,
    name: str = "the model",
) -> list[Piece]:
    """Which bytes of a published file of `size` bytes go into which stored file.

    A file that stays whole is one piece without a header: one of up to `max_whole_bytes`, one of unknown
    size, and a shard of a published set. `head` is the file from its first byte, at least to the end of its
    header. Errors: `model_truncated` when the tensors do not fit into `size`; `model_invalid` when tensors
    overlap, or too many shards would be needed.
    """
    if size is not None:
        _require_whole(header, size, name)
    whole = [Piece(None, 0, size)]
    if size is None or size <= max_whole_bytes or header.alignment > _MAX_SPLIT_ALIGNMENT:
        return whole
    if shard_of(header) is not None:
        return whole
    spans = header_spans(head, name)
    if spans is None:
        raise HeadraceError("internal", f"the header of {name} was planned before it was there")
    parts = _cut(header, spans, size, shard_bytes, name)
    if len(parts) < 2:
        return whole
    if len(parts) > _MAX_SHARDS:
        raise HeadraceError("model_invalid", f"{name} would have to be split into {len(parts)} shards")
    return [
        Piece(_write_header(header, spans, head, part, index, len(parts)), part.start, part.end)
        for index, part in enumerate(parts)
    ]


def _require_whole(header: GgufHeader, size: int, name: str) -> None:
    if size < header.data_end:
        raise HeadraceError(
            "model_truncated",
            f"{name} is cut short: its tensors need {header.data_end} bytes, it has {size}",
            {"name": name, "expectedBytes": header.data_end, "actualBytes": size},
        )


def _cut(header: GgufHeader, spans: HeaderSpans, size: int, shard_bytes: int, name: str) -> list[_Part]:
    parts: list[_Part] = []
    header_bytes = 0
    for group in _group_by_start(header, size, name):
        info_bytes = sum(_length(spans.tensors[index]) for index in group.tensors)
        if parts:
            last = parts[-1]
            size_with = align_up(header_bytes + info_bytes, header.alignment) + group.end - last.start
            if size_with <= shard_bytes:
                last.tensors += group.tensors
                last.end = group.end
                header_bytes += info_bytes
                continue
        parts.append(group)
        header_bytes = HEADER_START_BYTES + _metadata_bytes(header, spans, len(parts) == 1) + info_bytes
    return parts


def _group_by_start(header: GgufHeader, size: int, name: str) -> list[_Part]:
    """Tensors that begin at the same byte (empty ones beside another) stay together.

    Each group reaches to the beginning of the next one, so that the paddings between come along.
    """
    tensors = header.tensors
    groups: list[_Part] = []
    free = 0
    for index in sorted(range(len(tensors)), key=lambda one: (tensors[one].offset, tensors[one].bytes)):
        tensor = tensors[index]
        if tensor.offset < free:
            raise HeadraceError(
                "model_invalid",
                f"{name} is damaged: the tensor {tensor.name} begins inside of another one",
                {"name": name, "tensor": tensor.name},
            )
        if groups and tensors[groups[-1].tensors[0]].offset == tensor.offset:
            groups[-1].tensors.append(index)
        elif groups:
            groups[-1].end = header.data_start + tensor.offset
            groups.append(_Part([index], header.data_start + tensor.offset, size))
        else:
            # What lies before the first tensor, if anything, belongs to the first shard.
            groups.append(_Part([index], header.data_start, size))
        free = tensor.offset + tensor.bytes
    return groups


def _length(span: Span) -> int:
    return span.end - span.start


def _kept_metadata(spans: HeaderSpans, is_first: bool) -> list[Span]:
    """The entries that a shard takes over as they are.

    The first one all that do not tell of another splitting, the others only the alignment, without which
    they could not be read.
    """
    return [
        span
        for key, span in spans.metadata
        if (not key.startswith(_SPLIT_PREFIX) if is_first else key == ALIGNMENT_KEY)
    ]


def _metadata_bytes(header: GgufHeader, spans: HeaderSpans, is_first: bool) -> int:
    kept = sum(map(_length, _kept_metadata(spans, is_first)))
    return kept + sum(map(len, _split_metadata(0, 0, len(header.tensors))))


def _write_header(
    header: GgufHeader, spans: HeaderSpans, head: bytes, part: _Part, index: int, count: int
) -> bytes:
    kept = _kept_metadata(spans, index == 0)
    added = _split_metadata(index, count, len(header.tensors))
    written = bytearray(struct.pack("<4sIQQ", b"GGUF", 3, len(part.tensors), len(kept) + len(added)))
    for span in kept:
        written += head[span.start : span.end]
    for entry in added:
        written += entry
    for place in part.tensors:
        span = spans.tensors[place]
        written += head[span.start : span.end - 8]
        written += struct.pack("<Q", header.data_start + header.tensors[place].offset - part.start)
    return bytes(written.ljust(align_up(len(written), header.alignment), b"\0"))


def _split_metadata(index: int, count: int, tensors: int) -> list[bytes]:
    """What llama.cpp's loader asks of a shard, as its gguf-split writes it."""
    return [
        _entry(_SHARD_NUMBER, _UINT16, "H", index),
        _entry(_SHARD_COUNT, _UINT16, "H", count),
        _entry(_TENSOR_COUNT, _INT32, "I", tensors),
    ]


def _entry(key: str, kind: int, layout: str, value: int) -> bytes:
    return struct.pack(f"<Q{len(key)}sI{layout}", len(key), key.encode(), kind, value)


def shard_of(header: GgufHeader) -> Shard | None:
    """Which shard of how many a file is; None for a model in one file.

    A file that says that it is a shard, and not rightly which, is `model_invalid`.
    """
    count = _integer(header, _SHARD_COUNT)
    if count is None or count < 2:
        return None
    number = _integer(header, _SHARD_NUMBER)
    if number is None or not 0 <= number < count <= _MAX_SHARDS:
        raise HeadraceError(
            "model_invalid",
            f"the file says that it is one of {count} shards, and not rightly which ({_SHARD_NUMBER})",
            {"kind": "shard", "count": count},
        )
    return Shard(number + 1, count)


def _integer(header: GgufHeader, key: str) -> int | None:
    value = header.metadata.get(key)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def require_separate(header: GgufHeader, size: int, name: str, following: bytes | None = None) -> None:
    """Case F12: refuses shards of one model that were joined into one file, which no engine can read.

    `following` holds the file's bytes from `header.data_end` on, as many as are at hand; an alignment and
    eight bytes are enough. With them two models after each other are recognised too. Error: `model_invalid`.
    """
    if size < align_up(header.data_end, header.alignment) + HEADER_START_BYTES:
        return
    shard = shard_of(header)
    if (shard is None) if following is None else not _holds_header(following):
        return
    detail: dict[str, object] = {"name": name, "kind": "joined"}
    if shard is None:
        what = "several GGUF files"
    else:
        what = f"several of the {shard.total} shards of its model"
        detail["count"] = shard.total
    raise HeadraceError(
        "model_invalid",
        f"{name} is made of {what}, joined into one file: use the separate files, "
        "for they cannot be joined so",
        detail,
    )


def _holds_header(data: bytes) -> bool:
    return any(b"GGUF" + struct.pack("<I", version) in data for version in (2, 3))


def order_shards(files: Sequence[NamedHeader]) -> list[int]:
    """The order in which files load, as places in `files`. One file that is a whole model is its own order.

    Cases F10 (shards in any order, also without names), F11 (only some of them chosen) and F14. Errors:
    `invalid_request` that names what is missing, doubled or foreign; `model_invalid`.
    """
    shards = [shard_of(file.header) for file in files]
    total = next((shard.total for shard in shards if shard is not None), None)
    if total is None:
        if not files:
            raise _refused("no file was given", {})
        if len(files) > 1:
            foreign = files[1].name
            raise _refused(f"{foreign} is no shard of a model in several files", {"foreign": [foreign]})
        return [0]
    places: dict[int, int] = {}
    for file, shard in zip(files, shards, strict=True):
        if shard is None or shard.total != total:
            raise _refused(
                f"{file.name} is not one of the {total} shards that the other files belong to",
                {"foreign": [file.name]},
            )
    for place, shard in enumerate(shards):
        assert shard is not None
        if shard.number in places:
            doubled = [files[places[shard.number]].name, files[place].name]
            raise _refused(
                f"{doubled[0]} and {doubled[1]} are both shard {shard.number} of {total}",
                {"doubled": doubled},
            )
        places[shard.number] = place
    _require_complete(files, places, total)
    order = [places[number] for number in range(1, total + 1)]
    _require_one_model([files[place] for place in order])
    return order


def _require_complete(files: Sequence[NamedHeader], places: dict[int, int], total: int) -> None:
    if len(places) == total:
        return
    number, place = next(iter(places.items()))
    name = files[place].name
    known = shard_names(name)
    names = known.names if known and (known.number, known.total) == (number, total) else None
    missing = [
        names[one - 1] if names else f"shard {one}" for one in range(1, total + 1) if one not in places
    ]
    listed = ", ".join(missing[:_NAMED]) + (", …" if len(missing) > _NAMED else "")
    given = f"{name} is shard {number} of {total}" if len(places) == 1 else f"the model has {total} shards"
    raise _refused(f"{given}: {listed} must be given too", {"missing": missing, "count": total})


def _require_one_model(files: Sequence[NamedHeader]) -> None:
    expected = _integer(files[0].header, _TENSOR_COUNT)
    seen: set[str] = set()
    for name, header in files:
        names = {tensor.name for tensor in header.tensors}
        if _integer(header, _TENSOR_COUNT) != expected or not seen.isdisjoint(names):
            raise _refused(f"{name} is a shard of another model than {files[0].name}", {"foreign": [name]})
        seen |= names
    if expected is not None and len(seen) != expected:
        raise _refused(
            f"the shards hold {len(seen)} tensors instead of {expected}: they are of different models", {}
        )


def _refused(sentence: str, detail: dict[str, object]) -> HeadraceError:
    return HeadraceError("invalid_request", sentence, detail)
