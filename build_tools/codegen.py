"""Turns hr_describe()'s table into TypeScript declarations, Python types and a reference table.

Counterpart: `native/engine/options.cpp` and `native/engine/error.h`, where everything is declared once. What
it writes lies in build/generated and is never edited or kept in git.
"""

import ctypes
import json
import re
from pathlib import Path
from typing import Any

from build_tools.errors import StepError
from build_tools.files import content_hash, write_atomically
from build_tools.steps import Step, StepRun, stamped_step
from build_tools.workspace import Workspace

Declarations = dict[str, Any]
"""The parsed JSON of hr_describe()."""

FILES = ("declarations.json", "declarations.d.ts", "declarations.py", "options.md")

_SCOPES = {"load": "LoadOptions", "request": "GenerationOptions"}
_TITLES = {
    "LoadOptions": "Options of loading a model.",
    "GenerationOptions": "Options of one request.",
}
_UNIONS = {"operations": "Operation", "finishReasons": "FinishReason"}
_TYPESCRIPT = {"integer": "number", "number": "number", "boolean": "boolean", "string": "string"}
_PYTHON = {"integer": "int", "number": "float", "boolean": "bool", "string": "str"}
# Options whose values are records, as native/abi/chat_options_json.cpp reads them: type → its declarations.
_RECORDS = {
    "Tool": (
        """\
/** A function that the model may ask to be called. */
export interface Tool {
  type: "function";
  function: {
    /** 1 to 64 letters, digits, _ or -. */
    name: string;
    description?: string;
    /** The JSON schema of the arguments; without one there are none. */
    parameters?: Record<string, unknown>;
    /** Whether every keyword of the schema must be enforceable. */
    strict?: boolean;
  };
}""",
        """\
class ToolFunction(TypedDict):
    \"\"\"What a tool is called, does and takes; `parameters` is the JSON schema of its arguments.\"\"\"

    name: str
    description: NotRequired[str]
    parameters: NotRequired[dict[str, object]]
    strict: NotRequired[bool]


class Tool(TypedDict):
    \"\"\"A function that the model may ask to be called.\"\"\"

    type: Literal["function"]
    function: ToolFunction""",
    ),
    "ToolChoice": (
        """\
/** Whether a tool is called. */
export type ToolChoice =
  "auto" | "none" | "required" | { type: "function"; function: { name: string } };""",
        """\
class ToolName(TypedDict):
    \"\"\"A tool by its name.\"\"\"

    name: str


class ChosenTool(TypedDict):
    \"\"\"The one tool to be called.\"\"\"

    type: Literal["function"]
    function: ToolName


ToolChoice = Literal["auto", "none", "required"] | ChosenTool""",
    ),
    "ResponseFormat": (
        """\
/** What an answer must be. */
export type ResponseFormat =
  | { type: "text" | "json_object" }
  | {
      type: "json_schema";
      json_schema: { name?: string; description?: string; schema: Record<string, unknown>; strict?: boolean };
    };""",
        """\
class ResponseSchema(TypedDict):
    \"\"\"The schema that an answer conforms to.\"\"\"

    name: NotRequired[str]
    description: NotRequired[str]
    schema: dict[str, object]
    strict: NotRequired[bool]


class ResponseFormat(TypedDict):
    \"\"\"What an answer must be.\"\"\"

    type: Literal["text", "json_object", "json_schema"]
    json_schema: NotRequired[ResponseSchema]""",
    ),
}
_TYPESCRIPT |= {name: name for name in _RECORDS}
_PYTHON |= {name: name for name in _RECORDS}


def codegen_step(workspace: Workspace) -> Step:
    """The step that fills build/generated from the native library."""

    def fingerprint() -> str:
        return content_hash(workspace.root, [Path(__file__), workspace.native_library])

    def action(run: StepRun) -> str:
        declarations = describe(workspace.native_library)
        texts = (
            json.dumps(declarations, indent=2, ensure_ascii=False) + "\n",
            typescript(declarations),
            python(declarations),
            reference(declarations),
        )
        for name, text in zip(FILES, texts, strict=True):
            write_atomically(workspace.generated / name, text)
        options, errors = len(declarations["options"]), len(declarations["errors"])
        return f"{options} options, {errors} error codes"

    return stamped_step(
        workspace,
        "codegen",
        "generating declarations from the engine's own table",
        fingerprint=fingerprint,
        outputs=[workspace.generated / name for name in FILES],
        action=action,
    )


def describe(library: Path) -> Declarations:
    """What the native library's hr_describe() says."""
    try:
        engine = ctypes.CDLL(str(library))
        engine.hr_describe.restype = ctypes.c_char_p
        engine.hr_describe.argtypes = []
        text = engine.hr_describe()
    except (OSError, AttributeError) as error:
        raise StepError(f"the native library cannot be asked: {error}", hint="delete build/native") from error
    declarations = json.loads(text)
    assert isinstance(declarations, dict)
    return declarations


def typescript(declarations: Declarations) -> str:
    """The declarations for applications in TypeScript, or in JavaScript with JSDoc types."""
    lines = ["// Generated by build_tools/codegen.py from hr_describe(); not to be edited."]
    for declaration, _ in _records(declarations):
        lines += ["", declaration]
    for scope, name in _SCOPES.items():
        lines += ["", f"/** {_TITLES[name]} */", f"export interface {name} {{"]
        for option in _options(declarations, scope):
            lines += [
                f"  /** {_help(option)} */",
                f"  {option['name']}?: {_type(option, _TYPESCRIPT, '{}[]', ('{}', ' | '))};",
            ]
        lines.append("}")
    for key, name in _UNIONS.items():
        lines += ["", f"export type {name} = {' | '.join(map(json.dumps, declarations[key]))};"]
    lines += ["", "/** What a HeadraceError's code may be. */", "export type ErrorCode ="]
    for error in declarations["errors"]:
        lines += [f"  /** {_sentence(error['help'])} */", f"  | {json.dumps(error['code'])}"]
    return "\n".join(lines) + ";\n"


def python(declarations: Declarations) -> str:
    """The same declarations as Python types, with snake_case names."""
    lines = [
        '"""Generated by build_tools/codegen.py from hr_describe(); not to be edited."""',
        "",
        "from typing import Literal, NotRequired, TypedDict",
    ]
    for _, declaration in _records(declarations):
        lines += ["", "", declaration]
    for scope, name in _SCOPES.items():
        lines += ["", "", f"class {name}(TypedDict, total=False):", f'    """{_TITLES[name]}"""', ""]
        for option in _options(declarations, scope):
            annotation = _type(option, _PYTHON, "list[{}]", ("Literal[{}]", ", "))
            lines += [f"    {snake_case(option['name'])}: {annotation}", f'    """{_help(option)}"""']
    lines.append("")
    for key, name in _UNIONS.items():
        lines += ["", f"{name} = Literal[{', '.join(map(json.dumps, declarations[key]))}]"]
    lines += ["", "ErrorCode = Literal["]
    lines += [f"    {json.dumps(error['code'])},  # {error['help']}" for error in declarations["errors"]]
    return "\n".join([*lines, "]", ""])


def reference(declarations: Declarations) -> str:
    """The reference of options and error codes, in Markdown."""
    lines = ["<!-- Generated by build_tools/codegen.py from hr_describe(); not to be edited. -->"]
    for scope, name in _SCOPES.items():
        lines += ["", f"## {_TITLES[name].removesuffix('.')}", ""]
        lines += ["| option | Python | type | range | default | local only | meaning |", "|---" * 7 + "|"]
        for option in _options(declarations, scope):
            cells = (
                f"`{option['name']}`",
                f"`{snake_case(option['name'])}`",
                option["type"],
                _range(option),
                f"`{json.dumps(option['default'])}`",
                "yes" if option["localOnly"] else "no",
                option["help"],
            )
            lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    lines += ["", "## Error codes", "", "| code | meaning |", "|---|---|"]
    lines += [f"| `{error['code']}` | {error['help']} |" for error in declarations["errors"]]
    return "\n".join(lines) + "\n"


def snake_case(name: str) -> str:
    """The Python name of an option: maxTokens → max_tokens."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _options(declarations: Declarations, scope: str) -> list[dict[str, Any]]:
    return [option for option in declarations["options"] if option["scope"] == scope]


def _records(declarations: Declarations) -> list[tuple[str, str]]:
    """The declarations of the records that options use, in TypeScript and in Python."""
    used = {option["type"].removesuffix("[]") for option in declarations["options"]}
    return [texts for name, texts in _RECORDS.items() if name in used]


def _type(option: dict[str, Any], names: dict[str, str], many: str, choice: tuple[str, str]) -> str:
    kind: str = option["type"]
    element = kind.removesuffix("[]")
    if option.get("choices"):
        form, separator = choice
        return form.format(separator.join(map(json.dumps, option["choices"])))
    if element not in names:
        raise StepError(f"hr_describe() gives {option['name']} the type {kind}, which codegen does not know")
    return many.format(names[element]) if kind.endswith("[]") else names[element]


def _range(option: dict[str, Any]) -> str:
    low, high = (_number(option.get(bound)) for bound in ("minimum", "maximum"))
    unit = " entries" if option["type"].endswith("[]") else ""
    if low and high:
        return f"{low} to {high}{unit}"
    if low:
        return f"{low} or more{unit}"
    return f"up to {high}{unit}" if high else ""


def _number(bound: float | None) -> str:
    # The table's bounds are doubles: 1048576.0 is meant as 1048576.
    return "" if bound is None else str(int(bound) if bound == int(bound) else bound)


def _sentence(text: str) -> str:
    return (text[0].upper() + text[1:] + ("" if text.endswith(".") else ".")).replace("*/", "* /")


def _help(option: dict[str, Any]) -> str:
    facts = [fact for fact in (_range(option), f"default {json.dumps(option['default'])}") if fact]
    if option["localOnly"]:
        facts.append("local endpoints only")
    return f"{_sentence(option['help'])} {', '.join(facts)[0].upper()}{', '.join(facts)[1:]}."
