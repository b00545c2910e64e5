"""Progress: its lines, where they appear, and that a fit never waits for them."""

import io
import math
import re
import threading
import time
from types import SimpleNamespace

import pytest
from histories import plan, round_of

from partirvm.core import StepInfo
from partirvm.quoting import format_bytes
from partirvm.report.progress import Progress


class Screen(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self):
        return True


class SomePlan:
    """The parts of a plan that progress uses."""

    machine = SimpleNamespace(limit=plan()["memory_limit"])

    def __str__(self):
        return plan()["text"]


ENTRY = round_of()


def play(progress):
    """Play the events of a fit of one round, then of reading, then of a prediction."""
    progress.on_plan(SomePlan())
    for done in range(1, 5):
        progress.on_tiles("gram", done, 4)
    progress.on_step(StepInfo(1, 40, 10, -20.0, 1.0, 0.1))
    progress.on_record(ENTRY)
    progress.on_rows("read", 1000, None)
    progress.on_rows("write", 1000, 1000)
    progress.on_tiles("predicting", 4, 4)
    progress.note("a word in between")


def test_plain_lines_show_plan_rounds_and_notes():
    stream = io.StringIO()
    with Progress(stream) as progress:
        play(progress)
    lines = stream.getvalue().splitlines()
    assert [line.split()[0] for line in lines] == ["data", "round", "1", "a"]
    stream = io.StringIO()
    with Progress(stream, details=True) as progress:
        play(progress)
    assert "work  " in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


@pytest.mark.parametrize(
    ("event", "lines"),
    [
        (lambda seen, done: seen.on_tiles("gram", done, 10), "kernel products: {} of 10 tiles"),
        (
            lambda seen, done: seen.on_tiles("solve", done, 46),
            "fits of candidate rows: {} of 46 fits",
        ),
        (lambda seen, done: seen.on_rows("read", done, None), "reading: {} rows"),
        (lambda seen, done: seen.on_learning(done, 6, "a"), "learning the kernel: {} of 6 stages"),
    ],
)
def test_plain_lines_have_a_heartbeat(monkeypatch, event, lines):
    """A long phase has a line every minute."""
    now, stream = [0.0], io.StringIO()
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with Progress(stream) as progress:
        for done in range(1, 8):
            now[0] += 25.0
            event(progress, done)
        said = stream.getvalue().splitlines()
    assert said == [lines.format(3), lines.format(6)]


def test_events_do_not_draw_in_the_thread_of_the_fit(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    drawn = []

    class Noting(Progress):
        def state(self):
            drawn.append(threading.get_ident())
            return super().state()

    with Noting(Screen()) as progress:
        progress.on_plan(SomePlan())
        before = drawn.count(threading.get_ident())
        for done in range(100_000):
            progress.on_tiles("gram", done, 100_000)
        assert drawn.count(threading.get_ident()) == before
    assert len(drawn) > before


def merge(progress):
    """Play the events of a split-merge fit with a measured partition size."""
    progress.on_plan(SomePlan())
    sizes = {"rows": 45, "vectors": 5, "partition_size": 250, "heuristic_size": 9}
    progress.on_record({**ENTRY, "kind": "heuristic", **sizes})
    for level, fits in enumerate((4, 2)):
        progress.on_tiles("gram", 4, 4)
        for done in range(fits + 1):
            progress.on_tiles("solve", done, fits)
        for number in range(1, fits + 1):
            part = {"kind": "part", "level": level, "candidates": 100 * number, "vectors": 50}
            line = round_of(number, 1.5 * (level + 1), **part, saved=number == 2)
            progress.on_record(line)
    progress.on_record({**ENTRY, "kind": "final", "seconds": 4.0})


def test_parts_that_leave_a_model_have_a_line():
    """The heuristic has no line; the table begins with the last fit."""
    stream = io.StringIO()
    with Progress(stream) as progress:
        merge(progress)
    lines = stream.getvalue().splitlines()[1:]
    assert lines[:2] == [
        "level 0, 2: 200 candidates → 50 vectors, 1.5 s",
        "level 1, 2: 200 candidates → 50 vectors, 3.0 s",
    ]
    assert [line.split()[0] for line in lines[2:]] == ["round", "final"]


def _drawn(progress):
    """Return the live view as text."""
    console = progress._live.console
    with console.capture() as capture:
        console.print(progress.state())
    return re.sub("\x1b\\[[0-9;?]*[a-zA-Z]", "", capture.get())


@pytest.mark.parametrize("columns", [80, 120])
def test_the_live_view_fits_the_terminal_width(monkeypatch, columns):
    """Levels are above; phase, fraction done, time and memory are below."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns))
    screen = Screen()
    with Progress(screen) as progress:
        merge(progress)
        progress.began -= 100_000.0
        progress.on_tiles("solve", 12, 46)
        text = _drawn(progress)
    assert max(len(line) for line in text.splitlines()) <= columns
    for part in ("fits of candidate rows", "12 of 46 fits", "27 h 46 min", "25 vectors"):
        assert part in text
    assert f" of {format_bytes(SomePlan.machine.limit)}" in " ".join(text.split())
    assert "level 0, 2: 200 candidates" in screen.getvalue()


def test_the_live_view_counts_newton_passes(monkeypatch):
    """A classification iteration has no noise variance."""
    monkeypatch.setenv("TERM", "xterm")
    with Progress(Screen()) as progress:
        progress.on_tiles("newton", 1, 4)
        assert "fitting probabilities" in _drawn(progress)
        progress.on_step(StepInfo(6, 20, 0, -120.0, math.nan, math.nan))
        text = _drawn(progress)
        assert "1 of 4 tiles" in text
        assert "20 vectors" in text
        progress.on_step(StepInfo(3, 20, 0, -1.0, 0.1, 0.2))
        assert "choosing relevance vectors, step 3" in _drawn(progress)
