"""What a person sees while steps run: a line that is rewritten on a terminal, a rare line elsewhere.

Counterpart: `steps.py`. Also reads the progress that ninja, pip and apt print. Not the log: that is a file.
"""

import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TextIO

_NINJA = re.compile(r"^\[(\d+)/(\d+)\] (.*)$")
_PIP = re.compile(r"^Progress (\d+) of (\d+)$")
_APT = re.compile(r"^(?:dl|pm)status:([^:]*):([0-9.]+):(.*)$")


def ninja_progress(line: str) -> str | None:
    """`[12/118] Building CXX object …/x.cpp.o` as "12/118 files, x.cpp"; None for any other line."""
    if (match := _NINJA.match(line)) is None:
        return None
    done, total, what = match.groups()
    name = what.split()[-1].rsplit("/", 1)[-1].removesuffix(".o") if what.split() else ""
    return f"{done}/{total} files, {name}"


def pip_progress(line: str) -> str | None:
    """pip's raw progress (`Progress N of TOTAL`, bytes) as "12.0 of 76.6 MB"; None for any other line."""
    if (match := _PIP.match(line)) is None:
        return None
    done, total = (int(group) / 1e6 for group in match.groups())
    return f"{done:.1f} of {total:.1f} MB" if total else f"{done:.1f} MB"


def apt_progress(line: str) -> str | None:
    """A line of apt's status stream as "42 %, Unpacking x"; None for any other line."""
    if (match := _APT.match(line)) is None:
        return None
    return f"{float(match[2]):.0f} %, {match[3].strip()}"


@dataclass
class Reporter:
    """Writes lines and progress to one stream.

    interval: seconds between two progress lines where the stream is not a terminal.
    """

    stream: TextIO
    interval: float = 10.0
    clock: Callable[[], float] = time.monotonic
    _last: float = field(default=0.0, init=False)
    _drawn: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._terminal = self.stream.isatty()
        self._last = self.clock()

    def line(self, text: str) -> None:
        """Writes a line that stays, and starts the waiting time of the next progress line anew."""
        if self._drawn:
            self.stream.write("\r\x1b[K")
            self._drawn = False
        self.stream.write(text + "\n")
        self.stream.flush()
        self._last = self.clock()

    def progress(self, text: str) -> None:
        """Shows how far something has come; may be called as often as one likes."""
        now = self.clock()
        if now - self._last < (0.1 if self._terminal else self.interval):
            return
        self._last = now
        if self._terminal:
            width = shutil.get_terminal_size().columns - 1
            self.stream.write(f"\r\x1b[K{text[:width]}")
            self._drawn = True
        else:
            self.stream.write(text + "\n")
        self.stream.flush()
