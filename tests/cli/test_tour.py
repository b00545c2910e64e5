"""Commands lead from a table to predictions; every number is checked against its formula."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import zarr
from by_default import some
from click.testing import CliRunner
from commandline import NOISE
from numpy.testing import assert_allclose, assert_array_equal

from partirvm import load_model
from partirvm.cli import options
from partirvm.cli.commands import partirvm as group
from partirvm.cli.options import as_flags
from partirvm.kernels import NAMES
from partirvm.options import TABLE, Request

VERBS = (
    *("demo", "ingest", "plan", "fit", "predict", "evaluate"),
    *("status", "jobs", "wait", "abort", "cancel", "resume", "report"),
)


def predictions(cli, tour, folder, data, *options, names="mean,std"):
    """Return the predicted values of each row by column, from a CSV whose columns have these
    ``names``."""
    output = folder / "out.csv"
    status, out, err = cli("predict", tour.job, data, str(output), "--overwrite", *options)
    assert (status, err) == (0, "")
    assert str(output) in out
    assert output.read_text().splitlines()[0].replace('"', "") == names
    return np.loadtxt(output, delimiter=",", skiprows=1).T


def test_scores_equal_those_of_predictions(tour, cli, cli_json, tmp_path):
    """RMSE, NLPD and coverage follow from their definitions, the CSV and the table."""
    scores = cli_json("evaluate", tour.job, tour.test)
    mean, std, lower, upper = predictions(
        cli, tour, tmp_path, tour.test, "--interval", "0.9", names="mean,std,lower,upper"
    )
    fare = tour.test_table[:, 2]
    error = fare - mean
    names = ["n_rows", "n_vectors", "rmse", "nlpd", "crps", "interval_score_95"]
    assert list(scores) == [*names, *(f"coverage_{level}" for level in (50, 80, 90, 95, 99))]
    assert scores["n_rows"] == 700
    assert scores["rmse"] == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-12)
    nlpd = np.mean(0.5 * np.log(2 * np.pi * std**2) + error**2 / (2 * std**2))
    assert scores["nlpd"] == pytest.approx(nlpd)
    assert scores["coverage_90"] == pytest.approx(np.mean((lower <= fare) & (fare <= upper)))
    assert scores["rmse"] < 1.2 * NOISE
    assert 0.9 < scores["coverage_95"] < 0.99


def test_evaluate_reports_rows_without_a_target(tour, cli, tmp_path):
    table = tmp_path / "test.csv"
    lines = [",".join(f"{value:.17g}" for value in row) for row in tour.test_table[:50]]
    lines[:3] = [line.rpartition(",")[0] + "," for line in lines[:3]]
    table.write_text("\n".join(["a,b,fare", *lines]))
    status, out, err = cli("evaluate", tour.job, str(table))
    assert (status, json.loads(out)["n_rows"]) == (0, 47)
    warning = f"partirvm: warning: {table}: rows without a target, left out: 3"
    assert " ".join(err.split()).startswith(f"{warning} 47 rows: RMSE ")


@pytest.mark.bits
@pytest.mark.parametrize("order", [("--shuffle", "5"), ("--no-shuffle",)])
def test_predictions_do_not_need_the_target(tour, cli, tmp_path, order):
    """They have the same bits, whatever the order of DATA; ingest names the next command."""
    table = tmp_path / "new.csv"
    data = str(tmp_path / "new.zarr")
    np.savetxt(table, tour.test_table[:, :2], delimiter=",", header="a,b", comments="", fmt="%.17g")
    status, out, err = cli("ingest", str(table), data, "--like", tour.train, *order)
    assert (status, err) == (0, "")
    assert "700 rows × 2 features, no target, " in out
    assert f"partirvm predict JOB {data} " in out
    assert "partirvm fit" not in out
    expected = predictions(cli, tour, tmp_path, tour.test)
    (tmp_path / "out.csv").unlink()
    assert_array_equal(predictions(cli, tour, tmp_path, data), expected)


@pytest.mark.parametrize("ending", some(["csv", "zarr"], {"csv"}))
def test_interval_adds_columns_for_its_ends(tour, cli, tmp_path, ending):
    """lower and upper come from the model; mean and std are the same as without the option."""
    output = tmp_path / f"out.{ending}"
    predict = ("predict", tour.job, tour.test)
    assert cli(*predict, str(output), "--interval", "0.8", "--quiet")[::2] == (0, "")
    if ending == "csv":
        assert output.read_text().splitlines()[0].replace('"', "") == "mean,std,lower,upper"
        table = np.loadtxt(output, delimiter=",", skiprows=1)
    else:
        columns = zarr.open_group(str(output), mode="r")
        assert columns.attrs["columns"] == ["mean", "std", "lower", "upper"]
        table = np.column_stack([columns[name][:] for name in columns.attrs["columns"]])
    model = load_model(tour.job)
    ends, _ = model.interval(0.8)(tour.test_table[:, :2])
    assert_allclose(table[:, 2:], ends, rtol=1e-10)
    (tmp_path / "plain").mkdir()
    plain = predictions(cli, tour, tmp_path / "plain", tour.test)
    assert_array_equal(table[:, :2].T, plain)
    status, out, err = cli(*predict, str(tmp_path / "x.csv"), "--interval", "95")
    assert (status, out) == (2, "")
    assert "--interval" in err


def test_ingest_prints_facts_about_the_data(tour, cli_json, tmp_path):
    """A repeated --target gives two targets."""
    source = str(tour.folder / "train.csv")
    roles = ("--target", "fare", "--features", "b,a", "--shuffle", "7")
    facts = cli_json("ingest", source, str(tmp_path / "d.zarr"), *roles, "--json", "--quiet")
    expected = {"n_rows": 3000, "n_features": 2, "target": "fare", "shuffle": 7}
    assert facts | expected | {"features": ["b", "a"]} == facts
    roles = ("--target", "fare", "--target", "a")
    facts = cli_json("ingest", source, str(tmp_path / "e.zarr"), *roles, "--json", "--quiet")
    assert facts["targets"] == ["fare", "a"]


def test_fit_prints_facts_about_the_model(tour, cli_json, tmp_path):
    """They agree with ``evaluate`` on the validation data and with the history."""
    job = str(tmp_path / "job")
    choices = ("--gamma", "1", "--partition-size", "60", "--max-rounds", "2", "--residual", "none")
    choices += ("--quiet", "--json")
    facts = cli_json("fit", tour.train, job, "--validation", tour.test, *choices)
    scores = cli_json("evaluate", job, tour.test)
    assert facts["held_out_rmse"] == pytest.approx(scores["rmse"], rel=1e-9)
    assert facts["held_out_nlpd"] == pytest.approx(scores["nlpd"], rel=1e-9)
    assert facts["n_vectors"] == scores["n_vectors"]
    events = [json.loads(path.read_text()) for path in sorted(Path(job, "events").glob("0*.json"))]
    last = [event for event in events if event["event"] == "fit"][-1]
    assert facts["noise_sd"] == pytest.approx(last["noise_variance"] ** 0.5)
    assert facts["reason"] == events[-1]["reason"]
    assert facts["peak_memory"] > 0


def test_plan_accepts_the_options_of_a_fit():
    context = group.commands["fit"].make_context("fit", ["d", "j"])
    names = {name for name in context.params if hasattr(Request(), name)}
    shared = set(group.commands["plan"].make_context("plan", ["d"]).params) - {"data", "as_json"}
    assert shared - names == {"validation", "scheduler"}


def test_the_help_names_every_kernel():
    """The names are written out: generating them would import NumPy and delay start-up."""
    kernel = next(option for option in group.commands["fit"].params if option.name == "kernel")
    words = set(re.findall(r"\b[a-z]+(?:[0-9]+|-[a-z]+)?\b", kernel.help))
    assert set(NAMES) | {"auto", "none"} <= words


@pytest.mark.parametrize("verb", VERBS)
def test_help_is_prose_with_an_example(verb):
    result = CliRunner().invoke(group, [verb, "--help"])
    assert result.exit_code == 0
    assert f"partirvm {verb} " in result.output.split("Example", 1)[1]
    assert max(map(len, result.output.splitlines())) <= 100


@pytest.mark.parametrize("verb", ["fit", "plan"])
@pytest.mark.parametrize("width", [80, 100])
def test_help_shows_common_options_and_help_all_shows_every_option(verb, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    run = CliRunner().invoke
    pages = [run(group, [verb, flag], prog_name="partirvm") for flag in ("--help", "--help-all")]
    assert [page.exit_code for page in pages] == [0, 0]
    short, complete = (page.output.partition("\nEveryday:")[2] for page in pages)
    shown = [
        {line.split()[0].rstrip(",") for line in text.splitlines() if line.startswith("  --")}
        for text in (short, complete)
    ]
    everyday = {row.flag for row in TABLE.values() if row.group == "everyday"}
    flags = {row.flag for row in TABLE.values()}
    assert shown[0] & flags == everyday
    assert shown[1] >= flags | {"--scheduler", "--validation", "--json"}
    hidden = f"--help-all shows {len(TABLE) - len(everyday)} more options"
    assert f"{hidden}: kernel, strategy, noise and priors, resources." in short
    assert "more options" not in complete
    titles = [f"{name.capitalize()}:" for name in options.ORDER]
    assert [line for line in ("Everyday:" + complete).splitlines() if line in titles] == titles


def test_help_shows_the_three_steps_and_all_commands(cli):
    status, out, _ = cli("--help")
    assert status == 0
    steps = [out.index(f"partirvm {verb} ") for verb in ("ingest", "fit", "predict")]
    assert steps == sorted(steps)
    assert all(f"  {verb} " in out for verb in VERBS)
    commands = out.split("Commands:")[1]
    assert "..." not in commands
    places = [commands.index(f"  {verb} ") for verb in VERBS if verb not in ("predict", "evaluate")]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "raise memory_limit or lower partition_size.",
            "raise --memory-limit or lower --partition-size.",
        ),
        (
            "with likelihood='pooled'; use fit_rows=\"sample\"",
            "with --likelihood pooled; use --fit-rows sample",
        ),
        (
            "leave fit_intercept=False out, say allow_code=True",
            "leave --no-intercept out, say --allow-code",
        ),
        (
            "more vectors (effort='thorough', max_vectors) may help",
            "more vectors (--effort thorough, --max-vectors) may help",
        ),
        ("no kernel is learned", None),
        ("the column 'memory_limit' of `max_rounds`", None),
        ("data/max_rounds.csv and max_rounds.csv: there are none", None),
        ("RVMRegressor(max_rounds=3) and model.max_rounds", None),
    ],
)
def test_messages_show_options_as_flags(message, expected):
    assert as_flags(message) == (expected or message)
