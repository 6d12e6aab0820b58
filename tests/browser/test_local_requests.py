"""Requests that are no text or no JSON: told under their own run, never at the expense of another.

Counterparts: web/endpoints/request_json.js, web/worker/protocol.js. Options are the engine's business and
tested in tests/python.
"""

import pytest

from tests.browser.conftest import OpenTab

pytestmark = pytest.mark.browser

LOAD = """async () => {
  const context = { slots: 2 };
  globalThis.model = await client.add("model", Endpoint.local({ model: "/models/abc.gguf", context }));
}"""

# A request beside another that is running; both outcomes.
BESIDE = """async () => {{
  const other = client.query(model, ">", {{ maxTokens: 400, temperature: 0 }});
  const told_ = await told({request}.response);
  const rest = await other.response;
  return {{ ...told_, rest: rest.text.length }};
}}"""

CIRCLE = "(() => { const circle = []; circle.push(circle); return circle; })()"
DEEP = "(() => {{ let deep = []; for (let i = 0; i < {}; i++) deep = [deep]; return deep; }})()"


@pytest.mark.parametrize(
    "request_",
    [
        "client.query(model, 1n)",
        "client.query(model, '>', { stop: [1n] })",
        "client.chat(model, [{ role: 'user', content: 1n }])",
        f"client.query(model, '>', {{ stop: {CIRCLE} }})",
        f"client.query(model, '>', {{ stop: {DEEP.format(100_000)} }})",
        f"client.query(model, '>', {{ stop: {DEEP.format(240)} }})",
        f"client.query(model, '>', {{ responseFormat: {DEEP.format(240)} }})",
    ],
)
def test_what_cannot_be_json_fails_its_own_run_only(open_tab: OpenTab, request_: str) -> None:
    tab = open_tab()
    tab.run(LOAD)
    outcome = tab.run(BESIDE.format(request=request_))
    assert outcome["error"]["code"] in ("invalid_request", "invalid_option")
    assert "\n" not in outcome["error"]["message"]
    assert outcome["rest"] == 400


def test_half_a_character_is_replaced_not_waited_for(open_tab: OpenTab) -> None:
    tab = open_tab()
    tab.run(LOAD)
    script = (
        "() => told(client.query(model, 'hi 😀'.slice(0, 4), "
        "{ stop: ['\\ud83d'], maxTokens: 3, temperature: 0 }).response)"
    )
    assert tab.run(script)["value"]["text"] == "abc"
    chat = "() => told(client.chat(model, [{ role: 'user', content: '\\udc00' }], { maxTokens: 3 }).response)"
    assert tab.run(chat)["value"]["finishReason"] == "length"
