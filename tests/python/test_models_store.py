"""headrace/models/store.py: what is kept, found again, shared by processes, and given up.

Counterparts: `tests/browser/test_model_store.py`, `tests/browser/test_model_tabs.py`.
"""

import asyncio
import os
import shutil
import threading
from pathlib import Path

import pytest

from headrace.models import Manifest, ModelStore, Progress
from tests.fault_server import FaultServer
from tests.gguf_builder import UINT32, Value, read_gguf
from tests.large_gguf import roomy_parrot
from tests.python.store_cases import (
    MIB,
    QUICK,
    SPLIT,
    Program,
    Published,
    assert_honest,
    assert_refused,
    assert_stored,
    leftovers,
    wait_until,
)

PATH = "/model.gguf"


def lose_manifest(store: ModelStore, model: Manifest, how: str) -> None:
    path = store.folder / model.file_name
    if how == "deleted":
        path.unlink()
    else:
        path.write_text({"empty": "", "cut": path.read_text()[:100], "alien": '{"version": 1}'}[how])


# --- What is stored is not fetched again ------------------------------------------------------------------


def test_a_stored_model_needs_no_network(server: FaultServer, store: ModelStore, model: Published) -> None:
    url = server.serve(PATH, model.data).url
    first = store.obtain(url)
    server.remove(PATH)
    assert store.obtain(url).id == first.id
    assert ModelStore(store.folder).find(url) == store.find(first.id)


@pytest.mark.parametrize("how", ["deleted", "empty", "cut", "alien"])
def test_d2_a_lost_manifest_costs_no_second_download(
    server: FaultServer, store: ModelStore, model: Published, how: str
) -> None:
    url = server.serve(PATH, model.data).url
    lose_manifest(store, store.obtain(url), how)
    sent = server.bytes_sent()
    assert_stored(store, store.obtain(url), model)
    assert server.bytes_sent() - sent <= 1.5 * MIB


@pytest.mark.parametrize("how", ["deleted", "cut"])
def test_d2_listing_finds_lost_models(
    server: FaultServer, store: ModelStore, model: Published, how: str
) -> None:
    lost = store.obtain(server.serve(PATH, model.data).url)
    lose_manifest(store, lost, how)
    (found,) = store.list()
    assert found.manifest.id == lost.id
    assert found.manifest.license == "apache-2.0"
    assert found.manifest.architecture == "llama"
    assert_stored(store, found.manifest, model)


def test_d2_lost_shards_are_one_model_again(server: FaultServer, tmp_path: Path, model: Published) -> None:
    store = ModelStore(tmp_path / "store", limits=SPLIT)
    split = store.obtain(server.serve(PATH, model.data).url)
    lose_manifest(store, split, "deleted")
    (found,) = store.list()
    assert found.manifest.files == split.files


def test_a_mirror_is_recognised(server: FaultServer, store: ModelStore, model: Published) -> None:
    first = store.obtain(server.serve(PATH, model.data).url)
    mirror = server.serve("/mirror.gguf", model.data).url
    assert store.obtain(mirror).id == first.id
    assert server.bytes_sent("/mirror.gguf") <= 1.5 * MIB
    assert {source.display for source in store.find(first.id).sources} == {server.url + PATH, mirror}


def test_a_known_hash_is_enough(server: FaultServer, store: ModelStore, model: Published) -> None:
    store.obtain(server.serve(PATH, model.data).url)
    mirror = server.serve("/mirror.gguf", model.data).url
    assert_stored(store, store.obtain(mirror, sha256=model.sha256), model)
    assert server.requests("/mirror.gguf") == []


def test_what_only_begins_the_same_is_fetched(
    server: FaultServer, store: ModelStore, model: Published, other: Published
) -> None:
    assert other.size == model.size
    assert other.data[:MIB] == model.data[:MIB]
    store.obtain(server.serve(PATH, model.data).url)
    assert_stored(store, store.obtain(server.serve("/other.gguf", other.data).url), other)
    assert len(store.list()) == 2


def test_a_refresh_asks_for_a_newer_one(
    server: FaultServer, store: ModelStore, model: Published, other: Published
) -> None:
    served = server.serve(PATH, model.data)
    old = store.obtain(served.url)
    sent = server.bytes_sent()
    assert store.obtain(served.url, refresh=True).id == old.id
    assert server.bytes_sent() == sent
    served.change(other.data, '"2"')
    assert store.obtain(served.url).id == old.id
    assert_stored(store, store.obtain(served.url, refresh=True), other)
    assert store.find(served.url).parts[0].sha256 == other.sha256
    assert store.find(old.id).sources == ()


def test_a_store_of_a_newer_version_is_left_alone(
    server: FaultServer, store: ModelStore, model: Published
) -> None:
    path = store.folder / store.obtain(server.serve(PATH, model.data).url).file_name
    newer = path.read_text().replace('"version": 1', '"version": 2')
    path.write_text(newer)
    for action in (store.list, store.repair, lambda: store.find("x")):
        assert_refused("version_mismatch", action)
    assert path.read_text() == newer


# --- D6: room ---------------------------------------------------------------------------------------------

SMALL_FILES = """
import resource, sys
from headrace.errors import HeadraceError
from headrace.models import ModelStore
resource.setrlimit(resource.RLIMIT_FSIZE, (5 << 20, 5 << 20))
try:
    ModelStore(sys.argv[1]).obtain(sys.argv[2])
except HeadraceError as error:
    detail = error.detail
    print(error.code, detail["missingBytes"] >= 0, detail["neededBytes"], detail["evictable"])
"""


def test_d6_a_write_without_room_leaves_nothing(
    server: FaultServer, store: ModelStore, model: Published
) -> None:
    url = server.serve(PATH, model.data).url
    code, told, needed, evictable = Program(SMALL_FILES, str(store.folder), url).output().split()
    assert (code, told, evictable) == ("storage_full", "True", "[]")
    assert int(needed) > 0
    assert leftovers(store) == []
    assert store.list() == []
    assert_stored(store, store.obtain(url), model)


def test_d6_there_is_no_room_from_the_start(
    server: FaultServer, store: ModelStore, model: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(store.folder)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=9 * MIB))
    url = server.serve(PATH, model.data).url
    error = assert_refused("storage_full", lambda: store.obtain(url))
    assert error.detail["availableBytes"] == 9 * MIB
    # The first MiB had to come to know how much there is.
    assert error.detail["missingBytes"] == model.size - 10 * MIB
    assert server.bytes_sent() <= MIB
    assert leftovers(store) == []


def test_d6_models_go_only_with_consent(
    server: FaultServer,
    store: ModelStore,
    model: Published,
    other: Published,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = store.obtain(server.serve(PATH, model.data).url)
    url = server.serve("/other.gguf", other.data).url
    usage = shutil.disk_usage(store.folder)

    def disk_usage(_path: object) -> object:
        used = sum(path.stat().st_size for path in store.folder.glob("*.gguf"))
        return usage._replace(free=20 * MIB - used)

    monkeypatch.setattr(shutil, "disk_usage", disk_usage)
    error = assert_refused("storage_full", lambda: store.obtain(url))
    assert error.detail["evictable"] == [{"id": first.id, "name": first.name, "size": first.size}]
    store.pin(first.id)
    assert_refused("storage_full", lambda: store.obtain(url, evict=True))
    store.pin(first.id, False)
    with store.open(first.id):
        assert_refused("storage_full", lambda: store.obtain(url, evict=True))
    assert_stored(store, store.obtain(url, evict=True), other)
    assert [found.manifest.parts[0].sha256 for found in store.list()] == [other.sha256]


def test_a_limit_lets_the_least_recently_used_go(
    server: FaultServer, tmp_path: Path, model: Published, other: Published
) -> None:
    store = ModelStore(tmp_path / "store", limits=QUICK, limit_bytes=32 * MIB)
    third = Published.of(roomy_parrot(tmp_path / "third.gguf", MIB, seed=3, says="abcd"))
    first = store.obtain(server.serve("/1.gguf", model.data).url)
    second = store.obtain(server.serve("/2.gguf", other.data).url)
    with store.open(first.id):
        pass
    store.obtain(server.serve("/3.gguf", third.data).url)
    kept = [found.manifest.id for found in store.list()]
    assert kept == [first.id, f"sha256-{third.sha256}"]
    assert second.id not in kept
    usage = store.usage()
    assert usage.model_bytes == model.size + third.size
    assert usage.limit_bytes == 32 * MIB


# --- One model --------------------------------------------------------------------------------------------


def test_models_are_found_by_what_people_type(store: ModelStore, model: Published, other: Published) -> None:
    first = store.import_files([model.path], name="one")
    store.import_files([other.path], name="two")
    for text in (first.id, first.id[:15], first.id[7:12], "one"):
        assert store.find(text).id == first.id
    assert_refused("model_not_found", lambda: store.find("three"))
    assert_refused("model_not_found", lambda: store.find("https://user:secret@host/x?token=secret"))
    store.import_files([model.path])
    third = store.import_files([other.path], name="ignored")
    assert store.find("two").id == third.id


def test_damage_is_found_and_damaged_files_go(store: ModelStore, model: Published) -> None:
    manifest = store.import_files([model.path])
    seen: list[Progress] = []
    assert store.verify(manifest.id, on_progress=seen.append) == []
    assert_honest(seen)
    path = store.folder / manifest.files[0].stored_name
    with path.open("r+b") as file:
        file.seek(5 * MIB)
        file.write(b"damage")
    assert store.verify(manifest.id) == [path.name]
    assert not path.exists()
    assert [found.whole for found in store.list()] == [False]
    assert_refused("model_not_found", lambda: store.open(manifest.id).__enter__())
    assert_stored(store, store.import_files([model.path]), model)


def test_a_projector_goes_with_its_last_model(
    store: ModelStore, model: Published, other: Published, tmp_path: Path
) -> None:
    gguf = read_gguf(model.path)
    gguf.metadata["general.alignment"] = Value(UINT32, 32)
    gguf.metadata["test.number"] = Value(UINT32, 1)
    projector = store.import_files([gguf.write(tmp_path / "projector.gguf")])
    first = store.import_files([model.path], projector=projector.id)
    second = store.import_files([other.path], projector=projector.id)
    assert store.find(first.id).projector == projector.id
    store.delete(first.id)
    assert store.find(projector.id)
    store.delete(second.id)
    assert store.list() == []


def test_old_leftovers_are_removed(store: ModelStore) -> None:
    key = "0" * 64
    old = [store.folder / name for name in (f"partial-{key}-1.gguf", f".model-{key}.json")]
    fresh = store.folder / f"partial-{'1' * 64}-1.gguf"
    for path in (*old, fresh):
        path.write_bytes(b"x")
    for path in old:
        os.utime(path, (1, 1))
    assert set(store.repair().removed) == {path.name for path in old}
    assert fresh.exists()


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert_refused("storage_failed", lambda: ModelStore(file / "store"))


def test_calls_work_inside_an_event_loop(server: FaultServer, store: ModelStore, model: Published) -> None:
    async def main() -> Manifest:
        return store.obtain(server.serve(PATH, model.data).url)

    assert_stored(store, asyncio.run(main()), model)
    wait_until(lambda: not any(thread.name == "headrace-store" for thread in threading.enumerate()))
