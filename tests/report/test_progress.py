"""Progress: what is said, where, and that nobody waits for it."""

from __future__ import annotations

import io
import time

import pytest

from partirvm.core.updates import StepInfo
from partirvm.jobs.driver import Watcher
from partirvm.report.live import LiveProgress
from partirvm.report.progress import PlainProgress, Progress, progress_for
from partirvm.report.remaining import Remaining


class Screen(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class SomePlan:
    """What progress asks of a plan."""

    max_rounds, strategy, rounds = None, "working-set", ()

    def to_json(self):
        return {
            "rows": 1000,
            "features": 2,
            "tiles": 4,
            "strategy": "working-set",
            "partition_size": 50,
            "max_rounds": None,
            "workers": 1,
            "threads": 1,
            "memory_peak": 1 << 28,
            "memory_limit": 1 << 29,
            "seconds": 10.0,
        }


ENTRY = {
    "kind": "round",
    "number": 1,
    "rows": 1000,
    "candidates": 50,
    "vectors": 25,
    "train_rmse": 0.5,
    "held_out_rmse": None,
    "log_evidence": -10.0,
    "seconds": 1.0,
    "passes": 1,
    "pass_seconds": 0.5,
    "peak_memory": 1 << 28,
}


def play(progress: Progress) -> None:
    """A fit of one round, then reading, then a prediction."""
    progress.on_plan(SomePlan())
    for done in range(1, 5):
        progress.on_tiles("gram", done, 4, 1000)
    progress.on_step(StepInfo(1, 40, 10, -20.0, 1.0, 0.1), 50)
    progress.on_record(ENTRY)
    progress.on_rows("read", 1000, None)
    progress.on_rows("write", 1000, 1000)
    progress.on_tile("predict", 4, 4)
    progress.note("a word in between")


@pytest.fixture(params=["quiet", "plain", "live"])
def progress(request, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = Screen() if request.param == "live" else io.StringIO()
    return progress_for(stream, quiet=request.param == "quiet")


def test_every_progress_hears_everything(progress):
    with progress as inside:
        assert inside is progress
        play(progress)
        assert isinstance(progress, Watcher)
    assert progress.rounds == 1
    progress.close()


def test_errors_pass_through(progress):
    with pytest.raises(ZeroDivisionError), progress:
        progress.on_rows("read", 1 // 0, None)


def test_the_stream_decides(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    assert type(progress_for(io.StringIO())) is PlainProgress
    assert type(progress_for(Screen())) is LiveProgress
    assert type(progress_for(Screen(), quiet=True)) is Progress


def test_plain_lines():
    stream = io.StringIO()
    with PlainProgress(stream) as progress:
        play(progress)
    lines = stream.getvalue().splitlines()
    assert [line.split()[0] for line in lines] == [
        *("1,000", "1", "round", "1"),
        *("reading", "writing", "predicting", "a"),
    ]
    assert "\x1b" not in stream.getvalue()


def test_one_is_no_plural():
    """Plain lines and the live panel; columns stay aligned."""
    stream, screen = io.StringIO(), Screen()
    with PlainProgress(stream) as progress:
        progress.on_rows("read", 1, None)
        progress.on_rows("write", 2, 2)
        progress.on_tile("predict", 1, 1)
        progress.on_tile("evaluate", 2, 2)
    lines = stream.getvalue().splitlines()
    assert [line.split()[1:3] for line in lines] == [["1", "row"], ["2", "rows"], ["1", "tile"], ["2", "tiles"]]
    assert {line.index(line.split()[2]) for line in lines} == {24}
    assert len({len(line) for line in lines[2:]}) == 1
    with LiveProgress(screen) as live:
        live.on_tile("predict", 1, 1)
    assert "1 of 1 tile " in screen.getvalue()


def test_plain_lines_have_a_heartbeat(monkeypatch):
    """A long pass says where it stands, once a minute."""
    clock = iter(range(0, 10_000, 25))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    stream = io.StringIO()
    with PlainProgress(stream) as progress:
        for done in range(1, 8):
            progress.on_tiles("gram", done, 10, 1000)
    assert stream.getvalue().splitlines() == [
        "kernel products: 3 of 10 tiles",
        "kernel products: 6 of 10 tiles",
    ]


def test_hearing_takes_no_time(monkeypatch):
    """A hundred thousand tiles in far less than the drawing of a hundred thousand panels would take."""
    monkeypatch.setenv("TERM", "xterm")
    began = time.perf_counter()
    with LiveProgress(Screen()) as progress:
        progress.on_plan(SomePlan())
        for done in range(100_000):
            progress.on_tiles("gram", done, 100_000, 1_000_000)
    assert time.perf_counter() - began < 5


class Cost:
    def __init__(self, pass_seconds: float, passes: int, solve_seconds: float) -> None:
        self.pass_seconds, self.passes, self.solve_seconds = pass_seconds, passes, solve_seconds


class TwoRounds:
    """Plans 10 s in a first round (two passes of 4 s, 2 s dense) and 30 s in a second."""

    max_rounds, strategy, rounds = 2, "working-set", (Cost(8.0, 2, 2.0), Cost(20.0, 2, 10.0))


def test_time_left_scales_the_plan():
    """Twice as slow as planned: after 4 of 40 planned seconds took 8, the other 36 will take 72."""
    remaining = Remaining.of(TwoRounds())
    remaining.began = 100.0
    assert remaining.seconds(now=100.0) is None
    remaining.on_tiles(5, 10)
    remaining.on_tiles(10, 10)
    assert remaining.seconds(now=108.0) == pytest.approx(72.0)
    remaining.on_tiles(1, 10)
    remaining.on_tiles(5, 10)
    assert remaining.seconds(now=112.0) == pytest.approx(12.0 / 6.0 * 34.0)
    remaining.on_round()
    assert remaining.seconds(now=120.0) == pytest.approx(60.0)
    remaining.on_round()
    assert remaining.seconds(now=180.0) is None


def test_time_left_is_unknown_without_a_number_of_rounds():
    remaining = Remaining.of(SomePlan())
    remaining.on_tiles(4, 4)
    assert remaining.seconds() is None
