"""Prefill and decode speed of one model file, natively and in a page, one thread each.

Run by `python3 -m build_tools bench`. Rounds alternate between the engines, so that what else the
machine does meets all of them. Not a test: it judges nothing.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser
from starlette.applications import Starlette

from bench.command import page_command
from headrace.headless import Artifact, headless_page, launch
from headrace.native import Engine
from headrace.server import create_app

PROMPT = "Counting up: " + ", ".join(str(number) for number in range(1, 41)) + ","
OPTIONS: Mapping[str, object] = {"max_tokens": 48, "temperature": 0}
THREADS = 1
RATES = {"prefill": "prefillTokensPerSecond", "decode": "decodeTokensPerSecond"}

# One measurement: asks the engine once and returns the result record.
Ask = Callable[[], dict[str, Any]]


def measure(
    model: Path,
    *,
    chromium: Path,
    web_dir: Path,
    artifacts_dir: Path,
    repeats: int,
    log: Callable[[str], None],
) -> dict[str, Any]:
    """Asks native, st and mt in turn, `repeats` times after one warm-up each.

    Returns `{model, promptTokens, outputTokens, engines: {name: {prefill, decode: {best, median,
    ofNative}}}}`; rates in tokens per second, `ofNative` is the ratio of the medians.
    """
    app = create_app(web_dir=web_dir, artifacts_dir=artifacts_dir, models={model.name: model})
    with (
        launch(chromium) as browser,
        _native(model) as native,
        _page(browser, app, model, "st") as st,
        _page(browser, app, model, "mt") as mt,
    ):
        engines: dict[str, Ask] = {"native": native, "st": st, "mt": mt}
        records: dict[str, list[dict[str, Any]]] = {name: [] for name in engines}
        for turn in range(repeats + 1):
            for name, ask in engines.items():
                record = ask()
                log(f"{'warm-up' if turn == 0 else f'round {turn} of {repeats}'}: {name}")
                if turn > 0:
                    records[name].append(record)
    return {"model": model.name, **_workload(records), "engines": _summary(records)}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    return page_command("bench", "Speed of native, st and mt, one thread each.", measure, table, arguments)


def table(figures: Mapping[str, Any]) -> str:
    """The figures of `measure` for people."""
    columns = [(phase, kind) for phase in RATES for kind in ("best", "median")]
    lines = [
        f"{figures['model']}, one thread: prompt {figures['promptTokens']} tokens, "
        f"decoded {figures['outputTokens']}",
        f"{'tokens/s':<10}" + "".join(f"{phase + ' ' + kind:>18}" for phase, kind in columns),
    ]
    for name, rates in figures["engines"].items():
        cells = "".join(f"{rates[phase][kind]:>18.1f}" for phase, kind in columns)
        ratios = ", ".join(f"{phase} {rates[phase]['ofNative']:.2f}" for phase in RATES)
        lines.append(f"{name:<10}{cells}" + ("" if name == "native" else f"   of native: {ratios}"))
    return "\n".join(lines)


@contextmanager
def _native(model: Path) -> Iterator[Ask]:
    with Engine(model, {"threads": THREADS}) as engine:
        yield lambda: dict(engine.query(PROMPT, OPTIONS).result().record)


@contextmanager
def _page(browser: Browser, app: Starlette, model: Path, artifact: Artifact) -> Iterator[Ask]:
    with headless_page(browser, app, model=model.name, threads=THREADS, artifact=artifact) as page:
        yield lambda: page.ask("query", PROMPT, OPTIONS, lambda _text: None)


def _workload(records: Mapping[str, list[dict[str, Any]]]) -> dict[str, int]:
    usages = [record["usage"] for engine in records.values() for record in engine]
    shortest = min(usages, key=lambda usage: int(usage["outputTokens"]))
    return {"promptTokens": shortest["inputTokens"], "outputTokens": shortest["outputTokens"]}


def _summary(records: Mapping[str, list[dict[str, Any]]]) -> dict[str, Any]:
    def rates(name: str, phase: str) -> list[float]:
        return [float(record["stats"][RATES[phase]]) for record in records[name]]

    return {
        name: {
            phase: {
                "best": max(rates(name, phase)),
                "median": statistics.median(rates(name, phase)),
                "ofNative": statistics.median(rates(name, phase)) / statistics.median(rates("native", phase)),
            }
            for phase in RATES
        }
        for name in records
    }
