"""Tables with categories as jobs: resumed, updated, fed in chunks, and used by commands."""

import numpy as np
import pandas as pd
import pytest
from by_default import some
from numpy.random import default_rng
from numpy.testing import assert_allclose

from partirvm import RVMRegressor, ingest, jobs, open_job
from partirvm.cli import main
from partirvm.options import Request

pytestmark = pytest.mark.filterwarnings("ignore::partirvm.errors.PartirvmWarning")

QUICK = {"effort": "quick", "seed": 0, "partition_size": 40}
KINDS = ["one target", "two targets", "two classes", "three classes"]


def table(kind, n=240, n_levels=60, seed=0):
    """Return rows of a number with gaps, a label of many levels with gaps, and one of three
    levels."""
    rng = default_rng(seed)
    effects = 2.0 * default_rng(99).normal(size=n_levels + 1)
    codes = rng.integers(0, n_levels + 1, n)
    few = rng.integers(0, 3, n)
    x = rng.normal(size=n)
    x[rng.random(n) < 0.05] = np.nan
    levels = [f"l{code:02d}" for code in range(n_levels)]
    labels = [None if code == n_levels else levels[code] for code in codes]
    y = np.nan_to_num(np.sin(2 * x)) + effects[codes] + few + 0.3 * rng.normal(size=n)
    frame = pd.DataFrame(
        {
            "x": x,
            "k": pd.Categorical(labels, categories=levels),
            "few": pd.Categorical(few, categories=range(3)),
        }
    )
    if kind == "two targets":
        return frame, np.column_stack(
            [y, np.nan_to_num(x) - effects[codes] + 0.3 * rng.normal(size=n)]
        )
    if kind == "two classes":
        return frame, (y > 1).astype(int)
    if kind == "three classes":
        return frame, np.digitize(y, [0.0, 2.0])
    return frame, y


def data_of(kind, folder, **options):
    return ingest(
        table(kind), folder / "d.zarr", tile_rows=100, classes="classes" in kind, **options
    ).url


@pytest.mark.usefixtures("interruptions")
@pytest.mark.parametrize("kind", some(KINDS, {"two targets"}))
def test_a_resume_keeps_the_level_folds(kind, tmp_path):
    """Two rounds at once have the same digest as one round and a resume."""
    place = data_of(kind, tmp_path)
    complete = jobs.fit(place, str(tmp_path / "whole"), Request(**QUICK, max_rounds=2)).model
    jobs.fit(place, str(tmp_path / "job"), Request(**QUICK, max_rounds=1))
    job = open_job(tmp_path / "job").resume(max_rounds=2)
    job.wait()
    assert job.model().digest() == complete.digest()
    assert complete.design.scaling.embedded


@pytest.mark.usefixtures("default_fits")
@pytest.mark.parametrize("kind", some(KINDS, {"two targets"}))
def test_an_update_does_not_increase_the_error(kind, tmp_path):
    """There are three times as many rows; predicted deviations match the errors."""
    place = data_of(kind, tmp_path)
    job = str(tmp_path / "job")
    first = jobs.fit(place, job, Request(**QUICK, max_rounds=2)).model
    ingest(table(kind, 480, seed=1), place, append=True)
    updated = open_job(job).update()
    updated.wait()
    new, t = table(kind, 600, seed=2)
    numbers = np.column_stack(
        [new.x, np.where(new.k.isna(), np.nan, new.k.cat.codes), new.few.cat.codes]
    )
    if "classes" in kind:
        losses = [
            -np.log(model.predict_proba(numbers)[np.arange(600), t]).mean()
            for model in (first, updated.model())
        ]
        assert losses[1] < losses[0] + 0.02
        return
    errors = []
    for model in (first, updated.model()):
        mean, std = model.predict(numbers, return_std=True)
        errors.append(np.sqrt(np.mean((mean - t) ** 2)))
        assert 0.9 < np.mean(np.abs(mean - t) < 1.96 * std) < 0.995
    assert errors[1] < 1.05 * errors[0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["one target", "two targets"])
def test_the_first_chunk_of_a_stream_equals_a_fit(kind):
    """It is bit-identical; the next chunks keep the columns and improve the weights."""
    frame, y = table(kind)
    more, t = table(kind, 480, seed=1)
    first = RVMRegressor(effort="quick", random_state=0, residual="none").fit(frame, y)
    model = RVMRegressor(effort="quick", random_state=0, residual="none").partial_fit(frame, y)
    assert model.model_.digest() == first.model_.digest()
    model.partial_fit(more, t)
    new, truth = table(kind, 600, seed=2)
    mean, std = model.predict(new, return_std=True)
    assert np.mean((mean - truth) ** 2) < 1.05 * np.mean((first.predict(new) - truth) ** 2)
    assert 0.88 < np.mean(np.abs(mean - truth) < 1.96 * std) < 0.995


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_commands_predict_missing_and_new_labels_like_the_model(kind, tmp_path):
    frame, y = table(kind)
    columns = {"y0": y[:, 0], "y1": y[:, 1]} if kind == "two targets" else {"y0": y}
    frame.assign(**columns).to_csv(tmp_path / "train.csv", index=False)
    new = table(kind, 50, seed=3)[0]
    new["k"] = new.k.cat.add_categories(["never"])
    new.loc[new.index[:5], "k"] = "never"
    new.to_csv(tmp_path / "new.csv", index=False)
    data = str(tmp_path / "d.zarr")
    later = str(tmp_path / "new.zarr")
    roles = ["--target", ",".join(columns), "--categorical", "k,few", "--no-shuffle"]
    classes = ["--classes"] if "classes" in kind else []
    assert main(["ingest", str(tmp_path / "train.csv"), data, *roles, *classes, "--quiet"]) == 0
    assert main(["ingest", str(tmp_path / "new.csv"), later, "--like", data, "--quiet"]) == 0
    fit = ["fit", data, str(tmp_path / "job"), "--effort", "quick", "--quiet"]
    assert main([*fit, *(["--classify"] if classes else [])]) == 0
    output = str(tmp_path / "p.csv")
    assert main(["predict", str(tmp_path / "job"), later, output, "--quiet"]) == 0
    predictions = pd.read_csv(output)
    model = open_job(tmp_path / "job").model()
    if classes:
        expected = model.predict_proba(new)
        assert_allclose(
            predictions.filter(like="p_").to_numpy()[:, : expected.shape[1]], expected, rtol=1e-9
        )
    else:
        expected = model.predict(new).reshape(50, -1)
        assert_allclose(predictions.filter(like="mean").to_numpy(), expected, rtol=1e-9)
