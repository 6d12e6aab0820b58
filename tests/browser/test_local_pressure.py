"""Many requests at once in a page: none is lost, none holds up another (cases G3, G4).

Counterparts: web/worker/tick_loop.js, web/endpoints/local_session.js. The same without a browser is in
tests/python/test_native_mixture.py and test_native_sharing.py.
"""

import pytest

from tests.browser.conftest import OpenTab

pytestmark = pytest.mark.browser

LOAD = """async (options) => {
  globalThis.model = await client.add("model", Endpoint.local({ threads: 1, ...options }));
}"""

STORM = """async (count) => {
  let state = 1;
  const random = () => (state = (state * 48271) % 2147483647) / 2147483647;
  const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  const ask = async (index) => {
    const options = { maxTokens: 30, temperature: 0, priority: Math.floor(random() * 200) - 100 };
    if (random() < 0.5) options.contextKey = "abc"[index % 3];
    const run = client.query(model, ">", options);
    if (random() < 0.5) {
      await sleep(Math.floor(random() * 30));
      run.cancel();
    }
    const { value, error } = await told(run.response);
    return error ? error.code : `${value.finishReason} ${"abc".repeat(10).startsWith(value.text)}`;
  };
  const ends = {};
  for (const end of await Promise.all(Array.from({ length: count }, (_, index) => ask(index)))) {
    ends[end] = (ends[end] ?? 0) + 1;
  }
  const { text } = await client.query(model, ">", { maxTokens: 3, temperature: 0 }).response;
  return { ends, text };
}"""


@pytest.mark.parametrize("artifact", ["st", "mt"])
def test_a_storm_of_requests_and_cancels_loses_none(open_tab: OpenTab, artifact: str) -> None:
    """Cases G3 and G4: 300 on four slots, half of them cancelled at random moments."""
    tab = open_tab()
    tab.run(LOAD, {"model": "/models/abc.gguf", "artifact": artifact, "context": {"size": 128, "slots": 4}})
    outcome = tab.run(STORM, 300)
    assert sum(outcome["ends"].values()) == 300
    assert outcome["ends"].keys() <= {"length true", "cancelled true", "queue_full"}
    assert outcome["ends"]["length true"] > 0
    assert outcome["text"] == "abc"


def test_a_reader_that_never_reads_holds_up_nobody(open_tab: OpenTab) -> None:
    """Case G3: what nobody reads waits for its reader."""
    tab = open_tab()
    tab.run(LOAD, {"model": "/models/abc.gguf", "context": {"slots": 2}})
    unread, other, late = tab.run(
        """async () => {
          const unread = client.query(model, ">", { maxTokens: 2000, temperature: 0 });
          const other = await client.query(model, ">", { maxTokens: 3, temperature: 0 }).response;
          const whole = await unread.response;
          let late = "";
          for await (const batch of unread.tokens) late += batch.text;
          return [whole.text, other.text, late];
        }"""
    )
    assert other == "abc"
    assert unread == late == ("abc" * 667)[:2000]


def test_a_prompt_that_was_cancelled_can_be_asked_again_under_its_key(open_tab: OpenTab) -> None:
    """Case G3: at once, with the same key."""
    tab = open_tab()
    tab.run(LOAD, {"model": "/models/abc.gguf", "context": {"size": 4096}})
    first, second = tab.run(
        """async () => {
          const options = { maxTokens: 6, temperature: 0, contextKey: "document" };
          const first = client.query(model, "x".repeat(4000), options);
          while (!first.accepted) await new Promise((resolve) => setTimeout(resolve, 1));
          first.cancel();
          const second = client.query(model, "x".repeat(4000) + "y", options);
          return Promise.all([first.response, second.response]);
        }"""
    )
    assert first["finishReason"] == "cancelled"
    assert (second["text"], second["usage"]["inputTokens"]) == ("abcabc", 4001)
