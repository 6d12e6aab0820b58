"""What the tests of downloads share: models to publish, and the page's side of a download.

Counterparts: web/models/, tests/fault_server.py.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.browser.tab import Tab

MIB = 2**20
NOISE = "Failed to load resource"
"""What Chromium's console says of every response that is no success, and of every connection that breaks."""

START = """({ source, options = {} }) => {
  globalThis.seen = [];
  globalThis.controller = new AbortController();
  globalThis.pending = told(client.models.download(source, {
    ...options, signal: controller.signal, onProgress: (progress) => void seen.push(progress) }));
}"""
LOADED = "(bytes) => seen.some(({ phase, loaded }) => phase === 'download' && loaded >= bytes)"
FINISH = "async () => ({ ...await pending, seen })"

ANSWER = """async (options) => {
  const endpoint = Endpoint.local({ threads: 1, context: { size: 256 }, ...options });
  const added = await told(client.add(crypto.randomUUID?.() ?? String(Math.random()), endpoint));
  if (added.error) return added;
  const { text } = await client.query(added.value, ">", { maxTokens: 6, temperature: 0 }).response;
  await client.remove(added.value);
  return { value: text };
}"""


class Published(NamedTuple):
    """A model that is served, and what must arrive of it."""

    path: Path
    size: int
    sha256: str

    @classmethod
    def of(cls, path: Path) -> "Published":
        with path.open("rb") as file:
            return cls(path, path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())


class Download(NamedTuple):
    """How one ended, with all its progress."""

    value: dict[str, Any]
    error: dict[str, Any]
    seen: list[dict[str, Any]]


def start(tab: Tab, source: object, **options: object) -> None:
    """Begins a download in the page, which goes on while the test does other things."""
    tab.allow(NOISE)
    tab.run(START, {"source": source, "options": options})


def wait_loaded(tab: Tab, count: int) -> None:
    """Waits for so many bytes of the download that was begun."""
    tab.page.wait_for_function(LOADED, arg=count)


def finish(tab: Tab) -> Download:
    """Waits for the end of the download that was begun."""
    outcome = tab.run(FINISH)
    return Download(outcome.get("value", {}), outcome.get("error", {}), outcome["seen"])


def download(tab: Tab, source: object, **options: object) -> Download:
    start(tab, source, **options)
    return finish(tab)


def assert_stored(outcome: Download, published: Published, *, begins_again: bool = False) -> None:
    """It came whole, under the name that its bytes have; `begins_again` if the file has changed meanwhile."""
    assert not outcome.error, outcome.error
    assert outcome.value["id"] == f"sha256-{published.sha256}"
    assert outcome.value["parts"] == [{"sha256": published.sha256, "size": published.size}]
    assert_honest(outcome.seen, begins_again)


def assert_honest(seen: Sequence[Mapping[str, Any]], begins_again: bool) -> None:
    """Every figure is a number or "unknown"; nothing goes past its end, or backwards more than allowed."""
    loaded = 0
    backwards = 0
    for progress in seen:
        for name in ("loaded", "total", "bytesPerSecond", "secondsLeft"):
            figure = progress[name]
            assert figure is None or (math.isfinite(figure) and figure >= 0), progress
        if progress["phase"] == "download":
            backwards += progress["loaded"] < loaded
            assert progress["total"] is None or progress["loaded"] <= progress["total"], progress
            loaded = progress["loaded"]
    assert backwards <= begins_again, seen


def assert_refused(outcome: Download, code: str) -> str:
    """It failed with this code, in one sentence, which is returned."""
    assert not outcome.value
    assert outcome.error["code"] == code, outcome.error
    message: str = outcome.error["message"]
    assert message
    assert "\n" not in message
    assert len(message) < 400
    return message


def answer(tab: Tab, model: object, **options: object) -> Any:
    """What the model says, with an endpoint of its own; or the error."""
    outcome = tab.run(ANSWER, {"model": model, **options})
    return outcome.get("value") or outcome["error"]
