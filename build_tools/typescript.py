"""Checks web/ with tsc and emits its declarations, the ones of the engine's own table among them.

Counterpart: `web/tsconfig.json` and `web/package.json`, which say what is checked and with which TypeScript.
Nothing that is shipped depends on npm: the compiler is installed into the build folder.
"""

import json
from pathlib import Path

from build_tools.errors import StepError
from build_tools.files import content_hash, copy_atomically, remove_folder, write_atomically
from build_tools.steps import Step, StepRun, stamped_step
from build_tools.workspace import Workspace

PROJECTS = ("web/tsconfig.json", "web/worker/tsconfig.json")
"""What runs in the page, and what runs in the worker: their globals differ."""


GENERATED = "headrace/declarations"
"""How web/ names build/generated/declarations.d.ts."""


def typescript_step(workspace: Workspace) -> Step:
    """The step that installs the TypeScript compiler into build/npm."""
    folder = workspace.build / "npm"
    manifest = workspace.root / "web" / "package.json"

    def action(run: StepRun) -> str:
        tools = json.loads(manifest.read_text()).get("devDependencies", {})
        if "typescript" not in tools:
            raise StepError("web/package.json names no typescript among its devDependencies")
        remove_folder(folder)
        private = {"name": "headrace-tools", "private": True, "devDependencies": tools}
        write_atomically(folder / "package.json", json.dumps(private, indent=2))
        npm = workspace.environment / "bin" / "npm"
        run.run(
            [npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"],
            cwd=folder,
            env={"npm_config_cache": str(workspace.cache / "npm"), "npm_config_update_notifier": "false"},
            hint="check that npm can reach its registry (npm ping), then run the same command",
        )
        return ", ".join(f"{name} {version}" for name, version in tools.items())

    return stamped_step(
        workspace,
        "typescript",
        "installing the TypeScript compiler",
        fingerprint=lambda: content_hash(workspace.root, [manifest, Path(__file__)]),
        outputs=[compiler(workspace)],
        action=action,
    )


def types_step(workspace: Workspace) -> Step:
    """The step that checks web/ and leaves its .d.ts files in build/generated/types."""
    declarations = workspace.generated / "declarations.d.ts"
    types = workspace.generated / "types"

    def action(run: StepRun) -> str:
        node = workspace.environment / "bin" / "node"
        remove_folder(types)
        emit = ("--noEmit", "false", "--outDir", types)
        for project, options in zip(PROJECTS, (emit, ()), strict=True):
            run.run(
                [node, compiler(workspace), "-p", project, "--pretty", "false", *options],
                hint="correct the types named above",
            )
        complete(types, declarations)
        return ", ".join(PROJECTS)

    return stamped_step(
        workspace,
        "types",
        "checking web/ with tsc",
        fingerprint=lambda: content_hash(
            workspace.root,
            [workspace.root / "web", declarations, workspace.stamps / "typescript", Path(__file__)],
        ),
        outputs=[types / name for name in ("index.d.ts", declarations.name)],
        action=action,
    )


def complete(types: Path, declarations: Path) -> None:
    """Makes emitted .d.ts files whole, so that they mean the same in anybody's project.

    The sources name the generated declarations by a path that only our tsconfig files know: here they are
    copied to the others and named by where they lie. The demo page's types are nobody's business.
    """
    remove_folder(types / "playground")
    for file in sorted(types.rglob("*.d.ts")):
        up = "../" * (len(file.relative_to(types).parts) - 1) or "./"
        text = file.read_text().replace(f'"{GENERATED}"', f'"{up}declarations.js"')
        write_atomically(file, text)
    copy_atomically(declarations, types / declarations.name)


def compiler(workspace: Workspace) -> Path:
    """The compiler's program, run with node."""
    return workspace.build / "npm" / "node_modules" / "typescript" / "lib" / "tsc.js"
