"""A browser profile on the disk, as people have one: what its origins store outlives their pages.

Counterpart: conftest.py, whose tabs are of private windows that keep nothing. The browser is the same.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext
from starlette.applications import Starlette

from headrace.headless import LAUNCH_ARGUMENTS
from headrace.server import background_server
from tests.browser.tab import SETUP, Tab

EMPTY_PAGE = "/playground/headless.html"

LIST_FILES = """async (read) => {
  const root = await navigator.storage.getDirectory();
  const files = {};
  const walk = async (folder, path) => {
    for await (const [name, entry] of folder.entries()) {
      if (entry.kind === "directory") await walk(entry, `${path}${name}/`);
      else {
        const file = await entry.getFile();
        files[path + name] = read && file.size < read ? await file.text() : file.size;
      }
    }
  };
  await walk(root, "");
  return files;
}"""

FOLDER = "headrace-models/"


@contextmanager
def profile(
    browser: Browser,
    chromium: Path,
    folder: Path,
    *,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    preferences: Mapping[str, Any] | None = None,
) -> Iterator[BrowserContext]:
    """The profile in `folder`, made when it is empty, in a process of its own while the context is open."""
    if preferences is not None:
        path = folder / "Default" / "Preferences"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(preferences))
    # Playwright's interface can be entered once per thread, which `browser` has done.
    context = browser.browser_type.launch_persistent_context(
        folder,
        executable_path=chromium,
        args=[*LAUNCH_ARGUMENTS, *arguments],
        env={**os.environ, **(environment or {})},
    )
    try:
        yield context
    finally:
        context.close()


class Origin:
    """A site of its own on the server's port, and what a profile keeps for it."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.context = context
        self.url = url
        self.tabs: list[Tab] = []

    def open(self, path: str = EMPTY_PAGE) -> Tab:
        """A tab with the library in its global scope."""
        tab = Tab(self.context.new_page())
        self.tabs.append(tab)
        tab.page.goto(self.url + path)
        tab.run(SETUP)
        return tab

    def reopen(self, tab: Tab) -> Tab:
        """Closes a tab, as a person does, without a warning, and opens another."""
        tab.page.close()
        return self.open()

    def stored(self, tab: Tab) -> dict[str, int]:
        """The files of the store's folder with their sizes."""
        files: dict[str, int] = tab.run(LIST_FILES, 0)
        return {name.removeprefix(FOLDER): size for name, size in files.items()}

    def texts(self, tab: Tab, below: int = 10**6) -> dict[str, Any]:
        """All files of the origin; those of less than so many bytes with what is in them."""
        files: dict[str, Any] = tab.run(LIST_FILES, below)
        return files

    def limit(self, tab: Tab, quota_bytes: int | None) -> None:
        """What the browser lets the origin store, while this tab is open; None lifts the limit."""
        # The limit ends with the session, which ends with the tab.
        session = self.context.new_cdp_session(tab.page)
        limit = {} if quota_bytes is None else {"quotaSize": quota_bytes}
        session.send("Storage.overrideQuotaForOrigin", {"origin": f"{self.url}/", **limit})

    def clear(self) -> None:
        """Removes what is stored: else a test's gigabytes would lie there until the last one has run."""
        page = self.context.new_page()
        session = self.context.new_cdp_session(page)
        session.send("Storage.clearDataForOrigin", {"origin": self.url, "storageTypes": "all"})
        page.close()


@contextmanager
def origin(
    context: BrowserContext, app: Starlette, host: str | None = None, *, lasting: bool = False
) -> Iterator[Origin]:
    """A new origin with nothing stored; its pages are closed and its data removed at the end.

    `host` is a name by which the browser knows this machine. `lasting` leaves the data where they are. At the
    end, an unexpected complaint of a tab's console is an error.
    """
    with ExitStack() as stack:
        base = stack.enter_context(background_server(app))
        site = Origin(context, base if host is None else base.replace("127.0.0.1", host))
        try:
            yield site
        finally:
            for tab in site.tabs:
                tab.page.close()
            if not lasting:
                site.clear()
    complaints = [text for tab in site.tabs for text in tab.unexpected()]
    assert not complaints, complaints
