"""Which of test-backend-ops's cases a run takes, and how they are read from its list."""

import pytest

from bench.backend_cases import TYPES, Case, choose, read_cases, size_class


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

    def test_attention_of_minutes_is_left_out(self) -> None:
        cases = [Case("FLASH_ATTN_EXT", f"kv={size},nb=512,type_K=f16,type_V=f16") for size in (1024, 16384)]
        assert choose(cases, {"FLASH_ATTN_EXT": 9}, ["f16"]) == cases[:1]

    def test_other_ops_and_types_are_left_out(self) -> None:
        cases = [
            product("q2_K", 1),
            Case("CONV_2D", "type=f32"),
            Case("MUL_MAT", "type_a=f16,type_b=bf16,n=1"),
            Case("SET_ROWS", "type_src=f32,type_dst=q4_0,type_idx=i64"),
        ]
        assert choose(cases, {"MUL_MAT": 9, "SET_ROWS": 9}, TYPES) == cases[3:]
