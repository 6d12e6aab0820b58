"""Configures and builds native/ with CMake and Ninja, for whichever host.

Counterpart: `wasm.py` and `host.py`, which say what for; `native/CMakeLists.txt`, where every compiler flag
stands. Decides no flags but those that name the tools.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from build_tools.errors import StepError
from build_tools.files import content_hash, remove_folder, write_atomically
from build_tools.progress import ninja_progress
from build_tools.steps import StepRun
from build_tools.workspace import Workspace

CommandLine = Callable[[Sequence[str | Path], Mapping[str, str]], list[str | Path]]
"""Makes the command line that runs a program of the toolchain with additions to its environment."""


@dataclass(frozen=True)
class CMakeBuild:
    """One build folder.

    identity: of the compiler; when it changes, everything is compiled anew.
    options: CMake's `-D…` arguments.
    command: how the toolchain's programs are run.
    wrapper: put before the configuring cmake (`emcmake`).
    label: what the progress line begins with, where a step has several builds.
    """

    folder: Path
    identity: str
    options: Sequence[str]
    targets: Sequence[str]
    command: CommandLine
    wrapper: Sequence[str | Path] = ()
    label: str = ""


def native_inputs(workspace: Workspace, *facts: str, tests: bool = False) -> str:
    """Content hash of what goes into a build of native/: our sources, llama.cpp with its patches, facts.

    tests: whether the host tests, the soak and the simulator are part of the build.
    """
    left_out = set() if tests else {"tests", "soak", "simulator"}
    ours = [path for path in sorted((workspace.root / "native").iterdir()) if path.name not in left_out]
    return content_hash(workspace.root, [*ours, workspace.stamps / "sources"], *facts)


def common_options(workspace: Workspace, with_ccache: bool) -> list[str]:
    """The options of both hosts."""
    launchers = [f"-DCMAKE_{language}_COMPILER_LAUNCHER=ccache" for language in ("C", "CXX")]
    return ["-DCMAKE_BUILD_TYPE=Release", f"-DHR_LLAMA_DIR={workspace.llama}", *(launchers * with_ccache)]


def ccache_environment(workspace: Workspace) -> dict[str, str]:
    """Settings with which a second clone, in another folder, finds what the first one compiled."""
    return {
        "CCACHE_DIR": str(workspace.cache / "ccache"),
        "CCACHE_BASEDIR": str(workspace.root),
        "CCACHE_NOHASHDIR": "1",
    }


def build(run: StepRun, plan: CMakeBuild) -> str:
    """Configures where needed, then builds the targets. Returns everything CMake and Ninja said."""
    environment = {**ccache_environment(run.workspace), "NINJA_STATUS": "[%f/%t] "}

    def progress(line: str) -> str | None:
        told = ninja_progress(line)
        return told and plan.label + told

    output = ""
    record = plan.folder / "headrace-configured.json"
    wanted = {"identity": plan.identity, "options": list(plan.options)}
    present = json.loads(record.read_text()) if record.is_file() else {}
    if present.get("identity") != plan.identity:
        remove_folder(plan.folder)
    if present != wanted:
        run.progress(f"{plan.label}configuring")
        record.unlink(missing_ok=True)
        source = run.workspace.root / "native"
        argv = [*plan.wrapper, "cmake", "-S", source, "-B", plan.folder, "-G", "Ninja", *plan.options]
        output += run.run(plan.command(argv, environment)).output
        write_atomically(record, json.dumps(wanted))
    argv = ["cmake", "--build", plan.folder, "--target", *plan.targets]
    return output + run.run(plan.command(argv, environment), parse=progress).output


def compiled(folder: Path, source: str) -> bool:
    """Whether the object of a source file, named by the end of its path, lies in a finished build folder."""
    commands: list[dict[str, str]] = json.loads((folder / "compile_commands.json").read_text())
    for command in commands:
        if command["file"].endswith(source) and "output" in command:
            return (folder / command["output"]).is_file()
    return False


def build_seconds(ninja_log: str, output: str) -> float | None:
    """Seconds the last making of an output took, from the text of a `.ninja_log`; None if it is not there."""
    seconds = None
    for line in ninja_log.splitlines():
        fields = line.split("\t")
        if len(fields) >= 4 and (fields[3] == output or fields[3].endswith(f"/{output}")):
            seconds = (int(fields[1]) - int(fields[0])) / 1000
    return seconds


def require(path: Path, what: str) -> Path:
    """The path, or a StepError if the build did not leave it."""
    if not path.is_file():
        raise StepError(f"the build ended well but left no {what} ({path.name})")
    return path
