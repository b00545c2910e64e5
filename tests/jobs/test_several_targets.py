"""Several targets in DATA: ingested by name, fitted with shared vectors, predicted and scored."""

import json

import numpy as np
import pandas as pd
import pytest
import zarr
from journals import contents
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal

from partirvm import RVMRegressor, ingest, load_model, open_job, submit
from partirvm.cli import main
from partirvm.data import ZarrSource
from partirvm.errors import DataError
from partirvm.jobs import Status

NAMES = ("warmth", "wind/speed")
SD = np.array([0.05, 2.0])
OPTIONS = ("--gamma", "0.5", "--partition-size", "40", "--max-rounds", "2", "--residual", "none")
OPTIONS += ("--quiet",)


def rows(n, seed):
    """Return two functions of the same two inputs, with different units and noise."""
    rng = default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    f = np.column_stack([np.sin(2 * X[:, 0]), 20 * X[:, 0] * X[:, 1]])
    return X, f + SD * rng.normal(size=f.shape)


def write(path, n, seed, columns=("a", *NAMES, "b")):
    """Write the rows as a CSV file, with the targets among the features."""
    X, Y = rows(n, seed)
    table = {"a": X[:, 0], "b": X[:, 1], NAMES[0]: Y[:, 0], NAMES[1]: Y[:, 1]}
    pd.DataFrame({name: table[name] for name in columns}).to_csv(
        path, index=False, float_format="%.17g"
    )
    return str(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return train.zarr and test.zarr from CSV files, and a fit of the first in ``job``, made by
    commands."""
    folder = tmp_path_factory.mktemp("several")
    train, test = (str(folder / f"{name}.zarr") for name in ("train", "test"))
    target = ", ".join(NAMES)
    tables = write(folder / "train.csv", 500, 0), write(folder / "test.csv", 130, 1)
    assert main(["ingest", tables[0], train, "--target", target, "--quiet"]) == 0
    assert main(["ingest", tables[1], test, "--like", train, "--quiet"]) == 0
    fit = ["fit", train, str(folder / "job"), "--validation", test, *OPTIONS, "--json"]
    assert main(fit) == 0
    return folder


def test_outputs_and_scores_of_each_target_follow_the_formulas(folder, capsys):
    """The means over targets agree with those reported by the fit."""
    job, test, output = (str(folder / name) for name in ("job", "test.zarr", "p.csv"))
    model = load_model(job)
    (X, Y) = rows(130, 1)
    assert model.columns.targets == NAMES
    assert main(["predict", job, test, output, "--quiet"]) == 0
    table = pd.read_csv(output)
    assert list(table) == ["mean_warmth", "mean_wind/speed", "std_warmth", "std_wind/speed"]
    means, deviations = model.predict(X, return_std=True)
    capsys.readouterr()
    assert main(["evaluate", job, test, "--quiet"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert list(scores["targets"]) == list(NAMES)
    squares = []
    for k, name in enumerate(NAMES):
        mean = means[:, k]
        sd = deviations[:, k]
        assert_allclose(table[f"mean_{name}"], mean, rtol=1e-6)
        assert_allclose(table[f"std_{name}"], sd, rtol=1e-6)
        errors = Y[:, k] - mean
        target_scores = scores["targets"][name]
        squares.append((errors**2).mean())
        assert target_scores["rmse"] == pytest.approx(np.sqrt(squares[-1]), rel=1e-6)
        density = 0.5 * np.log(2 * np.pi * sd**2) + errors**2 / (2 * sd**2)
        assert target_scores["nlpd"] == pytest.approx(density.mean(), rel=1e-6)
        assert target_scores["coverage_95"] == pytest.approx(
            (np.abs(errors) <= 1.96 * sd).mean(), abs=1e-12
        )
        assert target_scores["rmse"] == pytest.approx(SD[k], rel=0.3)
    assert scores["rmse"] == pytest.approx(np.sqrt(np.mean(squares)), rel=1e-6)
    for score in ("nlpd", "coverage_95"):
        assert scores[score] == pytest.approx(
            np.mean([one[score] for one in scores["targets"].values()])
        )
    last = open_job(job).state().history[-1]
    assert [last[f"held_out_{score}"] for score in ("rmse", "nlpd")] == pytest.approx(
        [scores["rmse"], scores["nlpd"]]
    )
    assert main(["predict", job, test, output.replace("csv", "zarr"), "--quiet"]) == 0
    arrays = zarr.open_group(output.replace("csv", "zarr"), mode="r")
    assert_allclose(arrays["mean_wind%2Fspeed"][:], table["mean_wind/speed"], rtol=1e-14)


def test_appended_rows_must_have_the_same_targets(folder, tmp_path):
    """y (N, T), hashes and moments are extended, and an update continues with them."""
    place = tmp_path / "d.zarr"
    ingest(folder / "train.csv", place, target=NAMES, tile_rows=128)
    few = RVMRegressor(gamma=0.5, partition_size=20, max_rounds=1, residual="none")
    job = submit(few, place, tmp_path / "job")
    assert job.wait(60) is Status.DONE
    before = contents(ZarrSource(place))
    for target in ("wind/speed, warmth", "warmth"):
        with pytest.raises(
            DataError, match=r"the dataset has the targets \[warmth, wind/speed\] .* the new rows"
        ):
            ingest(folder / "test.csv", place, append=True, target=target)
    with pytest.raises(DataError, match=r"unlike the new rows \(targets \[\]\)"):
        ingest(write(tmp_path / "none.csv", 9, 1, ("a", "b", NAMES[0])), place, append=True)
    assert_array_equal(contents(ZarrSource(place)), before)
    data = ingest(folder / "test.csv", place, append=True)
    Y = np.concatenate([rows(500, 0)[1], rows(130, 1)[1]])
    assert_array_equal(contents(data)[:, 2:], Y)
    assert_allclose(data.moments.targets.variance, Y.var(axis=0), rtol=1e-12)
    assert job.update().wait(60) is Status.DONE
    assert job.model().n_rows == 630
