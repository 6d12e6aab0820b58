"""Builds the engine with a sanitizer, then soaks or fuzzes it: the tasks `soak` and `fuzz`.

Counterpart: `native/soak/`, the programs that are run; `tests/native/test_soak.py` and `test_fuzz.py`, short
runs of the same programs without a sanitizer. Each sanitizer compiles llama.cpp anew: minutes the first time.
"""

import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from build_tools.cmake import CMakeBuild, build, common_options, native_inputs, require
from build_tools.files import content_hash
from build_tools.host import compiler_identity, ensure_tools, host_command
from build_tools.sources import sources_step
from build_tools.steps import Step, StepRun, stamped_step
from build_tools.workspace import Workspace

SANITIZERS = {"address": "asan", "thread": "tsan"}
"""CMake's HR_SANITIZE → the build folder's name."""

FUZZERS = ("json", "gguf")

PROGRAMS = {
    "address": ("headrace_soak", *(f"headrace_fuzz_{fuzzer}" for fuzzer in FUZZERS)),
    "thread": ("headrace_soak",),
}
"""What is built with each sanitizer."""

_PROGRESS = re.compile(r"^progress (\d+) (\d+)$")


@dataclass(frozen=True)
class SoakPlan:
    """What to run. seconds: where the run ends, operations left or not."""

    sanitizers: Sequence[str] = tuple(SANITIZERS)
    operations: int = 10_000
    seconds: int = 900
    seed: int = 1


@dataclass(frozen=True)
class FuzzPlan:
    """What to run. seconds: of each fuzzer."""

    fuzzers: Sequence[str] = FUZZERS
    seconds: int = 600
    seed: int = 1


def soak_steps(workspace: Workspace, plan: SoakPlan) -> list[Step]:
    """The steps that build and run the soak, once per sanitizer."""
    steps = [sources_step(workspace)]
    for sanitizer in plan.sanitizers:
        steps += [sanitized_step(workspace, sanitizer), _soak_step(workspace, sanitizer, plan)]
    return steps


def fuzz_steps(workspace: Workspace, plan: FuzzPlan) -> list[Step]:
    """The steps that build the fuzzers with AddressSanitizer and run them one after another."""
    built = [sources_step(workspace), sanitized_step(workspace, "address")]
    return [*built, *(_fuzz_step(workspace, fuzzer, plan) for fuzzer in plan.fuzzers)]


def sanitized_step(workspace: Workspace, sanitizer: str) -> Step:
    """The step that leaves the programs of PROGRAMS in build/asan or build/tsan."""
    folder = workspace.build / SANITIZERS[sanitizer]
    programs = PROGRAMS[sanitizer]

    def fingerprint() -> str:
        ours = content_hash(workspace.root, [Path(__file__), workspace.root / "build_tools" / "cmake.py"])
        return native_inputs(workspace, compiler_identity(), sanitizer, ours, tests=True)

    def action(run: StepRun) -> str:
        ensure_tools(run, tests=False)
        plan = CMakeBuild(
            folder=folder,
            identity=compiler_identity(),
            options=[
                *common_options(workspace, shutil.which("ccache") is not None),
                f"-DHR_SANITIZE={sanitizer}",
            ],
            targets=programs,
            command=lambda argv, env: host_command(workspace, argv, env),
        )
        build(run, plan)
        return ", ".join(workspace.shown(require(folder / name, "program")) for name in programs)

    return stamped_step(
        workspace,
        f"native-{SANITIZERS[sanitizer]}",
        f"compiling the engine and its soak with the {sanitizer} sanitizer",
        fingerprint=fingerprint,
        outputs=[folder / name for name in programs],
        action=action,
    )


def progress_line(unit: str) -> Callable[[str], str | None]:
    """A parser of the programs' progress: `progress 12 100` as "12 of 100 UNIT"; None for any other line."""

    def parse(line: str) -> str | None:
        match = _PROGRESS.match(line)
        return match and f"{match[1]} of {match[2]} {unit}"

    return parse


def sanitizer_options(workspace: Workspace) -> dict[str, str]:
    """The environment that has every report stop the run, or count in its exit status, with its stack."""
    suppressions = workspace.root / "native" / "soak" / "tsan.supp"
    return {
        "ASAN_OPTIONS": "detect_leaks=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "TSAN_OPTIONS": f"suppressions={suppressions} second_deadlock_stack=1",
    }


def _soak_step(workspace: Workspace, sanitizer: str, plan: SoakPlan) -> Step:
    program = workspace.build / SANITIZERS[sanitizer] / "headrace_soak"

    def action(run: StepRun) -> str:
        folder = _empty_folder(workspace, run.name)
        options = {"operations": plan.operations, "seconds": plan.seconds, "seed": plan.seed}
        argv: list[str | Path] = [program, _model(workspace), "--folder", folder, *_named(options)]
        environment = sanitizer_options(workspace)
        output = run.run(argv, env=environment, parse=progress_line("operations")).output
        return output.strip().splitlines()[-1]

    title = f"{plan.operations} random operations under the {sanitizer} sanitizer"
    return Step(f"soak-{sanitizer}", title, lambda: False, action)


def _fuzz_step(workspace: Workspace, fuzzer: str, plan: FuzzPlan) -> Step:
    program = workspace.build / SANITIZERS["address"] / f"headrace_fuzz_{fuzzer}"

    def action(run: StepRun) -> str:
        folder = _empty_folder(workspace, run.name)
        options = {"seconds": plan.seconds, "seed": plan.seed}
        argv: list[str | Path] = [program, _model(workspace), folder, *_named(options)]
        hint = f"the inputs are in {workspace.shown(folder)}; give one to {workspace.shown(program)} as FILE"
        # The fuzzers carry their own settings of ASan: memory that runs out is a test there.
        environment = {"UBSAN_OPTIONS": sanitizer_options(workspace)["UBSAN_OPTIONS"]}
        output = run.run(argv, env=environment, parse=progress_line("s"), hint=hint).output
        return output.strip().splitlines()[-1]

    title = f"damaging {'commands' if fuzzer == 'json' else 'GGUF headers'} for {plan.seconds} s"
    return Step(f"fuzz-{fuzzer}", title, lambda: False, action)


def _model(workspace: Workspace) -> Path:
    return workspace.root / "tests" / "data" / "moe-trained-q4_k_m.gguf"


def _empty_folder(workspace: Workspace, name: str) -> Path:
    folder = workspace.build / "soak" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _named(options: Mapping[str, int]) -> list[str]:
    return [word for name, value in options.items() for word in (f"--{name}", str(value))]
