"""Random damage to any file of a model, of DATA or of a job: a named error, or the same bits as before. Never else.

A damage is a flipped bit, a file cut short, or a file deleted. The default run draws 100; 1,000 and their figures are

    python -m pytest -m slow -s tests/integrity/test_damage.py
"""

from __future__ import annotations

import io
import random
import shutil
from collections import Counter
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pytest

from benchmarks.estimator_parameters import grouped
from partirvm import RVMClassifier, RVMRegressor, jobs, load_model, predict, save_model
from partirvm.cli import main
from partirvm.data import ZarrSource, ingest
from partirvm.errors import PartirvmError
from partirvm.jobs.store import JobStore
from partirvm.options import Request

SEED = 15
ASKED = {"gamma": 0.5, "partition_size": 16, "selection": "error", "strategy": "working-set", "memory_limit": "1GiB"}


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


DAMAGES = (flip, cut, delete)


def numbers(model):
    """What a loaded estimator tells of some rows, as bytes."""
    X = rows(50, 9)[0]
    found = [model.predict(X), *model.predict_interval(X)]
    found += [model.predict_proba(X)] if hasattr(model, "predict_proba") else model.predict(X, return_std=True)
    told = (model.get_params()["gamma"], model.log_evidence_, model.history_, model.termination_)
    return [np.asarray(each).tobytes() for each in found], told


def of_model(place):
    """Predictions, intervals and what is told of the fit."""
    return numbers(load_model(place))


def of_data(place):
    """All that a fit may read: every array, and what is said of them."""
    source = ZarrSource(place)
    source.verify()
    tiles = [source.tile(number) for number in range(source.n_tiles)]
    values = [(tile.X.tobytes(), tile.t.tobytes(), tile.weights.tobytes()) for tile in tiles]
    order = [source.original_rows(number).tolist() for number in range(source.n_tiles)]
    return values, order, source.columns, source.fingerprint(), str(source.moments), source.seed, source.tile_rows


def of_job(place):
    """The history, the scores of its model, and the model of the rounds that follow a resume."""
    lines = [{key: value for key, value in line.items() if key != "time"} for line in JobStore(place).state().history]
    scores = predict.evaluate(str(place), str(Path(place).parent.parent / "test.zarr"))
    return lines, scores, JobStore(place).model().digest()


def of_resumed(place):
    """The model of the rounds that follow a resume."""
    attempt = jobs.Job(str(place)).requeue(max_rounds=4).attempt
    return jobs.carry_out(str(place), attempt=attempt, patience=0.0).model.digest()


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    """Folders to damage, and by which functions they are judged."""
    folder = tmp_path_factory.mktemp("intact")
    (X, y, w), (X_test, y_test, w_test) = rows(300, 0), rows(60, 1)
    ingest((X, y, w), folder / "train.zarr", tile_rows=64, shuffle=3)
    ingest((X_test, y_test, w_test), folder / "test.zarr", like=folder / "train.zarr")
    options = {name: value for name, value in ASKED.items() if name != "memory_limit"}
    regressor = RVMRegressor(**grouped(options), max_rounds=2, random_state=0).fit(X, y)
    labels = np.array(["a", "b", "c"])[np.int64(X[:, 2])]
    classifier = RVMClassifier(**grouped(options), max_rounds=1, random_state=0).fit(X, labels)
    save_model(regressor, folder / "regressor")
    save_model(classifier, folder / "classifier")
    jobs.fit(str(folder / "train.zarr"), str(folder / "job"), Request(**ASKED, max_rounds=2))
    return {
        folder / "regressor": (of_model,),
        folder / "classifier": (of_model,),
        folder / "train.zarr": (of_data,),
        folder / "job": (of_job, of_resumed),
    }


def commands(place, intact, out):
    """Commands that read what was damaged; each is to end with status 0 or 2."""
    test = str(next(path for path in intact if path.name == "train.zarr").with_name("test.zarr"))
    if place.name == "train.zarr":
        asked = [f"--{name.replace('_', '-')}={value}" for name, value in ASKED.items()]
        return [["fit", str(place), str(out / "new"), *asked, "--max-rounds=1", "--quiet", "--verify"]]
    if place.name == "job":
        looks = [["status", str(place)], ["report", str(place), str(out / "page.html")]]
        return [*looks, ["predict", str(place), test, str(out / "p.csv"), "--quiet"]]
    return []


def damaged(intact, folder, count, seed):
    """Damage one file at a time; returns how often each outcome came, and what should never have."""
    rng, outcomes, wrong = random.Random(seed), Counter(), []
    expected = {}
    for number, place in enumerate(intact):
        for judge in intact[place]:
            copy = folder / f"expected{number}{judge.__name__}" / place.name
            shutil.copytree(place, copy)
            expected[place, judge] = judged(judge, copy, place)
    for number in range(count):
        place = rng.choice(list(intact))
        damage, relative = rng.choice(DAMAGES), rng.choice(sorted(p.relative_to(place) for p in files(place)))
        seeds = rng.random()
        for judge in intact[place]:
            copy = folder / f"{number}{judge.__name__}" / place.name
            shutil.copytree(place, copy)
            damage(copy / relative, random.Random(seeds))
            what = f"{damage.__name__} {place.name}/{relative} (damage {number}), {judge.__name__}"
            try:
                outcome = "same bits" if judged(judge, copy, place) == expected[place, judge] else "other bits"
            except PartirvmError as error:
                outcome = "named error"
                if len(str(error).splitlines()) > 3:
                    wrong.append(f"{what}: a message of more than three lines: {error}")
            except Exception as error:
                outcome = f"raw {type(error).__name__}: {error}"
            outcomes[place.name, judge.__name__, outcome.partition(":")[0]] += 1
            if outcome not in ("same bits", "named error"):
                wrong.append(f"{what}: {outcome}")
            if judge is intact[place][0] and number % 5 == 0:
                shutil.rmtree(copy.parent)
                shutil.copytree(place, copy)
                damage(copy / relative, random.Random(seeds))
                for command in commands(copy, intact, copy.parent):
                    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                        status = main(command)
                    outcomes[place.name, f"partirvm {command[0]}", f"status {status}"] += 1
                    if status not in (0, 2):
                        wrong.append(f"{what}: {command[0]} ended with status {status}")
            shutil.rmtree(copy.parent)
    return outcomes, wrong


def judged(judge, copy, place):
    """What a judge sees in a copy; test rows lie two folders above it."""
    test = copy.parent.parent / "test.zarr"
    if not test.exists():
        shutil.copytree(place.with_name("test.zarr"), test)
    return judge(copy)


def files(place):
    """All files below a folder."""
    return (path for path in place.rglob("*") if path.is_file())


def check(intact, tmp_path, count, capsys):
    with capsys.disabled() if count > 100 else nullcontext():
        outcomes, wrong = damaged(intact, tmp_path, count, SEED)
        if count > 100:
            print()
            for (name, judge, outcome), times in sorted(outcomes.items()):
                print(f"{name:<12}{judge:<18}{outcome:<14}{times:>6}")
    assert not wrong, "\n".join(wrong)
    first = ("of_model", "of_data", "of_job")
    assert sum(times for (_, judge, _), times in outcomes.items() if judge in first) == count
    assert any(outcome == "named error" for _, _, outcome in outcomes)


def test_some_damages(intact, tmp_path, capsys):
    """Each gives a named error or the bits of before."""
    check(intact, tmp_path, 25, capsys)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_thousand_damages(intact, tmp_path, capsys):
    """The same, and the figures."""
    check(intact, tmp_path, 1000, capsys)
