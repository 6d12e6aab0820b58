"""Records on stdout: as JSON, or as a table for people. No counterpart."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any


def print_json(record: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
    """With characters as they are where stdout can hold them all."""
    # Python's own escapes are no JSON: where characters could need some, JSON's are written.
    unicode = getattr(sys.stdout, "encoding", None) == "utf-8"
    print(json.dumps(record, ensure_ascii=not unicode, indent=2))


def print_table(rows: Sequence[tuple[str, ...]]) -> None:
    """Columns as wide as their widest cell."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
