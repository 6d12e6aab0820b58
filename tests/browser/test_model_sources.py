"""Sets of files and how they are named, from the web and from the user's disk: cases F10 to F14.

Counterparts: web/models/sources.js, split.js.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.browser.downloads import NOISE, answer, assert_refused, download
from tests.browser.profiles import Origin
from tests.browser.tab import Tab
from tests.fault_server import FaultServer
from tests.gguf_builder import parrot, write_shards
from tests.large_gguf import TEMPLATE

pytestmark = pytest.mark.browser

FETCHED = """async (urls, as) => Promise.all(urls.map(async (url) => {
  const bytes = await (await fetch(url)).arrayBuffer();
  return as === "blob" ? new Blob([bytes]) : new File([bytes], url.split("/").pop());
}))"""
USE_FILES = f"""async ({{ urls, as, how }}) => {{
  const files = await ({FETCHED})(urls, as);
  const given = files.length === 1 ? files[0] : files;
  const model = how === "import" ? await told(client.models.import(given)) : {{ value: given }};
  if (model.error) return model;
  const endpoint = Endpoint.local({{ model: model.value, threads: 1, context: {{ size: 256 }} }});
  const added = await told(client.add("model", endpoint));
  if (added.error) return added;
  return (await client.query("model", ">", {{ maxTokens: 6, temperature: 0 }}).response).text;
}}"""


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    return write_shards(parrot([b"a", b"b", b"c"], template=TEMPLATE), 3, tmp_path, "abc")


@pytest.fixture
def urls(faults: FaultServer, shards: list[Path]) -> list[str]:
    """The three shards, published; the log is empty."""
    return [faults.serve(f"/set/{path.name}", path).url for path in shards]


def use_files(tab: Tab, urls: list[str], how: str, kind: str = "file") -> Any:
    return tab.run(USE_FILES, {"urls": urls, "as": kind, "how": how})


@pytest.mark.parametrize("how", ["import", "in place"])
@pytest.mark.parametrize("kind", ["file", "blob"])
def test_shards_of_the_user_in_any_order(site: Origin, urls: list[str], how: str, kind: str) -> None:
    """Case F10: as files, and as Blobs without names."""
    assert use_files(site.open(), [urls[2], urls[0], urls[1]], how, kind) == "abcabc"


def test_shards_of_the_web_in_any_order(site: Origin, urls: list[str]) -> None:
    """Case F10."""
    tab = site.open()
    assert answer(tab, [urls[2], urls[0], urls[1]]) == "abcabc"
    (model,) = tab.run("() => client.models.list()")
    assert len(model["files"]) == 3


@pytest.mark.parametrize("chosen", [0, 1, 2])
def test_one_shard_of_the_web_stands_for_all(
    site: Origin, faults: FaultServer, urls: list[str], chosen: int
) -> None:
    """Case F11: the names of the others follow from its own."""
    tab = site.open()
    assert answer(tab, urls[chosen]) == "abcabc"
    assert {exchange.path for exchange in faults.requests()} == {f"/set/{url.split('/')[-1]}" for url in urls}
    before = len(faults.log)
    assert answer(tab, urls[(chosen + 1) % 3]) == "abcabc"
    assert len(faults.log) == before


@pytest.mark.parametrize("how", ["import", "in place"])
def test_one_shard_of_the_user_is_not_enough(site: Origin, urls: list[str], how: str) -> None:
    """Cases F11 and F14: the error names what is missing."""
    outcome = use_files(site.open(), [urls[1]], how)
    assert outcome["error"]["code"] == "invalid_request"
    assert "2" in outcome["error"]["message"]
    assert "1" in outcome["error"]["message"]
    assert "3" in outcome["error"]["message"]


@pytest.mark.parametrize("given", [[0, 2], [0, 1, 1], [0, 1, 2, 2]], ids=["missing", "doubled", "extra"])
def test_a_set_that_is_not_whole_is_refused_before_anything_is_fetched(
    site: Origin, faults: FaultServer, urls: list[str], given: list[int]
) -> None:
    """Case F14: the names tell."""
    tab = site.open()
    outcome = download(tab, [urls[index] for index in given])
    message = assert_refused(outcome, "invalid_option")
    assert ("00003-of-00003" if given == [0, 1, 2, 2] else "00002-of-00003") in message
    assert faults.log == []


def test_a_shard_that_the_server_lacks(site: Origin, faults: FaultServer, urls: list[str]) -> None:
    """Case F14: the status, and which of them it is."""
    faults.remove("/set/abc-00003-of-00003.gguf")
    tab = site.open()
    outcome = download(tab, urls[0])
    assert "00003-of-00003" in assert_refused(outcome, "download_failed")
    assert outcome.error["detail"]["status"] == 404
    assert tab.run("() => client.models.list()") == []


def test_a_shard_of_another_set(site: Origin, faults: FaultServer, urls: list[str], tmp_path: Path) -> None:
    """The name is right, and the content is another set's."""
    (tmp_path / "other").mkdir()
    other = write_shards(parrot([b"a", b"b", b"d"]), 4, tmp_path / "other")
    faults.serve("/set/abc-00002-of-00003.gguf", other[1])
    tab = site.open()
    outcome = download(tab, urls[0])
    assert outcome.error["code"] in ("invalid_request", "model_invalid")
    assert tab.run("() => client.models.list()") == []


@pytest.mark.parametrize("how", ["import", "in place", "download"])
def test_shards_that_were_joined(site: Origin, faults: FaultServer, shards: list[Path], how: str) -> None:
    """Case F12: `cat` makes no model of them, and the error says so."""
    url = faults.serve("/joined.gguf", b"".join(path.read_bytes() for path in shards)).url
    tab = site.open()
    error = download(tab, url).error if how == "download" else use_files(tab, [url], how)["error"]
    assert error["code"] == "model_invalid"
    assert "joined" in error["message"] or "cat" in error["message"]
    assert tab.run("() => client.models.list()") == []


@pytest.mark.parametrize(
    "name", ["model-00001-of-00001.gguf", "abc.gguf?download=true", "ABC.GGUF", "a%20b.gguf", "blob"]
)
def test_names_of_all_kinds(site: Origin, faults: FaultServer, tmp_path: Path, name: str) -> None:
    """Case F13."""
    path = parrot([b"a", b"b", b"c"], template=TEMPLATE).write(tmp_path / "abc.gguf")
    served = faults.serve(f"/{name.partition('?')[0].replace('%20', ' ')}", path)
    tab = site.open()
    tab.allow(NOISE)
    url = f"{faults.url}/{name}"
    assert answer(tab, url) == "abcabc"
    assert answer(tab, url) == "abcabc"
    (model,) = tab.run("() => client.models.list()")
    assert model["size"] == served.content.size


@pytest.mark.parametrize("name", ["abc-00002-of-00003.gguf?download=true", "abc-00002-of-00003.GGUF"])
def test_names_of_shards_of_all_kinds(
    site: Origin, faults: FaultServer, shards: list[Path], name: str
) -> None:
    """Cases F11 and F13."""
    ending = name.partition("?")[0].rpartition(".")[2]
    for path in shards:
        faults.serve(f"/{path.stem}.{ending}", path)
    assert answer(site.open(), f"{faults.url}/{name}") == "abcabc"


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("hf:someone/models/abc.gguf", "/someone/models/resolve/main/abc.gguf"),
        ("hf:someone/models/deep/er/abc.gguf@v2", "/someone/models/resolve/v2/deep/er/abc.gguf"),
    ],
)
def test_the_hugging_face_shorthand(
    site: Origin, faults: FaultServer, tmp_path: Path, source: str, path: str
) -> None:
    faults.serve(path, parrot([b"a", b"b", b"c"], template=TEMPLATE).write(tmp_path / "abc.gguf"))
    tab = site.open()
    outcome = download(tab, source, huggingFace=faults.url)
    assert not outcome.error, outcome.error
    assert answer(tab, outcome.value["id"]) == "abcabc"
    assert answer(tab, source, huggingFace=faults.url) == "abcabc"
    assert len({exchange.path for exchange in faults.requests()}) == 1
