"""The summary in words: its sentences, doubts and figures follow from stored facts."""

import json
from dataclasses import asdict, replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
from by_default import some
from numpy.random import default_rng
from numpy.testing import assert_allclose
from sklearn.metrics import accuracy_score, log_loss

import partirvm
from partirvm import RVMClassifier, RVMRegressor
from partirvm.core import ClassScores
from partirvm.core.left_out import inside_95
from partirvm.core.scores import ece_by_chance
from partirvm.fit.assessment import share_of_copies
from partirvm.jobs import open_job
from partirvm.model import Assessment, load_model, save_model, summarised
from partirvm.model.summary import from_json
from partirvm.report.text import job_facts, ranked

NUMBERS = Assessment(
    target="fare",
    rows="left-out",
    n_scored=1200,
    figures={"r2": 0.931, "rmse": 2.1, "target_sd": 8.0, "coverage_95": 0.948, "noise_sd": 1.9},
    n_rows=1200,
    n_vectors=22,
    local_bytes=410 << 10,
    features=("km", "hour", "day", "zone"),
    n_features=12,
)
CLASSES = Assessment(
    target="kind",
    rows="left-out",
    n_scored=300,
    figures={
        "accuracy": 0.879,
        "log_loss": 0.278,
        "log_loss_of_shares": 0.689,
        "ece": 0.018,
        "largest_share": 0.543,
    },
    n_rows=1500,
    n_vectors=19,
    largest_class="no",
)


def test_the_summary_of_a_regression_says_error_intervals_size_noise_and_features():
    text = str(summarised(NUMBERS))
    for part in (
        "R² 0.931 on 1,200 left-out rows",
        "RMSE 2.10",
        "fare has a standard deviation of 8.00",
        "95 % intervals contain 94.8 % of these rows",
        "keeps 22 of 1,200 rows as relevance vectors, and the errors of all rows",
        "(410 KiB)",
        "Noise: standard deviation 1.90.",
        "4 of 12 features matter, in this order: km, hour, day, zone.",
    ):
        assert part in text
    assert "Caution" not in text


def test_the_summary_says_that_whole_groups_are_left_out():
    text = str(summarised(replace(NUMBERS, left_out_groups=80)))
    assert "on 1,200 left-out rows of 80 groups, each predicted without its group" in text


def test_the_summary_names_jumps_and_the_part_of_trees():
    jumps = (("km > 4.2", 3.14159), ("hour > 7", -0.5))
    lines = str(summarised(replace(NUMBERS, jumps=jumps, tree_share=0.4321))).splitlines()
    assert "fare jumps by +3.14 where km > 4.2, by -0.5 where hour > 7." in lines
    assert any("Boosted trees have a weight of 43.2 % in the predictions" in line for line in lines)


def test_the_summary_names_the_largest_of_many_jumps():
    jumps = tuple((f"km > {k}", 1.0 / k) for k in range(1, 8))
    text = str(summarised(replace(NUMBERS, jumps=jumps)))
    assert "fare has 7 jumps, the largest by +1 where km > 1," in text
    assert "km > 5" not in text


def test_the_summary_says_the_noise_for_known_groups():
    figures = {**NUMBERS.figures, "noise_sd_of_known_groups": 0.7}
    lines = str(summarised(replace(NUMBERS, figures=figures))).splitlines()
    assert (
        "Noise: standard deviation 1.90 for new groups, 0.700 for known groups that are named in "
        "the prediction."
    ) in lines


@pytest.mark.parametrize(("count", "end"), [(6, "f."), (7, "f, g."), (8, "f and others.")])
def test_the_summary_names_a_single_further_feature(count, end):
    text = str(summarised(replace(NUMBERS, features=tuple("abcdefgh"[:count]))))
    assert f"in this order: a, b, c, d, e, {end}" in text


def test_the_summary_of_classes_compares_with_the_frequencies_of_the_classes():
    text = str(summarised(CLASSES))
    for part in (
        "Accuracy 87.9 % on 300 left-out rows",
        "'no', the largest class: 54.3 %",
        "Log loss 0.278 (predicting the frequencies of the classes: 0.689",
        "by 1.8 % on average",
    ):
        assert part in text


DOUBTFUL = {
    "few rows": ({"n_scored": 60}, "only 60 rows"),
    "levels": ({"levels": (("shop", 400),)}, "'shop' has 400 levels (on average 3.0 rows each)"),
    "copies": ({"copies": 0.12}, "about 12.0 % of the rows are exact copies"),
    "outliers": ({"outliers": "3 rows carry 99.1 % of it"}, "3 rows carry 99.1 % of it"),
    "kernel": ({"n_rows": 100, "kernel_rows": 90, "kernel_widths": 12}, "12 widths of the kernel"),
    "groups": ({"groups": 7}, "7 groups"),
}


@pytest.mark.parametrize("case", DOUBTFUL)
def test_doubts_come_first(case):
    changes, words = DOUBTFUL[case]
    summary = summarised(replace(NUMBERS, **changes))
    assert len(summary.doubts) == 1
    assert summary.doubts[0].startswith("Caution: ")
    assert words in str(summary).splitlines()[0]
    escaped = summary._repr_html_()
    assert escaped.index("Caution") < escaped.index("R²")


@pytest.mark.parametrize("case", ["levels", "copies", "kernel", "groups"])
def test_validation_data_need_no_doubts_about_left_out_rows(case):
    changes, _ = DOUBTFUL[case]
    assert not summarised(replace(NUMBERS, rows="held-out", **changes)).doubts


@pytest.mark.parametrize(
    "changes",
    [
        {"kernel_rows": 70, "n_rows": 100, "kernel_widths": 12},
        {"kernel_rows": 1200, "kernel_widths": 12},
        {"copies": 0.001},
        {"levels": ()},
    ],
)
def test_reliable_figures_have_no_doubts(changes):
    assert not summarised(replace(NUMBERS, **changes)).doubts


def test_training_errors_are_called_too_small():
    summary = summarised(replace(NUMBERS, rows="training", copies=0.5))
    assert "on the 1,200 training rows, and less on new rows" in summary.sentences[0]
    assert not summary.doubts


def test_facts_survive_json_and_unknown_fields_are_ignored():
    facts = replace(NUMBERS, levels=(("shop", 400),), jumps=(("km > 4", 1.5),))
    stored = json.loads(json.dumps(asdict(facts)))
    assert from_json({**stored, "later": 1}) == facts


def test_copies_are_counted_only_where_rows_can_be_told_apart():
    """A quarter of the rows are copies; in a sample of half of the rows, half of these are seen."""
    rng = default_rng(0)
    X = rng.normal(size=(80, 2))
    t = rng.normal(size=(80, 1))
    doubled = np.r_[0:80, 0:20, 0:7]
    assert share_of_copies(X[doubled], t[doubled], 1.0) == pytest.approx(27 / 107)
    assert share_of_copies(X[doubled], t[doubled], 0.5) == pytest.approx(54 / 107)
    assert share_of_copies(X, t, 1.0) == 0.0
    X[:4] = np.nan
    assert share_of_copies(X[doubled], t[doubled], 1.0) == pytest.approx(27 / 107)
    coarse = rng.integers(0, 3, (200, 2)).astype(float)
    assert share_of_copies(coarse, coarse[:, :1], 1.0) == 0.0


def test_coverage_is_counted_on_the_other_half_of_the_rows():
    """Each half of equal quantiles covers 95 % of the other; rows far outside are never inside."""
    z = np.repeat(np.arange(1, 201) / 200, 2)
    assert inside_95(z) / len(z) == pytest.approx(0.95, abs=0.01)
    odd_is_larger = np.tile([1.0, 100.0], 200) * (1 + np.repeat(np.arange(200), 2) / 1000)
    assert inside_95(odd_is_larger) == 200


def test_the_calibration_error_by_chance_is_that_of_right_probabilities():
    """1,000 samples of classes drawn from the probabilities themselves."""
    rng = default_rng(0)
    p = rng.uniform(0.5, 1.0, 400)
    probabilities = np.column_stack([p, 1 - p])
    errors = [
        ClassScores.of((rng.uniform(size=400) > p).astype(int), probabilities).figures()["ece"]
        for _ in range(300)
    ]
    assert ece_by_chance(p) == pytest.approx(np.mean(errors), rel=0.05)


@pytest.fixture(scope="module")
def regression():
    rng = default_rng(2)
    X = rng.uniform(-3, 3, (2500, 3))
    y = 5 * np.sin(X[:, 0]) + X[:, 1] + rng.normal(0, 0.5, 2500)
    return X, y


def test_left_out_figures_hold_on_new_rows(regression, tmp_path):
    """They are stored with the model; a pruned model has none."""
    X, y = regression
    model = RVMRegressor(gamma=0.3, random_state=0, residual="none").fit(X[:450], y[:450])
    summary = model.model_.summary()
    figures = summary.figures
    predicted = model.predict(X[450:])
    error = np.sqrt(np.mean((predicted - y[450:]) ** 2))
    assert (figures["rows"], figures["n_scored"]) == ("left-out", 450)
    assert_allclose(figures["rmse"], error, rtol=0.1)
    assert_allclose(figures["r2"], model.score(X[450:], y[450:]), atol=0.01)
    assert_allclose(figures["target_sd"], y[:450].std(), rtol=1e-9)
    assert_allclose(figures["r2"], 1 - (figures["rmse"] / figures["target_sd"]) ** 2, rtol=1e-9)
    low, high = model.predict_interval(X[450:], 0.95)
    inside = np.mean((low < y[450:]) & (y[450:] < high))
    assert_allclose(figures["coverage_95"], inside, atol=0.03)
    save_model(model.model_, tmp_path / "model")
    assert load_model(tmp_path / "model").summary() == summary
    assert all(sentence in model._repr_html_() for sentence in summary.sentences)
    assert summary._repr_html_() in model._repr_mimebundle_()["text/html"]
    assert "left-out" not in RVMRegressor()._repr_html_()
    assert model.history_[-1]["assessment"] == asdict(model.model_.assessment)
    pruned = model.prune(3).model_.summary()
    assert "rmse" not in pruned.figures
    assert pruned.figures["n_vectors"] == 3


def test_corrected_predictions_are_judged_with_their_corrections(regression):
    X, _ = regression
    rng = default_rng(3)
    y = np.sin(2 * X[:, 0]) + np.cos(X[:, 1]) + rng.normal(0, 0.05, len(X))
    model = RVMRegressor(random_state=0, gamma=0.5, residual="local", max_vectors=5)
    model.fit(X[:400], y[:400])
    figures = model.model_.summary().figures
    error = np.sqrt(np.mean((model.predict(X[400:]) - y[400:]) ** 2))
    assert figures["local_bytes"] > 0
    assert_allclose(figures["rmse"], error, rtol=0.25)
    assert "rmse" not in model.model_.sparse().summary().figures


@pytest.mark.parametrize(
    ("likelihood", "edges"),
    some(
        product(["multinomial", "pooled"], [(0.0,), (-1.0, 1.0)]),
        {("multinomial", (0.0,)), ("pooled", (-1.0, 1.0))},
    ),
)
def test_left_out_classes_hold_on_new_rows(regression, likelihood, edges):
    X, y = regression
    codes = np.digitize(y + default_rng(4).normal(0, 1.0, len(y)), edges)
    model = RVMClassifier(random_state=0, likelihood=likelihood, gamma=0.2)
    model.fit(X[:500], codes[:500])
    figures = model.model_.summary().figures
    probabilities = model.predict_proba(X[500:])
    assert figures["n_scored"] == 500
    assert_allclose(figures["log_loss"], log_loss(codes[500:], probabilities), rtol=0.2)
    assert_allclose(
        figures["accuracy"], accuracy_score(codes[500:], model.predict(X[500:])), atol=0.05
    )
    shares = np.bincount(codes[:500]) / 500
    assert_allclose(figures["largest_share"], shares.max(), rtol=1e-12)
    assert_allclose(figures["log_loss_of_shares"], -(shares @ np.log(shares)), rtol=1e-12)


def test_validation_rows_replace_left_out_rows(regression):
    X, y = regression
    model = RVMRegressor(random_state=0, gamma=0.3, residual="none")
    model.fit(X[:500], y[:500], X_val=X[500:900], y_val=y[500:900])
    figures = model.model_.summary().figures
    assert (figures["rows"], figures["n_scored"]) == ("held-out", 400)
    assert_allclose(figures["rmse"], model.history_[-1]["held_out_rmse"], rtol=1e-9)


def test_few_rows_per_level_are_named():
    """150 rows of 50 shops."""
    rng = default_rng(5)
    shop = np.arange(150) % 50
    effect = rng.normal(0, 2, 50)
    table = pd.DataFrame({"x": rng.normal(size=150), "shop": pd.Categorical(shop.astype(str))})
    y = table["x"] + effect[shop] + rng.normal(0, 1.0, 150)
    model = RVMRegressor(gamma=1.0, residual="none", random_state=0).fit(table, y)
    assert any("'shop' has 50 levels" in doubt for doubt in model.model_.summary().doubts)


def test_jobs_are_ranked_by_their_error_on_left_out_rows(regression, tmp_path):
    X, y = regression
    partirvm.ingest((X[:300], y[:300]), tmp_path / "d.zarr")
    for name, gamma in (("narrow", 40.0), ("good", 0.3)):
        model = RVMRegressor(gamma=gamma, residual="none", random_state=0)
        partirvm.submit(model, tmp_path / "d.zarr", tmp_path / name).wait(60)
    facts = [job_facts(open_job(str(tmp_path / name))) for name in ("narrow", "good")]
    first, second = ranked([*facts, {**facts[1], "summary": None}])[:2]
    assert [job["job"].rpartition("/")[2] for job in (first, second)] == ["good", "narrow"]
    assert [job["rank"] for job in (first, second)] == [1, 2]
    assert first["summary"]["rmse"] < second["summary"]["rmse"]
    assert ranked([{**facts[0], "summary": None}])[0]["rank"] is None
