"""Which cases of test-backend-ops a run takes, what its lines mean, and the table that comes of them."""

from pathlib import Path

import pytest

from bench.backend_cases import TYPES, Case, choose, read_cases, size_class
from bench.backend_ops import parse_result
from bench.backend_table import Outcome, Result, Results, Versions, document, summary

VERSIONS = Versions(ggml="1", chromium="2", mesa="Mesa 3", program="4")


def product(weights: str, columns: int, *, rows: int = 16, supported: bool = True) -> Case:
    return Case("MUL_MAT", f"type_a={weights},type_b=f32,m={rows},n={columns},k=256,bs=[1,1]", supported)


class TestCases:
    def test_the_list_is_read_by_its_columns(self) -> None:
        lines = [
            "ggml_webgpu: something else",
            '"backend_name","op_name","op_params","test_mode","supported","error_message",',
            '"WebGPU","ADD","type=f32,ne=[1,2]","support","1","",',
            '"WebGPU","CPY","type_src=f32,type_dst=q4_0","support","0","",',
        ]
        assert read_cases(lines) == [
            Case("ADD", "type=f32,ne=[1,2]", True),
            Case("CPY", "type_src=f32,type_dst=q4_0", False),
        ]

    def test_without_a_list_there_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="no list"):
            read_cases(["Testing 2 devices"])

    @pytest.mark.parametrize(
        ("parameters", "expected"),
        [
            ("type_a=q4_K,type_b=f32,m=1", "q4_K"),
            ("type_src=f32,type_dst=q8_0,ne=[1,2]", "q8_0"),
            ("type_src=q8_0,type_dst=f32,ne=[1,2]", "q8_0"),
            ("type_idx=i64,type=f16", "f16"),
            ("ne=[1,2]", "f32"),
        ],
    )
    def test_the_type_that_a_case_is_counted_under(self, parameters: str, expected: str) -> None:
        assert Case("CPY", parameters).type == expected

    def test_values_may_be_lists(self) -> None:
        assert Case("X", "a=1,ne=[1,-2,3],b=x|y").values == {"a": "1", "ne": "[1,-2,3]", "b": "x|y"}

    def test_classes_of_sizes(self) -> None:
        assert [size_class(size) for size in (1, 2, 8, 9, 16, 17, 63, 64)] == [
            *("1", "2–8", "2–8", "9–16", "9–16", "17–63", "17–63", "64+")
        ]


class TestChoice:
    def test_all_classes_of_columns_come_before_repetitions(self) -> None:
        cases = [product("q4_K", columns) for columns in (1, 2, 3, 4, 16, 20, 100, 200)]
        chosen = choose(cases, {"MUL_MAT": 5}, ["q4_K"])
        assert {size_class(int(case.values["n"])) for case in chosen} == {"1", "2–8", "9–16", "17–63", "64+"}

    def test_of_cases_alike_the_smallest_is_taken(self) -> None:
        cases = [product("q4_K", 1, rows=rows) for rows in (4096, 1024, 2048)]
        assert choose(cases, {"MUL_MAT": 1}, ["q4_K"]) == [cases[1]]

    def test_what_is_not_supported_takes_no_place(self) -> None:
        cases = [product("q4_K", 1, supported=False), product("q4_K", 2)]
        assert choose(cases, {"MUL_MAT": 1}, ["q4_K"]) == cases

    def test_other_ops_and_types_are_left_out(self) -> None:
        cases = [
            product("q2_K", 1),
            Case("CONV_2D", "type=f32"),
            Case("MUL_MAT", "type_a=f16,type_b=bf16,n=1"),
            Case("SET_ROWS", "type_src=f32,type_dst=q4_0,type_idx=i64"),
        ]
        assert choose(cases, {"MUL_MAT": 9, "SET_ROWS": 9}, TYPES) == cases[3:]


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
