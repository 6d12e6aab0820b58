"""What test-backend-ops's lines mean, and the table that comes of them.

Counterparts: `test_backend_cases.py`, the choice of cases; `tests/browser/test_backend_ops.py`, a run.
"""

from pathlib import Path

import pytest

from bench.backend_cases import TYPES, Case
from bench.backend_program import parse_result
from bench.backend_table import Outcome, Result, Results, Versions, document, summary

VERSIONS = Versions(ggml="1", chromium="2", mesa="Mesa 3", program="4")


def product(weights: str, columns: int, *, rows: int = 16, supported: bool = True) -> Case:
    return Case("MUL_MAT", f"type_a={weights},type_b=f32,m={rows},n={columns},k=256,bs=[1,1]", supported)


class TestResults:
    @pytest.mark.parametrize(
        ("line", "outcome", "error"),
        [
            ("  ADD(type=f32,ne=[1,2]): \x1b[1;32mOK\x1b[0m", "passed", ""),
            (
                "[ADD] ERR = 0.5 > 0.1   ADD(type=f32,ne=[1,2]): \x1b[1;31mFAIL\x1b[0m",
                "failed",
                "[ADD] ERR = 0.5 > 0.1",
            ),
            (
                "[ADD] NaN at index 3 (WebGPU=nan CPU=1.0)   ADD(type=f32,ne=[1,2]): \x1b[1;31mFAIL\x1b[0m",
                "failed",
                "[ADD] NaN at index 3 (WebGPU=nan CPU=1.0)",
            ),
            ("  ADD(type=f32,ne=[1,2]): not supported [WebGPU] ", "unsupported", ""),
        ],
    )
    def test_lines_of_cases(self, line: str, outcome: Outcome, error: str) -> None:
        result = parse_result(line)
        assert result == Result(Case("ADD", "type=f32,ne=[1,2]", outcome != "unsupported"), outcome, error)

    @pytest.mark.parametrize("line", ["  3/3 tests passed", "  Backend WebGPU: OK", "", "Failing tests:"])
    def test_other_lines(self, line: str) -> None:
        assert parse_result(line) is None

    def test_they_outlive_a_run(self, tmp_path: Path) -> None:
        path = tmp_path / "x" / "results.jsonl"
        first = Results.open(path, VERSIONS)
        result = Result(product("q4_K", 1), "failed", "much")
        first.add(result)
        assert Results.open(path, VERSIONS).all == [result]

    def test_those_of_another_build_are_dropped(self, tmp_path: Path) -> None:
        path = tmp_path / "results.jsonl"
        Results.open(path, VERSIONS).add(Result(product("q4_K", 1), "passed"))
        other = Versions(ggml="1", chromium="2", mesa="Mesa 3", program="5")
        assert Results.open(path, other).all == []

    def test_a_case_that_comes_twice_counts_once_unless_it_differs(self, tmp_path: Path) -> None:
        results = Results.open(tmp_path / "results.jsonl", VERSIONS)
        for outcome in ("passed", "passed", "failed"):
            results.add(Result(product("q4_K", 1), outcome))
        assert [result.outcome for result in results.all] == ["passed", "failed"]
        assert len(Results.open(tmp_path / "results.jsonl", VERSIONS).all) == 2

    def test_some_are_forgotten(self, tmp_path: Path) -> None:
        path = tmp_path / "results.jsonl"
        results = Results.open(path, VERSIONS)
        for columns in (1, 2):
            results.add(Result(product("q4_K", columns), "passed"))
        results.forget(lambda case: case.values["n"] == "1")
        assert [result.case for result in Results.open(path, VERSIONS).all] == [product("q4_K", 2)]


class TestTable:
    def test_every_outcome_shows(self, tmp_path: Path) -> None:
        results = Results.open(tmp_path / "results.jsonl", VERSIONS)
        results.add(Result(product("q4_K", 1), "passed"))
        results.add(Result(product("q4_K", 2), "passed"))
        results.add(Result(product("q4_K", 3, supported=False), "unsupported"))
        results.add(Result(product("q4_0", 1), "failed", "[MUL_MAT] ERR = 1"))
        results.add(Result(product("q4_0", 2), "passed"))
        results.add(Result(product("q8_0", 1, supported=False), "unsupported"))
        whole = [*(result.case for result in results.all), product("f16", 1)]
        text = document(results, whole)
        (row,) = (line for line in text.splitlines() if line.startswith("| MUL_MAT |"))
        cells = dict(zip(TYPES, row.split(" | ")[1:], strict=True))
        assert cells["q4_K"] == "2, cpu 1"
        assert cells["q4_0"] == "**FAILED 1 of 2**"
        assert cells["q8_0"] == "cpu"
        assert cells["f16"] == "?"
        assert cells["q6_K"] == "–"
        assert "3 cases passed, 1 failed, 2 are not supported" in text
        assert "Not run: 1 of the 7 cases chosen" in text
        assert f"- `{product('q4_0', 1).name}`: [MUL_MAT] ERR = 1" in text

    def test_the_summary_names_failures(self) -> None:
        text = summary([Result(product("q4_0", 1), "failed", "[MUL_MAT] ERR = 1")])
        assert text.splitlines() == [
            "0 passed, 1 failed, 0 not supported",
            f"FAILED {product('q4_0', 1).name} [MUL_MAT] ERR = 1",
        ]
