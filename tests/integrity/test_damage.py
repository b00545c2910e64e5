"""Random damage to models, DATA and jobs: a named error, or exactly the numbers of the intact
folder.

    python -m pytest -m slow tests/integrity/test_damage.py     # 300 damages

DATA have grown twice, and the job was resumed. No case may take more than ``LIMIT`` seconds.
"""

import random
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

from partirvm import RVMClassifier, ingest, jobs, load_model, predict, save_model
from partirvm.cli import main
from partirvm.data import ZarrSource
from partirvm.errors import PartirvmError
from partirvm.jobs.store import JobStore
from partirvm.options import Request

ASKED = Request(
    gamma=0.5, partition_size=16, selection="error", strategy="working-set", max_rounds=1
)

LIMIT = 120
"""Seconds of one case."""


def rows(n, seed):
    """Inputs (n, 3), the last a code of three, targets (n,) and weights (n,)."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=(n, 2)), rng.integers(0, 3, n)])
    return X, np.sin(2 * X[:, 0]) + X[:, 2] + 0.1 * rng.normal(size=n), rng.uniform(0.5, 2.0, n)


def flip(path, rng):
    """Flip one bit."""
    content = bytearray(path.read_bytes())
    if content:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        path.write_bytes(bytes(content))


def cut(path, rng):
    """Keep the beginning."""
    content = path.read_bytes()
    path.write_bytes(content[: rng.randrange(len(content))] if content else b"")


def delete(path, rng):
    """Remove the file."""
    path.unlink()


def swap(path, rng):
    """Two files of the same name or the same folder change places."""
    root = next(folder for folder in path.parents if folder.parent.name == "case")
    alike = (
        other for other in files(root) if (other.name == path.name) | (other.parent == path.parent)
    )
    if near := [other for other in alike if other != path]:
        other = rng.choice(near)
        content = path.read_bytes()
        path.write_bytes(other.read_bytes())
        other.write_bytes(content)


def add(path, rng):
    """A file that does not belong there: valid JSON under another name or number, or garbage."""
    names = [
        f"{10**12}.json",
        "999999-999999.json",
        "000009.json",
        "x.json",
        "zarr.json.bak",
        ".hidden",
        "7",
    ]
    stray = path.parent / rng.choice(names)
    if not stray.exists():
        stray.write_bytes(
            rng.choice([path.read_bytes(), b"{}", b"[]", b'{"a": 1}\n', b"\0" * 9, b""])
        )


DAMAGES = (flip, cut, delete, swap, add)


def of_model(place):
    """Predictions and what is told of the fit."""
    model = load_model(place)
    X = rows(50, 9)[0]
    told = (model.get_params()["gamma"], model.log_evidence_, model.history_, model.termination_)
    return model.predict(X).tobytes(), model.predict_proba(X).tobytes(), told


def of_data(place):
    """All that a fit may read: every array, and what is said of them."""
    source = ZarrSource(place)
    source.verify()
    tiles = [source.tile(number) for number in range(source.n_tiles)]
    values = [(tile.X.tobytes(), tile.t.tobytes(), tile.weights.tobytes()) for tile in tiles]
    order = [source.original_rows(number).tolist() for number in range(source.n_tiles)]
    return (
        values,
        order,
        source.columns,
        source.fingerprint(),
        str(source.moments),
        source.seed,
        source.tile_rows,
    )


def of_job(place):
    """The status, the history, the scores of its model, the model, and the status of a command."""
    state = JobStore(place).state()
    lines = [{key: value for key, value in line.items() if key != "time"} for line in state.history]
    scores = predict.evaluate(str(place), str(place.with_name("train.zarr")))
    return state.status, lines, scores, JobStore(place).model().digest()


def of_resumed(place):
    """The model of the rounds that follow a resume."""
    attempt = jobs.Job(str(place)).requeue(max_rounds=3).attempt
    return jobs.run_job(str(place), attempt=attempt, patience=0.0).model.digest()


JUDGES = {"classifier": (of_model,), "train.zarr": (of_data,), "job": (of_job, of_resumed)}


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """A folder whose parts are damaged and restored, and the parts as they were."""
    top = tmp_path_factory.mktemp("damage")
    folder = top / "case"
    folder.mkdir()
    X, y, w = rows(300, 0)
    labels = np.array(["a", "b", "c"])[np.int64(X[:, 2])]
    fitted = RVMClassifier(gamma=0.5, partition_size=16, max_rounds=1, random_state=0).fit(
        X, labels
    )
    save_model(fitted, folder / "classifier")
    data = folder / "train.zarr"
    ingest((X[:220], y[:220], w[:220]), data, tile_rows=64, shuffle=3)
    for part in (slice(220, 260), slice(260, None)):
        ingest((X[part], y[part], w[part]), data, append=True, shuffle=3)
    jobs.fit(str(data), str(folder / "job"), ASKED)
    jobs.run_job(
        str(folder / "job"), attempt=jobs.Job(str(folder / "job")).requeue(max_rounds=2).attempt
    )
    shutil.copytree(folder, top / "intact")
    return folder


def files(place):
    """All files below a folder."""
    return sorted(path for path in Path(place).rglob("*") if path.is_file())


def restore(case):
    """Bring all parts back."""
    shutil.rmtree(case)
    shutil.copytree(case.with_name("intact"), case)


def outcome_of(act, expected):
    """One of the outcomes; only "same bits" and "named error" may come."""
    found = ["hang"]

    def run():
        try:
            found[0] = "same bits" if act() == expected else "other bits"
        except PartirvmError as error:
            found[0] = (
                "named error" if len(str(error).splitlines()) <= 3 else f"long message: {error}"
            )
        except Exception as error:
            found[0] = f"raw {type(error).__name__}: {error}"

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LIMIT)
    return found[0]


def check(case, count, seed):
    """Damage one file at a time."""
    rng = random.Random(seed)
    outcomes = set()
    wrong = []
    expected = {}
    for name, judges in JUDGES.items():
        for judge in judges:
            expected[judge] = judge(case / name)
            restore(case)
    for number in range(count):
        name = list(JUDGES)[number % 3]
        damage = DAMAGES[number % 5]
        path = rng.choice(files(case / name))
        seeds = rng.random()
        for judge in JUDGES[name]:
            damage(path, random.Random(seeds))
            outcome = outcome_of(lambda judge=judge, name=name: judge(case / name), expected[judge])
            outcomes.add(outcome)
            if outcome not in ("same bits", "named error"):
                wrong.append(
                    f"{damage.__name__} {path.relative_to(case)} ({number}), {judge.__name__}: "
                    f"{outcome}"
                )
            if name == "job" and main(["status", str(case / name)]) not in (0, 2):
                wrong.append(f"{damage.__name__} {path.relative_to(case)}: status")
            restore(case)
    assert not wrong, "\n".join(wrong)
    assert "named error" in outcomes


def test_some_damages(case):
    """Each gives a named error or the bits of before."""
    check(case, 15, 15)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(16, 19))
def test_many_damages(seed, case):
    """The same."""
    check(case, 100, seed)
