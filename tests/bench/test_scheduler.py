"""bench/scheduler.py and bench/promises.py over the real simulator, with few requests."""

from collections.abc import Iterator
from itertools import pairwise

import pytest

from bench.promises import measure_promises
from bench.scheduler import MODES, calibrated, make_load, measure, percentiles, table
from bench.simulator import Simulator
from build_tools.workspace import Workspace


@pytest.fixture
def simulator(workspace: Workspace) -> Iterator[Simulator]:
    assert workspace.native_simulator.exists(), "build it with: python3 -m build_tools test"
    with Simulator(workspace.native_simulator) as simulator:
        yield simulator


def test_a_load_is_the_same_for_the_same_seed_and_in_order() -> None:
    load = make_load(300, seed=3)
    assert load == make_load(300, seed=3) != make_load(300, seed=4)
    assert [arrival["id"] for arrival in load] == list(range(1, len(load) + 1))
    assert load == sorted(load, key=lambda arrival: float(arrival["atMs"]))
    kinds = [arrival["kind"] for arrival in load]
    assert {kind: kinds.count(kind) > 0 for kind in ("chat", "background", "document")}
    assert kinds.count("chat") > 100 < kinds.count("background")


def test_turns_of_a_conversation_build_on_one_another() -> None:
    chats: dict[str, list[dict[str, object]]] = {}
    for arrival in make_load(200, seed=1):
        if arrival["kind"] == "chat":
            chats.setdefault(arrival["contextKey"], []).append(arrival)
    for turns in chats.values():
        for earlier, later in pairwise(turns):
            begins, continues = earlier["prompt"], later["prompt"]
            assert isinstance(begins, list)
            assert isinstance(continues, list)
            assert continues[: len(begins)] == begins
            assert continues[len(begins)] == (0, earlier["output"])


def test_every_mode_is_measured(simulator: Simulator) -> None:
    figures = measure(simulator, make_load(150, seed=1), {"noise": 0.1})
    assert list(figures["modes"]) == list(MODES)
    for mode in figures["modes"].values():
        assert sum(kind["requests"] for kind in mode["kinds"].values()) == figures["requests"]
        assert mode["cachedTokens"] > 0
        for kind in mode["kinds"].values():
            assert 0 < kind["ttftMs"]["p50"] <= kind["ttftMs"]["p95"]
            assert 0 < kind["itlMs"]["p50"] <= kind["itlMs"]["p95"]
    text = table(figures)
    assert all(word in text for word in (*MODES, "document", "p95 ratio", "TTFT of 50 tokens"))


def test_promises_are_measured_on_machines_of_any_speed(simulator: Simulator) -> None:
    slow = measure_promises(simulator, {}, ["latency"])["latency"]
    fast_cost = {
        "fixedMs": 0.03,
        "decodeMs": 0.034,
        "prefillMs": 0.034,
        "logitsMs": 0.009,
        "attentionMs": 8e-6,
    }
    fast = measure_promises(simulator, fast_cost, ["latency"])["latency"]
    for streams in ("1", "8"):
        for ratio in ("ratioP50", "ratioP95"):
            expected = slow["besidePrompt"][streams][ratio]
            assert fast["besidePrompt"][streams][ratio] == pytest.approx(expected, rel=0.1)


def test_a_cost_model_is_calibrated_by_what_streams_took() -> None:
    # Passes of 2 ms and 4 ms per stream, of which a quarter is the output layer.
    rates = {str(n): 1000 * n / (2 + 4 * n) for n in (1, 2, 4, 8)}
    cost = calibrated({"tokensPerSecond": rates, "outputLayerShare": 0.25, "prefillTokensPerSecond": 250.0})
    assert cost["fixedMs"] == pytest.approx(2)
    assert cost["decodeMs"] == pytest.approx(3)
    assert cost["logitsMs"] == pytest.approx(1)
    assert cost["prefillMs"] == pytest.approx(4)


def test_percentiles() -> None:
    assert percentiles([]) == {"p50": 0, "p95": 0}
    assert percentiles([float(number) for number in range(101)]) == {"p50": 50, "p95": 95}
    assert percentiles([7.0]) == {"p50": 7, "p95": 7}
