"""bench/streams.py from end to end, on a model too small for its figures to mean anything."""

import asyncio
from pathlib import Path

import pytest

from bench.output_layer import output_layer_share
from bench.streams import Plan, Stream, main, measure, table
from headrace import engine_thread


def test_gaps_belong_to_the_span_in_which_they_end() -> None:
    stream = Stream(times=[1.0, 2.0, 2.5, 4.0, 9.0])
    assert stream.gaps(2.0, 4.0) == [500.0, 1500.0]
    assert stream.gaps(0.0, 1.5) == []


def test_the_output_layer_s_share(tiny_model: Path) -> None:
    # 4,096 tokens of 256 numbers, against 5.6 million weights, of which as many again are only looked up.
    layer = 4096 * 256
    assert output_layer_share(tiny_model) == pytest.approx(layer / (5.6e6 - layer), rel=0.02)


def test_every_mode_is_measured(
    tiny_model: Path, library_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_LIBRARY", str(library_path))
    monkeypatch.setattr(engine_thread, "TICK_BUDGET_MS", 0)
    plan = Plan(tiny_model, threads=1, repeats=1, window=6, prompt_tokens=120, streams=2)
    told: list[str] = []
    figures = asyncio.run(measure(plan, told.append))
    assert list(figures["modes"]) == ["latency", "balanced", "throughput"]
    assert all(rate > 0 for rate in figures["tokensPerSecond"].values())
    for mode in figures["modes"].values():
        assert mode["besideP95Ms"] >= mode["besideP50Ms"] > 0
        assert mode["promptTokens"] == pytest.approx(120, abs=30)
    assert len(told) == 4
    assert "output layer" in table(figures)


def test_a_model_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    budget = engine_thread.TICK_BUDGET_MS
    assert main(["--model", "/nonexistent.gguf"]) == 1
    assert "model_not_found" in capsys.readouterr().err
    assert budget == engine_thread.TICK_BUDGET_MS
