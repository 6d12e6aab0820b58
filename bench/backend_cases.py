"""Which of test-backend-ops's cases a run of limited time takes: every kind of case that text models need.

Counterparts: `backend_ops.py`, which runs them; `tests/test_backend_cases.py`. Runs nothing.
"""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import combinations_with_replacement, groupby

TYPES = ("f32", "f16", "q4_0", "q4_1", "q5_0", "q8_0", "q4_K", "q5_K", "q6_K", "mxfp4", "iq4_nl")
"""What the project claims to compute on a GPU, as ggml names it."""

INDEX_TYPES = ("i32", "i64")

OPS: Mapping[str, int] = {
    "MUL_MAT": 60,
    "MUL_MAT_ID": 40,
    "GET_ROWS": 12,
    "SET_ROWS": 16,
    "CPY": 20,
    "CONT": 12,
    "DUP": 3,
    "SET": 3,
    "CONCAT": 12,
    "REPEAT": 6,
    "ADD": 30,
    "ADD_ID": 8,
    "SUB": 15,
    "MUL": 30,
    "DIV": 15,
    "SCALE": 4,
    "SQR": 2,
    "SQRT": 2,
    "SIN": 2,
    "COS": 2,
    "LOG": 2,
    "CLAMP": 2,
    "SUM": 2,
    "SUM_ROWS": 6,
    "MEAN": 2,
    "CUMSUM": 6,
    "NORM": 10,
    "RMS_NORM": 20,
    "L2_NORM": 6,
    "GROUP_NORM": 2,
    "ROPE": 80,
    "DIAG_MASK_INF": 2,
    "SOFT_MAX": 60,
    "FLASH_ATTN_EXT": 28,
    "ARGMAX": 3,
    "ARGSORT": 16,
    "TOP_K": 16,
    "PAD": 3,
    "FILL": 2,
    "ARANGE": 1,
    "TRI": 4,
    "DIAG": 1,
    "SOLVE_TRI": 6,
    "SSM_CONV": 10,
    "SSM_SCAN": 10,
    "GATED_DELTA_NET": 16,
    "RWKV_WKV6": 3,
    "RWKV_WKV7": 3,
    "GATED_LINEAR_ATTN": 3,
    "REGLU": 10,
    "GEGLU": 10,
    "SWIGLU": 10,
    "SWIGLU_OAI": 6,
    "GEGLU_ERF": 10,
    "GEGLU_QUICK": 10,
    **dict.fromkeys(
        [
            *("ABS", "SGN", "NEG", "STEP", "TANH", "ELU", "RELU", "SIGMOID", "GELU", "GELU_QUICK", "SILU"),
            *("HARDSWISH", "HARDSIGMOID", "EXP", "EXPM1", "SOFTPLUS", "GELU_ERF", "XIELU"),
            *("FLOOR", "CEIL", "ROUND", "TRUNC"),
        ],
        6,
    ),
}
"""Op, as ggml_op_desc() names it → how many cases of each type a whole run takes at most."""

FUSED: Mapping[str, int] = {
    "RMS_NORM_MUL_ADD": 12,
    "NORM_MUL_ADD": 6,
    "RMS_NORM_MUL_ROPE": 12,
    "ROPE_SET_ROWS": 8,
    "ADD_ADD": 6,
    "ADD_RMS_NORM": 6,
    "SOFTCAP": 2,
    "RELU_SQR": 2,
    "TOPK_MOE": 8,
    "MOE_REDUCE": 6,
    "MUL_MAT_ID_FUSION": 1,
    "MUL_MAT_VEC_FUSION": 6,
    "SSM_CONV_BIAS_SILU": 4,
}
"""Graphs of several ops that a backend may compute at once, in no list: the first so many are run."""

FUSED_BY_TYPE = ("MUL_MAT_ID_FUSION", "MUL_MAT_VEC_FUSION")
"""Of these so many for each type of weights."""


UNSUPPORTED = 3
"""How many cases of an op and type are named that the backend does not compute. They take no time."""

Feature = tuple[str, str]


@dataclass(frozen=True)
class Case:
    """One test. parameters: as printed, such as "type=f16,ne=[1,2,3,4]". supported: by the GPU backend."""

    op: str
    parameters: str
    supported: bool = True

    @property
    def name(self) -> str:
        """What selects this case alone."""
        return f"{self.op}({self.parameters})"

    @cached_property
    def values(self) -> Mapping[str, str]:
        """Parameter → value."""
        return dict(re.findall(r"(\w+)=(\[[^\]]*\]|[^,]*)", self.parameters))

    @cached_property
    def types(self) -> Sequence[str]:
        """The types that it is about, index types apart."""
        found = [value for name, value in self.values.items() if name in TYPE_PARAMETERS]
        return [name for name in found if name not in INDEX_TYPES]

    @property
    def type(self) -> str:
        """The one under which it is counted: of weights, of the cache, of what is copied to or from."""
        values = self.values
        if "type_src" in values and values["type_src"] == "f32":
            return values["type_dst"]
        return self.types[0] if self.types else "f32"

    @cached_property
    def elements(self) -> int:
        """How large its tensors are, roughly."""
        size = 1
        for value in self.values.values():
            for number in re.findall(r"\d+", value) if value.startswith("[") else [value]:
                size *= int(number) if number.isdigit() and int(number) > 0 else 1
        return size


TYPE_PARAMETERS = ("type", "type_a", "type_b", "type_src", "type_dst", "type_K", "type_V", "type_idx")


def read_cases(lines: Iterable[str]) -> list[Case]:
    """The cases in what `test-backend-ops support --output csv` prints."""
    rows = list(csv.reader(io.StringIO("\n".join(lines))))
    columns = ("op_name", "op_params", "supported")
    start = next((at for at, row in enumerate(rows) if set(columns) <= set(row)), None)
    if start is None:
        raise ValueError("there is no list of cases")
    op, parameters, supported = (rows[start].index(name) for name in columns)
    found = [row for row in rows[start + 1 :] if len(row) >= len(rows[start]) - 1]
    return [Case(row[op], row[parameters], row[supported] == "1") for row in found]


def choose(cases: Iterable[Case], ops: Mapping[str, int] = OPS, types: Sequence[str] = TYPES) -> list[Case]:
    """Of each op and type as many cases as `ops` says at most, in their order; also those not supported.

    They are taken so that every pair of values of two parameters comes, as far as the number allows, and of
    cases that show the same the one with the smallest tensors.
    """
    allowed = [case for case in cases if case.op in ops and _is_claimed(case, types)]

    def kind(case: Case) -> tuple[str, str]:
        return case.op, case.type

    chosen: set[Case] = set()
    for (op, _), group in groupby(sorted(allowed, key=kind), key=kind):
        found = list(dict.fromkeys(group))
        chosen.update(_cover([case for case in found if case.supported], ops[op]))
        chosen.update(_cover([case for case in found if not case.supported], UNSUPPORTED))
    return [case for case in dict.fromkeys(allowed) if case in chosen]


def _is_claimed(case: Case, types: Sequence[str]) -> bool:
    return case.type in types and all(name in TYPES for name in case.types) and not _is_too_long(case)


def _is_too_long(case: Case) -> bool:
    """Whether a software adapter and one thread of the CPU would need minutes for its attention."""
    return int(case.values.get("kv", 0)) * int(case.values.get("nb", 0)) >= 2**21


def _cover(cases: Sequence[Case], count: int) -> list[Case]:
    """At most `count`: what shows all pairs, then of the others what shows them again, and so on."""
    left = sorted(cases, key=lambda case: case.elements)
    chosen: list[Case] = []
    while left and len(chosen) < count:
        chosen += _cover_once(left, count - len(chosen))
        left = [case for case in left if case not in chosen]
    return chosen


def _cover_once(cases: Sequence[Case], count: int) -> list[Case]:
    """One after another the case that shows most pairs of values that are new; ends when none are."""
    heap = [(-len(pairs), index, pairs) for index, pairs in enumerate(map(_pairs, cases))]
    heapify(heap)
    seen: set[tuple[Feature, Feature]] = set()
    chosen: list[Case] = []
    while heap and len(chosen) < count:
        _, index, pairs = heappop(heap)
        new = len(pairs - seen)
        # The numbers in the heap are of former rounds: they only ever fall.
        if heap and (-new, index) > heap[0][:2]:
            if new:
                heappush(heap, (-new, index, pairs))
        elif new:
            seen |= pairs
            chosen.append(cases[index])
    return chosen


def _pairs(case: Case) -> set[tuple[Feature, Feature]]:
    exact = {(value, value) for value in case.values.items()}
    return exact.union(combinations_with_replacement(sorted(_features(case)), 2))


def _features(case: Case) -> set[Feature]:
    """What is special about a case: the values of its parameters, of sizes only the class."""
    features: set[Feature] = set()
    for name, value in case.values.items():
        if value.startswith("["):
            sizes = [int(size) for size in re.findall(r"-?\d+", value)]
            features.add((name, f"batched {any(size > 1 for size in sizes[2:])}"))
            if name.startswith("ne") and sizes:
                features.add((name, "odd" if sizes[0] % 4 else "even"))
        elif value.isdigit():
            features.add((name, size_class(int(value))))
        else:
            features.add((name, value))
    return features


def size_class(size: int) -> str:
    """Sizes for which kernels differ: of a product's columns above all."""
    bounds = {1: "1", 8: "2–8", 16: "9–16", 63: "17–63"}
    return next((name for bound, name in bounds.items() if size <= bound), "64+")
