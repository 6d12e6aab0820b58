"""The `headrace` command: a GGUF file answered by the native engine, and what that engine declares.

Counterpart: `serve.py --ask`, which does the same in a browser. Not for development tasks: those are
`python3 -m build_tools`.
"""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from headrace import __version__
from headrace.errors import HeadraceError
from headrace.native import Engine, describe


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command with `arguments` (default: the process's); returns the exit code."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            parsed = _parser().parse_args(arguments)
            command: int = parsed.command(parsed)
            return command
        finally:
            # Here rather than at the interpreter's exit, where a failure could only be printed.
            print(end="", flush=True)
    except HeadraceError as error:
        print(f"headrace: {error.message} [{error.code}]", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        # Whoever closes a pipe has read enough and knows.
        if not isinstance(error, BrokenPipeError):
            print(f"headrace: {error.strerror or error}", file=sys.stderr)
        # What is still buffered goes nowhere, or the interpreter would fail over it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="headrace", description="GGUF language models, in pages and natively."
    )
    parser.add_argument("--version", action="version", version=f"headrace {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="answer one request with the native engine")
    run.add_argument("model", type=Path, metavar="MODEL", help="path of a GGUF file")
    request = run.add_mutually_exclusive_group(required=True)
    request.add_argument("--query", metavar="TEXT", help="continue this text as it is")
    request.add_argument(
        "--chat", metavar="TEXT", help="answer this as a user's turn, by the model's template"
    )
    run.add_argument("--max-tokens", type=int, metavar="N", help="tokens to generate, at most")
    run.add_argument("--temperature", type=float, metavar="T", help="0 always takes the likeliest token")
    run.add_argument("--seed", type=int, metavar="N", help="same seed, same options, same text")
    run.add_argument("--threads", type=int, metavar="N", help="compute threads (default: one per core)")
    run.add_argument("--json", action="store_true", help="print the result record instead of the text")
    run.set_defaults(command=_run)

    declarations = commands.add_parser("describe", help="list the engine's options and error codes")
    declarations.add_argument("--json", action="store_true", help="print the declarations as JSON")
    declarations.set_defaults(command=_describe)
    return parser


def _run(parsed: argparse.Namespace) -> int:
    asked = {name: getattr(parsed, name) for name in ("max_tokens", "temperature", "seed")}
    options = {name: value for name, value in asked.items() if value is not None}
    load = {} if parsed.threads is None else {"threads": parsed.threads}
    with Engine(parsed.model, load) as engine:
        if parsed.query is not None:
            run = engine.query(parsed.query, options)
        else:
            run = engine.chat([{"role": "user", "content": parsed.chat}], options)
        if parsed.json:
            _print_json(run.result().record)
        else:
            for batch in run:
                print(batch.text, end="", flush=True)
            print()
    return 0


def _describe(parsed: argparse.Namespace) -> int:
    declarations = describe()
    if parsed.json:
        _print_json(declarations)
        return 0
    build = ", ".join(f"{name} {value}" for name, value in declarations["build"].items())
    print(f"ABI version {declarations['abiVersion']}; {build}\n")
    rows = [("option", "scope", "type", "range", "default", "meaning")]
    rows += [
        (
            option["name"],
            option["scope"],
            option["type"],
            _range(option),
            json.dumps(option["default"]),
            option["help"],
        )
        for option in declarations["options"]
    ]
    _print_table(rows)
    print()
    errors = [(error["code"], error["help"]) for error in declarations["errors"]]
    _print_table([("error code", "meaning"), *errors])
    return 0


def _range(option: dict[str, Any]) -> str:
    if option.get("minimum") is None:
        return ""
    whole = option["type"] != "number"
    minimum, maximum = (int(end) if whole else f"{end:g}" for end in (option["minimum"], option["maximum"]))
    return f"{minimum} to {maximum}"


def _print_json(record: Mapping[str, Any]) -> None:
    # Python's own escapes are no JSON: where characters could need some, JSON's are written.
    unicode = getattr(sys.stdout, "encoding", None) == "utf-8"
    print(json.dumps(record, ensure_ascii=not unicode, indent=2))


def _print_table(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
