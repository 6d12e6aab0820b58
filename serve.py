"""From a clone to a served page, or to one answer on the terminal: python3 serve.py [--ask TEXT].

Counterpart: `build_tools`, which makes what is served, and `headrace`, which serves and asks; neither of them
imports the other. Not a production server: the library is plain files that any server can offer.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from build_tools.chromium import find_chromium
from build_tools.environment import ensure_environment
from build_tools.errors import StepError
from build_tools.progress import Reporter
from build_tools.sources import demo_model_path
from build_tools.steps import guarded, run_steps
from build_tools.tasks import serve_steps
from build_tools.workspace import Workspace

HOST, PORT = "127.0.0.1", 8000

REFUSED = 2
"""Exit status of a command line that cannot be carried out; nothing was built for it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Builds what is missing, then serves or asks. Returns the exit status."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    grammar = parser()
    arguments = grammar.parse_args(argv)
    if problem := refusal(arguments):
        print(f"error: {problem}", file=sys.stderr)
        return REFUSED
    workspace, reporter = Workspace.default(), Reporter(sys.stderr)

    def command() -> int:
        ensure_environment(workspace, reporter)
        asking = operation(arguments) is not None
        steps = serve_steps(workspace, demo_model=arguments.model is None, browser=asking)
        run_steps(steps, workspace, reporter)
        return run(arguments, workspace)

    return guarded(command, workspace, reporter)


def run(arguments: argparse.Namespace, workspace: Workspace) -> int:
    """Serves, or asks and prints the answer. Everything that is needed has been built."""
    # Only now does .venv, and with it the package's dependencies, exist for certain.
    from headrace.errors import HeadraceError
    from headrace.server import create_app, serve

    models = served_models(arguments.model, demo_model_path(workspace))
    app = create_app(
        web_dir=workspace.root / "web",
        artifacts_dir=workspace.artifacts,
        models=models,
        isolation=not arguments.no_isolation,
    )
    try:
        asked = operation(arguments)
        if asked is None:
            host = HOST if arguments.host is None else arguments.host
            port = PORT if arguments.port is None else arguments.port
            serve(app, host=host, port=port, on_ready=announce)
            return 0

        from headrace.headless import ask

        chromium = find_chromium()
        if chromium is None:
            raise StepError("there is no Chromium", hint="python3 -m build_tools setup")
        result = ask(
            chromium=chromium,
            app=app,
            operation=asked,
            text=arguments.ask if asked == "chat" else arguments.complete,
            model=next(iter(models), arguments.model),
            options=generation_options(arguments),
            threads=arguments.threads,
            artifact=arguments.artifact,
            on_text=(lambda text: None) if arguments.json else print_text,
            port=arguments.port or 0,
        )
    except HeadraceError as error:
        print(f"error: {error.message} ({error.code})", file=sys.stderr)
        return 1
    # Python's own escapes are no JSON: where characters could need some, JSON's are written.
    unicode = getattr(sys.stdout, "encoding", None) == "utf-8"
    print(json.dumps(result, ensure_ascii=not unicode, indent=2) if arguments.json else "", flush=True)
    if not result["text"]:
        print("error: the model ended its answer before the first word", file=sys.stderr)
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line's grammar, with its --help."""
    grammar = argparse.ArgumentParser(
        prog="python3 serve.py",
        description="Builds Headrace where needed and serves its playground; or asks a model, in the same "
        "page in a headless browser, and prints the answer. The first run takes several minutes and can be "
        "interrupted and continued.",
        epilog="Steps are told on standard error and logged in build/logs. The exit status is 0 only if the "
        "model answered.",
    )
    grammar.add_argument(
        "--port", type=number(int, 0, 65535), metavar="N", help=f"port to serve on ({PORT}); 0: a free one"
    )
    grammar.add_argument("--host", help=f"address to serve on ({HOST})")
    grammar.add_argument(
        "--no-isolation",
        action="store_true",
        help="leave out the COOP/COEP headers, to try what a page does without threads",
    )
    grammar.add_argument("--model", metavar="FILE|URL", help="GGUF to use instead of the demo model")
    asking = grammar.add_argument_group("asking without a display")
    which = asking.add_mutually_exclusive_group()
    which.add_argument("--ask", metavar="TEXT", help="chat: answer TEXT with the model's own template")
    which.add_argument("--complete", metavar="TEXT", help="query: continue TEXT as it is")
    asking.add_argument("--json", action="store_true", help="print the result record instead of the text")
    asking.add_argument(
        "--threads", type=number(int, 1, 64), metavar="N", help="compute threads (default: by the machine)"
    )
    asking.add_argument("--artifact", choices=("st", "mt"), help="single-thread or pthread build")
    asking.add_argument("--max-tokens", type=number(int, 1), metavar="N", help="tokens to make at most")
    asking.add_argument(
        "--temperature",
        type=number(float, 0),
        metavar="T",
        help="how varied the answer is (default 0: the likeliest token each time)",
    )
    asking.add_argument(
        "--seed", type=number(int, 0, 2**32 - 2), metavar="N", help="makes a temperature above 0 repeatable"
    )
    return grammar


def number(kind: type[int] | type[float], least: int, most: float = math.inf) -> Callable[[str], int | float]:
    """A parser of numbers within bounds, for argparse, with an error that says the bounds."""

    def parse(text: str) -> int | float:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if math.isfinite(value) and least <= value <= most:
            return value
        noun = "a whole number" if kind is int else "a number"
        bounds = f"{least} or more" if most == math.inf else f"from {least} to {most}"
        raise argparse.ArgumentTypeError(f"{text!r} is not {noun}, {bounds}")

    return parse


def operation(arguments: argparse.Namespace) -> Literal["chat", "query"] | None:
    """What is asked of the model: "chat" for --ask, "query" for --complete, None to serve."""
    if arguments.ask is not None:
        return "chat"
    return None if arguments.complete is None else "query"


def refusal(arguments: argparse.Namespace) -> str | None:
    """Why a command line that can be parsed cannot be carried out, in one sentence; None if it can."""
    asked = operation(arguments)
    for flag in ("ask", "complete", "model", "host"):
        if not is_utf8(getattr(arguments, flag) or ""):
            return f"--{flag} has bytes that are not UTF-8"
    if arguments.host == "":
        return "--host needs an address that is not empty"
    if asked is None:
        for flag in ("json", "threads", "artifact", "max_tokens", "temperature", "seed"):
            value = getattr(arguments, flag)
            if value is not None and value is not False:
                return f"--{flag.replace('_', '-')} goes with --ask or --complete"
    elif arguments.host is not None:
        return "--host goes with the playground; leave it out with --ask and --complete"
    elif not (arguments.ask or arguments.complete):
        return f"--{'ask' if asked == 'chat' else 'complete'} needs a text that is not empty"
    if arguments.artifact == "mt" and arguments.no_isolation:
        return "--artifact mt needs the isolation that --no-isolation leaves out"
    if (arguments.threads or 1) > 1 and arguments.artifact == "st":
        return "--artifact st has one thread; leave out --threads or choose --artifact mt"
    if (arguments.threads or 1) > 1 and arguments.no_isolation:
        return "a page has one thread with --no-isolation; leave out --threads"
    return model_refusal(arguments.model, asked is not None)


def model_refusal(model: str | None, asking: bool) -> str | None:
    """Why a --model cannot be used; None if it can be tried."""
    if model is None:
        return None
    if not model:
        return "--model needs a file or an address"
    if is_url(model):
        if not asking:
            return "--model URL goes with --ask or --complete; the playground takes any file"
        return None if has_host(model) else f"--model {model} is not an address that can be fetched"
    try:
        path = Path(model).expanduser()
        if path.is_dir():
            return f"--model {model} is a folder; name a GGUF file in it"
        if not path.is_file():
            return f"--model {model}: there is no such file"
        path.open("rb").close()
    except OSError as error:
        return f"--model {model} cannot be read: {error.strerror}"
    except RuntimeError:
        return f"--model {model}: there is no such user"
    return None


def is_url(model: str) -> bool:
    """Whether --model names an address rather than a file."""
    scheme, colon, _ = model.partition(":")
    return bool(colon) and scheme.lower() in ("http", "https")


def has_host(url: str) -> bool:
    """Whether an address names a host, and a port that there can be, if any."""
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def is_utf8(text: str) -> bool:
    """Whether an argument's bytes were UTF-8; Python keeps others as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def served_models(model: str | None, demo_model: Path) -> dict[str, Path]:
    """Name → file of what is served under /models/; empty if the page itself fetches a URL."""
    if model is not None and is_url(model):
        return {}
    path = demo_model if model is None else Path(model).expanduser().resolve()
    return {path.name: path}


def generation_options(arguments: argparse.Namespace) -> dict[str, object]:
    """The request options that were given; the engine knows the defaults of the others.

    But for the temperature: an answer on the terminal should be the same each time.
    """
    names = ("max_tokens", "temperature", "seed")
    given = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    return {"temperature": 0, **given}


def announce(address: str) -> None:
    """Says where the playground is."""
    print(f"Headrace is served at {address.replace('127.0.0.1', 'localhost')} (Ctrl-C ends it)", flush=True)


def print_text(text: str) -> None:
    """Prints a piece of the answer as it comes."""
    print(text, end="", flush=True)


if __name__ == "__main__":
    sys.exit(main())
