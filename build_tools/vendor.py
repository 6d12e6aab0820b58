"""Puts what web/ uses of other projects into web/vendor/, where a page finds it without a bundler.

Counterpart: the dependencies in `web/package.json`, the declarations in `web/vendor/*.d.ts` (which alone are
in git), and THIRD_PARTY_NOTICES.md.
"""

from pathlib import Path

from build_tools.errors import StepError
from build_tools.files import content_hash, copy_atomically
from build_tools.npm import install, required, web_manifest
from build_tools.steps import Step, StepRun, stamped_step
from build_tools.workspace import Workspace

VENDORED = {
    "hash-wasm/dist/sha256.umd.min.js": "sha256.umd.min.js",
    "hash-wasm/LICENSE": "hash-wasm.LICENSE",
}
"""File of a package → its name in web/vendor/."""


def vendor_step(workspace: Workspace) -> Step:
    """The step that fills web/vendor/."""
    folder = workspace.build / "vendor"
    target = workspace.root / "web" / "vendor"

    def action(run: StepRun) -> str:
        packages = required(workspace, "dependencies", "hash-wasm")
        install(run, folder, packages)
        copy_vendored(folder / "node_modules", target)
        return ", ".join(f"{name} {version}" for name, version in packages.items())

    return stamped_step(
        workspace,
        "vendor",
        "getting what web/ uses of other projects",
        fingerprint=lambda: content_hash(
            workspace.root,
            [web_manifest(workspace), Path(__file__), Path(__file__).with_name("npm.py")],
        ),
        outputs=[target / name for name in VENDORED.values()],
        action=action,
    )


def copy_vendored(packages: Path, target: Path) -> None:
    """Copies the files of VENDORED from a node_modules folder."""
    for source, name in VENDORED.items():
        if not (packages / source).is_file():
            raise StepError(f"{source.partition('/')[0]} has no {source.partition('/')[2]} any more")
        copy_atomically(packages / source, target / name)


def declared_sources(workspace: Workspace) -> list[Path]:
    """What tsc sees of web/: all of it but the vendored scripts, for which their declarations stand.

    So whatever depends on web/ is the same before the scripts are there and after.
    """
    web = workspace.root / "web"
    others = [entry for entry in sorted(web.iterdir()) if entry.name != "vendor"]
    return [*others, *sorted((web / "vendor").glob("*.d.ts"))]
