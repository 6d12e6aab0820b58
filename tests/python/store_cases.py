"""What the tests of headrace/models/ share: a server, stores that lose no time, models to publish.

Counterpart: `tests/browser/downloads.py`, the same for pages.
"""

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from headrace.errors import HeadraceError
from headrace.models import Manifest, ModelStore, Progress
from headrace.models.partial import SplitSizes
from headrace.models.retries import DownloadLimits

MIB = 1 << 20
REPO_ROOT = Path(__file__).resolve().parents[2]
QUICK = DownloadLimits(backoff_seconds=0.01, stall_seconds=0.5)
# Of a model of 15 MiB, some shards.
SPLIT = DownloadLimits(
    backoff_seconds=0.01, stall_seconds=0.5, sizes=SplitSizes(max_whole_bytes=8 * MIB, shard_bytes=4 * MIB)
)


class Published(NamedTuple):
    """A model that is served, and what must arrive of it."""

    path: Path
    size: int
    sha256: str

    @classmethod
    def of(cls, path: Path) -> "Published":
        with path.open("rb") as file:
            return cls(path, path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())

    @property
    def data(self) -> bytes:
        return self.path.read_bytes()


def assert_stored(store: ModelStore, model: Manifest, published: Published) -> None:
    """It came whole, is kept under the name that its bytes have, and nothing else is left."""
    assert model.id == f"sha256-{published.sha256}"
    assert [(part.sha256, part.size) for part in model.parts] == [(published.sha256, published.size)]
    names = {path.name for path in store.folder.iterdir() if path.is_file()}
    assert names >= {model.file_name, *(file.stored_name for file in model.files)}
    assert not [name for name in names if name.startswith(("partial-", "."))]
    for file in model.files:
        assert hashlib.sha256((store.folder / file.stored_name).read_bytes()).hexdigest() == file.sha256


def assert_refused(code: str, action: Callable[[], object]) -> HeadraceError:
    """It fails with this code, in one sentence."""
    with pytest.raises(HeadraceError) as caught:
        action()
    error = caught.value
    assert error.code == code, error
    assert "\n" not in error.message
    assert len(error.message) < 400
    return error


def assert_honest(seen: list[Progress]) -> None:
    """Nothing goes backwards or past its end, and nothing is told more often than ten times a second."""
    assert seen
    for before, after in pairwise(seen):
        assert after.loaded >= before.loaded
    for progress in seen:
        assert progress.total is None or 0 <= progress.loaded <= progress.total
        assert progress.seconds_left is None or progress.seconds_left >= 0


def leftovers(store: ModelStore) -> list[str]:
    """Files of unfinished downloads."""
    return sorted(path.name for path in store.folder.glob("*partial-*"))


class Program:
    """A process of its own that runs Python, to be killed."""

    def __init__(self, code: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            cwd=REPO_ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def kill(self) -> None:
        """As the system does when memory is short: nothing is cleaned up."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.communicate()

    def output(self, seconds: float = 60) -> str:
        out, err = self.process.communicate(timeout=seconds)
        assert self.process.returncode == 0, err
        return out


def wait_until(condition: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.005)
