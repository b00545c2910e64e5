"""A summary of a fitted model in words: how well it predicts rows that it has not seen, what it
consists of, and whether these figures can be trusted.

The summary is a pure function of facts that the fit stores (``Assessment``), with the model and in
its line of history. So ``model.summary()``, the text after a fit, ``status`` and the job page say
the same.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from html import escape
from typing import Any

import numpy as np

from partirvm.quoting import counted, format_bytes, format_number, named, quoted

LEAST_RELEVANCE = 1e-3
"""Share of the variance of the predictions from which a feature counts as relevant."""

NAMED_FEATURES = 6
"""Maximum number of features that are named."""

CLEARLY_LESS = 0.9
"""Ratio of two standard deviations of noise below which both are stated."""

NAMED_JUMPS = 4
"""Maximum number of jumps that are named."""

FEW_SCORED = 100
"""Number of rows below which a figure of left-out rows is uncertain: with 100 rows, the standard
error of an RMSE is 7 %."""

FEW_ROWS_OF_LEVEL = 10.0
"""Mean number of rows per level below which levels are named: 95 % intervals for a level of three
rows cover 81 % of new rows, for an unseen one 16 % (``benchmarks.levels``)."""

MANY_COPIES = 0.01
"""Share of rows that are copies of others from which they are named."""

NEARLY_ALL = 0.8
"""Share of the rows from which the kernel counts as learned from nearly all of them."""

ROWS_PER_WIDTH = 10.0
"""Rows per learned width below which left-out errors are too small. Measured on two functions with
5 and 20 features, three samples each: the error of new rows is 0 to 7 % larger than the left-out
error with 12 rows per width or more, and 10 to 41 % larger with 3 to 6."""


@dataclass(frozen=True)
class Assessment:
    """What a fit knows of its model's quality; plain numbers and text.

    Attributes:
        target: name of the target, with its transformation
        rows: the rows that were scored: "left-out", "held-out" or "training"
        n_scored: number of these rows
        figures: figures by name. For numbers: ``r2``, ``rmse``, ``target_sd``, ``coverage_95``,
            ``noise_sd`` and, with left-out groups, ``noise_sd_of_known_groups``; for classes:
            ``accuracy``, ``log_loss``, ``ece``, ``ece_by_chance`` (the ECE expected if all
            probabilities were right), ``log_loss_of_shares`` (the log loss of the classes'
            frequencies) and ``largest_share`` (the frequency of the largest class). Figures that
            are unknown are missing
        n_rows: number of training rows
        n_vectors: number of relevance vectors
        local_bytes: bytes of the errors of training rows that correct predictions, or 0
        noise_varies: True if the noise depends on the features
        features: names of the relevant features, the most relevant first
        n_features: number of features
        largest_class: label of the largest class, as text
        levels: names of relevant features with many levels, and their numbers of levels
        copies: share of the rows that are exact copies of others
        outliers: sentence on a few targets that decide the errors, or ""
        kernel_rows: number of rows from which the kernel was learned, or 0
        kernel_widths: number of widths that were learned
        jumps: names of the jumps of the target, and the changes of the target in the units of its
            standard deviation, the largest first
        tree_share: mean weight of boosted trees in the predictions, or 0
        groups: number of groups of related rows that are not left out together, or 0
        left_out_groups: number of groups that are left out as a whole, or 0
    """

    target: str
    rows: str
    n_scored: int
    figures: dict[str, float]
    n_rows: int
    n_vectors: int
    local_bytes: int = 0
    noise_varies: bool = False
    features: tuple[str, ...] = ()
    n_features: int = 0
    largest_class: str = ""
    levels: tuple[tuple[str, int], ...] = ()
    copies: float = 0.0
    outliers: str = ""
    kernel_rows: int = 0
    kernel_widths: int = 0
    jumps: tuple[tuple[str, float], ...] = ()
    tree_share: float = 0.0
    groups: int = 0
    left_out_groups: int = 0


@dataclass(frozen=True)
class Summary:
    """A summary of a model. ``str(summary)`` is its text, a line per sentence, and a notebook shows
    it as a paragraph.

    Attributes
    ----------
    doubts : tuple of str
        Sentences that say why the figures may be too good; they come first in the text.
    sentences : tuple of str
        What the model predicts, with which error, and what it consists of.
    figures : dict
        The same figures by name, as plain numbers; see the user guide for their meaning.
    """

    doubts: tuple[str, ...]
    sentences: tuple[str, ...]
    figures: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return "\n".join((*self.doubts, *self.sentences))

    def _repr_html_(self) -> str:
        doubts = "".join(f"<li><strong>{escape(doubt)}</strong></li>" for doubt in self.doubts)
        sentences = "".join(f"<li>{escape(sentence)}</li>" for sentence in self.sentences)
        return f"<ul>{doubts}{sentences}</ul>"


def summarised(facts: Assessment) -> Summary:
    """Return the summary of a model from the facts that its fit stored."""
    sentences = [
        *_quality(facts),
        _size(facts),
        *_trees(facts),
        *_jumps(facts),
        *_noise(facts),
        *_features(facts),
    ]
    figures = {
        "rows": facts.rows,
        "n_scored": facts.n_scored,
        **facts.figures,
        "n_rows": facts.n_rows,
        "n_vectors": facts.n_vectors,
        "local_bytes": facts.local_bytes,
        "features": list(facts.features),
        "n_features": facts.n_features,
        "copies": facts.copies,
        "jumps": dict(facts.jumps),
        "tree_share": facts.tree_share,
        "left_out_groups": facts.left_out_groups,
    }
    return Summary(doubts_about(facts), tuple(sentences), figures)


def from_json(stored: Mapping[str, Any]) -> Assessment:
    """Return the facts from plain JSON, such as a line of history; unknown fields are ignored."""
    lists = {
        "features": tuple(stored.get("features", ())),
        "levels": tuple((name, count) for name, count in stored.get("levels", ())),
        "jumps": tuple((name, change) for name, change in stored.get("jumps", ())),
    }
    names = {item.name for item in fields(Assessment)}
    return Assessment(**{k: value for k, value in stored.items() if k in names} | lists)


def to_json(summary: Summary) -> dict[str, Any]:
    """Return a summary as plain JSON: its figures by name, and its sentences."""
    texts = {"doubts": list(summary.doubts), "sentences": list(summary.sentences)}
    return {**summary.figures, **texts}


def doubts_about(facts: Assessment) -> tuple[str, ...]:
    """Return sentences on why the figures of these facts may be too good."""
    if facts.rows == "training":
        return ()  # the first sentence says that they are
    sentences = [doubt(facts) for doubt in DOUBTS]
    return tuple(f"Caution: {sentence}" for sentence in sentences if sentence)


def _few_scored(facts: Assessment) -> str:
    if facts.n_scored >= FEW_SCORED:
        return ""
    return f"the figures come from only {counted(facts.n_scored, 'row')} and are uncertain."


def _few_rows_of_levels(facts: Assessment) -> str:
    if not facts.levels or facts.rows == "held-out":
        return ""
    texts = [
        f"{quoted(name)} has {levels:,} levels (on average {facts.n_rows / levels:.1f} rows each)"
        for name, levels in facts.levels[:NAMED_FEATURES]
    ]
    return f"{'; '.join(texts)}. Errors for rare and new levels are larger than these figures."


def _copies(facts: Assessment) -> str:
    if facts.copies < MANY_COPIES or facts.rows == "held-out":
        return ""
    return (
        f"about {percent(facts.copies)} of the rows are exact copies of others, so copies of a "
        "left-out row remain in the fit and the figures may be too good. If the copies are "
        "mistakes, drop them and fit again."
    )


def _outliers(facts: Assessment) -> str:
    if not facts.outliers:
        return ""
    return f"{facts.outliers}: R² and RMSE describe these rows rather than the others."


def _learned_kernel(facts: Assessment) -> str:
    nearly_all = facts.kernel_rows >= NEARLY_ALL * facts.n_rows
    enough = facts.n_rows >= ROWS_PER_WIDTH * facts.kernel_widths
    if facts.rows == "held-out" or not nearly_all or enough:
        return ""
    return (
        f"the {facts.kernel_widths:,} widths of the kernel were learned from nearly all of the "
        f"{facts.n_rows:,} rows, including the left-out ones. Errors on new rows are often 10 to "
        "40 % larger."
    )


def _groups(facts: Assessment) -> str:
    if not facts.groups or facts.rows == "held-out":
        return ""
    return (
        f"the rows come in {facts.groups:,} groups, whose rows are not left out together. Errors "
        "for new groups are larger than these figures."
    )


DOUBTS: tuple[Callable[[Assessment], str], ...] = (
    _few_scored,
    _groups,
    _few_rows_of_levels,
    _copies,
    _outliers,
    _learned_kernel,
)
"""Reasons why figures may be too good: each returns a sentence for the facts, or ""."""


def _quality(facts: Assessment) -> list[str]:
    """Return the sentences on the errors of predictions."""
    figures = facts.figures
    sentences = []
    if "accuracy" in figures:
        sentences.append(
            f"Accuracy {percent(figures['accuracy'])}{_scored(facts)} (always predicting "
            f"{quoted(facts.largest_class)}, the largest class: "
            f"{percent(figures['largest_share'])})."
        )
        sentences.append(
            f"Log loss {figures['log_loss']:.3g} (predicting the frequencies of the classes: "
            f"{figures['log_loss_of_shares']:.3g}; 0 is perfect)."
        )
    if "ece" in figures:
        chance = ""
        if "ece_by_chance" in figures:
            chance = f" (by chance alone: {percent(figures['ece_by_chance'])})"
        sentences.append(
            "Predicted probabilities differ from observed frequencies by "
            f"{percent(figures['ece'])} on average{chance}."
        )
    if "rmse" in figures:
        sentences.append(_error(facts))
    if "coverage_95" in figures:
        sentences.append(
            f"The 95 % intervals contain {percent(figures['coverage_95'])} of these rows."
        )
    return sentences


def _error(facts: Assessment) -> str:
    """Return the sentence on the error of a numeric target."""
    figures = facts.figures
    rmse = format_number(figures["rmse"])
    if "r2" not in figures:
        return f"RMSE {rmse}{_scored(facts, 'larger')}."
    spread = f"{named(facts.target)} has a standard deviation of "
    return (
        f"R² {_r2(figures['r2'])}{_scored(facts)} (RMSE {rmse}; {spread}"
        f"{format_number(figures['target_sd'])})."
    )


def _scored(facts: Assessment, on_new_rows: str = "less") -> str:
    """Return text on the rows that were scored.

    Args:
        facts: the facts
        on_new_rows: what a figure of the training rows is on new rows, "less" or "larger"
    """
    count = f"{facts.n_scored:,}"
    left_out = f"{count} left-out rows, each predicted without using it"
    if facts.left_out_groups:
        groups = f"{facts.left_out_groups:,} groups"
        left_out = f"{count} left-out rows of {groups}, each predicted without its group"
    return {
        "left-out": f" on {left_out}",
        "held-out": f" on {count} rows of validation data",
        "training": f" on the {count} training rows, and {on_new_rows} on new rows",
    }[facts.rows]


def _size(facts: Assessment) -> str:
    """Return the sentence on what the model consists of."""
    text = f"The model keeps {facts.n_vectors:,} of {facts.n_rows:,} rows as relevance vectors"
    if facts.local_bytes:
        size = format_bytes(facts.local_bytes)
        text += f", and the errors of all rows, which correct nearby predictions ({size})"
    return f"{text}."


def _trees(facts: Assessment) -> list[str]:
    """Return the sentence on the part of boosted trees in the predictions."""
    if not facts.tree_share:
        return []
    share = percent(facts.tree_share)
    return [f"Boosted trees have a weight of {share} in the predictions, and the fit the rest."]


def _jumps(facts: Assessment) -> list[str]:
    """Return the sentence on the jumps of a numeric target."""
    if not facts.jumps:
        return []
    texts = [f"by {change:+.3g} where {named(name)}" for name, change in facts.jumps[:NAMED_JUMPS]]
    count = len(facts.jumps)
    if count > NAMED_JUMPS:
        return [f"{named(facts.target)} has {count:,} jumps, the largest {', '.join(texts)}."]
    return [f"{named(facts.target)} jumps {', '.join(texts)}."]


def _noise(facts: Assessment) -> list[str]:
    """Return the sentence on the noise of a numeric target."""
    if "noise_sd" not in facts.figures:
        return []
    text = f"Noise: standard deviation {format_number(facts.figures['noise_sd'])}"
    of_known = facts.figures.get("noise_sd_of_known_groups", np.inf)
    if of_known < CLEARLY_LESS * facts.figures["noise_sd"]:
        text += (
            f" for new groups, {format_number(of_known)} for known groups that are named in the "
            "prediction"
        )
    varies = " on average; it depends on the features" if facts.noise_varies else ""
    return [f"{text}{varies}."]


def _features(facts: Assessment) -> list[str]:
    """Return the sentence on the features that matter."""
    count = len(facts.features)
    if not count:
        return []
    n_named = count if count == NAMED_FEATURES + 1 else NAMED_FEATURES
    names = ", ".join(map(named, facts.features[:n_named]))
    if count > n_named:
        names = f"{names} and others"
    if facts.n_features == 1:
        return []
    if count == facts.n_features:
        every = "Both" if count == 2 else f"All {count:,}"
        return [f"{every} features matter, in this order: {names}."]
    if count == 1:
        return [f"1 of {facts.n_features:,} features matters: {names}."]
    return [f"{count:,} of {facts.n_features:,} features matter, in this order: {names}."]


def percent(share: float) -> str:
    """Format a fraction as a percentage with three digits.

    >>> percent(0.9483), percent(0.0182), percent(1.0)
    ('94.8 %', '1.8 %', '100 %')
    """
    return f"{100 * share:.1f} %".replace("100.0", "100")


def _r2(value: float) -> str:
    """Format R², with more digits near 1.

    >>> _r2(0.9312), _r2(0.99987), _r2(-0.2)
    ('0.931', '0.99987', '-0.200')
    """
    return f"{value:.3f}" if value < 0.999 else f"{value:.5f}"


def relevant(features: Sequence[str], relevance: Any) -> tuple[str, ...]:
    """Return the names of the relevant features, the most relevant first.

    Args:
        features: names of the features (d,)
        relevance: relevance of the features (d,), or None
    """
    if relevance is None:
        return ()
    order = np.argsort(-relevance, kind="stable")
    return tuple(features[j] for j in order.tolist() if relevance[j] >= LEAST_RELEVANCE)
