"""The native build's tools, and the library and host tests it leaves."""

import ctypes
import json
import subprocess
from pathlib import Path

import pytest

from build_tools.host import compiler_identity
from build_tools.wasm import abi_version
from build_tools.workspace import Workspace


def test_the_compiler_s_identity_follows_cxx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "my-c++"
    compiler.write_text("#!/bin/sh\necho my-c++ 7.0\necho more\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    assert compiler_identity() == f"{compiler} my-c++ 7.0"
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", "/nonexistent")
    assert compiler_identity() == "none"


def test_the_library_is_of_this_source(library_path: Path, workspace: Workspace) -> None:
    engine = ctypes.CDLL(str(library_path))
    engine.hr_describe.restype = ctypes.c_char_p
    assert engine.hr_abi_version() == abi_version(workspace)
    assert json.loads(engine.hr_describe())["abiVersion"] == abi_version(workspace)


def test_the_library_exports_the_abi_and_nothing_else_of_ours(library_path: Path) -> None:
    listing = subprocess.run(
        ["nm", "--dynamic", "--defined-only", str(library_path)], capture_output=True, text=True, check=True
    )
    names = {line.split()[-1] for line in listing.stdout.splitlines()}
    exported = {name for name in names if name.startswith("hr_")}
    assert len(exported) <= 12
    assert {"hr_abi_version", "hr_describe", "hr_engine_create", "hr_engine_free"} <= exported
