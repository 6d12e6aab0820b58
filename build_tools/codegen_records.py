"""The shapes of options whose values are records, in TypeScript and in Python, for codegen.py.

Counterpart: `native/abi/chat_options_json.cpp`, which reads them. hr_describe() gives only their names.
"""

RECORDS = {
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
"""The name of a type in hr_describe()'s table → its declarations in TypeScript and in Python."""
