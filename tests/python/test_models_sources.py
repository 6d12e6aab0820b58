"""URLs, hf: and shard names lead to the same files and keys in Python and JavaScript.

Counterparts: `headrace/models/sources.py`, `web/models/sources.js`.
"""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import HeadraceError
from headrace.models.shard_names import shard_names
from headrace.models.sources import is_stored_id, resolve_remote
from tests.python.models_twins import in_javascript, in_python

HUB = "https://huggingface.co/owner/repo/resolve/main"
SITE = "https://site.example/models"
TRIO = [f"{SITE}/m-{number:05}-of-00003.gguf" for number in (1, 2, 3)]
A, B, C = ("a" * 64, "b" * 64, "c" * 64)


@pytest.fixture(autouse=True)
def _no_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_ENDPOINT", raising=False)


def refusal(source: Any, **options: Any) -> HeadraceError:
    with pytest.raises(HeadraceError) as caught:
        resolve_remote(source, **options)
    assert caught.value.code == "invalid_option"
    assert "\n" not in caught.value.message
    return caught.value


@pytest.mark.parametrize(
    ("source", "url"),
    [
        ("hf:owner/repo/m.gguf", f"{HUB}/m.gguf"),
        ("hf:owner/repo/a/b c/m.GGUF", f"{HUB}/a/b%20c/m.GGUF"),
        ("hf:owner/repo/m.gguf@v1", f"{HUB.removesuffix('main')}v1/m.gguf"),
        ("hf:owner/repo/a/m.gguf@refs/pr/1", f"{HUB.removesuffix('main')}refs%2Fpr%2F1/a/m.gguf"),
        ("https://huggingface.co/owner/repo/blob/main/m.gguf", f"{HUB}/m.gguf"),
    ],
)
def test_hf(source: str, url: str) -> None:
    assert resolve_remote(source).files[0].url == url


@pytest.mark.parametrize(
    "source", ["hf:owner/repo", "hf:", "hf:owner/repo/", "hf:owner/repo/../m.gguf", "hf:m"]
)
def test_hf_without_a_file_says_what_is_needed(source: str) -> None:
    assert "hf:owner/repo/file.gguf" in refusal(source).message


def test_hf_leads_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "https://mirror.example/hub/")
    url = "https://mirror.example/hub/o/r/resolve/main/m.gguf"
    assert resolve_remote("hf:o/r/m.gguf").files[0].url == url
    other = resolve_remote("hf:o/r/m.gguf", hugging_face="https://other.example").files[0].url
    assert other.startswith("https://other.example/o/r/")


def test_names_that_are_odd() -> None:
    """Case F13."""
    for name in ("model-00001-of-00001.gguf", "MODEL.GGUF", "m-00004-of-00003.gguf", "m-1-of-3.gguf"):
        model = resolve_remote(f"{SITE}/{name}")
        assert [file.name for file in model.files] == [model.name] == [name]
    file = resolve_remote(f"{SITE}/m.gguf?download=true#there").files[0]
    plain = resolve_remote(f"{SITE}/m.gguf").files[0]
    assert file.key == plain.key == hashlib.sha256(f"{SITE}/m.gguf".encode()).hexdigest()
    assert file.name == "m.gguf"
    assert file.display == f"{SITE}/m.gguf"
    assert file.url == f"{SITE}/m.gguf?download=true"
    assert resolve_remote(f"{SITE}/m.gguf?v=2").files[0].key != plain.key
    upper = resolve_remote(f"{SITE}/M-00002-OF-00003.GGUF?download=true")
    assert [file.name for file in upper.files] == [f"M-0000{number}-OF-00003.GGUF" for number in (1, 2, 3)]
    assert all(file.url.endswith("?download=true") for file in upper.files)


def test_any_shard_stands_for_all() -> None:
    """Case F11."""
    for source in TRIO:
        model = resolve_remote(source)
        assert [file.url for file in model.files] == TRIO
        assert model.name == "m.gguf"
        assert model.key == model.files[0].key


def test_a_list_in_any_order() -> None:
    """Case F10; the digests come along."""
    model = resolve_remote([TRIO[2], TRIO[0], TRIO[1]], sha256=[C, A, None])
    assert [file.url for file in model.files] == TRIO
    assert [file.sha256 for file in model.files] == [A, None, C]
    unnamed = [f"{SITE}/3", f"{SITE}/1"]
    assert [file.url for file in resolve_remote(unnamed).files] == unnamed


def test_a_shard_missing_from_a_list() -> None:
    """Case F14: before anything is downloaded."""
    error = refusal([TRIO[0], TRIO[2]])
    assert error.message == "the list lacks m-00002-of-00003.gguf"
    assert error.detail["missing"] == ["m-00002-of-00003.gguf"]
    assert "twice" in refusal([*TRIO[:2], TRIO[1]]).message
    assert "different models" in refusal([*TRIO[:2], f"{SITE}/n-00003-of-00003.gguf"]).message
    assert "3 shards" in refusal([*TRIO, f"{SITE}/n.gguf"]).message


def test_secrets_are_not_shown() -> None:
    """Case D10: neither in what is shown nor in the key."""
    source = "https://user:pa%20ss@site.example/m.gguf?token=secret"
    file = resolve_remote(source, headers={"X-Token": "secret"}).files[0]
    assert file.headers == {"X-Token": "secret", "Authorization": "Basic dXNlcjpwYSBzcw=="}
    assert file.key == resolve_remote("https://site.example/m.gguf?token=secret").files[0].key
    assert "secret" not in repr(file) + file.display
    assert "pa" not in repr(file).replace("sha256", "")
    assert "Basic" not in file.display + file.url
    own = resolve_remote(source, headers={"authorization": "Bearer x"}).files[0]
    assert own.headers == {"authorization": "Bearer x"}
    assert "secret" not in refusal("user:secret@site.example/m.gguf").message
    assert "secret" not in refusal("//user:secret@[/m.gguf?secret").message


def test_digests_are_checked() -> None:
    assert resolve_remote(f"{SITE}/m.gguf", sha256="A" * 64).files[0].sha256 == A
    assert "64 hexadecimal" in refusal(f"{SITE}/m.gguf", sha256="sha256:" + A).message
    assert "3 files" in refusal(TRIO[0], sha256=A).message


def test_stored_ids() -> None:
    assert is_stored_id("sha256-" + A)
    assert not any(map(is_stored_id, ["sha256-" + "A" * 64, "sha256-a", "sha256-" + A + "\n", A]))
    assert "stored model" in refusal("sha256-" + A).message


def test_shard_names() -> None:
    found = shard_names("a-00002-of-00002.gguf")
    assert found is not None
    assert (found.number, found.total) == (2, 2)
    assert found.names == ["a-00001-of-00002.gguf", "a-00002-of-00002.gguf"]
    assert shard_names("a-00000-of-00002.gguf") is None
    assert shard_names("a-00001-of-00002.gguf\n") is None


SOURCES: list[Any] = [
    "hf:owner/repo/m.gguf",
    "hf:owner/repo/d/ü (1)'*!~#?.gguf@refs/pr/1",
    "hf:owner/repo/m@2.gguf",
    "hf://owner/repo/m-00002-of-00003.gguf",
    "hf:owner/repo",
    "hf:owner/repo/readme.md",
    "HTTPS://Site.EXAMPLE:443/a/../b/./%2e%2e/c/m.gguf",
    "http://site.example:80",
    "http://site.example:8080/x/..",
    " https://site.example/a b/m\t.gguf?q=a b'\"<>`{}|^#frag ",
    'https://site.example/ä{}|^`"<>[]/m.gguf?ä=ö&download=1&download&x=download',
    "https://site.example/m.gguf?download=true",
    "https://site.example/m.gguf?",
    "https://site.example/m.gguf?&download=1",
    "https://site.example/%zz%20.gguf",
    "https://site.example/%ff.gguf",
    "https://site.example/a\\b.gguf",
    "https://ünï.example/m.gguf",
    "https://u%40x:p%3a%ff@site.example/m.gguf",
    "https://user@site.example/m.gguf",
    "https://[::1]:8080/m.gguf",
    "https:///site.example/m.gguf",
    "https://",
    "https://a b/m.gguf",
    "https://site.example:99999/m.gguf",
    "ftp://site.example/m.gguf",
    "file:///m.gguf",
    "m.gguf",
    "",
    "https://huggingface.co/o/r/blob/main/m.gguf?download=true",
    "sha256-" + A,
    "https://site.example/M-00002-OF-00003.GGUF?download=true",
    "https://site.example/m-00001-of-00001.gguf",
    [],
    TRIO[::-1],
    TRIO[:2],
    [*TRIO, TRIO[0]],
    [TRIO[0], f"{SITE}/x", f"{SITE}/y"],
    [TRIO[0], f"{SITE}/x"],
    [f"{SITE}/y", f"{SITE}/x"],
]


def test_javascript_resolves_the_same(node: Path) -> None:
    cases = [{"source": source} for source in SOURCES]
    cases += [{"source": source, "huggingFace": "http://127.0.0.1:8000/hub/"} for source in SOURCES[:6]]
    cases += [
        {"source": TRIO[1:] + TRIO[:1], "sha256": [B, C, A], "headers": {"Authorization": "Bearer x"}},
        {"source": TRIO[0], "sha256": [A, None]},
        {"source": TRIO[0], "sha256": "x"},
    ]
    answers = in_javascript(node, sources=cases)["sources"]
    for case, answer, expected in zip(cases, answers, in_python(sources=cases)["sources"], strict=True):
        if "error" in expected:
            assert answer["error"]["code"] == expected["error"]["code"], case
        assert answer == expected, case
