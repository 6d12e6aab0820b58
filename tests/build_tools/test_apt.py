"""Which mirror is the system's own, which settings reach it, what is said where nothing may be installed."""

import os
import sys
from pathlib import Path

import pytest

from build_tools import apt
from build_tools.apt import (
    Mirror,
    acquire_settings,
    ensure_apt_packages,
    is_debian_like,
    missing_packages,
    parse_index_targets,
)
from build_tools.errors import StepError
from build_tools.progress import Reporter
from build_tools.steps import StepRun
from build_tools.workspace import Workspace

TARGETS = """\
Example|Example|main|bookworm|/k.gpg|https://third.example/debian/
Debian|Debian-Security|main|bookworm-security|/k.gpg|http://mirror.example/debian-security/
Debian|Debian|main|bookworm-updates|/k.gpg|http://mirror.example/debian/
Debian|Debian|contrib|bookworm|/k.gpg|http://mirror.example/debian/
Debian|Debian|main|bookworm|/usr/share/keyrings/k.gpg|http://mirror.example/debian/
Debian|Debian|main|bookworm|/k.gpg|http://second.example/debian/
"""


@pytest.fixture
def run(tmp_path: Path) -> StepRun:
    workspace = Workspace(tmp_path, tmp_path)
    workspace.logs.mkdir(parents=True)
    return StepRun("apt", workspace, Reporter(sys.stdout))


def test_the_mirror_is_that_of_the_main_archive() -> None:
    assert parse_index_targets(TARGETS) == Mirror("http://mirror.example/debian", "/usr/share/keyrings/k.gpg")


def test_an_unknown_keyring_is_left_to_apt() -> None:
    line = "Debian|Debian|main|stable|$(SIGNED_BY)|http://mirror.example/debian/"
    assert parse_index_targets(line) == Mirror("http://mirror.example/debian", "")


@pytest.mark.parametrize(
    "output",
    [
        "",
        "$(ORIGIN)|$(LABEL)|main|bookworm|$(SIGNED_BY)|http://mirror.example/debian/",
        "Ubuntu|Ubuntu|main|noble|/k.gpg|http://mirror.example/ubuntu/",
    ],
)
def test_no_mirror(output: str) -> None:
    assert parse_index_targets(output) is None


def test_only_settings_of_reaching_mirrors_are_carried_over() -> None:
    dump = """\
Acquire "";
Acquire::GzipIndexes "true";
Acquire::Check-Date "false";
Acquire::http "";
Acquire::http::Proxy "http://proxy.example:3128";
Acquire::http::Pipeline-Depth "";
Acquire::https::CaInfo "/etc/ssl/c.crt";
Acquire::Languages "none";
"""
    assert acquire_settings(dump) == [
        'Acquire::Check-Date "false";',
        'Acquire::http::Proxy "http://proxy.example:3128";',
        'Acquire::https::CaInfo "/etc/ssl/c.crt";',
    ]


needs_apt = pytest.mark.skipif(not is_debian_like(), reason="this system has no apt")


@needs_apt
def test_missing_packages_are_found_by_asking_dpkg() -> None:
    assert missing_packages(["dpkg", "hr-no-such-package", "libc6"]) == ["hr-no-such-package"]


@needs_apt
def test_what_is_installed_needs_no_rights(run: StepRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    ensure_apt_packages(run, ["dpkg"], "a test")


@needs_apt
def test_without_root_the_exact_command_is_told(run: StepRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(StepError, match="hr-no-such-package needed for a test, and only root") as caught:
        ensure_apt_packages(run, ["dpkg", "hr-no-such-package"], "a test")
    assert caught.value.hint == (
        "sudo sh -c 'apt-get update && apt-get install --yes --no-install-recommends hr-no-such-package'"
    )


def test_without_apt_the_packages_are_named(run: StepRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apt, "is_debian_like", lambda: False)
    with pytest.raises(StepError, match=r"chromium .* needed for a test; this system has no apt"):
        ensure_apt_packages(run, ["chromium"], "a test")


def test_an_interrupted_installation_is_ended_first(
    run: StepRun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With programs in place of apt's that write down how they were called; the first installation fails."""
    programs, calls = tmp_path / "bin", tmp_path / "calls"
    programs.mkdir()
    for name in ("apt-get", "dpkg", "dpkg-query"):
        program = programs / name
        program.write_text(
            f"#!/bin/sh\necho {name} $(printf '%s ' \"$@\") >> {calls}\n"
            f"[ {name} != apt-get ] || [ $(wc -l < {calls}) != 3 ]\n"
        )
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    ensure_apt_packages(run, ["hr-no-such-package"], "a test")
    told = calls.read_text().splitlines()
    assert [line.split()[0] for line in told] == ["dpkg-query", "dpkg", "apt-get", "apt-get", "apt-get"]
    assert told[1].endswith("--configure --pending")
    assert [line.split()[1] for line in told[2:]] == ["install", "update", "install"]
    assert all("DPkg::Lock::Timeout=120" in line for line in told[2:])
