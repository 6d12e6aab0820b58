"""What the driver is made of, where the machine cannot have it, and the twin of the browser's folder."""

import sys
from pathlib import Path

import pytest

from build_tools import gpu_adapter
from build_tools.apt import Mirror
from build_tools.errors import StepError
from build_tools.gpu_adapter import (
    DEBIANS_CHROMIUM,
    MEMORY_LIMIT,
    REQUIRED,
    adapter_folder,
    apt_options,
    apt_sources,
    f16_obstacle,
    find_f16_chromium,
    gpu_adapter_step,
    link_without_swiftshader,
    parse_ldd,
    vulkan_environment,
)
from build_tools.progress import Reporter
from build_tools.steps import StepRun
from build_tools.workspace import Workspace

LDD = """\
\tlinux-vdso.so.1 (0x00007ffc)
\tlibLLVM-15.so.1 => /cache/a folder/tree/usr/lib/x86_64-linux-gnu/libLLVM-15.so.1 (0x00007f1)
\tlibdrm.so.2 => not found
\tlibstdc++.so.6 => /lib/x86_64-linux-gnu/libstdc++.so.6 (0x00007f2)
\t/lib64/ld-linux-x86-64.so.2 (0x00007f3)
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "clone", tmp_path / "cache")


@pytest.fixture
def chromium_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "chromium"
    (folder / "locales").mkdir(parents=True)
    for name in ("chromium", "libvk_swiftshader.so", "vk_swiftshader_icd.json", "locales/de.pak"):
        (folder / name).write_text(name)
    return folder


@pytest.fixture
def debian(chromium_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system with apt and Debian's Chromium."""
    monkeypatch.setattr(gpu_adapter, "is_debian_like", lambda: True)
    monkeypatch.setattr(gpu_adapter, "DEBIANS_FOLDER", chromium_folder)
    monkeypatch.delenv(REQUIRED, raising=False)


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_ldd_tells_where_a_library_is_and_what_is_missing() -> None:
    assert parse_ldd(LDD) == {
        "libLLVM-15.so.1": Path("/cache/a folder/tree/usr/lib/x86_64-linux-gnu/libLLVM-15.so.1"),
        "libdrm.so.2": None,
        "libstdc++.so.6": Path("/lib/x86_64-linux-gnu/libstdc++.so.6"),
    }


def test_the_packages_come_from_the_machine_s_own_mirror() -> None:
    assert apt_sources(Mirror("http://mirror.example/debian", "/k.gpg")) == (
        "deb [signed-by=/k.gpg] http://mirror.example/debian bookworm main\n"
        "deb [signed-by=/k.gpg] http://mirror.example/debian bookworm-backports main\n"
    )
    assert "[" not in apt_sources(Mirror("http://mirror.example/debian", ""))


def test_apt_writes_nowhere_but_in_its_folder(tmp_path: Path) -> None:
    settings = dict(option.removeprefix("-o").split("=", 1) for option in apt_options(tmp_path))
    folders = {name: path for name, path in settings.items() if name.startswith(("Dir::State", "Dir::Cache"))}
    assert {"Dir::State", "Dir::State::status", "Dir::Cache"} <= set(folders)
    assert all(Path(path).is_relative_to(tmp_path) for path in folders.values())


def test_the_recipe_is_part_of_the_folder_s_name(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = adapter_folder(workspace)
    monkeypatch.setattr(gpu_adapter, "PACKAGES", (*gpu_adapter.PACKAGES, "one-more"))
    other_packages = adapter_folder(workspace)
    layer = tmp_path / "layer.c"
    layer.write_text("other source")
    monkeypatch.setattr(gpu_adapter, "LAYER_SOURCE", layer)
    assert len({before, other_packages, adapter_folder(workspace)}) == 3


def test_the_twin_lacks_swiftshader_alone_and_shares_the_rest(chromium_folder: Path, tmp_path: Path) -> None:
    twin = link_without_swiftshader(chromium_folder, tmp_path / "adapter")
    assert names(twin) == {"chromium", "locales/de.pak"}
    assert (twin / "chromium").samefile(chromium_folder / "chromium")


def test_the_twin_is_a_copy_where_links_cannot_be(chromium_folder: Path, tmp_path: Path) -> None:
    def refuse(_original: Path, _copy: Path) -> None:
        raise OSError(18, "Invalid cross-device link")

    twin = link_without_swiftshader(chromium_folder, tmp_path / "adapter", refuse)
    assert names(twin) == {"chromium", "locales/de.pak"}
    assert not (twin / "chromium").samefile(chromium_folder / "chromium")
    assert (twin / "chromium").read_text() == "chromium"


def test_another_version_of_the_browser_replaces_the_twin(chromium_folder: Path, tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    first = link_without_swiftshader(chromium_folder, adapter)
    assert link_without_swiftshader(chromium_folder, adapter) == first
    (adapter / "chromium-interrupted.partial").mkdir()
    (chromium_folder / "chromium").unlink()
    (chromium_folder / "chromium").write_text("a newer one")
    second = link_without_swiftshader(chromium_folder, adapter)
    assert second != first
    assert list(adapter.iterdir()) == [second]
    assert (second / "chromium").read_text() == "a newer one"


@pytest.mark.usefixtures("debian")
def test_only_debian_s_chromium_can_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert f16_obstacle(DEBIANS_CHROMIUM) is None
    assert "another browser" in str(f16_obstacle(Path("/opt/google/chrome/chrome")))
    assert f16_obstacle(None) == "there is no Chromium"
    monkeypatch.setattr(gpu_adapter, "is_debian_like", lambda: False)
    assert "no apt" in str(f16_obstacle(DEBIANS_CHROMIUM))


@pytest.mark.usefixtures("debian")
def test_it_is_found_once_driver_and_twin_are_whole(workspace: Workspace, chromium_folder: Path) -> None:
    folder = adapter_folder(workspace)
    twin = link_without_swiftshader(chromium_folder, folder)
    assert find_f16_chromium(workspace, DEBIANS_CHROMIUM) is None
    (folder / "complete").write_text("Mesa 25")
    found = find_f16_chromium(workspace, DEBIANS_CHROMIUM)
    assert found is not None
    assert found.program == twin / "chromium"
    assert found.environment == vulkan_environment(folder)
    assert found.with_memory(2**20).environment == {**found.environment, MEMORY_LIMIT: "1048576"}
    assert find_f16_chromium(workspace, Path("/opt/google/chrome/chrome")) is None
    # The browser was upgraded: its twin is of the old version.
    (chromium_folder / "chromium").write_text("a newer one")
    assert find_f16_chromium(workspace, DEBIANS_CHROMIUM) is None


def test_where_it_cannot_be_the_set_up_goes_on_unless_it_is_required(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_adapter, "is_debian_like", lambda: False)
    monkeypatch.delenv(REQUIRED, raising=False)
    step = gpu_adapter_step(workspace)
    run = StepRun(step.name, workspace, Reporter(sys.stdout))
    assert not step.is_current()
    assert step.action(run).startswith("not on this machine, tests that need it are skipped: ")
    monkeypatch.setenv(REQUIRED, "1")
    with pytest.raises(StepError, match=f"has no apt; {REQUIRED} asks for it"):
        step.action(run)
