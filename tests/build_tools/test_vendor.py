"""What web/ uses of other projects: copied whole, and no part of what tsc's result depends on."""

from pathlib import Path

import pytest

from build_tools.errors import StepError
from build_tools.files import content_hash
from build_tools.npm import required
from build_tools.vendor import VENDORED, copy_vendored, declared_sources, vendor_step
from build_tools.workspace import Workspace


@pytest.fixture
def clone(tmp_path: Path) -> Workspace:
    """A clone with nothing but a page that has been built once."""
    web = tmp_path / "clone" / "web"
    (web / "vendor").mkdir(parents=True)
    (web / "index.js").write_text("export {};\n")
    (web / "package.json").write_text('{"dependencies": {"hash-wasm": "^4.12.0"}}')
    (web / "vendor" / "x.d.ts").write_text("export {};\n")
    return Workspace(root=tmp_path / "clone", cache=tmp_path / "cache")


def packages(folder: Path) -> Path:
    for name in VENDORED:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"this is {name}")
    return folder


def test_every_file_is_copied(clone: Workspace, tmp_path: Path) -> None:
    target = clone.root / "web" / "vendor"
    copy_vendored(packages(tmp_path / "node_modules"), target)
    for name, copied in VENDORED.items():
        assert (target / copied).read_text() == f"this is {name}"


def test_a_file_that_a_package_has_no_more_is_named(clone: Workspace, tmp_path: Path) -> None:
    found = packages(tmp_path / "node_modules")
    (found / "hash-wasm/LICENSE").unlink()
    with pytest.raises(StepError, match="hash-wasm has no LICENSE any more"):
        copy_vendored(found, clone.root / "web" / "vendor")


def test_what_tsc_depends_on_is_the_same_before_and_after(clone: Workspace, tmp_path: Path) -> None:
    def fingerprint() -> str:
        return content_hash(clone.root, declared_sources(clone))

    before = fingerprint()
    copy_vendored(packages(tmp_path / "node_modules"), clone.root / "web" / "vendor")
    assert fingerprint() == before
    (clone.root / "web" / "vendor" / "x.d.ts").write_text("export const x = 1;\n")
    assert fingerprint() != before


def test_the_step_is_due_when_a_file_is_gone(clone: Workspace) -> None:
    assert not vendor_step(clone).is_current()


def test_a_package_must_be_named(clone: Workspace) -> None:
    assert required(clone, "dependencies", "hash-wasm") == {"hash-wasm": "^4.12.0"}
    with pytest.raises(StepError, match="names no typescript among its devDependencies"):
        required(clone, "devDependencies", "typescript")


def test_the_vendored_script_has_a_declaration_and_a_notice(repo_root: Path) -> None:
    assert (repo_root / "web/vendor/sha256.umd.min.d.ts").is_file()
    assert "hash-wasm" in (repo_root / "THIRD_PARTY_NOTICES.md").read_text()
