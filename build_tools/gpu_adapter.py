"""A WebGPU adapter with shader-f16 for headless Chromium on a machine without a GPU: Mesa's software driver.

Counterparts: `gpu_adapter_layer.c`, the Vulkan layer that is compiled here; the browser tests and `bench/`,
which start what `find_f16_chromium` gives. Changes nothing outside the shared cache: Debian's packages are
unpacked, not installed. Not for people's browsing, and no measure of a GPU's speed.

Debian's Chromium has a software adapter of its own, SwiftShader, but that one lacks shader-f16. It takes a
driver in its place if SwiftShader's file is not there and the driver goes by SwiftShader's numbers. Hence a
twin of the browser's folder without that file, a driver, and a layer that tells the numbers. The layer can
also limit the driver's memory, so that a test can fill it.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from build_tools.apt import QUIET, Mirror, ensure_apt_packages, is_debian_like, system_mirror
from build_tools.chromium import find_chromium
from build_tools.errors import StepError
from build_tools.files import lock, remove_folder, write_atomically
from build_tools.steps import Step, StepRun
from build_tools.workspace import Workspace

REQUIRED = "HEADRACE_REQUIRE_GPU_ADAPTER"
"""Environment variable: when set, a machine that cannot have the adapter fails its set-up."""

SUITES = ("bookworm", "bookworm-backports")
"""Debian's releases that the driver comes from, on newer ones too; of two versions the newest is taken."""

HEADERS = "libvulkan-dev"
PACKAGES = (
    *(
        "mesa-vulkan-drivers",
        "libdrm2",
        "libllvm15",
        "libz3-4",
        "libedit2",
        "libtinfo6",
        "libxml2",
        "libicu72",
    ),
    *("libwayland-client0", "libxcb-dri3-0", "libxcb-present0", "libxcb-randr0", "libxcb-sync1"),
    *("libxcb-xfixes0", "libxshmfence1", HEADERS),
)
"""The driver, what it needs beyond the libraries that Chromium needs as well, and Vulkan's headers."""

OLDEST_MESA = 24
"""What Chromium's WebGPU accepts; bookworm's own Mesa 22.3 is refused by it."""

DEBIANS_CHROMIUM = Path("/usr/bin/chromium")
DEBIANS_FOLDER = Path("/usr/lib/chromium")
SWIFTSHADER_FILES = ("libvk_swiftshader.so", "vk_swiftshader_icd.json")
MEMORY_LIMIT = "HEADRACE_GPU_MEMORY_BYTES"  # the layer reads it
LAYER_NAME = "VK_LAYER_HEADRACE_disguise"
LAYER_SOURCE = Path(__file__).with_name("gpu_adapter_layer.c")

# The flag that lets pages use an adapter that is no GPU; the name stands for whichever driver answers to it.
ARGUMENTS = ("--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader")


@dataclass(frozen=True)
class GpuChromium:
    """How to start a Chromium whose pages have a WebGPU adapter.

    arguments: beside those that every Chromium of ours is started with.
    environment: additions to this process's environment.
    """

    program: Path
    arguments: Sequence[str] = ARGUMENTS
    environment: Mapping[str, str] = field(default_factory=dict)

    def with_memory(self, limit_bytes: int) -> "GpuChromium":
        """The same with a GPU memory that ends there, for all its pages together; Mesa's driver only.

        Chromium takes it in blocks of some MB and needs a few itself.
        """
        return replace(self, environment={**self.environment, MEMORY_LIMIT: str(limit_bytes)})


def swiftshader_chromium(chromium: Path) -> GpuChromium:
    """The same Chromium with its own software adapter, which has no shader-f16."""
    return GpuChromium(chromium)


def f16_obstacle(chromium: Path | None) -> str | None:
    """Why this machine cannot have the adapter with shader-f16, in one sentence; None if it can."""
    if not is_debian_like():
        return "the adapter is made of Debian's packages, and this system has no apt"
    if chromium is None:
        return "there is no Chromium"
    if chromium.resolve() != DEBIANS_CHROMIUM or not (DEBIANS_FOLDER / "chromium").is_file():
        return f"the adapter is for Debian's Chromium, {DEBIANS_CHROMIUM}, and {chromium} is another browser"
    return None


def adapter_folder(workspace: Workspace) -> Path:
    """Where the driver and layer of this recipe lie, or will lie."""
    recipe = hashlib.sha256(" ".join((*SUITES, *PACKAGES)).encode() + LAYER_SOURCE.read_bytes()).hexdigest()
    return workspace.cache / "gpu-adapter" / recipe[:8]


def find_f16_chromium(workspace: Workspace, chromium: Path | None) -> GpuChromium | None:
    """How to start Chromium with a shader-f16 adapter; None where the set-up has not made it."""
    if f16_obstacle(chromium) is not None:
        return None
    folder = adapter_folder(workspace)
    twin = _twin(folder, DEBIANS_FOLDER)
    if not (folder / "complete").is_file() or not (twin / "chromium").is_file():
        return None
    return GpuChromium(twin / "chromium", environment=vulkan_environment(folder))


def vulkan_environment(folder: Path) -> dict[str, str]:
    """The environment in which Vulkan's loader finds the driver and the layer in `folder`, and no others."""
    return {
        "VK_DRIVER_FILES": str(folder / "driver.json"),
        "VK_LAYER_PATH": str(folder / "layer"),
        "VK_INSTANCE_LAYERS": LAYER_NAME,
        "LD_LIBRARY_PATH": str(folder / "lib"),
    }


def gpu_adapter_step(workspace: Workspace) -> Step:
    """The step after which `find_f16_chromium` finds it, where the machine can have it."""
    folder = adapter_folder(workspace)

    def is_current() -> bool:
        return find_f16_chromium(workspace, find_chromium()) is not None

    def action(run: StepRun) -> str:
        if (reason := f16_obstacle(find_chromium())) is not None:
            if os.environ.get(REQUIRED):
                raise StepError(f"{reason}; {REQUIRED} asks for it", hint="apt-get install chromium")
            return f"not on this machine, tests that need it are skipped: {reason}"
        with lock(folder.with_suffix(".lock"), run.say):
            # Another clone may have made it while this one waited.
            if not (folder / "complete").is_file():
                _make(run, folder)
            run.progress("linking Chromium's files")
            link_without_swiftshader(DEBIANS_FOLDER, folder)
        return str(folder)

    return Step("gpu-adapter", "getting Mesa's software GPU driver (44 MB)", is_current, action)


def _make(run: StepRun, folder: Path) -> None:
    partial = folder.with_suffix(".partial")
    remove_folder(partial)
    tree = partial / "tree"
    tree.mkdir(parents=True)
    mesa = _unpack(run, partial, tree)
    run.progress("sorting libraries")
    _keep_libraries(run, tree, partial / "lib")
    _write_manifests(partial)
    run.progress("compiling the layer")
    compiler = _compiler(run)
    library = partial / "layer" / "libdisguise.so"
    flags = ("-std=c11", "-shared", "-fPIC", "-O2", "-Wall", "-Werror", f"-I{tree}/usr/include")
    run.run([compiler, *flags, "-o", library, LAYER_SOURCE])
    remove_folder(tree)
    write_atomically(partial / "complete", f"Mesa {mesa}\n")
    remove_folder(folder)
    partial.rename(folder)


def _unpack(run: StepRun, partial: Path, tree: Path) -> str:
    """Downloads and unpacks the packages; returns Mesa's version."""
    mirror = system_mirror(run)
    apt = partial / "apt"
    for name in ("lists/partial", "archives/partial"):
        (apt / name).mkdir(parents=True)
    write_atomically(apt / "status", "")
    write_atomically(apt / "sources.list", apt_sources(mirror))
    private = ["apt-get", "-q", *apt_options(apt)]
    hint = f"check the network, and that this machine's Debian mirror has {SUITES[-1]}"
    run.progress("downloading the lists of packages")
    run.run([*private, "update"], env=QUIET, hint=hint)
    run.progress("downloading the driver")
    downloads = apt / "archives"
    run.run(
        [*private, "download", f"--target-release={SUITES[-1]}", *PACKAGES],
        cwd=downloads,
        env=QUIET,
        hint=hint,
    )
    version = ""
    for package in sorted(downloads.glob("*.deb")):
        name = package.name.split("_")[0]
        run.progress(f"unpacking {name}")
        run.run(["dpkg", "--extract", package, tree])
        if name == PACKAGES[0]:
            version = package.name.split("_")[1]
    if not version or int(version.split(".")[0]) < OLDEST_MESA:
        raise StepError(
            f"{SUITES[-1]} offers Mesa {version or 'not at all'}; version {OLDEST_MESA} or newer is needed",
            hint=hint,
        )
    remove_folder(apt)
    return version


def apt_sources(mirror: Mirror) -> str:
    """The sources.list of a private apt that looks into `SUITES` at this machine's own mirror."""
    options = f"[signed-by={mirror.keyring}] " if mirror.keyring else ""
    return "".join(f"deb {options}{mirror.address} {suite} main\n" for suite in SUITES)


def apt_options(folder: Path) -> list[str]:
    """With these, apt keeps everything it writes in `folder` and knows only the sources there.

    How the mirror is reached (proxies, certificates, passwords) stays the machine's own.
    """
    settings = {
        "Dir::State": folder,
        "Dir::State::status": folder / "status",
        "Dir::State::lists": folder / "lists",
        "Dir::Cache": folder,
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::Etc::preferences": "/dev/null",
        "Dir::Etc::preferencesparts": "/dev/null",
        # apt's own user could not write into a cache in root's home.
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
    }
    return [f"-o{name}={value}" for name, value in settings.items()]


def _keep_libraries(run: StepRun, tree: Path, target: Path) -> None:
    """Moves the driver and those libraries of the tree that it needs; the rest is other hardware's."""
    drivers = list(tree.glob("usr/lib/*/libvulkan_lvp.so"))
    if len(drivers) != 1:
        raise StepError(f"{PACKAGES[0]} of {SUITES[-1]} has no software driver libvulkan_lvp.so")
    (driver,) = drivers
    search = os.pathsep.join(str(folder / driver.parent.name) for folder in (tree / "usr/lib", tree / "lib"))
    needed = parse_ldd(run.run(["ldd", driver], env={"LD_LIBRARY_PATH": search}).output)
    if missing := [name for name, path in needed.items() if path is None]:
        raise StepError(
            f"the driver needs {', '.join(missing)}, which neither this system nor its packages have"
        )
    target.mkdir()
    driver.rename(target / driver.name)
    for name, path in needed.items():
        if path is not None and path.is_relative_to(tree):
            path.resolve().rename(target / name)


def parse_ldd(output: str) -> dict[str, Path | None]:
    """Library → where the loader finds it, from the output of `ldd`; None if nowhere."""
    found = re.findall(r"^\s*(\S+) => (?:(/.+) \(0x|not found)", output, re.MULTILINE)
    return {name: Path(path) if path else None for name, path in found}


def _write_manifests(folder: Path) -> None:
    driver = {"library_path": "./lib/libvulkan_lvp.so", "api_version": "1.4.0"}
    write_atomically(folder / "driver.json", json.dumps({"file_format_version": "1.0.0", "ICD": driver}))
    layer = {
        "name": LAYER_NAME,
        "type": "GLOBAL",
        "library_path": "./libdisguise.so",
        "api_version": "1.3.0",
        "implementation_version": "1",
        "description": "a software driver by SwiftShader's numbers",
    }
    manifest = json.dumps({"file_format_version": "1.1.2", "layer": layer})
    write_atomically(folder / "layer" / "disguise.json", manifest)


def _compiler(run: StepRun) -> str:
    if shutil.which("cc") is None:
        ensure_apt_packages(run, ["gcc", "libc6-dev"], "compiling a Vulkan layer for tests")
    return "cc"


def link_without_swiftshader(
    source: Path, folder: Path, link: Callable[[Path, Path], None] = os.link
) -> Path:
    """Makes a twin of Chromium's folder `source` without SwiftShader in `folder`, unless it is there.

    Chromium looks for its files beside its program, so these must be the files themselves: hard links, or
    copies where those cannot be (another file system). Twins of former versions are deleted.
    """
    twin = _twin(folder, source)
    partial = twin.with_suffix(".partial")
    for former in (*folder.glob("chromium-*.partial"), *folder.glob("chromium-*")):
        if former != twin:
            remove_folder(former)
    if twin.is_dir():
        return twin

    def link_or_copy(original: str, copy: str) -> None:
        try:
            link(Path(original), Path(copy))
        except OSError:
            shutil.copy2(original, copy)

    shutil.copytree(
        source,
        partial,
        ignore=shutil.ignore_patterns(*SWIFTSHADER_FILES),
        copy_function=link_or_copy,
    )
    partial.rename(twin)
    return twin


def _twin(folder: Path, source: Path) -> Path:
    """The twin's folder; its name changes with the browser's version."""
    digest = hashlib.sha256()
    for path in sorted(source.rglob("*")):
        status = path.stat()
        if path.is_file():
            digest.update(f"{path.relative_to(source)} {status.st_size} {status.st_mtime_ns}\0".encode())
    return folder / f"chromium-{digest.hexdigest()[:8]}"
