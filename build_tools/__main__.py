"""The command line of the build: python3 -m build_tools <task>.

Counterpart: `tasks.py`, the tasks themselves; `serve.py`, the other command. Only parses and hands over.
"""

import argparse
import sys
from collections.abc import Sequence

from build_tools.environment import ensure_environment
from build_tools.progress import Reporter
from build_tools.soak import FUZZERS, SANITIZERS, FuzzPlan, SoakPlan, fuzz_steps, soak_steps
from build_tools.steps import Step, guarded, run_steps
from build_tools.tasks import TASKS, clean, run_bench, run_tests, task_steps
from build_tools.workspace import Workspace


def parser() -> argparse.ArgumentParser:
    """The command line's grammar, with its --help."""
    root = argparse.ArgumentParser(
        prog="python3 -m build_tools",
        description="Builds, checks and tests Headrace. Each task brings what it needs, skips what is "
        "current, and can be interrupted and run again.",
        epilog="Logs are in build/logs. The shared cache is $HEADRACE_CACHE, else ~/.cache/headrace.",
    )
    tasks = root.add_subparsers(dest="task", metavar="task", required=True)
    for name, text in TASKS.items():
        task = tasks.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        if name == "test":
            task.add_argument("--fast", action="store_true", help="leave out what needs a browser or wasm")
            task.add_argument("arguments", nargs="*", metavar="-- ARGUMENT", help="passed to pytest")
        if name == "bench":
            task.add_argument(
                "arguments", nargs="*", metavar="-- ARGUMENT", help="passed to the bench package"
            )
        if name == "soak":
            _add_counts(task, operations=SoakPlan.operations, seconds=SoakPlan.seconds, seed=SoakPlan.seed)
            task.add_argument("--sanitizer", choices=list(SANITIZERS), help="only this one (default: both)")
        if name == "fuzz":
            _add_counts(task, seconds=FuzzPlan.seconds, seed=FuzzPlan.seed)
            task.add_argument("--fuzzer", choices=FUZZERS, help="only this one (default: both)")
    return root


def _add_counts(task: argparse.ArgumentParser, **defaults: int) -> None:
    for name, default in defaults.items():
        task.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"default: {default}")


def chosen_steps(arguments: argparse.Namespace, workspace: Workspace) -> list[Step]:
    """The steps of a task as the command line wants it."""
    if arguments.task == "soak":
        sanitizers = [arguments.sanitizer] if arguments.sanitizer else list(SANITIZERS)
        plan = SoakPlan(sanitizers, arguments.operations, arguments.seconds, arguments.seed)
        return soak_steps(workspace, plan)
    if arguments.task == "fuzz":
        fuzzers = [arguments.fuzzer] if arguments.fuzzer else FUZZERS
        return fuzz_steps(workspace, FuzzPlan(fuzzers, arguments.seconds, arguments.seed))
    return task_steps(arguments.task, workspace)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one task. Returns the exit status: 0; 1 after a failed step; pytest's; 130 when interrupted."""
    arguments = parser().parse_args(argv)
    workspace, reporter = Workspace.default(), Reporter(sys.stdout)

    def task() -> int:
        if arguments.task == "clean":
            clean(workspace, reporter)
            return 0
        ensure_environment(workspace, reporter)
        if arguments.task == "test":
            return run_tests(workspace, reporter, fast=arguments.fast, arguments=arguments.arguments)
        if arguments.task == "bench":
            return run_bench(workspace, reporter, arguments.arguments)
        run_steps(chosen_steps(arguments, workspace), workspace, reporter)
        return 0

    return guarded(task, workspace, reporter)


if __name__ == "__main__":
    sys.exit(main())
