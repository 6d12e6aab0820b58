"""The model store in a page: `client.models`, endpoints that take models from it, several pages at once.

Counterparts: `tests/web/model_store.test.js`, the same store in Node; `tests/browser/test_storage.py`, what
lies below it. What a server can do wrong is in the tests with `tests/fault_server.py`.
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.headless import LAUNCH_ARGUMENTS
from headrace.server import background_server, create_app
from tests.browser.tab import SETUP, Tab
from tests.gguf_builder import parrot, write_shards

pytestmark = pytest.mark.browser

MIB = 2**20

# What a page does with a model: its answer, where it lies, and what was told meanwhile.
ADD = """async ({ name, model, ...options }) => {
  const progress = [];
  const onProgress = (event) => progress.push(event);
  return told((async () => {
    const reference = await client.add(name, Endpoint.local({ model, threads: 1, onProgress, ...options }));
    const { text } = await client.query(reference, ">", { maxTokens: 3, temperature: 0 }).response;
    const { source, reasons } = client.capabilities(reference);
    return { text, source, reasons, progress };
  })());
}"""


@dataclass
class Traffic:
    """Requests, and bytes of the answers, by path."""

    requests: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    delay: float = 0
    """Seconds before each piece of a model that is sent."""


class Counted:
    """ASGI middleware that counts, and delays models."""

    def __init__(self, app: ASGIApp, traffic: Traffic) -> None:
        self.app = app
        self.traffic = traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")

        async def counting(message: Message) -> None:
            if path.startswith("/models/") and self.traffic.delay:
                await asyncio.sleep(self.traffic.delay)
            self.traffic.bytes[path] += len(message.get("body", b""))
            await send(message)

        self.traffic.requests[path] += 1
        await self.app(scope, receive, counting)


class Site:
    """A server, and what it was asked for; `open` opens a page of one browser context."""

    def __init__(self, base: str, traffic: Traffic, context: BrowserContext, models: Path) -> None:
        self.base = base
        self.traffic = traffic
        self.context = context
        self.models = models
        self.tabs: list[Tab] = []

    def open(self) -> Tab:
        tab = Tab(self.context.new_page())
        self.tabs.append(tab)
        tab.page.goto(self.base + "/playground/headless.html")
        tab.run(SETUP)
        return tab

    def sent(self) -> tuple[int, int]:
        """Requests for models, and the bytes of the answers."""
        paths = [path for path in self.traffic.requests if path.startswith("/models/")]
        return (
            sum(self.traffic.requests[path] for path in paths),
            sum(self.traffic.bytes[path] for path in paths),
        )


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Parrots: a small one, one of eight megabytes, and one in three shards."""
    folder = tmp_path_factory.mktemp("stored-models")
    parrot([b"a", b"b", b"c"]).write(folder / "abc.gguf")
    parrot([b"d", b"e", b"f"]).write(folder / "def.gguf")
    parrot([b"a", b"b", b"c", *(b"<%d>" % number for number in range(500))]).write(folder / "large.gguf")
    write_shards(parrot([b"x", b"y", b"z"]), 3, folder, "xyz")
    return folder


def site_of(stack: ExitStack, repo_root: Path, models: Path, context: BrowserContext) -> Site:
    files = {path.name: path for path in models.iterdir()}
    app = create_app(web_dir=repo_root / "web", artifacts_dir=repo_root / "build/artifacts", models=files)
    traffic = Traffic()
    app.add_middleware(Counted, traffic=traffic)
    return Site(stack.enter_context(background_server(app)), traffic, context, models)


@pytest.fixture
def site(browser: Browser, artifacts_dir: Path, repo_root: Path, models: Path) -> Iterator[Site]:
    """In a private window, whose storage ends with it."""
    with ExitStack() as stack:
        context = stack.enter_context(browser.new_context())
        site = site_of(stack, repo_root, models, context)
        yield site
        assert [text for tab in site.tabs for text in tab.unexpected()] == []


@pytest.fixture
def site_on_disk(
    browser: Browser, chromium: Path, artifacts_dir: Path, repo_root: Path, models: Path, tmp_path: Path
) -> Iterator[Site]:
    with ExitStack() as stack:
        context = stack.enter_context(
            browser.browser_type.launch_persistent_context(
                tmp_path / "user", executable_path=chromium, args=LAUNCH_ARGUMENTS
            )
        )
        site = site_of(stack, repo_root, models, context)
        yield site
        assert [text for tab in site.tabs for text in tab.unexpected()] == []


def add(tab: Tab, model: object, name: str = "model", **options: object) -> dict[str, Any]:
    outcome = tab.run(ADD, {"name": name, "model": model} | options)
    assert "value" in outcome, outcome
    value: dict[str, Any] = outcome["value"]
    return value


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_an_endpoint_by_url_keeps_its_model(site_on_disk: Site) -> None:
    """The second endpoint, and the next page, ask the server for nothing."""
    site = site_on_disk
    tab = site.open()
    model_id = "sha256-" + digest(site.models / "large.gguf")
    first = add(tab, "/models/large.gguf")
    assert first["text"] == "abc"
    assert first["source"] == {"kind": "opfs", "modelId": model_id}
    phases = [event["phase"] for event in first["progress"]]
    assert list(dict.fromkeys(phases)) == ["start", "download", "load"]
    last = [event for event in first["progress"] if event["phase"] == "download"][-1]
    size = (site.models / "large.gguf").stat().st_size
    assert (last["file"], last["loaded"], last["total"]) == ("model", size, size)

    asked = site.sent()
    assert asked[1] < 1.5 * size + MIB
    second = add(tab, "/models/large.gguf", "again")
    assert second["text"] == "abc"
    assert "download" not in [event["phase"] for event in second["progress"]]
    tab.page.close()
    other = site.open()
    assert add(other, model_id)["text"] == "abc"
    stored = other.run("() => client.models.list()")
    assert add(other, stored[0], "by its entry")["text"] == "abc"
    assert site.sent() == asked


def test_a_models_whole_life(site: Site) -> None:
    """Downloaded, listed, verified, pinned, exported, deleted."""
    tab = site.open()
    path = site.models / "large.gguf"
    result = tab.run(
        """async () => {
          const progress = [];
          const seen = {};
          seen.before = await client.models.usage();
          const onProgress = (event) => progress.push(event);
          seen.model = await client.models.download("/models/large.gguf", { onProgress, pinned: true });
          seen.again = await client.models.download("/models/large.gguf");
          seen.list = await client.models.list();
          seen.usage = await client.models.usage();
          const { id } = seen.model;
          seen.verified = await client.models.verify(id, { onProgress });
          seen.unpinned = (await client.models.pin(id, false)).pinned;
          const [{ name, blob }, ...rest] = await client.models.export(seen.model);
          const bytes = await crypto.subtle.digest("SHA-256", await blob.arrayBuffer());
          const hex = [...new Uint8Array(bytes)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
          seen.exported = [name, hex, rest.length];
          await client.models.delete(id);
          seen.after = await client.models.list();
          seen.gone = await told(client.models.delete(id));
          return { ...seen, progress };
        }"""
    )
    size, sha256 = path.stat().st_size, digest(path)
    model = result["model"]
    assert (model["id"], model["name"], model["size"]) == ("sha256-" + sha256, "large.gguf", size)
    assert model["sources"][0]["display"] == site.base + "/models/large.gguf"
    assert (model["architecture"], model["pinned"]) == ("llama", True)
    assert result["again"]["id"] == model["id"]
    assert [(one["id"], one["inUse"]) for one in result["list"]] == [(model["id"], False)]
    usage = result["usage"]
    assert size <= usage["modelBytes"] < size + 4096
    assert usage["usedBytes"] >= size
    assert usage["quotaBytes"] > usage["usedBytes"]
    assert (usage["limitBytes"], usage["storage"], usage["reason"]) == (None, "opfs", None)
    assert usage["persisted"] in (True, False)
    assert result["before"]["modelBytes"] == 0
    assert result["verified"] == {"ok": True, "damaged": []}
    assert result["unpinned"] is False
    assert result["exported"] == ["large.gguf", sha256, 0]
    assert result["after"] == []
    assert result["gone"]["error"]["code"] == "model_not_found"
    assert {event["phase"] for event in result["progress"]} == {"download", "verify"}


def test_a_file_is_used_in_place_or_kept(site: Site) -> None:
    tab = site.open()
    script = """async (name) => {
      const file = new File([await (await fetch(`/models/${name}`)).arrayBuffer()], "Mine.gguf");
      globalThis.files = { ...globalThis.files, [name]: file };
    }"""
    for name in ("abc.gguf", "def.gguf"):
        tab.run(script, name)
    add_file = "async (options) => (" + ADD + ")({ ...options, model: files[options.model] })"
    in_place = tab.run(add_file, {"name": "one", "model": "abc.gguf"})["value"]
    assert (in_place["text"], in_place["source"]) == ("abc", {"kind": "file", "modelId": None})
    assert tab.run("() => client.models.list()") == []

    kept = tab.run(add_file, {"name": "two", "model": "def.gguf", "store": "keep"})["value"]
    model_id = "sha256-" + digest(site.models / "def.gguf")
    assert (kept["text"], kept["source"]) == ("def", {"kind": "opfs", "modelId": model_id})
    assert "import" in [event["phase"] for event in kept["progress"]]

    imported = tab.run("() => client.models.import(files['abc.gguf'], { name: 'My model' })")
    assert (imported["name"], imported["sources"]) == ("My model", [])
    assert add(tab, imported["id"], "three")["text"] == "abc"
    assert {one["name"] for one in tab.run("() => client.models.list()")} == {"My model", "Mine"}


def test_shards_in_any_order(site: Site) -> None:
    """Case F10: as addresses, as files, and from the name of one (F11)."""
    tab = site.open()
    names = [f"xyz-0000{index}-of-00003.gguf" for index in (1, 2, 3)]
    one = add(tab, f"/models/{names[1]}", "one")
    asked = site.sent()
    two = add(tab, [f"/models/{names[index]}" for index in (2, 0, 1)], "two")
    assert one["source"] == two["source"]
    assert one["text"] == two["text"] == "xyz"
    assert site.sent() == asked
    fetch_all = """async (names) => {
      globalThis.blobs = await Promise.all(
        names.map(async (name) => (await fetch(`/models/${name}`)).blob()));
    }"""
    tab.run(fetch_all, [names[2], names[0], names[1]])
    three = tab.run("(given) => (" + ADD + ")({ ...given, model: blobs })", {"name": "three"})["value"]
    assert (three["text"], three["source"]["kind"]) == ("xyz", "file")
    exported = tab.run(
        "async (id) => (await client.models.export(id)).map(({ name }) => name)", one["source"]["modelId"]
    )
    assert exported == names


def test_nothing_is_kept_when_asked_so(site: Site) -> None:
    tab = site.open()
    answer = add(tab, "/models/abc.gguf", store="memory")
    assert (answer["text"], answer["source"]["kind"]) == ("abc", "memory")
    assert tab.run("() => client.models.list()") == []


def test_without_a_disk_models_are_in_memory_and_the_endpoint_says_why(site: Site) -> None:
    """Case D7."""
    site.context.add_init_script("delete StorageManager.prototype.getDirectory")
    tab = site.open()
    without = 'import "data:text/javascript,delete StorageManager.prototype.getDirectory";\n'
    for worker in ("worker/engine_worker.js", "models/store_worker.js"):

        def serve(route: Any) -> None:
            original = route.fetch()
            route.fulfill(response=original, body=without + original.text())

        tab.page.route(f"**/{worker}", serve)
    answer = add(tab, "/models/abc.gguf")
    assert (answer["text"], answer["source"]["kind"]) == ("abc", "memory")
    assert "kept in memory only" in " ".join(answer["reasons"])
    usage = tab.run("() => client.models.usage()")
    assert usage["storage"] == "memory"
    assert "kept in memory only" in usage["reason"]
    stored = tab.run("() => client.models.download('/models/def.gguf')")["id"]
    by_id = add(tab, stored, "by id")
    assert (by_id["text"], by_id["source"]) == ("def", {"kind": "memory", "modelId": stored})


def test_two_pages_at_once_download_once(site: Site) -> None:
    """Case D8: both endpoints work, and the server has sent the model once."""
    tabs = [site.open(), site.open()]
    start = "(given) => { globalThis.adding = (" + ADD + ")(given); }"
    for tab in tabs:
        tab.run(start, {"name": "model", "model": "/models/large.gguf"})
    outcomes = [tab.run("() => adding") for tab in tabs]
    assert [outcome["value"]["text"] for outcome in outcomes] == ["abc", "abc"]
    size = (site.models / "large.gguf").stat().st_size
    assert site.sent()[1] < 1.5 * size + MIB
    downloads = [
        any(event["phase"] == "download" for event in outcome["value"]["progress"]) for outcome in outcomes
    ]
    assert sorted(downloads) == [False, True]


def test_two_calls_in_one_page_download_once(site: Site) -> None:
    """Case D8."""
    tab = site.open()
    ids = tab.run(
        """async () => {
          const models = await Promise.all([1, 2].map(() => client.models.download("/models/large.gguf")));
          return models.map(({ id }) => id);
        }"""
    )
    assert ids[0] == ids[1]
    assert site.sent()[1] < 1.5 * (site.models / "large.gguf").stat().st_size + MIB


def test_deletion_waits_for_endpoints_also_those_of_other_pages(site: Site) -> None:
    """Case D8: delete while open."""
    user, other = site.open(), site.open()
    model_id = add(user, "/models/abc.gguf")["source"]["modelId"]
    assert other.run("() => client.models.list()")[0]["inUse"] is True
    refused = other.run("(id) => told(client.models.delete(id, { wait: false }))", model_id)
    assert (refused["error"]["code"], refused["error"]["detail"]) == ("model_in_use", {"id": model_id})
    other.run(
        "(id) => { globalThis.deleted = false; client.models.delete(id).then(() => { deleted = true; }); }",
        model_id,
    )
    other.page.wait_for_timeout(200)
    assert other.run("() => deleted") is False
    ask = 'async () => (await client.query("model", ">", { maxTokens: 3, temperature: 0 }).response).text'
    assert user.run(ask) == "abc"
    user.run("() => client.remove('model')")
    other.page.wait_for_function("deleted", timeout=5000)
    assert other.run("() => client.models.list()") == []
    assert user.run(ADD, {"name": "by id", "model": model_id})["error"]["code"] == "model_not_found"


def test_a_page_that_is_closed_blocks_nobody(site: Site) -> None:
    """Case D8: its locks and files are free."""
    user, other = site.open(), site.open()
    model_id = add(user, "/models/abc.gguf")["source"]["modelId"]
    user.page.close()
    other.run("(id) => client.models.delete(id)", model_id)
    assert other.run("() => client.models.list()") == []


@pytest.mark.parametrize("end", ["abort.abort()", "client.remove('model')"])
def test_an_endpoint_given_up_in_mid_download_blocks_nobody(site: Site, end: str) -> None:
    """Case D1: what has come is continued, by an endpoint or by the store's worker."""
    site.traffic.delay = 0.03
    tab = site.open()
    code = tab.run(
        """async () => {
          const abort = new AbortController();
          const onProgress = ({ phase, loaded }) => { if (phase === "download" && loaded > 2 ** 20) %s; };
          const options = { model: "/models/large.gguf", signal: abort.signal, onProgress };
          return (await told(client.add("model", Endpoint.local(options)))).error.code;
        }""".replace("%s", end)
    )
    assert code == ("cancelled" if "abort" in end else "engine_closed")
    site.traffic.delay = 0
    model = tab.run("() => client.models.download('/models/large.gguf')")
    size = (site.models / "large.gguf").stat().st_size
    assert model["size"] == size
    assert add(tab, model["id"])["text"] == "abc"
    assert site.sent()[1] < 1.6 * size + MIB


def test_a_page_closed_in_mid_download_leaves_it_to_the_one_that_waits(site: Site) -> None:
    """Case D8: a crashed tab leaves nothing that blocks; the other has seen how far it was."""
    site.traffic.delay = 0.03
    first, second = site.open(), site.open()
    follow = """() => {
      globalThis.progress = [];
      const onProgress = (event) => progress.push(event);
      globalThis.call = told(client.models.download("/models/large.gguf", { onProgress }));
    }"""
    first.run(follow)
    first.page.wait_for_function("progress.some(({ loaded }) => loaded > 2 ** 20)", timeout=10_000)
    second.run(follow)
    second.page.wait_for_function(
        "progress.some(({ phase, loaded, total }) => phase === 'wait' && loaded > 2 ** 20 && total > loaded)",
        timeout=10_000,
    )
    first.page.close()
    outcome = second.run("() => call")
    size = (site.models / "large.gguf").stat().st_size
    assert outcome["value"]["size"] == size
    assert list(dict.fromkeys(event["phase"] for event in second.run("() => progress"))) == [
        "wait",
        "download",
    ]
    assert site.sent()[1] < 1.6 * size + MIB


def test_a_call_can_be_given_up(site: Site) -> None:
    site.traffic.delay = 0.03
    tab = site.open()
    outcome = tab.run(
        """async () => {
          const abort = new AbortController();
          const onProgress = ({ loaded }) => { if (loaded > 2 ** 20) abort.abort(); };
          const options = { signal: abort.signal, onProgress };
          const given = await told(client.models.download("/models/large.gguf", options));
          const late = await told(client.models.download("/models/large.gguf", options));
          const whole = await client.models.download("/models/large.gguf");
          return { given, late, size: whole.size };
        }"""
    )
    assert outcome["given"]["error"]["code"] == outcome["late"]["error"]["code"] == "cancelled"
    assert outcome["size"] == (site.models / "large.gguf").stat().st_size


def test_the_limit_of_a_client_holds_for_its_endpoints(site: Site) -> None:
    tab = site.open()
    sizes = {name: (site.models / name).stat().st_size for name in ("abc.gguf", "def.gguf")}
    tab.run(
        "(limitBytes) => { client = new HeadraceClient({ models: { limitBytes } }); }",
        sum(sizes.values()) - 1,
    )
    add(tab, "/models/abc.gguf", "one")
    in_use = tab.run(ADD, {"name": "two", "model": "/models/def.gguf"})
    assert in_use["error"]["code"] == "storage_full"
    assert in_use["error"]["detail"]["evictable"] == []
    tab.run("() => client.remove('one')")
    refused = tab.run(ADD, {"name": "two", "model": "/models/def.gguf", "evict": False})
    assert [one["name"] for one in refused["error"]["detail"]["evictable"]] == ["abc.gguf"]
    assert add(tab, "/models/def.gguf", "two")["text"] == "def"
    assert [one["name"] for one in tab.run("() => client.models.list()")] == ["def.gguf"]


def test_a_projector_is_stored_with_its_model_and_goes_with_it(site: Site) -> None:
    tab = site.open()
    model = tab.run("() => client.models.download('/models/abc.gguf', { projector: '/models/def.gguf' })")
    assert model["projector"] == "sha256-" + digest(site.models / "def.gguf")
    assert len(tab.run("() => client.models.list()")) == 2
    tab.run("(id) => client.models.delete(id)", model["id"])
    assert tab.run("() => client.models.list()") == []


def test_a_closed_client_ends_its_calls(site: Site) -> None:
    tab = site.open()
    outcome = tab.run(
        """async () => {
          const call = told(client.models.download("/models/large.gguf"));
          await client.close();
          return [await call, await told(client.models.list())];
        }"""
    )
    assert [one["error"]["code"] for one in outcome] == ["cancelled", "engine_closed"]
    tab.page.wait_for_timeout(100)
    assert tab.page.workers == []


@pytest.mark.parametrize(
    ("call", "option"),
    [
        ("download(7)", "source"),
        ("download([])", "source"),
        ("download('a.gguf', { refesh: true })", "refesh"),
        ("download('a.gguf', { pinned: 1 })", "pinned"),
        ("download('a.gguf', { sha256: 'x' })", "sha256"),
        ("download('a.gguf', { onProgress: 1 })", "onProgress"),
        ("download('a.gguf', { signal: {} })", "signal"),
        ("import('a.gguf')", "files"),
        ("import([])", "files"),
        ("verify('a.gguf')", "model"),
        ("delete('sha256-x')", "model"),
        ("pin(7)", "model"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(refusals: Tab, call: str, option: str) -> None:
    error = refusals.run(f"() => told(client.models.{call})")["error"]
    assert (error["code"], error["detail"]) == ("invalid_option", {"option": option})
    assert refusals.page.workers == []


@pytest.fixture(scope="module")
def refusals(browser: Browser, artifacts_dir: Path, repo_root: Path, models: Path) -> Iterator[Tab]:
    with ExitStack() as stack:
        context = stack.enter_context(browser.new_context())
        yield site_of(stack, repo_root, models, context).open()
