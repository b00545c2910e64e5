"""Directions: alternatives to a width per feature, compared by the tied evidence on the same rows
and centres.

The eigenvectors of the mean outer product of the gradient of the fitted mean f, N⁻¹ Σ_n
∇f(x_n)∇f(x_n)ᵀ, are the directions in which f changes most and least (Trivedi et al. 2014, "A
consistent estimator of the expected gradient outer product"; Radhakrishnan et al. 2024). A new
search starts at these directions and raises the evidence over their widths. With more than
``SearchEffort.free_rows`` rows, it then moves the directions themselves, on all rows. A regression
also tries the directions of an exact process (``learning.process_search``), which detects waves
that a tied RVM mistakes for noise.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from partirvm.kernels import (
    WITH_GAMMA,
    Directions,
    Family,
    Kernel,
    OnColumns,
    Several,
    Sum,
    kernel_from_spec,
)
from partirvm.kernels.base import NEGLIGIBLE
from partirvm.kernels.composed import inside, replaced
from partirvm.kernels.radial import RadialKernel
from partirvm.learning.sample import SampledRows, evaluate
from partirvm.learning.search import (
    ALL_EVALUATIONS,
    KernelSearch,
    LearningOptions,
    axes_of,
    first_stage,
    grow,
)
from partirvm.likelihoods.passes import InputGradientPass
from partirvm.spec.entries import Entry
from partirvm.spec.problem import Problem
from partirvm.types import Float, Int

ONE = "one width"
"""Name of this form in the history and in the plan."""

EACH = "a width per feature"
"""Name of this kernel form in the history and in the plan."""

DIRECTIONS = "a width per direction"
"""Name of this kernel form in the history and in the plan."""

EFFECTS = "sums of effects"
"""Name of the ANOVA kernel's form in the history and in the plan."""

MEAN = "the mean alone"
"""Name of a model without a kernel in the history and in the plan."""

FAMILIES = ("gaussian", "matern52", "matern32")
"""Families that a search tries, by decreasing smoothness."""

MOST_ENTRIES = 2048
"""Maximum total number d² of entries of the directions."""


def with_family(kernel: Kernel, family: str, n_features: int) -> Kernel:
    """Return the kernel with its radial kernels replaced by another family's, at a typical
    gamma."""
    new = WITH_GAMMA[family]
    assert issubclass(new, RadialKernel)

    def make(old: RadialKernel, columns: Int) -> Kernel:
        if isinstance(old, new):
            return old
        ratio = new.typical_gamma / old.typical_gamma
        return new(tuple(ratio * gamma for gamma in old.gamma))

    return replaced(kernel, np.arange(n_features), RadialKernel, make)


def with_gammas(kernel: Kernel, n_inputs: int, change: Callable[[Float, Int], Float]) -> Kernel:
    """Return the kernel whose radial kernels have the gammas ``change(gammas, inputs)``, both
    (k,)."""

    def make(old: RadialKernel, columns: Int) -> Kernel:
        return replace(old, gamma=tuple(change(old.widths(len(columns)), columns).tolist()))

    return replaced(kernel, np.arange(n_inputs), RadialKernel, make)


def learn(
    sample: SampledRows,
    problem: Problem,
    learning: LearningOptions,
    seed: int,
    turned: Kernel | None = None,
) -> KernelSearch:
    """Maximise the tied evidence over all stages and return the last one; each stage adds a history
    record.

    Unless the metric is "widths", directions are learned after the widths, with the same rows and
    centres. If the metric is "auto", directions are kept if they raise the evidence by one nat
    each. The search then continues on all rows; with many rows, the directions also move.

    Args:
        sample: the sample of rows
        problem: the problem with the initial kernel
        learning: options of kernel learning
        seed: draws rows and centres
        turned: a previously found kernel of directions, or None; the search continues from it only
            if its evidence exceeds the result of the search from the fitted mean's directions, and
            the better of the two is kept
    """
    sample.on_step("widths of more rows")
    d = problem.empty.scaling.n_inputs
    stage = first_stage(sample, problem, learning, seed)
    if learning.metric != "widths" and turnable(stage.kernel, d):
        sample.on_step("directions of more rows")
        stage = _compared_with_directions(stage, problem, learning, turned)
    count = min(learning.centres, len(stage.pool.labels))
    score = partial(evaluate, sample, problem)
    sample.on_step("all rows")
    whole = stage.again(
        sample=sample, score=score, count=count, most=min(stage.most, ALL_EVALUATIONS)
    )
    if problem.n_rows > sample.effort.free_rows and inside(stage.kernel, d, Directions):
        stage = _freed(whole, d)
    elif stage.sample is not sample or count > stage.count:
        stage = whole.climb()
    return grow(stage, problem, learning.max_centres)


def _freed(stage: KernelSearch, n_features: int) -> KernelSearch:
    """Move the r directions of kernels, too, if this raises the evidence by ½ log N for each
    additional parameter of the metric; otherwise move only gamma.

    A metric Σ_i gamma_i a_i a_iᵀ of d features has rd − r(r − 1)/2 parameters, r of which are
    gammas (Schwarz 1978, "Estimating the dimension of a model").
    """
    start = replaced(
        stage.kernel, np.arange(n_features), Directions, lambda each, _: replace(each, free=True)
    )
    free = stage.again(start=start)
    shapes = [kernel.matrix.shape for kernel, _ in inside(stage.kernel, n_features, Directions)]
    names = np.array(free.start.parameters)[np.isfinite(free.logs)]
    places = np.eye(len(names))[
        np.isin(names, stage.start.parameters)
    ]  # parameters whose measured curvature is kept
    free.pairs = [(move @ places, change @ places) for move, change in stage.pairs]
    further = sum(r * d - r * (r + 1) // 2 for r, d in shapes)
    if free.climb().best.value - free.first > 0.5 * further * np.log(stage.sample.rows.n_rows):
        return free
    return replace(stage.climb(), evaluations=stage.evaluations + free.evaluations)


def _compared_with_directions(
    stage: KernelSearch, problem: Problem, learning: LearningOptions, turned: Kernel | None
) -> KernelSearch:
    """Log the widths, search directions, and return the better of the two.

    Args:
        stage: the search of the widths
        problem: the problem whose kernel is learned
        learning: options of kernel learning
        turned: a previously found kernel of directions to be tried as well, or None
    """
    stage.sample.log(stage.record(problem))
    directions = stage.again(start=directed(stage)).climb()
    if turned is not None:
        other = stage.again(start=turned).climb()
        evaluations = directions.evaluations + other.evaluations
        directions = replace(
            max(directions, other, key=lambda each: each.peak), evaluations=evaluations
        )
    gain = directions.best.value - stage.best.value
    least = sum("gamma" in name for name in directions.kernel.parameters)
    taken = learning.metric != "auto" or gain > least
    choice = {"form": DIRECTIONS if taken else EACH, "directions": gain}
    facts: dict[str, Any] = {
        "number": stage.number + 1,
        "evaluations": directions.evaluations,
        "choice": choice,
    }
    return replace(directions if taken else stage, **facts)


def turnable(kernel: Kernel, n_features: int) -> bool:
    """Return whether directions can replace a radial kernel's features: it has more than one, but
    not too many."""
    counts = [len(columns) for _, columns in inside(kernel, n_features, RadialKernel)]
    return any(count > 1 for count in counts) and all(count**2 <= MOST_ENTRIES for count in counts)


def directed(stage: KernelSearch) -> Kernel:
    """Return a stage's kernel with the directions of its fitted mean; each gamma is 1/(number of
    directions × variance)."""
    sample = stage.sample
    scaling = stage.pool.scaling
    (outer,) = sample.run(InputGradientPass(stage.design(stage.kernel), stage.best.weights))
    X = scaling.inputs(sample.rows.gather(sample.rows.rows).X)
    X = X - np.where(
        X.min(axis=0) == X.max(axis=0), X[0], 0.0
    )  # a constant's mean is inexact and may be huge
    covariance = np.cov(X, rowvar=False).reshape(outer.shape)

    def gamma(old: RadialKernel, columns: Int, axes: Float) -> Float:
        variance = np.einsum("ij,jk,ik->i", axes, covariance[np.ix_(columns, columns)], axes)
        return np.asarray(
            old.typical_gamma / (len(columns) * np.where(variance > 1e-12, variance, 1.0))
        )

    return along_directions(stage.kernel, outer, gamma)


def along_directions(
    kernel: Kernel, outer: Float, gamma: Callable[[RadialKernel, Int, Float], Float]
) -> Kernel:
    """Return the kernel with directions in its radial kernels: the eigenvectors of ``outer`` (d, d)
    restricted to their features.

    ``gamma(kernel, columns, axes)`` returns the gammas (r,) of the directions ``axes`` (r, r) of
    these features.
    """

    def make(old: RadialKernel, columns: Int) -> Kernel:
        if len(columns) == 1:
            return old
        axes = np.linalg.eigh(outer[np.ix_(columns, columns)])[1].T[::-1]
        widths = tuple(gamma(old, columns, axes).tolist())
        return Directions(replace(old, gamma=widths), tuple(map(tuple, axes.tolist())))

    return replaced(kernel, np.arange(len(outer)), RadialKernel, make)


def kernel_text(entry: Entry, features: Sequence[str]) -> Entry:
    """Return a history entry's fields with a description of the learned kernel, if any."""
    if entry["kind"] != "kernel":
        return {}
    kernel = kernel_from_spec(entry["kernel"])
    logs = kernel_from_spec(entry["kernel"]).logs
    names = _names(kernel, features)
    entries = axes_of(kernel.parameters)
    switched = np.flatnonzero(np.isfinite(logs) & (logs <= np.log(NEGLIGIBLE)) & ~entries).tolist()
    order = [
        k for k in np.argsort(-logs, kind="stable").tolist() if k not in switched and not entries[k]
    ]
    off = _first([names[k].removeprefix("gamma of ").removeprefix("share of ") for k in switched])
    verdict = {
        None: "",
        True: " over all rows: kernel accepted",
        False: " over all rows: kernel rejected",
    }
    text = (
        f"{_judged(entry['choice'] or {})}{_compared(entry['choice'] or {})}{described(kernel)}, "
        f"{_first([f'{names[k]} {np.exp(logs[k]):.3g}' for k in order])}: from {entry['rows']:,} "
        f"rows × {entry['candidates']:,} centres, {entry['iterations']:,} evaluations, evidence "
        f"{entry['gain']:+,.1f} "
        f"nats{verdict[entry['taken']]}{off and f'; not in the kernel: {off}'}"
    )
    return {"text": text}


def _first(texts: list[str], most: int = 6) -> str:
    """Join the first strings and append the number of the others."""
    return ", ".join(texts[:most]) + (
        f" and {len(texts) - most:,} more" if len(texts) > most else ""
    )


def _judged(choice: dict[str, Any]) -> str:
    """Describe the errors on rows not used for learning; empty if there were none."""
    return (
        _warps_judged(choice.get("warps", {}))
        + _jumps_judged(choice.get("jumps", {}))
        + _kernel_judged(choice.get("judged", {}))
    )


def _jumps_judged(jumps: dict[str, Any]) -> str:
    """Describe the errors on left-out rows with and without jumps; empty if there are none."""
    if not jumps:
        return ""
    count = jumps["count"]
    return (
        f"{count:,} {'jump' if count == 1 else 'jumps'} of single features as basis functions: "
        f"RMSE of {jumps['rows']:,} left-out rows {jumps['error']:.3g} of the target's deviation, "
        f"{jumps['plain_error']:.3g} without; "
    )


def _warps_judged(errors: dict[str, float]) -> str:
    """Describe the errors on left-out rows with and without warped features; empty if there were
    none."""
    if not errors:
        return ""
    figures = f"{errors['warped']:.3g} with warped features, {errors['plain']:.3g} without"
    return f"mean absolute error of left-out rows {figures}; "


def _kernel_judged(judged: dict[str, Any]) -> str:
    """Describe the errors on left-out rows with the kernel and with the best rival; empty if there
    were none."""
    if "rival" not in judged:
        return ""
    rival = f"{judged['rival']} {judged['rival_error']:.3g}"
    text = (
        f"RMSE of {judged['rows']:,} left-out rows {judged['error']:.3g} of the target's deviation "
        f"({rival})"
    )
    if judged["levels"]:
        rows = " and ".join(f"{rows:,}" for rows in judged["levels"])
        text += f", after {judged['first_error']:.3g} before the search continued on {rows} rows"
    return f"{text}; "


def _compared(choice: dict[str, Any]) -> str:
    """Describe the chosen family and form, with the compared figures; empty if nothing was
    compared."""
    families = choice.get("families", {})
    text = ""
    errors = choice.get("errors", {})
    if len(families) > 1:
        text = (
            f"{choice['family']}, of "
            f"{', '.join(f'{name} {nats:,.1f}' for name, nats in families.items())} nats; "
        )
    if "family_losses" in choice:
        text += _families_compared(choice)
    if "form" not in choice:
        return text
    if "losses" in choice:
        figures = ", ".join(f"{form} {loss:.3g}" for form, loss in choice["losses"].items())
        rows = choice["rows"]
        return f"{text}{choice['form']}, by the log loss of {rows:,} left-out rows ({figures}): "
    if "effects" in choice:
        text += _effects_compared(choice["effects"])
    if errors:
        figures = ", ".join(f"{form} {error:.3g}" for form, error in errors.items())
        return (
            f"{text}{choice['form']}, by the error on {choice['rows']:,} left-out rows "
            f"({figures}): "
        )
    if choice.get("error"):
        gain = (
            f"{choice['gain']:+.3f} ± {choice['error']:.3f} nats on each of {choice['rows']:,} "
            "left-out rows"
        )
        return f"{text}directions change the log density by {gain}; {choice['form']}: "
    if "directions" in choice:
        return (
            f"{text}directions change the evidence by {choice['directions']:+,.1f} nats; "
            f"{choice['form']}: "
        )
    return f"{text}{choice['form']}: "


def _families_compared(choice: dict[str, Any]) -> str:
    """Describe the log losses of left-out rows with each family."""
    figures = ", ".join(f"{name} {loss:.3g}" for name, loss in choice["family_losses"].items())
    rows = choice["family_rows"]
    return f"{choice['family']}, by the log loss of {rows:,} left-out rows ({figures}); "


def _effects_compared(effects: dict[str, Any]) -> str:
    """Describe how sums of effects predict left-out rows."""
    return (
        f"{EFFECTS} change the log density by {effects['gain']:+.3f} ± {effects['error']:.3f} nats "
        f"on each of {effects['rows']:,} left-out rows; "
    )


def described(kernel: Kernel) -> str:
    """Describe the composition of a kernel in words.

    >>> from partirvm.kernels import Categorical, Gaussian, Product
    >>> described(Product((OnColumns(Gaussian(0.5), (0, 1)), OnColumns(Categorical(1.0), (2,)))))
    'gaussian × categorical'
    """
    parts = [
        f"({described(part)})" if isinstance(part, Sum) else described(part)
        for part in kernel.components
    ]
    if isinstance(kernel, Several):
        return f"{len(parts)} kernels ({', '.join(dict.fromkeys(parts))})"
    if isinstance(kernel, Directions):
        return f"{parts[0]} along {len(kernel.axes)} directions"
    return (" + " if isinstance(kernel, Sum) else " × ").join(parts) or kernel.name


def _names(kernel: Kernel, features: Sequence[str]) -> list[str]:
    """Name the parameters (p,) of a kernel after the features if this gives distinct names."""
    names = list(kernel.parameters)
    if isinstance(kernel, Family):
        several = {f"gamma[{j}]": f"gamma of {name}" for j, name in enumerate(features)}
        several |= {"gamma": f"gamma of {features[0]}"} if len(features) == 1 else {}
        several |= {f"shares[{j}]": f"share of {name}" for j, name in enumerate(features)}
        return [several.get(name, name) for name in names]
    if isinstance(kernel, OnColumns):
        features = [features[j] for j in kernel.columns]
    elif isinstance(kernel, Directions):
        features = [f"direction {i + 1}" for i in range(len(kernel.axes))]
    inner = [name for part in kernel.components for name in _names(part, features)]
    first = len(names) - len(inner) if isinstance(kernel, Sum) else 0
    named = names[:first] + inner + names[first + len(inner) :]
    return named if len(set(named)) == len(named) else names
