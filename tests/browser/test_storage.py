"""The model store's files and locks in a browser's workers: the contract, and what only a browser can show.

Counterparts: `tests/contract/storage_contract.js`, whose scenarios run here and in Node alike, and
`tests/web/locks.test.js`. A window that Playwright makes is a private one, whose file system lies in memory;
with a user's folder it lies on disk.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page
from starlette.routing import Mount

from headrace.headless import LAUNCH_ARGUMENTS
from headrace.server import SourceFiles, background_server, create_app

pytestmark = pytest.mark.browser

ASK = """({ name, script, argument }) => new Promise((resolve, reject) => {
  const workers = (globalThis.workers ??= {});
  workers[name] ??= new Worker("/contract/worker.js", { type: "module" });
  workers[name].onmessage = ({ data }) => resolve(data);
  workers[name].onerror = (event) => reject(new Error(event.message ?? "the worker does not start"));
  workers[name].postMessage({ script, argument });
})"""

END = """(name) => { workers[name].terminate(); delete workers[name]; }"""

CONTRACT = """async ({ kind, sparse }) => {
  const { failuresOf, SCENARIOS, SPARSE_SCENARIOS } = await import("/contract/storage_contract.js");
  const { openOpfsStorage } = await import("/headrace/models/opfs_storage.js");
  const { createMemoryStorage } = await import("/headrace/models/memory_storage.js");
  let folders = 0;
  const make = async () => {
    if (kind === "memory") return createMemoryStorage();
    const root = await navigator.storage.getDirectory();
    if (folders > 0) await root.removeEntry(`contract-${folders}`, { recursive: true }).catch(() => {});
    return openOpfsStorage(`contract-${++folders}`);
  };
  return failuresOf(make, { ...SCENARIOS, ...(sparse ? SPARSE_SCENARIOS : {}) });
}"""

OPEN = """async (name, shared) => {
  const { openOpfsStorage } = await import("/headrace/models/opfs_storage.js");
  shared.storage = await openOpfsStorage();
  return (await shared.storage.list()).map(({ name, size }) => [name, size]);
}"""


class Workers:
    """A page's workers, by name; each starts when it is first asked."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def ask(self, name: str, script: str, argument: object = None) -> Any:
        """What the worker's function returned; what it threw is a mapping under "error"."""
        reply = self.page.evaluate(ASK, {"name": name, "script": script, "argument": argument})
        return reply if "error" in reply else reply.get("value")

    def end(self, name: str) -> None:
        self.page.evaluate(END, name)


@pytest.fixture
def address(repo_root: Path) -> Iterator[str]:
    app = create_app(web_dir=repo_root / "web", artifacts_dir=repo_root / "build/artifacts", models={})
    app.router.routes.insert(0, Mount("/contract", SourceFiles(directory=repo_root / "tests/contract")))
    with background_server(app) as base:
        yield base


@pytest.fixture
def private_window(browser: Browser, address: str) -> Iterator[Workers]:
    with ExitStack() as stack:
        context = stack.enter_context(browser.new_context())
        yield Workers(opened(context, address))


@pytest.fixture
def context(browser: Browser, chromium: Path, tmp_path: Path) -> Iterator[BrowserContext]:
    """A browser of its own, with a user's folder."""
    with browser.browser_type.launch_persistent_context(
        tmp_path / "user", executable_path=chromium, args=LAUNCH_ARGUMENTS
    ) as context:
        yield context


@pytest.fixture
def window(context: BrowserContext, address: str) -> Workers:
    return Workers(opened(context, address))


def opened(context: BrowserContext, address: str) -> Page:
    page = context.new_page()
    page.goto(address + "/playground/headless.html")
    return page


@pytest.mark.parametrize("kind", ["opfs", "memory"])
def test_the_contract_holds_in_a_private_window(private_window: Workers, kind: str) -> None:
    assert private_window.ask("a", CONTRACT, {"kind": kind, "sparse": kind == "memory"}) == {}


def test_the_contract_holds_on_disk(window: Workers) -> None:
    """With places beyond 4 GiB, where addresses have 32 bits."""
    assert window.ask("a", CONTRACT, {"kind": "opfs", "sparse": True}) == {}


def test_a_worker_that_ends_leaves_what_it_wrote(window: Workers) -> None:
    """Case D1: the tab is closed in mid-write. The bytes are there, and the file can be opened again."""
    window.ask("a", OPEN)
    script = """async (_, shared) => {
      shared.file = await shared.storage.openWrite("a.gguf");
      shared.file.write(new Uint8Array(3_000_000).fill(7), 0);
      shared.file.flush();
    }"""
    assert window.ask("a", script) is None
    assert window.ask("b", OPEN) == [["a.gguf", 3_000_000]]
    read = """async (_, shared) => {
      const file = await shared.storage.openWrite("a.gguf");
      const bytes = new Uint8Array(file.size);
      file.read(bytes, 0);
      file.close();
      return bytes.every((byte) => byte === 7);
    }"""
    assert window.ask("b", read)["error"]["code"] == "model_in_use"
    window.end("a")
    window.page.wait_for_timeout(200)
    assert window.ask("b", read) is True


def test_text_is_whole_however_its_writer_ends(window: Workers) -> None:
    """And what its end leaves besides is gone once the store is opened again."""
    window.ask("reader", OPEN)
    write = """async (_, shared) => {
      await shared.storage.writeText("a.json", "a".repeat(300_000));
      (async () => {
        for (let n = 0; ; n += 1) await shared.storage.writeText("a.json", "ab"[n % 2].repeat(300_000));
      })();
    }"""
    read = """async (_, shared) => {
      const text = await shared.storage.readText("a.json");
      return text.length === 300_000 && new Set(text).size === 1;
    }"""
    for delay in (0, 3, 7, 12, 20, 33):
        window.ask("writer", OPEN)
        assert window.ask("writer", write) is None
        window.page.wait_for_timeout(delay)
        assert window.ask("reader", read) is True
        window.end("writer")
        assert window.ask("reader", read) is True
    left = """async () => {
      const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle("headrace-models");
      await folder.getFileHandle("a.json~left", { create: true });
      const { openOpfsStorage } = await import("/headrace/models/opfs_storage.js");
      const storage = await openOpfsStorage();
      return [await Array.fromAsync(folder.keys()), (await storage.list()).map(({ name }) => name)];
    }"""
    window.page.wait_for_timeout(200)
    assert window.ask("next", left) == [["a.json"], ["a.json"]]


def test_a_temporary_file_of_a_living_writer_stays(window: Workers) -> None:
    window.ask("a", OPEN)
    script = """async (held) => {
      const { holdLock } = await import("/headrace/models/locks.js");
      const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle("headrace-models");
      await folder.getFileHandle("a.json~x", { create: true });
      await holdLock("headrace-temporary-headrace-models", { shared: true });
    }"""
    keys = """async () => {
      const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle("headrace-models");
      return Array.fromAsync(folder.keys());
    }"""
    assert window.ask("writer", script) is None
    assert window.ask("b", OPEN) == []
    assert window.ask("b", keys) == ["a.json~x"]
    window.end("writer")
    window.page.wait_for_timeout(200)
    assert window.ask("c", OPEN) == []
    assert window.ask("c", keys) == []


def test_a_full_disk_is_told_and_what_was_there_stays(
    window: Workers, context: BrowserContext, address: str
) -> None:
    """Case D6: the quota is exceeded in mid-write."""
    window.ask("a", OPEN)
    session = context.new_cdp_session(window.page)
    quota = {"origin": f"{address}/", "quotaSize": 3_000_000}
    session.send("Storage.overrideQuotaForOrigin", quota)
    script = """async (_, { storage }) => {
      const told = (action) => action().then(() => null, ({ code, detail }) => [code, detail.file]);
      await storage.writeText("a.json", "old");
      const file = await storage.openWrite("a.gguf");
      const outcomes = [await told(async () => {
        for (let at = 0; at < 2 ** 24; at += 2 ** 20) file.write(new Uint8Array(2 ** 20), at);
      })];
      outcomes.push(await told(() => storage.writeText("a.json", "x".repeat(2 ** 22))));
      outcomes.push(await storage.readText("a.json"));
      file.close();
      await storage.remove("a.gguf");
      await storage.writeText("a.json", "new");
      return [...outcomes, await storage.list()];
    }"""
    assert window.ask("a", script) == [
        ["storage_full", "a.gguf"],
        ["storage_full", "a.json"],
        "old",
        [{"name": "a.json", "size": 3}],
    ]


def test_without_a_disk_models_are_in_memory_and_the_reason_is_told(private_window: Workers) -> None:
    """Case D7."""
    script = """async (lack) => {
      if (lack === "getDirectory") delete StorageManager.prototype.getDirectory;
      if (lack === "move") delete FileSystemFileHandle.prototype.move;
      if (lack === "refused") {
        const refusal = new DOMException("no", "SecurityError");
        StorageManager.prototype.getDirectory = () => Promise.reject(refusal);
      }
      const { openStorage } = await import("/headrace/models/storage.js");
      const { storage, reason } = await openStorage(lack === "asked" ? "memory" : "auto");
      await storage.writeText("a.json", "text");
      return [storage.kind, await storage.readText("a.json"), reason];
    }"""
    because = "models are kept in memory only: "
    expected = {
        "nothing": ["opfs", "text", None],
        "asked": ["memory", "text", None],
        "getDirectory": ["memory", "text", because + "this browser has no private file system"],
        "move": ["memory", "text", because + "this browser's private file system lacks move"],
        "refused": ["memory", "text", because + "the browser's file system cannot be used: no"],
    }
    assert {lack: private_window.ask(lack, script, lack) for lack in expected} == expected


def test_a_store_that_the_user_has_cleared_has_failed(private_window: Workers) -> None:
    """Site data can be cleared at any time: what was to be made there is no missing model."""
    private_window.ask("a", OPEN)
    script = """async (_, { storage }) => {
      const root = await navigator.storage.getDirectory();
      await root.removeEntry("headrace-models", { recursive: true });
      const told = (promise) => promise.then(() => null, ({ code }) => code);
      return [
        await told(storage.openWrite("a.gguf")),
        await told(storage.writeText("a.json", "text")),
        await told(storage.openRead("a.gguf")),
        await storage.readText("a.json"),
      ];
    }"""
    assert private_window.ask("a", script) == ["storage_failed", "storage_failed", "model_not_found", None]


def test_a_lock_is_released_with_its_worker(private_window: Workers) -> None:
    hold = """async (options) => {
      const { holdLock } = await import("/headrace/models/locks.js");
      await holdLock("x", options);
      return "held";
    }"""
    held = """async () => (await import("/headrace/models/locks.js")).lockIsHeld("x")"""
    assert private_window.ask("a", hold, {"shared": True}) == "held"
    assert private_window.ask("b", hold, {"shared": True, "wait": False}) == "held"
    refused = private_window.ask("c", hold, {"wait": False})
    assert refused["error"]["code"] == "model_in_use"
    private_window.end("a")
    private_window.page.wait_for_timeout(200)
    assert private_window.ask("c", held) is True
    private_window.end("b")
    assert private_window.ask("c", hold, {}) == "held"


def test_an_aborted_wait_lets_those_behind_share(private_window: Workers) -> None:
    script = """async () => {
      const { holdLock } = await import("/headrace/models/locks.js");
      const release = await holdLock("x", { shared: true });
      const controller = new AbortController();
      const alone = holdLock("x", { signal: controller.signal }).catch(({ code }) => code);
      const behind = holdLock("x", { shared: true });
      controller.abort();
      (await behind)();
      release();
      return alone;
    }"""
    assert private_window.ask("a", script) == "cancelled"
