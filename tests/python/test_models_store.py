"""headrace/models/store.py: what is kept, found again, shared by processes, and given up.

Counterparts: `tests/browser/test_model_store.py`, `tests/browser/test_model_tabs.py`.
"""

import asyncio
import json
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import Engine
from headrace.models import Manifest, ModelStore, Progress
from headrace.models.gguf import parse_header
from tests.fault_scenarios import linked_etag
from tests.fault_server import FaultServer, fault_server
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


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with fault_server() as server:
        yield server


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Published:
    """15 MiB, of which every byte counts."""
    return Published.of(roomy_parrot(tmp_path_factory.mktemp("model") / "model.gguf", MIB))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Published:
    """Another of the same size, whose header and beginning are the same."""
    path = roomy_parrot(tmp_path_factory.mktemp("model") / "other.gguf", MIB)
    with path.open("r+b") as file:
        file.seek(-MIB // 2, os.SEEK_END)
        file.write(os.urandom(MIB // 2))
        for at in range(2, 14):
            file.seek(at * MIB + MIB // 2)
            file.write(os.urandom(MIB // 2 - 9))
    return Published.of(path)


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path / "store", limits=QUICK)


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


# --- D8: processes ----------------------------------------------------------------------------------------

FETCH = """
import sys
from headrace.models import ModelStore
phases = []
print(ModelStore(sys.argv[1]).obtain(sys.argv[2], on_progress=lambda p: phases.append(p.phase)).id)
print(*dict.fromkeys(phases))
"""


def test_d8_two_processes_download_once(server: FaultServer, store: ModelStore, model: Published) -> None:
    url = server.serve(PATH, model.data, rate=10 * MIB).url
    programs = [Program(FETCH, str(store.folder), url) for _ in range(2)]
    outputs = [program.output().splitlines() for program in programs]
    assert [id for id, _ in outputs] == [f"sha256-{model.sha256}"] * 2
    assert sorted(phases for _, phases in outputs) == ["download", "wait"]
    assert server.bytes_sent() == model.size


def test_d8_two_threads_download_once(server: FaultServer, store: ModelStore, model: Published) -> None:
    url = server.serve(PATH, model.data, rate=10 * MIB).url
    seen: list[Progress] = []
    thread = threading.Thread(target=store.obtain, args=[url])
    thread.start()
    server.wait_until(lambda: server.bytes_sent() > MIB)
    assert_stored(store, store.obtain(url, on_progress=seen.append), model)
    thread.join()
    assert_honest(seen)
    assert {progress.phase for progress in seen} == {"wait"}
    assert server.bytes_sent() == model.size


def test_d8_who_waits_takes_over_from_the_dead(
    server: FaultServer, store: ModelStore, model: Published
) -> None:
    url = server.serve(PATH, model.data, rate=10 * MIB).url
    program = Program(FETCH, str(store.folder), url)
    server.wait_until(lambda: server.bytes_sent() > 4 * MIB)
    thread = threading.Thread(target=program.kill)
    thread.start()
    assert_stored(store, store.obtain(url), model)
    thread.join()
    assert server.bytes_sent() <= model.size + 3 * MIB


def test_waiting_can_be_cancelled(server: FaultServer, store: ModelStore, model: Published) -> None:
    url = server.serve(PATH, model.data, rate=5 * MIB).url
    thread = threading.Thread(target=store.obtain, args=[url])
    thread.start()
    server.wait_until(lambda: server.bytes_sent() > MIB)
    cancel = threading.Event()
    assert_refused("cancelled", lambda: store.obtain(url, on_progress=lambda _: cancel.set(), cancel=cancel))
    thread.join()


READ = """
import sys, time
from headrace.models import ModelStore
with ModelStore(sys.argv[1]).open(sys.argv[2]):
    print("open", flush=True)
    time.sleep(60)
"""


def test_d8_deletion_waits_for_readers(server: FaultServer, store: ModelStore, model: Published) -> None:
    id = store.obtain(server.serve(PATH, model.data).url).id
    reader = Program(READ, str(store.folder), id)
    assert reader.process.stdout is not None
    assert reader.process.stdout.readline() == "open\n"
    assert [found.in_use for found in store.list()] == [True]
    assert_refused("model_in_use", lambda: store.delete(id, wait=False))
    deletion = threading.Thread(target=store.delete, args=[id])
    deletion.start()
    deletion.join(0.3)
    assert deletion.is_alive()
    assert (store.folder / f"{model.sha256}.gguf").exists()
    reader.kill()
    deletion.join(5)
    assert not deletion.is_alive()
    assert store.list() == []
    assert not list(store.folder.glob("*.gguf"))
    assert_refused("model_not_found", lambda: store.open(id).__enter__())


def test_shared_content_survives_the_deletion_of_one_model(
    server: FaultServer, store: ModelStore, model: Published
) -> None:
    manifest = store.obtain(server.serve(PATH, model.data).url)
    twin = "sha256-" + "ab" * 32
    record = {**manifest.to_record(), "id": twin}
    (store.folder / f"model-{'ab' * 32}.json").write_text(json.dumps(record))
    store.delete(twin)
    assert_stored(store, store.find(manifest.id), model)


# --- Local files, shards, and models that run -------------------------------------------------------------


def test_files_are_imported_and_exported(store: ModelStore, model: Published, tmp_path: Path) -> None:
    seen: list[Progress] = []
    manifest = store.import_files([model.path], name="A model: mine", on_progress=seen.append)
    assert_stored(store, manifest, model)
    assert_honest(seen)
    assert {progress.phase for progress in seen} == {"import"}
    (path,) = store.export(manifest.id, tmp_path / "out")
    assert path.name == "A model_ mine.gguf"
    assert path.read_bytes() == model.data
    assert_refused("invalid_request", lambda: store.export(manifest.id, tmp_path / "out"))


def test_an_import_that_fails_leaves_nothing(store: ModelStore, model: Published, tmp_path: Path) -> None:
    page = tmp_path / "page.gguf"
    page.write_bytes(b"<html>" * 999)
    short = tmp_path / "short.gguf"
    short.write_bytes(model.data[: 9 * MIB])
    cancel = threading.Event()
    cancel.set()
    assert_refused("model_invalid", lambda: store.import_files([page]))
    assert_refused("model_truncated", lambda: store.import_files([short]))
    assert_refused("model_not_found", lambda: store.import_files([tmp_path / "none.gguf"]))
    assert_refused("cancelled", lambda: store.import_files([model.path], cancel=cancel))
    assert leftovers(store) == []


def test_a_large_import_is_split_and_runs(tmp_path: Path, model: Published, library_path: Path) -> None:
    store = ModelStore(tmp_path / "store", limits=SPLIT)
    manifest = store.import_files([model.path])
    assert_stored(store, manifest, model)
    assert len(manifest.files) > 2
    whole = parse_header(model.data[: 2 * MIB], "whole")
    assert whole is not None
    tensors = {}
    for file in manifest.files:
        stored = (store.folder / file.stored_name).read_bytes()
        header = parse_header(stored, file.stored_name)
        assert header is not None
        for tensor in header.tensors:
            start = header.data_start + tensor.offset
            tensors[tensor.name] = stored[start : start + tensor.bytes]
    for tensor in whole.tensors:
        start = whole.data_start + tensor.offset
        assert tensors.pop(tensor.name) == model.data[start : start + tensor.bytes]
    assert tensors == {}
    with store.open(manifest.id) as opened:
        assert answer(list(opened.paths), library_path) == answer([model.path], library_path)


def answer(paths: list[Path], library: Path) -> str:
    with Engine(paths if len(paths) > 1 else paths[0], {"threads": 1}, library=library) as engine:
        return engine.query("a", {"max_tokens": 6, "temperature": 0}).result().text


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory, model: Published) -> list[Path]:
    """The model in shards, as they are published."""
    folder = tmp_path_factory.mktemp("shards")
    store = ModelStore(folder / "store", limits=SPLIT)
    manifest = store.import_files([model.path], name="model")
    return list(store.export(manifest.id, folder))


def test_f10_shards_come_in_any_order(store: ModelStore, shards: list[Path]) -> None:
    first = store.import_files(shards)
    assert store.import_files([*shards[2:], *shards[:2]]).id == first.id
    assert [file.size for file in first.files] == [path.stat().st_size for path in shards]


def test_f11_f14_a_shard_alone_is_refused(server: FaultServer, store: ModelStore, shards: list[Path]) -> None:
    assert_refused("invalid_request", lambda: store.import_files(shards[1:2]))
    assert_refused("invalid_request", lambda: store.import_files(shards[:-1]))
    # Under a name that does not tell, the header does, before the rest is fetched.
    url = server.serve("/unnamed", shards[1]).url
    assert_refused("invalid_request", lambda: store.obtain(url))
    assert server.bytes_sent() <= MIB
    assert leftovers(store) == []


def test_f11_one_name_fetches_all_shards(
    server: FaultServer, store: ModelStore, shards: list[Path], library_path: Path, model: Published
) -> None:
    for path in shards:
        server.serve(f"/{path.name}", path)
    seen: list[Progress] = []
    manifest = store.obtain(f"{server.url}/{shards[1].name}?download=true", on_progress=seen.append)
    assert len(manifest.parts) == len(shards)
    assert_honest(seen)
    assert seen[-1].loaded == seen[-1].total == sum(path.stat().st_size for path in shards)
    assert leftovers(store) == []
    with store.open(manifest.id) as opened:
        assert answer(list(opened.paths), library_path) == answer([model.path], library_path)


def test_f12_joined_shards_are_refused(store: ModelStore, shards: list[Path], tmp_path: Path) -> None:
    joined = tmp_path / "joined.gguf"
    joined.write_bytes(b"".join(path.read_bytes() for path in shards))
    assert_refused("model_invalid", lambda: store.import_files([joined]))


@pytest.mark.parametrize("name", ["model.gguf?download=true", "MODEL.GGUF", "model-00001-of-00001.gguf"])
def test_f13_names(server: FaultServer, store: ModelStore, model: Published, name: str) -> None:
    url = f"{server.url}/{name}"
    server.serve(f"/{name.partition('?')[0]}", model.data)
    assert_stored(store, store.obtain(url), model)


def test_hugging_face_addresses(server: FaultServer, tmp_path: Path, model: Published) -> None:
    store = ModelStore(tmp_path / "store", limits=QUICK, hugging_face=server.url)
    data = server.serve("/cdn/data", model.data)
    for path in ("/owner/repo/resolve/main/a/model.gguf", "/owner/repo/resolve/v2/a/model.gguf"):
        server.serve(path, b"", redirect=(data.url, 302), headers=linked_etag(model.data))
    assert_stored(store, store.obtain("hf:owner/repo/a/model.gguf"), model)
    assert store.obtain("hf:owner/repo/a/model.gguf@v2").id == f"sha256-{model.sha256}"
    assert len(store.find("hf:owner/repo/a/model.gguf").sources) == 2


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
    old = [store.folder / name for name in (f"partial-{key}-1.gguf", f".model-{key}.json.1")]
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
