"""`headrace models`: what is stored, and bringing models in and out.

Counterpart: the models page of `web/playground/`. Not where models are run: `cli.py`.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headrace.errors import HeadraceError
from headrace.model_argument import (
    add_evict_option,
    add_fetch_options,
    add_store_options,
    open_store,
    request_headers,
    shown_progress,
)
from headrace.models import Manifest, StoredModel
from headrace.progress_line import bytes_text
from headrace.tables import print_json, print_table

Action = Callable[[argparse.Namespace], int]

_SHOWN_DIGITS = 12


def add_models_command(commands: Any) -> None:
    """Adds `models` and its own commands."""
    models = commands.add_parser(
        "models", help="list, download, verify and delete stored models", description="The model store."
    )
    actions = models.add_subparsers(title="commands", required=True, metavar="COMMAND")

    _command(actions, "list", _list, "list the stored models")
    _add_download(actions)

    imported = _command(actions, "import", _import, "copy GGUF files of this computer into the store")
    imported.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="one model: a file, or its shards"
    )
    imported.add_argument("--name", help="for people (default: the file's name)")
    _add_pin(imported)
    add_evict_option(imported)

    verify = _command(actions, "verify", _verify, "hash what is stored anew; damaged files are removed")
    verify.add_argument(
        "models", nargs="*", metavar="MODEL", help="id, its beginning, or name (default: all)"
    )

    for name, pinned, help in (
        ("pin", True, "never let a model go to make room"),
        ("unpin", False, "let it go again"),
    ):
        pin = _command(actions, name, _pin, help)
        pin.add_argument("models", nargs="+", metavar="MODEL", help="id, its beginning, or name")
        pin.set_defaults(pinned=pinned)

    delete = _command(actions, "delete", _delete, "delete models, or what is left of a download")
    delete.add_argument("models", nargs="+", metavar="MODEL", help="id, its beginning, name, or address")
    delete.add_argument("--yes", action="store_true", help="do not ask")
    delete.add_argument("--no-wait", action="store_true", help="fail if it is in use, rather than wait")

    export = _command(actions, "export", _export, "copy a model out of the store")
    export.add_argument("model", metavar="MODEL", help="id, its beginning, or name")
    export.add_argument(
        "target", nargs="?", type=Path, default=Path(), metavar="FOLDER", help="(default: here)"
    )

    _command(actions, "usage", _usage, "tell how much room models take, and how much there is")
    _command(actions, "repair", _repair, "find models whose records were lost, remove leftovers")


def _command(actions: Any, name: str, action: Action, help: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = actions.add_parser(
        name, help=help, description=f"{help}.".capitalize()
    )
    add_store_options(command)
    command.add_argument("--json", action="store_true", help="print records as JSON")
    command.set_defaults(command=action)
    return command


def _add_download(actions: Any) -> None:
    command = _command(
        actions, "download", _download, "fetch a model, or go on with a download that was interrupted"
    )
    command.add_argument(
        "sources",
        nargs="+",
        metavar="SOURCE",
        help="URL, hf:owner/repo/file.gguf[@revision], or the URLs of all shards of one model",
    )
    add_fetch_options(command)
    _add_pin(command)
    command.add_argument("--refresh", action="store_true", help="ask the server whether there is a newer one")
    command.add_argument("--projector", metavar="MODEL", help="the stored model that is its projector")


def _add_pin(command: argparse.ArgumentParser) -> None:
    command.add_argument("--pin", action="store_true", default=None, help="never let it go to make room")


def _list(parsed: argparse.Namespace) -> int:
    models = open_store(parsed).list()
    if parsed.json:
        print_json([{**model.manifest.to_record(), "inUse": model.in_use} for model in models])
        return 0
    rows = [("id", "size", "used", "name", "")]
    rows += [
        (_short(model.manifest), bytes_text(model.manifest.size), model.manifest.used_at[:10], *_words(model))
        for model in models
    ]
    print_table(rows)
    return 0


def _words(model: StoredModel) -> tuple[str, str]:
    manifest = model.manifest
    marks = {"pinned": manifest.pinned, "in use": model.in_use, "incomplete": not model.whole}
    return manifest.name, ", ".join(word for word, shown in marks.items() if shown)


def _download(parsed: argparse.Namespace) -> int:
    store = open_store(parsed)
    source: str | list[str] = parsed.sources[0] if len(parsed.sources) == 1 else parsed.sources
    with shown_progress() as progress:
        manifest = store.obtain(
            source,
            headers=request_headers(parsed.sources[0], parsed.header),
            sha256=parsed.sha256,
            pinned=parsed.pin,
            evict=parsed.evict,
            refresh=parsed.refresh,
            projector=store.find(parsed.projector).id if parsed.projector else None,
            on_progress=progress,
        )
    return _print_models(parsed, [manifest])


def _import(parsed: argparse.Namespace) -> int:
    store = open_store(parsed)
    with shown_progress() as progress:
        manifest = store.import_files(
            parsed.files, name=parsed.name, pinned=parsed.pin, evict=parsed.evict, on_progress=progress
        )
    return _print_models(parsed, [manifest])


def _verify(parsed: argparse.Namespace) -> int:
    store = open_store(parsed)
    models = [store.find(text) for text in parsed.models] or [model.manifest for model in store.list()]
    records = []
    for model in models:
        with shown_progress() as progress:
            damaged = list(store.verify(model.id, on_progress=progress))
        records.append({"id": model.id, "ok": not damaged, "damaged": damaged})
        if not parsed.json:
            state = f"damaged: {', '.join(damaged)}" if damaged else "ok"
            print(f"{_short(model)}  {model.name}  {state}")
    if parsed.json:
        print_json(records)
    return 0 if all(record["ok"] for record in records) else 1


def _pin(parsed: argparse.Namespace) -> int:
    store = open_store(parsed)
    return _print_models(parsed, [store.pin(store.find(text).id, parsed.pinned) for text in parsed.models])


def _delete(parsed: argparse.Namespace) -> int:
    store = open_store(parsed)
    deleted = []
    for text in parsed.models:
        try:
            model = store.find(text)
        except HeadraceError as error:
            if error.code == "model_not_found" and (left := store.discard(text) if ":" in text else 0):
                print(f"removed {bytes_text(left)} of an unfinished download", file=sys.stderr)
                continue
            raise
        if _agreed(parsed, f"delete {model.name}, {bytes_text(model.size)}?"):
            store.delete(model.id, wait=not parsed.no_wait)
            deleted.append(model)
    return _print_models(parsed, deleted)


def _agreed(parsed: argparse.Namespace, question: str) -> bool:
    if parsed.yes:
        return True
    if not sys.stdin.isatty():
        raise HeadraceError("invalid_request", "nobody can be asked whether to delete it: use --yes")
    print(question, "[y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _export(parsed: argparse.Namespace) -> int:
    store = open_store(parsed)
    paths = store.export(store.find(parsed.model).id, parsed.target)
    if parsed.json:
        print(json.dumps([str(path) for path in paths], indent=2))
    else:
        print(*paths, sep="\n")
    return 0


def _usage(parsed: argparse.Namespace) -> int:
    usage = open_store(parsed).usage()
    if parsed.json:
        print_json(usage.to_record())
        return 0
    limit = f", limit {bytes_text(usage.limit_bytes)}" if usage.limit_bytes is not None else ""
    print(usage.folder)
    print(f"{bytes_text(usage.model_bytes)} of models, {bytes_text(usage.used_bytes)} in all{limit}")
    print(f"{bytes_text(usage.quota_bytes - usage.used_bytes)} free")
    return 0


def _repair(parsed: argparse.Namespace) -> int:
    repaired = open_store(parsed).repair()
    if parsed.json:
        found = [model.to_record() for model in repaired.found]
        print_json({"found": found, "removed": list(repaired.removed), "unknown": list(repaired.unknown)})
        return 0
    for title, names in (
        ("found again", [f"{_short(model)} {model.name}" for model in repaired.found]),
        ("removed", repaired.removed),
        ("belongs to no whole model", repaired.unknown),
    ):
        for name in names:
            print(f"{title}: {name}")
    return 0


def _print_models(parsed: argparse.Namespace, models: Sequence[Manifest]) -> int:
    if parsed.json:
        records = [model.to_record() for model in models]
        print_json(records[0] if len(records) == 1 else records)
        return 0
    for model in models:
        print(f"{_short(model)}  {bytes_text(model.size)}  {model.name}")
    return 0


def _short(model: Manifest) -> str:
    return model.id[: len("sha256-") + _SHOWN_DIGITS]
