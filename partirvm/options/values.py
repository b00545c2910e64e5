"""Option values: strategies, kernels, noise and priors, each with its own options.

``RVMRegressor(strategy=WorkingSet(selection="gain"))`` is ``--strategy working-set --selection
gain`` on the command line. Each field is one option of the table (``options.table``) and has its
default, check and help text. Like scikit-learn estimators, values have ``get_params`` and
``set_params``: ``clone`` copies them and ``GridSearchCV`` finds ``strategy__selection``. A fit does
not change them. The families of ``partirvm.kernels`` are also values.
"""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from typing import Any, ClassVar, Self, TypeAlias, cast

from partirvm.errors import UsageError
from partirvm.options.constraints import Option, near
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


def field_with_text(default: Any, text: str) -> Any:
    """Return the field for a parameter that is no option of its own; ``text`` is its entry in the
    docstring."""
    return field(default=default, metadata={"text": text})


def listed_words(option: Option) -> str:
    """Return the words of an option as docstrings list them."""
    return "{" + ", ".join(f'"{word}"' for word in option.check.words) + "}"


def entry(name: str, kind: str, default: Any, text: str) -> str:
    """Return a parameter's entry for a docstring.

    Args:
        name: the name of the parameter.
        kind: its type, with a comma if there is one.
        default: its default.
        text: its meaning.
    """
    head = f"{name} : {kind}default={default!r}".replace("'", '"')
    return (
        head
        + "\n"
        + textwrap.indent(
            textwrap.fill(" ".join(text.split()), 108, break_on_hyphens=False), "    "
        )
    )


def document(kind: Any) -> None:
    """Add the fields to a value's docstring, before its examples: options, and those that have a
    text."""
    if kind.__doc__ is None:  # python -OO has no docstrings
        return
    text = list[str]()
    options = options_of(kind)
    for member in fields(kind):
        if member.name in options:
            option = TABLE[options[member.name]]
            listed = listed_words(option) + ", " if option.check.kind == "word" else ""
            text.append(entry(member.name, listed, option.default, option.meaning))
        elif "text" in member.metadata:
            text.append(
                entry(
                    member.name,
                    f"{type(member.default).__name__}, ",
                    member.default,
                    member.metadata["text"],
                )
            )
    summary, mark, examples = textwrap.dedent(" " * 4 + kind.__doc__).partition("Examples\n")
    kind.__doc__ = "\n".join(
        [summary.rstrip(), "", "Parameters", "----------", *text, "", mark + examples]
    )


def options_of(kind: Any) -> dict[str, str]:
    """Return the fields of a value, or of its class, that are options: the option by the name of
    the field."""
    return {
        member.name: member.metadata["option"]
        for member in fields(kind)
        if "option" in member.metadata
    }


class Value:
    """Base of the values, whose fields are options: ``name`` is its word, ``of`` the option that
    accepts it."""

    name: ClassVar[str]
    of: ClassVar[str]

    def __init_subclass__(cls, name: str = "", of: str = "") -> None:
        if name:
            cls.name = name
            cls.of = of

    def flat(self, given_for: str) -> dict[str, Any]:
        """Return its options by name. Raises ``UsageError`` for an invalid field, or if used for
        another option."""
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
    """Return the options that estimator parameters, including values, stand for, by their names in
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

    Examples
    --------
    >>> from partirvm import RVMRegressor, Warp
    >>> RVMRegressor(warp=Warp(target="log")).get_params()["warp__target"]
    'log'
    """

    inputs: AutoOrNone = held("warp")
    target: TargetWarp = held("warp_target")


@dataclass(repr=False)
class AlphaPrior(Value, name="gamma", of="alpha_prior"):
    """Gamma prior on the precision α of each weight, and fixed precisions.

    The prior applies to the standardised problem (Tipping 2001, appendix A). With a positive rate,
    no α becomes infinite; a vector is deleted if no α raises the evidence without the prior. Kernel
    learning ignores the prior. Basis functions in ``fixed`` ("bias" or others in ``basis_names_``)
    are kept.

    Examples
    --------
    >>> from partirvm import AlphaPrior, RVMRegressor
    >>> model = RVMRegressor(alpha_prior=AlphaPrior(1e-4, 1e-4, fixed={"bias": 1e-6}))
    >>> model.get_params()["alpha_prior__fixed"]
    {'bias': 1e-06}
    """

    shape: float = field_with_text(
        TABLE["alpha_prior"].default[0], "Shape of the Gamma prior; 0 is flat in log α."
    )
    rate: float = field_with_text(
        TABLE["alpha_prior"].default[1], "Rate of the Gamma prior; 0 is flat in log α."
    )
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

    Examples
    --------
    >>> from partirvm import RVMRegressor, Radial
    >>> RVMRegressor(kernel=Radial(metric="widths")).get_params()["kernel__metric"]
    'widths'
    """

    gamma: Gamma = held("gamma")
    multiples: Sequence[float] = held("gamma_multiples")
    metric: Metric = held("metric")


Strategy: TypeAlias = SplitMerge | Incremental | WorkingSet
VALUES: tuple[type[Value], ...] = (
    SplitMerge,
    Incremental,
    WorkingSet,
    Local,
    Noise,
    Warp,
    AlphaPrior,
    Radial,
)
"""Every value that an estimator accepts, except the kernel families."""

for _value in VALUES:
    document(_value)
