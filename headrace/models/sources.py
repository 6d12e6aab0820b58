"""What a user names a model by, resolved to the files to fetch: URLs, "hf:owner/repo/file.gguf", shard names.

Counterpart: `web/models/sources.js`, the JavaScript twin; both give the same URLs and keys. Asks no network;
what a file really is shows when its header has come: `split.py`.
"""

import base64
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import quote, unquote

from headrace.errors import HeadraceError
from headrace.models.shard_names import shard_names

HUGGING_FACE = "https://huggingface.co"
"""Where "hf:" leads, unless the environment has `HF_ENDPOINT`."""

_SCHEME = "hf:"
_HOW_TO_NAME = "name the file: hf:owner/repo/file.gguf, with @revision at the end if it is not main"
_NAMED = 5
"""How many missing files a sentence names."""

_PORTS = {"https": "443", "http": "80"}
# What a URL keeps as it is written, beside letters and digits: the rest of ASCII that browsers keep.
_KEPT_IN_PATH = "%!$&'()*+,-./:;=@_~[]|"
_KEPT_IN_QUERY = "%!$&()*+,-./:;=@_~[]|?^`{}\\"


@dataclass(frozen=True)
class RemoteFile:
    """One published file.

    `url` (absolute) and `headers`, which go with every request for it, may hold secrets and are never shown
    or stored. `key` is the sha256 of the URL without what does not tell files apart, `display` the URL
    without user, password, query and fragment, `name` the file name, for people. `sha256` is what its bytes
    must have, if that is known. Digests are 64 hexadecimal digits.
    """

    url: str = field(repr=False)
    display: str
    key: str
    name: str
    headers: Mapping[str, str] = field(repr=False)
    sha256: str | None


@dataclass(frozen=True)
class RemoteModel:
    """A model to fetch: one file, or the shards of one model in their order. `key` is that of the first."""

    name: str
    key: str
    files: list[RemoteFile]


def is_stored_id(text: str) -> bool:
    """Whether `text` names a stored model."""
    return re.fullmatch(r"sha256-[0-9a-f]{64}", text) is not None


def resolve_remote(
    source: str | Sequence[str],
    *,
    hugging_face: str | None = None,
    headers: Mapping[str, str] | None = None,
    sha256: str | Sequence[str | None] | None = None,
) -> RemoteModel:
    """The files of a model.

    The name of one shard stands for all of them; of a list of shards, in any order, all must be there.
    Several files without such names stay in the order given: their headers tell the right one.
    `hugging_face` is where "hf:" leads (default: `HF_ENDPOINT` of the environment, else HUGGING_FACE).
    `headers` are sent with every request. `sha256` is what the published file must have; of several files,
    one for each, in the order of `source`, or of the shards that one name stands for.
    Error: `invalid_option`.
    """
    hub = hugging_face or os.environ.get("HF_ENDPOINT") or HUGGING_FACE
    given = [source] if isinstance(source, str) else list(source)
    if not given:
        raise _refused("the list of a model's URLs is empty")
    urls = [_absolute(one, hub) for one in given]
    every = _whole_set(urls[0]) if len(urls) == 1 else urls
    hashes = _expected_hashes(sha256, len(every))
    order = range(len(every)) if len(urls) == 1 else _order_by_name([url.file_name for url in every])
    files = [_remote_file(every[place], headers or {}, hashes[place]) for place in order]
    return RemoteModel(_model_name([file.name for file in files]), files[0].key, files)


class _Url(NamedTuple):
    """An absolute http(s) URL in parts, written as browsers write it. `query` begins with "?" or is empty."""

    scheme: str
    user: str
    password: str
    host: str
    path: str
    query: str

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.host}"

    @property
    def last_segment(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def file_name(self) -> str:
        return _unquoted(self.last_segment) or self.host.rpartition("@")[2].split(":")[0]


def _absolute(source: str, hub: str) -> _Url:
    if is_stored_id(source):
        raise _refused(f"{source} is the id of a stored model, not where one can be fetched")
    url = _parse(_hugging_face_url(source, hub) if source.startswith(_SCHEME) else source)
    hubs = []
    for one in (HUGGING_FACE, hub):
        try:
            hubs.append(_parse(one).origin)
        except HeadraceError:
            continue
    if url.origin in hubs:
        # There a file's page is at blob/ and itself at resolve/.
        return url._replace(path=re.sub(r"^(/[^/]+/[^/]+)/blob/", r"\1/resolve/", url.path))
    return url


def _parse(source: str) -> _Url:
    """Reads a URL as browsers do, for the parts that URLs of files have."""
    text = re.sub(r"[\t\n\r]", "", source.strip("".join(map(chr, range(33)))))
    scheme = re.match(r"([a-z][a-z0-9+.-]*):", text, re.IGNORECASE)
    if scheme is None:
        raise _not_absolute(source)
    name = scheme[1].lower()
    if name not in _PORTS:
        raise _refused(f"models are fetched from http and https, not from {name}:")
    rest, _, _ = text[scheme.end() :].partition("#")
    rest, _, query = rest.partition("?")
    authority, slash, path = rest.replace("\\", "/").lstrip("/").partition("/")
    credentials, _, place = authority.rpartition("@")
    user, _, password = credentials.partition(":")
    host, port = _host_and_port(place, name, source)
    return _Url(
        name,
        user,
        password,
        host + (f":{port}" if port else ""),
        _without_dots(quote(slash + path, safe=_KEPT_IN_PATH) or "/"),
        f"?{quote(query, safe=_KEPT_IN_QUERY)}" if query else "",
    )


def _host_and_port(place: str, scheme: str, source: str) -> tuple[str, str]:
    match = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]]+)(?::([0-9]*))?", place)
    if match is None:
        raise _not_absolute(source)
    host = unquote(match[1])
    if not host.isascii():
        try:
            host = host.encode("idna").decode("ascii")
        except UnicodeError as error:
            raise _not_absolute(source) from error
    if re.search(r"[\x00-\x20#/<>?@\\^|%\x7f]", host):
        raise _not_absolute(source)
    port = int(match[2] or _PORTS[scheme])
    if port > 0xFFFF:
        raise _not_absolute(source)
    return host.lower(), "" if str(port) == _PORTS[scheme] else str(port)


def _without_dots(path: str) -> str:
    kept: list[str] = []
    segments = path.split("/")[1:]
    for place, segment in enumerate(segments):
        plain = segment.lower().replace("%2e", ".")
        if plain == "..":
            del kept[-1:]
        elif plain != ".":
            kept.append(segment)
        if plain in (".", "..") and place == len(segments) - 1:
            kept.append("")
    return "/" + "/".join(kept)


def _not_absolute(source: str) -> HeadraceError:
    # A text that is no URL may still hold a password.
    shown = re.sub(r"^.*@", "…@", re.sub(r"[?#].*$", "", source, flags=re.DOTALL), flags=re.DOTALL)
    return _refused(f"{shown} is not an absolute URL, nor does it begin with hf:")


def _hugging_face_url(source: str, hub: str) -> str:
    match = re.fullmatch(r"hf:/*(.*?)(?:(?<=\.gguf)@(.+))?", source, re.IGNORECASE | re.DOTALL)
    assert match is not None
    path, revision = match[1], match[2] or "main"
    parts = path.split("/")
    if len(parts) < 3 or not {"", ".", ".."}.isdisjoint(parts):
        raise _refused(f"{source} names no file of a repository: {_HOW_TO_NAME}")
    if not path.lower().endswith(".gguf"):
        raise _refused(f"{source} does not end in .gguf: {_HOW_TO_NAME}")
    owner, repository, *file = (quote(part, safe="!'()*-._~") for part in parts)
    quoted = quote(revision, safe="!'()*-._~")
    return f"{hub.rstrip('/')}/{owner}/{repository}/resolve/{quoted}/{'/'.join(file)}"


def _unquoted(text: str) -> str:
    """Percent-encoding undone; the text as it is when that gives no text."""
    if re.search(r"%(?![0-9a-fA-F]{2})", text):
        return text
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return text


def _whole_set(url: _Url) -> list[_Url]:
    """Cases F11 and F13: whichever shard was named, all are meant."""
    shards = shard_names(url.last_segment)
    if shards is None:
        return [url]
    folder = url.path.rpartition("/")[0]
    return [url._replace(path=f"{folder}/{name}") for name in shards.names]


def _order_by_name(names: Sequence[str]) -> Sequence[int]:
    """Cases F10 and F14: the order of several files; as given when not all are names of shards."""
    shards = [shard_names(name) for name in names]
    known = next((shard for shard in shards if shard is not None), None)
    if known is None:
        return range(len(names))
    places: dict[int, int] = {}
    for place, shard in enumerate(shards):
        if shard is None:
            continue
        if shard.names[0].lower() != known.names[0].lower():
            other = known.names[known.number - 1]
            raise _refused(f"{names[place]} and {other} are shards of different models")
        if shard.number in places:
            raise _refused(f"{names[place]} is in the list twice")
        places[shard.number] = place
    if len(names) < known.total and len(places) == len(names):
        missing = [name for number, name in enumerate(known.names, 1) if number not in places]
        listed = ", ".join(missing[:_NAMED]) + (", …" if len(missing) > _NAMED else "")
        raise _refused(f"the list lacks {listed}", {"missing": missing})
    if len(names) != known.total:
        raise _refused(f"the model has {known.total} shards, but the list has {len(names)}")
    if len(places) < len(names):
        return range(len(names))
    return [places[number] for number in range(1, known.total + 1)]


def _expected_hashes(sha256: str | Sequence[str | None] | None, count: int) -> list[str | None]:
    if sha256 is None:
        return [None] * count
    given = [sha256] if isinstance(sha256, str) else list(sha256)
    if len(given) != count:
        raise _refused(f"sha256 must have one digest for each of the model's {count} files, not {len(given)}")
    for digest in given:
        if digest is not None and not re.fullmatch(r"[0-9a-fA-F]{64}", digest):
            raise _refused(f'sha256 must be 64 hexadecimal digits, not "{digest}"')
    return [digest and digest.lower() for digest in given]


def _remote_file(url: _Url, headers: Mapping[str, str], sha256: str | None) -> RemoteFile:
    display = url.origin + url.path
    kept = [part for part in url.query[1:].split("&") if part.split("=")[0] != "download"]
    identity = display + ("?" + "&".join(kept) if any(kept) else "")
    return RemoteFile(
        url=display + url.query,
        display=display,
        key=hashlib.sha256(identity.encode()).hexdigest(),
        name=url.file_name,
        headers=_with_credentials(url, headers),
        sha256=sha256,
    )


def _with_credentials(url: _Url, headers: Mapping[str, str]) -> dict[str, str]:
    """A URL's user and password go where they would end up, so that no message can show them."""
    given = any(name.lower() == "authorization" for name in headers)
    if given or not (url.user or url.password):
        return dict(headers)
    pair = f"{_unquoted(url.user)}:{_unquoted(url.password)}".encode()
    return {**headers, "Authorization": f"Basic {base64.b64encode(pair).decode()}"}


def _model_name(names: Sequence[str]) -> str:
    """What people call the model: of shards, what is before their numbers."""
    if len(names) == 1 or shard_names(names[0]) is None:
        return names[0]
    return re.sub(r"-[0-9]{5}-of-[0-9]{5}(\.gguf)$", r"\1", names[0], flags=re.IGNORECASE)


def _refused(sentence: str, detail: Mapping[str, object] | None = None) -> HeadraceError:
    return HeadraceError("invalid_option", sentence, {"option": "model", **(detail or {})})
