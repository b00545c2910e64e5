"""The picture of a classification of two inputs: margins and shading by their formulas, and that it can be drawn."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.image import imread
from sklearn.datasets import make_blobs

from partirvm import RVMClassifier
from partirvm.errors import UsageError
from partirvm.report.boundary import COLOURS, STRENGTH, draw_boundary, margins, shading


def test_margins_vanish_where_two_classes_are_equal():
    """The probability of a class minus the largest other one."""
    p = np.array([[0.4, 0.4, 0.2], [0.1, 0.6, 0.3]])
    np.testing.assert_allclose(margins(p), [[0, -0.5], [0, 0.3], [-0.2, -0.3]], atol=1e-12)


def test_shading_is_white_for_ignorance_and_a_class_s_colour_for_certainty():
    """(p − 1/K)/(1 − 1/K) of the class's colour, at most STRENGTH of it."""
    np.testing.assert_allclose(shading(np.full(3, 1 / 3)), 1.0)
    colour = np.array([int(COLOURS[1][k : k + 2], 16) / 255 for k in (1, 3, 5)])
    np.testing.assert_allclose(shading(np.array([0.0, 1.0])), 1 - STRENGTH * (1 - colour))
    np.testing.assert_allclose(shading(np.array([0.25, 0.75])), 1 - STRENGTH * 0.5 * (1 - colour))


@pytest.mark.parametrize("n_classes", [2, 4])
def test_it_draws_models_and_estimators(tmp_path, n_classes):
    """A PNG with the colours of all classes in it."""
    X, codes = make_blobs(120, centers=[[0, 0], [4, 0], [0, 4], [4, 4]][:n_classes], random_state=0)
    y = np.array(["a", "b", "c", "d"])[codes]
    fitted = RVMClassifier(gamma=0.3, strategy="basic", random_state=0).fit(X, y)
    draw_boundary(fitted, X, y, tmp_path / "one.png", title="groups")
    draw_boundary(fitted.model_, X, y, tmp_path / "two.png", title="groups")
    picture = imread(tmp_path / "one.png")
    np.testing.assert_array_equal(picture, imread(tmp_path / "two.png"))
    for colour in COLOURS[:n_classes]:
        wanted = np.array([int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)])
        assert (np.abs(picture[..., :3] - wanted).max(axis=-1) < 0.01).sum() > 100


def test_what_cannot_be_drawn(tmp_path):
    """Three inputs, labels that the model does not know, y of another length."""
    X, y = make_blobs(40, centers=2, n_features=2, random_state=0)
    fitted = RVMClassifier(gamma=0.3, strategy="basic", random_state=0).fit(X, y)
    for rows, labels, message in (
        (np.zeros((4, 3)), [0, 1, 0, 1], "two inputs"),
        (X, y + 5, "label '5'"),
        (X, y[:3], "belong together"),
    ):
        with pytest.raises(UsageError, match=message):
            draw_boundary(fitted, rows, labels, tmp_path / "no.png")
