"""Several pages, or calls, that want the same model at once, or delete it (case D8).

Counterparts: web/models/locks.js, model_store.js.
"""

import pytest

from tests.browser.downloads import (
    MIB,
    Published,
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


def ids(tab: Tab) -> list[str]:
    return [model["id"] for model in tab.run(LIST)]


def model_id(published: Published) -> str:
    return f"sha256-{published.sha256}"


def test_two_calls_for_the_same(site: Origin, faults: FaultServer, roomy_model: Published) -> None:
    """Case D8: one downloads, the other waits, and both see the bytes come."""
    served = faults.serve(PATH, roomy_model.path, rate=8 * MIB)
    tab = site.open()
    outcome = tab.run(
        """async (url) => {
          const seen = [[], []];
          const models = await Promise.all(seen.map((one) =>
            client.models.download(url, { onProgress: (progress) => void one.push(progress) })));
          return { ids: models.map(({ id }) => id), seen };
        }""",
        served.url,
    )
    assert outcome["ids"] == [model_id(roomy_model)] * 2
    for seen in outcome["seen"]:
        assert any(0 < one["loaded"] < roomy_model.size for one in seen)
    assert faults.bytes_sent() < roomy_model.size * 1.05


def test_two_pages_for_the_same(site: Origin, faults: FaultServer, roomy_model: Published) -> None:
    """Case D8: the second one shows the first one's progress."""
    served = faults.serve(PATH, roomy_model.path, rate=4 * MIB)
    first, second = site.open(), site.open()
    start(first, served.url)
    wait_loaded(first, 4 * MIB)
    start(second, served.url)
    second.page.wait_for_function("() => seen.some(({ phase, loaded }) => phase === 'wait' && loaded > 0)")
    served.rate = None
    assert_stored(finish(first), roomy_model)
    outcome = finish(second)
    assert outcome.value["id"] == model_id(roomy_model)
    assert {one["phase"] for one in outcome.seen} == {"wait"}
    assert faults.bytes_sent() < roomy_model.size * 1.05


def test_the_page_that_waits_takes_over(site: Origin, faults: FaultServer, roomy_model: Published) -> None:
    """Case D8: when the one that downloads is closed, the other goes on where it was."""
    served = faults.serve(PATH, roomy_model.path, rate=4 * MIB)
    first, second = site.open(), site.open()
    start(first, served.url)
    wait_loaded(first, roomy_model.size // 4)
    start(second, served.url)
    second.page.wait_for_function("() => seen.length > 0")
    first.page.close()
    # Only when the first has gone: a fast server fills the sockets of a page that is being closed.
    second.page.wait_for_function("() => seen.some(({ phase }) => phase === 'download')")
    served.rate = None
    outcome = finish(second)
    assert outcome.value["id"] == model_id(roomy_model), outcome.error
    assert faults.bytes_sent() < roomy_model.size * 1.15


def test_a_download_that_waits_can_be_cancelled(
    site: Origin, faults: FaultServer, roomy_model: Published
) -> None:
    """Case D8: alone; the other's goes on."""
    served = faults.serve(PATH, roomy_model.path, rate=4 * MIB)
    first, second = site.open(), site.open()
    start(first, served.url)
    wait_loaded(first, 4 * MIB)
    start(second, served.url)
    second.page.wait_for_function("() => seen.length > 0")
    second.run("() => controller.abort()")
    assert_refused(finish(second), "cancelled")
    served.rate = None
    assert_stored(finish(first), roomy_model)


def test_a_model_that_is_open_is_not_deleted(
    site: Origin, faults: FaultServer, small_model: Published
) -> None:
    """Case D8: delete while open, from another page."""
    served = faults.serve(PATH, small_model.path)
    tab, other = site.open(), site.open()
    tab.run(
        """async (model) => {
          await client.add("model", Endpoint.local({ model, threads: 1, context: { size: 256 } }));
        }""",
        served.url,
    )
    assert [model["inUse"] for model in other.run(LIST)] == [True]
    at_once = other.run(
        "(id) => told(client.models.delete(id, { wait: false }))",
        model_id(small_model),
    )
    assert at_once["error"]["code"] == "model_in_use"
    other.run(
        "(id) => { globalThis.deleting = client.models.delete(id).then(() => 'deleted'); }",
        model_id(small_model),
    )
    still = "Promise.race([deleting, new Promise((done) => setTimeout(done, 300, 'waiting'))])"
    assert other.run(f"() => {still}") == "waiting"
    text = tab.run("() => client.query('model', '>', { maxTokens: 6, temperature: 0 }).response")["text"]
    assert text == "abcabc"
    tab.run("() => client.remove('model')")
    assert other.run("() => deleting") == "deleted"
    assert site.stored(other) == {}


def test_a_page_that_is_gone_blocks_nothing(
    site: Origin, faults: FaultServer, small_model: Published
) -> None:
    """Case D8: with an endpoint open and a deletion waiting."""
    served = faults.serve(PATH, small_model.path)
    tab, other = site.open(), site.open()
    tab.run(
        """async (model) => {
          await client.add("model", Endpoint.local({ model, threads: 1, context: { size: 256 } }));
        }""",
        served.url,
    )
    other.run("(id) => { globalThis.deleting = client.models.delete(id); }", model_id(small_model))
    tab.page.close()
    other.run("() => deleting")
    assert ids(other) == []
    assert_stored(download(other, served.url), small_model)
