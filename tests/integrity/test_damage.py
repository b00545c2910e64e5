"""Random damage to any file of a model, of DATA or of a job: a named error, or the same bits as before. Never else.

A damage is a flipped bit, a file cut short, a file or a folder deleted, or a move: files or folders that change places,
that return to an earlier version, or come from another model, DATA or job, and files that do not belong there. The DATA
have grown twice; one job was resumed, the other has overwritten a job and was resumed. No case may take more than
``LIMIT`` seconds. The default run draws 12; 1,000 in four tables, half of them moves, are

    python -m pytest -m slow -s tests/integrity/test_damage.py
"""

from __future__ import annotations

import io
import random
import shutil
import threading
from collections import Counter
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pytest

from benchmarks.estimator_parameters import grouped
from partirvm import RVMClassifier, RVMRegressor, ingest, jobs, load_model, predict, save_model
from partirvm.cli import main
from partirvm.data import ZarrSource
from partirvm.errors import PartirvmError
from partirvm.jobs.store import JobStore
from partirvm.options import Request

pytestmark = pytest.mark.filterwarnings("ignore:.*waiting up to.*for a heartbeat")

SEED = 15
ASKED = {"gamma": 0.5, "partition_size": 16, "selection": "error", "strategy": "working-set", "memory_limit": "2GiB"}


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


def delete_folder(path, rng):
    """Remove the folder in which the file is, with what is in it."""
    if path.parent != root_of(path):
        shutil.rmtree(path.parent)


def change_places(one, other):
    """Exchange the names of two files or folders."""
    aside = one.with_name(".aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def swap_files(path, rng):
    """Two files change places, mostly files of the same name or the same folder."""
    root = root_of(path)
    found = sorted(other for other in files(root) if other != path)
    near = [other for other in found if path.name == other.name or path.parent == other.parent]
    change_places(path, rng.choice(near or found))


def swap_folders(path, rng):
    """Two folders beside each other change places, with or without their pointers."""
    root = root_of(path)
    folders = [folder for folder in root.rglob("*") if folder.is_dir()]
    found = sorted((a, b) for a in folders for b in folders if a.parent == b.parent and a.name < b.name)
    if not found:
        return
    one, other = rng.choice(found)
    change_places(one, other)
    pointers = [folder.with_name(f"{folder.name}.json") for folder in (one, other)]
    if all(pointer.exists() for pointer in pointers) and rng.random() < 0.5:
        change_places(*pointers)


def replace_by(path, rng, version):
    """Put that of another version of the folder in the place of a file, or of the folder in which the file is."""
    root = root_of(path)
    there = path if rng.random() < 0.5 or path.parent == root else path.parent
    found = root.parent.parent.parent / version / root.name / there.relative_to(root)
    if not found.exists():
        return
    if there.is_dir():
        shutil.rmtree(there)
        shutil.copytree(found, there)
        pointer = found.with_name(f"{found.name}.json")
        if pointer.exists() and rng.random() < 0.5:
            shutil.copy(pointer, there.with_name(pointer.name))
    else:
        shutil.copy(found, there)


def roll_back(path, rng):
    """A file or a folder as it was before the last append, resume or fit."""
    replace_by(path, rng, "earlier")


def copy_from_another(path, rng):
    """A file or a folder of another model, DATA or job of the same kind."""
    replace_by(path, rng, "another")


def bring_back(path, rng):
    """A file or a folder of the job that was overwritten."""
    root = root_of(path)
    gone = root.parent.parent.parent / "before" / root.name
    found = sorted(each for each in gone.glob("*") if not (root / each.name).exists())
    if found:
        each = rng.choice(found)
        (shutil.copytree if each.is_dir() else shutil.copy)(each, root / each.name)


def add_a_stray(path, rng):
    """A file that does not belong there: valid JSON under another name or number, or garbage."""
    content = rng.choice([path.read_bytes(), b"{}", b"[]", b'{"a": 1}\n', b"\0" * 9, b""])
    name = rng.choice(
        [f"{10**12}.json", "999999-999999.json", "000009.json", "x.json", "zarr.json.bak", ".hidden", "7"]
    )
    stray = rng.choice([path.parent, root_of(path)]) / name
    if not stray.exists():
        stray.write_bytes(content)


def root_of(path):
    """The folder that is damaged: the copy made for one case."""
    return next(folder for folder in path.parents if folder.parent.name.startswith("case"))


DAMAGES = (flip, cut, delete, delete_folder)
MOVES = (swap_files, swap_folders, roll_back, copy_from_another, bring_back, add_a_stray)

LIMIT = 120
"""Seconds of one case."""


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
    """The status, the history, the scores of its model, and the model."""
    state = JobStore(place).state()
    lines = [{key: value for key, value in line.items() if key != "time"} for line in state.history]
    scores = predict.evaluate(str(place), str(Path(place).parent.parent / "test.zarr"))
    return state.status, lines, scores, JobStore(place).model().digest()


def of_resumed(place):
    """The model of the rounds that follow a resume."""
    attempt = jobs.Job(str(place)).requeue(max_rounds=4).attempt
    return jobs.carry_out(str(place), attempt=attempt, patience=0.0).model.digest()


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    """Folders to damage, and by which functions they are judged."""
    top = tmp_path_factory.mktemp("versions")
    folder = top / "intact"
    for version, seed, gamma in (("another", 5, 2.0), ("intact", 0, 0.5)):
        make_all(top / version, rows(300, seed), gamma, top / "earlier")
        shutil.copytree(top / version / "regressor", top / "earlier" / "regressor", dirs_exist_ok=True)
    return {
        folder / "regressor": (of_model,),
        folder / "classifier": (of_model,),
        folder / "train.zarr": (of_data,),
        folder / "job": (of_job, of_resumed),
        folder / "overwritten": (of_job, of_resumed),
    }


def make_all(folder, some, gamma, earlier):
    """Models, DATA that grew twice and jobs that were resumed; keeps earlier versions of DATA and jobs, and the
    overwritten job.
    """
    folder.mkdir()
    for each in (earlier, earlier.with_name("before")):
        shutil.rmtree(each, ignore_errors=True)
    X, y, w = some
    X_test, y_test, w_test = rows(60, 1)
    options = {name: value for name, value in ASKED.items() if name != "memory_limit"} | {"gamma": gamma}
    labels = np.array(["a", "b", "c"])[np.int64(X[:, 2])]
    save_model(RVMRegressor(**grouped(options), max_rounds=2, random_state=0).fit(X, y), folder / "regressor")
    classifier = RVMClassifier(**grouped(options), max_rounds=1, random_state=0).fit(X, labels)
    save_model(classifier, folder / "classifier")
    ingest((X[:220], y[:220], w[:220]), folder / "train.zarr", tile_rows=64, shuffle=3)
    ingest((X[220:260], y[220:260], w[220:260]), folder / "train.zarr", append=True, shuffle=3)
    shutil.copytree(folder / "train.zarr", earlier / "train.zarr")
    ingest((X[260:], y[260:], w[260:]), folder / "train.zarr", append=True, shuffle=3)
    ingest((X_test, y_test, w_test), folder / "test.zarr", like=folder / "train.zarr")
    data, asked = str(folder / "train.zarr"), Request(**{**ASKED, "gamma": gamma}, max_rounds=1)
    jobs.fit(data, str(folder / "overwritten"), Request(**ASKED, max_rounds=2))
    shutil.copytree(folder / "overwritten", earlier.with_name("before") / "overwritten")
    for job in (folder / "job", folder / "overwritten"):
        jobs.fit(data, str(job), asked, overwrite=job.exists())
        shutil.copytree(job, earlier / job.name)
        attempt = jobs.Job(str(job)).requeue(max_rounds=2).attempt
        jobs.carry_out(str(job), attempt=attempt, patience=0.0)


def commands(place, intact, out):
    """Commands that read what was damaged; each is to end with status 0 or 2."""
    test = str(next(path for path in intact if path.name == "train.zarr").with_name("test.zarr"))
    if place.name == "train.zarr":
        asked = [f"--{name.replace('_', '-')}={value}" for name, value in ASKED.items()]
        return [["fit", str(place), str(out / "new"), *asked, "--max-rounds=1", "--quiet", "--verify"]]
    if place.name in ("job", "overwritten"):
        looks = [["status", str(place)], ["report", str(place), str(out / "page.html")]]
        return [*looks, ["predict", str(place), test, str(out / "p.csv"), "--quiet"]]
    return []


def within_limit(act):
    """What ``act`` returns or raises; "hang" if it takes more than ``LIMIT`` seconds."""
    found = ["hang"]

    def run():
        try:
            found[0] = act()
        except Exception as error:
            found[0] = error

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LIMIT)
    return found[0]


def outcome_of(found, expected, earlier):
    """One of the outcomes; only "same bits", "named error" and "earlier version" may come."""
    if isinstance(found, PartirvmError):
        return "named error" if len(str(found).splitlines()) <= 3 else f"long message: {found}"
    if isinstance(found, Exception):
        return f"raw {type(found).__name__}: {found}"
    if found == "hang":
        return "hang"
    return "same bits" if found == expected else "earlier version" if found == earlier else "other bits"


def damaged(intact, folder, count, seed):
    """Damage one thing at a time; returns how often each outcome came, and what should never have."""
    rng, outcomes, wrong = random.Random(seed), Counter(), []
    expected = {}
    for number, place in enumerate(intact):
        for judge in intact[place]:
            copy = folder / f"expected{number}{judge.__name__}" / place.name
            shutil.copytree(place, copy)
            expected[place, judge] = judged(judge, copy, place)
    data = next(place for place in intact if place.name == "train.zarr")
    before = of_data(data.parent.parent / "earlier" / data.name)
    for number in range(count):
        place, damage, relative, seeds = draw(list(intact), (DAMAGES, MOVES)[number % 2], rng, folder / "case")
        # Without the folder of their last append DATA are what they were before it.
        last = max(data.glob("append-*")).name
        earlier = before if damage is delete_folder and place == data and relative.parts[:-1] == (last,) else None
        for judge in intact[place]:
            copy = folder / f"case{number}{judge.__name__}" / place.name
            shutil.copytree(place, copy)
            damage(copy / relative, random.Random(seeds))
            what = f"{damage.__name__} {place.name}/{relative} (damage {number}), {judge.__name__}"
            found = within_limit(lambda judge=judge, copy=copy, place=place: judged(judge, copy, place))
            outcome = outcome_of(found, expected[place, judge], earlier)
            outcomes[place.name, judge.__name__, damage.__name__, outcome.partition(":")[0]] += 1
            if outcome not in ("same bits", "named error", "earlier version"):
                wrong.append(f"{what}: {outcome}")
            if judge is intact[place][0] and number % 5 == 0:
                shutil.rmtree(copy.parent)
                shutil.copytree(place, copy)
                damage(copy / relative, random.Random(seeds))
                for command in commands(copy, intact, copy.parent):
                    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                        status = main(command)  # sets signal handlers, hence in this thread
                    outcomes[place.name, f"partirvm {command[0]}", damage.__name__, f"status {status}"] += 1
                    if status not in (0, 2):
                        wrong.append(f"{what}: {command[0]} ended with status {status!r}")
            shutil.rmtree(copy.parent, ignore_errors=True)
    return outcomes, wrong


def draw(places, damages, rng, folder):
    """A place, a damage, a file, and a seed with which the damage changes something."""
    while True:
        place, damage = rng.choice(places), rng.choice(damages)
        relative, seeds = rng.choice(sorted(p.relative_to(place) for p in files(place))), rng.random()
        copy = folder / place.name
        shutil.copytree(place, copy)
        damage(copy / relative, random.Random(seeds))
        changed = content(copy) != content(place)
        shutil.rmtree(folder)
        if changed:
            return place, damage, relative, seeds


def content(place):
    """The bytes of all files by name."""
    return {path.relative_to(place): path.read_bytes() for path in files(place)}


def judged(judge, copy, place):
    """What a judge sees in a copy; test rows lie two folders above it."""
    test = copy.parent.parent / "test.zarr"
    if not test.exists():
        shutil.copytree(place.with_name("test.zarr"), test)
    return judge(copy)


def files(place):
    """All files below a folder."""
    return (path for path in place.rglob("*") if path.is_file())


def check(intact, count, capsys, seed=SEED):
    with capsys.disabled() if count > 100 else nullcontext():
        outcomes, wrong = damaged(intact, next(iter(intact)).parent.parent / f"cases{count}-{seed}", count, seed)
        if count > 100:
            print()
            for (name, judge, damage, outcome), times in sorted(outcomes.items()):
                print(f"{name:<12}{judge:<18}{damage:<20}{outcome:<16}{times:>6}")
    assert not wrong, "\n".join(wrong)
    first = ("of_model", "of_data", "of_job")
    assert sum(times for (_, judge, _, _), times in outcomes.items() if judge in first) == count
    assert any(outcome == "named error" for _, _, _, outcome in outcomes)


def test_some_damages(intact, capsys):
    """Each gives a named error or the bits of before."""
    check(intact, 12, capsys)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(SEED, SEED + 4))
def test_many_damages(seed, intact, capsys):
    """The same, and the figures."""
    check(intact, 250, capsys, seed)
