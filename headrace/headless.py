"""The page's own code in a headless Chromium: what a browser would answer, without a display.

Counterpart: `web/playground/headless.html`, the page that is opened. Not a second client: the model
runs in the page's worker, and this module only carries text and the result out.
"""

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, urljoin

from playwright.sync_api import Browser, ConsoleMessage, Error, Page, sync_playwright
from starlette.applications import Starlette

from headrace.errors import HeadraceError
from headrace.server import background_server
from headrace.wire import Operation, encode_names

Artifact = Literal["st", "mt"]

# No sandbox: Chromium refuses its own when it runs as root. The others keep it from calling home.
LAUNCH_ARGUMENTS = [
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

# Each script catches what it throws: Playwright would carry the message across, but not the code.
OPEN_SCRIPT = """async ({ model, threads, artifact }) => {
  try {
    const { HeadraceClient, Endpoint } = await import("/headrace/index.js");
    globalThis.client = new HeadraceClient();
    const chosen = {};
    if (threads !== null) chosen.threads = threads;
    if (artifact !== null) chosen.artifact = artifact;
    globalThis.endpoint = await client.add("model", Endpoint.local({ model, ...chosen }));
    return {};
  } catch (error) {
    const { code, message, detail } = error;
    return { error: { code: code ?? "internal", message, detail: detail ?? {} } };
  }
}"""

ASK_SCRIPT = """async ({ operation, input, options }) => {
  try {
    const run = globalThis.client[operation](globalThis.endpoint, input, options);
    let delivered = Promise.resolve();
    let refused = false;
    for await (const batch of run.tokens) {
      if (refused) break;
      delivered = globalThis.deliverText(batch.text).catch(() => { refused = true; });
    }
    await delivered;
    return { result: await run.response };
  } catch (error) {
    const { code, message, detail } = error;
    return { error: { code: code ?? "internal", message, detail: detail ?? {} } };
  }
}"""


class HeadlessPage:
    """A page with one model loaded, ready for requests one after the other."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._on_text: Callable[[str], None] = lambda text: None
        self._interruption: BaseException | None = None
        self._complaints: list[str] = []
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self._complaints.append(error.message))
        page.on("crash", lambda _: self._complaints.append("the page crashed"))
        page.expose_function("deliverText", self._deliver)

    def open(self, address: str, model: str, threads: int | None, artifact: Artifact | None) -> None:
        """Opens the page at `address` and loads `model`, a URL that may be relative to it."""
        self._guard(lambda: self._page.goto(address))
        self._call(OPEN_SCRIPT, {"model": urljoin(address, model), "threads": threads, "artifact": artifact})

    def ask(
        self, operation: Operation, text: str, options: Mapping[str, object], on_text: Callable[[str], None]
    ) -> dict[str, Any]:
        """Runs one request, see `ask`; an exception raised by `on_text` cancels it and reaches the caller."""
        self._on_text, self._interruption = on_text, None
        request = {
            "operation": operation,
            "input": text if operation == "query" else [{"role": "user", "content": text}],
            "options": encode_names(options),
        }
        result: dict[str, Any] = self._call(ASK_SCRIPT, request)["result"]
        return result

    def _hear(self, entry: ConsoleMessage) -> None:
        if entry.type == "error":
            self._complaints.append(entry.text)

    def _deliver(self, text: str) -> None:
        try:
            self._on_text(text)
        except BaseException as error:
            # Playwright carries an ordinary exception into the page, where it ends the loop.
            self._interruption = error
            raise RuntimeError("no more text is wanted") from error

    def _call(self, script: str, argument: Mapping[str, object]) -> dict[str, Any]:
        outcome: dict[str, Any] = self._guard(lambda: self._page.evaluate(script, argument))
        if "error" in outcome:
            raise HeadraceError.from_wire(outcome["error"])
        return outcome

    def _guard(self, action: Callable[[], Any]) -> Any:
        try:
            outcome = action()
        except Error as error:
            if self._interruption:
                raise self._interruption from None
            # Playwright's own message goes on with a call log; the first line says it.
            reason = self._complaints[-1] if self._complaints else error.message.splitlines()[0]
            raise HeadraceError(
                "worker_crashed",
                f"the page in headless Chromium ended before it answered: {reason}",
                {"console": self._complaints},
                cause=error,
            ) from error
        if self._interruption:
            raise self._interruption
        return outcome


@contextmanager
def launch(
    chromium: Path, *, arguments: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> Iterator[Browser]:
    """A headless Chromium while the context is open; `chromium` is the program's path.

    `arguments` and `environment` are added to those of ours and of this process.
    """
    with ExitStack() as quiet, sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(
                executable_path=chromium,
                args=[*LAUNCH_ARGUMENTS, *arguments],
                env={**os.environ, **(environment or {})},
            )
        except Error as error:
            raise HeadraceError(
                "environment_unsupported",
                f"{chromium} does not start: {error.message.splitlines()[0]}",
                {"log": error.message},
                cause=error,
            ) from error
        try:
            yield browser
        except KeyboardInterrupt:
            # Ctrl-C has ended Playwright's driver as well, which would be reported while this unwinds.
            logging.getLogger("asyncio").disabled = True
            quiet.enter_context(redirect_stderr(StringIO()))
            raise
        finally:
            browser.close()


@contextmanager
def headless_page(
    browser: Browser,
    app: Starlette,
    *,
    model: str,
    threads: int | None = None,
    artifact: Artifact | None = None,
    port: int = 0,
) -> Iterator[HeadlessPage]:
    """A page of `browser`, served by `app`, with `model` loaded; page and server end with the context.

    Arguments as for `ask`.
    """
    address = model if "://" in model else f"/models/{quote(model)}"
    with background_server(app, port=port) as base, closing(browser.new_page()) as tab:
        page = HeadlessPage(tab)
        page.open(f"{base}/playground/headless.html", address, threads, artifact)
        yield page


def ask(
    *,
    chromium: Path,
    app: Starlette,
    operation: Operation,
    text: str,
    model: str,
    options: Mapping[str, object],
    threads: int | None,
    artifact: Artifact | None,
    on_text: Callable[[str], None],
    port: int = 0,
) -> dict[str, Any]:
    """One request, answered in a page; returns the result record as the page's client gives it.

    `text` is the prompt of a `query` or the user's turn of a `chat`. `model` is an absolute URL or the
    name of one of the app's models. `options` are request options in snake_case. `threads` and
    `artifact` are left to the page when None. `on_text` is told the text as it comes; what it raises
    cancels the request and reaches the caller. `port` is the server's, 0 takes a free one. Raises
    `HeadraceError` with the page's code, `worker_crashed` if page or browser end early.
    """
    with (
        launch(chromium) as browser,
        headless_page(browser, app, model=model, threads=threads, artifact=artifact, port=port) as page,
    ):
        return page.ask(operation, text, options, on_text)
