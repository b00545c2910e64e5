"""Charts of predictions: panels and their counts, drawn by matplotlib and on a page."""

import shutil

import numpy as np
import pytest
from by_default import some
from histories import classes, numbers
from naive import rmse
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from pages import check, check_drawing, drawn

from partirvm import DiagnosticsDisplay, RVMClassifier, RVMRegressor, ingest, jobs
from partirvm.core import ClassDiagnostics, ClassScores, NumberDiagnostics
from partirvm.errors import DataError, UsageError
from partirvm.options import Request
from partirvm.report.plots import class_charts, from_json, number_charts

HOSTILE = '#2c66a8 id="x"<script>alert(1)</script>\'&$x_\\foo$\x1b'


@pytest.fixture(autouse=True)
def _close_figures(monkeypatch):
    """Draw figures without a screen, and close them after the test."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    yield
    from matplotlib import pyplot

    pyplot.close("all")


def by_title(panels):
    return {panel.title: panel for panel in panels}


def points_of(panel):
    """Return the y values of a panel's estimates with intervals, an array for each set."""
    return [box.lines[0].get_ydata() for box in drawn(panel).containers if hasattr(box, "has_yerr")]


def test_panels_for_numbers_show_their_counts():
    """They are fractions of all rows; errors are drawn against deviations only if deviations
    vary."""
    found = NumberDiagnostics.of(*numbers(spread=0.5), np.arange(500))
    panels = by_title(number_charts(found, "fare"))
    assert_allclose(points_of(panels["Coverage of intervals"])[0], found.covered / 500)
    bars = drawn(panels["Position in the predicted distribution"]).containers[0]
    assert np.mean([bar.get_height() for bar in bars]) == pytest.approx(1.0)
    values = found.sample.values
    tenth = values[np.argsort(values[:, 2], kind="stable")][:40]
    (errors,) = points_of(panels["Errors against predicted std"])
    assert errors[0] == pytest.approx(rmse(tenth[:, 0], tenth[:, 1]))
    assert drawn(panels["Predictions"]).get_xlabel() == "predicted fare"
    same = NumberDiagnostics.of(*numbers(), np.arange(500))
    assert list(by_title(number_charts(same))) == list(panels)[:-1]


def test_panels_for_two_classes_show_the_second():
    codes, p = classes(2)
    (found,) = ClassScores.of(codes, p, p[:, 1].copy()).diagnostics
    panels = by_title(class_charts(found, ("no", "yes")))
    shown = found.rows[1] >= 5
    (reliability,) = points_of(panels["Reliability of probabilities"])
    assert_allclose(reliability, found.hits[1][shown] / found.rows[1][shown])
    assert (
        drawn(panels["Reliability of probabilities"]).get_xlabel() == "predicted probability of yes"
    )


def test_the_last_of_many_classes_share_one_name():
    found = ClassDiagnostics.of(*classes(20))
    confusion = drawn(by_title(class_charts(found, [f"c{k}" for k in range(20)]))["Confusion"])
    assert [text.get_text() for text in confusion.get_yticklabels()][-2:] == ["c10", "9 others"]


@pytest.mark.parametrize("n", some([1, 2, 50], {1}))
def test_few_rows_and_hostile_names_give_valid_panels(n):
    """Names are rendered as text, not as formulas."""
    t, mean, std = numbers(n)
    panels = number_charts(NumberDiagnostics.of(t, mean, std, np.arange(n)), HOSTILE)
    panels += class_charts(ClassDiagnostics.of(*classes(3, n)), [HOSTILE, "b", "c"])
    texts = [check_drawing(panel.svg()) for panel in panels]
    assert "#2c66a8 id=" in texts[0]
    assert not number_charts(NumberDiagnostics.of(t[:0], mean[:0], std[:0], np.arange(0)))


@pytest.mark.parametrize("several", [False, True])
def test_a_regressor_draws_its_diagnostics(several):
    """Each target has a row of panels with the counts of its predictions."""
    rng = default_rng(0)
    X = rng.uniform(-3, 3, (300, 1))
    y = np.sin(X) @ np.ones((1, 1 + several)) + 0.1 * rng.normal(size=(300, 1 + several))
    y = y if several else y[:, 0]
    fitted = RVMRegressor(gamma=1.0, random_state=0).fit(X[:150], y[:150])
    display = DiagnosticsDisplay.from_estimator(fitted, X[150:], y[150:])
    assert len(display.axes_) == 4 * (1 + several)
    mean, std = fitted.predict(X[150:], return_std=True)
    t, *moments = (values.reshape(150, -1)[:, 0] for values in (y[150:], mean, std))
    expected = NumberDiagnostics.of(t, *moments, np.arange(150))
    assert_array_equal(display.found[0].pit, expected.pit)
    assert_allclose(
        np.sort(display.found[0].sample.values, axis=0), np.sort(expected.sample.values, axis=0)
    )
    if not several:
        lower, upper = fitted.predict_interval(X[150:], 0.9)
        assert display.found[0].covered[9] == ((lower <= t) & (t <= upper)).sum()


@pytest.mark.parametrize("held_out", [False, True])
def test_diagnostics_without_rows_are_those_of_the_fit(held_out):
    """They come from held-out rows, or from training rows that were left out."""
    rng = default_rng(0)
    X = rng.uniform(-3, 3, (300, 1))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=300)
    fitted = RVMRegressor(gamma=1.0, strategy="working-set", max_rounds=2, random_state=0)
    fitted.fit(X[:200], y[:200], **({"X_val": X[200:], "y_val": y[200:]} if held_out else {}))
    (found,) = fitted.plot_diagnostics().found
    assert found.n == (100 if held_out else 200)
    assert sum(bool(line["diagnostics"]) for line in fitted.history_) == 1
    if held_out:
        (again,) = fitted.plot_diagnostics(X[200:], y[200:]).found
        assert_array_equal(again.pit, found.pit)
        assert_array_equal(again.covered, found.covered)


@pytest.mark.parametrize("K", [2, 3])
def test_a_classifier_draws_its_diagnostics(K):
    """The confusion matrix follows from its predictions; other labels are refused."""
    rng = default_rng(0)
    X = rng.normal(size=(200, 2))
    y = np.array(["a", "b", "c"])[np.clip(np.round(X[:, 0] + 1), 0, K - 1).astype(int)]
    fitted = RVMClassifier(gamma=0.5, random_state=0).fit(X[:100], y[:100])
    display = fitted.plot_diagnostics(X[100:], y[100:])
    labels = fitted.classes_.tolist()
    predicted = fitted.predict(X[100:])
    expected = [[((y[100:] == a) & (predicted == b)).sum() for b in labels] for a in labels]
    assert_array_equal(display.found[0].confusion, expected)
    assert [text.get_text() for text in display.axes_[1].get_yticklabels()] == labels
    with pytest.raises(DataError, match="other"):
        fitted.plot_diagnostics(X[:2], ["other", "a"])
    with pytest.raises(UsageError, match="y_val"):
        fitted.plot_diagnostics()


@pytest.mark.parametrize("kind", some(["numbers", "left-out", "classes"], {"numbers"}))
def test_a_jobs_page_shows_diagnostics_without_data(kind, tmp_path):
    """They come from held-out rows, counted once, or from left-out rows."""
    rng = default_rng(0)
    X = rng.uniform(-3, 3, (200, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=200)
    y = np.array(["low", "high"])[(y > 0).astype(int)] if kind == "classes" else y
    for name, rows in (("train", slice(0, 150)), ("held-out", slice(150, 200))):
        ingest((X[rows], y[rows]), str(tmp_path / name), classes=kind == "classes")
    job = str(tmp_path / "job")
    validation = None if kind == "left-out" else str(tmp_path / "held-out")
    request = Request(gamma=1.0, max_rounds=1, residual="none")
    jobs.fit(str(tmp_path / "train"), job, request, validation=validation)
    for name in ("train", "held-out"):
        shutil.rmtree(tmp_path / name)
    shown = jobs.open_job(job).report()
    (found,) = from_json(shown.values["history"][-1]["diagnostics"])
    assert found.n == (150 if kind == "left-out" else 50)
    read = check(shown.html)
    title = "Predictions of left-out rows" if kind == "left-out" else "Predictions of held-out rows"
    assert title in read.text
    labels = read.titles
    assert ("Confusion" if kind == "classes" else "Standardised residuals") in labels
    assert ("Coverage of intervals" in labels) == (kind == "numbers")
    assert tuple(shown.values["outputs"]) == (("high", "low") if kind == "classes" else ("y",))
    diagnosed = {entry["kind"] for entry in shown.values["history"] if entry["diagnostics"]}
    assert diagnosed == {"final"} if kind == "left-out" else diagnosed <= {"round", "final"}
    assert read.text.count("Largest errors") == 1
