"""A model of three gigabytes: split while it comes, mounted, and read back tensor by tensor.

Counterparts: web/models/split.js, download.js, native/storage. The file is computed by the server as it is
asked for; in the browser it is real. $HEADRACE_LARGE_GIB makes it another size (more than 2).
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser
from starlette.applications import Starlette

from tests.browser.downloads import MIB, finish, start
from tests.browser.profiles import origin, profile
from tests.fault_server import FaultServer
from tests.synthetic_gguf import Synthetic

pytestmark = [pytest.mark.browser, pytest.mark.timeout(280)]

GIB = 2**30
SHARD_BYTES = 512 * MIB
SECONDS = 240_000
"""How long the page may take, in milliseconds."""

# Every byte goes the way that an engine's would: storage, file system, heap.
READ_BACK = """async ({ id, artifact }) => {
  const script = `
    import { findArtifact } from "${location.origin}/headrace/worker/artifact.js";
    import { EXPECTED_ABI_VERSION } from "${location.origin}/headrace/worker/engine_port.js";
    import { startInstance } from "${location.origin}/headrace/worker/instance.js";
    import { parseHeader } from "${location.origin}/headrace/models/gguf_header.js";
    import { ModelStore } from "${location.origin}/headrace/models/model_store.js";
    import { createSha256 } from "${location.origin}/headrace/models/sha256.js";
    import { openStorage } from "${location.origin}/headrace/models/storage.js";

    const BLOCK = 8 * 2 ** 20;

    async function readBack({ id, artifact }) {
      const folder = "${location.origin}/headrace/artifacts/";
      const addresses = await findArtifact(folder, artifact, EXPECTED_ABI_VERSION);
      const { module, memory } = await startInstance(addresses, 1);
      const { storage } = await openStorage("auto");
      const opened = await new ModelStore(storage).open(id);
      const files = opened.files.map((file, number) => ({ name: number + ".gguf", file }));
      module.FS.mkdirTree("/models");
      module.FS.mount(module.STORAGEFS, { files }, "/models");
      const pointer = module._malloc(BLOCK) >>> 0;
      const tensors = [];
      const headers = [];
      for (const { name, file } of files) {
        const stream = module.FS.open("/models/" + name, "r");
        // The view is made anew each time: the memory may have grown.
        const read = (at, length) => {
          const count = module.FS.read(stream, new Uint8Array(memory.buffer), pointer, length, at);
          if (count !== length) throw new Error(name + ": " + count + " of " + length + " bytes at " + at);
          return new Uint8Array(memory.buffer, pointer, length);
        };
        let header = null;
        for (let length = 2 ** 20; header === null; length *= 2)
          header = parseHeader(read(0, Math.min(length, file.size, BLOCK)).slice(), name);
        headers.push({ size: file.size, tensors: header.tensors.length, keys: [...header.metadata.keys()] });
        for (const tensor of header.tensors) {
          const sha256 = await createSha256();
          const from = header.dataStart + tensor.offset;
          for (let at = 0; at < tensor.bytes; at += BLOCK)
            sha256.update(read(from + at, Math.min(BLOCK, tensor.bytes - at)));
          tensors.push([tensor.name, tensor.bytes, sha256.digest()]);
        }
        module.FS.close(stream);
      }
      opened.release();
      return { tensors, headers, heapBytes: memory.buffer.byteLength };
    }

    onmessage = ({ data }) => readBack(data).then(
      (value) => postMessage({ value }),
      (error) => postMessage({ error: String(error?.stack ?? error) }),
    );`;
  const url = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
  const worker = new Worker(url, { type: "module" });
  const outcome = await new Promise((resolve) => {
    worker.onmessage = ({ data }) => resolve(data);
    worker.onerror = (event) => resolve({ error: event.message });
    worker.postMessage({ id, artifact });
  });
  worker.terminate();
  return outcome;
}"""


class Disk:
    """What a folder occupies, looked at while the browser works."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.peak = 0

    def look(self) -> None:
        blocks = 0
        for path in self.folder.rglob("*"):
            try:
                blocks += path.stat().st_blocks
            except FileNotFoundError:
                continue  # the browser goes on while we look
        self.peak = max(self.peak, 512 * blocks)

    @contextmanager
    def watched(self) -> Iterator[None]:
        over = threading.Event()

        def watch() -> None:
            while not over.wait(0.1):
                self.look()

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def test_three_gigabytes_are_split_mounted_and_read_back(
    browser: Browser,
    chromium: Path,
    app: Starlette,
    faults: FaultServer,
    tmp_path: Path,
    record_property: Any,
) -> None:
    """Nothing of it is twice on the disk, and every tensor has its own bytes."""
    content = Synthetic(int(float(os.environ.get("HEADRACE_LARGE_GIB", "3")) * GIB))
    sha256, tensors = content.digests()
    served = faults.serve("/synthetic.gguf", content)
    # In memory a large file would be of no use, so that it is never tried in a private window.
    with profile(browser, chromium, tmp_path) as context, origin(context, app) as site:
        tab = site.open()
        tab.page.set_default_timeout(SECONDS)
        disk = Disk(tmp_path)
        disk.look()
        empty = disk.peak
        began = time.monotonic()
        with disk.watched():
            start(tab, served.url, sha256=sha256)
            outcome = finish(tab)
        seconds = time.monotonic() - began
        assert not outcome.error, outcome.error
        model = outcome.value
        assert model["id"] == f"sha256-{sha256}"
        assert model["parts"] == [{"sha256": sha256, "size": content.size}]
        assert faults.bytes_sent() < content.size * 1.02
        stored = site.stored(tab)
        assert sum(stored.values()) < content.size + 16 * MIB
        assert disk.peak - empty < content.size + SHARD_BYTES
        largest = max(tensor.size for tensor in tensors)
        assert len(model["files"]) > 4
        assert all(file["size"] <= max(SHARD_BYTES, largest) + 4 * MIB for file in model["files"])

        began = time.monotonic()
        read = tab.run(READ_BACK, {"id": model["id"], "artifact": "mt"})
        assert "error" not in read, read["error"]
        value = read["value"]
        record_property("figures", {"seconds": seconds, "readBack": time.monotonic() - began})
        print(f"{content.size / seconds / 1e6:.0f} MB/s down, {disk.peak - empty:,} bytes at the peak")
        assert value["tensors"] == [list(tensor) for tensor in tensors]
        assert value["heapBytes"] < 128 * MIB
        assert "tokenizer.ggml.tokens" in value["headers"][0]["keys"]
        assert all("split.no" in header["keys"] for header in value["headers"])
