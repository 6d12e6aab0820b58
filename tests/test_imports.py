"""Which part may import which: the table of ARCHITECTURE.md, "Folders", for Python and JavaScript.

Counterpart: `tests/native/test_includes.py`, the same for C++. Types that only a comment imports (`@import`)
may point upwards, but for the ones from the worker.
"""

import ast
import re
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

REPO_ROOT = Path(__file__).resolve().parents[1]
WEB = REPO_ROOT / "web"

FOREIGN_TO: dict[str, set[str]] = {
    "build_tools": {"headrace", "tests", "bench", "serve"},
    "headrace": {"build_tools", "tests", "bench", "serve"},
    "bench": {"tests", "serve"},
}

# Importer → what it may import; the longest prefix of the importer's path counts, "" is web/ itself.
ALLOWED_IN_WEB: dict[str, set[str]] = {
    "": {"", "endpoints/", "models/store_client.js"},
    "endpoints/": {"", "endpoints/", "models/model_input.js", "models/persistence.js"},
    "worker/": {"worker/", "models/", "errors.js", "gpu_adapter.js"},
    "models/": {"models/", "errors.js", "vendor/"},
    "models/store_client.js": {"models/", "errors.js", "deferred.js"},
    "playground/": {"index.js", "playground/"},
}
# What may be imported from one of these places alone.
PAGES = {f"playground/{name}.js" for name in ("model_task", "models", "page", "playground")}
ONLY_FROM = {"index.js": PAGES, "client.js": {"index.js"}}

IMPORT = re.compile(r"^(?:import|export)\b[^;]*?\bfrom\s+\"([^\"]+)\"|^import\s+\"([^\"]+)\"", re.MULTILINE)
TYPE_IMPORT = re.compile(r"@import\s+\{[^}]*\}\s+from\s+\"([^\"]+)\"|\bimport\(\"([^\"]+)\"\)")


def python_files(folder: str) -> list[Path]:
    return sorted((REPO_ROOT / folder).rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    """The modules a file imports, by their full names; a relative import begins with a dot."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")


@pytest.mark.parametrize("folder", FOREIGN_TO)
def test_python_imports_point_where_they_may(folder: str) -> None:
    files = python_files(folder)
    assert files
    wrong = [
        f"{path.relative_to(REPO_ROOT)} imports {name}"
        for path in files
        for name in imported(path)
        if name.partition(".")[0] in FOREIGN_TO[folder]
    ]
    assert wrong == []


def test_the_build_needs_only_the_standard_library() -> None:
    known = {*sys.stdlib_module_names, "build_tools"}
    wrong = [
        f"{path.name} imports {name}"
        for path in python_files("build_tools")
        for name in imported(path)
        if name.partition(".")[0] not in known
    ]
    assert wrong == []


def test_there_are_no_relative_imports() -> None:
    files = [REPO_ROOT / "serve.py"]
    files += [
        path for folder in ("build_tools", "headrace", "bench", "tests") for path in python_files(folder)
    ]
    assert [str(path) for path in files for name in imported(path) if name.startswith(".")] == []


def javascript_imports(pattern: re.Pattern[str]) -> dict[str, set[str]]:
    """Script → scripts it imports, both relative to web/; what is no path of a file is left out."""
    graph = {}
    for path in sorted(WEB.rglob("*.js")):
        if "node_modules" in path.parts:
            continue
        targets = [first or second for first, second in pattern.findall(path.read_text(encoding="utf-8"))]
        graph[path.relative_to(WEB).as_posix()] = {
            (path.parent / target).resolve().relative_to(WEB).as_posix()
            for target in targets
            if target.startswith(".")
        }
    return graph


def may_import(importer: str, target: str) -> bool:
    if importer not in ONLY_FROM.get(target, {importer}):
        return False
    prefix = max((prefix for prefix in ALLOWED_IN_WEB if importer.startswith(prefix)), key=len)
    folder = target.rpartition("/")[0]
    return bool(ALLOWED_IN_WEB[prefix] & {target, f"{folder}/" if folder else ""})


@pytest.mark.parametrize(
    ("importer", "target"),
    [
        ("worker/tick_loop.js", "run.js"),
        ("models/gguf.js", "worker/artifact.js"),
        ("endpoints/local.js", "client.js"),
        ("endpoints/local.js", "worker/engine_port.js"),
        ("playground/playground.js", "client.js"),
        ("errors.js", "index.js"),
        ("client.js", "models/download.js"),
        ("endpoints/local.js", "models/model_store.js"),
    ],
)
def test_the_table_forbids(importer: str, target: str) -> None:
    assert not may_import(importer, target)


def test_javascript_imports_point_where_they_may() -> None:
    graph = javascript_imports(IMPORT)
    assert graph["index.js"] >= {"client.js", "errors.js"}
    assert graph["worker/engine_worker.js"] >= {"worker/engine_port.js", "errors.js"}
    missing = sorted({target for targets in graph.values() for target in targets if target not in graph})
    assert missing == []
    wrong = [
        f"{importer} imports {target}"
        for importer, targets in graph.items()
        for target in sorted(targets)
        if not may_import(importer, target)
    ]
    assert wrong == []


def test_javascript_imports_make_no_circle() -> None:
    TopologicalSorter(javascript_imports(IMPORT)).prepare()


def test_the_page_knows_of_the_worker_only_its_protocol() -> None:
    wrong = [
        f"{importer} takes types from {target}"
        for importer, targets in javascript_imports(TYPE_IMPORT).items()
        for target in targets
        if target.startswith("worker/")
        and not importer.startswith("worker/")
        and target != "worker/protocol.js"
    ]
    assert wrong == []
