"""headrace/models/manifest.py and journal.py: what is written down, in the form that JavaScript has too.

Counterpart: `tests/web/store_records.test.js`, which reads the same `tests/data/store_records.json`.
"""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import HeadraceError
from headrace.models.journal import Journal, Ranges
from headrace.models.manifest import HashedFile, Manifest, is_stored_id, model_id, now, parse_manifest

RECORDS = json.loads((Path(__file__).parents[1] / "data" / "store_records.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("record", RECORDS["manifests"], ids=lambda record: str(record["name"]))
def test_a_manifest_is_read_and_written_as_it_is(record: dict[str, Any]) -> None:
    manifest = parse_manifest(json.dumps(record), record["id"])
    assert manifest is not None
    assert manifest.to_record() == record
    assert json.loads(manifest.to_json()) == record
    assert list(manifest.to_record()) == list(record)
    assert model_id(manifest.parts) == record["id"]
    assert is_stored_id(manifest.id)


@pytest.mark.parametrize("record", RECORDS["journals"], ids=lambda record: str(record["name"]))
def test_a_journal_is_read_and_written_as_it_is(record: dict[str, Any]) -> None:
    journal = Journal.from_json(json.dumps(record))
    assert journal is not None
    assert json.loads(journal.to_json()) == record


def manifest_record() -> dict[str, Any]:
    record: dict[str, Any] = json.loads(json.dumps(RECORDS["manifests"][0]))
    return record


@pytest.mark.parametrize("field", list(manifest_record()))
@pytest.mark.parametrize("value", [17.5, [1], {"a": 1}], ids=["number", "list", "object"])
def test_d2_a_field_of_another_type_makes_it_lost(field: str, value: object) -> None:
    record = manifest_record()
    id = record["id"]
    record[field] = value
    if field == "size":
        return
    if field == "version" and value == 17.5:
        record["version"] = 0
    assert parse_manifest(json.dumps(record), id) is None


@pytest.mark.parametrize("text", ["", "{", "null", "[]", '"text"', "[" * 100_000, "\x00" * 64])
def test_d2_what_is_no_manifest_is_lost(text: str) -> None:
    assert parse_manifest(text, "sha256-" + "0" * 64) is None
    assert Journal.from_json(text) is None


def test_d2_the_manifest_of_another_model_is_lost() -> None:
    assert parse_manifest(json.dumps(manifest_record()), "sha256-" + "0" * 64) is None


def test_a_newer_version_is_told() -> None:
    with pytest.raises(HeadraceError) as caught:
        parse_manifest(json.dumps({"version": 2}), "sha256-" + "0" * 64)
    assert caught.value.code == "version_mismatch"


def test_times_are_as_javascript_writes_them() -> None:
    assert len(now()) == len("2026-11-30T04:38:35.123Z")
    assert now().endswith("Z")


def test_a_manifest_that_was_made_can_be_read() -> None:
    part = HashedFile("0" * 64, 5)
    made = Manifest(model_id([part]), "näme", (part,), (part,))
    assert parse_manifest(made.to_json(), made.id) == made


@pytest.mark.parametrize(
    "ranges", [[[5, 5]], [[9, 3]], [[-1, 3]], [[0, 2**40]], [[0]], "text", [["a", "b"]], None]
)
def test_d1_ranges_that_cannot_be_are_not_believed(ranges: object) -> None:
    record = {**RECORDS["journals"][0], "ranges": ranges}
    assert Journal.from_json(json.dumps(record)) is None


RANGE = st.tuples(st.integers(0, 60), st.integers(0, 60)).map(lambda ends: (min(ends), max(ends)))


@given(st.lists(RANGE, max_size=12), RANGE)
def test_ranges_are_the_bytes_that_were_added(added: list[tuple[int, int]], window: tuple[int, int]) -> None:
    ranges, expected = Ranges(), set[int]()
    for start, end in added:
        new = set(range(start, end)) - expected
        assert ranges.add(start, end) == len(new)
        expected |= new
    listed = ranges.to_list()
    assert {byte for start, end in listed for byte in range(start, end)} == expected
    assert all(before[1] < after[0] for before, after in pairwise(listed))
    assert ranges.total == len(expected)
    assert ranges.frontier == next(byte for byte in range(62) if byte not in expected)
    missing = {byte for start, end in ranges.gaps(*window) for byte in range(start, end)}
    assert missing == set(range(*window)) - expected
