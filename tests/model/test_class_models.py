"""Classification models: their formulas, and equal bits after saving."""

from dataclasses import replace

import naive
import numpy as np
import pytest
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal

from partirvm import load_model
from partirvm.core import Correction, Ramp
from partirvm.core.link import LINKS
from partirvm.errors import DataError, FormatError
from partirvm.kernels import Design, Gaussian
from partirvm.model import ClassModel, save_model
from partirvm.scaling import Scaling
from partirvm.types import Columns

LABELS = {
    "text": ("blue", "n/a", "réd"),
    "numbers": (-3, 0, 7),
    "fractions": (0.1, 0.25, 2.5),
    "mixed": (1, "a", "b"),
}
"""Three labels of each type, but only two truth values."""

KINDS = [
    ("bernoulli", (False, True)),
    ("bernoulli", ("a", "b")),
    *(("multinomial", LABELS[k]) for k in LABELS),
]
KINDS += [("pooled", LABELS["text"]), ("corrected", LABELS["text"])]

SLOPES = np.array([[0.5, -1.0, 2.0], [0.0, 3.0, -0.7], [1.5, 0.2, 0.0]])


def classifier(
    likelihood="multinomial", classes=LABELS["text"], *, m=5, bias=True, moderate=True, seed=0
):
    """Return a random model of two features; predictors of ``pooled`` and ``corrected`` share Σ and
    have a ramp, with a correction for ``corrected``."""
    rng = default_rng(seed)
    M = m + bias
    outputs = 1 if likelihood == "bernoulli" else len(classes)
    scaling = Scaling(rng.normal(size=2), rng.uniform(0.5, 2, 2), np.zeros(1), np.ones(1))
    design = Design(
        Gaussian((0.4, 0.7)), scaling, rng.normal(size=(m, 2)), rng.permutation(100)[:m], bias
    )
    mean = 2 * rng.normal(size=(M, outputs))
    alpha = rng.uniform(0.1, 1e9, M)
    pooled = likelihood in ("pooled", "corrected")
    root = np.triu(rng.normal(size=(1 if pooled else outputs, M, M)))
    columns = Columns(("x0", "x1"), "kind", {}, tuple(classes))
    facts = design, mean, root, alpha, -12.345678901234567, 10**6, columns
    if pooled:
        correction = Correction(SLOPES, np.array([0.1, 0.2, -0.3]))
        ramp = Ramp(0.3, 2.0, correction=correction if likelihood == "corrected" else None)
        return ClassModel(*facts, "multinomial", moderate, ramp)
    return ClassModel(*facts, likelihood, moderate, None)


def dense(model, X):
    """Return f (n, C), φᵀΣ_kφ (n, C), and kernels as fractions of their peak (n, m)."""
    s = model.design.scaling
    K = naive.gaussian(
        (X - s.x_shift) / s.x_scale, (model.design.centres - s.x_shift) / s.x_scale, (0.4, 0.7)
    )
    Phi = np.hstack([np.ones((len(X), int(model.design.bias))), K])
    variance = [np.einsum("nm,mk,nk->n", Phi, R @ R.T, Phi) for R in model.root]
    return Phi @ model.mean, np.array(variance).T * np.ones(model.mean.shape[1]), K


@pytest.mark.parametrize("moderate", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("likelihood", ["bernoulli", "multinomial", "pooled", "corrected"])
def test_probabilities_follow_the_formula(likelihood, bias, moderate):
    classes = ("no", "yes") if likelihood == "bernoulli" else LABELS["text"]
    model = classifier(likelihood, classes, bias=bias, moderate=moderate)
    X = default_rng(1).normal(size=(5000, 2))
    f, variance, K = dense(model, X)
    found = model.moments(X)
    assert_allclose(found[0], f, rtol=1e-9, atol=1e-12)
    assert_allclose(found[1], variance, rtol=1e-9)
    assert_allclose(found[2], K.max(axis=1), rtol=1e-9)
    assert model.moments(X, variance=False)[1] is None
    linked = f / np.sqrt(1 + np.pi * variance / 8) if moderate else f
    terms = linked @ SLOPES + [0.1, 0.2, -0.3] if likelihood == "corrected" else 0.0
    if likelihood in ("pooled", "corrected"):
        linked = 2.0 * np.log(np.logaddexp(0, linked / 0.3)) + terms
    assert_allclose(model.predictors(X)[0], linked, rtol=1e-9, atol=1e-12)
    if likelihood == "bernoulli":
        p = 1 / (1 + np.exp(-linked))
        p = np.hstack([1 - p, p])
    else:
        p = np.exp(linked)
        p /= p.sum(axis=1, keepdims=True)
    assert_allclose(model.predict_proba(X), p, rtol=1e-9, atol=1e-12)
    assert_array_equal(model.predict(X), np.array(classes)[p.argmax(axis=1)])


@pytest.mark.parametrize("bias", [True, False])
def test_a_model_without_vectors_is_constant(bias):
    model = classifier("bernoulli", (0, 1), m=0, bias=bias)
    X = default_rng(2).normal(size=(3, 2))
    assert np.ptp(model.predict_proba(X), axis=0).max() == 0.0
    assert bias or (model.predict_proba(X) == 0.5).all()
    assert_array_equal(model.moments(X)[2], 1.0)


@pytest.mark.parametrize(("likelihood", "classes"), KINDS)
def test_a_saved_model_has_the_same_bits(tmp_path, likelihood, classes):
    """Labels keep their types, and predictions are equal."""
    model = classifier(likelihood, classes, moderate=likelihood in LINKS)
    save_model(model, tmp_path / "model")
    found = load_model(tmp_path / "model")
    assert isinstance(found, ClassModel)
    assert (found.log_evidence, found.n_rows) == (model.log_evidence, model.n_rows)
    assert [type(label) for label in found.classes] == [type(label) for label in classes]
    assert found.digest() == model.digest()
    X = default_rng(1).normal(size=(20, 2))
    assert_array_equal(found.predict_proba(X), model.predict_proba(X))
    labels = found.predict(X)
    assert set(labels.tolist()) <= set(classes)
    kinds = {str: "U", int: "i", float: "f", bool: "b"}
    mixed = len(set(map(type, classes))) > 1
    assert labels.dtype.kind == ("O" if mixed else kinds[type(classes[0])])


def test_the_digest_covers_everything_that_affects_predictions():
    model = classifier("pooled")
    other = replace(model.columns, classes=("blue", "n/a", "red"))
    changed = [
        replace(model, ramp=Ramp(0.3, 2.5)),
        replace(model, ramp=classifier("corrected").ramp),
        replace(model, moderate=False),
        replace(model, columns=other),
        replace(model, mean=model.mean + 1e-12),
        replace(model, root=2 * model.root),
    ]
    assert len({each.digest() for each in [model, *changed]}) == 7
    assert replace(model, log_evidence=0.0).digest() == model.digest()


def test_rows_with_other_features_are_refused():
    for method in ("predict", "predict_proba"):
        with pytest.raises(DataError, match=r"2 features.*\(4, 3\)"):
            getattr(classifier(), method)(np.zeros((4, 3)))


@pytest.mark.parametrize("slopes", [np.zeros((2, 3)), np.full((3, 3), np.nan), np.zeros((3, 3, 1))])
def test_a_model_with_a_wrong_correction_is_not_read(tmp_path, slopes):
    model = classifier("corrected")
    correction = replace(model.ramp.correction, slopes=slopes)
    save_model(replace(model, ramp=replace(model.ramp, correction=correction)), tmp_path / "m")
    with pytest.raises(FormatError, match="slopes"):
        load_model(tmp_path / "m")


def test_a_model_with_an_unknown_likelihood_is_not_read(tmp_path):
    """Another process may have registered the likelihood."""
    save_model(replace(classifier(), likelihood="probit"), tmp_path / "m")
    with pytest.raises(FormatError, match="likelihood 'probit' is unknown"):
        load_model(tmp_path / "m")
