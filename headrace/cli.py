"""The `headrace` command: a GGUF file answered by the native engine, and what that engine declares.

Counterpart: `serve.py --ask`, which answers in a browser. Not for development tasks: those are
`python3 -m build_tools`.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from typing import Any

from headrace import __version__
from headrace.errors import HeadraceError
from headrace.library import describe
from headrace.model_argument import add_fetch_options, add_store_options, model_files
from headrace.models_cli import add_models_command
from headrace.native import Engine
from headrace.run import Run
from headrace.tables import print_json, print_table
from headrace.wire import Result, camel_case


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

    run = _model_command(commands, "run", _run, "answer a request with the native engine")
    request = run.add_mutually_exclusive_group(required=True)
    request.add_argument("--query", metavar="TEXT", help="continue this text as it is")
    request.add_argument(
        "--chat", metavar="TEXT", help="answer this as a user's turn, by the model's template"
    )
    run.add_argument("--max-tokens", type=int, metavar="N", help="tokens to generate, at most")
    run.add_argument("--temperature", type=float, metavar="T", help="0 always takes the likeliest token")
    run.add_argument("--seed", type=int, metavar="N", help="same seed, same options, same text")
    run.add_argument("--context-key", metavar="K", help="continue from what this key's requests left cached")
    _add_options(run)
    run.add_argument(
        "--repeat", type=_count, default=1, metavar="N", help="ask N times, one after another (default: 1)"
    )
    run.add_argument(
        "--parallel", type=_count, default=1, metavar="N", help="ask N times at once, on N slots (default: 1)"
    )
    run.add_argument("--slots", type=int, metavar="N", help="requests worked on at once")
    run.add_argument("--json", action="store_true", help="print the result record, or a list of several")

    embed = _model_command(commands, "embed", _embed, "turn texts into vectors, one line each")
    embed.add_argument("texts", nargs="+", metavar="TEXT")
    embed.add_argument("--normalize", action="store_true", help="scale each vector to length 1")
    _add_options(embed)
    embed.add_argument("--json", action="store_true", help="print the result record")

    tokenize = _model_command(commands, "tokenize", _tokenize, "print the token ids of a text")
    tokenize.add_argument("text", metavar="TEXT")
    _add_options(tokenize)

    _model_command(commands, "audit", _audit, "list the operations of a model and what computes them")

    add_models_command(commands)

    declarations = commands.add_parser("describe", help="list the engine's options and error codes")
    declarations.add_argument("--json", action="store_true", help="print the declarations as JSON")
    declarations.set_defaults(command=_describe)
    return parser


def _model_command(
    commands: Any, name: str, action: Callable[[argparse.Namespace], int], help: str
) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(name, help=help)
    command.add_argument(
        "model",
        metavar="MODEL",
        help="path of a GGUF file, a stored model's id or name, or an address, which is fetched and kept",
    )
    command.add_argument("--threads", type=int, metavar="N", help="compute threads (default: one per core)")
    command.add_argument(
        "--load-option",
        action="append",
        default=[],
        type=_option,
        metavar="NAME=VALUE",
        help="any load option of `headrace describe`; the value is JSON, or else text",
    )
    add_store_options(command)
    add_fetch_options(command)
    command.set_defaults(command=action)
    return command


def _add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--option",
        action="append",
        default=[],
        type=_option,
        metavar="NAME=VALUE",
        help="any request option of `headrace describe`; the value is JSON, or else text",
    )


def _option(argument: str) -> tuple[str, object]:
    name, sign, text = argument.partition("=")
    if not name or not sign:
        raise argparse.ArgumentTypeError(f"{argument!r} is not NAME=VALUE")
    try:
        return camel_case(name), json.loads(text)
    except (ValueError, RecursionError):
        return camel_case(name), text


def _count(argument: str) -> int:
    if not argument.isdecimal() or int(argument) < 1:
        raise argparse.ArgumentTypeError(f"{argument!r} is not a whole number from 1 on")
    return int(argument)


def _chosen(options: Sequence[tuple[str, object]], **shortcuts: object) -> dict[str, object]:
    """The options that were given; one by name goes before the shortcut for it."""
    given = {camel_case(name): value for name, value in shortcuts.items() if value is not None}
    return {**given, **dict(options)}


@contextmanager
def _open(parsed: argparse.Namespace, slots: int | None = None) -> Iterator[Engine]:
    options = _chosen(parsed.load_option, threads=parsed.threads, slots=slots)
    with model_files(parsed) as paths, Engine(paths if len(paths) > 1 else paths[0], options) as engine:
        yield engine


def _run(parsed: argparse.Namespace) -> int:
    options = _chosen(
        parsed.option,
        max_tokens=parsed.max_tokens,
        temperature=parsed.temperature,
        seed=parsed.seed,
        context_key=parsed.context_key,
    )
    slots = parsed.slots
    if slots is None and parsed.parallel > 1:
        slots = parsed.parallel
    several = parsed.repeat * parsed.parallel > 1
    results: list[Result] = []
    with _open(parsed, slots) as engine:
        for _ in range(parsed.repeat):
            # All are asked before the first is read; the engine works on them meanwhile.
            for run in [_ask(engine, parsed, options, copy) for copy in range(1, parsed.parallel + 1)]:
                if not parsed.json:
                    _print_text(run, separate=bool(results))
                results.append(run.result())
                if several:
                    print(_summary(len(results), results[-1]), file=sys.stderr)
    if parsed.json:
        records = [result.record for result in results]
        print_json(records if several else records[0])
    return 0


def _ask(engine: Engine, parsed: argparse.Namespace, options: Mapping[str, object], copy: int) -> Run:
    key = options.get("contextKey")
    if isinstance(key, str) and parsed.parallel > 1:
        options = {**options, "contextKey": f"{key}-{copy}"}
    if parsed.query is not None:
        return engine.query(parsed.query, options)
    return engine.chat([{"role": "user", "content": parsed.chat}], options)


def _print_text(run: Run, *, separate: bool) -> None:
    if separate:
        print()
    for batch in run:
        print(batch.text, end="", flush=True)
    print(flush=True)


def _summary(number: int, result: Result) -> str:
    stats = result.stats
    facts = [
        f"ttft {stats['ttft_ms']:.0f} ms",
        f"{result.usage.output_tokens} tokens",
        f"{stats['decode_tokens_per_second']:.1f} tokens/s",
    ]
    if cache := stats.get("cache"):
        facts.append(f"cache {cache['source']}, {cache['tokens']} tokens")
    return f"run {number}: {', '.join(facts)}"


def _embed(parsed: argparse.Namespace) -> int:
    options = _chosen(parsed.option, normalize=True if parsed.normalize else None)
    with _open(parsed) as engine:
        result = engine.embed(parsed.texts, options).result()
    if parsed.json:
        print_json(result.record)
    else:
        for vector in result.vectors:
            print(*vector)
    return 0


def _tokenize(parsed: argparse.Namespace) -> int:
    with _open(parsed) as engine:
        print(*engine.tokenize(parsed.text, _chosen(parsed.option)).result())
    return 0


def _audit(parsed: argparse.Namespace) -> int:
    with _open(parsed) as engine:
        rows = engine.audit().result()
    names = ("phase", "op", "inputs", "output", "backend", "kernel", "count")
    print_table([names, *(tuple(_cell(row.get(name)) for name in names) for row in rows)])
    return 0


def _cell(value: object) -> str:
    if value is None:
        return ""
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _describe(parsed: argparse.Namespace) -> int:
    declarations = describe()
    if parsed.json:
        print_json(declarations)
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
    print_table(rows)
    print()
    errors = [(error["code"], error["help"]) for error in declarations["errors"]]
    print_table([("error code", "meaning"), *errors])
    return 0


def _range(option: dict[str, Any]) -> str:
    if option.get("minimum") is None:
        return ""
    whole = option["type"] != "number"
    minimum, maximum = (int(end) if whole else f"{end:g}" for end in (option["minimum"], option["maximum"]))
    return f"{minimum} to {maximum}"
