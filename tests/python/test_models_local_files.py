"""headrace/models/local_files.py and obtain.py: files that are imported, shards, and where models come from.

Counterpart: `tests/browser/test_model_sources.py`.
"""

import threading
from pathlib import Path

import pytest

from headrace import Engine
from headrace.models import ModelStore, Progress
from headrace.models.gguf import parse_header
from tests.fault_scenarios import linked_etag
from tests.fault_server import FaultServer
from tests.python.store_cases import (
    MIB,
    QUICK,
    SPLIT,
    Published,
    assert_honest,
    assert_refused,
    assert_stored,
    leftovers,
)

PATH = "/model.gguf"


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


def test_the_environment_says_where_hf_leads(
    server: FaultServer, store: ModelStore, model: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    server.serve("/owner/repo/resolve/main/model.gguf", model.data)
    assert_stored(store, store.obtain("hf:owner/repo/model.gguf"), model)
