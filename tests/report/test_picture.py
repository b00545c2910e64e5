"""The picture: arrays in, a figure out, no trace in matplotlib's state."""

from __future__ import annotations

import sys

import numpy as np
import pytest

matplotlib = pytest.importorskip("matplotlib")

from partirvm.report.picture import WIDTH, Landscape, draw, save  # noqa: E402


@pytest.fixture
def landscape(rng):
    rows, columns = 30, 40
    height = 300 + 50 * np.sin(np.arange(rows) / 4)[:, None] * np.cos(np.arange(columns) / 5)
    mean = height + rng.normal(0, 5, height.shape)
    history = [
        {"number": number, "train_rmse": 50.0 / number, "held_out_rmse": 55.0 / number, "vectors": 10 * number}
        for number in (1, 2, 3)
    ]
    vectors = np.column_stack([rng.uniform(-84.4, -84.1, 30), rng.uniform(36.45, 36.7, 30)])
    return Landscape(
        height, mean, np.full(height.shape, 5.0) + mean / 1000, (-84.4, -84.1, 36.45, 36.7), vectors, history, "T", "S"
    )


def test_cells_are_true_to_size(landscape):
    """A degree is 111.2 km from south to north, and cos(latitude) of that from west to east."""
    east, north = landscape.metres
    assert north == pytest.approx(111_200 * 0.25 / 30)
    assert east == pytest.approx(111_200 * 0.30 / 40 * np.cos(np.radians(36.575)))


def test_panels_show_what_they_say(landscape):
    before = dict(matplotlib.rcParams)
    figure = draw(landscape)
    axes = {axis.get_title(loc="left") or axis.get_title(): axis for axis in figure.axes}
    titles = [title for title in axes if title]
    assert [title[0] for title in titles] == list("abcdef")
    np.testing.assert_array_equal(_panel(axes, "c").images[0].get_array(), landscape.std)
    np.testing.assert_allclose(_panel(axes, "e").images[0].get_array(), landscape.mean - landscape.elevation)
    np.testing.assert_array_equal(_panel(axes, "d").collections[0].get_offsets(), landscape.vectors)
    lines = {line.get_label(): line.get_ydata() for line in _panel(axes, "f").lines}
    np.testing.assert_allclose(lines["training"], [50, 25, 50 / 3])
    np.testing.assert_allclose(lines["held out"], [55, 27.5, 55 / 3])
    maps = [_panel(axes, letter) for letter in "abcde"]
    assert len({axis.get_xlim() + axis.get_ylim() for axis in maps}) == 1
    assert dict(matplotlib.rcParams) == before


def _panel(axes, letter):
    return next(axis for title, axis in axes.items() if title.startswith(letter))


def test_nothing_is_cut_off_and_nothing_overlaps(landscape):
    """All text lies on the page; no tick label of one panel lies on another."""
    figure = draw(landscape)
    renderer = figure.canvas.get_renderer()
    page = figure.bbox
    for axis in figure.axes:
        box = axis.get_tightbbox(renderer)
        assert page.x0 <= box.x0 < box.x1 <= page.x1
        assert page.y0 <= box.y0 < box.y1 <= page.y1
    for text in figure.texts:
        box = text.get_window_extent(renderer)
        assert box.x1 <= page.x1


def test_saved_without_a_screen(landscape, tmp_path):
    from matplotlib.image import imread

    loaded = "matplotlib.pyplot" in sys.modules
    save(draw(landscape), str(tmp_path / "picture.png"))
    assert imread(tmp_path / "picture.png").shape[1] == WIDTH
    assert ("matplotlib.pyplot" in sys.modules) == loaded
