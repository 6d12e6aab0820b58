"""What each schedule mode makes of a load: thousands of requests on a simulated machine, in seconds.

Run by `python3 -m build_tools bench scheduler`. The scheduler is the real one, the model only takes its
time (native/simulator). Counterpart: `streams.py`, fewer requests on a real model, whose figures calibrate
this one. Not a test: it judges nothing.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.promises import measure_promises, promises_table
from bench.simulator import SimulationError, Simulator
from build_tools.workspace import Workspace

MODES = ("latency", "balanced", "throughput")
SLOTS = 8
SATURATING = 300
"""Requests that come all at once, to see the most that a mode can do."""
SYSTEM_PROMPT, INSTRUCTION = (1, 120), (2, 150)
"""Groups of tokens that many prompts begin with, see native/simulator/scenario.h."""
ANSWER = 0
FIRST_OWN_GROUP = 10

Arrival = dict[str, Any]


def make_load(count: int, seed: int, pressure: float = 1.0) -> list[Arrival]:
    """Requests as a page with a background task sends them, in order of arrival.

    Two in five are turns of conversations, which build on one another (Poisson, each with pauses for
    reading), as many classify a text in the background (priority -1, 3 tokens), and one in a hundred brings a
    long document. `pressure` 1 keeps the default machine busy for about three quarters of the time.
    """
    chance = random.Random(seed)
    group = iter(range(FIRST_OWN_GROUP, sys.maxsize))
    seconds = count / (1.4 * pressure)
    arrivals: list[Arrival] = []
    while len(arrivals) < count * 0.495:
        arrivals += _conversation(chance, chance.uniform(0, seconds) * 1000, next(group), group)
    while len(arrivals) < count * 0.99:
        prompt = [INSTRUCTION, (next(group), chance.randint(30, 90))]
        arrivals.append(_arrival("background", chance.uniform(0, seconds) * 1000, prompt, 3, priority=-1))
    while len(arrivals) < count:
        prompt = [(next(group), chance.randint(1500, 3000))]
        at_ms = chance.uniform(0, seconds) * 1000
        arrivals.append(_arrival("document", at_ms, prompt, chance.randint(50, 150)))
    arrivals.sort(key=lambda arrival: float(arrival["atMs"]))
    return [{"id": place + 1, **arrival} for place, arrival in enumerate(arrivals)]


def _conversation(chance: random.Random, at_ms: float, own: int, group: Any) -> list[Arrival]:
    turns: list[Arrival] = []
    prompt: list[tuple[int, int]] = [SYSTEM_PROMPT]
    for _ in range(chance.randint(1, 6)):
        prompt = [*prompt, (next(group), chance.randint(10, 60))]
        output = chance.randint(20, 120)
        turns.append(_arrival("chat", at_ms, prompt, output, contextKey=f"chat-{own}"))
        # The answer's last token is the model's own too, but has not been computed.
        prompt = [*prompt, (ANSWER, output)]
        at_ms += output * 40 + chance.expovariate(1 / 8000)
    return turns


def _arrival(
    kind: str, at_ms: float, prompt: Sequence[tuple[int, int]], output: int, **more: object
) -> Arrival:
    return {"kind": kind, "atMs": at_ms, "prompt": prompt, "output": output, **more}


def measure(
    simulator: Simulator, load: Sequence[Arrival], cost: Mapping[str, float], slots: int = SLOTS
) -> dict[str, Any]:
    """Runs the load in every mode.

    Returns `{requests, slots, modes: {mode: {tokensPerSecond, busy, kinds: {kind: {requests, itlMs, ttftMs,
    queueMs: {p50, p95}}}, saturated: {promptTokensPerSecond, tokensPerSecond}}}, promises}`.
    """
    kinds = {arrival["id"]: arrival["kind"] for arrival in load}
    arrivals = [{name: value for name, value in arrival.items() if name != "kind"} for arrival in load]
    modes = {}
    for mode in MODES:
        scenario = {
            "slots": slots,
            "schedule": mode,
            "queueLimit": 100_000,
            "arrivals": arrivals,
            "cost": dict(cost),
        }
        at_once = [{**arrival, "atMs": 0} for arrival in arrivals[:SATURATING]]
        modes[mode] = {
            **_summary(simulator.run(scenario), kinds),
            "saturated": _rates(simulator.run({**scenario, "arrivals": at_once})),
        }
    promises = measure_promises(simulator, cost, MODES)
    return {"requests": len(load), "slots": slots, "modes": modes, "promises": promises}


def _summary(outcome: Mapping[str, Any], kinds: Mapping[int, str]) -> dict[str, Any]:
    requests = outcome["requests"]
    seconds = max(request["endedMs"] for request in requests) / 1000
    tokens = sum(len(request["tokenMs"]) for request in requests)
    by_kind: dict[str, list[Mapping[str, Any]]] = {}
    for request in requests:
        by_kind.setdefault(kinds[request["id"]], []).append(request)
    return {
        "tokensPerSecond": tokens / seconds,
        "busy": outcome["metrics"]["busyMs"] / 1000 / seconds,
        "cachedTokens": outcome["metrics"]["cachedTokens"],
        "kinds": {kind: _of_kind(by_kind[kind]) for kind in sorted(by_kind)},
    }


def _rates(outcome: Mapping[str, Any]) -> dict[str, float]:
    metrics = outcome["metrics"]
    seconds = metrics["busyMs"] / 1000
    return {
        "promptTokensPerSecond": metrics["prefillTokens"] / seconds,
        "tokensPerSecond": sum(len(request["tokenMs"]) for request in outcome["requests"]) / seconds,
    }


def _of_kind(requests: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    done = [request for request in requests if request["tokenMs"]]
    return {
        "requests": len(requests),
        "itlMs": percentiles([gap for request in done for gap in intervals(request)]),
        "ttftMs": percentiles([request["tokenMs"][0] - request["submittedMs"] for request in done]),
        "queueMs": percentiles([request["admittedMs"] - request["submittedMs"] for request in done]),
    }


def intervals(request: Mapping[str, Any]) -> list[float]:
    """Milliseconds between the successive tokens of a request."""
    times = request["tokenMs"]
    return [later - earlier for earlier, later in pairwise(times)]


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """The median and the 95th percentile; zeros for nothing."""
    ordered = sorted(values) or [0.0]
    return {"p50": ordered[len(ordered) // 2], "p95": ordered[len(ordered) * 95 // 100]}


def calibrated(figures: Mapping[str, Any]) -> dict[str, float]:
    """A cost model from what `bench streams --json` has measured on a real model.

    Fits a fixed part and a part per stream to the passes of 1, 2, 4, … streams (least squares); the part per
    stream is divided by the output layer's share of the model, the part per prompt token comes from the
    prefill rate alone.
    """
    points = [
        (int(streams), 1000 * int(streams) / rate) for streams, rate in figures["tokensPerSecond"].items()
    ]
    mean_n = sum(n for n, _ in points) / len(points)
    mean_ms = sum(ms for _, ms in points) / len(points)
    spread = sum((n - mean_n) ** 2 for n, _ in points)
    slope = sum((n - mean_n) * (ms - mean_ms) for n, ms in points) / spread
    logits = slope * float(figures["outputLayerShare"])
    return {
        "fixedMs": max(mean_ms - slope * mean_n, 0.0),
        "decodeMs": slope - logits,
        "logitsMs": logits,
        "prefillMs": 1000 / float(figures["prefillTokensPerSecond"]),
        "attentionMs": 0.0,  # in what has been measured already
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="bench scheduler", description="Schedule modes, simulated.")
    parser.add_argument("--requests", type=int, default=3000, help="arrivals (default: 3000)")
    parser.add_argument("--pressure", type=float, default=1.0, help="arrivals per time (default: 1)")
    parser.add_argument("--slots", type=int, default=SLOTS, help=f"requests side by side (default: {SLOTS})")
    parser.add_argument("--seed", type=int, default=1, help="of the load (default: 1)")
    parser.add_argument("--noise", type=float, default=0.1, help="deviation of a pass (default: 0.1)")
    parser.add_argument("--calibrate", type=Path, help="figures of `bench streams --json` to cost passes by")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parsed = parser.parse_args(arguments)
    began = time.monotonic()
    cost = calibrated(json.loads(parsed.calibrate.read_text())) if parsed.calibrate else {}
    load = make_load(parsed.requests, parsed.seed, parsed.pressure)
    try:
        with Simulator(Workspace.default().native_simulator) as simulator:
            figures = measure(simulator, load, {**cost, "noise": parsed.noise}, parsed.slots)
    except (SimulationError, FileNotFoundError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print(json.dumps(figures, indent=2) if parsed.json else table(figures))
    print(f"{time.monotonic() - began:.1f} s", file=sys.stderr)
    return 0


def table(figures: Mapping[str, Any]) -> str:
    """The figures of `measure` for people."""
    columns = [
        (title, name, part)
        for title, name in (("ITL", "itlMs"), ("TTFT", "ttftMs"), ("queue", "queueMs"))
        for part in ("p50", "p95")
    ]
    head = "".join(f"{title + ' ' + part:>12}" for title, _, part in columns)
    lines = [
        f"{figures['requests']} requests on {figures['slots']} slots, simulated; milliseconds",
        f"{'mode':<12}{'requests':<18}{head}",
    ]
    for mode, result in figures["modes"].items():
        for kind, values in result["kinds"].items():
            cells = "".join(f"{values[name][part]:>12.1f}" for _, name, part in columns)
            lines.append(f"{mode:<12}{values['requests']:>5} {kind:<12}{cells}")
        most, prompts = (result["saturated"][name] for name in ("tokensPerSecond", "promptTokensPerSecond"))
        lines.append(
            f"{'':<12}{result['tokensPerSecond']:.1f} tokens/s, busy {result['busy']:.0%} of the time; "
            f"at most {most:.1f} tokens/s with {prompts:.1f} of prompts"
        )
    return "\n".join([*lines, "", promises_table(figures["promises"])])
