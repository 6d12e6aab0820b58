"""Pages in which nothing can be stored: models run from memory, and the page is told why (case D7).

Counterparts: web/models/storage.js, memory_storage.js.
"""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser
from starlette.applications import Starlette

from tests.browser.downloads import (
    NOISE,
    Published,
)
from tests.browser.profiles import origin, profile
from tests.browser.tab import Tab
from tests.fault_server import FaultServer

pytestmark = pytest.mark.browser

PATH = "/abc.gguf"


def assert_runs_from_memory(tab: Tab, url: str) -> None:
    tab.allow(NOISE)
    outcome = tab.run(
        """async (model) => {
          const seen = [];
          const endpoint = Endpoint.local({ model, threads: 1, context: { size: 256 } });
          const added = await told(client.add("model", endpoint));
          if (added.error) return added;
          const { text } = await client.query("model", ">", { maxTokens: 6, temperature: 0 }).response;
          return { text, reasons: client.capabilities("model").reasons };
        }""",
        url,
    )
    assert outcome.get("text") == "abcabc", outcome
    assert any(re.search(r"memory", reason) for reason in outcome["reasons"]), outcome
    usage = tab.run("() => client.models.usage()")
    assert usage["storage"] == "memory"


def test_an_insecure_origin(
    browser: Browser,
    chromium: Path,
    app: Starlette,
    faults: FaultServer,
    small_model: Published,
    tmp_path: Path,
) -> None:
    """Case D7: http:// on a machine of another name has no storage, no locks and no caches."""
    arguments = ["--host-resolver-rules=MAP headrace.test 127.0.0.1"]
    served = faults.serve(PATH, small_model.path)
    with (
        profile(browser, chromium, tmp_path, arguments=arguments) as context,
        origin(context, app, "headrace.test") as site,
    ):
        tab = site.open()
        assert tab.run("() => [isSecureContext, typeof navigator.storage, typeof navigator.locks]") == [
            False,
            "undefined",
            "undefined",
        ]
        assert_runs_from_memory(tab, served.url)


def test_site_data_that_the_user_has_blocked(
    browser: Browser,
    chromium: Path,
    app: Starlette,
    faults: FaultServer,
    small_model: Published,
    tmp_path: Path,
) -> None:
    """Case D7: the interfaces are there, and each call of them is refused."""
    blocked = {"profile": {"default_content_setting_values": {"cookies": 2}}}
    served = faults.serve(PATH, small_model.path)
    with (
        profile(browser, chromium, tmp_path, preferences=blocked) as context,
        origin(context, app) as site,
    ):
        tab = site.open()
        assert "error" in tab.run("() => told(navigator.storage.getDirectory())")
        assert_runs_from_memory(tab, served.url)
