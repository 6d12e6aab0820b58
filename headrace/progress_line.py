"""How far a transfer is, on stderr: a bar that moves in a terminal, else a line now and then.

Counterpart: the bars of `web/playground/`. Not where the figures come from: `headrace/models/progress.py`.
"""

import shutil
import sys
import time
from typing import TextIO

from headrace.models.progress import Progress

_LINE_SECONDS = 5.0
_BAR_CELLS = 24
_DOING = {"wait": "waiting", "download": "downloading", "import": "importing", "verify": "verifying"}


class ProgressLine:
    """To be called with each `Progress`; `end` when there are no more."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._moves = self._stream.isatty()
        self._told = time.monotonic()
        self._shown = False
        self.last: Progress | None = None

    def __call__(self, progress: Progress) -> None:
        self.last = progress
        now = time.monotonic()
        if self._moves:
            columns = shutil.get_terminal_size().columns - 1
            self._write(f"\r{progress_text(progress, bar=True)[:columns]}\x1b[K")
            self._shown = True
        elif now - self._told >= _LINE_SECONDS:
            self._told = now
            self._write(progress_text(progress) + "\n")

    def end(self) -> None:
        """Leaves the bar as it is, and goes to the next line."""
        if self._shown:
            self._write("\n")
            self._shown = False

    def say(self, sentence: str) -> None:
        """On a line of its own."""
        self.end()
        self._write(sentence + "\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def progress_text(progress: Progress, *, bar: bool = False) -> str:
    """One line; what is not known is left out."""
    total = progress.total
    words = [_DOING[progress.phase]]
    if bar and total:
        full = _BAR_CELLS * progress.loaded // total
        words.append(f"[{'#' * full}{'.' * (_BAR_CELLS - full)}]")
    words.append(bytes_text(progress.loaded) + (f" of {bytes_text(total)}" if total is not None else ""))
    if progress.bytes_per_second is not None:
        words.append(f"{bytes_text(progress.bytes_per_second)}/s")
    if progress.seconds_left is not None and total != progress.loaded:
        words.append(f"{_duration(progress.seconds_left)} left")
    return " ".join(words)


def bytes_text(count: float) -> str:
    """In units of 1000, as disks are sold: `1.2 GB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
