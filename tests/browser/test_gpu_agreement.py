"""Whole models on the GPU and on the CPU: the same texts, the same likeliest tokens, the same vectors.

Counterparts: `bench/gpu_agreement.py`, which asks and compares; `bench/gpu.py`, for any other model. The
limits are those of the project: equal greedy texts of 32 tokens, or, where rounding to 16 bits parts them,
the same likeliest token in 97 % of all places.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from bench.gpu_agreement import Questions, beginnings, compare, divergence
from tests.browser.conftest import TabsIn

pytestmark = pytest.mark.browser

KNOWN = ("Hello!", "What is the capital of France?", "List three colors.", "Tell me a story.")
SENTENCES = (
    "The cat sits on the warm windowsill.",
    "A kitten is resting by the sunny window.",
    "WebAssembly lets browsers run compiled code at near-native speed.",
    "Die Hauptstadt von Frankreich ist Paris.",
    "Quantum computers use qubits instead of classical bits.",
)

Agree = Callable[[Path, Questions], Mapping[str, Any]]


@pytest.fixture
def agree(f16_browser: Browser, tabs_in: TabsIn) -> Agree:
    """Asks both backends, and compares; also what the GPU's run said of itself, as `gpu`."""

    def agree(model: Path, questions: Questions) -> Mapping[str, Any]:
        with tabs_in(f16_browser, model_files={"tiny.gguf": model}) as open_tab:
            tab = open_tab()
            address = tab.run("() => new URL('/models/tiny.gguf', location.href).href")
            runs = questions.ask(tab.run, address)
        assert [runs[name]["backend"] for name in ("cpu", "gpu")] == ["cpu", "webgpu"]
        return {**compare(runs["cpu"], runs["gpu"]), **runs}

    return agree


def shared_model(repo_root: Path, name: str) -> Path:
    path = repo_root.parent / "shared" / "models" / name
    if not path.is_file():
        pytest.skip(f"{path} is not there: the model is not part of the project")
    return path


def test_the_tiny_mixture_of_experts(agree: Agree, tiny_model: Path) -> None:
    """Q4_K, Q5_K, Q6_K and Q8_0, routed."""
    # The last one it does not know: only calls are counted with it.
    outcome = agree(tiny_model, Questions(chats=KNOWN, queries=["Once upon a time"]))
    assert all(outcome["sameTexts"][: len(KNOWN)])
    per_token = outcome["gpu"]["perToken"]
    # By itself ggml makes 9 round trips here, and a write for each dispatch.
    assert per_token["waits"] <= 2
    assert per_token["writes"] <= 10


@pytest.mark.parametrize("quantised", ["q4_0", "mxfp4_moe"])
def test_other_quantisations_of_it(agree: Agree, repo_root: Path, quantised: str) -> None:
    model = shared_model(repo_root, f"moe-trained-{quantised}.gguf")
    outcome = agree(model, Questions(chats=KNOWN))
    assert all(outcome["sameTexts"])


def test_smollm2(agree: Agree, demo_model: Path) -> None:
    outcome = agree(demo_model, Questions(queries=["1, 2, 3, 4, 5, 6,"], forced=48))
    assert outcome["sameTexts"] == [True]
    # `bench gpu` looks at 256 places, where one near tie is not 2 %; here none is lost that is no near tie.
    assert outcome["clearPositions"] > 30
    assert outcome["clearTop1"] == 1
    assert outcome["klMean"] < 0.01


def test_minilm_s_vectors(agree: Agree, minilm_f16: Path) -> None:
    """Case G12."""
    outcome = agree(minilm_f16, Questions(sentences=SENTENCES))
    assert min(outcome["cosines"]) > 0.999


def test_beginnings_grow_by_a_word() -> None:
    assert beginnings("One, two.", 3) == ["One", "One,", "One, two"]
    with pytest.raises(ValueError, match="4 beginnings, not 5"):
        beginnings("One, two.", 5)


@pytest.mark.parametrize(
    ("reference", "other", "least", "most"),
    [
        ([[1, -0.1], [2, -3.0]], [[1, -0.1], [2, -3.0]], 0, 1e-12),
        ([[1, -0.1], [2, -3.0]], [[2, -0.1], [1, -3.0]], 1, 10),
        ([[1, -0.1]], [[2, -0.1], [3, -4.0]], 1, 10),
    ],
)
def test_divergence_is_nothing_between_equals_only(
    reference: Sequence[Sequence[float]], other: Sequence[Sequence[float]], least: float, most: float
) -> None:
    assert least <= divergence(reference, other) <= most
