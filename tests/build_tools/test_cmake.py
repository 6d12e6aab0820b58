"""A real, tiny CMake project: configured once, again for other options, anew for another compiler."""

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from build_tools.cmake import CMakeBuild, build, build_seconds, compiled, require
from build_tools.errors import StepError
from build_tools.progress import Reporter
from build_tools.steps import StepRun
from build_tools.workspace import Workspace

PROJECT = """
cmake_minimum_required(VERSION 3.20)
project(tiny LANGUAGES NONE)
option(HR_FAIL "" OFF)
if(HR_FAIL)
  message(FATAL_ERROR "asked to fail")
endif()
add_custom_target(made COMMAND ${CMAKE_COMMAND} -E touch "${CMAKE_BINARY_DIR}/made-by-${HR_NAME}")
"""

pytestmark = pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")


@pytest.fixture
def run(tmp_path: Path) -> StepRun:
    workspace = Workspace(tmp_path / "clone", tmp_path / "cache")
    workspace.logs.mkdir(parents=True)
    (workspace.root / "native").mkdir()
    (workspace.root / "native" / "CMakeLists.txt").write_text(PROJECT)
    return StepRun("native", workspace, Reporter(sys.stdout))


@pytest.fixture
def plan(run: StepRun) -> CMakeBuild:
    path = f"{Path(sys.prefix) / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return CMakeBuild(
        folder=run.workspace.build / "native",
        identity="compiler 1",
        options=["-DHR_NAME=one"],
        targets=["made"],
        command=lambda argv, env: [
            "env",
            f"PATH={path}",
            *(f"{key}={value}" for key, value in env.items()),
            *argv,
        ],
    )


def configured(output: str) -> bool:
    return "Generating done" in output


def test_configures_only_when_options_change(run: StepRun, plan: CMakeBuild) -> None:
    assert configured(build(run, plan))
    assert (plan.folder / "made-by-one").is_file()
    assert not configured(build(run, plan))
    (plan.folder / "object").write_text("compiled")
    assert configured(build(run, replace(plan, options=["-DHR_NAME=two"])))
    assert (plan.folder / "made-by-two").is_file()
    assert (plan.folder / "object").is_file()


def test_another_compiler_starts_from_nothing(run: StepRun, plan: CMakeBuild) -> None:
    build(run, plan)
    (plan.folder / "object").write_text("compiled")
    build(run, replace(plan, identity="compiler 2"))
    assert not (plan.folder / "object").exists()


def test_a_failed_configuration_is_not_taken_for_done(run: StepRun, plan: CMakeBuild) -> None:
    failing = replace(plan, options=["-DHR_NAME=one", "-DHR_FAIL=ON"])
    for _ in range(2):
        with pytest.raises(StepError) as caught:
            build(run, failing)
        assert any("asked to fail" in line for line in caught.value.lines)
    assert configured(build(run, replace(plan, options=["-DHR_NAME=one", "-DHR_FAIL=OFF"])))


def test_compiled_asks_for_the_object_not_only_the_command(tmp_path: Path) -> None:
    commands = [{"file": "/x/ggml-cpu/arch/wasm/quants.c", "output": "arch/wasm/quants.c.o"}]
    (tmp_path / "compile_commands.json").write_text(json.dumps(commands))
    assert not compiled(tmp_path, "ggml-cpu/arch/wasm/quants.c")
    (tmp_path / "arch" / "wasm").mkdir(parents=True)
    (tmp_path / "arch" / "wasm" / "quants.c.o").write_text("")
    assert compiled(tmp_path, "ggml-cpu/arch/wasm/quants.c")
    assert not compiled(tmp_path, "ggml-cpu/arch/x86/quants.c")


def test_build_seconds_are_those_of_the_last_build() -> None:
    name = "artifacts/headrace-st.js"
    log = f"# ninja log v5\n0\t900\t1\t{name}\tab\n100\t4600\t2\t{name}\tcd\n"
    assert build_seconds(log, "headrace-st.js") == 4.5
    assert build_seconds(log, "st.js") is None


def test_require_names_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(StepError, match=r"left no native library \(libheadrace\.so\)"):
        require(tmp_path / "libheadrace.so", "native library")
