"""Style and types: the checks every change passes, and the formatter that makes most of them pass.

Counterpart: the settings in pyproject.toml and .clang-format. web/ is checked by `typescript.py`.
"""

from build_tools.steps import Step, StepRun
from build_tools.workspace import Workspace

PYTHON = ("headrace", "build_tools", "serve.py", "tests", "bench")


def lint_step(workspace: Workspace) -> Step:
    """The step that fails where ruff, mypy or clang-format find something."""

    def action(run: StepRun) -> str:
        tools, python = workspace.environment / "bin", _python_paths(workspace)
        fix = "python3 -m build_tools format mends most of it"
        for tool, *arguments in (
            ["ruff", "check", *python],
            ["ruff", "format", "--check", "--diff", *python],
            ["mypy", "--strict", *python],
            ["clang-format", "--dry-run", "-Werror", *_native_files(workspace)],
        ):
            run.progress(tool)
            run.run([tools / tool, *arguments], hint=fix)
        return "ruff, mypy, clang-format"

    return Step("lint", "checking style and types", lambda: False, action)


def format_step(workspace: Workspace) -> Step:
    """The step that rewrites sources the way `lint_step` wants them."""

    def action(run: StepRun) -> str:
        tools, python = workspace.environment / "bin", _python_paths(workspace)
        run.run([tools / "ruff", "check", "--fix", "--exit-zero", *python])
        run.run([tools / "ruff", "format", *python])
        run.run([tools / "clang-format", "-i", *_native_files(workspace)])
        return ""

    return Step("format", "formatting sources", lambda: False, action)


def _python_paths(workspace: Workspace) -> list[str]:
    return [name for name in PYTHON if (workspace.root / name).exists()]


def _native_files(workspace: Workspace) -> list[str]:
    folders = (workspace.root / "native", workspace.root / "build_tools")
    patterns = ("*.h", "*.c", "*.cpp")
    return [str(path) for folder in folders for pattern in patterns for path in sorted(folder.rglob(pattern))]
