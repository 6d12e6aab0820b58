"""Builds the WebAssembly artifacts and lays them out as pages load them.

Counterpart: `host.py`, the same engine for CPython; ARCHITECTURE.md, "What the build leaves". Refuses a build
whose SIMD kernels are missing: ggml then computes the same, several times slower, without saying so.
"""

import gzip
import hashlib
import importlib
import json
import re
import time
from collections.abc import Mapping
from pathlib import Path

from build_tools.cmake import (
    CMakeBuild,
    build,
    build_seconds,
    common_options,
    compiled,
    native_inputs,
    require,
)
from build_tools.errors import StepError
from build_tools.files import content_hash, copy_atomically, remove_folder, write_atomically
from build_tools.steps import Step, StepRun, stamped_step
from build_tools.toolchain import find_toolchain
from build_tools.workspace import Workspace

ARTIFACTS = {"st": "headrace-st", "mt": "headrace-mt"}
"""Single-thread and pthread artifact: name in the manifest → file name. Each is compiled by itself."""

TARGETS = {"st": ("headrace", "headrace_webgpu_tests", "headrace_backend_ops"), "mt": ("headrace",)}
"""What is built of each. The tests of the GPU path, which only a browser can run, are built once."""

MANIFEST = "manifest.json"

SIMD_SOURCE = "ggml-cpu/arch/wasm/quants.c"


def wasm_step(workspace: Workspace) -> Step:
    """The step that leaves both artifacts and manifest.json in build/artifacts."""
    folders = {kind: workspace.build / f"wasm-{kind}" for kind in ARTIFACTS}

    def fingerprint() -> str:
        toolchain = find_toolchain(workspace)
        ours = content_hash(workspace.root, [Path(__file__), workspace.root / "build_tools" / "cmake.py"])
        return native_inputs(workspace, toolchain.identity if toolchain else "none", ours)

    def action(run: StepRun) -> str:
        toolchain = find_toolchain(workspace)
        if toolchain is None:
            raise StepError("there is no Emscripten", hint="python3 -m build_tools toolchain")
        seconds: dict[str, float] = {}
        for kind, folder in folders.items():
            started = time.monotonic()
            plan = CMakeBuild(
                folder=folder,
                identity=f"{toolchain.identity} {toolchain.folder or toolchain.bin}",
                options=[
                    *common_options(workspace, toolchain.has_ccache()),
                    # Emscripten's own default, x86, sends ggml to its generic scalar kernels.
                    "-DEMSCRIPTEN_SYSTEM_PROCESSOR=wasm32",
                    f"-DHR_ARTIFACT={kind}",
                ],
                targets=TARGETS[kind],
                command=lambda argv, env: toolchain.command(argv, env, workspace),
                wrapper=["emcmake"],
                label=f"{kind}: ",
            )
            check_simd(build(run, plan), folder)
            seconds[kind] = time.monotonic() - started
        lay_out(folders, workspace.artifacts, abi_version(workspace))
        run.progress("measuring")
        return "".join(
            f"\n  {size_line(folder, ARTIFACTS[kind])}; {time_line(folder, ARTIFACTS[kind], seconds[kind])}"
            for kind, folder in folders.items()
        )

    return stamped_step(
        workspace,
        "wasm",
        "compiling the engine to WebAssembly",
        fingerprint=fingerprint,
        outputs=laid_out(workspace.artifacts),
        action=action,
    )


def check_simd(output: str, folder: Path) -> None:
    """Raises StepError unless ggml's wasm SIMD kernels were compiled.

    output: what configuring and building said. folder: the finished build folder.
    """
    if "Unknown CPU architecture" in output:
        reason = "ggml did not recognise the processor (“Unknown CPU architecture”)"
    elif not compiled(folder, SIMD_SOURCE):
        reason = f"{SIMD_SOURCE} was not compiled"
    else:
        return
    raise StepError(
        f"the artifacts would run ggml's slow scalar kernels: {reason}",
        hint="pass -DEMSCRIPTEN_SYSTEM_PROCESSOR=wasm32 to CMake, then delete build/wasm-* and build again",
    )


def abi_version(workspace: Workspace) -> int:
    """HR_ABI_VERSION, as native/include/headrace.h defines it."""
    header = (workspace.root / "native" / "include" / "headrace.h").read_text()
    match = re.search(r"^#define HR_ABI_VERSION (\d+)", header, re.MULTILINE)
    if match is None:
        raise StepError("native/include/headrace.h does not define HR_ABI_VERSION")
    return int(match[1])


def lay_out(folders: Mapping[str, Path], artifacts: Path, version: int) -> None:
    """Puts glue and wasm where pages load them, then manifest.json, which names them; older builds go last.

    folders: "st" and "mt" → their finished build folders. The files lie in a folder named by their content:
    an address then never means two builds, not even for a pthread worker, which loads the glue by itself.
    """
    made = {
        kind: {"glue": folders[kind] / f"{name}.js", "wasm": folders[kind] / f"{name}.wasm"}
        for kind, name in ARTIFACTS.items()
    }
    digest = hashlib.sha256()
    for kind, files in made.items():
        for file in files.values():
            digest.update(require(file, f"{kind} artifact").read_bytes())
    build_name = digest.hexdigest()[:16]
    entries: dict[str, dict[str, str | int]] = {}
    for kind, files in made.items():
        for file in files.values():
            copy_atomically(file, artifacts / build_name / file.name)
        paths = {role: f"{build_name}/{file.name}" for role, file in files.items()}
        entries[kind] = {**paths, "bytes": files["wasm"].stat().st_size}
    manifest = {"abiVersion": version, "build": build_name, "artifacts": entries}
    write_atomically(artifacts / MANIFEST, json.dumps(manifest, indent=2) + "\n")
    for entry in artifacts.iterdir():
        if entry.is_dir() and entry.name != build_name:
            remove_folder(entry)
        elif entry.is_file() and entry.name != MANIFEST:
            entry.unlink()


def laid_out(artifacts: Path) -> list[Path]:
    """The manifest, and the files it names if it is there."""
    manifest = artifacts / MANIFEST
    entries = json.loads(manifest.read_text())["artifacts"].values() if manifest.is_file() else []
    return [manifest, *(artifacts / entry[role] for entry in entries for role in ("glue", "wasm"))]


def size_line(folder: Path, name: str) -> str:
    """What an artifact in its build folder weighs: bytes of the wasm as they are and compressed; the glue."""
    data = (folder / f"{name}.wasm").read_bytes()
    # Imported late: this module is also read before the environment with brotli exists.
    brotli = importlib.import_module("brotli")
    sizes = (len(data), len(gzip.compress(data, 6)), len(brotli.compress(data, quality=9)))
    raw, gzipped, brotlied = (f"{size / 1e6:.2f} MB" for size in sizes)
    glue = (folder / f"{name}.js").stat().st_size / 1e3
    return f"{name}: {raw}, gzip {gzipped}, brotli {brotlied}; glue {glue:.0f} kB"


def time_line(folder: Path, name: str, seconds: float) -> str:
    """How long an artifact took: seconds of compiling and linking together, and of its last link."""
    log = (folder / ".ninja_log").read_text()
    links = [link for suffix in ("js", "wasm") if (link := build_seconds(log, f"{name}.{suffix}"))]
    return f"built in {seconds:.1f} s" + (f", link {links[0]:.1f} s" if links else "")
