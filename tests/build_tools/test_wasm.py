"""The SIMD gate, the manifest, and the artifacts as built."""

import gzip
import hashlib
import json
from pathlib import Path

import pytest

from build_tools.errors import StepError
from build_tools.wasm import (
    ARTIFACTS,
    SIMD_SOURCE,
    abi_version,
    check_simd,
    laid_out,
    lay_out,
    size_line,
    time_line,
)
from build_tools.workspace import Workspace


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    """Finished build folders, with artifacts of a few bytes."""
    folders = {}
    for kind, name in ARTIFACTS.items():
        folder = folders[kind] = tmp_path / f"wasm-{kind}"
        folder.mkdir()
        (folder / f"{name}.js").write_text(f"glue of {name}")
        (folder / f"{name}.wasm").write_bytes(b"\0asm" + name.encode() * 1000)
        command = {"file": f"/x/{SIMD_SOURCE}", "output": "quants.c.o"}
        (folder / "compile_commands.json").write_text(json.dumps([command]))
        (folder / "quants.c.o").write_text("")
        (folder / ".ninja_log").write_text("# ninja log v5\n0\t2500\t1\theadrace-st.js\tab\n")
    return folders


@pytest.fixture
def folder(folders: dict[str, Path]) -> Path:
    return folders["st"]


def test_a_build_with_simd_kernels_passes(folder: Path) -> None:
    check_simd("-- Wasm detected", folder)


def test_a_build_for_an_unknown_processor_fails(folder: Path) -> None:
    with pytest.raises(StepError, match="slow scalar kernels: ggml did not recognise the processor"):
        check_simd("CMake Warning: Unknown CPU architecture. Falling back to generic", folder)


def test_a_build_without_the_kernels_fails(folder: Path) -> None:
    (folder / "quants.c.o").unlink()
    with pytest.raises(StepError, match=r"arch/wasm/quants\.c was not compiled") as caught:
        check_simd("", folder)
    assert "EMSCRIPTEN_SYSTEM_PROCESSOR=wasm32" in caught.value.hint


def test_the_manifest_names_files_sizes_and_content(folders: dict[str, Path], tmp_path: Path) -> None:
    artifacts = tmp_path / "artifacts"
    lay_out(folders, artifacts, 1)
    manifest = json.loads((artifacts / "manifest.json").read_text())
    assert manifest["abiVersion"] == 1
    assert set(manifest["artifacts"]) == {"st", "mt"}
    build = manifest["build"]
    for kind, entry in manifest["artifacts"].items():
        assert entry == {
            "glue": f"{build}/headrace-{kind}.js",
            "wasm": f"{build}/headrace-{kind}.wasm",
            "bytes": (folders[kind] / f"headrace-{kind}.wasm").stat().st_size,
        }
        assert (artifacts / entry["glue"]).read_text() == f"glue of headrace-{kind}"


def test_a_build_has_a_folder_named_by_its_content(folders: dict[str, Path], tmp_path: Path) -> None:
    artifacts = tmp_path / "artifacts"

    def build() -> str:
        lay_out(folders, artifacts, 1)
        name: str = json.loads((artifacts / "manifest.json").read_text())["build"]
        assert {path.name for path in artifacts.iterdir()} == {"manifest.json", name}
        assert all(path.is_file() for path in laid_out(artifacts))
        return name

    first = build()
    assert len(first) == 16
    assert build() == first
    (folders["mt"] / "headrace-mt.js").write_text("other glue")
    (artifacts / "headrace-st.js").write_text("from before builds had folders")
    assert build() != first


def test_an_artifact_that_has_gone_is_missed(folders: dict[str, Path], tmp_path: Path) -> None:
    artifacts = tmp_path / "artifacts"
    assert laid_out(artifacts) == [artifacts / "manifest.json"]
    lay_out(folders, artifacts, 1)
    assert len(laid_out(artifacts)) == 5
    next(artifacts.glob("*/headrace-mt.wasm")).unlink()
    assert [path.name for path in laid_out(artifacts) if not path.exists()] == ["headrace-mt.wasm"]


def test_a_missing_artifact_is_an_error(folders: dict[str, Path], tmp_path: Path) -> None:
    (folders["mt"] / "headrace-mt.wasm").unlink()
    with pytest.raises(StepError, match="left no mt artifact"):
        lay_out(folders, tmp_path / "artifacts", 1)
    assert not (tmp_path / "artifacts" / "manifest.json").exists()


def test_sizes_and_times_are_told(folder: Path) -> None:
    line = size_line(folder, "headrace-st")
    assert line.startswith("headrace-st: 0.01 MB, gzip 0.00 MB, brotli 0.00 MB; glue ")
    assert time_line(folder, "headrace-st", 61.25) == "built in 61.2 s, link 2.5 s"
    (folder / ".ninja_log").write_text("# ninja log v5\n")
    assert time_line(folder, "headrace-st", 61.25) == "built in 61.2 s"


def test_abi_version_is_the_header_s(workspace: Workspace) -> None:
    assert abi_version(workspace) >= 1


@pytest.mark.wasm
def test_the_built_artifacts_are_what_the_manifest_says(artifacts_dir: Path, workspace: Workspace) -> None:
    manifest = json.loads((artifacts_dir / "manifest.json").read_text())
    assert manifest["abiVersion"] == abi_version(workspace)
    digest = hashlib.sha256()
    for entry in manifest["artifacts"].values():
        wasm = (artifacts_dir / entry["wasm"]).read_bytes()
        assert wasm[:8] == b"\0asm\1\0\0\0"
        assert len(wasm) == entry["bytes"]
        # What a page downloads; a debug build or an embedded model would be many times as large.
        assert len(gzip.compress(wasm, 1)) < 8_000_000
        digest.update((artifacts_dir / entry["glue"]).read_bytes())
        digest.update(wasm)
    assert manifest["build"] == digest.hexdigest()[:16]
