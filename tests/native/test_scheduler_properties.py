"""What must hold for every load: properties of the scheduler over runs that hypothesis makes up.

Counterpart: native/simulator, where the real scheduler runs over a model that only takes its time (and which
itself raises what no model could compute: a position skipped, a prompt's answer sampled over another
prompt). Figures of speed are not judged here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.promises import beside_a_prompt, humble_in_line, short_behind_long
from bench.simulator import SimulationError, Simulator

PROGRAM = Path(__file__).resolve().parents[2] / "build" / "native" / "headrace_simulator"
SETTINGS = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
ENDED_WELL = {"stop", "length"}
SMALLEST_PACE = 16
"""Prompt tokens from which on a pass counts as a measure of pace, as in native/engine/step_pace.cpp."""


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    assert PROGRAM.exists(), "build it with: python3 -m build_tools test"
    with Simulator(PROGRAM) as simulator:
        yield simulator


# --- loads ---------------------------------------------------------------------------------------


@st.composite
def scenarios(draw: st.DrawFn) -> dict[str, Any]:
    slots = draw(st.integers(1, 5))
    trims = draw(st.booleans())
    context = draw(st.integers(24, 160))
    scenario = {
        "slots": slots,
        "batchSize": draw(st.integers(slots, slots + 3) | st.integers(slots, 96)),
        "schedule": draw(st.sampled_from(["latency", "balanced", "throughput"])),
        "queueLimit": draw(st.sampled_from([100, 100, 0, 2])),
        "contextSize": context,
        "trims": trims,
        "cacheTokens": draw(st.sampled_from([0, 200, 5000])),
        "seed": draw(st.integers(0, 1000)),
        "keepPlans": True,
        "cost": draw(costs()),
        "drafting": {"tokens": draw(st.sampled_from([0, 0, 3])), "chance": draw(st.floats(0, 1))},
    }
    count = draw(st.integers(1, 16))
    times = sorted(draw(st.lists(st.integers(0, 600), min_size=count, max_size=count)))
    scenario["arrivals"] = [
        {"id": place + 1, "atMs": at_ms, **draw(requests(at_ms, trims, 100 + place))}
        for place, at_ms in enumerate(times)
    ]
    return scenario


def costs() -> st.SearchStrategy[dict[str, float]]:
    return st.fixed_dictionaries(
        {
            "fixedMs": st.sampled_from([0.0, 3.0]),
            "decodeMs": st.sampled_from([0.5, 3.4]),
            "prefillMs": st.sampled_from([0.1, 3.4, 30.0]),
            "stateMs": st.just(0.0),
            "noise": st.sampled_from([0.0, 0.3]),
            "spikeChance": st.sampled_from([0.0, 0.05]),
            "spikeMs": st.just(400.0),
        }
    )


def requests(at_ms: int, trims: bool, own_group: int) -> st.SearchStrategy[dict[str, Any]]:
    segment = st.tuples(st.sampled_from([0, 1, 2, 3, own_group]), st.integers(1, 60))
    return st.fixed_dictionaries(
        {
            "prompt": st.lists(segment, min_size=1, max_size=3),
            "output": st.integers(1, 30),
            "priority": st.sampled_from([0, 0, -1, 1]),
            "deadlineMs": st.sampled_from([0, 0, 40, 500]),
            "contextKey": st.sampled_from(["", "", "a", "b"]),
            "adapter": st.sampled_from(["", "", "x"]),
            "cancelAtMs": st.just(-1) | st.integers(at_ms, at_ms + 300),
            "shift": st.just(False) if not trims else st.booleans(),
        }
    )


# --- a run, as the checks look at it -------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """The contributions of one slot to one plan."""

    slot: int
    request: int
    kinds: list[str]
    positions: list[int]
    logits: list[bool]


class RunOf:
    """A scenario with its outcome."""

    def __init__(self, simulator: Simulator, scenario: Mapping[str, Any]) -> None:
        self.scenario = scenario
        self.outcome = simulator.run(scenario)
        self.asked = {arrival["id"]: arrival for arrival in scenario["arrivals"]}
        self.records = {record["id"]: record for record in self.outcome["requests"]}

    @cached_property
    def plans(self) -> list[list[Part]]:
        return [self._parts(plan["contributions"]) for plan in self.outcome["plans"]]

    @cached_property
    def parts(self) -> dict[int, list[tuple[int, Part]]]:
        """Request → its parts, with the numbers of their plans."""
        found: dict[int, list[tuple[int, Part]]] = {number: [] for number in self.asked}
        for number, plan in enumerate(self.plans):
            for part in plan:
                found[part.request].append((number, part))
        return found

    def spans(self, name: str) -> dict[object, list[tuple[int, int, int]]]:
        """Value of `name` → first plan, last plan and id of each request that was computed."""
        found: dict[object, list[tuple[int, int, int]]] = {}
        for request, parts in self.parts.items():
            if parts:
                value = parts[0][1].slot if name == "slot" else self.asked[request][name]
                found.setdefault(value, []).append((parts[0][0], parts[-1][0], request))
        return {value: sorted(spans) for value, spans in found.items()}

    def ended_well(self) -> list[Mapping[str, Any]]:
        return [record for record in self.records.values() if record["outcome"] in ENDED_WELL]

    @staticmethod
    def _parts(contributions: list[list[Any]]) -> list[Part]:
        parts: list[Part] = []
        for slot, request, kind, position, logits in contributions:
            if not parts or parts[-1].slot != slot:
                parts.append(Part(slot, request, [], [], []))
            assert parts[-1].request == request
            parts[-1].kinds.append(kind)
            parts[-1].positions.append(position)
            parts[-1].logits.append(logits)
        return parts


# --- what must hold ------------------------------------------------------------------------------


def check_plans(run: RunOf) -> None:
    """Never more than the batch; a slot's tokens together, in order, and at most one of them decoded."""
    for plan in run.plans:
        assert 0 < sum(len(part.kinds) for part in plan) <= run.scenario["batchSize"]
        assert len({part.slot for part in plan}) == len(plan)
        assert len({run.asked[part.request]["adapter"] for part in plan}) == 1
        for part in plan:
            first = part.positions[0]
            assert part.positions == list(range(first, first + len(part.positions)))
            assert part.kinds[0] != "draft"
            assert set(part.kinds[1:]) <= ({"prefill"} if part.kinds[0] == "prefill" else {"draft"})


def check_logits(run: RunOf) -> None:
    """Logits only where a token is sampled, and a token wherever there are logits."""
    for request, parts in run.parts.items():
        record = run.records[request]
        last = record["promptTokens"] - 1
        for _, part in parts:
            for kind, position, logits in zip(part.kinds, part.positions, part.logits, strict=True):
                assert logits == (kind != "prefill" or position == last)
        sampled = sum(any(part.logits) for _, part in parts)
        guesses = sum(part.kinds.count("draft") for _, part in parts)
        assert sampled <= len(record["tokenMs"]) <= sampled + guesses


def check_prompts(run: RunOf) -> None:
    """A prompt is computed from where the cache ends to its end, each token once, before any sampling."""
    for request, parts in run.parts.items():
        if not parts:
            continue
        record = run.records[request]
        prompt = [p for _, part in parts if part.kinds[0] == "prefill" for p in part.positions]
        assert prompt == list(range(prompt[0], prompt[0] + len(prompt)))
        if record["outcome"] in ENDED_WELL:
            assert prompt[0] == record["cachedTokens"]
            assert prompt[-1] == record["promptTokens"] - 1
        kinds = [part.kinds[0] for _, part in parts]
        assert kinds == sorted(kinds, reverse=True)  # "prefill" before "decode"


def check_slots(run: RunOf) -> None:
    """One request in a slot, one slot for a request, one slot for a context key."""
    for parts in run.parts.values():
        assert len({part.slot for _, part in parts}) <= 1
    by_key = {key: spans for key, spans in run.spans("contextKey").items() if key}
    for spans in [*run.spans("slot").values(), *by_key.values()]:
        for earlier, later in pairwise(spans):
            assert earlier[1] < later[0]


def check_streams(run: RunOf) -> None:
    """A running stream gets a token in every pass with its adapters, and such a pass comes round soon."""
    for request, parts in run.parts.items():
        decoded = [number for number, part in parts if part.logits[-1]]
        for earlier, later in pairwise(decoded):
            between = run.plans[earlier + 1 : later]
            own = run.asked[request]["adapter"]
            assert all(run.asked[plan[0].request]["adapter"] != own for plan in between)
            assert len(between) <= run.scenario["slots"]


def check_prompts_move(run: RunOf) -> None:
    """A prompt in a slot moves on within a few passes, however small the budget."""
    slots = run.scenario["slots"]
    groups = len({arrival["adapter"] for arrival in run.asked.values()})
    bound = 4 * slots * groups + slots + 2
    began = [plan["beganMs"] for plan in run.outcome["plans"]]
    for request, parts in run.parts.items():
        numbers = [number for number, part in parts if part.kinds[0] == "prefill"]
        admitted = run.records[request]["admittedMs"]
        if admitted is not None:
            numbers.insert(0, sum(ms < admitted for ms in began) - 1)
        for earlier, later in pairwise(numbers):
            assert later - earlier <= bound


def check_ends(run: RunOf) -> None:
    """Every request ends once; a full answer, unless the context is full; and the counters agree."""
    context = run.scenario["contextSize"]
    for request, record in run.records.items():
        assert record["ends"] == 1
        tokens, wanted = len(record["tokenMs"]), run.asked[request]["output"]
        assert tokens <= wanted
        if record["outcome"] in ENDED_WELL and tokens < wanted:
            assert not run.asked[request]["shift"]
            assert record["promptTokens"] + tokens - 1 == context
        assert (record["outcome"] == "context_overflow") <= (record["promptTokens"] >= context)
    metrics = run.outcome["metrics"]
    refused = sum(record["outcome"] in {"queue_full", "context_overflow"} for record in run.records.values())
    assert metrics["accepted"] == len(run.records) - refused
    assert metrics["accepted"] == metrics["finished"] + metrics["cancelled"] + metrics["failed"]


def check_refusals(run: RunOf) -> None:
    """A request is refused only when all slots are taken and the queue is full."""
    for request, record in run.records.items():
        if record["outcome"] == "queue_full":
            alive = sum(
                other["endedPlan"] >= record["submittedPlan"]
                for number, other in run.records.items()
                if number < request and other["outcome"] not in {"queue_full", "context_overflow"}
            )
            assert alive >= run.scenario["queueLimit"] + run.scenario["slots"]


def check_cancels(run: RunOf) -> None:
    """What is cancelled ends at the next step and computes nothing more; nothing else ends so."""
    for request, record in run.records.items():
        cancelled = record["cancelledPlan"]
        assert (cancelled is not None) == (record["outcome"] == "cancelled")
        if cancelled is not None:
            assert record["endedPlan"] == cancelled
            assert all(number < cancelled for number, _ in run.parts[request])


def check_deadlines(run: RunOf) -> None:
    """Past its deadline nothing is computed; before it, a request fails only if the best pace is too slow."""
    plans = run.outcome["plans"]
    for request, record in run.records.items():
        limit = run.asked[request]["deadlineMs"]
        if limit == 0:
            assert record["outcome"] != "deadline_exceeded"
            continue
        deadline = record["submittedMs"] + limit
        assert all(plans[number]["beganMs"] <= deadline + 0.01 for number, _ in run.parts[request])
        if record["outcome"] == "deadline_exceeded" and record["endedMs"] < deadline:
            computed = [part.positions[-1] + 1 for _, part in run.parts[request]]
            left = record["promptTokens"] - (computed[-1] if computed else 0)
            paces = [
                (plan["endedMs"] - plan["beganMs"]) / len(plan["contributions"])
                for plan in plans[: record["endedPlan"]]
                if len(plan["contributions"]) >= SMALLEST_PACE
                and all(kind == "prefill" for _, _, kind, _, _ in plan["contributions"])
            ]
            assert record["endedMs"] + left * min(paces) > deadline - 0.1


def check_order(run: RunOf) -> None:
    """First come, first served within a priority and key; the less urgent get one turn in eight."""
    by_class: dict[tuple[object, object], list[float]] = {}
    for record in run.ended_well():
        asked = run.asked[record["id"]]
        by_class.setdefault((asked["priority"], asked["contextKey"]), []).append(record["admittedMs"])
    for admitted in by_class.values():
        assert admitted == sorted(admitted)
    if len(run.ended_well()) < len(run.records):
        return  # of the others it is not known when they were admitted
    for record in run.ended_well():
        asked = run.asked[record["id"]]
        if asked["contextKey"]:
            continue
        window = [
            run.asked[other["id"]]["priority"]
            for other in run.ended_well()
            if record["submittedMs"] < other["admittedMs"] < record["admittedMs"]
        ]
        assert sum(priority < asked["priority"] for priority in window) <= 1 + len(window) // 8


CHECKS = [
    check_plans,
    check_logits,
    check_prompts,
    check_slots,
    check_streams,
    check_prompts_move,
    check_ends,
    check_refusals,
    check_cancels,
    check_deadlines,
    check_order,
]


@SETTINGS
@given(scenario=scenarios())
def test_every_load(simulator: Simulator, scenario: dict[str, Any]) -> None:
    run = RunOf(simulator, scenario)
    for check in CHECKS:
        check(run)


@settings(SETTINGS, max_examples=50)
@given(scenario=scenarios(), batch=st.integers(1, 4))
def test_streams_take_turns_where_they_are_more_than_the_batch(
    simulator: Simulator, scenario: dict[str, Any], batch: int
) -> None:
    """No engine is made so (it raises the batch to the slots), but the planner promises it."""
    calm = [{**arrival, "adapter": "", "deadlineMs": 0, "cancelAtMs": -1} for arrival in scenario["arrivals"]]
    slots = batch + 3
    run = RunOf(simulator, {**scenario, "slots": slots, "batchSize": batch, "arrivals": calm})
    check_plans(run)
    check_logits(run)
    check_ends(run)
    for parts in run.parts.values():
        decoded = [number for number, part in parts if part.logits[-1]]
        for earlier, later in pairwise(decoded):
            assert later - earlier <= -(-slots // batch) + 1


# --- single cases --------------------------------------------------------------------------------


def test_a_stream_is_not_shut_out_by_newcomers_with_other_adapters(simulator: Simulator) -> None:
    long_one = {"id": 1, "atMs": 0, "prompt": [[100, 10]], "output": 50}
    newcomers = [
        {"id": number, "atMs": 0, "prompt": [[number, 2]], "output": 1, "adapter": "x"}
        for number in range(2, 200)
    ]
    arrivals = [long_one, *newcomers]
    run = RunOf(simulator, {"slots": 2, "queueLimit": 1000, "keepPlans": True, "arrivals": arrivals})
    assert run.records[1]["endedPlan"] < 2 * 50 + 5


@pytest.mark.parametrize("adapters", [["", "", "", "", "", ""], ["", "x", "", "x", "", "x"]])
def test_prompts_take_turns_beside_a_stream(simulator: Simulator, adapters: list[str]) -> None:
    """The streams leave a token or two per pass, and the shortest prompt must not have them all."""
    lengths = [10, 10, 400, 300, 200, 500]
    arrivals = [
        {
            "id": n + 1,
            "atMs": 0,
            "prompt": [[n + 1, length]],
            "output": 3000 if n < 2 else 1,
            "adapter": adapter,
        }
        for n, (length, adapter) in enumerate(zip(lengths, adapters, strict=True))
    ]
    scenario = {"slots": 6, "batchSize": 64, "schedule": "latency", "keepPlans": True, "arrivals": arrivals}
    run = RunOf(simulator, scenario)
    check_prompts_move(run)
    check_streams(run)
    beside = [plan for plan in run.plans if {part.kinds[0] for part in plan} == {"prefill", "decode"}]
    assert len(beside) > 200


def test_a_scenario_that_makes_no_sense_is_refused_and_the_next_one_runs(simulator: Simulator) -> None:
    with pytest.raises(SimulationError, match='no member "slotz"'):
        simulator.run({"slotz": 3})
    with pytest.raises(SimulationError, match="type must be number"):
        simulator.run({"arrivals": [{"id": "one"}]})
    assert simulator.run({"arrivals": []})["requests"] == []


def test_the_modes_keep_their_promises(simulator: Simulator) -> None:
    noise = {"noise": 0.1}
    latency, balanced, throughput = (
        beside_a_prompt(simulator, noise, mode) for mode in ("latency", "balanced", "throughput")
    )
    assert latency["ratioP50"] <= 1.5
    assert latency["ratioP95"] <= 1.5
    assert balanced["ratioP50"] <= 2.2
    assert throughput["promptSeconds"] < balanced["promptSeconds"] < latency["promptSeconds"] < 90
    for mode in ("latency", "balanced"):
        assert short_behind_long(simulator, noise, mode) < 2
    for mode in ("latency", "balanced", "throughput"):
        assert humble_in_line(simulator, noise, mode) < 60
