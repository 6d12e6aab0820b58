"""headrace/models/store.py: a folder that processes and threads share (case D8).

Counterpart: `tests/browser/test_model_tabs.py`.
"""

import json
import threading

from headrace.models import ModelStore, Progress
from tests.fault_server import FaultServer
from tests.python.store_cases import (
    MIB,
    Program,
    Published,
    assert_honest,
    assert_refused,
    assert_stored,
)

PATH = "/model.gguf"


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
