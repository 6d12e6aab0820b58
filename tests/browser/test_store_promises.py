"""What the model store promises, measured on files of 250 MB in real pages.

Counterparts: web/models/, web/worker/, bench/store.py, which prints figures and judges nothing. Broken
downloads in small: test_downloads.py. Files of more than 2 GiB: test_store_large.py.
"""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser
from starlette.applications import Starlette

from tests.browser.downloads import (
    MIB,
    NOISE,
    Published,
    answer,
    assert_stored,
    download,
    start,
    wait_loaded,
)
from tests.browser.profiles import Origin, origin, profile
from tests.fault_server import FaultServer
from tests.large_gguf import heavy_parrot, roomy_parrot

pytestmark = pytest.mark.browser

PATH = "/abc.gguf"
TWICE = 0.02
"""Which part of a file may be fetched more than once."""
RATE = 12 * MIB
"""Bytes per second of each connection, so that what a server has sent has about come when it is cut."""
LINE_RATE = 3 * MIB // 2

OPEN = """async (options) => {
  const endpoint = Endpoint.local({ threads: 1, context: { size: 256 }, batchSize: 32, ...options });
  const added = await told(client.add("model", endpoint));
  if (added.error) return added;
  const { text } = await client.query("model", ">", { maxTokens: 6, temperature: 0 }).response;
  return { text, capabilities: client.capabilities("model") };
}"""

RAW_RATE = """async (name) => {
  const script = `onmessage = async ({ data: name }) => {
    const root = await navigator.storage.getDirectory();
    const folder = await root.getDirectoryHandle("headrace-models");
    const file = await (await folder.getFileHandle(name)).createSyncAccessHandle({ mode: "read-only" });
    const size = file.getSize();
    const rates = [];
    for (let round = 0; round < 3; round++) {
      // Memory that nobody has written to yet, as an engine's is: most of the time, the system is filling it.
      const memory = new WebAssembly.Memory({ initial: Math.ceil(size / 65536) });
      const began = performance.now();
      file.read(new Uint8Array(memory.buffer, 0, size), { at: 0 });
      rates.push(size / (performance.now() - began));
    }
    file.close();
    postMessage(rates.sort((a, b) => a - b)[1]);
  };`;
  const worker = new Worker(URL.createObjectURL(new Blob([script])));
  const rate = await new Promise((resolve, reject) => {
    worker.onmessage = ({ data }) => resolve(data);
    worker.onerror = reject;
    worker.postMessage(name);
  });
  worker.terminate();
  return rate;
}"""


@pytest.fixture(scope="module")
def large_model(tmp_path_factory: pytest.TempPathFactory) -> Published:
    """240 MiB (252 MB), most of them padding; says "abcabc"."""
    return Published.of(roomy_parrot(tmp_path_factory.mktemp("large") / "abc.gguf", 16 * MIB))


@pytest.fixture(scope="module")
def heavy_model(tmp_path_factory: pytest.TempPathFactory) -> Published:
    """249 MB of tensors; says "abcabc"."""
    return Published.of(heavy_parrot(tmp_path_factory.mktemp("heavy") / "abc.gguf"))


def offsets(size: int, count: int) -> list[int]:
    """Where the connections are cut: anywhere, but the same in each run."""
    places = random.Random(count)
    return sorted(places.randrange(2 * MIB, size) for _ in range(count))


def test_twenty_cuts_during_250_megabytes(site: Origin, faults: FaultServer, large_model: Published) -> None:
    """It completes, with the right hash, and at most 2 % of the bytes were fetched twice."""
    served = faults.serve(PATH, large_model.path, rate=RATE)
    served.break_at(offsets(large_model.size, 20))
    tab = site.open()
    outcome = download(tab, served.url, sha256=large_model.sha256)
    assert_stored(outcome, large_model)
    cuts = [exchange for exchange in faults.settle() if exchange.outcome == "cut"]
    assert len(cuts) == 20
    assert faults.bytes_sent() < large_model.size * (1 + TWICE)
    assert answer(tab, served.url) == "abcabc"


def test_the_page_is_closed_five_times_during_250_megabytes(
    site: Origin, faults: FaultServer, large_model: Published
) -> None:
    """The next one goes on where it was; at most 2 % of the bytes were fetched twice.

    On a line of 50 Mbit/s: what comes while a page is being closed is lost, and the faster, the more it is.
    """
    served = faults.serve(PATH, large_model.path, rate=LINE_RATE)
    tab = site.open()
    for part in range(1, 6):
        start(tab, served.url)
        wait_loaded(tab, large_model.size * part // 6)
        tab = site.reopen(tab)
    served.rate = RATE
    outcome = download(tab, served.url, sha256=large_model.sha256)
    assert_stored(outcome, large_model)
    faults.settle()
    assert faults.bytes_sent() < large_model.size * (1 + TWICE)
    assert answer(tab, served.url) == "abcabc"


def test_the_browser_is_closed_in_the_middle(
    browser: Browser,
    chromium: Path,
    app: Starlette,
    faults: FaultServer,
    roomy_model: Published,
    tmp_path: Path,
) -> None:
    """Case D1: what was written is there when it runs again."""
    served = faults.serve(PATH, roomy_model.path, rate=4 * MIB)
    with profile(browser, chromium, tmp_path) as first, origin(first, app, lasting=True) as site:
        start(site.open(), served.url)
        wait_loaded(site.tabs[0], roomy_model.size // 2)
        first.close()
        served.rate = None
        with profile(browser, chromium, tmp_path) as second:
            site.context = second
            assert_stored(download(site.open(), served.url), roomy_model)
    assert faults.bytes_sent() < roomy_model.size * 1.08


def test_two_pages_add_the_same_model_at_once(
    site: Origin, faults: FaultServer, large_model: Published
) -> None:
    """Case D8: one download, two working endpoints."""
    served = faults.serve(PATH, large_model.path)
    tabs = [site.open(), site.open()]
    for tab in tabs:
        tab.run(
            f"""(options) => {{ globalThis.opening = ({OPEN})(options); }}""",
            {"model": served.url},
        )
    for tab in tabs:
        outcome = tab.run("() => opening")
        assert outcome.get("text") == "abcabc", outcome
    assert faults.bytes_sent() < large_model.size * 1.01


@pytest.mark.parametrize("artifact", ["st", "mt"])
def test_loading_copies_once_at_the_rate_of_the_disk(
    site: Origin, faults: FaultServer, heavy_model: Published, artifact: str, record_property: Any
) -> None:
    """From storage into the heap: each byte once, no more heap than needed, half the raw rate at least."""
    served = faults.serve(PATH, heavy_model.path)
    tab = site.open()
    assert_stored(download(tab, served.url), heavy_model)
    rates = []
    for _ in range(2):
        outcome = tab.run(OPEN, {"model": served.url, "artifact": artifact})
        assert outcome.get("text") == "abcabc", outcome
        capabilities = outcome["capabilities"]
        storage, memory = capabilities["storage"], capabilities["memory"]
        rates.append(storage["bytesRead"] / storage["readMs"])
        tab.run("() => client.remove('model')")
    raw = tab.run(RAW_RATE, f"{heavy_model.sha256}.gguf")
    rate = max(rates)
    record_property("figures", json.dumps({"raw": raw, "rate": rate, **capabilities["memory"]}))
    assert storage["kind"] == "opfs"
    assert 1 <= storage["bytesRead"] / heavy_model.size < 1.01
    assert capabilities["heapBytes"] <= sum(memory.values()) + 64 * MIB
    assert memory["modelBytes"] > 0.99 * heavy_model.size
    assert rate >= 0.5 * raw


def test_a_real_model_needs_no_more_heap_than_its_parts(
    site: Origin, faults: FaultServer, demo_model: Path
) -> None:
    """From storage, and from a file of the user that is used in place."""
    served = faults.serve(PATH, demo_model)
    tab = site.open()
    tab.allow(NOISE)
    for model in (served.url, None):
        outcome = tab.run(
            f"""async (model) => {{
              const local = model ?? (await client.models.export((await client.models.list())[0].id))[0].blob;
              const outcome = await ({OPEN})({{ model: local, batchSize: 512 }});
              await client.remove("model");
              return outcome;
            }}""",
            model,
        )
        assert "error" not in outcome, outcome
        capabilities = outcome["capabilities"]
        assert capabilities["heapBytes"] <= sum(capabilities["memory"].values()) + 64 * MIB
        assert 1 <= capabilities["storage"]["bytesRead"] / demo_model.stat().st_size < 1.05
