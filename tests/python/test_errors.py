"""headrace/errors.py: the code survives every crossing."""

import json
import pickle
from typing import get_args

import pytest

from headrace.errors import ERROR_CODES, ErrorCode, HeadraceError


@pytest.mark.parametrize("code", get_args(ErrorCode))
def test_every_code_crosses_the_wire(code: ErrorCode) -> None:
    sent = HeadraceError(code, "One sentence.", {"option": "topK", "limit": 3})
    received = HeadraceError.from_wire(json.loads(json.dumps(sent.to_wire())))
    assert received.to_wire() == sent.to_wire()
    assert str(received) == "One sentence."


def test_the_codes_are_listed_once_each() -> None:
    assert len(ERROR_CODES) == len(get_args(ErrorCode))


def test_a_code_of_a_newer_version_is_kept() -> None:
    assert HeadraceError.from_wire({"code": "mind_lost", "message": "x"}).code == "mind_lost"


@pytest.mark.parametrize("record", [None, "text", [], {}, {"code": "internal"}, {"message": 7}])
def test_a_record_of_another_shape_is_internal(record: object) -> None:
    error = HeadraceError.from_wire(record)
    assert error.code == "internal"
    assert repr(record) in error.message


def test_detail_that_is_no_record_is_dropped() -> None:
    assert HeadraceError.from_wire({"code": "internal", "message": "x", "detail": "y"}).detail == {}


def test_the_cause_is_python_s_own() -> None:
    cause = OSError("disk")
    error = HeadraceError("internal", "x", cause=cause)
    assert error.cause is error.__cause__ is cause


def test_it_can_be_pickled() -> None:
    error = pickle.loads(pickle.dumps(HeadraceError("context_overflow", "x", {"tokens": 3})))
    assert error.to_wire() == {"code": "context_overflow", "message": "x", "detail": {"tokens": 3}}
