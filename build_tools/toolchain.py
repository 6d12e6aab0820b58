"""Finds Emscripten, or unpacks Debian stable's into the shared cache; and runs commands with it.

Counterpart: `wasm.py`, its only user. Not a package manager: an activated emsdk is used as it is, and only a
Debian-like machine's root can make the folder, because entering one needs mounts and chroot.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from build_tools.apt import (
    INSTALL,
    QUIET,
    Mirror,
    acquire_settings,
    ensure_apt_packages,
    is_debian_like,
    system_mirror,
)
from build_tools.errors import StepError
from build_tools.files import lock, remove_folder, write_atomically
from build_tools.progress import apt_progress
from build_tools.run import run_command
from build_tools.steps import Step, StepRun
from build_tools.workspace import Workspace

OLDEST = (3, 1, 69)
SUITE = "trixie"
PACKAGES = ("emscripten", "cmake", "ninja-build", "ccache")
SEARCH_PATH = "/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin"
ADVICE = (
    f"install Emscripten {'.'.join(map(str, OLDEST))} or newer with emsdk, activate it in this shell "
    "(source emsdk_env.sh, or set EMSDK), and run the same command again"
)

# Mounts are made in a mount namespace of the command's own: they end with it, whatever happens.
_ENTER = """
folder=$1; where=$2; mounts=$3; shift 3
while [ "$mounts" -gt 0 ]; do
  mkdir -p "$folder$1"
  mount --rbind "$1" "$folder$1"
  shift
  mounts=$((mounts - 1))
done
exec chroot "$folder" /bin/sh -c 'cd "$0" && exec "$@"' "$where" "$@"
"""


@dataclass(frozen=True)
class Toolchain:
    """An Emscripten that can be used now.

    identity: changes when its output might; part of what a build is made from.
    folder: root of a Debian system that holds it; None if it is on this machine.
    bin: folder of emcc on this machine, if `folder` is None.
    """

    identity: str
    folder: Path | None = None
    bin: Path | None = None

    def command(
        self, argv: Sequence[str | Path], env: Mapping[str, str], workspace: Workspace
    ) -> list[str | Path]:
        """The command line that runs `argv` in the clone, with `env` added, where this toolchain is found."""
        if self.folder is None:
            tools = (str(self.bin), str(workspace.environment / "bin"), os.environ.get("PATH", ""))
            path = os.pathsep.join(tools)
            return ["env", f"PATH={path}", *_pairs(env), *argv]
        compiler_cache = workspace.cache / "ccache"
        compiler_cache.mkdir(parents=True, exist_ok=True)
        # A clean environment: the host's CFLAGS, CC or CMAKE_… would reach the cross compiler.
        clean = ["env", "-i", f"PATH={SEARCH_PATH}", "HOME=/root", "LC_ALL=C.UTF-8", *_pairs(env)]
        return _entered(
            self.folder,
            workspace.root,
            [Path("/proc"), Path("/dev"), workspace.root, compiler_cache],
            [*clean, *argv],
        )

    def has_ccache(self) -> bool:
        """Whether ccache can be put before the compiler."""
        if self.folder is None:
            return shutil.which("ccache") is not None
        return (self.folder / "usr/bin/ccache").exists()


def _pairs(env: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in env.items()]


def _entered(
    folder: Path, where: Path, mounts: Sequence[Path], argv: Sequence[str | Path]
) -> list[str | Path]:
    unshare = ("unshare", "--mount", "--propagation", "private", "--")
    return [*unshare, "sh", "-euc", _ENTER, "enter", folder, where, str(len(mounts)), *mounts, *argv]


def parse_version(output: str) -> tuple[int, int, int] | None:
    """The version in the output of `emcc --version`; None if there is none."""
    match = re.search(r"^emcc .*?\b(\d+)\.(\d+)\.(\d+)", output, re.MULTILINE)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def find_installed(environment: Mapping[str, str]) -> Toolchain | None:
    """The Emscripten named by EMSDK, or one on PATH that is new enough; None if there is none.

    An old one on PATH is passed over (a distribution's package may be there for something else). Raises
    StepError if EMSDK names one that cannot be used: whoever set it expects it to be.
    """
    if emsdk := environment.get("EMSDK"):
        emcc = Path(emsdk) / "upstream" / "emscripten" / "emcc"
        if not os.access(emcc, os.X_OK):
            raise StepError(f"EMSDK is {emsdk}, but there is no {emcc}", hint=ADVICE)
    elif on_path := shutil.which("emcc", path=environment.get("PATH", "")):
        emcc = Path(on_path)
    else:
        return None
    output = run_command([emcc, "--version"], keep_stderr=False, check=False).output
    version = parse_version(output)
    if version is None or version < OLDEST:
        if emsdk:
            oldest = ".".join(map(str, OLDEST))
            raise StepError(f"{emcc} is older than {oldest} or does not start", hint=ADVICE)
        return None
    return Toolchain(identity=output.splitlines()[0], bin=emcc.parent)


def cached_folder(workspace: Workspace) -> Path:
    """Where the unpacked Emscripten of this recipe lies, or will lie."""
    recipe = hashlib.sha256(" ".join((SUITE, *PACKAGES)).encode()).hexdigest()[:8]
    return workspace.cache / "emscripten" / f"{SUITE}-{recipe}"


def find_toolchain(workspace: Workspace) -> Toolchain | None:
    """The toolchain that a build would use now, without installing anything; None if there is none."""
    if installed := find_installed(os.environ):
        return installed
    folder = cached_folder(workspace)
    stamp = folder / "headrace-complete"
    if stamp.is_file() and os.geteuid() == 0:
        return Toolchain(identity=stamp.read_text().strip(), folder=folder)
    return None


def toolchain_step(workspace: Workspace) -> Step:
    """The step after which `find_toolchain` finds one."""

    def is_current() -> bool:
        return find_toolchain(workspace) is not None

    def action(run: StepRun) -> str:
        if not is_debian_like():
            raise StepError("there is no Emscripten on this machine", hint=ADVICE)
        if os.geteuid() != 0:
            raise StepError("no Emscripten is active, and only root can unpack Debian's", hint=ADVICE)
        folder = cached_folder(workspace)
        with lock(folder.with_suffix(".lock"), run.say):
            # Another clone may have made it while this one waited.
            if not is_current():
                _unpack(run, folder)
        found = find_toolchain(workspace)
        assert found is not None
        return f"{found.identity} in {folder}"

    return Step("toolchain", "unpacking Debian's Emscripten (about 2.9 GB)", is_current, action)


def _unpack(run: StepRun, folder: Path) -> None:
    run.run(
        ["unshare", "--mount", "true"],
        hint=f"this machine does not let root make mounts (a container without that right?): {ADVICE}",
    )
    ensure_apt_packages(run, ["debootstrap"], "unpacking Debian's Emscripten")
    mirror = system_mirror(run)
    partial = folder.with_suffix(".partial")
    remove_folder(partial)
    partial.parent.mkdir(parents=True, exist_ok=True)

    run.progress(f"unpacking Debian {SUITE}")
    # debootstrap mounts /proc in its target, too.
    run.run(
        ["unshare", "--mount", "--propagation", "private", "--", *debootstrap_command(mirror, partial)],
        env=QUIET,
        parse=lambda line: line.removeprefix("I: ") if line.startswith("I: ") else None,
        hint="check the network and the free space (3 GB), then run the same command",
    )
    settings = acquire_settings(run_command(["apt-config", "dump", "Acquire"]).output)
    write_atomically(partial / "etc/apt/apt.conf.d/90host", "\n".join(settings) + "\n")
    for certificates in _certificate_files(settings):
        target = partial / certificates.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(certificates, target)

    def inside(*argv: str) -> list[str | Path]:
        command = ("env", f"PATH={SEARCH_PATH}", "HOME=/root", *argv)
        return _entered(partial, Path("/"), [Path("/proc"), Path("/dev")], command)

    run.run(inside(*INSTALL, *PACKAGES), env=QUIET, parse=apt_progress)
    run.run(inside("apt-get", "clean"), env=QUIET)
    output = run.run(inside("emcc", "--version"), env=QUIET).output
    if (version := parse_version(output)) is None or version < OLDEST:
        raise StepError(f"Debian {SUITE}'s Emscripten does not start or is too old", hint=ADVICE)
    write_atomically(partial / "headrace-complete", f"Emscripten {'.'.join(map(str, version))}\n")
    remove_folder(folder)
    partial.rename(folder)


def debootstrap_command(mirror: Mirror, target: Path) -> list[str]:
    """The command that unpacks a minimal Debian from this machine's own mirror."""
    secure = mirror.address.startswith("https:")
    return [
        "debootstrap",
        "--variant=minbase",
        *(["--include=ca-certificates"] if secure else []),
        *([f"--keyring={mirror.keyring}"] if mirror.keyring else []),
        SUITE,
        str(target),
        mirror.address,
    ]


def _certificate_files(settings: Sequence[str]) -> list[Path]:
    named = re.findall(r'::CaInfo "(/[^"]+)"', "\n".join(settings))
    return [path for path in map(Path, named) if path.is_file()]
