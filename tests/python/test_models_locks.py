"""headrace/models/locks.py: threads and processes that exclude each other, and the death of a holder."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.models.locks import Locks
from tests.python.store_cases import Program, assert_refused, wait_until

HOLD = """
import sys, time
from pathlib import Path
from headrace.models.locks import Locks
with Locks(Path(sys.argv[1])).hold("a"):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def locks(tmp_path: Path) -> Locks:
    return Locks(tmp_path)


def taken(action: Callable[[], object]) -> bool:
    return assert_refused("model_in_use", action).detail["lock"] == "a"


def test_an_exclusive_lock_is_held_by_one(locks: Locks) -> None:
    with locks.hold("a"):
        assert taken(lambda: locks.hold("a", wait=False).__enter__())
        assert taken(lambda: locks.hold("a", shared=True, wait=False).__enter__())
        assert locks.is_held("a")
        assert not locks.is_held("b")
    assert not locks.is_held("a")


def test_shared_locks_are_held_together(locks: Locks) -> None:
    with locks.hold("a", shared=True), locks.hold("a", shared=True, wait=False):
        assert taken(lambda: locks.hold("a", wait=False).__enter__())
        assert locks.is_held("a")
    assert not locks.is_held("a")


def test_a_waiting_one_is_told_and_can_be_cancelled(locks: Locks) -> None:
    cancel, waits = threading.Event(), []

    def on_wait() -> None:
        waits.append(1)
        if len(waits) == 3:
            cancel.set()

    with locks.hold("a"):
        assert_refused("cancelled", lambda: locks.hold("a", cancel=cancel, on_wait=on_wait).__enter__())
    assert len(waits) == 3


def test_d8_the_death_of_the_holder_frees(locks: Locks, tmp_path: Path) -> None:
    program = Program(HOLD, str(tmp_path))
    assert program.process.stdout is not None
    assert program.process.stdout.readline() == "held\n"
    assert locks.is_held("a")
    program.kill()
    with locks.hold("a", wait=False):
        pass


COUNT = """
import sys
from pathlib import Path
from headrace.models.locks import Locks
folder = Path(sys.argv[1])
for _ in range(60):
    with Locks(folder).hold("a"):
        number = int((folder / "number").read_text())
        (folder / "number").write_text(str(number + 1))
"""


def test_nobody_holds_a_lock_whose_file_has_gone(tmp_path: Path) -> None:
    (tmp_path / "number").write_text("0")
    programs = [Program(COUNT, str(tmp_path)) for _ in range(3)]
    for program in programs:
        program.output()
    assert (tmp_path / "number").read_text() == "180"


def test_a_program_that_is_started_does_not_inherit_it(locks: Locks) -> None:
    with locks.hold("a"):
        program = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], close_fds=False)
        time.sleep(0.1)
    try:
        assert not locks.is_held("a")
    finally:
        program.kill()
        program.wait()


def test_waiting_ends_when_it_is_free(locks: Locks) -> None:
    got: list[float] = []

    def wait() -> None:
        with locks.hold("a"):
            got.append(time.monotonic())

    with locks.hold("a"):
        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.2)
        assert got == []
    wait_until(lambda: bool(got), 2)
    thread.join()
