"""The table of options determines defaults, refusals, flags, constructors and words."""

import inspect
import re
from dataclasses import fields, replace
from typing import get_args

import pytest
from click.testing import CliRunner

from partirvm import RVMClassifier, RVMRegressor
from partirvm.cli import options
from partirvm.cli.commands import partirvm as group
from partirvm.cli.options import help_of
from partirvm.core import SOLVERS
from partirvm.errors import UsageError
from partirvm.kernels import WITH_GAMMA
from partirvm.likelihoods import words_of
from partirvm.options import TABLE, Request, check, table
from partirvm.options.values import VALUES
from partirvm.strategies import STRATEGIES

CHECKED = [name for name, row in TABLE.items() if row.check.kind != "any"]

FLAGS = {option.name: option for option in group.commands["fit"].params if option.name in TABLE}

GIVEN = {
    "strategy": ("basic", "basic"),
    "solver": ("fast", "fast"),
    "kernel": ("matern32", "matern32"),
    "gamma": ("0.1,2", (0.1, 2.0)),
    "basis": ("linear", "linear"),
    "class_weight": ("a=2", {"a": 2.0}),
    "time_limit": ("1.5h", 5400.0),
    "memory_limit": ("2GiB", 2 << 30),
    "gamma_multiples": ("1,8", (1.0, 8.0)),
    "noise_prior": ("1,2", (1.0, 2.0)),
    "alpha_prior": ("1,2", (1.0, 2.0)),
    "fixed_alpha": ("bias=1e-6", {"bias": 1e-6}),
    "likelihood": ("pooled", "pooled"),
    "stop_fraction": ("0.25", 0.25),
    "tol": ("1e-3", 1e-3),
}
"""A text for each flag that takes more than words and integers, and the resulting value in the
request."""


def text_for(name):
    """Return a value other than the default, as text and as stored in the request."""
    row = TABLE[name]
    if name in GIVEN:
        return GIVEN[name]
    words = [word for word in row.check.words if word not in ("auto", row.default)]
    return (words[0], words[0]) if words else ("7", 7)


@pytest.mark.parametrize("wrong", ["never so", -1, float("nan"), [0.0], {"bias": -1}], ids=str)
@pytest.mark.parametrize("name", CHECKED)
def test_a_refusal_names_the_option(name, wrong):
    with pytest.raises(UsageError) as error:
        check(replace(Request(), **{name: wrong}))
    assert name in str(error.value)


@pytest.mark.parametrize("name", TABLE)
def test_every_option_has_a_flag_with_its_name_default_and_value(name):
    flag = FLAGS[name]
    row = TABLE[name]
    assert row.check(name, row.default) == row.default
    assert flag.opts[0] == row.flag
    assert flag.help.startswith(help_of(row.help).rstrip())
    context = group.commands["fit"].make_context("fit", ["d", "j"])
    assert options.parameters({name: context.params[name]}) == Request()
    if row.check.kind == "switch":
        arguments, value = (
            ([flag.secondary_opts[0]], False) if flag.secondary_opts else ([row.flag], True)
        )
    else:
        text, value = text_for(name)
        arguments = [row.flag, text]
    context = group.commands["fit"].make_context("fit", ["d", "j", *arguments])
    found = options.parameters({name: context.params[name]})
    assert found == replace(Request(), **{name: value})
    assert check(found) == found


@pytest.mark.parametrize(
    ("words", "known"),
    [
        (table.StrategyName, ("auto", *STRATEGIES)),
        (table.SolverName, SOLVERS),
        (table.ClassLikelihood, words_of(classes=True)),
    ],
)
def test_option_words_equal_those_in_the_registries(words, known):
    assert set(get_args(words)) == set(known)


def test_help_and_docstrings_contain_the_text_of_the_table():
    out = " ".join(
        CliRunner().invoke(group, ["fit", "--help-all"], terminal_width=4000).output.split()
    )
    for name, row in TABLE.items():
        assert row.help
        assert " ".join(help_of(row.help).split()) in out, name
    for kind in set(WITH_GAMMA.values()) - {WITH_GAMMA["gaussian"]}:
        assert "gamma, multiples, metric : optional\n    As for ``Gaussian``." in inspect.getdoc(
            kind
        )
    for kind in (RVMRegressor, RVMClassifier, *VALUES, WITH_GAMMA["gaussian"]):
        assert not re.search(r"\w  +\w", inspect.getdoc(kind))
        documented = " ".join(inspect.getdoc(kind).split())
        held = {each.name: each.metadata.get("option", each.name) for each in fields(kind)}
        for place, name in held.items():
            if name in TABLE:
                default = inspect.signature(kind).parameters[place].default
                assert f"default={default!r}".replace("'", '"') in documented, (kind, name)
                assert " ".join(TABLE[name].meaning.split()) in documented, (kind, name)


@pytest.mark.parametrize("estimator", [RVMRegressor, RVMClassifier])
def test_constructors_follow_the_table(estimator):
    """They have at most 26 parameters; every option is a parameter or a field of a value."""
    parameters = inspect.signature(estimator).parameters
    assert len(parameters) <= 26
    for name in set(parameters) - {"random_state", "client", "columns", "verbose"}:
        assert parameters[name].default == TABLE[name].default, name
    reached = {
        *inspect.signature(RVMRegressor).parameters,
        *inspect.signature(RVMClassifier).parameters,
    }
    reached |= {
        each.metadata["option"]
        for kind in VALUES
        for each in fields(kind)
        if "option" in each.metadata
    }
    assert set(TABLE) - reached == {"seed", "classify"}


@pytest.mark.parametrize("estimator", [RVMRegressor, RVMClassifier])
def test_estimator_docstrings_show_the_defaults_in_the_signature(estimator):
    """Each parameter has one entry; options list their words."""
    entries = re.findall(r"^(\w+) : (.*, |)default=(.+)$", inspect.getdoc(estimator), re.MULTILINE)
    parameters = inspect.signature(estimator).parameters
    defaults = {name: repr(each.default).replace("'", '"') for name, each in parameters.items()}
    assert {name: default for name, _, default in entries} == defaults
    assert len(entries) == len(defaults)
    for name, kind, _ in entries:
        if kind.startswith("{") and TABLE[name].check.kind == "word":
            words = ", ".join(f'"{word}"' for word in TABLE[name].check.words)
            assert kind.startswith(f"{{{words}}}"), name


@pytest.mark.parametrize(
    ("former", "text", "name", "value"),
    [
        ("--noise-variance", "0.01", "noise", 0.01),
        ("--likelihood-rows", "700", "sample_rows", 700),
        ("--multi-class", "pooled", "likelihood", "pooled"),
    ],
)
def test_flags_keep_their_names(former, text, name, value):
    context = group.commands["fit"].make_context("fit", ["d", "j", former, text])
    assert options.parameters({name: context.params[name]}) == replace(Request(), **{name: value})
