"""The same tokens at temperature 0 from the native engine and from both artifacts in a page.

The expected ids are in tests/data/golden.json, from a build that is not ours. Not for near ties: where
two tokens are close, engines that round differently may rightly part.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from headrace.headless import Artifact, HeadlessPage, headless_page
from headrace.native import Engine
from headrace.server import create_app

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "golden.json").read_text(encoding="utf-8")
)["cases"]


def cases_of(model: str) -> list[dict[str, Any]]:
    return [case for case in CASES if case["model"] == model]


def options_of(case: Mapping[str, Any]) -> dict[str, object]:
    ended = case["finishReason"] == "stop"
    return {"temperature": 0, "max_tokens": len(case["tokenIds"]) + (8 if ended else 0)}


def assert_golden(record: Mapping[str, Any], case: Mapping[str, Any]) -> None:
    assert record["tokenIds"] == case["tokenIds"], case["input"]
    assert record["text"] == case["text"]
    assert record["finishReason"] == case["finishReason"]
    assert record["usage"]["inputTokens"] == case["promptTokens"]
    assert record["usage"]["outputTokens"] == len(case["tokenIds"])


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("model", ["tiny", "demo"])
def test_native(model_path: Path, library_path: Path, model: str, threads: int) -> None:
    with Engine(model_path, {"threads": threads}, library=library_path) as engine:
        for case in cases_of(model):
            if case["operation"] == "query":
                run = engine.query(case["input"], options_of(case))
            else:
                run = engine.chat([{"role": "user", "content": case["input"]}], options_of(case))
            assert_golden(run.result().record, case)


@pytest.mark.browser
@pytest.mark.parametrize(("artifact", "threads"), [("st", 1), ("mt", 1), ("mt", 2)])
@pytest.mark.parametrize("model", ["tiny", "demo"])
def test_page(
    browser: Browser,
    model_path: Path,
    repo_root: Path,
    artifacts_dir: Path,
    model: str,
    artifact: Artifact,
    threads: int,
) -> None:
    app = create_app(
        web_dir=repo_root / "web", artifacts_dir=artifacts_dir, models={"model.gguf": model_path}
    )
    with headless_page(browser, app, model="model.gguf", threads=threads, artifact=artifact) as page:
        for case in cases_of(model):
            record = answer(page, case)
            assert_golden(record, case)
            assert (record["stats"]["artifact"], record["stats"]["threads"]) == (artifact, threads)


def answer(page: HeadlessPage, case: Mapping[str, Any]) -> dict[str, Any]:
    shown: list[str] = []
    record = page.ask(case["operation"], case["input"], options_of(case), shown.append)
    assert "".join(shown) == record["text"]
    return record
