"""Option values: strategies, kernels, noise and priors, each with its own options.

``RVMRegressor(strategy=WorkingSet(selection="gain"))`` is ``--strategy working-set --selection
gain`` on the command line. Each field is one option of the table (``options.table``) and has its
default, check and help text. Like scikit-learn estimators, values have ``get_params`` and
``set_params``: ``clone`` copies them and ``GridSearchCV`` finds ``strategy__selection``. A fit does
not change them. The families of ``partirvm.kernels`` are also values.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from typing import Any, ClassVar, Self, TypeAlias, cast

from partirvm.errors import UsageError
from partirvm.options.constraints import near
from partirvm.options.table import (
    TABLE,
    Auto,
    AutoOrNone,
    FitRows,
    Gamma,
    Metric,
    NoiseForm,
    Selection,
    TargetWarp,
)


def held(name: str, **more: Any) -> Any:
    """Return the field for the option of this name."""
    return field(default=TABLE[name].default, metadata={"option": name}, **more)


def options_of(kind: Any) -> dict[str, str]:
    """Return the option for each field of a value or of its class that is an option, by field
    name."""
    return {
        member.name: member.metadata["option"]
        for member in fields(kind)
        if "option" in member.metadata
    }


class Value:
    """Base class of option values, whose fields are options: ``name`` is the value's word, and
    ``of`` the option that accepts the value."""

    name: ClassVar[str]
    of: ClassVar[str]

    def __init_subclass__(cls, name: str = "", of: str = "") -> None:
        if name:
            cls.name = name
            cls.of = of

    def flat(self, given_for: str) -> dict[str, Any]:
        """Return the value's options by name. Raises ``UsageError`` for an invalid field, or if the
        value is used for another option."""
        if given_for != self.of:
            raise UsageError(f"{given_for} is {self!r}, which is a value of {self.of}")
        own = type(self).__name__
        options = options_of(self).items()
        checked = {
            option: TABLE[option].check(f"{own}.{name}", getattr(self, name))
            for name, option in options
        }
        return {given_for: self.name, **checked}

    def __repr__(self) -> str:
        """Return a string with the fields that differ from their defaults."""
        shown = [
            (member.name, repr(getattr(self, member.name)), repr(member.default))
            for member in fields(cast(Any, self))
        ]
        changed = [f"{name}={text}" for name, text, usual in shown if text != usual]
        return f"{type(self).__name__}({', '.join(changed)})"

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the fields by name."""
        return {member.name: getattr(self, member.name) for member in fields(cast(Any, self))}

    def set_params(self, **params: Any) -> Self:
        """Set fields by name. Raises ``UsageError`` (a ``ValueError``) for an unknown name."""
        known = self.get_params()
        for name in params.keys() - known:
            raise UsageError(
                f"{type(self).__name__} has no {name!r}; known: "
                f"{', '.join(known)}{near(name, known)}"
            )
        for name, value in vars(replace(cast(Any, self), **params)).items():
            object.__setattr__(self, name, value)
        return self


def flat(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that estimator parameters (including values) represent, by their names in
    the table.

    Raises ``UsageError`` for an invalid value, and for an option that is set twice.

    >>> strategy = WorkingSet(selection="gain")
    >>> found = flat({"strategy": strategy, "selection": "auto", "gamma": "learn"})
    >>> [found[name] for name in ("strategy", "selection", "gamma")]
    ['working-set', 'gain', 'learn']
    """
    values = {name: value for name, value in parameters.items() if isinstance(value, Value)}
    options = dict(chain.from_iterable(value.flat(name).items() for name, value in values.items()))
    for name in [name for name in parameters if name not in values]:
        value = TABLE[name].check(name, parameters[name])
        usual = TABLE[name].default
        if name in options and not (isinstance(value, type(usual)) and bool(value == usual)):
            owner = next(each for each in values.values() if name in options_of(each).values())
            raise UsageError(
                f"{name} is {value!r}, and {owner!r} has its own: set it there, and leave {name} "
                "out"
            )
        options.setdefault(name, value)
    return options


@dataclass(repr=False)
class SplitMerge(Value, name="split-merge", of="strategy"):
    """Partitions of P rows are fitted in parallel, and their vectors are merged in pairs.

    Parameters
    ----------
    fit_rows : {"auto", "full", "growing", "sample"}, default="auto"
        Rows used by all fits except the last: "full" (all rows), "growing" (a random sample that
        grows with the number of columns, for "working-set"), "sample" (one random sample), or
        "auto" ("full"; with many rows, "growing", or "sample" for "split-merge" and "incremental").
    sample_rows : default="auto"
        Number of rows in the random sample for fit_rows="sample", or in the first sample for
        "growing"; "auto" means 20·P or 100·P.
    stop_fraction : default=0.5
        All fits except the last end once the number of vectors falls to this fraction of the number
        of candidates.

    Examples
    --------
    >>> from partirvm import RVMRegressor, SplitMerge
    >>> RVMRegressor(strategy=SplitMerge(stop_fraction=0.6)).get_params()["strategy__stop_fraction"]
    0.6
    """

    fit_rows: FitRows = held("fit_rows")
    sample_rows: int | Auto = held("sample_rows")
    stop_fraction: float = held("stop_fraction")


@dataclass(repr=False)
class Incremental(Value, name="incremental", of="strategy"):
    """Partitions of P rows join the vectors kept so far, one after another, as candidates.

    Parameters
    ----------
    fit_rows : {"auto", "full", "growing", "sample"}, default="auto"
        Rows used by all fits except the last: "full" (all rows), "growing" (a random sample that
        grows with the number of columns, for "working-set"), "sample" (one random sample), or
        "auto" ("full"; with many rows, "growing", or "sample" for "split-merge" and "incremental").
    sample_rows : default="auto"
        Number of rows in the random sample for fit_rows="sample", or in the first sample for
        "growing"; "auto" means 20·P or 100·P.
    stop_fraction : default=0.5
        All fits except the last end once the number of vectors falls to this fraction of the number
        of candidates.

    Examples
    --------
    >>> from partirvm import RVMRegressor, Incremental
    >>> model = RVMRegressor(strategy=Incremental(stop_fraction=0.6))
    >>> model.get_params()["strategy__stop_fraction"]
    0.6
    """

    fit_rows: FitRows = held("fit_rows")
    sample_rows: int | Auto = held("sample_rows")
    stop_fraction: float = held("stop_fraction")


@dataclass(repr=False)
class WorkingSet(Value, name="working-set", of="strategy"):
    """Rounds in which the P most promising rows join the vectors kept so far.

    Parameters
    ----------
    selection : {"auto", "error", "largest-error", "random", "gain"}, default="auto"
        How the working set selects its next candidates: "error" (largest errors among many random
        rows), "largest-error" (largest errors among all rows), "random", "gain" (largest evidence
        gains in a random pool), or "auto" (the same as "error"). In classification, "error" draws
        rows at random, favouring those with large errors.
    fit_rows : {"auto", "full", "growing", "sample"}, default="auto"
        Rows used by all fits except the last: "full" (all rows), "growing" (a random sample that
        grows with the number of columns, for "working-set"), "sample" (one random sample), or
        "auto" ("full"; with many rows, "growing", or "sample" for "split-merge" and "incremental").
    sample_rows : default="auto"
        Number of rows in the random sample for fit_rows="sample", or in the first sample for
        "growing"; "auto" means 20·P or 100·P.
    stop_fraction : default=0.5
        All fits except the last end once the number of vectors falls to this fraction of the number
        of candidates.

    Examples
    --------
    >>> from partirvm import RVMRegressor, WorkingSet
    >>> model = RVMRegressor(strategy=WorkingSet(selection="gain"), partition_size=20)
    >>> model.get_params()["strategy__selection"]
    'gain'
    """

    selection: Selection = held("selection")
    fit_rows: FitRows = held("fit_rows")
    sample_rows: int | Auto = held("sample_rows")
    stop_fraction: float = held("stop_fraction")


@dataclass(repr=False)
class Noise(Value, name="auto", of="noise"):
    """Noise that is estimated under a prior.

    Parameters
    ----------
    form : default="auto"
        Noise variance: a number (fixed, in squared units of the target), "constant" (estimated),
        "local" (depends on the inputs), or "auto" ("local" if it predicts left-out rows clearly
        better).
    prior : default=(0.0, 0.0)
        Shape and rate (c, d) of a Gamma prior on the noise precision 1/σ². The prior counts as 2c
        additional rows with a residual sum of squares of 2d, in squared units of the target. 0,0 is
        flat.

    Examples
    --------
    >>> from partirvm import Noise, RVMRegressor
    >>> # the prior has the mean 0.01 and counts as 100 rows
    >>> RVMRegressor(noise=Noise(prior=(50.0, 0.5)))
    RVMRegressor(noise=Noise(prior=(50.0, 0.5)))
    """

    form: NoiseForm | float = held("noise")
    prior: tuple[float, float] = held("noise_prior")


@dataclass(repr=False)
class Local(Value, name="local", of="residual"):
    """Predictions are corrected by the errors of the nearest training rows (``local.kriging``).

    Parameters
    ----------
    neighbours : default=60
        Maximum number of nearest training rows whose errors correct a prediction. Only a third or
        two thirds of this number are used if more rows would lower the error by less than half a
        per cent.
    family : {"auto", "exponential", "matern32", "matern52"}, default="auto"
        Correlation function of the errors of nearby rows: "exponential", "matern32", "matern52", or
        "auto" (the one that corrects the predictions of left-out rows best).

    Examples
    --------
    >>> from partirvm import Local, RVMRegressor
    >>> RVMRegressor(residual=Local(neighbours=30)).get_params()["residual__neighbours"]
    30
    """

    neighbours: int = held("neighbours")
    family: str = held("residual_family")


@dataclass(repr=False)
class Warp(Value, name="auto", of="warp"):
    """Warps of skewed features and of the target.

    Parameters
    ----------
    inputs : {"auto", "none"}, default="auto"
        Transformation of skewed features: "auto" (if gamma is "learn" and this raises the evidence,
        a long-tailed feature is replaced by the inverse hyperbolic sine of its distance from a
        centre, a smooth logarithm) or "none".
    target : {"none", "log", "asinh", "auto"}, default="none"
        Fit the target as it is ("none"), its logarithm ("log"), the inverse hyperbolic sine of its
        distance from a centre ("asinh"), or whichever of these has the largest evidence on a sample
        of rows ("auto"). Predicted means, standard deviations and intervals refer to the target
        itself; training errors and noise refer to the transformed target.

    Examples
    --------
    >>> from partirvm import RVMRegressor, Warp
    >>> RVMRegressor(warp=Warp(target="log")).get_params()["warp__target"]
    'log'
    """

    inputs: AutoOrNone = held("warp")
    target: TargetWarp = held("warp_target")


@dataclass(repr=False)
class Trees(Value, name="trees", of="basis"):
    """Predictions are weighted means of those of the fit and of boosted trees.

    The trees are those of scikit-learn's ``HistGradientBoosting``, learned from at most 200,000
    rows. Rows that both the fit and trees predict without their fold, one of five (of groups, if
    there are groups), determine the share of the trees.

    Parameters
    ----------
    rounds : int, default=400
        Maximum number of boosted trees per target, or per class, for basis="trees": boosting ends
        when a left-out fold no longer gains.

    Examples
    --------
    >>> from partirvm import RVMRegressor, Trees
    >>> RVMRegressor(basis=Trees(rounds=50)).get_params()["basis__rounds"]
    50
    """

    rounds: int = held("tree_rounds")


@dataclass(repr=False)
class AlphaPrior(Value, name="gamma", of="alpha_prior"):
    """Gamma prior on the precision α of each weight, and fixed precisions.

    The prior applies to the standardised problem (Tipping 2001, appendix A). With a positive rate,
    no α becomes infinite; a vector is deleted if no α raises the evidence without the prior. Kernel
    learning ignores the prior. Basis functions in ``fixed`` ("bias" or others in ``basis_names_``)
    are kept.

    Parameters
    ----------
    shape : float, default=0.0
        Shape of the Gamma prior; 0 is flat in log α.
    rate : float, default=0.0
        Rate of the Gamma prior; 0 is flat in log α.
    fixed : default=None
        Fixed precisions α for the bias and for basis functions, by name.

    Examples
    --------
    >>> from partirvm import AlphaPrior, RVMRegressor
    >>> model = RVMRegressor(alpha_prior=AlphaPrior(1e-4, 1e-4, fixed={"bias": 1e-6}))
    >>> model.get_params()["alpha_prior__fixed"]
    {'bias': 1e-06}
    """

    shape: float = 0.0
    rate: float = 0.0
    fixed: Mapping[str, float] | None = held("fixed_alpha")

    def flat(self, given_for: str) -> dict[str, Any]:
        """Return the checked shape and rate, and the fixed precisions."""
        density = TABLE["alpha_prior"].check(
            "(AlphaPrior.shape, AlphaPrior.rate)", (self.shape, self.rate)
        )
        return {**super().flat(given_for), "alpha_prior": density}


@dataclass(repr=False)
class Radial(Value, name="auto", of="kernel"):
    """A kernel of distance: the Gaussian or Matérn family with the largest evidence, if gamma is
    learned.

    Parameters
    ----------
    gamma : default="learn"
        Inverse squared width of the kernel: "learn", "learn-shared", "learn-per-feature", "scale",
        a number, or one number per feature (see Kernels in the guide).
    multiples : default=(1.0,)
        Multiples of gamma, for example 1,8,64, that give several kernel widths at once, for targets
        with structure at several scales: each candidate row offers one basis function per multiple.
        If gamma is learned, learning starts from these multiples.
    metric : {"auto", "widths", "directions"}, default="auto"
        How a learned "gaussian", "matern52" or "matern32" kernel measures distances: "widths" (one
        width per feature), "directions" (learned combinations of up to 45 features, each with a
        width), or "auto" (if gamma is "learn", "directions" if they predict better, judged on
        left-out rows for up to 2,000 rows and by the evidence for more; otherwise "widths").

    Examples
    --------
    >>> from partirvm import RVMRegressor, Radial
    >>> RVMRegressor(kernel=Radial(metric="widths")).get_params()["kernel__metric"]
    'widths'
    """

    gamma: Gamma = held("gamma")
    multiples: Sequence[float] = held("gamma_multiples")
    metric: Metric = held("metric")


@dataclass(repr=False)
class ColumnOptions(Value):
    """How the columns of a data frame are read, where their dtypes and texts do not say it.

    The fields are the options of ``ingest`` of the same names. A fit stores how the columns were
    read (``model_.columns``), and reads the frames of ``predict`` and ``score`` alike.

    Parameters
    ----------
    exclude : str or sequence of str, default=()
        Columns to leave out.
    categorical : "auto", "none", column name or sequence of names, default="auto"
        Columns whose values are labels, in addition to those of pandas' categorical dtype; a
        sequence may contain "auto", which means all text columns.
    dates : dict or None, default=None
        Order of day, month and year in the text of a column: "dmy", "mdy" or "ymd"; or its strptime
        format.
    missing : str or sequence of str, default=()
        Strings that stand for a missing value; "inf" matches infinite values.
    numeric : str or sequence of str, default=()
        Columns of numbers, in which other texts are missing values. They are kept even if they are
        constant or count the rows.
    decimal : str or None, default=None
        Decimal mark of columns whose numbers can be read in two ways, such as 1,234 in all rows.
    thousands : str or None, default=None
        Thousands separator of such columns.

    Examples
    --------
    >>> from partirvm import ColumnOptions, RVMRegressor
    >>> model = RVMRegressor(columns=ColumnOptions(exclude="id", dates={"day": "dmy"}))
    >>> model.get_params()["columns__dates"]
    {'day': 'dmy'}
    """

    exclude: str | Sequence[str] = ()
    categorical: str | Sequence[str] = "auto"
    dates: Mapping[str, str] | None = None
    missing: str | Sequence[str] = ()
    numeric: str | Sequence[str] = ()
    decimal: str | None = None
    thousands: str | None = None

    def settings(self) -> dict[str, Any]:
        """Return the options by name; names of columns as tuples."""
        settings = self.get_params()
        for name in ("exclude", "categorical", "missing", "numeric"):
            value = settings[name]
            settings[name] = (value,) if isinstance(value, str) else tuple(map(str, value))
        settings["dates"] = dict(self.dates or {})
        return settings


Strategy: TypeAlias = SplitMerge | Incremental | WorkingSet
VALUES: tuple[type[Value], ...] = (
    SplitMerge,
    Incremental,
    WorkingSet,
    Local,
    Noise,
    Warp,
    Trees,
    AlphaPrior,
    Radial,
)
"""Every value that an estimator accepts, except the kernel families."""
