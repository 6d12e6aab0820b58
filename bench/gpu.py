"""What a GPU computes beside the CPU, in a page: whether it says the same, and what a token costs in calls.

Run by `python3 -m build_tools bench gpu`. On a machine without a GPU the adapter is Mesa's, in software:
right as a GPU is, but no measure of speed. Counterpart: `gpu_agreement.py`, the figures. Not a test.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.command import log, report
from bench.gpu_agreement import Questions, compare
from build_tools.chromium import find_chromium
from build_tools.gpu_adapter import GpuChromium, find_f16_chromium
from build_tools.sources import demo_model_path
from build_tools.workspace import Workspace
from headrace.errors import HeadraceError
from headrace.headless import launch
from headrace.server import background_server, create_app

SETUP = """async () => {
  Object.assign(globalThis, await import("/headrace/index.js"));
  globalThis.client = new HeadraceClient();
}"""

CHATS = ("What is 2+2?", "Count from 1 to 10.")
QUERIES = ("1, 2, 3, 4, 5, 6,", "Once upon a time")
SENTENCES = (
    "The cat sits on the warm windowsill.",
    "Quantum computers use qubits instead of classical bits.",
)


def measure(
    model: Path,
    questions: Questions,
    *,
    browser: GpuChromium,
    web_dir: Path,
    artifacts_dir: Path,
    log: Callable[[str], None],
) -> dict[str, Any]:
    """`{model, agreement, cpu, gpu}`: see `compare`, and gpu_agreement.js for the two runs."""
    app = create_app(web_dir=web_dir, artifacts_dir=artifacts_dir, models={model.name: model})
    with (
        background_server(app) as base,
        launch(browser.program, arguments=browser.arguments, environment=browser.environment) as chromium,
    ):
        page = chromium.new_page()
        page.goto(f"{base}/playground/headless.html")
        page.evaluate(SETUP)
        log(f"{model.name}: on the CPU, then on the GPU")
        runs = questions.ask(page.evaluate, f"{base}/models/{model.name}")
    agreement = compare(runs["cpu"], runs["gpu"])
    # Large, and of no use behind the comparison.
    large = {"next": None, "vectors": None, "places": None}
    return {"model": model.name, "agreement": agreement, **{name: run | large for name, run in runs.items()}}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    workspace = Workspace.default()
    parser = argparse.ArgumentParser(prog="bench gpu", description="A model on the GPU and on the CPU.")
    parser.add_argument("--model", type=Path, default=demo_model_path(workspace), help="a GGUF file")
    parser.add_argument("--tokens", type=int, default=256, help="compared places of a text (default: 256)")
    parser.add_argument("--foreign", action="store_true", help="of a text that is not the model's own")
    parser.add_argument("--embed", action="store_true", help="the model gives vectors: compare those")
    parser.add_argument("--no-chat", action="store_true", help="the model has no chat template")
    parser.add_argument(
        "--own-gpu", action="store_true", help="this machine's GPU in place of Mesa's software"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parsed = parser.parse_args(arguments)

    def measured() -> dict[str, Any]:
        if not parsed.model.is_file():
            raise HeadraceError("model_not_found", f"there is no file {parsed.model}")
        questions = (
            Questions(sentences=SENTENCES)
            if parsed.embed
            else Questions(
                chats=() if parsed.no_chat else CHATS,
                queries=QUERIES,
                forced=0 if parsed.foreign else parsed.tokens,
                foreign=parsed.tokens if parsed.foreign else 0,
            )
        )
        return measure(
            parsed.model,
            questions,
            browser=_browser(workspace, own=parsed.own_gpu),
            web_dir=workspace.root / "web",
            artifacts_dir=workspace.artifacts,
            log=log,
        )

    return report(measured, table, as_json=parsed.json)


def table(figures: Mapping[str, Any]) -> str:
    """The figures of `measure` for people."""
    agreement, cpu, gpu = figures["agreement"], figures["cpu"], figures["gpu"]
    lines = [f"{figures['model']}: {'; '.join(gpu['reasons'][:1])}"]
    for same, a, b in zip(agreement["sameTexts"], cpu["texts"], gpu["texts"], strict=True):
        lines.append(f"same   {a!r}" if same else f"CPU    {a!r}\nGPU    {b!r}")
    if agreement["positions"]:
        lines.append(
            f"top-1 agreement {agreement['top1']:.1%} of {agreement['positions']}, "
            f"{agreement['clearTop1']:.1%} of the {agreement['clearPositions']} without a near tie, KL mean "
            f"{agreement['klMean']:.2g}, max {agreement['klMax']:.2g} nats"
        )
    if agreement["cosines"]:
        lines.append("cosines " + " ".join(f"{cosine:.6f}" for cosine in agreement["cosines"]))
    if gpu["perToken"] and cpu["perToken"]:
        lines += calls(gpu["perToken"])
        lines.append(f"a token in {gpu['perToken']['ms']:.0f} ms, on the CPU {cpu['perToken']['ms']:.0f} ms")
    for name, run in (("CPU", cpu), ("GPU", gpu)):
        lines.append(
            f"{name}: ready after {run['loadMs'] / 1000:.1f} s, heap {run['heapBytes'] / 2**20:.0f} MiB"
        )
    return "\n".join(lines)


def calls(token: Mapping[str, float]) -> list[str]:
    """What a token costs in calls, and what it would cost if ggml's calls went through as they are."""
    # Of the submits, those with dispatches write their parameters once; the others copy what is read back.
    batches = token["submits"] - token["maps"]
    rows = {
        "dispatches": (token["dispatches"], token["dispatches"]),
        "queue submits": (token["submits"], token["submits"]),
        "round trips": (token["waits"], token["waits"] + token["sparedWaits"]),
        "of them maps": (token["maps"], token["maps"]),
        "queue writes": (token["writes"], token["writes"] - batches + token["dispatches"]),
        "bind groups made": (token["bindGroups"], token["dispatches"]),
    }
    lines = [f"{'per decoded token':<20}{'Headrace':>10}{'ggml itself':>13}"]
    return lines + [f"{name:<20}{ours:>10.1f}{theirs:>13.1f}" for name, (ours, theirs) in rows.items()]


def _browser(workspace: Workspace, *, own: bool) -> GpuChromium:
    chromium = find_chromium() or Path("chromium")
    if own:
        return GpuChromium(chromium, arguments=("--enable-unsafe-webgpu",))
    found = find_f16_chromium(workspace, chromium)
    if found is None:
        raise HeadraceError(
            "environment_unsupported",
            "the software adapter is not set up (python3 -m build_tools setup); for a GPU of this machine "
            "there is --own-gpu",
        )
    return found
