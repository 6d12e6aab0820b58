"""Checks web/ with tsc and emits its declarations, the ones of the engine's own table among them.

Counterpart: `web/tsconfig.json` and `web/package.json`, which say what is checked and with which TypeScript.
The compiler is installed into the build folder; nothing of it is shipped.
"""

from pathlib import Path

from build_tools.files import content_hash, copy_atomically, remove_folder, write_atomically
from build_tools.npm import install, required, web_manifest
from build_tools.steps import Step, StepRun, stamped_step
from build_tools.vendor import declared_sources
from build_tools.workspace import Workspace

PROJECTS = ("web/tsconfig.json", "web/worker/tsconfig.json")
"""What runs in the page, and what runs in the worker: their globals differ."""


GENERATED = "headrace/declarations"
"""How web/ names build/generated/declarations.d.ts."""


def typescript_step(workspace: Workspace) -> Step:
    """The step that installs the TypeScript compiler into build/npm."""
    folder = workspace.build / "npm"

    def action(run: StepRun) -> str:
        tools = required(workspace, "devDependencies", "typescript")
        install(run, folder, tools)
        return ", ".join(f"{name} {version}" for name, version in tools.items())

    return stamped_step(
        workspace,
        "typescript",
        "installing the TypeScript compiler",
        fingerprint=lambda: content_hash(
            workspace.root,
            [web_manifest(workspace), Path(__file__), Path(__file__).with_name("npm.py")],
        ),
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
            [
                *declared_sources(workspace),
                declarations,
                workspace.stamps / "typescript",
                Path(__file__),
            ],
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
