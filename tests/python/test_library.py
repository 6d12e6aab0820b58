"""headrace/library.py: the shared library is found, checked, and declares what the wire format promises."""

from ctypes.util import find_library as find_system_library
from pathlib import Path

import pytest

from headrace import library
from headrace.errors import ERROR_CODES, HeadraceError
from headrace.library import EngineHandle, describe, load_library


def test_describe_names_what_the_wire_format_promises(library_path: Path) -> None:
    declarations = describe(library_path)
    assert declarations["abiVersion"] == library.ABI_VERSION
    assert declarations["build"]["host"] == "native"
    questions = {"tokenize", "detokenize", "countTokens", "applyTemplate", "audit", "metrics"}
    assert set(declarations["operations"]) == {"query", "chat", "embed"} | questions
    assert set(declarations["finishReasons"]) == {"stop", "length", "cancelled", "tool_calls"}
    for option in declarations["options"]:
        assert option["scope"] in ("load", "request", "embed", "tokenize")
        assert option["help"], option["name"]


def test_every_error_code_is_known_here(library_path: Path) -> None:
    declarations = describe(library_path)
    assert {error["code"] for error in declarations["errors"]} == ERROR_CODES


def test_a_missing_library_says_how_to_build_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_LIBRARY", str(tmp_path / "nothing.so"))
    with pytest.raises(HeadraceError, match="python3 -m build_tools") as caught:
        describe()
    assert caught.value.code == "artifact_missing"
    assert str(tmp_path / "nothing.so") in caught.value.message


def test_a_file_that_is_no_engine_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "libheadrace.so"
    text.write_text("not a library")
    other = find_system_library("m")
    assert other
    for path in (text, Path(other)):
        with pytest.raises(HeadraceError) as caught:
            library.load_library(path)
        assert caught.value.code == "artifact_missing"


def test_another_abi_version_is_refused(library_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "ABI_VERSION", 999)
    with pytest.raises(HeadraceError, match="999") as caught:
        library.load_library(library_path)
    assert caught.value.code == "version_mismatch"
    assert caught.value.detail == {"expected": 999, "found": 1}


@pytest.mark.parametrize("brackets", [b"[", b'{"x":'])
def test_a_command_nested_too_deep_is_refused(library_path: Path, brackets: bytes) -> None:
    engine = EngineHandle(load_library(library_path))
    engine.submit(b'{"id": 1, "operation": "query", "prompt": "x", "options": ' + brackets * 200_000)
    (failed,) = engine.events()
    engine.free()
    assert failed["error"]["code"] == "invalid_request"
    assert "nested too deep" in failed["error"]["message"]
