"""Streams that run side by side on a real model: alone, and beside a long prompt, in every schedule mode.

Run by `python3 -m build_tools bench streams`. Counterpart: `scheduler.py`, thousands of requests on a
simulated machine, which `--json` of this one calibrates. Not a test: it judges nothing.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.command import log, report
from bench.output_layer import output_layer_share
from bench.scheduler import MODES, percentiles
from build_tools.sources import demo_model_path
from build_tools.workspace import Workspace
from headrace import engine_thread
from headrace.native import Engine

CONTEXT = 4096
STREAMS = (1, 2, 4, 8)
SMALL_BATCH = 8
PREFILLED = 512
"""Prompt tokens by which prefill is measured."""
WARM_UP = 8
"""Tokens of each stream that come before anything is measured."""

Log = Callable[[str], None]


@dataclass
class Stream:
    """When the tokens of one stream came, in seconds. One that ends is begun again."""

    times: list[float] = field(default_factory=list)
    begun: int = 0

    def gaps(self, begins: float, ends: float) -> list[float]:
        """Milliseconds before each token that came in this span, since the one before it."""
        return [(later - earlier) * 1000 for earlier, later in pairwise(self.times) if begins < later <= ends]


@dataclass(frozen=True)
class Plan:
    """What to measure. window: tokens of each stream in each span without the prompt."""

    model: Path
    threads: int
    repeats: int
    window: int
    prompt_tokens: int
    streams: int


async def measure(plan: Plan, log: Log) -> dict[str, Any]:
    """Everything, `repeats` times in turn; medians over the rounds.

    Returns `{model, threads, outputLayerShare, prefillTokensPerSecond, prefillInEights, tokensPerSecond:
    {streams: …}, modes: {mode: {beforeP50Ms, …}}}`. A mode's times are medians over its streams.
    """
    rates: dict[str, list[float]] = {}
    modes: dict[str, list[dict[str, float]]] = {mode: [] for mode in MODES}
    per_item = await _tokens_per_item(plan)
    prompt = _list_of(round(plan.prompt_tokens / per_item))
    for turn in range(plan.repeats):
        for batch in (PREFILLED, SMALL_BATCH):
            rates.setdefault(f"prefill {batch}", []).append(await _prefill_rate(plan, batch, per_item))
        for count in STREAMS:
            rates.setdefault(str(count), []).append(await _throughput(plan, count))
        log(f"round {turn + 1} of {plan.repeats}: rates")
        for mode in MODES:
            modes[mode].append(await _beside_a_prompt(plan, mode, prompt))
            log(f"round {turn + 1} of {plan.repeats}: {mode}")
    median = {name: statistics.median(values) for name, values in rates.items()}
    return {
        "model": plan.model.name,
        "threads": plan.threads,
        "streams": plan.streams,
        "outputLayerShare": output_layer_share(plan.model),
        "prefillTokensPerSecond": median[f"prefill {PREFILLED}"],
        "prefillInEights": median[f"prefill {SMALL_BATCH}"],
        "tokensPerSecond": {str(count): median[str(count)] for count in STREAMS},
        "modes": {
            mode: {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
            for mode, rounds in modes.items()
        },
    }


async def _prefill_rate(plan: Plan, batch: int, per_item: float) -> float:
    async with _engine(plan, slots=1, batch_size=batch) as engine:
        prompt = _list_of(round(PREFILLED / per_item))
        result = await engine.query(prompt, {"max_tokens": 1, "temperature": 0})
        return float(result.stats["prefill_tokens_per_second"])


async def _throughput(plan: Plan, count: int) -> float:
    async with _engine(plan, slots=count) as engine, _running(engine, count) as streams:
        begins = await _after(streams, WARM_UP)
        ends = await _after(streams, plan.window)
        tokens = sum(begins < moment <= ends for stream in streams for moment in stream.times)
        return tokens / (ends - begins)


async def _beside_a_prompt(plan: Plan, mode: str, prompt: str) -> dict[str, float]:
    options = {"slots": plan.streams + 1, "schedule": mode}
    async with _engine(plan, **options) as engine, _running(engine, plan.streams) as streams:
        await _after(streams, WARM_UP)
        begins = time.perf_counter()
        submitted = await _after(streams, plan.window)
        result = await engine.query(prompt, {"max_tokens": 1, "temperature": 0})
        seconds = time.perf_counter() - submitted
        answered = await _after(streams, 1)  # the pass that ended the prompt delayed these, too
        ends = await _after(streams, plan.window)
        before = [percentiles(stream.gaps(begins, submitted)) for stream in streams]
        beside = [percentiles(stream.gaps(submitted, answered)) for stream in streams]
        after = [percentiles(stream.gaps(answered, ends)) for stream in streams]
        ratios = {
            part: [b[part] / a[part] for a, b in zip(before, beside, strict=True) if a[part] > 0]
            for part in ("p50", "p95")
        }
        return {
            "beforeP50Ms": statistics.median(one["p50"] for one in before),
            "beforeP95Ms": statistics.median(one["p95"] for one in before),
            "besideP50Ms": statistics.median(one["p50"] for one in beside),
            "besideP95Ms": statistics.median(one["p95"] for one in beside),
            "afterP50Ms": statistics.median(one["p50"] for one in after),
            "ratioP50": statistics.median(ratios["p50"]),
            "ratioP95": statistics.median(ratios["p95"]),
            "worstRatioP50": max(ratios["p50"]),
            "worstRatioP95": max(ratios["p95"]),
            "promptTokens": float(result.usage.input_tokens),
            "promptSeconds": seconds,
            "promptTokensPerSecond": result.usage.input_tokens / seconds,
            "tokensBeside": float(sum(len(stream.gaps(submitted, answered)) for stream in streams)),
            "begunAgain": float(sum(stream.begun for stream in streams) - plan.streams),
        }


@asynccontextmanager
async def _engine(plan: Plan, **options: object) -> AsyncIterator[Engine]:
    settings = {"threads": plan.threads, "context_size": CONTEXT, "prefix_cache_bytes": 0, **options}
    async with await Engine.open(plan.model, settings) as engine:
        yield engine


@asynccontextmanager
async def _running(engine: Engine, count: int) -> AsyncIterator[list[Stream]]:
    streams = [Stream() for _ in range(count)]
    tasks = [asyncio.create_task(_follow(engine, number, stream)) for number, stream in enumerate(streams)]
    try:
        yield streams
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        for error in ended:
            if isinstance(error, Exception):
                raise error


async def _follow(engine: Engine, number: int, stream: Stream) -> None:
    while True:
        # About 50 tokens, another beginning for each, and nothing that a model would end soon.
        first = 100 * (number + 1) + stream.begun
        prompt = "Counting up: " + ", ".join(str(first + place) for place in range(9)) + ","
        stream.begun += 1
        async for batch in engine.query(prompt, {"max_tokens": CONTEXT, "temperature": 0}):
            stream.times += [time.perf_counter()] * len(batch.token_ids)


async def _after(streams: Sequence[Stream], tokens: int) -> float:
    """Waits until each stream has so many tokens more; gives the moment."""
    wanted = [len(stream.times) + tokens for stream in streams]
    while any(len(stream.times) < count for stream, count in zip(streams, wanted, strict=True)):
        await asyncio.sleep(0.005)
    return time.perf_counter()


async def _tokens_per_item(plan: Plan) -> float:
    """How many tokens one sentence of the long prompt is, so that it can be made to measure."""
    async with _engine(plan, slots=1) as engine:
        run = engine.query(_list_of(100), {"max_tokens": 1})
        await run.accepted()
        return run.prompt_tokens / 100


def _list_of(items: int) -> str:
    return " ".join(
        f"Item {place:03} of the list weighs {place * 7 % 90 + 10} grams." for place in range(items)
    )


@contextmanager
def _one_pass_per_tick() -> Iterator[None]:
    """Several passes in one tick would arrive as one batch, and their times with them."""
    budget = engine_thread.TICK_BUDGET_MS
    engine_thread.TICK_BUDGET_MS = 0
    try:
        yield
    finally:
        engine_thread.TICK_BUDGET_MS = budget


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="bench streams", description="Streams beside a prompt, natively.")
    model = demo_model_path(Workspace.default())
    parser.add_argument("--model", type=Path, default=model, help="a GGUF file (default: the demo model)")
    parser.add_argument("--threads", type=int, default=2, help="(default: 2)")
    parser.add_argument("--repeats", type=int, default=3, help="rounds, in turn (default: 3)")
    parser.add_argument("--window", type=int, default=64, help="tokens per stream and span (default: 64)")
    parser.add_argument("--prompt", type=int, default=2000, help="tokens of the long prompt (default: 2000)")
    parser.add_argument("--streams", type=int, default=8, help="beside the prompt (default: 8)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parsed = parser.parse_args(arguments)
    plan = Plan(
        parsed.model,
        parsed.threads,
        max(parsed.repeats, 1),
        max(parsed.window, 4),
        parsed.prompt,
        parsed.streams,
    )

    def measured() -> dict[str, Any]:
        with _one_pass_per_tick():
            return asyncio.run(measure(plan, log))

    return report(measured, table, as_json=parsed.json)


def table(figures: Mapping[str, Any]) -> str:
    """The figures of `measure` for people."""
    rates = figures["tokensPerSecond"]
    share, eights = figures["outputLayerShare"], figures["prefillInEights"]
    whole = figures["prefillTokensPerSecond"]
    widest = str(STREAMS[-1])
    lines = [
        f"{figures['model']}, {figures['threads']} threads; tokens/s of all streams together",
        "".join(f"{count + ' at once':>12}" for count in rates),
        "".join(f"{rate:>12.1f}" for rate in rates.values()),
        "",
        f"prefill: {whole:.1f} tokens/s; in passes of {SMALL_BATCH}: {eights:.1f}",
        f"A pass of {widest} streams computes {widest} rows of logits too, a prompt's none but at its end.",
        f"The output layer is {share:.0%} of the model's multiplications: {eights:.1f} * (1 - {share:.2f}) = "
        f"{eights * (1 - share):.1f} tokens/s",
        f"are to be expected of {widest} streams; {rates[widest]:.1f} were measured.",
        "",
        f"{figures['streams']} streams beside a prompt; inter-token times in ms, medians over the streams",
        f"{'mode':<12}{'before p50':>11}{'p95':>8}{'beside p50':>12}{'p95':>8}{'ratio p50':>11}{'p95':>7}"
        f"{'worst p50':>11}{'p95':>7}{'after p50':>11}{'prompt':>9}{'tokens/s':>10}",
    ]
    for mode, one in figures["modes"].items():
        lines.append(
            f"{mode:<12}{one['beforeP50Ms']:>11.1f}{one['beforeP95Ms']:>8.1f}{one['besideP50Ms']:>12.1f}"
            f"{one['besideP95Ms']:>8.1f}{one['ratioP50']:>11.2f}{one['ratioP95']:>7.2f}"
            f"{one['worstRatioP50']:>11.2f}{one['worstRatioP95']:>7.2f}{one['afterP50Ms']:>11.1f}"
            f"{one['promptSeconds']:>7.1f} s{one['promptTokensPerSecond']:>10.1f}"
        )
    return "\n".join(lines)
