"""Levels with several targets and with classes: predictions for known, rare, new and missing
levels.

The effects of levels have a known variance, from which the variance of a new target follows.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from by_default import some
from exported import numpy_export
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from scipy.special import expit

from partirvm import RVMClassifier, RVMRegressor, ingest, load_model, save_model
from partirvm.core import level_folds
from partirvm.core.link import logit_variance
from partirvm.learning.embedding import LevelRows, RandomEffects
from partirvm.learning.level_variances import COORDINATES, LevelSample

QUICK = {"random_state": 0, "effort": "quick"}

pytestmark = pytest.mark.filterwarnings("ignore::partirvm.errors.PartirvmWarning")


@dataclass
class Planted:
    """Effects (L + 600, C) of L levels with training rows and 600 others, normal with a given
    sd."""

    n_levels: int
    effects: np.ndarray
    rng: np.random.Generator

    @classmethod
    def of(cls, n_levels, strength, outputs, seed):
        rng = default_rng(seed)
        return cls(n_levels, strength * rng.normal(size=(n_levels + 600, outputs)), rng)

    def frame(self, codes):
        return pd.DataFrame(
            {"x": self.rng.normal(size=len(codes)), "k": pd.Categorical([f"l{c}" for c in codes])}
        )

    def numbers(self, codes):
        """Return targets (n, T): sin 1.5x, effects, and noise of variance 1."""
        frame = self.frame(codes)
        curves = np.sin(1.5 * frame.x.to_numpy())[:, None] + self.effects[codes]
        return frame, curves + self.rng.normal(size=curves.shape)

    def classes(self, codes):
        """Return classes with the logits x and the effects; the first class has the logit 0."""
        frame = self.frame(codes)
        logits = np.column_stack(
            [np.zeros(len(codes)), frame.x.to_numpy()[:, None] + self.effects[codes]]
        )
        noisy = logits + self.rng.gumbel(size=logits.shape)
        return frame, noisy.argmax(axis=1)

    @property
    def seen(self):
        return self.rng.integers(0, self.n_levels, 600)

    @property
    def new(self):
        return self.n_levels + np.arange(600)


def log_loss(probabilities, codes):
    return -float(np.log(probabilities[np.arange(len(codes)), codes]).mean())


def test_the_variance_of_effects_in_training_is_that_without_the_row_s_fold():
    """An effect of prior variance s² with n rows of weight w outside the fold has the variance
    1/(nw/σ² + 1/s²); training rows see the mean of these."""
    rng = default_rng(0)
    codes = rng.integers(0, 5, 60)
    codes[0] = 5  # the only row of its level
    folds = level_folds(np.arange(60))
    w = 2.0
    rows = LevelRows(
        np.full((60, 1), np.sqrt(w)), rng.normal(size=60), np.stack([0 * codes, codes]), (3, 8)
    )
    levels = LevelSample(rows, np.full(60, np.sqrt(w)), folds, (COORDINATES,))
    effects = RandomEffects(np.zeros((8, 1)), np.zeros((8, 1, 1)), np.array([[3.0]]), 0.7)
    others = np.array([np.sum((codes == codes[row]) & (folds != folds[row])) for row in range(60)])
    expected = np.mean(1 / (others * w / 0.7 + 1 / 3.0))
    assert levels.in_training(effects, 1) == (pytest.approx(expected, rel=1e-12), True)


TARGETS = [
    (200, 3, 4.0, 2, 0),
    (300, 1, 2.0, 2, 1),
    (300, 2, 2.0, 2, 3),
    (60, 10, 4.0, 2, 4),
    (40, 30, 1.0, 3, 5),
    (300, 2, 0.5, 2, 6),
    (100, 6, 2.0, 5, 7),
    (150, 4, 8.0, 2, 8),
    (80, 8, 2.0, 2, 9),
    (600, 1, 4.0, 3, 10),
    (30, 20, 4.0, 2, 11),
]
"""Levels, rows per level, standard deviation of effects, targets, seed."""


def outside(n_effects):
    """Return the fraction of normal errors outside 95 % intervals with an sd two errors too
    small."""
    return 2.0 * stats.norm.sf(stats.norm.ppf(0.975) * (1.0 - 2.0 / np.sqrt(2.0 * n_effects)))


@pytest.mark.usefixtures("default_fits")
@pytest.mark.parametrize(
    ("n_levels", "per_level", "strength", "n_targets", "seed"), some(TARGETS, set(TARGETS[:1]))
)
def test_deviations_of_several_targets_are_right_for_known_and_new_levels(
    n_levels, per_level, strength, n_targets, seed
):
    """95 % of new targets are within 1.96 deviations. The sd of L effects has the relative error
    1/√(2L), and intervals may be too narrow by two of these; with one row per level, noise and
    effects cannot be separated."""
    planted = Planted.of(n_levels, strength, n_targets, seed)
    frame, y = planted.numbers(np.repeat(np.arange(n_levels), per_level))
    model = RVMRegressor(reference="none", **QUICK).fit(frame, y)
    for codes in (planted.seen, planted.new):
        new, t = planted.numbers(codes)
        mean, std = model.predict(new, return_std=True)
        inside = (np.abs(t - mean) < stats.norm.ppf(0.975) * std).mean(axis=0)
        assert (inside > 1.0 - outside(n_levels) - 0.02).all()
        assert 1.0 - outside(n_levels * n_targets) - 0.02 < inside.mean() < 0.99
    assert_allclose(np.mean(std**2, axis=0), 1 + strength**2, rtol=0.5)
    assert_allclose(np.mean(std**2), 1 + strength**2, rtol=0.25)


CLASSES = [
    (200, 3, 4.0, 2, 1),
    (20, 30, 6.0, 2, 9),
    (250, 3, 2.0, 3, 0),
    (400, 1, 4.0, 2, 2),
    (200, 2, 6.0, 2, 3),
    (300, 3, 1.0, 2, 4),
    (40, 20, 4.0, 2, 5),
    (100, 6, 3.0, 4, 6),
    (400, 1, 3.0, 3, 7),
    (60, 15, 4.0, 3, 8),
    (150, 5, 0.0, 2, 9),
    (8, 60, 3.0, 2, 10),
]
"""Levels, rows per level, standard deviation of effects on logits, classes, seed."""


@pytest.mark.usefixtures("default_fits")
@pytest.mark.parametrize(
    ("n_levels", "per_level", "strength", "n_classes", "seed"), some(CLASSES, {CLASSES[1]})
)
def test_class_probabilities_are_right_for_known_and_new_levels(
    n_levels, per_level, strength, n_classes, seed
):
    """Their log loss is at most .02 + .2/√L above that of the class frequencies and .06 above that
    of logistic regression on target encodings, and they are calibrated."""
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import TargetEncoder

    planted = Planted.of(n_levels, strength, n_classes - 1, seed)
    frame, codes = planted.classes(np.repeat(np.arange(n_levels), per_level))
    model = RVMClassifier(**QUICK).fit(frame, codes)
    encoder = make_column_transformer((TargetEncoder(), ["k"]), remainder="passthrough")
    encoded = make_pipeline(encoder, LogisticRegression()).fit(frame, codes)
    shares = np.bincount(codes) / len(codes)
    for levels in (planted.seen, planted.new):
        new, labels = planted.classes(levels)
        probabilities = model.predict_proba(new)
        loss = log_loss(probabilities, labels)
        assert loss < log_loss(np.tile(shares, (600, 1)), labels) + 0.02 + 0.2 / np.sqrt(n_levels)
        assert loss < log_loss(encoded.predict_proba(new), labels) + 0.06
        likeliest = probabilities.argmax(axis=1)
        right = (likeliest == labels).mean()
        # two standard deviations of a fraction of 600 rows, and of the effects that old and new
        # levels happen to have
        among = len(np.unique(levels))
        allowed = 0.04 + 2.0 * 0.5 * np.sqrt(1.0 / among + 1.0 / n_levels)
        assert abs(probabilities.max(axis=1).mean() - right) < allowed


@pytest.mark.parametrize("variance", [0.5, 4.0, 30.0])
@pytest.mark.parametrize("share", [0.5, 0.1])
def test_the_variance_of_logits_follows_from_that_of_probabilities(variance, share):
    """u ~ N(0, v), and the mean of σ(m + u) is given."""
    u = np.sqrt(variance) * stats.norm.ppf((np.arange(20_000) + 0.5) / 20_000)
    low = -100.0
    high = 100.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if expit(middle + u).mean() < share else (low, middle)
    found = logit_variance(float(expit(middle + u).var()), share)
    assert_allclose(found, variance, rtol=0.12)


def onnx_of(model, path, numbers):
    """Return the outputs of an ONNX export in double precision, by name."""
    onnxruntime = pytest.importorskip("onnxruntime")
    model.to_onnx(path / "model.onnx", dtype="float64")
    session = onnxruntime.InferenceSession(str(path / "model.onnx"))
    names = [each.name for each in session.get_outputs()]
    return dict(
        zip(names, session.run(names, {session.get_inputs()[0].name: numbers}), strict=True)
    )


def table_with_gaps(n_levels, seed):
    """Return rows with missing numbers and labels, codes, and effects of levels (L + 1,)."""
    rng = default_rng(seed)
    codes = rng.integers(0, n_levels + 1, 300)
    x = np.where(rng.random(300) < 0.1, np.nan, rng.normal(size=300))
    labels = [None if code == n_levels else f"l{code:03d}" for code in codes]
    levels = [f"l{code:03d}" for code in range(n_levels)]
    frame = pd.DataFrame(
        {"x": x, "z": rng.normal(size=300), "k": pd.Categorical(labels, categories=levels)}
    )
    return frame, codes, 3.0 * rng.normal(size=n_levels + 1)


INTERFACES = [
    (kind, n_levels)
    for kind in ("numbers", "targets", "two", "three")
    for n_levels in (2, 6, 16, 120)
]


@pytest.mark.usefixtures("default_fits")
@pytest.mark.parametrize(("kind", "n_levels"), some(INTERFACES, {("targets", 120), ("three", 120)}))
def test_exports_and_files_agree_on_levels(kind, n_levels, tmp_path):
    """Labels are known, unknown or missing; numbers may be missing."""
    frame, codes, effects = table_with_gaps(n_levels, n_levels)
    rng = default_rng(1)
    signal = np.nan_to_num(frame.x.to_numpy()) + effects[codes]
    y = signal + 0.5 * rng.normal(size=300)
    if kind == "targets":
        y = np.column_stack([y, frame.z - effects[codes] + 0.3 * rng.normal(size=300)])
    if kind == "two":
        y = y > 0
    if kind == "three":
        y = np.digitize(y, [-2.0, 2.0])
    classifies = kind in ("two", "three")
    model = (RVMClassifier(**QUICK) if classifies else RVMRegressor(residual="none", **QUICK)).fit(
        frame, y
    )
    new = frame.iloc[:40].copy()
    numbers = np.column_stack([new.x, new.z, np.where(new.k.isna(), np.nan, new.k.cat.codes)])
    numbers[:5, 2] = n_levels + 7.0  # an unknown label
    new["k"] = new.k.cat.add_categories(["other"])
    new.loc[new.index[:5], "k"] = "other"
    exported = numpy_export(model, tmp_path)(numbers)
    in_onnx = onnx_of(model, tmp_path, numbers)
    save_model(model, tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    later = ingest((new, None), tmp_path / "new.zarr", like=ingest((frame, y), tmp_path / "d.zarr"))
    if classifies:
        expected = {"probabilities": model.predict_proba(new)}
        assert_array_equal(loaded.predict_proba(new), expected["probabilities"])
        assert_allclose(model.predict_proba(later), expected["probabilities"], rtol=1e-12)
    else:
        mean, std = model.predict(new, return_std=True)
        expected = {"mean": mean, "std": std}
        assert_array_equal(loaded.predict(new, return_std=True)[1], std)
        assert_allclose(model.predict(later), mean, rtol=1e-12)
    for name, values in expected.items():
        assert_allclose(exported[name].reshape(values.shape), values, rtol=1e-9, atol=1e-9)
        assert_allclose(in_onnx[name].reshape(values.shape), values, rtol=1e-6, atol=1e-6)
