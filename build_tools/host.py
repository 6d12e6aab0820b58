"""Builds the native library of the engine, its host tests and its simulator, for this machine.

Counterpart: `wasm.py`, the same engine for pages; `headrace/library.py`, which loads it.
"""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from build_tools.apt import ensure_apt_packages
from build_tools.cmake import CMakeBuild, build, common_options, native_inputs, require
from build_tools.errors import StepError
from build_tools.files import content_hash
from build_tools.run import run_command
from build_tools.steps import Step, StepRun, stamped_step
from build_tools.workspace import Workspace

OLDEST_CMAKE = (3, 20)
TEST_PROGRAMS = (
    "headrace_tests",
    "headrace_soak",
    "headrace_fuzz_json",
    "headrace_fuzz_gguf",
    "headrace_simulator",
)
"""What tests/native runs."""

DOCTEST = Path("/usr/include/doctest/doctest.h")


def native_step(workspace: Workspace, tests: bool = False) -> Step:
    """The step that leaves build/native/libheadrace.so and, if asked, TEST_PROGRAMS."""
    folder = workspace.build / "native"
    programs = TEST_PROGRAMS if tests else ()
    facts = "tests" if tests else "library"

    def fingerprint() -> str:
        ours = content_hash(workspace.root, [Path(__file__), workspace.root / "build_tools" / "cmake.py"])
        return native_inputs(workspace, compiler_identity(), facts, ours, tests=tests)

    def action(run: StepRun) -> str:
        ensure_tools(run, tests)
        plan = CMakeBuild(
            folder=folder,
            identity=compiler_identity(),
            options=[
                *common_options(workspace, shutil.which("ccache") is not None),
                f"-DHR_BUILD_TESTS={'ON' if tests else 'OFF'}",
            ],
            targets=["headrace", *programs],
            command=lambda argv, env: host_command(workspace, argv, env),
        )
        build(run, plan)
        library = require(workspace.native_library, "native library")
        for program in programs:
            require(folder / program, "program of the host tests")
        return f"{workspace.shown(library)}, {library.stat().st_size / 1e6:.1f} MB"

    return stamped_step(
        workspace,
        "native-tests" if tests else "native",
        "compiling the engine for this machine" + (" with its tests" if tests else ""),
        fingerprint=fingerprint,
        outputs=[workspace.native_library, *(folder / program for program in programs)],
        action=action,
    )


def host_command(
    workspace: Workspace, argv: Sequence[str | Path], env: Mapping[str, str]
) -> list[str | Path]:
    """The command line that runs a program of this machine's toolchain."""
    # Ninja comes with the environment's development tools.
    path = os.pathsep.join((str(workspace.environment / "bin"), os.environ.get("PATH", "")))
    return ["env", f"PATH={path}", *(f"{name}={value}" for name, value in env.items()), *argv]


def compiler_identity() -> str:
    """The C++ compiler CMake will take and its version; "none" if there is none."""
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        return "none"
    lines = run_command([*compiler.split(), "--version"], keep_stderr=False, check=False).output.splitlines()
    return f"{compiler} {lines[0] if lines else 'unknown'}"


def ensure_tools(run: StepRun, tests: bool) -> None:
    """Makes sure of a C++ compiler, CMake, and doctest for the tests; installs them where it can."""
    if compiler_identity() == "none":
        ensure_apt_packages(run, ["g++"], "compiling the native engine")
    if shutil.which("cmake") is None:
        ensure_apt_packages(run, ["cmake"], "compiling the native engine")
    output = run_command(["cmake", "--version"], keep_stderr=False).output
    match = re.search(r"(\d+)\.(\d+)", output)
    if match is None or (int(match[1]), int(match[2])) < OLDEST_CMAKE:
        raise StepError(
            f"cmake is older than {'.'.join(map(str, OLDEST_CMAKE))}", hint="install a newer cmake"
        )
    if tests and not DOCTEST.is_file():
        ensure_apt_packages(run, ["doctest-dev"], "the host tests of the engine")
