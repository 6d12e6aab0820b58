"""The one error of the build: a step that cannot go on, told so that a newcomer knows what to try.

Counterpart: `steps.py`, which adds the step and its log and prints the error. Not `headrace.errors`, the
errors of the engine and its clients.
"""

from collections.abc import Sequence
from pathlib import Path


class StepError(Exception):
    """A step failed for a reason that can be told in one sentence.

    message: what failed and why.
    hint: what to try; empty if nothing better is known than reading the log.
    lines: the lines of a command's output that tell the reason.
    step, log: filled in by the step runner.
    """

    def __init__(self, message: str, *, hint: str = "", lines: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.lines = tuple(lines)
        self.step = ""
        self.log: Path | None = None
