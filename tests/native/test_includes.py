"""Includes in native/ point down: abi → chat → engine, abi → webgpu; the C ABI includes nothing of ours.

The rule is stated in ARCHITECTURE.md, "Folders".
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

NATIVE = Path(__file__).resolve().parents[2] / "native"
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
MAY_INCLUDE = {
    "include": set[str](),
    "engine": {"engine"},
    "chat": {"chat", "engine"},
    "webgpu": {"webgpu"},
    "abi": {"abi", "chat", "engine", "include", "webgpu"},
    "soak": {"soak", "include"},
    "tests": {"tests", "engine", "chat", "soak"},
    "simulator": {"simulator", "engine"},
}


def folder_of(include: str) -> str:
    if include == "headrace.h":
        return "include"
    return include.split("/")[0] if "/" in include else "tests"


@pytest.mark.parametrize("folder", sorted(MAY_INCLUDE))
def test_includes_point_down(folder: str) -> None:
    sources = [path for suffix in ("*.h", "*.cpp") for path in (NATIVE / folder).glob(suffix)]
    assert sources, f"native/{folder} holds no sources"
    wrong = [
        f"{path.name} includes {include}"
        for path in sources
        for include in INCLUDE.findall(path.read_text(encoding="utf-8"))
        if folder_of(include) not in MAY_INCLUDE[folder]
    ]
    assert wrong == []


def test_only_one_file_asks_for_emscripten() -> None:
    asking = [
        str(path.relative_to(NATIVE))
        for path in sorted(NATIVE.rglob("*.[ch]*"))
        if path.suffix in {".h", ".cpp"} and "__EMSCRIPTEN__" in path.read_text(encoding="utf-8")
    ]
    assert asking == ["abi/artifact.cpp"]
