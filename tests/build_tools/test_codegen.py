"""Declarations made of a known table, and the built engine's own table going through tsc and mypy."""

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

from build_tools.codegen import Declarations, describe, python, reference, snake_case, typescript
from build_tools.errors import StepError
from build_tools.typescript import compiler
from build_tools.workspace import Workspace


def option(name: str, scope: str, kind: str, default: object, **more: object) -> dict[str, object]:
    return {
        "name": name,
        "scope": scope,
        "type": kind,
        "default": default,
        "localOnly": False,
        "help": f"help of {name}",
        **more,
    }


@pytest.fixture
def declarations() -> Declarations:
    return {
        "abiVersion": 1,
        "options": [
            option("contextSize", "load", "integer", 4096, minimum=0, maximum=1048576),
            option("maxTokens", "request", "integer", 512, minimum=1),
            option("temperature", "request", "number", 0.8, minimum=0.0, maximum=5.0),
            option("topK", "request", "integer", 40, localOnly=True, help="a | b */ c"),
            option("stop", "request", "string[]", [], minimum=0.0, maximum=16.0),
            option("echo", "request", "boolean", False, minimum=0.0, maximum=1.0),
            option("bias", "request", "map<number>", {}, minimum=-100.0, maximum=100.0),
            option("grammar", "request", "string", "", minimum=0.0, maximum=9.0, choices=[]),
            option("mode", "load", "string", "a", minimum=0.0, maximum=16.0, choices=["a", "b"]),
        ],
        "errors": [
            {"code": "invalid_option", "help": "an option is wrong"},
            {"code": "internal", "help": "a fault."},
        ],
        "operations": ["query", "chat"],
        "finishReasons": ["stop", "length"],
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [("maxTokens", "max_tokens"), ("seed", "seed"), ("topK", "top_k"), ("contextSize", "context_size")],
)
def test_snake_case(name: str, expected: str) -> None:
    assert snake_case(name) == expected


def test_typescript(declarations: Declarations) -> None:
    text = typescript(declarations)
    assert "export interface LoadOptions {\n  /** Help of contextSize. 0 to 1048576, default 4096. */" in text
    assert "  contextSize?: number;\n" in text
    assert '  mode?: "a" | "b";' in text
    assert "  /** Help of maxTokens. 1 or more, default 512. */\n  maxTokens?: number;" in text
    assert "0 to 16 entries, default []. */\n  stop?: string[];" in text
    assert "/** Help of echo. Default false. */\n  echo?: boolean;" in text
    assert "-100 to 100, default {}. */\n  bias?: Record<string, number>;" in text
    assert '0 to 9 bytes, default "". */\n  grammar?: string;' in text
    assert "/** A | b * / c. Default 40, local endpoints only. */" in text
    assert 'export type Operation = "query" | "chat";' in text
    assert '  /** A fault. */\n  | "internal";\n' in text


def test_python_types_can_be_imported_and_hold_every_name(declarations: Declarations, tmp_path: Path) -> None:
    module = tmp_path / "declarations.py"
    module.write_text(python(declarations))
    names = runpy.run_path(str(module))
    assert names["LoadOptions"].__annotations__ == {"context_size": int, "mode": Literal["a", "b"]}
    assert names["GenerationOptions"].__annotations__ == {
        "max_tokens": int,
        "temperature": float,
        "top_k": int,
        "stop": list[str],
        "echo": bool,
        "bias": dict[str, float],
        "grammar": str,
    }
    assert names["ErrorCode"].__args__ == ("invalid_option", "internal")


def test_reference_has_a_row_per_option_and_code(declarations: Declarations) -> None:
    text = reference(declarations)
    row = "| `temperature` | `temperature` | number | 0 to 5 | `0.8` | no | help of temperature |"
    assert row in text
    assert "| `topK` | `top_k` | integer |  | `40` | yes | a \\| b */ c |" in text
    assert "| `invalid_option` | an option is wrong |" in text


def test_a_type_that_is_not_known_is_an_error(declarations: Declarations) -> None:
    declarations["options"][0]["type"] = "matrix"
    for generate in (typescript, python):
        with pytest.raises(StepError, match="contextSize the type matrix"):
            generate(declarations)


def test_a_library_that_cannot_be_asked_is_an_error(tmp_path: Path) -> None:
    library = tmp_path / "libheadrace.so"
    library.write_text("not a library")
    with pytest.raises(StepError, match="the native library cannot be asked"):
        describe(library)


def test_the_engine_s_own_table_makes_valid_python(library_path: Path, tmp_path: Path) -> None:
    module = tmp_path / "declarations.py"
    module.write_text(python(describe(library_path)))
    mypy = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(module)]
    checked = subprocess.run(mypy, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout


def test_the_engine_s_own_table_makes_valid_typescript(
    library_path: Path, workspace: Workspace, node: Path, tmp_path: Path
) -> None:
    if not compiler(workspace).is_file():
        pytest.skip("tsc is not there: python3 -m build_tools types")
    table = describe(library_path)
    (tmp_path / "declarations.d.ts").write_text(typescript(table))
    first = next(entry for entry in table["options"] if entry["scope"] == "request")
    (tmp_path / "use.ts").write_text(
        'import type { ErrorCode, GenerationOptions } from "./declarations";\n'
        f"export const options: GenerationOptions = {{ {first['name']}: {json.dumps(first['default'])} }};\n"
        f"export const code: ErrorCode = {json.dumps(table['errors'][0]['code'])};\n"
        "// @ts-expect-error an option that does not exist\n"
        "export const wrong: GenerationOptions = { noSuchOption: 1 };\n"
    )
    argv = [str(node), str(compiler(workspace)), "--strict", "--noEmit", "--pretty", "false", "use.ts"]
    checked = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout


def test_what_the_build_generated_is_of_this_engine(workspace: Workspace, library_path: Path) -> None:
    generated = workspace.generated / "declarations.json"
    if not generated.is_file():
        pytest.skip(f"{generated} is not there: python3 -m build_tools codegen")
    assert json.loads(generated.read_text()) == describe(library_path)


def test_a_record_brings_its_declaration() -> None:
    table: Declarations = {
        "options": [
            option("tools", "request", "Tool[]", []),
            option("toolChoice", "request", "ToolChoice", "auto"),
        ],
        "errors": [{"code": "internal", "help": "a fault"}],
        "operations": ["chat"],
        "finishReasons": ["stop"],
    }
    text = typescript(table)
    assert "tools?: Tool[];" in text
    assert "toolChoice?: ToolChoice;" in text
    assert text.index("export interface Tool ") < text.index("export interface GenerationOptions")
    assert "ResponseFormat" not in text
    names: dict[str, object] = {}
    exec(compile(python(table), "declarations.py", "exec"), names)
    assert {"Tool", "ToolChoice", "GenerationOptions"} <= names.keys()
    assert "ResponseFormat" not in names
