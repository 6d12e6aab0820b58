"""Reads a GGUF header: metadata, tensors, and where their bytes lie. Vocabularies are passed over, not read.

Counterparts: `web/models/gguf.js` (require_gguf) and `web/models/gguf_header.js` are the JavaScript twins
with the same judgement and the same sentences; `native/engine/model_file.cpp` judges the file finally, and
refuses at least what is refused here. Not a check of the model itself.
"""

import re
import struct
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from headrace.errors import HeadraceError
from headrace.models.gguf_types import TENSOR_TYPES

SNIFF_BYTES = 512
"""Bytes that `require_gguf` needs to see, or the whole file if it is shorter."""

MAX_HEADER_BYTES = 2**28
"""A header that would be longer than this is taken for damaged: those of real models have up to 40 MB."""

HEADER_START_BYTES = 4 + 4 + 8 + 8
"""Magic, version, number of tensors, number of metadata entries."""

ALIGNMENT_KEY = "general.alignment"
_DEFAULT_ALIGNMENT = 32
_MAX_DIMENSIONS = 4
_MAX_TENSOR_NAME_BYTES = 127
"""The format allows 64, ggml can be built for 128."""
_MAX_EXACT = 2**53 - 1
"""The largest integer that the JavaScript twin can tell from its neighbours."""

_UINT32, _BOOL, _STRING, _ARRAY = 4, 7, 8, 9
_SCALARS = {
    number: struct.Struct("<" + layout)
    for number, layout in {
        0: "B",
        1: "b",
        2: "H",
        3: "h",
        _UINT32: "I",
        5: "i",
        6: "f",
        _BOOL: "B",
        10: "Q",
        11: "q",
        12: "d",
    }.items()
}
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")

_LEAST_METADATA_BYTES = 8 + 4 + 1
_LEAST_TENSOR_BYTES = 8 + 4 + 4 + 8


class GgufArray(NamedTuple):
    """What is read of an array: the type of its elements, by number, and how many there are."""

    type: int
    length: int


MetadataValue = int | float | bool | str | GgufArray


class GgufTensor(NamedTuple):
    """`offset` counts from the header's `data_start`."""

    name: str
    shape: tuple[int, ...]
    type: int
    offset: int
    bytes: int


@dataclass(frozen=True)
class GgufHeader:
    """A file's header.

    `metadata_bytes` is where the key-value pairs lie in the file, as they are written: the first byte and
    the one behind the last. `tensors` are in the order of the file; their data begins at `data_start`, and
    the last of it ends at `data_end`.
    """

    alignment: int
    metadata: dict[str, MetadataValue]
    metadata_count: int
    metadata_bytes: tuple[int, int]
    tensors: list[GgufTensor]
    data_start: int
    data_end: int


class Span(NamedTuple):
    """Where an entry is written, from its first byte to the one behind its last."""

    start: int
    end: int


class HeaderSpans(NamedTuple):
    """Where the entries of a header lie, in the order of the file."""

    metadata: list[tuple[str, Span]]
    tensors: list[Span]


# Where JavaScript sees white space among the first 256 characters.
_SPACE = r"[\t\n\v\f\r \xa0]*"
_IMPOSTORS = [
    (
        "lfs",
        re.compile(r"version https://git-lfs"),
        "is a Git-LFS pointer, not the model it points to: download the file itself",
    ),
    (
        "html",
        re.compile(_SPACE + r"<(!doctype|html|head|body|!--)", re.IGNORECASE),
        "is an HTML page, probably an error or login page",
    ),
    (
        "xml",
        re.compile(_SPACE + r"<\?xml", re.IGNORECASE),
        "is an XML document, probably an error message of a storage server",
    ),
    ("json", re.compile(_SPACE + r"[{[]"), "is JSON, probably an error message of a server"),
    ("gzip", re.compile(r"\x1f\x8b"), "is compressed with gzip: unpack it first"),
    ("zip", re.compile(r"PK[\x03\x05]"), "is a zip archive (or a PyTorch file), not a GGUF model"),
    (
        "safetensors",
        re.compile(r".{8}\{", re.DOTALL),
        "is a safetensors file: convert it to GGUF first",
    ),
]


def require_gguf(head: bytes, name: str) -> None:
    """Refuses what cannot be a GGUF model with `model_invalid`, and says what it is instead.

    `head` is the file's first SNIFF_BYTES bytes, or all of it if it is shorter; messages call it `name`.
    """
    if not head:
        raise _impostor(name, "empty", "is empty")
    text = head[:SNIFF_BYTES].decode("latin-1").removeprefix("\xef\xbb\xbf")
    if not text.startswith("GGUF"):
        for kind, looks, sentence in _IMPOSTORS:
            if looks.match(text):
                raise _impostor(name, kind, sentence)
        raise _impostor(name, "unknown", 'is not a GGUF model: it does not begin with "GGUF"')
    if len(head) < HEADER_START_BYTES:
        raise _impostor(name, "short", f"is not a whole GGUF model: it ends after {len(head)} bytes")
    if _U32.unpack_from(head, 4)[0] > 0xFFFF:
        raise _impostor(name, "big-endian", "is a big-endian GGUF model, which no browser can run")


def _impostor(name: str, kind: str, sentence: str) -> HeadraceError:
    return HeadraceError("model_invalid", f"{name} {sentence}", {"name": name, "kind": kind})


def parse_header(data: bytes, name: str, size: int | None = None) -> GgufHeader | None:
    """The header in a file's first bytes, or None when it goes on behind `data`.

    `size` is that of the whole file, when it is known: a header that cannot lie in it is refused at once,
    with `model_truncated`. Everything else that cannot be read is `model_invalid`.
    """
    whole = _read_whole(data, name, size)
    return whole and whole[0]


def header_spans(data: bytes, name: str) -> HeaderSpans | None:
    """Where the entries of a header lie; None and errors as with `parse_header`."""
    whole = _read_whole(data, name, None)
    return whole and whole[1]


def align_up(at: int, alignment: int) -> int:
    """The next multiple of `alignment`."""
    return -(-at // alignment) * alignment


class _HeaderGoesOn(Exception):
    """More bytes of the file are needed."""


def _read_whole(data: bytes, name: str, size: int | None) -> tuple[GgufHeader, HeaderSpans] | None:
    try:
        return _read_header(_Cursor(data, name, size))
    except _HeaderGoesOn:
        return None


class _Cursor:
    """Reads on through the bytes that are there."""

    def __init__(self, data: bytes, name: str, size: int | None) -> None:
        self.data = data
        self.name = name
        self.size = size
        self.at = 0
        self.end = min(len(data), MAX_HEADER_BYTES, len(data) if size is None else size)

    def refuse(self, why: str) -> NoReturn:
        raise HeadraceError(
            "model_invalid", f"{self.name} is damaged: {why}", {"name": self.name, "kind": "header"}
        )

    def expect(self, count: int) -> None:
        """Refuses at once what can never be there, however many bytes come."""
        end = self.at + count
        if end > MAX_HEADER_BYTES:
            self.refuse(f"its header would have more than {MAX_HEADER_BYTES} bytes")
        if self.size is not None and end > self.size:
            raise HeadraceError(
                "model_truncated",
                f"{self.name} is cut short, within its header",
                {"name": self.name, "actualBytes": self.size},
            )

    def skip(self, count: int) -> int:
        """Passes over `count` bytes and returns where they begin."""
        begin = self.at
        if begin + count > self.end:
            self.expect(count)
            raise _HeaderGoesOn
        self.at = begin + count
        return begin

    def u32(self) -> int:
        value: int = _U32.unpack_from(self.data, self.skip(4))[0]
        return value

    def u64(self) -> int:
        value: int = _U64.unpack_from(self.data, self.skip(8))[0]
        if value > _MAX_EXACT:
            self.refuse("a number in its header has more than 53 bits")
        return value

    def string(self) -> bytes:
        length = self.u64()
        begin = self.skip(length)
        return bytes(self.data[begin : begin + length])

    def skip_strings(self, count: int) -> None:
        """The same as `skip(u64())` for each, which a vocabulary of 200,000 texts would feel."""
        self.expect(count * 8)
        data, at, end, unpack = self.data, self.at, self.end, _U64.unpack_from
        for _ in range(count):
            after = at + 8
            if after <= end:
                after += unpack(data, at)[0]
            if after > end:
                self.at = at
                self.skip(self.u64())
            at = after
        self.at = at


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _read_header(cursor: _Cursor) -> tuple[GgufHeader, HeaderSpans]:
    _require_magic(cursor)
    tensor_count = cursor.u64()
    metadata_count = cursor.u64()
    cursor.expect(metadata_count * _LEAST_METADATA_BYTES + tensor_count * _LEAST_TENSOR_BYTES)

    metadata_start = cursor.at
    metadata, metadata_spans = _read_metadata(cursor, metadata_count)
    metadata_end = cursor.at
    alignment = metadata.get(ALIGNMENT_KEY, _DEFAULT_ALIGNMENT)
    assert isinstance(alignment, int)

    tensors, tensor_spans = _read_tensors(cursor, tensor_count, alignment)
    data_start = align_up(cursor.at, alignment) if tensor_count else cursor.at
    data_end = max([data_start, *(data_start + tensor.offset + tensor.bytes for tensor in tensors)])
    if data_end > _MAX_EXACT:
        cursor.refuse("its tensors end behind 2^53 bytes")
    header = GgufHeader(
        alignment, metadata, metadata_count, (metadata_start, metadata_end), tensors, data_start, data_end
    )
    return header, HeaderSpans(metadata_spans, tensor_spans)


def _require_magic(cursor: _Cursor) -> None:
    if not b"GGUF".startswith(bytes(cursor.data[:4])):
        raise _impostor(cursor.name, "unknown", 'is not a GGUF model: it does not begin with "GGUF"')
    cursor.skip(4)
    version = cursor.u32()
    if version not in (2, 3):
        cursor.refuse(f"it is of GGUF version {version}, but only 2 and 3 can be read")


def _read_metadata(cursor: _Cursor, count: int) -> tuple[dict[str, MetadataValue], list[tuple[str, Span]]]:
    metadata: dict[str, MetadataValue] = {}
    spans: list[tuple[str, Span]] = []
    seen: set[bytes] = set()
    for _ in range(count):
        start = cursor.at
        identity = cursor.string()
        key = _decode(identity)
        if key == "":
            cursor.refuse("a metadata key is empty")
        if identity in seen:
            cursor.refuse(f"the metadata key {key} is there twice")
        seen.add(identity)
        kind = cursor.u32()
        value = _read_value(cursor, kind, key)
        if key == ALIGNMENT_KEY:
            _require_alignment(cursor, kind, value)
        metadata[key] = value
        spans.append((key, Span(start, cursor.at)))
    return metadata, spans


def _read_value(cursor: _Cursor, kind: int, key: str) -> MetadataValue:
    if kind == _STRING:
        return _decode(cursor.string())
    if kind != _ARRAY:
        scalar = _SCALARS.get(kind)
        if scalar is None:
            cursor.refuse(f"the value of {key} is of the unknown type {kind}")
        value: int | float = scalar.unpack_from(cursor.data, cursor.skip(scalar.size))[0]
        return value != 0 if kind == _BOOL else value
    element = cursor.u32()
    length = cursor.u64()
    if element == _STRING:
        cursor.skip_strings(length)
    else:
        scalar = _SCALARS.get(element)
        if scalar is None:
            cursor.refuse(f"the value of {key} is an array of the unknown type {element}")
        cursor.skip(length * scalar.size)
    return GgufArray(element, length)


def _require_alignment(cursor: _Cursor, kind: int, value: MetadataValue) -> None:
    """Case F2."""
    if kind != _UINT32 or not isinstance(value, int):
        cursor.refuse(f"{ALIGNMENT_KEY} is not a uint32")
    if value == 0 or value & (value - 1):
        cursor.refuse(f"{ALIGNMENT_KEY} is {value}, which is not a power of two")


def _read_tensors(cursor: _Cursor, count: int, alignment: int) -> tuple[list[GgufTensor], list[Span]]:
    cursor.expect(count * _LEAST_TENSOR_BYTES)
    tensors: list[GgufTensor] = []
    spans: list[Span] = []
    seen: set[bytes] = set()
    for _ in range(count):
        start = cursor.at
        identity = cursor.string()
        if len(identity) > _MAX_TENSOR_NAME_BYTES:
            cursor.refuse(f"the name of a tensor has {len(identity)} bytes")
        tensor = _read_tensor(cursor, _decode(identity), alignment)
        if identity in seen:
            cursor.refuse(f"the tensor {tensor.name} is there twice")
        seen.add(identity)
        tensors.append(tensor)
        spans.append(Span(start, cursor.at))
    return tensors, spans


def _read_tensor(cursor: _Cursor, name: str, alignment: int) -> GgufTensor:
    dimensions = cursor.u32()
    if dimensions > _MAX_DIMENSIONS:
        cursor.refuse(f"the tensor {name} has {dimensions} dimensions")
    shape: list[int] = []
    elements = 1
    for _ in range(dimensions):
        shape.append(cursor.u64())
        elements *= shape[-1]
        if elements > _MAX_EXACT:
            cursor.refuse(f"the tensor {name} has more than 2^53 elements")
    number = cursor.u32()
    kind = TENSOR_TYPES.get(number)
    if kind is None:
        cursor.refuse(f"the tensor {name} is of the unknown type {number}")
    row = shape[0] if shape else 1
    if row % kind.block_elements != 0:
        cursor.refuse(
            f"the rows of the tensor {name} have {row} elements, which are no whole {kind.name} blocks"
        )
    size = elements // kind.block_elements * kind.block_bytes
    offset = cursor.u64()
    if size > _MAX_EXACT:
        cursor.refuse(f"the tensor {name} has more than 2^53 bytes")
    if offset % alignment != 0:
        cursor.refuse(f"the tensor {name} begins at {offset}, which is no multiple of {alignment}")
    return GgufTensor(name, tuple(shape), number, offset, size)
