"""Builds the WebAssembly artifacts and lays them out as pages load them.

Counterpart: `host.py`, the same engine for CPython; ARCHITECTURE.md, "What the build leaves". Refuses a build
whose SIMD kernels are missing: ggml then computes the same, several times slower, without saying so.
"""

import gzip
import hashlib
import importlib
import json
import re
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
from build_tools.files import content_hash, copy_atomically, write_atomically
from build_tools.steps import Step, StepRun, stamped_step
from build_tools.toolchain import find_toolchain
from build_tools.workspace import Workspace

ARTIFACTS = {"st": "headrace-st", "mt": "headrace-mt"}
"""Single-thread and pthread artifact: name in the manifest → file name. Each is compiled by itself."""

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
        for kind, folder in folders.items():
            plan = CMakeBuild(
                folder=folder,
                identity=f"{toolchain.identity} {toolchain.folder or toolchain.bin}",
                options=[
                    *common_options(workspace, toolchain.has_ccache()),
                    # Emscripten's own default, x86, sends ggml to its generic scalar kernels.
                    "-DEMSCRIPTEN_SYSTEM_PROCESSOR=wasm32",
                    f"-DHR_ARTIFACT={kind}",
                ],
                targets=["headrace"],
                command=lambda argv, env: toolchain.command(argv, env, workspace),
                wrapper=["emcmake"],
                label=f"{kind}: ",
            )
            check_simd(build(run, plan), folder)
        lay_out(folders, workspace.artifacts, abi_version(workspace))
        run.progress("measuring")
        sizes = [
            size_line(workspace.artifacts, name, folders[kind] / ".ninja_log")
            for kind, name in ARTIFACTS.items()
        ]
        return "".join(f"\n  {line}" for line in sizes)

    names = [f"{name}.{kind}" for name in ARTIFACTS.values() for kind in ("js", "wasm")]
    return stamped_step(
        workspace,
        "wasm",
        "compiling the engine to WebAssembly",
        fingerprint=fingerprint,
        outputs=[workspace.artifacts / name for name in (*names, "manifest.json")],
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
    """folders: "st" and "mt" → their finished build folders.

    Copies glue and wasm to where pages load them, and writes manifest.json, which names them, last."""
    digest = hashlib.sha256()
    entries: dict[str, dict[str, str | int]] = {}
    for kind, name in ARTIFACTS.items():
        files = {"glue": f"{name}.js", "wasm": f"{name}.wasm"}
        for file in files.values():
            made = require(folders[kind] / file, f"{kind} artifact")
            digest.update(made.read_bytes())
            copy_atomically(made, artifacts / file)
        entries[kind] = {**files, "bytes": (artifacts / files["wasm"]).stat().st_size}
    manifest = {"abiVersion": version, "build": digest.hexdigest()[:16], "artifacts": entries}
    write_atomically(artifacts / "manifest.json", json.dumps(manifest, indent=2) + "\n")


def size_line(artifacts: Path, name: str, ninja_log: Path) -> str:
    """One line on an artifact: bytes of its wasm as they are and compressed, and how long linking took."""
    data = (artifacts / f"{name}.wasm").read_bytes()
    # Imported late: this module is also read before the environment with brotli exists.
    brotli = importlib.import_module("brotli")
    sizes = (len(data), len(gzip.compress(data, 6)), len(brotli.compress(data, quality=9)))
    raw, gzipped, brotlied = (f"{size / 1e6:.2f} MB" for size in sizes)
    glue = (artifacts / f"{name}.js").stat().st_size / 1e3
    text = f"{name}: {raw}, gzip {gzipped}, brotli {brotlied}; glue {glue:.0f} kB"
    for output in (f"{name}.js", f"{name}.wasm"):
        if seconds := build_seconds(ninja_log.read_text(), output):
            return f"{text}; linked in {seconds:.1f} s"
    return text
