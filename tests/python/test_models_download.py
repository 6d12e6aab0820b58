"""headrace/models/download.py and its neighbours: every way in which a download breaks, on real sockets.

Counterpart: `tests/browser/test_downloads.py`, the same cases in a page.
"""

import hashlib
import json
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest

from headrace.models import ModelStore, Progress
from headrace.models.gguf import parse_header
from headrace.models.partial import SplitSizes
from headrace.models.retries import DownloadLimits
from tests.fault_scenarios import Answer, Break, IgnoreRange, Served, digest, linked_etag, repr_digest
from tests.fault_server import FaultServer, fault_server
from tests.gguf_builder import ARRAY, Value, read_gguf
from tests.large_gguf import heavy_parrot, roomy_parrot
from tests.python.store_cases import (
    MIB,
    SPLIT,
    Program,
    Published,
    assert_honest,
    assert_refused,
    assert_stored,
    leftovers,
    wait_until,
)

PATH = "/folder/model.gguf"


@pytest.fixture(scope="module")
def heavy(tmp_path_factory: pytest.TempPathFactory) -> Published:
    """249 MB."""
    return Published.of(heavy_parrot(tmp_path_factory.mktemp("model") / "heavy.gguf"))


@pytest.fixture
def served(server: FaultServer, model: Published) -> Served:
    return server.serve(PATH, model.data)


def interrupt_at(store: ModelStore, url: str, count: int) -> None:
    """Downloads until so many bytes have come, and then cancels."""
    cancel = threading.Event()

    def on_progress(progress: Progress) -> None:
        if progress.phase == "download" and progress.loaded >= count:
            cancel.set()

    assert_refused("cancelled", lambda: store.obtain(url, on_progress=on_progress, cancel=cancel))


# --- D1: cuts, and ends of the process -------------------------------------------------------------------


def test_d1_twenty_cuts_of_250_mb(server: FaultServer, store: ModelStore, heavy: Published) -> None:
    served = server.serve(PATH, heavy.path)
    served.break_at([heavy.size * n // 21 for n in range(1, 21)])
    assert_stored(store, store.obtain(served.url, sha256=heavy.sha256), heavy)
    assert sum(exchange.outcome == "cut" for exchange in server.log) == 20
    assert server.bytes_sent() <= heavy.size * 1.02


KILLED = """
import sys
from headrace.models import ModelStore
print(ModelStore(sys.argv[1]).obtain(sys.argv[2]).id)
"""


def test_d1_five_kills_fetch_hardly_anything_twice(
    server: FaultServer, store: ModelStore, heavy: Published
) -> None:
    served = server.serve(PATH, heavy.path, rate=16 * MIB)
    for number in range(1, 6):
        program = Program(KILLED, str(store.folder), served.url)
        wanted = heavy.size * number // 6
        server.wait_until(lambda wanted=wanted: server.bytes_sent() >= wanted, 60)  # type: ignore[misc]
        program.kill()
    (path,) = store.folder.glob("partial-*.json")
    journal = json.loads(path.read_text())
    come = sum(end - start for start, end in journal["ranges"])
    assert heavy.size // 2 < come < heavy.size
    served.rate = None
    assert_stored(store, store.obtain(served.url), heavy)
    assert server.bytes_sent() <= heavy.size * 1.02


@pytest.mark.parametrize("how", ["cut", "reset", "stall"])
def test_d1_connections_that_end_or_fall_silent(
    server: FaultServer, store: ModelStore, model: Published, how: str
) -> None:
    served = server.serve(PATH, model.data)
    served.break_at([100, MIB, MIB + 1, 5 * MIB, model.size - 1], how)  # type: ignore[arg-type]
    assert_stored(store, store.obtain(served.url), model)


def test_d1_cancelled_downloads_go_on(server: FaultServer, store: ModelStore, model: Published) -> None:
    served = server.serve(PATH, model.data, rate=20 * MIB)
    for count in (2 * MIB, 8 * MIB):
        interrupt_at(store, served.url, count)
    served.rate = None
    seen: list[Progress] = []
    assert_stored(store, store.obtain(served.url, on_progress=seen.append), model)
    assert seen[0].loaded >= 8 * MIB
    assert_honest(seen)
    assert server.bytes_sent() <= model.size * 1.1


def test_d1_bytes_that_are_gone_are_not_believed(
    server: FaultServer, store: ModelStore, model: Published
) -> None:
    served = server.serve(PATH, model.data, rate=20 * MIB)
    interrupt_at(store, served.url, 4 * MIB)
    (partial,) = store.folder.glob("partial-*-1.gguf")
    partial.write_bytes(partial.read_bytes()[:MIB])
    served.rate = None
    assert_stored(store, store.obtain(served.url), model)


def test_d1_a_damaged_partial_file_is_not_kept(
    server: FaultServer, store: ModelStore, model: Published
) -> None:
    served = server.serve(PATH, model.data, rate=20 * MIB)
    interrupt_at(store, served.url, 4 * MIB)
    (partial,) = store.folder.glob("partial-*-1.gguf")
    data = bytearray(partial.read_bytes())
    data[2 * MIB] ^= 1
    partial.write_bytes(data)
    served.rate = None
    assert_refused("hash_mismatch", lambda: store.obtain(served.url, sha256=model.sha256))
    assert leftovers(store) == []
    assert_stored(store, store.obtain(served.url, sha256=model.sha256), model)


# --- D3, D4: how long is it? -----------------------------------------------------------------------------


@pytest.mark.parametrize("framing", ["chunked", "close"])
@pytest.mark.parametrize("ranges", [True, False])
def test_d3_no_length(
    server: FaultServer, store: ModelStore, model: Published, framing: str, ranges: bool
) -> None:
    served = server.serve(PATH, model.data, framing=framing, ranges=ranges)
    seen: list[Progress] = []
    assert_stored(store, store.obtain(served.url, on_progress=seen.append), model)
    assert_honest(seen)
    if not ranges:
        assert seen[0].total is None
        assert seen[0].seconds_left is None


@pytest.mark.parametrize("framing", ["chunked", "close"])
def test_d3_no_length_and_a_cut(
    server: FaultServer, store: ModelStore, model: Published, framing: str
) -> None:
    served = server.serve(PATH, model.data, framing=framing, ranges=False)
    served.faults.append(Break(after=3 * MIB, times=2))
    assert_stored(store, store.obtain(served.url), model)


def test_d3_compressed_on_its_way(server: FaultServer, store: ModelStore, model: Published) -> None:
    served = server.serve(PATH, model.data, gzip=True)
    served.faults.append(Break(after=2 * MIB))
    seen: list[Progress] = []
    assert_stored(store, store.obtain(served.url, on_progress=seen.append), model)
    assert all(progress.total is None for progress in seen[:-1])
    assert_honest(seen)


def test_d4_head_is_refused(server: FaultServer, store: ModelStore, model: Published) -> None:
    served = server.serve(PATH, model.data, head_status=405)
    assert_stored(store, store.obtain(served.url), model)


def test_d4_no_ranges_at_all(server: FaultServer, store: ModelStore, model: Published) -> None:
    served = server.serve(PATH, model.data, ranges=False)
    assert_stored(store, store.obtain(served.url), model)
    assert len(server.log) == 1


# --- D5: ranges that are ignored or refused, files that change --------------------------------------------


def test_d5_a_range_is_ignored_in_a_resume(server: FaultServer, store: ModelStore, model: Published) -> None:
    served = server.serve(PATH, model.data, rate=20 * MIB)
    interrupt_at(store, served.url, 6 * MIB)
    served.rate = None
    served.faults.append(IgnoreRange())
    assert_stored(store, store.obtain(served.url), model)


def test_d5_a_range_is_refused_in_a_resume(server: FaultServer, store: ModelStore, model: Published) -> None:
    served = server.serve(PATH, model.data, rate=20 * MIB)
    interrupt_at(store, served.url, 6 * MIB)
    served.rate = None
    served.faults.append(Answer(status=416, times=2, ranged=True))
    assert_stored(store, store.obtain(served.url), model)


@pytest.mark.parametrize("etag", ['"2"', None, 'W/"2"'])
def test_d5_a_file_that_changes_starts_over(
    server: FaultServer, store: ModelStore, model: Published, tmp_path: Path, etag: str | None
) -> None:
    newer = Published.of(roomy_parrot(tmp_path / "newer.gguf", MIB, seed=2, says="abcd"))
    served = server.serve(PATH, model.data, rate=20 * MIB, last_modified="Mon, 01 Jan 2024 00:00:00 GMT")
    if etag is None:
        served.etag = None
    interrupt_at(store, served.url, 6 * MIB)
    served.rate = None
    served.last_modified = "Tue, 02 Jan 2024 00:00:00 GMT"
    served.change(newer.data, etag)
    assert_stored(store, store.obtain(served.url), newer)


def test_d5_a_server_without_ranges_that_cuts(
    server: FaultServer, store: ModelStore, model: Published
) -> None:
    served = server.serve(PATH, model.data, ranges=False)
    served.faults += [Break(after=4 * MIB), Break(after=8 * MIB)]
    assert_stored(store, store.obtain(served.url), model)


def test_d5_a_file_that_always_changes(server: FaultServer, store: ModelStore, model: Published) -> None:
    served = server.serve(PATH, model.data)
    count = 0

    def change(_exchange: object) -> None:
        nonlocal count
        count += 1
        served.etag = f'"{count}"'

    served.before = change
    assert "changes" in assert_refused("download_failed", lambda: store.obtain(served.url)).message


# --- Servers that say no ---------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_a_final_answer_is_not_asked_for_again(
    server: FaultServer, store: ModelStore, served: Served, status: int
) -> None:
    served.faults.append(Answer(status=status, times=99))
    error = assert_refused("download_failed", lambda: store.obtain(served.url))
    assert error.detail["status"] == status
    assert len(server.log) == 1


def test_a_busy_server_is_given_time(
    server: FaultServer, store: ModelStore, served: Served, model: Published
) -> None:
    served.faults.append(Answer(status=503, headers={"Retry-After": "1"}))
    served.faults.append(Answer(status=429, times=3))
    assert_stored(store, store.obtain(served.url), model)
    assert server.log[1].started - server.log[0].started >= 1


def test_eight_failures_in_a_row_are_enough(server: FaultServer, store: ModelStore, served: Served) -> None:
    served.faults.append(Answer(status=500, times=99))
    error = assert_refused("download_failed", lambda: store.obtain(served.url))
    assert error.detail["status"] == 500
    assert len(server.log) == 8


def test_what_has_come_is_kept_when_it_fails(
    server: FaultServer, store: ModelStore, served: Served, model: Published
) -> None:
    served.faults.append(Break(at=5 * MIB, times=99))
    assert_refused("download_failed", lambda: store.obtain(served.url))
    assert leftovers(store)
    served.faults.clear()
    assert_stored(store, store.obtain(served.url), model)
    assert server.bytes_sent() <= model.size


def test_nobody_listens(store: ModelStore) -> None:
    assert_refused("download_failed", lambda: store.obtain("http://127.0.0.1:9/model.gguf"))


def test_a_length_that_is_too_long(server: FaultServer, store: ModelStore, model: Published) -> None:
    served = server.serve(PATH, model.data, ranges=False, declared_bytes=model.size + 5)
    assert_refused("download_failed", lambda: store.obtain(served.url))


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"<!DOCTYPE html><title>Log in</title>" + bytes(5 * MIB), "html"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n", "lfs"),
        (b"", "empty"),
    ],
)
def test_f7_what_is_no_model_is_seen_at_once(
    server: FaultServer, store: ModelStore, data: bytes, kind: str
) -> None:
    served = server.serve(PATH, data)
    error = assert_refused("model_invalid", lambda: store.obtain(served.url))
    assert error.detail["kind"] == kind
    assert server.bytes_sent() <= MIB
    assert leftovers(store) == []


def test_f6_a_truncated_model_is_seen_from_its_header(
    server: FaultServer, store: ModelStore, model: Published
) -> None:
    served = server.serve(PATH, model.data[:-MIB])
    assert_refused("model_truncated", lambda: store.obtain(served.url))
    assert server.bytes_sent() <= MIB
    assert leftovers(store) == []


# --- D10, D11: tokens and hashes --------------------------------------------------------------------------


def test_d10_a_token_goes_with_every_request_and_is_kept_nowhere(
    server: FaultServer,
    store: ModelStore,
    model: Published,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(0)
    served = server.serve(PATH, model.data, token="hr_secret", rate=20 * MIB)
    served.faults += [Break(at=3 * MIB), Answer(status=503)]
    cancel = threading.Event()
    secret = {"Authorization": "Bearer hr_secret"}
    url = f"{served.url}?signature=query_secret"

    def stop(progress: Progress) -> None:
        if progress.loaded > 4 * MIB:
            cancel.set()

    assert_refused("cancelled", lambda: store.obtain(url, headers=secret, on_progress=stop, cancel=cancel))
    error = assert_refused("download_failed", lambda: store.obtain(url))
    assert error.detail["status"] == 401
    written = "".join(path.read_text() for path in store.folder.glob("*.json"))
    model_of_it = store.obtain(url, headers=secret)
    written += "".join(path.read_text() for path in store.folder.glob("*.json"))
    written += " ".join(path.name for path in store.folder.rglob("*"))
    with_token = [exchange for exchange in server.log if exchange.headers.get("authorization")]
    assert len(with_token) == len(server.log) - 1
    for place in (written, caplog.text, repr(error), error.message, repr(error.detail), repr(model_of_it)):
        assert "secret" not in place


def test_d10_a_token_stays_with_its_origin(server: FaultServer, store: ModelStore, model: Published) -> None:
    with fault_server() as mirror:
        away = mirror.serve("/data", model.data)
        served = server.serve(PATH, b"", redirect=(away.url, 302))
        store.obtain(served.url, headers={"Authorization": "Bearer hr_secret"})
        assert all("authorization" in exchange.headers for exchange in server.log)
        assert not any("authorization" in exchange.headers for exchange in mirror.log)


@pytest.mark.parametrize("value", ["Bearer hr_secret\n", "Bearer hr_secret€"])
def test_d10_a_token_that_cannot_be_sent_is_not_shown(served: Served, store: ModelStore, value: str) -> None:
    error = assert_refused(
        "invalid_option", lambda: store.obtain(served.url, headers={"Authorization": value})
    )
    assert "secret" not in error.message


def test_d11_other_bytes_than_wanted_are_not_kept(served: Served, store: ModelStore) -> None:
    assert_refused("hash_mismatch", lambda: store.obtain(served.url, sha256="0" * 64))
    assert leftovers(store) == []
    assert store.list() == []


@pytest.mark.parametrize("headers", [repr_digest, digest, linked_etag])
def test_d11_a_header_that_is_a_hash_is_believed(
    server: FaultServer, store: ModelStore, model: Published, headers: object
) -> None:
    assert callable(headers)
    served = server.serve(PATH, model.data, ranges=False, headers=headers(b"other bytes"))
    assert_refused("hash_mismatch", lambda: store.obtain(served.url))
    assert leftovers(store) == []
    served.headers = headers(model.data)
    assert_stored(store, store.obtain(served.url), model)


def test_d11_the_wanted_and_the_published_hash_disagree(
    server: FaultServer, store: ModelStore, model: Published
) -> None:
    served = server.serve(PATH, model.data, headers=linked_etag(model.data))
    assert_refused("hash_mismatch", lambda: store.obtain(served.url, sha256="1" * 64))
    assert server.bytes_sent() <= MIB


def test_d11_an_etag_is_no_hash(server: FaultServer, store: ModelStore, model: Published) -> None:
    served = server.serve(PATH, model.data, etag=f'"{"0" * 64}"')
    assert_stored(store, store.obtain(served.url), model)


# --- Large files ------------------------------------------------------------------------------------------


def data_of(store: ModelStore, manifest_files: list[str]) -> bytes:
    """The published bytes behind the header, put together from shards."""
    joined = b""
    for name in manifest_files:
        stored = (store.folder / name).read_bytes()
        header = parse_header(stored[: 2 * MIB], name)
        assert header is not None
        joined += stored[header.data_start :]
    return joined


@pytest.mark.parametrize("broken", [False, True])
def test_a_large_file_is_split_as_it_arrives(
    server: FaultServer, tmp_path: Path, model: Published, broken: bool
) -> None:
    store = ModelStore(tmp_path / "store", limits=SPLIT)
    served = server.serve(PATH, model.data, rate=20 * MIB if broken else None)
    if broken:
        interrupt_at(store, served.url, 7 * MIB)
        served.rate = None
        served.break_at([9 * MIB, 12 * MIB + 17])
    manifest = store.obtain(served.url, sha256=model.sha256)
    assert_stored(store, manifest, model)
    assert len(manifest.files) > 2
    assert all(file.size <= 5 * MIB for file in manifest.files)
    joined = data_of(store, [file.stored_name for file in manifest.files])
    assert model.data.endswith(joined[-13 * MIB :])
    if broken:
        assert server.bytes_sent() <= model.size * 1.1


def test_a_large_file_with_a_long_header(server: FaultServer, tmp_path: Path) -> None:
    path = roomy_parrot(tmp_path / "model.gguf", MIB)
    gguf = read_gguf(path)
    gguf.metadata["test.words"] = Value(ARRAY, [f"word {n}" * 9 for n in range(60_000)])
    gguf.metadata.pop("general.alignment")
    model = Published.of(gguf.write(tmp_path / "long.gguf"))
    limits = DownloadLimits(backoff_seconds=0.01, sizes=SplitSizes(max_whole_bytes=2 * MIB, shard_bytes=MIB))
    store = ModelStore(tmp_path / "store", limits=limits)
    served = server.serve(PATH, model.data)
    served.break_at([MIB // 2, 3 * MIB // 2])
    manifest = store.obtain(served.url)
    assert manifest.parts[0].sha256 == hashlib.sha256(model.data).hexdigest()
    assert server.bytes_sent() == model.size


def test_progress_comes_ten_times_a_second_at_most(
    server: FaultServer, store: ModelStore, model: Published
) -> None:
    served = server.serve(PATH, model.data, rate=5 * MIB)
    times: list[float] = []
    seen: list[Progress] = []

    def on_progress(progress: Progress) -> None:
        times.append(time.monotonic())
        seen.append(progress)

    store.obtain(served.url, on_progress=on_progress)
    assert_honest(seen)
    # The last one comes when it is done, whenever that is.
    gaps = [after - before for before, after in pairwise(times[:-1])]
    assert min(gaps) >= 0.09
    assert seen[-1].loaded == seen[-1].total == model.size
    assert any(progress.bytes_per_second and progress.seconds_left for progress in seen)


def test_an_error_of_the_callback_reaches_the_caller(store: ModelStore, served: Served) -> None:
    def on_progress(_progress: Progress) -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        store.obtain(served.url, on_progress=on_progress)
    wait_until(lambda: not any(thread.name == "headrace-store" for thread in threading.enumerate()))
