"""Which Emscripten is taken, what its version is, and the command lines that reach it."""

import os
import subprocess
from pathlib import Path

import pytest

from build_tools import toolchain
from build_tools.apt import Mirror
from build_tools.errors import StepError
from build_tools.toolchain import (
    Toolchain,
    cached_folder,
    debootstrap_command,
    find_installed,
    find_toolchain,
    parse_version,
)
from build_tools.workspace import Workspace

NEW = "emcc (Emscripten gcc/clang-like replacement + linker emulating GNU ld) 3.1.69 (abc-git)"
OLD = "emcc (Emscripten gcc/clang-like replacement + linker emulating GNU ld) 3.1.6 ()"


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (NEW, (3, 1, 69)),
        (f"shared:INFO: sanity 1.2.3\n{OLD}\nCopyright (C) 2014", (3, 1, 6)),
        ("emcc (Emscripten gcc/clang-like replacement) 4.0.10-git", (4, 0, 10)),
        ("bash: emcc: command not found", None),
        ("", None),
    ],
)
def test_parse_version(output: str, expected: tuple[int, int, int] | None) -> None:
    assert parse_version(output) == expected


def make_emcc(folder: Path, says: str) -> Path:
    folder.mkdir(parents=True)
    emcc = folder / "emcc"
    emcc.write_text(f"#!/bin/sh\necho '{says}'\n")
    emcc.chmod(0o755)
    return folder


def test_emsdk_goes_before_path(tmp_path: Path) -> None:
    sdk = make_emcc(tmp_path / "sdk" / "upstream" / "emscripten", NEW)
    path = make_emcc(tmp_path / "bin", NEW)
    found = find_installed({"EMSDK": str(tmp_path / "sdk"), "PATH": str(path)})
    assert found == Toolchain(identity=NEW, bin=sdk)
    assert find_installed({"PATH": str(path)}) == Toolchain(identity=NEW, bin=path)
    assert find_installed({"PATH": str(tmp_path)}) is None


def test_an_old_emcc_on_path_is_passed_over_but_an_old_emsdk_is_an_error(tmp_path: Path) -> None:
    path = make_emcc(tmp_path / "bin", OLD)
    assert find_installed({"PATH": str(path)}) is None
    make_emcc(tmp_path / "sdk" / "upstream" / "emscripten", OLD)
    with pytest.raises(StepError, match=r"older than 3\.1\.69"):
        find_installed({"EMSDK": str(tmp_path / "sdk")})
    with pytest.raises(StepError, match="but there is no"):
        find_installed({"EMSDK": str(tmp_path / "nowhere")})


def test_only_a_complete_folder_is_a_toolchain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EMSDK", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    workspace = Workspace(tmp_path / "clone", tmp_path / "cache")
    folder = cached_folder(workspace)
    (folder / "usr" / "bin").mkdir(parents=True)
    assert find_toolchain(workspace) is None
    (folder / "headrace-complete").write_text("Emscripten 3.1.69\n")
    assert find_toolchain(workspace) == Toolchain(identity="Emscripten 3.1.69", folder=folder)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert find_toolchain(workspace) is None


def test_the_recipe_is_part_of_the_folder_s_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = Workspace(tmp_path, tmp_path)
    before = cached_folder(workspace)
    monkeypatch.setattr(toolchain, "PACKAGES", (*toolchain.PACKAGES, "one-more"))
    assert cached_folder(workspace) != before


def test_debootstrap_uses_the_machine_s_mirror_and_keys(tmp_path: Path) -> None:
    plain = debootstrap_command(Mirror("http://mirror.example/debian", "/k.gpg"), tmp_path)
    assert plain[-3:] == ["trixie", str(tmp_path), "http://mirror.example/debian"]
    assert "--keyring=/k.gpg" in plain
    secure = debootstrap_command(Mirror("https://mirror.example/debian", ""), tmp_path)
    assert "--include=ca-certificates" in secure


def test_an_installed_toolchain_runs_with_its_folder_and_the_environment_s_tools_on_path(
    tmp_path: Path,
) -> None:
    emscripten = make_emcc(tmp_path / "emscripten", NEW)
    workspace = Workspace(tmp_path / "clone", tmp_path / "cache")
    command = Toolchain(NEW, bin=emscripten).command(["sh", "-c", "echo $HR $PATH"], {"HR": "x y"}, workspace)
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert output.startswith(f"x y {emscripten}:{workspace.environment}/bin:")


def can_enter() -> bool:
    probe = ["unshare", "--mount", "true"]
    return os.geteuid() == 0 and subprocess.run(probe, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not can_enter(), reason="entering a folder needs root's right to make mounts")
def test_nothing_stays_mounted_in_the_folder(tmp_path: Path) -> None:
    # A folder with nothing but this machine's own programs, seen through the same mounts.
    folder = tmp_path / "folder"
    for name in ("usr", "etc"):
        (folder / name).mkdir(parents=True)
    for name in ("bin", "lib", "lib64"):
        (folder / name).symlink_to(f"usr/{name}")
    clone = tmp_path / "clone with space"
    clone.mkdir()
    script = (
        "pwd; echo $HR; test -e /proc/self/status && test -c /dev/null || exit 1; echo made > made; exit 7"
    )
    argv = ["sh", "-c", script]
    inner = toolchain._entered(
        folder, clone, [Path("/usr"), Path("/proc"), Path("/dev"), clone], ["env", "-i", "HR=ok", *argv]
    )
    before = Path("/proc/self/mountinfo").read_text()
    ended = subprocess.run(inner, capture_output=True, text=True, check=False)
    assert ended.stdout == f"{clone}\nok\n", ended.stderr
    assert ended.returncode == 7
    assert (clone / "made").read_text() == "made\n"
    assert list((folder / "proc").iterdir()) == []
    assert Path("/proc/self/mountinfo").read_text() == before
