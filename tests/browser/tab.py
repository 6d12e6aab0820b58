"""A page of the browser tests, with the library in its global scope.

Counterparts: conftest.py and profiles.py open them.
"""

import re
from typing import Any

from playwright.sync_api import ConsoleMessage, Page

SETUP = """async () => {
  Object.assign(globalThis, await import("/headrace/index.js"));
  globalThis.client = new HeadraceClient();
  globalThis.told = (promise) => promise.then(
    (value) => ({ value }),
    ({ code, message, detail }) => ({ error: { code, message, detail } }),
  );
}"""


# What Chromium itself says in the console of a machine without a GPU, whenever somebody asks for one.
NO_ADAPTER = r"^warning: No available adapters\."


class Tab:
    """A page with the library in its global scope, and everything its console complained about."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        self._allowed: list[str] = [NO_ADAPTER]
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.complaints.append(error.message))

    def run(self, script: str, argument: object = None) -> Any:
        """Evaluates a JavaScript function in the page."""
        return self.page.evaluate(script, argument)

    def allow(self, pattern: str) -> None:
        """Complaints that match are part of the test."""
        self._allowed.append(pattern)

    def unexpected(self) -> list[str]:
        return [text for text in self.complaints if not any(re.search(p, text) for p in self._allowed)]

    def _hear(self, entry: ConsoleMessage) -> None:
        if entry.type in ("error", "warning"):
            self.complaints.append(f"{entry.type}: {entry.text} ({entry.location.get('url', '')})")
