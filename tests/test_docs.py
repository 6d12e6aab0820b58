"""The documents tell the truth about files: what they name exists, and files stay small.

Not a test of the prose.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

REPO_ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "THIRD_PARTY_NOTICES.md"]
NAMED = re.compile(r"(?<![\w./-])((?:native|web|headrace|build_tools|tests|bench|docs)/[\w./{},-]+)")
LINKED = re.compile(r"\]\(([A-Z_]+(?:\.md)?)\)")
# "native/libheadrace.so" in the picture of build/ is not a source file.
GENERATED = {"native/libheadrace.so"}


def expand(name: str) -> list[str]:
    braces = re.fullmatch(r"(.*)\{([^}]+)\}(.*)", name)
    if not braces:
        return [name]
    return [f"{braces[1]}{choice}{braces[3]}" for choice in braces[2].split(",")]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_files_named_in_documents_exist(document: str) -> None:
    text = (REPO_ROOT / document).read_text(encoding="utf-8")
    names = {part for name in NAMED.findall(text) for part in expand(name.rstrip(".,"))}
    names |= set(LINKED.findall(text))
    missing = sorted(name for name in names - GENERATED if not list(REPO_ROOT.glob(name.rstrip("/") + "*")))
    assert missing == []


def test_no_source_file_is_past_500_lines() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPO_ROOT, capture_output=True, text=True, check=True
    )
    suffixes = {".py", ".js", ".h", ".cpp", ".css", ".html"}
    long = [
        name
        for name in listed.stdout.split("\0")
        if Path(name).suffix in suffixes
        and (REPO_ROOT / name).exists()
        and len((REPO_ROOT / name).read_text(encoding="utf-8").splitlines()) > 500
    ]
    assert long == []
