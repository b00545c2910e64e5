"""No text of others reaches the terminal as a command to it, in results, warnings and errors."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

RED, QUIET = "\x1b[31m", "--quiet"


def plain(text: str) -> bool:
    return all(line.isprintable() for line in text.split("\n"))


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_names_and_labels_of_a_table(desk, cli):
    rows = "".join(f"1,{k},{RED}{'ab'[k % 2]}\r\n" for k in range(9))
    (desk / "t.csv").write_text(f"{RED}one,b,{RED}y\r\n{rows}", newline="")
    status, out, err = cli("ingest", "t.csv", "d.zarr", "--target", f"{RED}y", "--classes", QUIET)
    assert status == 0
    assert "\\x1b[31mone" in err  # a constant feature
    assert "\\x1b[31my (2 classes: \\x1b[31ma, \\x1b[31mb)" in out
    assert plain(out + err)
    status, out, err = cli("ingest", "t.csv", "e.zarr", "--target", "z", QUIET)
    assert status == 2
    assert "Its columns: \\x1b[31mone, b, \\x1b[31my" in err
    assert plain(err)


@pytest.mark.parametrize(
    "arguments",
    [
        ("ingest", f"{RED}\n.csv", "d.zarr"),
        ("plan", f"{RED}.zarr"),
        ("fit", f"{RED}.zarr", "job"),
        ("evaluate", f"{RED}job", "d.zarr"),
        ("predict", "job", "d.zarr", f"{RED}.txt"),
        (f"{RED}verb",),
        ("plan", "d.zarr", f"--{RED}"),
        ("plan", "d.zarr", "--max-rounds", f"{RED}"),
        ("plan", "\udcff.zarr"),
    ],
)
def test_names_on_the_command_line(arguments, desk, cli):
    status, out, err = cli(*arguments)
    assert (status, out) == (2, "")
    assert plain(err)
    assert "partirvm: error: " in err


DAMAGES = {
    "cut": lambda data, rng: data[: rng.randrange(len(data))],
    "flip": lambda data, rng: _flipped(data, rng.randrange(8 * len(data))),
    "deep": lambda data, rng: b"[" * 100_000,
    "empty": lambda data, rng: b"",
}


def _flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("verb", ["status", "report", "evaluate", "predict"])
@pytest.mark.parametrize("name", ["events/000001.json", "events/000003.json", "models/*/zarr.json", "spec.json"])
def test_a_damaged_job_is_an_error_of_the_input(name, verb, damage, tour, desk, cli):
    """Status 2 and the place where the damage matters, 0 where it does not; never a fault of the program."""
    shutil.copytree(tour.job, desk / "job")
    (place,) = sorted((desk / "job").glob(name))[-1:]
    rng = random.Random(f"{name} {verb} {damage}")
    whole = place.read_bytes()
    for _ in range(5 if damage in ("cut", "flip") else 1):
        place.write_bytes(DAMAGES[damage](whole, rng))
        rest = {
            "status": (),
            "report": ("r.html", "--overwrite"),
            "evaluate": (tour.test,),
            "predict": (tour.test, "p.csv", "--overwrite"),
        }
        status, _, err = cli(verb, "job", *rest[verb])
        assert status in (0, 2), err
        assert "fault of the program" not in err
        if status == 2:
            assert "job" in err.rpartition("partirvm: error: ")[2]


@pytest.mark.parametrize("name", ["time", "epoch", "event", "seconds", "number"])
@pytest.mark.parametrize("value", [None, "x", {}, 1e400])
def test_an_event_that_was_changed_is_named(name, value, tour, desk, cli):
    shutil.copytree(tour.job, desk / "job")
    place = desk / "job" / "events" / "000004.json"
    event = json.loads(place.read_text())
    assert name in event
    place.write_text(json.dumps({**event, name: value}, indent=1))
    for verb in (("status", "job"), ("report", "job", "r.html"), ("resume", "job", "--max-rounds", "4", QUIET)):
        status, _, err = cli(*verb)
        assert status == 2, err
        assert "events/000004.json: damaged" in err
