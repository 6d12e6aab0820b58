"""What the engine reads of a model's files, in a worker, through the door that the engine's worker uses.

Counterparts: native/storage/storage_fs.js, web/worker/mounted_file.js and engine_port.js. Files here are
in the worker's memory and remember what was asked of them.
"""

from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import OpenTab
from tests.gguf_builder import parrot, read_gguf, write_shards

pytestmark = pytest.mark.browser

WORKER = """
import { findArtifact } from "ORIGIN/headrace/worker/artifact.js";
import { EXPECTED_ABI_VERSION, EnginePort } from "ORIGIN/headrace/worker/engine_port.js";

function fileOf(bytes, failsAt, closed) {
  return {
    size: bytes.length,
    read(target, at) {
      if (at + target.length > failsAt) throw new Error("the disk is gone");
      const part = bytes.subarray(at, at + target.length);
      target.set(part);
      return part.length;
    },
    close: () => closed.push(bytes.length),
  };
}

onmessage = async ({ data: { artifact, names, parts, failsAt } }) => {
  try {
    const addresses = await findArtifact("ORIGIN/headrace/artifacts/", artifact, EXPECTED_ABI_VERSION);
    const port = await EnginePort.start(addresses, 1);
    const closed = [];
    const files = parts.map((bytes, i) => ({ name: names[i], file: fileOf(bytes, failsAt, closed) }));
    const paths = port.mount(files);
    let error = null;
    try {
      await port.load({ model: paths }, { contextSize: 256, threads: 1 }, () => {});
    } catch ({ code, message }) {
      error = { code, message };
    }
    const [event] = port.takeEvents();
    port.unmount();
    let text = "";
    if (event.type === "ready") {
      await port.submit(JSON.stringify({ id: 1, operation: "query", prompt: ">",
        options: { maxTokens: 6, temperature: 0 } }));
      while ((await port.tick(10)) > 0);
      text = port.takeEvents().find(({ type }) => type === "done").result.text;
    }
    postMessage({ paths, error, event, text, closed, counters: port.storageCounters(),
      heapBytes: port.heapBytes });
  } catch (error) {
    postMessage({ crash: String(error) });
  }
};
"""

LOAD = """async ({ source, artifact, names, sources, failsAt }) => {
  const parts = [];
  for (const text of sources) parts.push(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)));
  const script = new Blob([source.replaceAll("ORIGIN", location.origin)], { type: "text/javascript" });
  const worker = new Worker(URL.createObjectURL(script), { type: "module" });
  return new Promise((resolve) => {
    worker.onmessage = ({ data }) => resolve(data);
    worker.onerror = ({ message }) => resolve({ crash: message });
    worker.postMessage({ artifact, names, parts, failsAt: failsAt ?? Infinity });
  }).finally(() => worker.terminate());
}"""


def load(open_tab: OpenTab, artifact: str, paths: list[Path], **options: object) -> dict[str, Any]:
    """Loads the files as one model; their names in the page are those of `names`, by default their own."""
    argument = {
        "source": WORKER,
        "artifact": artifact,
        "names": [path.name for path in paths],
        "sources": [b64encode(path.read_bytes()).decode() for path in paths],
        **options,
    }
    answer: dict[str, Any] = open_tab().run(LOAD, argument)
    assert "crash" not in answer, answer
    return answer


def header_bytes(path: Path) -> int:
    """Where the tensors' data begins."""
    data = sum(-(-len(tensor.data) // 32) * 32 for tensor in read_gguf(path).tensors)
    return path.stat().st_size - data


@pytest.mark.parametrize("artifact", ["st", "mt"])
def test_tensors_are_read_once(open_tab: OpenTab, artifact: str, tiny_model: Path) -> None:
    """Beside them the header, which is read in blocks of 256 KiB: kept from one reading to the next."""
    answer = load(open_tab, artifact, [tiny_model])
    size, header = tiny_model.stat().st_size, header_bytes(tiny_model)
    surplus = answer["counters"]["bytesRead"] - (size - header)
    assert header < 262144
    assert header <= surplus <= 262144
    assert answer["closed"] == [size]
    memory = answer["event"]["memory"]
    assert size - header <= memory["modelBytes"] <= size
    assert sum(memory.values()) < answer["heapBytes"] <= sum(memory.values()) + 64 * 2**20


@pytest.mark.parametrize("artifact", ["st", "mt"])
def test_shards_in_any_order_and_of_the_same_name(open_tab: OpenTab, artifact: str, tmp_path: Path) -> None:
    """Case F10: unnamed Blobs have no name that tells their order."""
    paths = write_shards(parrot([b"a", b"b", b"c"]), 3, tmp_path)
    answer = load(open_tab, artifact, [paths[2], paths[0], paths[1]], names=["model"] * 3)
    assert answer["text"] == "abcabc"
    assert answer["paths"] == ["/models/0/model", "/models/0/1-model", "/models/0/2-model"]
    assert sorted(answer["closed"]) == sorted(path.stat().st_size for path in paths)


def test_shards_that_are_not_all_there(open_tab: OpenTab, tmp_path: Path) -> None:
    """Cases F11 and F14."""
    paths = write_shards(parrot([b"a", b"b", b"c"]), 3, tmp_path)
    error = load(open_tab, "st", paths[:2])["event"]["error"]
    assert error["code"] == "invalid_request"
    assert error["message"] == "model-00001-of-00003.gguf is shard 1 of 3: all of them are needed, missing 3"
    error = load(open_tab, "st", paths[1:2])["event"]["error"]
    assert error["code"] == "model_not_found"
    assert "no file model-00001-of-00003.gguf beside it" in error["message"]


@pytest.mark.parametrize("share", [0, 0.001, 0.5])
def test_a_read_that_fails_is_no_damaged_model(open_tab: OpenTab, tiny_model: Path, share: float) -> None:
    """In the first read, in the header, among the tensors."""
    answer = load(open_tab, "st", [tiny_model], failsAt=int(share * tiny_model.stat().st_size))
    assert answer["error"] == {
        "code": "storage_failed",
        "message": f"{tiny_model.name} could not be read: the disk is gone",
    }
    assert len(answer["closed"]) == 1
