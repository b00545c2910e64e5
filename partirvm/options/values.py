"""Option values: strategies, solvers, noise and priors, each with its own options.

``RVMRegressor(strategy=WorkingSet(selection="gain"))`` is the same as
``--strategy working-set --selection gain`` on the command line. Each field of a value is one option of the table
(``options.table``) and has the default, the check and the text of that option. Values have scikit-learn's
``get_params`` and ``set_params``, so that ``clone`` copies them and ``GridSearchCV`` finds ``strategy__selection``. A
fit does not change its option values. The families of ``partirvm.kernels`` are values, too.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, Self, TypeAlias, TypeVar, cast, dataclass_transform

from partirvm.errors import UsageError
from partirvm.options import names
from partirvm.options.constraints import OneOf, near
from partirvm.options.table import TABLE

Kind = TypeVar("Kind", bound=type)


def held(name: str, **more: Any) -> Any:
    """Return the field for the option of this name. The field may also hold an option value."""
    return field(default=TABLE[name].default, metadata={"option": name}, **more)


def documented(kind: Kind) -> Kind:
    """Add the parameters that are options to a docstring, with the texts of the table."""
    text = ["Parameters", "----------"]
    for each in fields(cast(Any, kind)):
        if "option" in each.metadata:
            option = TABLE[each.metadata["option"]]
            words = ", ".join(f'"{word}"' for word in getattr(option.check, "words", ()))
            kind_of = f"{{{words}}}, " if words and isinstance(option.check, OneOf) else ""
            text += [f"{each.name} : {kind_of}default={each.default!r}".replace("'", '"')]
            text += textwrap.wrap(
                option.meaning, 112, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False
            )
    text = [] if len(text) == 2 else [*text, ""]
    summary, mark, examples = textwrap.dedent(" " * 4 + (kind.__doc__ or "")).partition("Examples\n")
    kind.__doc__ = "\n".join([summary.rstrip(), "", *text, mark + examples])
    return kind


@dataclass_transform(eq_default=False)
def value_of_options(kind: Kind) -> Kind:
    """Make a value a dataclass, and document its options."""
    return documented(cast(Kind, dataclass(eq=False, repr=False)(kind)))


class Value:
    """Base of the values: dataclasses whose fields are options. ``name`` is the word for the value.

    ``of`` is the option that such a value may be given for.
    """

    name: ClassVar[str]
    of: ClassVar[str]

    def flat(self, given_for: str, title: str = "") -> dict[str, Any]:
        """The options that it stands for, by the names of the table, checked.

        Raises ``UsageError`` that names the value and its field for one that cannot be, and for an option that it is no
        value of.
        """
        if given_for != self.of:
            raise UsageError(f"{title or given_for} is {self!r}, which is a value of {self.of}")
        found: dict[str, Any] = {given_for: self.name}
        for name, option in self._options().items():
            value, title = getattr(self, name), f"{type(self).__name__}.{name}"
            own = value.flat(option, title) if isinstance(value, Value) else {option: TABLE[option].check(title, value)}
            found |= own
        return found

    @classmethod
    def _options(cls) -> dict[str, str]:
        """Return the names of the fields that are options, with the options."""
        return {each.name: each.metadata["option"] for each in fields(cast(Any, cls)) if "option" in each.metadata}

    def __eq__(self, other: object) -> bool:
        """Return whether the other value has the same class and equal fields."""
        return type(self) is type(other) and vars(self) == vars(other)

    def __repr__(self) -> str:
        """Return a text with the fields that differ from their defaults."""
        values = {each.name: getattr(self, each.name) for each in fields(cast(Any, self))}
        usual = {each.name: each.default for each in fields(cast(Any, self))}
        shown = (f"{name}={value!r}" for name, value in values.items() if repr(value) != repr(usual[name]))
        return f"{type(self).__name__}({', '.join(shown)})"

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the fields by name; with ``deep`` also the fields of nested values, such as ``fit_rows__rows``."""
        found = {each.name: getattr(self, each.name) for each in fields(cast(Any, self))}
        for name, value in list(found.items()) if deep else ():
            inner = value.get_params() if isinstance(value, Value) else {}
            found |= {f"{name}__{key}": each for key, each in inner.items()}
        return found

    def set_params(self, **params: Any) -> Self:
        """Set fields by name. Raises ``UsageError`` (a ``ValueError``) for an unknown name."""
        known = list(self.get_params(deep=False))
        for key, value in params.items():
            name, nested, rest = key.partition("__")
            if name not in known:
                raise UsageError(
                    f"{type(self).__name__} has no {name!r}; known: {', '.join(known) or 'none'}{near(name, known)}"
                )
            inner = getattr(self, name)
            if nested and not isinstance(inner, Value):
                raise UsageError(f"{type(self).__name__}.{name} is {inner!r}, which has no {rest!r}: give a value")
            object.__setattr__(self, name, inner.set_params(**{rest: value}) if nested else value)
        self.__post_init__()
        return self

    def __post_init__(self) -> None:
        """Check nothing: options are checked when a fit is asked for."""


def flat(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The options that parameters of an estimator stand for, values among them, by the names of the table.

    Raises ``UsageError`` for a value that cannot be, and for an option that is given twice.

    >>> found = flat({"strategy": WorkingSet(selection="gain"), "selection": "auto", "gamma": "learn"})
    >>> [found[name] for name in ("strategy", "selection", "gamma")]
    ['working-set', 'gain', 'learn']
    """
    found: dict[str, Any] = {}
    for name, value in parameters.items():
        if isinstance(value, type) and issubclass(value, Value):
            raise UsageError(f"{name} is the class {value.__name__}: give a value of it, {value.__name__}()")
        if isinstance(value, Value):
            found |= value.flat(name)
    for name, value in parameters.items():
        if isinstance(value, Value):
            continue
        if name in found and not _is_default(name, value):
            owner = next(each for each in parameters.values() if isinstance(each, Value) and name in vars(each))
            raise UsageError(
                f"{name} is {value!r}, and the value {owner!r} has its own: give it there, and leave {name} out"
            )
        found.setdefault(name, value)
    return found


def _is_default(name: str, value: Any) -> bool:
    return isinstance(value, type(TABLE[name].default)) and bool(value == TABLE[name].default)


@value_of_options
class Sample(Value):
    """Fits see one random sample of ``rows`` rows, which all of them share; "auto" is 20·P.

    Examples
    --------
    >>> from partirvm import RVMRegressor, Sample, SplitMerge
    >>> RVMRegressor(strategy=SplitMerge(fit_rows=Sample(200))).get_params()["strategy__fit_rows__rows"]
    200
    """

    name = "sample"
    of = "fit_rows"
    rows: int | names.Auto = held("sample_rows")


@value_of_options
class Growing(Value):
    """Intermediate fits use a random sample of at least 100 rows per column, which grows with the columns.

    Examples
    --------
    >>> from partirvm import Growing, RVMRegressor, WorkingSet
    >>> RVMRegressor(strategy=WorkingSet(fit_rows=Growing(100))).get_params()["strategy__fit_rows__rows"]
    100
    """

    name = "growing"
    of = "fit_rows"
    rows: int | names.Auto = held("sample_rows")


@value_of_options
class Basic(Value):
    """One fit with every row as a candidate, for some thousand rows; the reference.

    Examples
    --------
    >>> from partirvm import Basic, RVMRegressor
    >>> RVMRegressor(strategy=Basic()).strategy
    Basic()
    """

    name = "basic"
    of = "strategy"


@value_of_options
class SplitMerge(Value):
    """Partitions of P rows are fitted side by side, and their vectors are merged in pairs.

    Examples
    --------
    >>> from partirvm import RVMRegressor, SplitMerge
    >>> RVMRegressor(strategy=SplitMerge(stop_fraction=0.6)).get_params()["strategy__stop_fraction"]
    0.6
    """

    name = "split-merge"
    of = "strategy"
    fit_rows: names.FitRows | Sample = held("fit_rows")
    stop_fraction: float = held("stop_fraction")
    heuristic_rows: int = held("heuristic_rows")


@value_of_options
class Incremental(Value):
    """Partitions join the kept vectors one after the other, each as candidates.

    Examples
    --------
    >>> from partirvm import Incremental, RVMRegressor
    >>> RVMRegressor(strategy=Incremental(heuristic_rows=500)).get_params()["strategy__heuristic_rows"]
    500
    """

    name = "incremental"
    of = "strategy"
    fit_rows: names.FitRows | Growing | Sample = held("fit_rows")
    stop_fraction: float = held("stop_fraction")
    heuristic_rows: int = held("heuristic_rows")


@value_of_options
class WorkingSet(Value):
    """Rounds in which the P most promising rows join the vectors kept so far.

    Examples
    --------
    >>> import numpy as np
    >>> from partirvm import RVMRegressor, WorkingSet
    >>> X = np.linspace(-5, 5, 500)[:, None]
    >>> y = np.sinc(X[:, 0]) + 0.05 * np.random.default_rng(0).normal(size=len(X))
    >>> strategy = WorkingSet(selection="gain")
    >>> model = RVMRegressor(gamma=2.0, strategy=strategy, partition_size=20, max_rounds=3).fit(X, y)
    >>> [entry["kind"] for entry in model.history_]
    ['round', 'round', 'final']
    """

    name = "working-set"
    of = "strategy"
    selection: names.Selection = held("selection")
    fit_rows: names.FitRows | Growing | Sample = held("fit_rows")
    stop_fraction: float = held("stop_fraction")
    heuristic_rows: int = held("heuristic_rows")


@value_of_options
class Auto(Value):
    """The fixed point. In the last fit of a regression, deleted columns return while this raises the evidence.

    Examples
    --------
    >>> from partirvm import Auto, RVMRegressor
    >>> RVMRegressor(solver=Auto(max_iterations=200)).get_params()["solver__max_iterations"]
    200
    """

    name = "auto"
    of = "solver"
    max_iterations: int | None = held("max_iterations")


@value_of_options
class FixedPoint(Value):
    """All precisions are updated together.

    Examples
    --------
    >>> from partirvm import FixedPoint, RVMRegressor
    >>> RVMRegressor(solver=FixedPoint(max_iterations=200)).get_params()["solver__max_iterations"]
    200
    """

    name = "fixed-point"
    of = "solver"
    max_iterations: int | None = held("max_iterations")


@value_of_options
class Fast(Value):
    """Each step adds, deletes or re-estimates the one column that gains most evidence (Tipping & Faul 2003).

    Examples
    --------
    >>> from partirvm import Fast, RVMRegressor
    >>> RVMRegressor(solver=Fast(actions="random")).get_params()["solver__actions"]
    'random'
    """

    name = "fast"
    of = "solver"
    actions: names.Actions = held("actions")
    max_iterations: int | None = held("max_iterations")


@value_of_options
class Noise(Value):
    """Noise that is estimated under a prior.

    Examples
    --------
    >>> import numpy as np
    >>> from partirvm import Noise, RVMRegressor
    >>> X = np.linspace(-5, 5, 100)[:, None]
    >>> y = np.sinc(X[:, 0]) + 0.05 * np.random.default_rng(0).normal(size=len(X))
    >>> known = RVMRegressor(gamma=2.0, noise_variance=Noise(prior=(1e6, 1e4)), noise="constant").fit(X, y)
    >>> round(float(known.model_.evidence_noise), 3)  # the prior has the mean 0.01 and outweighs 100 rows
    0.01
    """

    name = "estimate"
    of = "noise_variance"
    prior: tuple[float, float] = held("noise_prior")


@value_of_options
class AlphaPrior(Value):
    """Gamma prior on the precision α of each weight, and precisions that are given.

    ``shape`` and ``rate`` are those for the standardised problem (Tipping 2001, appendix A). (0, 0) is flat in log α.
    With a positive rate no α becomes infinite: a vector is deleted if this raises the sum of the log evidence and the
    log prior. Kernel learning does not use this prior. Basis functions of ``fixed`` are never deleted: "bias" or others
    of ``basis_names_``.

    Examples
    --------
    >>> import numpy as np
    >>> from partirvm import AlphaPrior, RVMRegressor
    >>> X = np.linspace(-5, 5, 100)[:, None]
    >>> y = np.sinc(X[:, 0]) + 0.05 * np.random.default_rng(0).normal(size=len(X))
    >>> model = RVMRegressor(gamma=2.0, alpha_prior=AlphaPrior(fixed={"bias": 1e-6})).fit(X, y)
    >>> dict(zip(model.basis_names_, model.basis_alpha_.tolist()))
    {'bias': 1e-06}
    """

    name = "gamma"
    of = "alpha_prior"
    shape: float = TABLE["alpha_prior"].default[0]
    rate: float = TABLE["alpha_prior"].default[1]
    fixed: Mapping[str, float] | None = held("fixed_alpha")

    def flat(self, given_for: str, title: str = "") -> dict[str, Any]:
        """Return the checked shape and rate, and the fixed precisions."""
        density = TABLE["alpha_prior"].check("(AlphaPrior.shape, AlphaPrior.rate)", (self.shape, self.rate))
        return {**super().flat(given_for, title), "alpha_prior": density}


@value_of_options
class Radial(Value):
    """A kernel of a distance: the Gaussian or Matérn family of largest evidence, if gamma is learned.

    Examples
    --------
    >>> from partirvm import RVMRegressor, Radial
    >>> RVMRegressor(kernel=Radial(metric="widths")).get_params()["kernel__metric"]
    'widths'
    """

    name = "auto"
    of = "kernel"
    gamma: names.Gamma = held("gamma")
    prior: names.GammaPrior = held("gamma_prior")
    multiples: Sequence[float] = held("gamma_multiples")
    metric: names.Metric = held("metric")


StrategyName: TypeAlias = Literal["auto", "basic", "split-merge", "incremental", "working-set"]
Strategy: TypeAlias = Basic | SplitMerge | Incremental | WorkingSet
Solver: TypeAlias = Auto | FixedPoint | Fast
STRATEGIES = (Basic, SplitMerge, Incremental, WorkingSet)
SOLVERS = (Auto, FixedPoint, Fast)
VALUES: tuple[type[Value], ...] = (*STRATEGIES, Growing, Sample, *SOLVERS, Noise, AlphaPrior, Radial)
"""Every value that an estimator may be given, but for the families of kernels."""


def written(parameters: Mapping[str, Any], name: str) -> str:
    """Return the name of the option ``name`` of the table as an estimator with these parameters writes it.

    >>> written({"strategy": WorkingSet(fit_rows="sample")}, "fit_rows"), written({"gamma": 1.0}, "gamma")
    ('WorkingSet.fit_rows', 'gamma')
    """
    given = list(parameters.values())
    given += [own for each in given if isinstance(each, Value) for own in vars(each).values()]
    types = [type(each) for each in given if isinstance(each, Value)]
    for each in types if name in parameters else (*types, *VALUES):
        for place, option in each._options().items():
            if option == name:
                return f"{each.__name__}.{place}"
    return name
