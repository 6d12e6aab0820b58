"""What the store knows of a model, as it is written down: `model-<64 digits of its id>.json`.

Counterpart: `Manifest` in `web/models/types.js`, whose form this is; `web/models/manifest.js`. Neither reads
nor writes files.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from headrace.errors import HeadraceError

VERSION = 1
_DIGEST = re.compile(r"[0-9a-f]{64}")
_ID = re.compile(r"sha256-[0-9a-f]{64}")
_NAME = re.compile(r"model-([0-9a-f]{64})\.json")


@dataclass(frozen=True)
class HashedFile:
    """A file's content: its sha256 as 64 hexadecimal digits, its size in bytes."""

    sha256: str
    size: int

    @property
    def stored_name(self) -> str:
        return f"{self.sha256}.gguf"


@dataclass(frozen=True)
class Origin:
    """Where a model came from: the hash of the URL of its first file, and what of that URL may be shown."""

    key: str
    display: str
    etag: str | None


@dataclass(frozen=True)
class Manifest:
    """A stored model.

    `parts` are the published files in order; `files` is what is stored, in the order of loading: other than
    `parts` when a large file was split here. `size` is in bytes, of `files`. `projector` is the id of the
    stored model that is its multimodal projector. Times are ISO 8601, UTC. A pinned one is never evicted.
    """

    id: str
    name: str
    parts: tuple[HashedFile, ...]
    files: tuple[HashedFile, ...]
    sources: tuple[Origin, ...] = ()
    projector: str | None = None
    license: str | None = None
    architecture: str | None = None
    added_at: str = field(default_factory=lambda: now())
    used_at: str = field(default_factory=lambda: now())
    pinned: bool = False

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def file_name(self) -> str:
        return manifest_name(self.id)

    def with_source(self, origin: Origin) -> "Manifest":
        """The same model, known to come from there too."""
        others = tuple(source for source in self.sources if source.key != origin.key)
        return replace(self, sources=(*others, origin))

    def is_unchanged(self, key: str, etag: str | None, size: int | None) -> bool:
        """Whether what this URL gives now is what is stored; unknown counts as changed."""
        known = next((source.etag for source in self.sources if source.key == key), None)
        return known is not None and known == etag and size in (None, self.parts[0].size)

    def to_record(self) -> dict[str, object]:
        """As it is written down, and as `--json` shows it."""
        return {
            "version": VERSION,
            "id": self.id,
            "name": self.name,
            "size": self.size,
            "sources": [
                {"key": source.key, "display": source.display, "etag": source.etag} for source in self.sources
            ],
            "parts": [_file_record(file) for file in self.parts],
            "files": [_file_record(file) for file in self.files],
            "projector": self.projector,
            "license": self.license,
            "architecture": self.architecture,
            "addedAt": self.added_at,
            "usedAt": self.used_at,
            "pinned": self.pinned,
        }

    def to_json(self) -> str:
        return json.dumps(self.to_record(), ensure_ascii=False, indent=2) + "\n"


def now() -> str:
    """This moment, as manifests and journals write it: `2026-01-31T12:00:00.000Z`."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def model_id(parts: Sequence[HashedFile]) -> str:
    """The id of the model whose published files these are."""
    digests = [part.sha256 for part in parts]
    joined = "\n".join(digests).encode()
    return "sha256-" + (digests[0] if len(digests) == 1 else hashlib.sha256(joined).hexdigest())


def manifest_name(id: str) -> str:
    """The name of the file that holds the manifest of this id."""
    return f"model-{id.removeprefix('sha256-')}.json"


def id_of(file_name: str) -> str | None:
    """The id whose manifest has this name; None for any other file."""
    match = _NAME.fullmatch(file_name)
    return f"sha256-{match[1]}" if match else None


def is_stored_id(text: str) -> bool:
    """Whether this is a whole id; not whether there is such a model."""
    return _ID.fullmatch(text) is not None


def parse_manifest(text: str, id: str) -> Manifest | None:
    """The manifest, or None for what is none, or that of another id: it counts as lost (case D2).

    Raises version_mismatch for one that a newer version has written.
    """
    try:
        record = json.loads(text)
        version = record["version"]
        if isinstance(version, int) and version > VERSION:
            raise HeadraceError(
                "version_mismatch",
                "the model store was written by a newer version of Headrace",
                {"id": id, "version": version, "known": VERSION},
            )
        manifest = _from_record(record)
        return manifest if version == VERSION and manifest.id == id else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _from_record(record: Mapping[str, Any]) -> Manifest:
    manifest = Manifest(
        id=_checked(record["id"], str),
        name=_checked(record["name"], str),
        parts=tuple(map(_file, record["parts"])),
        files=tuple(map(_file, record["files"])),
        sources=tuple(map(_origin, record["sources"])),
        projector=_optional(record["projector"]),
        license=_optional(record["license"]),
        architecture=_optional(record["architecture"]),
        added_at=_checked(record["addedAt"], str),
        used_at=_checked(record["usedAt"], str),
        pinned=_checked(record["pinned"], bool),
    )
    if not manifest.parts or not manifest.files:
        raise ValueError
    return manifest


def _file(record: Mapping[str, Any]) -> HashedFile:
    if not _DIGEST.fullmatch(record["sha256"]):
        raise ValueError
    return HashedFile(record["sha256"], _checked(record["size"], int))


def _origin(record: Mapping[str, Any]) -> Origin:
    return Origin(
        _checked(record["key"], str), _checked(record["display"], str), _optional(record.get("etag"))
    )


def _file_record(file: HashedFile) -> dict[str, object]:
    return {"sha256": file.sha256, "size": file.size}


def _checked(value: Any, wanted: type) -> Any:
    if not isinstance(value, wanted):
        raise TypeError
    return value


def _optional(value: Any) -> str | None:
    return None if value is None else str(_checked(value, str))
