"""Downloads in a real page from a server that breaks them: cases D1, D3, D4, D5, D11, F7.

Counterparts: web/models/download.js and its neighbours, tests/fault_server.py. What two pages do to each
other, and what is stored, is in test_model_store.py.
"""

from typing import Any

import pytest

from tests.browser.downloads import (
    MIB,
    Published,
    answer,
    assert_refused,
    assert_stored,
    download,
    finish,
    start,
    wait_loaded,
)
from tests.browser.profiles import Origin
from tests.fault_scenarios import Answer, Break, IgnoreRange, digest, linked_etag, repr_digest
from tests.fault_server import FaultServer, fault_server

pytestmark = pytest.mark.browser

PATH = "/abc.gguf"
SMALL_RATE = 4 * MIB


def twice(server: FaultServer, model: Published) -> float:
    """Which part of the model was sent more than once."""
    return server.bytes_sent(PATH) / model.size - 1


def assert_nothing_left(site: Origin, tab: Any) -> None:
    assert site.stored(tab) == {}


@pytest.mark.parametrize("how", ["cut", "reset"])
def test_connections_that_end_in_the_middle(
    site: Origin, faults: FaultServer, roomy_model: Published, how: Any
) -> None:
    """Case D1: every one of them continues where it ended."""
    served = faults.serve(PATH, roomy_model.path, rate=8 * MIB)
    served.break_at([7 * MIB, 20 * MIB + 1, 33 * MIB + 12345, roomy_model.size - 7], how)
    tab = site.open()
    outcome = download(tab, served.url)
    assert_stored(outcome, roomy_model)
    assert not served.faults
    assert twice(faults, roomy_model) < 0.05
    assert answer(tab, served.url) == "abcabc"
    assert twice(faults, roomy_model) < 0.05


def test_a_connection_that_falls_silent_is_not_waited_for_alone(
    site: Origin, faults: FaultServer, roomy_model: Published
) -> None:
    """Case D1: the others go on."""
    served = faults.serve(PATH, roomy_model.path, rate=8 * MIB, faults=[Break(at=20 * MIB, how="stall")])
    tab = site.open()
    start(tab, served.url)
    wait_loaded(tab, roomy_model.size - 15 * MIB)
    tab.run("() => controller.abort()")
    assert_refused(finish(tab), "cancelled")
    faults.settle()


def test_a_page_that_is_closed_and_opened_again_continues(
    site: Origin, faults: FaultServer, roomy_model: Published
) -> None:
    """Case D1: and before it does, the partial file is no model."""
    served = faults.serve(PATH, roomy_model.path, rate=4 * MIB)
    tab = site.open()
    start(tab, served.url)
    wait_loaded(tab, roomy_model.size // 3)
    tab = site.reopen(tab)
    assert tab.run("() => client.models.list()") == []
    served.rate = None
    first = faults.bytes_sent(PATH)
    outcome = download(tab, served.url)
    assert_stored(outcome, roomy_model)
    assert outcome.seen[0]["loaded"] >= roomy_model.size // 3 - 4 * MIB
    assert faults.bytes_sent(PATH) - first < roomy_model.size * 0.75
    assert twice(faults, roomy_model) < 0.08


def test_a_download_that_was_cancelled_continues_when_asked_again(
    site: Origin, faults: FaultServer, roomy_model: Published
) -> None:
    """Case D1: at once, in the same page; cancelled is cancelled, and the server learns of it."""
    served = faults.serve(PATH, roomy_model.path, rate=4 * MIB)
    tab = site.open()
    start(tab, served.url)
    wait_loaded(tab, roomy_model.size // 3)
    tab.run("() => controller.abort()")
    assert_refused(finish(tab), "cancelled")
    faults.settle()
    served.rate = None
    assert_stored(download(tab, served.url), roomy_model)
    assert twice(faults, roomy_model) < 0.08


def test_a_partial_file_that_was_cut_short_is_not_believed(
    site: Origin, faults: FaultServer, roomy_model: Published
) -> None:
    """Case D1: the journal says more than the file has, as after a crash of the system."""
    served = faults.serve(PATH, roomy_model.path, rate=4 * MIB)
    tab = site.open()
    start(tab, served.url)
    wait_loaded(tab, roomy_model.size // 3)
    tab = site.reopen(tab)
    tab.run(
        """async () => {
          const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle("headrace-models");
          for await (const [name, entry] of folder.entries()) {
            if (!/^partial-.*\\.gguf$/.test(name)) continue;
            const writable = await entry.createWritable({ keepExistingData: true });
            await writable.truncate(2 ** 20);
            await writable.close();
          }
        }"""
    )
    served.rate = None
    assert_stored(download(tab, served.url), roomy_model)


@pytest.mark.parametrize("settings", [{"gzip": True}, {"framing": "chunked", "ranges": False}])
def test_no_length(
    site: Origin, faults: FaultServer, small_model: Published, settings: dict[str, Any]
) -> None:
    """Case D3: the total is unknown, and said to be, not NaN."""
    served = faults.serve(PATH, small_model.path, head_status=405, rate=16 * MIB, **settings)
    tab = site.open()
    outcome = download(tab, served.url)
    assert_stored(outcome, small_model)
    under_way = [one for one in outcome.seen if 0 < one["loaded"] < small_model.size]
    assert under_way
    assert {one["total"] for one in under_way} == {None}
    assert {one["secondsLeft"] for one in under_way} == {None}
    assert answer(tab, served.url) == "abcabc"


def test_a_compressed_download_continues(site: Origin, faults: FaultServer, small_model: Published) -> None:
    """Cases D1 and D3: what has come is not kept in vain, though it must be fetched again."""
    served = faults.serve(PATH, small_model.path, gzip=True, rate=8 * MIB)
    tab = site.open()
    start(tab, served.url)
    wait_loaded(tab, small_model.size // 3)
    tab = site.reopen(tab)
    served.rate = None
    assert_stored(download(tab, served.url), small_model)


@pytest.mark.parametrize("head_status", [None, 403, 405])
@pytest.mark.parametrize("exposed", [("Content-Range", "ETag"), ()])
@pytest.mark.parametrize("ranges", [True, False])
def test_the_length_is_found(
    site: Origin,
    faults: FaultServer,
    small_model: Published,
    head_status: int | None,
    exposed: tuple[str, ...],
    ranges: bool,
) -> None:
    """Case D4: whatever of HEAD, the exposed headers and ranges there is, behind a redirect."""
    settings = {"head_status": head_status, "exposed": exposed}
    with fault_server() as other:
        target = other.serve("/target.gguf", small_model.path, ranges=ranges, rate=16 * MIB, **settings)
        served = faults.serve(PATH, b"", redirect=(target.url, 302), **settings)
        tab = site.open()
        outcome = download(tab, served.url)
        assert_stored(outcome, small_model)
        assert outcome.seen[-1]["total"] == small_model.size
        # A body that is not read further has had some bytes on their way.
        assert other.bytes_sent() < small_model.size * 1.4


def test_a_redirect_within_the_origin(site: Origin, faults: FaultServer, small_model: Published) -> None:
    target = faults.serve("/target.gguf", small_model.path)
    served = faults.serve(PATH, b"", redirect=("/target.gguf", 307))
    tab = site.open()
    assert_stored(download(tab, served.url), small_model)
    assert faults.requests("/target.gguf")
    assert target.url not in str(tab.run("() => client.models.list()"))


def interrupted(site: Origin, faults: FaultServer, model: Published) -> Any:
    """A tab after one that was closed when about a third had come, and the file being served."""
    served = faults.serve(PATH, model.path, rate=4 * MIB)
    tab = site.open()
    start(tab, served.url)
    wait_loaded(tab, model.size // 3)
    tab = site.reopen(tab)
    served.rate = None
    return tab, served


@pytest.mark.parametrize("same", [True, False])
def test_ranges_are_ignored_in_a_resume(
    site: Origin, faults: FaultServer, roomy_model: Published, other_roomy_model: Published, same: bool
) -> None:
    """Case D5: a 200 is the whole file, and never put where a part was asked for."""
    tab, served = interrupted(site, faults, roomy_model)
    published = roomy_model if same else other_roomy_model
    served.change(published.path.read_bytes(), '"1"' if same else '"2"')
    served.ranges = False
    assert_stored(download(tab, served.url), published, begins_again=not same)


def test_a_range_is_ignored_now_and_then(site: Origin, faults: FaultServer, roomy_model: Published) -> None:
    """Case D5: as behind a load balancer, one of whose servers does not know ranges."""
    served = faults.serve(PATH, roomy_model.path, faults=[IgnoreRange(skip=2, ranged=True)])
    assert_stored(download(site.open(), served.url), roomy_model)


def test_a_range_that_cannot_be_had(site: Origin, faults: FaultServer, roomy_model: Published) -> None:
    """Case D5: 416 in the middle of a resume."""
    tab, served = interrupted(site, faults, roomy_model)
    refusal = Answer(status=416, headers={"Content-Range": f"bytes */{roomy_model.size}"}, ranged=True)
    served.faults.append(refusal)
    assert_stored(download(tab, served.url), roomy_model)
    assert refusal.times == 0


def test_a_file_that_became_shorter(
    site: Origin, faults: FaultServer, roomy_model: Published, small_model: Published
) -> None:
    """Case D5: the true 416, where the journal has bytes that the new file lacks."""
    tab, served = interrupted(site, faults, roomy_model)
    served.change(small_model.path.read_bytes(), '"2"')
    assert_stored(download(tab, served.url), small_model, begins_again=True)


def test_a_file_that_changes_under_the_download(
    site: Origin, faults: FaultServer, roomy_model: Published, other_roomy_model: Published
) -> None:
    """It starts over, and nothing of the old file is in the new one."""
    served = faults.serve(PATH, roomy_model.path, rate=8 * MIB)
    tab = site.open()
    start(tab, served.url)
    wait_loaded(tab, roomy_model.size // 4)
    served.change(other_roomy_model.path.read_bytes(), '"2"')
    served.break_at([offset * MIB for offset in (13, 29, 45, 58)])
    assert_stored(finish(tab), other_roomy_model, begins_again=True)


def test_a_length_that_is_larger_than_the_file(
    site: Origin, faults: FaultServer, small_model: Published
) -> None:
    """The server ends early each time: an error after some attempts, and never a model."""
    served = faults.serve(PATH, small_model.path, ranges=False, declared_bytes=small_model.size + 1000)
    tab = site.open()
    start(tab, served.url)
    faults.wait_until(lambda: len(faults.requests(PATH)) > 1)
    tab.run("() => controller.abort()")
    assert_refused(finish(tab), "cancelled")
    assert tab.run("() => client.models.list()") == []


def test_a_length_that_is_smaller_than_the_file(
    site: Origin, faults: FaultServer, small_model: Published
) -> None:
    served = faults.serve(PATH, small_model.path, ranges=False, declared_bytes=small_model.size - MIB)
    tab = site.open()
    outcome = download(tab, served.url)
    assert_refused(outcome, "model_truncated")
    assert tab.run("() => client.models.list()") == []


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_given_the_time_it_asks_for(
    site: Origin, faults: FaultServer, small_model: Published, status: int
) -> None:
    busy = Answer(status=status, headers={"Retry-After": "2"}, times=1)
    served = faults.serve(PATH, small_model.path, faults=[busy])
    assert_stored(download(site.open(), served.url), small_model)
    refused, second = faults.requests(PATH)[:2]
    assert refused.status == status
    assert second.started - refused.started > 1.8


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_a_refusal_is_final(site: Origin, faults: FaultServer, small_model: Published, status: int) -> None:
    served = faults.serve(PATH, small_model.path, faults=[Answer(status=status, times=100)])
    tab = site.open()
    outcome = download(tab, served.url)
    assert_refused(outcome, "download_failed")
    assert outcome.error["detail"]["status"] == status
    assert len(faults.requests(PATH)) <= 2
    assert_nothing_left(site, tab)


@pytest.mark.parametrize(
    "body",
    [b"<!DOCTYPE html><title>Sign in</title>", b"version https://git-lfs.github.com/spec/v1\n", b"Not found"],
    ids=["html", "lfs", "text"],
)
@pytest.mark.parametrize("ranges", [True, False])
def test_what_is_no_model_is_told_from_its_first_bytes(
    site: Origin, faults: FaultServer, body: bytes, ranges: bool
) -> None:
    """Case F7: before gigabytes are fetched."""
    size = 200 * MIB
    served = faults.serve(PATH, body + bytes(size - len(body)), ranges=ranges, rate=20 * MIB)
    tab = site.open()
    assert_refused(download(tab, served.url), "model_invalid")
    faults.settle()
    assert faults.bytes_sent() < 10 * MIB
    assert_nothing_left(site, tab)


def test_a_hash_that_is_not_the_expected_one(
    site: Origin, faults: FaultServer, small_model: Published
) -> None:
    """Case D11: the file is neither used nor kept."""
    served = faults.serve(PATH, small_model.path)
    tab = site.open()
    assert_refused(download(tab, served.url, sha256="0" * 64), "hash_mismatch")
    assert_nothing_left(site, tab)
    assert answer(tab, served.url, sha256="0" * 64)["code"] == "hash_mismatch"
    assert_nothing_left(site, tab)
    assert_stored(download(tab, served.url, sha256=small_model.sha256), small_model)
    assert answer(tab, served.url, sha256=small_model.sha256) == "abcabc"


@pytest.mark.parametrize("header", [repr_digest, digest, linked_etag])
@pytest.mark.parametrize("right", [True, False])
def test_a_hash_that_the_server_tells(
    site: Origin, faults: FaultServer, small_model: Published, header: Any, right: bool
) -> None:
    """Case D11: it counts where it truly is one of the content."""
    data = small_model.path.read_bytes()
    # Only of this one it is known what it means beside a part.
    ranges = header is linked_etag
    served = faults.serve(PATH, data, headers=header(data if right else b"else"), ranges=ranges)
    tab = site.open()
    outcome = download(tab, served.url)
    if right:
        assert_stored(outcome, small_model)
    else:
        assert_refused(outcome, "hash_mismatch")
        assert_nothing_left(site, tab)


def test_two_expectations_that_contradict_each_other(
    site: Origin, faults: FaultServer, roomy_model: Published
) -> None:
    """Case D11: refused before the file is fetched."""
    served = faults.serve(PATH, roomy_model.path, headers=linked_etag(b"else"))
    tab = site.open()
    assert_refused(download(tab, served.url, sha256=roomy_model.sha256), "hash_mismatch")
    faults.settle()
    assert faults.bytes_sent() < 4 * MIB
    assert_nothing_left(site, tab)


def test_a_plain_etag_is_no_hash(site: Origin, faults: FaultServer, small_model: Published) -> None:
    """Case D11: though it may look like one."""
    served = faults.serve(PATH, small_model.path, etag=f'"{"0" * 64}"')
    assert_stored(download(site.open(), served.url), small_model)
