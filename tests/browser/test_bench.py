"""bench/decode.py and bench/store.py from end to end, on a model too small for figures that mean anything."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench import decode, store

pytestmark = pytest.mark.browser


def test_every_engine_is_measured(
    repo_root: Path,
    artifacts_dir: Path,
    library_path: Path,
    chromium: Path,
    model_files: Mapping[str, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HEADRACE_LIBRARY", str(library_path))
    told: list[str] = []

    # In a thread, because this one already has a Playwright of its own.
    with ThreadPoolExecutor(1) as pool:
        figures = pool.submit(
            decode.measure,
            model_files["abc.gguf"],
            chromium=chromium,
            web_dir=repo_root / "web",
            artifacts_dir=artifacts_dir,
            repeats=2,
            log=told.append,
        ).result()
    assert figures["promptTokens"] >= 64
    assert figures["outputTokens"] == 48
    assert list(figures["engines"]) == ["native", "st", "mt"]
    for rates in figures["engines"].values():
        for phase in ("prefill", "decode"):
            assert rates[phase]["best"] >= rates[phase]["median"] > 0
    assert figures["engines"]["native"]["decode"]["ofNative"] == 1
    assert [line.split(": ")[1] for line in told] == ["native", "st", "mt"] * 3
    assert [line.split()[0] for line in decode.table(figures).splitlines()[2:]] == ["native", "st", "mt"]


def test_every_step_of_a_model_is_measured(
    repo_root: Path, artifacts_dir: Path, chromium: Path, model_files: Mapping[str, Path]
) -> None:
    told: list[str] = []
    with ThreadPoolExecutor(1) as pool:
        figures = pool.submit(
            store.measure,
            model_files["tiny.gguf"],
            chromium=chromium,
            web_dir=repo_root / "web",
            artifacts_dir=artifacts_dir,
            repeats=1,
            log=told.append,
        ).result()
    assert [line.partition(": ")[2] for line in told] == [*store.STEPS, "open st", "open mt"]
    assert all(rate > 0 for rate in figures["megabytesPerSecond"].values())
    for record in figures["open"].values():
        assert 1 <= record["copiedPerByte"] < 1.1
        assert record["readMegabytesPerSecond"] > 0
    assert "raw read" in store.table(figures)
