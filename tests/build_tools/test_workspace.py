"""Where the cache is, by the environment; how paths are shown."""

from pathlib import Path

import pytest

from build_tools.workspace import Workspace, cache_root


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (
            {"HEADRACE_CACHE": "/a", "XDG_CACHE_HOME": "/b", "HOME": "/c"},
            "/a",
        ),
        ({"XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/b/headrace"),
        ({"HOME": "/c"}, "/c/.cache/headrace"),
        ({"HEADRACE_CACHE": "", "XDG_CACHE_HOME": "", "HOME": "/c"}, "/c/.cache/headrace"),
    ],
)
def test_cache_root(environment: dict[str, str], expected: str) -> None:
    assert cache_root(environment) == Path(expected)


def test_a_relative_cache_does_not_follow_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cache_root({"HEADRACE_CACHE": "here"}) == tmp_path / "here"


def test_shown_paths_are_what_a_person_types(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, Path("/elsewhere"))
    assert workspace.shown(workspace.logs / "wasm.log") == "build/logs/wasm.log"
    assert workspace.shown(workspace.cache / "x") == "/elsewhere/x"
