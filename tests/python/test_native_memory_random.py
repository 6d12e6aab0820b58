"""A short storm on every kind of memory: whatever happened before, each answer is that of a blank engine.

Counterpart: all of `native/engine/kv_cache.cpp`, `prefix_store.cpp` and what llama.cpp does beneath. Single
steps: test_native_memory.py. The seed of a failure is in its message; HEADRACE_STORM_SEED repeats it,
HEADRACE_STORM_SECONDS makes it longer.
"""

import os
import time
from dataclasses import dataclass
from random import Random

from headrace.errors import HeadraceError
from headrace.run import Run
from tests.python.memory_cases import STATEFUL, Bench, Kind, bench, each_kind, memory_folder, start, words

__all__ = ["bench", "memory_folder"]

SECONDS = float(os.environ.get("HEADRACE_STORM_SECONDS", "0.5"))
SLOTS = 3
CONTEXT = 192


@dataclass
class Asked:
    """A request in flight: what it asks, and whether it was cancelled."""

    prompt: str
    tokens: int
    run: Run
    slides: bool = False
    cancelled: bool = False


class Storm:
    """Random requests from a tree of prompts that share beginnings, on an engine with little room."""

    def __init__(self, bench: Bench, kind: Kind, seed: int) -> None:
        self.bench = bench
        self.kind = kind
        self.random = Random(seed)
        self.prompts = [words(900 + number, 40) for number in range(3)]
        self.asked: list[Asked] = []
        self.checked = 0
        self.reused = 0
        self.slides = kind.model not in STATEFUL and not kind.sliding
        self.engine = bench.open(
            kind,
            slots=self.random.choice((1, 2, SLOTS)),
            context_size=CONTEXT,
            batch_size=self.random.choice((8, 32, 256)),
            prefix_cache_bytes=self.random.choice((30_000, 150_000, 600_000)),
            speculation=self.random.choice(("none", "prompt")),
            draft_tokens=3,
        )

    def prompt(self) -> str:
        """An old prompt, whole, cut or longer; sometimes with the answer that an engine gave to it."""
        base = self.random.choice(self.prompts)
        kind = self.random.random()
        if kind < 0.25:
            return base
        if kind < 0.5:
            base = base[: self.random.randint(1, len(base))]
        elif kind < 0.65:
            base += self.bench.cold(self.kind.model, base, tokens=24).text
        base += words(self.random.randrange(6), self.random.choice((1, 3, 20, 40)))
        base = base[: CONTEXT - 30]
        self.prompts = [*self.prompts[-7:], base]
        return base

    def ask(self) -> None:
        prompt, tokens = self.prompt(), self.random.choice((1, 2, 8, 24))
        key = self.random.choice(("", "a", "b", "c", "d"))
        slides = self.slides and self.random.random() < 0.1
        more: dict[str, object] = {"overflow": "shift", "max_tokens": 200} if slides else {}
        run = start(self.engine, prompt, key, **{"max_tokens": tokens} | more)
        self.asked.append(Asked(prompt, tokens, run, slides))

    def cancel(self) -> None:
        asked = self.random.choice(self.asked)
        asked.run.cancel()
        asked.cancelled = True

    def take(self) -> None:
        asked = self.asked.pop(self.random.randrange(len(self.asked)))
        result = asked.run.result()
        if result.finish_reason == "cancelled":
            assert asked.cancelled
            return
        self.reused += result.usage.cached_tokens
        if asked.slides:  # what follows must not be taken in by it
            assert len(result.token_ids) == 200
            return
        self.bench.check(self.kind, result, asked.prompt, tokens=asked.tokens)
        self.checked += 1

    def step(self) -> None:
        chance = self.random.random()
        if not self.asked or (chance < 0.55 and len(self.asked) < 2 * SLOTS):
            self.ask()
        elif chance < 0.62:
            self.cancel()
        else:
            self.take()


@each_kind
def test_every_answer_is_that_of_a_blank_engine(bench: Bench, kind: Kind) -> None:
    seed = int(os.environ.get("HEADRACE_STORM_SEED", "0")) or time.time_ns() % 1_000_000
    end = time.monotonic() + SECONDS
    checked = reused = storms = 0
    while time.monotonic() < end or (reused == 0 and storms < 10):
        storm = Storm(bench, kind, seed)
        try:
            for _ in range(150):
                storm.step()
            while storm.asked:
                storm.take()
        except (AssertionError, HeadraceError) as error:
            raise AssertionError(f"storm {seed} after {storm.checked} answers: {error}") from error
        storm.engine.close()
        checked, reused = checked + storm.checked, reused + storm.reused
        seed, storms = seed + 1, storms + 1
    assert reused > 0
    assert checked > 10
