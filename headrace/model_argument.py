"""What commands take for a model: a path, a stored model, or an address that is fetched into the store.

Counterpart: the option `model` of `web/endpoints/local.js`. Not the commands for the store itself:
`models_cli.py`.
"""

import argparse
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from headrace.errors import HeadraceError
from headrace.models import ModelStore
from headrace.models.folder import default_folder
from headrace.models.progress import Progress
from headrace.models.store import is_address
from headrace.progress_line import ProgressLine, bytes_text

_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def add_store_options(command: argparse.ArgumentParser) -> None:
    """Where models are kept, and how much of them."""
    command.add_argument(
        "--store", type=Path, metavar="FOLDER", help="the model store's folder (default: $HEADRACE_MODELS)"
    )
    command.add_argument(
        "--limit",
        type=_bytes,
        metavar="BYTES",
        help="keep no more than this, such as 20GB: the least recently used models make room",
    )


def add_fetch_options(command: argparse.ArgumentParser) -> None:
    """How a model is fetched that is not there yet."""
    command.add_argument(
        "--header",
        action="append",
        default=[],
        type=_header,
        metavar="'NAME: VALUE'",
        help="sent with every request for the model, kept nowhere; hf: addresses take the token of $HF_TOKEN",
    )
    command.add_argument(
        "--sha256",
        action="append",
        metavar="DIGEST",
        help="what the file must have; for several files, once for each",
    )
    add_evict_option(command)


def add_evict_option(command: argparse.ArgumentParser) -> None:
    """Whether other models may go."""
    command.add_argument(
        "--evict",
        action="store_true",
        default=None,
        help="let the least recently used models go when there is no room",
    )


def open_store(parsed: argparse.Namespace) -> ModelStore:
    """The store that the options say."""
    return ModelStore(parsed.store, limit_bytes=parsed.limit)


def request_headers(source: str, given: list[tuple[str, str]]) -> Mapping[str, str]:
    """The headers given, and the token that the environment has for Hugging Face."""
    headers = dict(given)
    token = os.environ.get("HF_TOKEN")
    if token and source.lower().startswith("hf:") and "authorization" not in map(str.lower, headers):
        headers["Authorization"] = f"Bearer {token.strip()}"
    return headers


@contextmanager
def shown_progress() -> Iterator[ProgressLine]:
    """Shows what is told; an interrupted download says that it can go on."""
    line = ProgressLine()
    try:
        yield line
    except KeyboardInterrupt:
        line.end()
        if line.last is not None and line.last.phase == "download":
            with suppress(OSError):
                line.say(f"interrupted: {kept_text(line.last)} kept, the same command goes on from there")
        raise
    finally:
        line.end()


def kept_text(progress: Progress) -> str:
    """How much of a download is there."""
    total = f" of {bytes_text(progress.total)}" if progress.total is not None else ""
    return f"{bytes_text(progress.loaded)}{total} are"


@contextmanager
def model_files(parsed: argparse.Namespace) -> Iterator[list[Path]]:
    """The files of the argument `model`, in the order of loading; while the context is open, they stay.

    A path that exists is taken as it is. Raises model_not_found, and what fetching raises.
    """
    text: str = parsed.model
    path = Path(text)
    if path.exists() or not (is_address(text) or _store_exists(parsed)):
        yield [path]
        return
    store = open_store(parsed)
    if is_address(text):
        with shown_progress() as progress:
            model = store.obtain(
                text,
                headers=request_headers(text, parsed.header),
                sha256=parsed.sha256,
                evict=parsed.evict,
                on_progress=progress,
            )
    else:
        try:
            model = store.find(text)
        except HeadraceError as error:
            if error.code != "model_not_found":
                raise
            raise HeadraceError(
                "model_not_found", f"there is no file {text}, nor a stored model with this id or name"
            ) from error
    with store.open(model.id) as opened:
        yield list(opened.paths)


def _store_exists(parsed: argparse.Namespace) -> bool:
    # Only asking for a model makes no folder.
    folder: Path = parsed.store or default_folder()
    return folder.is_dir()


def _bytes(argument: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", argument.strip(), re.IGNORECASE)
    if not match:
        raise argparse.ArgumentTypeError(f"{argument!r} is no number of bytes, such as 500MB or 20GiB")
    number, unit, binary = match.groups()
    return int(float(number) * (1024 if binary else 1000) ** _UNITS[unit.lower()])


def _header(argument: str) -> tuple[str, str]:
    name, colon, value = argument.partition(":")
    if not colon or not name.strip():
        # Not shown: it may hold a token.
        raise argparse.ArgumentTypeError("a header is 'NAME: VALUE'")
    return name.strip(), value.strip()
