"""Access tokens: sent with every request for a file, and found nowhere afterwards (case D10).

Counterparts: web/models/sources.js, download.js.
"""

import base64
import hashlib
from collections.abc import Mapping

import pytest

from tests.browser.downloads import (
    MIB,
    NOISE,
    Published,
    answer,
    assert_refused,
    assert_stored,
    download,
    start,
    wait_loaded,
)
from tests.browser.profiles import Origin
from tests.fault_scenarios import Answer
from tests.fault_server import FaultServer

pytestmark = pytest.mark.browser

PATH = "/abc.gguf"
TOKEN = "hr-s3cret-4711"
LIST = "() => client.models.list()"


def test_a_token_is_sent_and_never_kept(site: Origin, faults: FaultServer, roomy_model: Published) -> None:
    """Case D10: in the headers, and in the address."""
    served = faults.serve(PATH, roomy_model.path, token=TOKEN, rate=8 * MIB)
    served.break_at([10 * MIB])
    address = f"{served.url}?token={TOKEN}"
    options = {"headers": {"Authorization": f"Bearer {TOKEN}"}}
    said: list[str] = []
    tab, listener = site.open(), site.open()
    tab.page.on("console", lambda entry: said.append(entry.text))
    listener.run(
        """() => {
          globalThis.heard = [];
          globalThis.channel = new BroadcastChannel("headrace-models");
          channel.onmessage = ({ data }) => heard.push(JSON.stringify(data));
        }"""
    )
    start(tab, address, **options)
    wait_loaded(tab, roomy_model.size // 3)
    locks = tab.run("() => navigator.locks.query()")
    tab.page.close()
    partial = site.texts(listener)
    assert any("partial-" in name for name in partial)

    tab = site.open()
    tab.page.on("console", lambda entry: said.append(entry.text))
    served.rate = None
    assert_stored(download(tab, address, **options), roomy_model)
    complete = site.texts(tab)
    assert any("model-" in name for name in complete)
    listed = tab.run(LIST)
    heard = listener.run("() => heard")
    assert heard
    secrets = [TOKEN, base64.b64encode(TOKEN.encode()).decode().rstrip("=")]
    secrets.append(hashlib.sha256(TOKEN.encode()).hexdigest())
    for secret in secrets:
        for place in (locks, partial, complete, listed, heard):
            assert secret not in str(place)
        # What Chromium itself says of a failed request has the address that the application gave.
        assert not [text for text in said if secret in text and not text.startswith(NOISE)]
    asked = faults.requests(PATH, None)
    assert {exchange.status for exchange in asked} <= {200, 204, 206}
    for exchange in asked:
        if exchange.method != "OPTIONS":
            assert exchange.headers["authorization"] == f"Bearer {TOKEN}"
            assert exchange.query == f"token={TOKEN}"


@pytest.mark.parametrize("source", ["{url}?token={token}", "{url}#{token}"])
@pytest.mark.parametrize("status", [401, 503])
def test_an_error_does_not_tell_the_token(
    site: Origin, faults: FaultServer, small_model: Published, source: str, status: int
) -> None:
    """Case D10: neither message nor detail."""
    served = faults.serve(PATH, small_model.path, token="another")
    if status == 503:
        served.faults.append(Answer(status=503, headers={"Retry-After": "0"}, times=100))
    tab = site.open()
    address = source.format(url=served.url, token=TOKEN)
    outcome = download(tab, address, headers={"Authorization": f"Bearer {TOKEN}"})
    assert_refused(outcome, "download_failed")
    assert TOKEN not in str(outcome.error)


def test_the_token_goes_to_the_engine_s_worker_as_well(
    site: Origin, faults: FaultServer, small_model: Published
) -> None:
    """Case D10: the option `headers` of an endpoint."""
    served = faults.serve(PATH, small_model.path, token=TOKEN)
    tab = site.open()
    tab.allow(NOISE)
    assert answer(tab, served.url)["code"] == "download_failed"
    headers: Mapping[str, str] = {"Authorization": f"Bearer {TOKEN}"}
    assert answer(tab, served.url, headers=headers) == "abcabc"
    assert TOKEN not in str(site.texts(tab))
