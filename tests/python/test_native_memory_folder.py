"""Snapshots in a folder, of every kind of memory: used by the model that made them, and by no other.

Counterpart: `native/engine/snapshot_folder.cpp` and `fingerprint.cpp`. Without a folder:
test_native_memory.py.
"""

import os
from pathlib import Path

from tests.memory_models import memory_model
from tests.python.memory_cases import (
    Bench,
    Kind,
    ask,
    assert_same,
    bench,
    each_kind,
    each_model,
    memory_folder,
    source,
    words,
)

__all__ = ["bench", "memory_folder"]

PROMPT = words(1, 100)
LONGER = PROMPT + words(2, 30)


def fill(bench: Bench, kind: Kind, folder: Path, **options: object) -> None:
    """Leaves a snapshot of the prompt in the folder."""
    with bench.open(kind, prefix_cache_folder=str(folder), **options) as engine:
        ask(engine, PROMPT)
    assert any(path.is_file() for path in folder.iterdir())


@each_kind
def test_a_restart_continues_from_the_folder(bench: Bench, kind: Kind, tmp_path: Path) -> None:
    for turn in range(2):
        with bench.open(kind, prefix_cache_folder=str(tmp_path), slots=2) as engine:
            for prompt in (PROMPT, LONGER):
                answer = ask(engine, prompt)
                assert_same(kind.model, answer, bench.cold(kind.model, prompt))
                if turn == 1 and prompt == PROMPT:
                    assert (source(answer), answer.usage.cached_tokens) == ("disk", len(PROMPT) - 1)
                elif prompt == LONGER:
                    assert answer.usage.cached_tokens >= len(PROMPT) - 1


@each_model
def test_another_model_of_the_same_shape_gets_nothing(bench: Bench, model: str, tmp_path: Path) -> None:
    kind = Kind(model)
    fill(bench, kind, tmp_path)
    path = bench.path(model, seed=2)
    assert path.stat().st_size == bench.path(model).stat().st_size
    with bench.open_file(path, prefix_cache_folder=str(tmp_path)) as engine:
        answer = ask(engine, PROMPT)
    assert source(answer) == "none"
    assert_same(model, answer, bench.cold(model, PROMPT, seed=2))


@each_model
def test_a_file_that_was_replaced_gets_nothing(bench: Bench, model: str, tmp_path: Path) -> None:
    """With another one of the same size and time, at the same path."""
    path, folder = tmp_path / "model.gguf", tmp_path / "snapshots"
    memory_model(model, 1).write(path)
    before = path.stat()

    def answer() -> tuple[str, int]:
        with bench.open_file(path, prefix_cache_folder=str(folder)) as engine:
            result = ask(engine, PROMPT)
        assert_same(model, result, bench.cold(model, PROMPT, seed=seed))
        return source(result), result.usage.cached_tokens

    seed = 1
    assert answer() == ("none", 0)
    assert answer() == ("disk", len(PROMPT) - 1)
    seed = 2
    memory_model(model, 2).write(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert answer() == ("none", 0)
    assert answer() == ("disk", len(PROMPT) - 1)


@each_model
def test_windows_and_whole_caches_do_not_mix(bench: Bench, model: str, tmp_path: Path) -> None:
    for sliding in (True, False):
        fill(bench, Kind(model, sliding=sliding), tmp_path / f"{sliding}")
        kind = Kind(model, sliding=not sliding)
        with bench.open(kind, prefix_cache_folder=str(tmp_path / f"{sliding}")) as engine:
            answer = ask(engine, PROMPT)
        assert source(answer) == "none"
        assert_same(model, answer, bench.cold(model, PROMPT))


@each_model
def test_another_layout_is_right_whatever_it_reuses(bench: Bench, model: str, tmp_path: Path) -> None:
    """More slots, a unified cache, a shorter context, a smaller batch."""
    fill(bench, Kind(model), tmp_path)
    for unified in (False, True):
        for options in ({"slots": 3}, {"slots": 1, "context_size": 160}, {"batch_size": 16}):
            with bench.open(Kind(model, unified), prefix_cache_folder=str(tmp_path), **options) as engine:
                answers = [ask(engine, PROMPT) for _ in range(2)]
                for answer in answers:
                    assert_same(model, answer, bench.cold(model, PROMPT))
                assert answers[1].usage.cached_tokens == len(PROMPT) - 1


@each_model
def test_damage_costs_the_time_to_compute_only(bench: Bench, model: str, tmp_path: Path) -> None:
    kind = Kind(model)
    for damage in range(3):
        folder = tmp_path / f"{damage}"
        fill(bench, kind, folder)
        for path in folder.iterdir():
            data = bytearray(path.read_bytes())
            if damage == 0:
                data[len(data) // 2] ^= 1
            elif damage == 1:
                del data[-10:]
            else:
                data[-1] ^= 0x80
            path.write_bytes(data)
        with bench.open(kind, prefix_cache_folder=str(folder)) as engine:
            answer = ask(engine, PROMPT)
            assert_same(model, answer, bench.cold(model, PROMPT))
            assert source(answer) == "none"
