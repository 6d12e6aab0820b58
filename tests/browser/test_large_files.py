"""A model between 2 and 4 GiB in a page, where addresses have 32 bits (case F8).

Counterparts: native/storage/storage_fs.js, through which the engine reads. The file
is one of the user's: most of its bytes are holes, which cost neither the disk nor the heap anything.
"""

from pathlib import Path

import pytest

from tests.browser.conftest import OpenTab
from tests.gguf_builder import far_apart

pytestmark = pytest.mark.browser

CHOOSER = """() => {
  const chooser = document.createElement("input");
  Object.assign(chooser, { type: "file", id: "chooser" });
  document.body.append(chooser);
}"""

ASK = """async ({ artifact }) => {
  const [model] = document.getElementById("chooser").files;
  const endpoint = Endpoint.local({ model, artifact, threads: 1, context: { size: 256 } });
  const reference = await client.add("large", endpoint);
  const { text } = await client.query(reference, ">", { maxTokens: 6, temperature: 0 }).response;
  return { text, bytes: model.size };
}"""


@pytest.mark.parametrize("artifact", ["st", "mt"])
def test_a_file_of_more_than_two_gigabytes_answers(open_tab: OpenTab, tmp_path: Path, artifact: str) -> None:
    """Case F8: the tensors that the answer depends on begin beyond 2 GiB."""
    path = far_apart(tmp_path / "far.gguf", 2**27)
    tab = open_tab()
    tab.run(CHOOSER)
    tab.page.set_input_files("#chooser", path)
    answer = tab.run(ASK, {"artifact": artifact})
    assert 2**31 < path.stat().st_size == answer["bytes"] < 2**32
    assert answer["text"] == "abcabc"
