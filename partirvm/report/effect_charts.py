"""Charts of the effects of features on a model with an ANOVA kernel (``model.feature_effects``).

Bands contain 95 % of the posterior. An interaction with a feature of few values is drawn as a line
for each of them, others by colours, which are pale where the band contains 0. Ticks at the bottom
are deciles of the training rows.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from partirvm.errors import UsageError
from partirvm.model.feature_effects import Effects, Interaction, MainEffect, Positions, effects_of
from partirvm.quoting import printable
from partirvm.report.plots import CONTRAST, INK, OBSERVED, Chart, Z, styled

FEATURES = 6
"""Number of features whose main effects are drawn."""

BARS = 12
"""Maximum number of features in the chart of shares."""

LEAST_SHARE = 1e-3
"""Smallest share of the variance of a feature that is drawn."""

LINES = ("#2c66a8", "#bf4f2c", "#2b7348", "#8a5fb0")
"""Colours of the lines of an interaction; with more values of both features, it is drawn by
colours."""

LONGEST = 22
"""Maximum number of characters of a name in a chart."""

PALE = 0.35
"""Opacity of an interaction where its band contains 0."""


def effect_charts(effects: Effects, features: int = FEATURES) -> list[Chart]:
    """Return the charts of one output: the shares, the main effects of the first ``features``
    features with a share, and the interactions."""
    shown = [main for main in effects.main if main.total >= LEAST_SHARE]
    if not shown:
        return []
    bars = shown[:BARS]
    height = max(2.5, 1.0 + 0.22 * (len(bars) + len(effects.interactions)))
    shares = Chart(
        "Shares of the variance",
        "of independent features",
        partial(_shares, bars, effects.interactions),
        (4.2, height),
    )
    mains = [
        Chart(
            f"Effect of {_short(main.at.feature)}",
            _share_text(main),
            partial(_main, main, effects.unit),
        )
        for main in shown[:features]
    ]
    pairs = [
        Chart(
            f"{_short(pair.first.feature)} with {_short(pair.second.feature)}",
            f"interaction, {_percent(pair.share)} of the variance",
            partial(_interaction, pair, effects.unit),
        )
        for pair in effects.interactions
    ]
    return [shares, *mains, *pairs]


def _share_text(main: MainEffect) -> str:
    """Return the shares of a feature as text."""
    if main.total - main.share < LEAST_SHARE:
        return f"{_percent(main.share)} of the variance"
    return f"{_percent(main.share)} of the variance, with others {_percent(main.total)}"


def _percent(share: float) -> str:
    """Return a share in per cent with one decimal."""
    return f"{100 * share:.1f} %"


def _short(name: str) -> str:
    """Return a name of at most ``LONGEST`` characters."""
    text = printable(name)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _shares(mains: Sequence[MainEffect], pairs: Sequence[Interaction], axis: Any) -> None:
    """Draw the share of each feature on its own, its share with others, and the shares of pairs.

    Args:
        mains: the features, the largest total first.
        pairs: the strongest interactions.
        axis: the axes.
    """
    names = [_short(main.at.feature) for main in mains]
    names += [f"{_short(pair.first.feature)} × {_short(pair.second.feature)}" for pair in pairs]
    places = np.arange(len(names))
    alone = np.array([main.share for main in mains])
    together = np.maximum([main.total for main in mains] - alone, 0.0)
    axis.grid(visible=False, axis="y")
    axis.barh(places[: len(mains)], alone, color=OBSERVED, alpha=0.85, label="alone")
    axis.barh(
        places[: len(mains)], together, left=alone, color=OBSERVED, alpha=0.35, label="with others"
    )
    if pairs:
        of_pairs = [pair.share for pair in pairs]
        axis.barh(places[len(mains) :], of_pairs, color=CONTRAST, alpha=0.85, label="pair")
    if pairs or together.max() >= LEAST_SHARE:
        axis.legend(loc="lower right")
    axis.set_yticks(places, names)
    axis.invert_yaxis()
    axis.xaxis.set_major_formatter(lambda share, _: f"{100 * share:.0f} %")
    axis.set(xlabel="share of the variance", xlim=(0, None))


def _main(main: MainEffect, unit: str, axis: Any) -> None:
    """Draw the effect of a feature with its band."""
    _curve(axis, main.at, np.array(main.mean), Z * np.array(main.std), OBSERVED, "")
    _frame_curves(axis, main.at, unit)


def _curve(axis: Any, at: Positions, mean: Any, half: Any, colour: str, label: str) -> None:
    """Draw an effect at the values of a feature, with its band; for levels, as dots with bars.

    Args:
        axis: the axes.
        at: the values, (g,).
        mean: (g,).
        half: the half widths of the band, (g,).
        colour: the colour of the line.
        label: its text in the legend.
    """
    if at.levels:
        places = np.arange(len(mean))
        axis.errorbar(
            places, mean, half, fmt="o", color=colour, markersize=4, linewidth=1.2, label=label
        )
        return
    axis.fill_between(at.values, mean - half, mean + half, color=colour, alpha=0.2, linewidth=0)
    axis.plot(at.values, mean, color=colour, linewidth=1.4, label=label)


def _frame_curves(axis: Any, at: Positions, unit: str) -> None:
    """Draw the line at 0, the ticks and the labels of effects of a feature.

    Args:
        axis: the axes.
        at: the values of the feature.
        unit: what the effects change.
    """
    if at.levels:
        _name_levels(axis.set_xticks, at, upright=True)
        axis.set_xlim(-0.5, len(at.levels) - 0.5)
    else:
        _mark_deciles(axis, at)
    axis.axhline(0.0, color=INK, linewidth=0.6)
    axis.set(xlabel=_short(at.feature), ylabel=f"effect on {_short(unit)}")


def _interaction(pair: Interaction, unit: str, axis: Any) -> None:
    """Draw the effect of a pair as lines if a feature has few values, otherwise by colours."""
    mean = np.array(pair.mean)
    half = Z * np.array(pair.std)
    if min(mean.shape) > len(LINES):
        _coloured(pair, axis)
        return
    across = pair.first
    lines = pair.second
    if mean.shape[0] < mean.shape[1]:
        across = pair.second
        lines = pair.first
        mean = mean.T
        half = half.T
    names = lines.levels or [f"{value:.4g}" for value in lines.values]
    for number, name in enumerate(names):
        _curve(axis, across, mean[:, number], half[:, number], LINES[number], _short(name))
    _frame_curves(axis, across, unit)
    axis.legend(title=_short(lines.feature), title_fontsize=8)


def _coloured(pair: Interaction, axis: Any) -> None:
    """Draw the effect of a pair by colours, pale where its band contains 0."""
    mean = np.array(pair.mean).T
    is_certain = np.abs(mean) > Z * np.array(pair.std).T
    largest = float(np.abs(mean).max()) or 1.0
    x, y = (_edges(at) for at in (pair.first, pair.second))
    axis.grid(visible=False)
    colours = axis.pcolormesh(
        x, y, mean, cmap="RdBu_r", vmin=-largest, vmax=largest, linewidth=0, rasterized=True
    )
    opacity = np.where(is_certain, 1.0, PALE)
    colours.set_alpha(opacity)
    bar = axis.figure.colorbar(colours, ax=axis)
    bar.solids.set_alpha(1.0)
    bar.outline.set_visible(False)
    for at, set_ticks, upright in (
        (pair.first, axis.set_xticks, True),
        (pair.second, axis.set_yticks, False),
    ):
        if at.levels:
            _name_levels(set_ticks, at, upright=upright)
    axis.set(xlabel=_short(pair.first.feature), ylabel=_short(pair.second.feature))


def _edges(at: Positions) -> Any:
    """Return the edges (g + 1,) of cells around the values, or around the numbers of levels."""
    centres = np.arange(len(at.values)) if at.levels else np.array(at.values)
    if len(centres) < 2:
        return np.array([centres[0] - 0.5, centres[0] + 0.5])
    middle = (centres[1:] + centres[:-1]) / 2
    return np.concatenate([[2 * centres[0] - middle[0]], middle, [2 * centres[-1] - middle[-1]]])


def _name_levels(set_ticks: Any, at: Positions, *, upright: bool) -> None:
    """Write the names of levels at an axis; those of a horizontal axis are upright if they are
    long.

    Args:
        set_ticks: the method of the axes that sets its ticks.
        at: the levels.
        upright: True for the horizontal axis.
    """
    names = [_short(level) for level in at.levels]
    turned = upright and len(names) * max(map(len, names)) > 30
    set_ticks(range(len(names)), names, rotation=90 if turned else 0)


def _mark_deciles(axis: Any, at: Positions) -> None:
    """Draw a tick for each decile of the training rows above the horizontal axis."""
    from matplotlib.transforms import blended_transform_factory

    at_bottom = blended_transform_factory(axis.transData, axis.transAxes)
    axis.vlines(at.deciles, 0.0, 0.04, color=INK, linewidth=0.8, transform=at_bottom)


class EffectsDisplay:
    """Plot of the effects of features on the predictions of a model with an ANOVA kernel.

    The panels show the shares of the variance (Sobol indices), the main effect of each of the
    strongest features, and the three strongest interactions. A main effect is the mean prediction
    given the feature's value, minus the overall mean; an interaction is what both main effects
    leave of the mean prediction given both values. Features are taken as independent, with the
    values of the training rows: means, bands of 95 % of the posterior, and shares are then exact.
    Effects have the target's units or, for a warped target, the units of its map; for classes, they
    are those of the linear predictors. Local residuals are not included.

    Parameters
    ----------
    effects : ``model.feature_effects.Effects``
    n_features : int, default=6
        Maximum number of main effects.

    Attributes
    ----------
    effects : the given effects, with the values of all panels
    figure_ : matplotlib Figure
    axes_ : list of matplotlib Axes
        One per panel; set by ``plot``.

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from partirvm import Anova, EffectsDisplay, RVMRegressor
    >>> X = np.random.default_rng(0).uniform(-1, 1, (200, 2))
    >>> y = np.sin(3 * X[:, 0]) + X[:, 0] * X[:, 1]
    >>> model = RVMRegressor(Anova(gamma=2.0, shares=0.5), residual="none").fit(X, y)
    >>> display = EffectsDisplay.from_estimator(model, figure=Figure())
    >>> [main.at.feature for main in display.effects.main], len(display.effects.interactions)
    (['x0', 'x1'], 1)
    """

    figure_: Any
    axes_: list[Any]

    def __init__(self, effects: Effects, n_features: int = FEATURES) -> None:
        self.effects = effects
        self.n_features = n_features

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        *,
        output: int | str = 0,
        n_features: int = FEATURES,
        figure: Any = None,
    ) -> "EffectsDisplay":
        """Plot the effects of a fitted estimator.

        Parameters
        ----------
        estimator : RVMRegressor or RVMClassifier
            A fitted estimator whose kernel is ``Anova``.
        X : as in ``predict``, optional
            Rows (n, d) from which each feature's distribution is taken; by default, up to 500
            training rows, of which the model stores quantiles.
        output : int or str, default=0
            Number or name of a target, or of a class; two classes have one linear predictor.
        n_features : int, default=6
            Maximum number of main effects.
        figure : matplotlib Figure, optional
            An empty figure; by default, ``pyplot`` creates one.

        Returns
        -------
        EffectsDisplay
            The display, whose ``effects`` has the values.

        Raises
        ------
        UsageError
            If matplotlib is not installed, or if the model has another kernel or no such output.
        DataError
            If the features differ from those of the fit.
        """
        model = getattr(estimator, "model_", None)
        if model is None:
            raise UsageError("the estimator is not fitted: call its fit first")
        return cls(effects_of(model, output, X), n_features).plot(figure)

    def plot(self, figure: Any = None) -> "EffectsDisplay":
        """Draw the panels into a figure, three in a row; return the display."""
        try:
            from matplotlib import pyplot
        except ImportError as error:
            raise UsageError('effects need matplotlib: pip install "partirvm[plot]"') from error
        charts = effect_charts(self.effects, self.n_features)
        n_rows = max(-(-len(charts) // 3), 1)
        with styled():
            if figure is None:
                figure = pyplot.figure(figsize=(10.8, 2.9 * n_rows), layout="constrained")
            self.figure_ = figure
            self.axes_ = []
            for number, chart in enumerate(charts, start=1):
                axis = figure.add_subplot(n_rows, 3, number)
                chart.draw(axis)
                axis.set_title(f"{chart.title}\n", loc="left")
                axis.text(0.0, 1.03, printable(chart.remark), transform=axis.transAxes, fontsize=8)
                self.axes_.append(axis)
        return self
