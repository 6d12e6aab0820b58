"""ggml's CPU backend has a kernel for every op that ggml has.

Counterpart of `native/engine/op_watch.cpp`: the CPU says that it supports whatever it has not heard of, and
its dispatch computes nothing for it without a word. So the list of ops and the dispatch are compared at the
source.
"""

import re
from pathlib import Path

import pytest

from build_tools.workspace import Workspace


def read(workspace: Workspace, path: str) -> str:
    source: Path = workspace.llama / path
    if not source.exists():
        pytest.skip(f"{source} is not there: python3 -m build_tools native")
    return source.read_text()


def test_every_op_has_a_case_in_the_cpu_dispatch(workspace: Workspace) -> None:
    header = read(workspace, "ggml/include/ggml.h")
    declared = re.search(r"enum ggml_op \{(.*?)\}", header, re.DOTALL)
    source = read(workspace, "ggml/src/ggml-cpu/ggml-cpu.c")
    dispatch = re.search(r"static void ggml_compute_forward\(.*?\n\}", source, re.DOTALL)
    assert declared
    assert dispatch
    ops = set(re.findall(r"\bGGML_OP_\w+", declared[1]))
    assert len(ops) > 90
    assert ops == set(re.findall(r"case (GGML_OP_\w+):", dispatch[0]))
