"""Has the same cases answered by headrace/models/ and by web/models/, for tests that want the same answers.

Counterpart: `tests/python/models_twin.mjs`, which asks the JavaScript side.
"""

import hashlib
import json
import math
import struct
import subprocess
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from headrace.errors import HeadraceError
from headrace.models.gguf import GgufArray, GgufHeader, MetadataValue, parse_header, require_gguf
from headrace.models.sources import resolve_remote
from headrace.models.split import plan_pieces, shard_of

SCRIPT = Path(__file__).with_name("models_twin.mjs")
Case = dict[str, Any]


def in_javascript(node: Path, **cases: list[Any]) -> dict[str, Any]:
    """All answers of one run of the script."""
    outcome = subprocess.run(
        [node, SCRIPT], input=json.dumps(cases), capture_output=True, text=True, timeout=120, check=False
    )
    assert outcome.returncode == 0, outcome.stderr
    answers: dict[str, Any] = json.loads(outcome.stdout)
    return answers


def in_python(**cases: list[Any]) -> dict[str, Any]:
    """The same, from the Python twins."""
    return {
        "files": [_attempt(partial(_inspect, case)) for case in cases.get("files", [])],
        "heads": [
            _attempt(partial(require_gguf, bytes.fromhex(head), "case")) for head in cases.get("heads", [])
        ],
        "sources": [_attempt(partial(_resolve, case)) for case in cases.get("sources", [])],
    }


def _attempt(action: Callable[[], Any]) -> Any:
    try:
        # As it would come back from the other side: lists instead of tuples.
        return json.loads(json.dumps(action()))
    except HeadraceError as error:
        return {"error": json.loads(json.dumps(error.to_wire()))}


def _inspect(case: Case) -> Any:
    data = Path(case["path"]).read_bytes() if "path" in case else bytes.fromhex(case["hex"])
    head = data[: case.get("take", len(data))]
    header = parse_header(head, "case", case.get("size"))
    if header is None:
        return None
    pieces = plan_pieces(
        header,
        head,
        case.get("size", len(data)),
        max_whole_bytes=case["maxWholeBytes"],
        shard_bytes=case["shardBytes"],
        name="case",
    )
    return {
        "header": _plain_header(header),
        "shard": list(shard_of(header) or ()),
        "pieces": [
            [piece.header and hashlib.sha256(piece.header).hexdigest(), piece.start, piece.end]
            for piece in pieces
        ],
    }


def _plain_header(header: GgufHeader) -> dict[str, Any]:
    return {
        "alignment": header.alignment,
        "metadata": [[key, _plain(value)] for key, value in header.metadata.items()],
        "metadataCount": header.metadata_count,
        "metadataBytes": header.metadata_bytes,
        "tensors": header.tensors,
        "dataStart": header.data_start,
        "dataEnd": header.data_end,
    }


def _plain(value: MetadataValue) -> Any:
    if isinstance(value, bool | str | GgufArray):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            return {"number": str(value)}
        if not value.is_integer():
            return {"number": struct.pack(">d", value).hex()}
    return {"number": str(int(value))}


def _resolve(case: Case) -> dict[str, Any]:
    options = {name: case[name] for name in ("headers", "sha256") if name in case}
    model = resolve_remote(case["source"], hugging_face=case.get("huggingFace"), **options)
    return asdict(model)
