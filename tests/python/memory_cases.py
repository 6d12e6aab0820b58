"""What the tests of the KV cache share: the kinds of memory, answers of engines that remember nothing.

Counterpart: `tests/memory_models.py`, which makes the models. Used by test_native_memory*.py.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from string import ascii_letters

import pytest

from headrace.native import Engine
from headrace.run import Run
from headrace.wire import Result
from tests.memory_models import MODELS, TOLERANCES, memory_model

TOKENS = 24

OPTIONS: dict[str, object] = {
    "temperature": 0,
    "max_tokens": TOKENS,
    "logprobs": True,
    "top_logprobs": 2,
}

# Load options of an engine that has nothing to continue from.
BLANK: dict[str, object] = {"context_size": 512, "prefix_cache_bytes": 0, "self_test": False}

WINDOWED = ("sliding", "hybrid_sliding")

# States of these go back only where a snapshot was taken.
STATEFUL = ("recurrent", "rwkv", "hybrid", "hybrid_sliding")


@dataclass(frozen=True)
class Kind:
    """A way to remember: a model and the load options that decide how its memory is laid out."""

    model: str
    unified: bool = False
    sliding: bool = False

    @property
    def options(self) -> dict[str, object]:
        return {"unified_cache": self.unified, "sliding_cache": self.sliding}

    def __str__(self) -> str:
        return self.model + "-unified" * self.unified + "-window" * self.sliding


KINDS = [
    Kind(model, unified, sliding)
    for model in MODELS
    for unified in (False, True)
    for sliding in ((False, True) if model in WINDOWED else (False,))
]

each_kind = pytest.mark.parametrize("kind", KINDS, ids=str)
each_model = pytest.mark.parametrize("model", MODELS)


def words(seed: int, count: int) -> str:
    """Random letters, one token each."""
    random = Random(seed)
    return "".join(random.choice(ascii_letters) for _ in range(count))


def assert_same(model: str, answer: Result, expected: Result) -> None:
    """The same tokens with the same log probabilities.

    Batches of another shape round in another way. Where the two likeliest tokens are closer than that,
    either is right, and what follows cannot be compared.
    """
    tolerance = TOLERANCES[model]
    assert answer.logprobs is not None
    assert expected.logprobs is not None
    assert len(answer.token_ids) == len(answer.logprobs)
    for index, (got, wanted) in enumerate(zip(answer.logprobs, expected.logprobs, strict=False)):
        first, second = wanted.top
        if got.token_id != wanted.token_id:
            assert got.token_id == second.token_id, f"another token at {index}"
            assert first.logprob - second.logprob < 2 * tolerance, f"another token at {index}"
            return
        assert abs(got.logprob - wanted.logprob) < tolerance, f"another log probability at {index}"
    assert answer.token_ids == expected.token_ids


# Cold answers by model, seed, prompt and length: the same for every kind of cache.
_KNOWN: dict[tuple[str, int, str, int], Result] = {}


class Bench:
    """Opens engines on the models, and knows what each of them answers when it remembers nothing."""

    def __init__(self, library: Path, folder: Path, stack: ExitStack) -> None:
        self.library = library
        self.folder = folder
        self.stack = stack
        self.known = _KNOWN

    def path(self, model: str, seed: int = 1) -> Path:
        path = self.folder / f"{model}-{seed}.gguf"
        return path if path.exists() else memory_model(model, seed).write(path)

    def open(self, kind: Kind, **options: object) -> Engine:
        return self.open_file(self.path(kind.model), **kind.options, **options)

    def open_file(self, path: Path, **options: object) -> Engine:
        defaults = {"threads": 1, "context_size": 512, "self_test": False}
        return self.stack.enter_context(Engine(path, defaults | options, library=self.library))

    def check(self, kind: Kind, answer: Result, prompt: str, *, tokens: int = TOKENS) -> None:
        """Fails unless this is the answer of an engine that remembers nothing."""
        assert_same(kind.model, answer, self.cold(kind.model, prompt, tokens=tokens))

    def cold(self, model: str, prompt: str, *, seed: int = 1, tokens: int = TOKENS) -> Result:
        """The answer of an engine that was opened for this prompt."""
        key = (model, seed, prompt, tokens)
        if key not in self.known:
            options = {"threads": 1, **BLANK}
            with Engine(self.path(model, seed), options, library=self.library) as engine:
                self.known[key] = engine.query(prompt, OPTIONS | {"max_tokens": tokens}).result()
                assert self.known[key].usage.cached_tokens == 0
        return self.known[key]


@pytest.fixture(scope="session")
def memory_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the models are written, once."""
    return tmp_path_factory.mktemp("memory")


@pytest.fixture
def bench(library_path: Path, memory_folder: Path) -> Iterator[Bench]:
    """Whatever it opens is closed when the test ends."""
    with ExitStack() as stack:
        yield Bench(library_path, memory_folder, stack)


def ask(engine: Engine, prompt: str, key: str = "", **options: object) -> Result:
    return start(engine, prompt, key, **options).result()


def start(engine: Engine, prompt: str, key: str = "", **options: object) -> Run:
    return engine.query(prompt, OPTIONS | {"context_key": key} | options)


def source(result: Result) -> str:
    """Which memory served the beginning of the prompt."""
    told = str(result.stats["cache"]["source"])
    assert result.stats["cache"]["tokens"] == result.usage.cached_tokens
    return told
