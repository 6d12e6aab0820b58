"""The program headrace_simulator as a Python object: scenarios in, outcomes out, one process for all.

Counterpart: native/simulator/scenario.h, which says what the members of a scenario mean. Used by
`scheduler.py` and by the property tests of the scheduler. Judges nothing.
"""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any


class SimulationError(Exception):
    """The scheduler asked for the impossible or stood still, or the scenario makes no sense."""


class Simulator:
    """A running simulator. Use it in a `with` block."""

    def __init__(self, program: Path) -> None:
        self._process = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
        )

    def run(self, scenario: Mapping[str, object]) -> dict[str, Any]:
        """What becomes of every request of a scenario. Raises SimulationError."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(scenario) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise SimulationError(f"the simulator has ended with status {process.wait()}")
        outcome: dict[str, Any] = json.loads(line)
        if error := outcome.get("error"):
            raise SimulationError(f"{error['message']} [{error['code']}]")
        return outcome

    def close(self) -> None:
        """Ends the process; closing twice is no error."""
        self._process.communicate()

    def __enter__(self) -> "Simulator":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
