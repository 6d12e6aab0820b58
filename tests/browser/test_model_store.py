"""What is stored, how it is mended, and how room is made for it, in a real page: cases D2 and D6.

Counterparts: web/models/model_store.js and its neighbours. Several pages at once: test_model_tabs.py.
"""

import re

import pytest

from tests.browser.downloads import (
    MIB,
    Published,
    answer,
    assert_refused,
    assert_stored,
    download,
    finish,
    start,
    wait_loaded,
)
from tests.browser.profiles import Origin
from tests.browser.tab import Tab
from tests.fault_server import FaultServer

pytestmark = pytest.mark.browser

PATH = "/abc.gguf"
LIST = "() => client.models.list()"
IN_FOLDER = """async (script) => {
  const root = await navigator.storage.getDirectory();
  const folder = await root.getDirectoryHandle("headrace-models");
  await new (async () => {}).constructor("folder", script)(folder);
}"""


def ids(tab: Tab) -> list[str]:
    return [model["id"] for model in tab.run(LIST)]


def model_id(published: Published) -> str:
    return f"sha256-{published.sha256}"


# --- What is kept -------------------------------------------------------------------------------------------


def test_a_stored_model_needs_no_network(site: Origin, faults: FaultServer, small_model: Published) -> None:
    served = faults.serve(PATH, small_model.path)
    tab = site.open()
    assert_stored(download(tab, served.url), small_model)
    asked = len(faults.log)
    tab = site.reopen(tab)
    assert_stored(download(tab, served.url), small_model)
    assert answer(tab, served.url) == "abcabc"
    assert answer(tab, model_id(small_model)) == "abcabc"
    assert len(faults.log) == asked


def test_what_is_told_of_a_model(site: Origin, faults: FaultServer, small_model: Published) -> None:
    served = faults.serve(PATH, small_model.path)
    tab = site.open()
    download(tab, f"{served.url}?download=true#part")
    (model,) = tab.run(LIST)
    assert model["id"] == model_id(small_model)
    assert model["name"] == "Parrot"
    assert (model["license"], model["architecture"]) == ("apache-2.0", "llama")
    assert model["size"] == small_model.size
    assert [source["display"] for source in model["sources"]] == [served.url]
    assert (model["pinned"], model["inUse"]) == (False, False)
    usage = tab.run("() => client.models.usage()")
    assert usage["storage"] == "opfs"
    assert usage["modelBytes"] == small_model.size
    assert usage["usedBytes"] >= small_model.size
    assert usage["quotaBytes"] > usage["usedBytes"]
    assert usage["persisted"] in (True, False)


def test_a_damaged_model_is_found_and_can_be_deleted(
    site: Origin, faults: FaultServer, small_model: Published
) -> None:
    served = faults.serve(PATH, small_model.path)
    tab = site.open()
    download(tab, served.url)
    verify = "(id) => client.models.verify(id)"
    assert tab.run(verify, model_id(small_model))["ok"] is True
    tab.run(
        IN_FOLDER,
        f"""const file = await folder.getFileHandle("{small_model.sha256}.gguf");
            const writable = await file.createWritable({{ keepExistingData: true }});
            await writable.write({{ type: "write", position: 5000000, data: "x" }});
            await writable.close();""",
    )
    outcome = tab.run(verify, model_id(small_model))
    assert outcome["ok"] is False
    assert len(outcome["damaged"]) == 1
    tab.run("(id) => client.models.delete(id)", model_id(small_model))
    assert ids(tab) == []
    assert site.stored(tab) == {}


def test_a_model_can_be_taken_out_and_brought_back(
    site: Origin, faults: FaultServer, small_model: Published
) -> None:
    served = faults.serve(PATH, small_model.path)
    tab = site.open()
    download(tab, served.url)
    outcome = tab.run(
        """async (id) => {
          const [{ name, blob }] = await client.models.export(id);
          const bytes = await blob.arrayBuffer();
          const sha256 = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)).toHex();
          await client.models.delete(id);
          const empty = await client.models.list();
          const model = await client.models.import(new File([bytes], name));
          return { name, sha256, empty, model };
        }""",
        model_id(small_model),
    )
    assert outcome["sha256"] == small_model.sha256
    assert outcome["name"].endswith(".gguf")
    assert outcome["empty"] == []
    assert outcome["model"]["id"] == model_id(small_model)
    assert answer(tab, model_id(small_model)) == "abcabc"


@pytest.mark.parametrize(
    "damage",
    [
        """for await (const name of folder.keys()) {
             if (name.startsWith("model-")) await folder.removeEntry(name);
           }""",
        """for await (const [name, file] of folder.entries()) {
             if (!name.startsWith("model-")) continue;
             const writable = await file.createWritable();
             await writable.write('{"version": 1, "id": "sha');
             await writable.close();
           }""",
    ],
    ids=["missing", "corrupt"],
)
@pytest.mark.parametrize("told", [True, False], ids=["hash told", "hash unknown"])
def test_a_model_whose_record_is_lost(
    site: Origin, faults: FaultServer, roomy_model: Published, damage: str, told: bool
) -> None:
    """Case D2: no second download."""
    served = faults.serve(PATH, roomy_model.path)
    tab = site.open()
    download(tab, served.url)
    tab.run(IN_FOLDER, damage)
    tab = site.reopen(tab)
    before = faults.bytes_sent()
    options = {"sha256": roomy_model.sha256} if told else {}
    outcome = download(tab, served.url, **options)
    assert not outcome.error, outcome.error
    assert outcome.value["id"] == model_id(roomy_model)
    assert faults.bytes_sent() - before < 3 * MIB
    assert ids(tab) == [model_id(roomy_model)]
    assert answer(tab, served.url) == "abcabc"
    assert faults.bytes_sent() - before < 3 * MIB


def test_a_lost_record_is_no_reason_to_believe_another_file(
    site: Origin, faults: FaultServer, roomy_model: Published, other_roomy_model: Published
) -> None:
    """Case D2: what lies there has the size of what is asked for, and other bytes."""
    served = faults.serve(PATH, roomy_model.path)
    tab = site.open()
    download(tab, served.url)
    other = faults.serve("/other.gguf", other_roomy_model.path)
    assert_stored(download(tab, other.url), other_roomy_model)
    assert sorted(ids(tab)) == sorted([model_id(roomy_model), model_id(other_roomy_model)])


# --- Room ---------------------------------------------------------------------------------------------------


def test_too_little_room_is_told_before(site: Origin, faults: FaultServer, roomy_model: Published) -> None:
    """Case D6: with the figures, before the bytes are fetched."""
    served = faults.serve(PATH, roomy_model.path)
    tab = site.open()
    site.limit(tab, 20 * MIB)
    outcome = download(tab, served.url)
    assert_refused(outcome, "storage_full")
    detail = outcome.error["detail"]
    assert detail["neededBytes"] >= roomy_model.size - 2 * MIB
    assert detail["missingBytes"] == detail["neededBytes"] - detail["availableBytes"] > 30 * MIB
    assert detail["evictable"] == []
    faults.settle()
    assert faults.bytes_sent() < 5 * MIB
    assert site.stored(tab) == {}


def test_too_little_room_in_the_middle(site: Origin, faults: FaultServer, roomy_model: Published) -> None:
    """Case D6: partial data removed, the error says how much is missing, and memory is offered, and works."""
    served = faults.serve(PATH, roomy_model.path, rate=4 * MIB)
    tab = site.open()
    start(tab, served.url)
    wait_loaded(tab, roomy_model.size // 4)
    site.limit(tab, 20 * MIB)
    outcome = finish(tab)
    message = assert_refused(outcome, "storage_full")
    assert "memory" in message
    assert re.search(r"\d", message)
    assert outcome.error["detail"]["missingBytes"] > 0
    assert site.stored(tab) == {}
    served.rate = None
    assert answer(tab, served.url, store="memory") == "abcabc"
    assert site.stored(tab) == {}


def test_the_least_recently_used_goes_when_it_may(
    site: Origin, faults: FaultServer, roomy_model: Published, small_model: Published
) -> None:
    """Case D6: only with consent, never what is pinned."""
    third = small_model.path.read_bytes()[:-1] + b"\0"
    urls = [
        faults.serve("/small.gguf", small_model.path).url,
        faults.serve("/third.gguf", third).url,
        faults.serve(PATH, roomy_model.path).url,
    ]
    tab = site.open()
    pinned, evictable = (download(tab, url).value["id"] for url in urls[:2])
    tab.run("(id) => client.models.pin(id)", pinned)
    site.limit(tab, roomy_model.size + 20 * MIB)
    outcome = download(tab, urls[2])
    assert_refused(outcome, "storage_full")
    assert [model["id"] for model in outcome.error["detail"]["evictable"]] == [evictable]
    assert sorted(ids(tab)) == sorted([pinned, evictable])
    assert_stored(download(tab, urls[2], evict=True), roomy_model)
    assert sorted(ids(tab)) == sorted([pinned, model_id(roomy_model)])
