"""How far the store is with what it does, told at most ten times a second.

Counterpart: `StoreProgress` in `web/models/types.js`, `web/models/progress.js`. How it looks in a terminal is
told in `headrace/models_output.py`.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Phase = Literal["wait", "download", "import", "verify"]

_INTERVAL_SECONDS = 0.1
# A rate over less than this is noise, over more than that old news.
_LEAST_SECONDS, _MOST_SECONDS = 0.5, 10.0


@dataclass(frozen=True)
class Progress:
    """`loaded` counts bytes, those of earlier sessions included; `total` is None when nobody tells it.

    The phase `wait` is another process downloading the same (with its figures), or using it. The rate and
    what it promises are None while too little is known.
    """

    phase: Phase
    loaded: int
    total: int | None
    bytes_per_second: float | None = None
    seconds_left: float | None = None


OnProgress = Callable[[Progress], object]


class Meter:
    """Turns counts of bytes into `Progress`, rarely enough."""

    def __init__(
        self,
        phase: Phase,
        on_progress: OnProgress | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._phase = phase
        self._on_progress = on_progress
        self._clock = clock
        self._told = -_INTERVAL_SECONDS
        self._seen: deque[tuple[float, int]] = deque()

    def update(self, loaded: int, total: int | None, *, last: bool = False) -> None:
        """`last` is told whatever was told a moment ago."""
        if self._on_progress is None:
            return
        now = self._clock()
        if now - self._told < _INTERVAL_SECONDS and not last:
            return
        self._told = now
        if self._seen and loaded < self._seen[-1][1]:
            self._seen.clear()
        self._seen.append((now, loaded))
        while now - self._seen[0][0] > _MOST_SECONDS and len(self._seen) > 2:
            self._seen.popleft()
        rate = self._rate()
        left = (total - loaded) / rate if rate and total is not None else None
        self._on_progress(Progress(self._phase, loaded, total, rate, left))

    def _rate(self) -> float | None:
        (first_time, first_bytes), (last_time, last_bytes) = self._seen[0], self._seen[-1]
        seconds = last_time - first_time
        return (last_bytes - first_bytes) / seconds if seconds >= _LEAST_SECONDS else None
