"""What the schedule modes promise, each on the smallest load that could break it.

Times of arrival are those of a machine on which a stream alone makes a token in 7.3 ms; they are stretched
to the machine that the costs describe. Counterpart: `scheduler.py`, which runs these beside its large load;
ARCHITECTURE.md states the promises, tests/native/test_scheduler_properties.py holds the scheduler to them.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from bench.simulator import Simulator

Cost = Mapping[str, float]


def beside_a_prompt(simulator: Simulator, cost: Cost, mode: str, streams: int = 8) -> dict[str, float]:
    """Streams, then a prompt of 2,000 tokens: their inter-token times before it and beside it."""
    arrivals = [_arrival(place, 0, 50, 1500) for place in range(1, streams + 1)]
    outcome = _run(simulator, cost, mode, streams + 1, [*arrivals, _arrival(streams + 1, 8000, 2000, 8)])
    begins, ends = 8000 * _slowness(cost), outcome[-1]["tokenMs"][0]
    before = _gaps(outcome[:-1], begins / 2, begins)
    beside = _gaps(outcome[:-1], begins, ends)
    return {
        "aloneP50Ms": _share(before, 0.5),
        "besideP50Ms": _share(beside, 0.5),
        "besideP95Ms": _share(beside, 0.95),
        "ratioP50": _share(beside, 0.5) / _share(before, 0.5),
        "ratioP95": _share(beside, 0.95) / _share(before, 0.95),
        "promptSeconds": (ends - begins) / 1000,
    }


def short_behind_long(simulator: Simulator, cost: Cost, mode: str) -> float:
    """Seconds to the first token of a prompt of 50 tokens that comes just behind one of 2,000.

    Beside a running stream, which makes the prompts' share of a pass small.
    """
    arrivals = [_arrival(1, 0, 50, 3000), _arrival(2, 3000, 2000, 8), _arrival(3, 3100, 50, 8)]
    outcome = _run(simulator, cost, mode, 4, arrivals)
    return float(outcome[2]["tokenMs"][0] - outcome[2]["submittedMs"]) / 1000


def urgent_in_line(simulator: Simulator, cost: Cost, mode: str) -> float:
    """Seconds that one urgent request waits for a slot, with twenty others in line before it."""
    arrivals = [_arrival(place, 0, 100, 100) for place in range(1, 29)]
    urgent = {**_arrival(29, 2000, 50, 8), "priority": 5}
    outcome = _run(simulator, cost, mode, 8, [*arrivals, urgent])
    return float(outcome[-1]["admittedMs"] - outcome[-1]["submittedMs"]) / 1000


def humble_in_line(simulator: Simulator, cost: Cost, mode: str) -> float:
    """Seconds that one background request waits for a slot while more urgent ones come than can be served."""
    arrivals = [{**_arrival(place, place * 800, 100, 100), "priority": 5} for place in range(1, 601)]
    arrivals[49]["priority"] = 0
    outcome = _run(simulator, cost, mode, 2, arrivals)
    return float(outcome[49]["admittedMs"] - outcome[49]["submittedMs"]) / 1000


def after_a_spike(simulator: Simulator, cost: Cost, mode: str) -> float:
    """The share of requests that miss a deadline of 2 s where one pass in a hundred is held up for 5 s.

    Both stretched like the times of arrival.
    """
    arrivals = [{**_arrival(place, place * 1000, 100, 10), "deadlineMs": 2000} for place in range(1, 401)]
    spiky = {**cost, "spikeChance": 0.01, "spikeMs": 5000 * _slowness(cost)}
    outcome = _run(simulator, spiky, mode, 2, arrivals)
    missed = [request for request in outcome if request["outcome"] == "deadline_exceeded"]
    return len(missed) / len(outcome)


def measure_promises(simulator: Simulator, cost: Cost, modes: Sequence[str]) -> dict[str, Any]:
    """All of the above for every mode."""
    return {
        mode: {
            "besidePrompt": {
                str(streams): beside_a_prompt(simulator, cost, mode, streams) for streams in (1, 8)
            },
            "shortBehindLongSeconds": short_behind_long(simulator, cost, mode),
            "urgentWaitSeconds": urgent_in_line(simulator, cost, mode),
            "humbleWaitSeconds": humble_in_line(simulator, cost, mode),
            "missedAfterSpikes": after_a_spike(simulator, cost, mode),
        }
        for mode in modes
    }


def promises_table(promises: Mapping[str, Any]) -> str:
    """The figures of `measure_promises` for people."""
    lines = [
        "streams beside a prompt of 2,000 tokens; inter-token times in ms, against the same streams alone",
        f"{'mode':<12}{'streams':>8}{'alone p50':>12}{'beside p50':>12}{'p95':>9}{'p50 ratio':>11}"
        f"{'p95 ratio':>11}{'prompt':>10}",
    ]
    for mode, figures in promises.items():
        lines += [
            f"{mode:<12}{streams:>8}{beside['aloneP50Ms']:>12.1f}{beside['besideP50Ms']:>12.1f}"
            f"{beside['besideP95Ms']:>9.1f}{beside['ratioP50']:>11.2f}{beside['ratioP95']:>11.2f}"
            f"{beside['promptSeconds']:>8.1f} s"
            for streams, beside in figures["besidePrompt"].items()
        ]
    rows = {
        "TTFT of 50 tokens behind a prompt of 2,000": ("shortBehindLongSeconds", "{:.2f} s"),
        "an urgent request's wait for a slot": ("urgentWaitSeconds", "{:.2f} s"),
        "a background request's wait under urgent load": ("humbleWaitSeconds", "{:.2f} s"),
        "deadlines of 2 s missed, 1 % of passes held up 5 s": ("missedAfterSpikes", "{:.1%}"),
    }
    lines += ["", f"{'':<52}" + "".join(f"{mode:>12}" for mode in promises)]
    for title, (name, form) in rows.items():
        lines.append(
            f"{title:<52}" + "".join(f"{form.format(figures[name]):>12}" for figures in promises.values())
        )
    return "\n".join(lines)


def _arrival(number: int, at_ms: float, prompt: int, output: int) -> dict[str, Any]:
    return {"id": number, "atMs": at_ms, "prompt": [[number, prompt]], "output": output}


def _slowness(cost: Cost) -> float:
    """Against the default machine of native/simulator/scenario.h, by the token of a stream alone."""
    default = {"fixedMs": 3.0, "decodeMs": 3.4, "logitsMs": 0.9}
    return sum(cost.get(name, ms) for name, ms in default.items()) / sum(default.values())


def _run(
    simulator: Simulator, cost: Cost, mode: str, slots: int, arrivals: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    slowness = _slowness(cost)
    stretched = [
        {
            **arrival,
            "atMs": arrival["atMs"] * slowness,
            "deadlineMs": round(arrival.get("deadlineMs", 0) * slowness),
        }
        for arrival in arrivals
    ]
    scenario = {
        "slots": slots,
        "schedule": mode,
        "queueLimit": 100_000,
        "cost": dict(cost),
        "arrivals": stretched,
    }
    requests: list[Mapping[str, Any]] = simulator.run(scenario)["requests"]
    return requests


def _gaps(requests: Sequence[Mapping[str, Any]], begins: float, ends: float) -> list[float]:
    return [
        later - earlier
        for request in requests
        for earlier, later in pairwise(request["tokenMs"])
        if earlier >= begins and later <= ends
    ]


def _share(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]
