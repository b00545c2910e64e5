"""Several targets from DATA: ingested by name, fitted with vectors in common, predicted and scored each by itself."""

from __future__ import annotations

import json

import naive
import numpy as np
import pandas as pd
import pytest
import zarr
from by_default import some

from partirvm import RVMRegressor, ingest, jobs, load_model, open_job, predict, submit
from partirvm.cli import main
from partirvm.data import ZarrSource
from partirvm.data.layout import FORMAT
from partirvm.errors import DataError, DataWarning, FormatError, UsageError
from partirvm.jobs.state import Status
from partirvm.options import Request
from partirvm.storage.records import digest

NAMES = ("warmth", "wind/speed")
SD = np.array([0.05, 2.0])
OPTIONS = ("--gamma", "0.5", "--partition-size", "40", "--max-rounds", "2", "--quiet")
PARAMETERS = Request(gamma=0.5, partition_size=40, max_rounds=2)


def rows(n, seed):
    """Two functions of the same two inputs, of units and noises of their own."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    f = np.column_stack([np.sin(2 * X[:, 0]), 20 * X[:, 0] * X[:, 1]])
    return X, f + SD * rng.normal(size=f.shape)


def write(path, n, seed, columns=("a", *NAMES, "b")):
    """The rows as a CSV file, the targets among the features."""
    X, Y = rows(n, seed)
    table = {"a": X[:, 0], "b": X[:, 1], NAMES[0]: Y[:, 0], NAMES[1]: Y[:, 1]}
    pd.DataFrame({name: table[name] for name in columns}).to_csv(path, index=False, float_format="%.17g")
    return str(path)


def contents(source):
    """X (N, d) and t (N, T) in the order before shuffling."""
    tiles = [source.tile(number) for number in range(source.n_tiles)]
    order = np.argsort(np.concatenate([source.original_rows(number) for number in range(source.n_tiles)]))
    return tuple(np.concatenate([getattr(tile, part) for tile in tiles])[order] for part in ("X", "t"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """train.zarr and test.zarr of CSV files, and a fit of the first in ``job``, by the command line."""
    folder = tmp_path_factory.mktemp("several")
    train, test = (str(folder / f"{name}.zarr") for name in ("train", "test"))
    target = ", ".join(NAMES)
    assert main(["ingest", write(folder / "train.csv", 500, 0), train, "--target", target, "--quiet"]) == 0
    assert main(["ingest", write(folder / "test.csv", 130, 1), test, "--like", train, "--quiet"]) == 0
    fit = ["fit", train, str(folder / "job"), "--multi-output", "shared", "--validation", test, *OPTIONS, "--json"]
    assert main(fit) == 0
    return folder


def test_data(folder):
    """y is (N, T) under the names, which the attributes have in a format of its own; moments are of each."""
    data, (X, Y) = ZarrSource(folder / "train.zarr"), rows(500, 0)
    assert (data.n_targets, data.columns.targets, data.columns.features) == (2, NAMES, ("a", "b"))
    assert data.columns.target == "warmth, wind/speed"
    found = contents(data)
    np.testing.assert_array_equal(found[0], X)
    np.testing.assert_array_equal(found[1], Y)
    np.testing.assert_allclose(data.moments.targets.mean, Y.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(data.moments.targets.variance, Y.var(axis=0), rtol=1e-12)
    data.verify()
    group = zarr.open_group(str(folder / "train.zarr"), mode="r")
    assert group["y"].shape == (500, 2)
    assert group["y"].chunks == (data.tile_rows, 2)
    assert (group.attrs["format"], group.attrs["targets"]) == (FORMAT, list(NAMES))
    assert "2 targets" in repr(data)


def test_one_target_is_stored_without_others(folder, tmp_path):
    """Without targets' names, whatever its own; a comma in it separates only where it has to."""
    X, Y = rows(60, 0)
    table = pd.DataFrame({"a": X[:, 0], "fare, usd": Y[:, 0]})
    table.to_csv(tmp_path / "t.csv", index=False)
    data = ingest(tmp_path / "t.csv", tmp_path / "one.zarr", target="fare, usd")
    assert zarr.open_group(str(tmp_path / "one.zarr"), mode="r").attrs["targets"] == []
    assert data.columns.targets == ()
    assert zarr.open_group(str(tmp_path / "one.zarr"), mode="r")["y"].shape == (60,)
    alone = ingest(folder / "train.csv", tmp_path / "alone.zarr", target=[NAMES[0]], features=["a", "b"])
    assert (alone.n_targets, alone.columns.target) == (1, "warmth")


@pytest.mark.parametrize("kind", ["npz", "fortran", "arrays", "frames", "array beside a frame"])
def test_two_columns_of_y(kind, tmp_path):
    """A y of two dimensions has its columns' names, or y0 and y1, and any of them can be named alone."""
    X, Y = rows(150, 3)
    frame, source = pd.DataFrame(X, columns=["a", "b"]), (X, Y)
    if kind in ("npz", "fortran"):
        source = tmp_path / "a.npz"
        np.savez(source, X=X, y=np.asfortranarray(Y) if kind == "fortran" else Y)
    elif kind != "arrays":
        source = (frame, pd.DataFrame(Y, columns=NAMES) if kind == "frames" else Y)
    data = ingest(source, tmp_path / "d.zarr", tile_rows=64)
    np.testing.assert_array_equal(contents(data)[1], Y)
    names = NAMES if kind == "frames" else ("y0", "y1")
    assert data.columns.targets == names
    second = ingest(source, tmp_path / "e.zarr", target=names[1], features=data.columns.features)
    np.testing.assert_array_equal(contents(second)[1], Y[:, 1:])


@pytest.mark.parametrize("strategy", some(["basic", "working-set", "split-merge", "incremental"], {"working-set"}))
def test_a_fit_of_data_is_that_of_arrays(folder, strategy, tmp_path):
    """The same rows in the same order: the same vectors, weights and noises."""
    options = {"gamma": 0.5, "strategy": strategy, "partition_size": 40}
    expected = RVMRegressor(random_state=0, **options).fit(*rows(500, 0)).model_
    found = jobs.fit(str(folder / "train.zarr"), str(tmp_path / "job"), Request(**options)).model
    np.testing.assert_array_equal(found.design.centres, expected.design.centres)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(found.noise_variance, expected.noise_variance, rtol=1e-10)
    assert found.log_evidence == pytest.approx(expected.log_evidence, rel=1e-10)


def test_predictions_and_scores_are_of_each_target(folder, capsys):
    """Columns and scores by name against the formulas; beside them the means over targets, as the fit reports them."""
    job, test, output = (str(folder / name) for name in ("job", "test.zarr", "p.csv"))
    model, (X, Y) = load_model(job), rows(130, 1)
    assert model.columns.targets == NAMES
    assert main(["predict", job, test, output, "--quiet"]) == 0
    table = pd.read_csv(output)
    assert list(table) == ["mean_warmth", "mean_wind/speed", "std_warmth", "std_wind/speed"]
    scaling, (train, T) = model.design.scaling, rows(500, 0)
    centres = scaling.inputs(model.design.centres)
    bias = int(model.design.bias)
    Phi, new = (
        np.column_stack([np.ones((len(x), bias)), naive.gaussian(scaling.inputs(x), centres, 0.5)]) for x in (train, X)
    )
    capsys.readouterr()
    assert main(["evaluate", job, test, "--quiet"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert list(scores["targets"]) == list(NAMES)
    squares = []
    for k, name in enumerate(NAMES):
        beta = scaling.t_scale[k] ** 2 / model.noise_variance[k]
        mean, variance = naive.predict(new, Phi, scaling.targets(T)[:, k], model.alpha, beta)
        mean, sd = scaling.t_shift[k] + scaling.t_scale[k] * mean, scaling.t_scale[k] * np.sqrt(variance)
        np.testing.assert_allclose(table[f"mean_{name}"], mean, rtol=1e-6)
        np.testing.assert_allclose(table[f"std_{name}"], sd, rtol=1e-6)
        errors, found = Y[:, k] - mean, scores["targets"][name]
        squares.append((errors**2).mean())
        assert found["rmse"] == pytest.approx(np.sqrt(squares[-1]), rel=1e-6)
        density = 0.5 * np.log(2 * np.pi * sd**2) + errors**2 / (2 * sd**2)
        assert found["nlpd"] == pytest.approx(density.mean(), rel=1e-6)
        assert found["coverage_95"] == pytest.approx((np.abs(errors) <= 1.96 * sd).mean(), abs=1e-12)
        assert found["rmse"] == pytest.approx(SD[k], rel=0.3)
    assert scores["rmse"] == pytest.approx(np.sqrt(np.mean(squares)), rel=1e-6)
    for score in ("nlpd", "coverage_95"):
        assert scores[score] == pytest.approx(np.mean([one[score] for one in scores["targets"].values()]))
    assert open_job(job).state().history[-1]["held_out_rmse"] == pytest.approx(scores["rmse"], rel=1e-12)
    assert main(["predict", job, test, output.replace("csv", "zarr"), "--quiet"]) == 0
    arrays = zarr.open_group(output.replace("csv", "zarr"), mode="r")
    np.testing.assert_allclose(arrays["mean_wind%2Fspeed"][:], table["mean_wind/speed"], rtol=1e-14)


def test_what_is_told(folder, tmp_path, capsys):
    """Of ingest and fit, as text and as JSON; the report is written."""
    arguments = ["ingest", str(folder / "train.csv"), str(tmp_path / "d.zarr"), "--target", ",".join(NAMES)]
    assert main([*arguments, "--json", "--quiet"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["target"], told["targets"]) == (", ".join(NAMES), list(NAMES))
    fit = ["fit", str(tmp_path / "d.zarr"), str(tmp_path / "job"), *OPTIONS]
    assert main(fit) == 0
    text = capsys.readouterr().out
    assert "root mean square over warmth, wind/speed" in text
    assert main([*fit, "--overwrite", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["targets"]
    noise = np.sqrt(load_model(tmp_path / "job").noise_variance)
    assert [told[name]["noise_sd"] for name in NAMES] == noise.tolist()
    np.testing.assert_allclose(noise, SD, rtol=0.25)
    assert main(["report", str(tmp_path / "job"), str(tmp_path / "r.html")]) == 0


def test_rows_without_targets(folder, tmp_path):
    """Are predicted, and have the names that a prediction has; one of two targets is none of both."""
    for number, columns in enumerate((("a", "b"), ("b", "a", NAMES[1]))):
        new = ingest(
            write(tmp_path / f"{number}.csv", 40, 5, columns), tmp_path / f"{number}.zarr", like=folder / "train.zarr"
        )
        assert (new.n_targets, new.columns.targets, new.tile(0).t.shape) == (0, NAMES, (40, 0))
        predict.predict(str(folder / "job"), new.url, str(tmp_path / f"{number}.csv.csv"))
        table = pd.read_csv(tmp_path / f"{number}.csv.csv").to_numpy()
        expected = load_model(folder / "job").predict(rows(40, 5)[0], return_std=True)
        np.testing.assert_allclose(table, np.column_stack(expected), rtol=1e-12)
        with pytest.raises(DataError, match=r"have no target.*'warmth, wind/speed'"):
            predict.evaluate(str(folder / "job"), new.url)


def test_rows_that_are_appended(folder, tmp_path):
    """Grow y (N, T), hashes and moments, and an update goes on with them; other targets are refused untouched."""
    place = tmp_path / "d.zarr"
    ingest(folder / "train.csv", place, target=NAMES, tile_rows=128)
    job = submit(RVMRegressor(gamma=0.5, partition_size=40, max_rounds=2), place, tmp_path / "job")
    assert job.wait(60) is Status.DONE
    before = contents(ZarrSource(place))
    for target in ("wind/speed, warmth", "warmth"):
        with pytest.raises(DataError, match=r"the target of DATA is 'warmth, wind/speed', but .* rows is '(wind|warm)"):
            ingest(folder / "test.csv", place, append=True, target=target)
    with pytest.raises(DataError, match="DATA have the target, but the new rows do not"):
        ingest(write(tmp_path / "none.csv", 9, 1, ("a", "b", NAMES[0])), place, append=True)
    np.testing.assert_array_equal(contents(ZarrSource(place))[1], before[1])
    data = ingest(folder / "test.csv", place, append=True)
    X, Y = (np.concatenate(parts) for parts in zip(rows(500, 0), rows(130, 1), strict=True))
    np.testing.assert_array_equal(contents(data)[1], Y)
    np.testing.assert_allclose(data.moments.targets.variance, Y.var(axis=0), rtol=1e-12)
    data.verify()
    assert job.update().wait(60) is Status.DONE
    model = job.model()
    assert model.n_rows == 630
    scaling, bias = model.design.scaling, int(model.design.bias)
    kernels = naive.gaussian(scaling.inputs(X), scaling.inputs(model.design.centres), 0.5)
    Phi, t = np.column_stack([np.ones((630, bias)), kernels]), scaling.targets(Y)
    evidence = 0.0
    for k in range(2):
        beta = scaling.t_scale[k] ** 2 / model.noise_variance[k]
        mean, _ = naive.posterior(Phi, t[:, k], model.alpha, beta)
        np.testing.assert_allclose(Phi @ model.mean[:, k], Phi @ mean, atol=1e-6)
        evidence += naive.log_evidence(Phi, t[:, k], model.alpha, beta) - 630 * np.log(scaling.t_scale[k])
    assert model.log_evidence == pytest.approx(evidence, rel=1e-7)


def test_refusals(folder, tmp_path):
    """Each names what was found and what to do."""
    train, test, job = (str(folder / name) for name in ("train.zarr", "test.zarr", "job"))
    swapped = ingest(folder / "test.csv", tmp_path / "swapped.zarr", target=NAMES[::-1]).url
    one = ingest(folder / "test.csv", tmp_path / "one.zarr", target=NAMES[0], features=["a", "b"]).url
    for other, found in ((swapped, r"wind/speed, warmth"), (one, "warmth: ingest")):
        with pytest.raises(DataError, match=f"the model predicts warmth, wind/speed, and the data have {found}"):
            predict.evaluate(job, other)
    with pytest.raises(DataError, match=r"validation data have the targets \['wind/speed', 'warmth'\].* same order"):
        jobs.fit(train, str(tmp_path / "no"), PARAMETERS, validation=swapped)
    with pytest.raises(DataError, match="validation data have 1 targets, the training data 2"):
        jobs.fit(train, str(tmp_path / "no"), PARAMETERS, validation=one)
    independent = RVMRegressor(multi_output="independent")
    for refused in (lambda: submit(independent, train, tmp_path / "no"), lambda: independent.fit(train)):
        with pytest.raises(
            UsageError, match=r"the 2 targets of .* share their vectors in one fit.*ingest and fit each target"
        ):
            refused()
    with pytest.raises(UsageError, match=r"intervals need a model with one target.*ingest it as DATA"):
        predict.predict(job, test, str(tmp_path / "p.csv"), interval=0.9)
    with pytest.raises(UsageError, match=r"augment supports one target only.*ingesting DATA with a single target"):
        predict.predict(job, test, str(tmp_path / "p.csv"), augment=train)
    X, Y = rows(50, 0)
    with pytest.warns(DataWarning, match=r"target 'y1' is constant \(3\).*omit this target"):
        ingest((X, np.column_stack([Y[:, 0], np.full(50, 3.0)])), tmp_path / "flat.zarr")
    with pytest.raises(DataError, match=r"target 1 of 2 \('y1'\) is constant"):
        jobs.fit(str(tmp_path / "flat.zarr"), str(tmp_path / "no"), PARAMETERS)
    Y[7, 1] = np.nan
    with pytest.raises(DataError, match=r"the first in row 7 .*, column 'y1'"):
        ingest((X, Y), tmp_path / "nan.zarr")
    assert not (tmp_path / "no").exists()
    group = zarr.open_group(swapped, mode="r+")
    about = {name: value for name, value in group.attrs.asdict().items() if name != "digest"}
    about["targets"] = [*NAMES, "third"]
    group.attrs.put({**about, "digest": digest(about)})
    with pytest.raises(FormatError, match="the moments have not n_targets columns"):
        ZarrSource(swapped).tile(0)
