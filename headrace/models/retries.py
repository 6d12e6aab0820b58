"""When a download asks again, and when it gives up.

Counterpart: `web/models/download.js`, the same rules. Asks for nothing itself: `download.py`.
"""

import asyncio
import random
from dataclasses import dataclass, field

from headrace.models.partial import SplitSizes

_MOST_RETRY_AFTER_SECONDS = 300.0


@dataclass(frozen=True)
class DownloadLimits:
    """How downloads behave. Sizes in bytes, times in seconds; the defaults are for real life."""

    connections: int = 4
    gap_bytes: int = 16 << 20
    journal_bytes: int = 512 << 10
    stall_seconds: float = 30.0
    backoff_seconds: float = 0.25
    most_backoff_seconds: float = 8.0
    most_failures: int = 8
    sizes: SplitSizes = field(default_factory=SplitSizes)


class Transient(Exception):
    """Worth another try. Its message is why this one failed; `retry_after` is in seconds."""

    def __init__(self, reason: str, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.retry_after = retry_after


class GivenUp(Exception):
    """One failure too many; its message says of which kind."""

    def __init__(self, reason: str, status: int | None) -> None:
        super().__init__(reason)
        self.status = status


class Retries:
    """Failures in a row, of all connections of a download together."""

    def __init__(self, limits: DownloadLimits) -> None:
        self._limits = limits
        self._failures = 0
        self._turn = asyncio.Lock()
        self.arrived = 0

    def progress(self, count: int) -> None:
        """So many new bytes have come."""
        self.arrived += count
        self._failures = 0

    async def wait(self, reason: Transient) -> None:
        """Waits until the request that failed may be made again; raises GivenUp."""
        arrived = self.arrived
        # One after another: if the server has recovered, the first to try again finds out for all.
        async with self._turn:
            if self.arrived > arrived:
                return
            self._failures += 1
            limits = self._limits
            if self._failures >= limits.most_failures:
                raise GivenUp(str(reason), reason.status)
            delay = min(limits.backoff_seconds * 2 ** (self._failures - 1), limits.most_backoff_seconds)
            delay *= random.uniform(0.5, 1)
            if reason.retry_after is not None:
                if reason.retry_after > _MOST_RETRY_AFTER_SECONDS:
                    raise GivenUp(f"{reason}, and wants no request for long", reason.status)
                delay = max(delay, reason.retry_after)
            await asyncio.sleep(delay)
