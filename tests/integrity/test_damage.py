"""Random damage to models, DATA and jobs gives a named error, or the same bits as the intact
folder.

    python -m pytest -m slow tests/integrity/test_damage.py     # 300 damages

Rows were appended to DATA twice, and the job was resumed.
"""

import random
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from numpy.random import default_rng

from partirvm import RVMClassifier, ingest, jobs, load_model, predict, save_model
from partirvm.cli import main
from partirvm.data import ZarrSource
from partirvm.errors import PartirvmError
from partirvm.jobs import JobStore
from partirvm.options import Request

REQUEST = Request(
    gamma=0.5, partition_size=16, selection="error", strategy="working-set", max_rounds=1
)

LIMIT = 120
"""Time limit of one case in seconds."""


def rows(n, seed):
    """Return inputs (n, 3), the last a code of three, targets (n,) and weights (n,)."""
    rng = default_rng(seed)
    X = np.column_stack([rng.normal(size=(n, 2)), rng.integers(0, 3, n)])
    return X, np.sin(2 * X[:, 0]) + X[:, 2] + 0.1 * rng.normal(size=n), rng.uniform(0.5, 2.0, n)


def flip(path, rng):
    """Flip one bit."""
    content = bytearray(path.read_bytes())
    if content:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        path.write_bytes(bytes(content))


def cut(path, rng):
    """Keep only the beginning."""
    content = path.read_bytes()
    path.write_bytes(content[: rng.randrange(len(content))] if content else b"")


def delete(path, rng):
    """Remove the file."""
    path.unlink()


def swap(path, rng):
    """Exchange two files with the same name or in the same folder."""
    root = next(folder for folder in path.parents if folder.parent.name == "case")
    alike = (
        other for other in files(root) if (other.name == path.name) | (other.parent == path.parent)
    )
    if candidates := [other for other in alike if other != path]:
        other = rng.choice(candidates)
        content = path.read_bytes()
        path.write_bytes(other.read_bytes())
        other.write_bytes(content)


def add(path, rng):
    """Add a file that does not belong there: JSON under another name, or garbage."""
    names = [f"{10**12}.json", "999999-999999.json", "000009.json", "x.json", "zarr.json.bak"]
    stray = path.parent / rng.choice([*names, ".hidden", "7"])
    if not stray.exists():
        contents = [path.read_bytes(), b"{}", b"[]", b'{"a": 1}\n', b"\0" * 9, b""]
        stray.write_bytes(rng.choice(contents))


DAMAGES = (flip, cut, delete, swap, add)


def of_model(place):
    """Return predictions and attributes of a stored classifier."""
    model = load_model(place)
    X = rows(50, 9)[0]
    attributes = (
        model.get_params()["gamma"],
        model.log_evidence_,
        model.history_,
        model.termination_,
    )
    return model.predict(X).tobytes(), model.predict_proba(X).tobytes(), attributes


def of_data(place):
    """Return everything that a fit may read: every array and all attributes."""
    source = ZarrSource(place)
    source.verify()
    tiles = [source.tile(number) for number in range(source.n_tiles)]
    values = [(tile.X.tobytes(), tile.t.tobytes(), tile.weights.tobytes()) for tile in tiles]
    order = [source.original_rows(number).tolist() for number in range(source.n_tiles)]
    attributes = source.columns, source.fingerprint(), str(source.moments), source.seed
    return values, order, attributes, source.tile_rows


def of_job(place):
    """Return the status, the history, the scores of the model, and its digest."""
    state = JobStore(place).state()
    lines = [{key: value for key, value in line.items() if key != "time"} for line in state.history]
    scores = predict.evaluate(str(place), str(place.with_name("train.zarr")))
    return state.status, lines, scores, JobStore(place).model().digest()


def of_resumed(place):
    """Return the digest of the model after a resume."""
    attempt = jobs.Job(str(place)).requeue(max_rounds=3).attempt
    return jobs.run_job(str(place), attempt=attempt, patience=0.0).model.digest()


READERS = {"classifier": (of_model,), "train.zarr": (of_data,), "job": (of_job, of_resumed)}


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """Return a folder whose parts are damaged and restored; ``intact`` next to it is not
    changed."""
    top = tmp_path_factory.mktemp("damage")
    folder = top / "case"
    folder.mkdir()
    X, y, w = rows(300, 0)
    labels = np.array(["a", "b", "c"])[np.int64(X[:, 2])]
    classifier = RVMClassifier(gamma=0.5, partition_size=16, max_rounds=1, random_state=0)
    save_model(classifier.fit(X, labels), folder / "classifier")
    data = folder / "train.zarr"
    ingest((X[:220], y[:220], w[:220]), data, tile_rows=64, shuffle=3)
    for part in (slice(220, 260), slice(260, None)):
        ingest((X[part], y[part], w[part]), data, append=True, shuffle=3)
    job = str(folder / "job")
    jobs.fit(str(data), job, REQUEST)
    jobs.run_job(job, attempt=jobs.Job(job).requeue(max_rounds=2).attempt)
    shutil.copytree(folder, top / "intact")
    return folder


def files(place):
    """Return all files below a folder."""
    return sorted(path for path in Path(place).rglob("*") if path.is_file())


def restore(case):
    """Restore all parts."""
    shutil.rmtree(case)
    shutil.copytree(case.with_name("intact"), case)


def outcome_of(act, expected):
    """Return the outcome of a reader; only "same bits" and "named error" are allowed."""
    outcome = ["hang"]

    def run():
        try:
            outcome[0] = "same bits" if act() == expected else "other bits"
        except PartirvmError as error:
            short = len(str(error).splitlines()) <= 3
            outcome[0] = "named error" if short else f"long message: {error}"
        except Exception as error:
            outcome[0] = f"raw {type(error).__name__}: {error}"

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LIMIT)
    return outcome[0]


def check(case, count, seed):
    """Damage one file at a time, and read it with all readers."""
    rng = random.Random(seed)
    outcomes = set()
    wrong = []
    expected = {}
    for name, readers in READERS.items():
        for reader in readers:
            expected[reader] = reader(case / name)
            restore(case)
    for number in range(count):
        name = list(READERS)[number % 3]
        damage = DAMAGES[number % 5]
        path = rng.choice(files(case / name))
        seeds = rng.random()
        for reader in READERS[name]:
            damage(path, random.Random(seeds))
            outcome = outcome_of(
                lambda reader=reader, name=name: reader(case / name), expected[reader]
            )
            outcomes.add(outcome)
            about = f"{damage.__name__} {path.relative_to(case)} ({number})"
            if outcome not in ("same bits", "named error"):
                wrong.append(f"{about}, {reader.__name__}: {outcome}")
            if name == "job" and main(["status", str(case / name)]) not in (0, 2):
                wrong.append(f"{about}: status")
            restore(case)
    assert not wrong, "\n".join(wrong)
    assert "named error" in outcomes


def test_damage_gives_a_named_error_or_the_same_bits(case):
    check(case, 15, 15)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(16, 19))
def test_many_damages_give_named_errors_or_the_same_bits(seed, case):
    check(case, 100, seed)
