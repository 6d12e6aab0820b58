"""What is read from other programs' progress, and how rarely it is shown without a terminal."""

import io

import pytest

from build_tools.progress import Reporter, apt_progress, ninja_progress, pip_progress


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("[12/118] Building CXX object CMakeFiles/x.dir/a/chat.cpp.o", "12/118 files, chat.cpp"),
        ("[118/118] Linking CXX executable artifacts/headrace-st.js", "118/118 files, headrace-st.js"),
        ("In file included from x.h", None),
        ("", None),
    ],
)
def test_ninja_progress(line: str, expected: str | None) -> None:
    assert ninja_progress(line) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Progress 12000000 of 76600000", "12.0 of 76.6 MB"),
        ("Progress 12000000 of 0", "12.0 MB"),
        ("Collecting x", None),
    ],
)
def test_pip_progress(line: str, expected: str | None) -> None:
    assert pip_progress(line) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("pmstatus:emscripten:42.5000:Unpacking emscripten (amd64)", "42 %, Unpacking emscripten (amd64)"),
        ("dlstatus:3:10.2:Retrieving file 3 of 190", "10 %, Retrieving file 3 of 190"),
        ("Setting up cmake ...", None),
    ],
)
def test_apt_progress(line: str, expected: str | None) -> None:
    assert apt_progress(line) == expected


def test_without_a_terminal_one_progress_line_per_interval() -> None:
    now = 100.0
    stream = io.StringIO()
    reporter = Reporter(stream, interval=10, clock=lambda: now)
    reporter.line("start")
    for _ in range(250):
        now += 0.1
        reporter.progress(f"at {now:.0f}")
    assert stream.getvalue() == "start\nat 110\nat 120\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_progress_is_one_line_that_is_rewritten() -> None:
    now = 100.0
    stream = Terminal()
    reporter = Reporter(stream, clock=lambda: now)
    for text in ("1/3", "2/3", "x" * 500):
        now += 1
        reporter.progress(text)
    reporter.line("done")
    assert "\n" not in stream.getvalue().removesuffix("\n")
    assert stream.getvalue().endswith("\r\x1b[Kdone\n")
    assert max(map(len, stream.getvalue().split("\r\x1b[K"))) < 500
