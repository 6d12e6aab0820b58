"""How fast models reach the model store and the engine, in a page with a disk of its own.

Run by `python3 -m build_tools bench store`. The server is on this machine, so that a download's rate is that
of everything but the network. Counterpart: `tests/browser/test_store_promises.py`, which judges. Not a test.
"""

import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Page
from starlette.applications import Starlette

from bench.command import page_command
from headrace.headless import LAUNCH_ARGUMENTS, launch
from headrace.server import background_server, create_app

SETUP = """async () => {
  Object.assign(globalThis, await import("/headrace/index.js"));
  globalThis.client = new HeadraceClient();
  globalThis.timed = async (action) => {
    const began = performance.now();
    const value = await action();
    return [performance.now() - began, value];
  };
}"""

# One measurement: how many milliseconds the whole file took.
STEPS: Mapping[str, str] = {
    "download": """async (url) => {
      const [ms, model] = await timed(() => client.models.download(url));
      globalThis.model = model;
      return ms;
    }""",
    "verify": "async () => (await timed(() => client.models.verify(model)))[0]",
    "raw read": """async () => {
      const script = `onmessage = async ({ data: names }) => {
        const root = await navigator.storage.getDirectory();
        const folder = await root.getDirectoryHandle("headrace-models");
        const buffer = new Uint8Array(8 * 2 ** 20).fill(1);
        let ms = 0;
        for (const name of names) {
          const file = await (await folder.getFileHandle(name)).createSyncAccessHandle({ mode: "read-only" });
          const began = performance.now();
          for (let at = 0; at < file.getSize(); at += buffer.length) file.read(buffer, { at });
          ms += performance.now() - began;
          file.close();
        }
        postMessage(ms);
      };`;
      const worker = new Worker(URL.createObjectURL(new Blob([script])));
      const ms = await new Promise((resolve) => {
        worker.onmessage = ({ data }) => resolve(data);
        worker.postMessage(model.files.map(({ sha256 }) => `${sha256}.gguf`));
      });
      worker.terminate();
      return ms;
    }""",
    "import": """async () => {
      const [{ name, blob }] = await client.models.export(model);
      const bytes = await blob.arrayBuffer();
      await client.models.delete(model);
      const [ms, imported] = await timed(() => client.models.import(new File([bytes], name)));
      globalThis.model = imported;
      return ms;
    }""",
}

OPEN = """async (artifact) => {
  const endpoint = Endpoint.local({ model, artifact, threads: 1, context: { size: 512 } });
  const [ms] = await timed(() => client.add("model", endpoint));
  const { storage, heapBytes, memory } = client.capabilities("model");
  await client.remove("model");
  return { ms, readMs: storage.readMs, bytesRead: storage.bytesRead, heapBytes, memory };
}"""


def measure(
    model: Path,
    *,
    chromium: Path,
    web_dir: Path,
    artifacts_dir: Path,
    repeats: int,
    log: Callable[[str], None],
) -> dict[str, Any]:
    """Everything, `repeats` times, each time with an empty store.

    Returns `{model, bytes, megabytesPerSecond: {step: median}, open: {artifact: {ms, readMegabytesPerSecond,
    copiedPerByte, heapBytes, memory}}}`; `ms` from `add` to ready, with a model that is stored.
    """
    size = model.stat().st_size
    app = create_app(web_dir=web_dir, artifacts_dir=artifacts_dir, models={model.name: model})
    rates: dict[str, list[float]] = {step: [] for step in STEPS}
    opened: dict[str, list[dict[str, Any]]] = {"st": [], "mt": []}
    for turn in range(repeats):
        with _page(app, chromium) as (page, base):
            for step, script in STEPS.items():
                ms = page.evaluate(script, f"{base}/models/{model.name}" if step == "download" else None)
                rates[step].append(size / ms / 1000)
                log(f"round {turn + 1} of {repeats}: {step}")
            for artifact, records in opened.items():
                records.append(page.evaluate(OPEN, artifact))
                log(f"round {turn + 1} of {repeats}: open {artifact}")
    return {
        "model": model.name,
        "bytes": size,
        "megabytesPerSecond": {step: statistics.median(found) for step, found in rates.items()},
        "open": {artifact: _summary(records, size) for artifact, records in opened.items()},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    return page_command("bench store", "Rates of the model store.", measure, table, arguments)


def table(figures: Mapping[str, Any]) -> str:
    """The figures of `measure` for people."""
    lines = [f"{figures['model']}, {figures['bytes'] / 1e6:.1f} MB", f"{'':<10}{'MB/s':>10}"]
    lines += [f"{step:<10}{rate:>10.0f}" for step, rate in figures["megabytesPerSecond"].items()]
    lines.append(f"{'':<10}{'ready ms':>10}{'read MB/s':>11}{'copies':>8}{'heap MB':>9}{'needed MB':>11}")
    for artifact, record in figures["open"].items():
        needed = sum(record["memory"].values())
        lines.append(
            f"{'open ' + artifact:<10}{record['ms']:>10.0f}{record['readMegabytesPerSecond']:>11.0f}"
            f"{record['copiedPerByte']:>8.3f}{record['heapBytes'] / 1e6:>9.0f}{needed / 1e6:>11.0f}"
        )
    return "\n".join(lines)


def _summary(records: Sequence[Mapping[str, Any]], size: int) -> dict[str, Any]:
    read = [record["bytesRead"] / record["readMs"] / 1000 for record in records]
    return {
        "ms": statistics.median(record["ms"] for record in records),
        "readMegabytesPerSecond": statistics.median(read),
        "copiedPerByte": records[0]["bytesRead"] / size,
        "heapBytes": max(record["heapBytes"] for record in records),
        "memory": records[0]["memory"],
    }


@contextmanager
def _page(app: Starlette, chromium: Path) -> Iterator[tuple[Page, str]]:
    """A page of a browser whose files are on the disk, unlike those of a private window; and its server."""
    with (
        tempfile.TemporaryDirectory() as folder,
        background_server(app) as base,
        launch(chromium) as browser,
    ):
        # Playwright's interface can be entered once per thread, which `launch` has done.
        context = browser.browser_type.launch_persistent_context(
            folder, executable_path=chromium, args=LAUNCH_ARGUMENTS
        )
        try:
            page = context.new_page()
            page.goto(f"{base}/playground/headless.html")
            page.evaluate(SETUP)
            yield page, base
        finally:
            context.close()
