"""Docstrings and ``--help`` have one text for each option."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from docstrings import CLASSES, default_of, entries, meaning, options_of

from partirvm import RVMClassifier, RVMRegressor
from partirvm.cli.commands import partirvm
from partirvm.cli.options import help_of
from partirvm.options import TABLE

CASES = [(documented, name, option) for documented in CLASSES for name, option in options_of(documented).items()]


@pytest.mark.parametrize(
    ("documented", "name", "option"), CASES, ids=[f"{documented.__name__}.{name}" for documented, name, _ in CASES]
)
def test_the_text_of_an_option(documented, name, option):
    """Type, default and the text of the table; run ``python -m docstrings`` in this folder to write them."""
    kind, text = entries(documented)[name]
    assert kind.endswith(f", default={default_of(documented, name)!r}".replace("'", '"'))
    assert text.startswith(meaning(option))


@pytest.mark.parametrize("documented", [RVMRegressor, RVMClassifier])
def test_every_parameter_has_a_type_and_a_text(documented):
    import inspect

    known = entries(documented)
    assert [*known] == [*inspect.signature(documented).parameters]
    assert all(text for _, text in known.values())


def test_help_has_the_same_texts():
    out = " ".join(CliRunner().invoke(partirvm, ["fit", "--help-all"], terminal_width=4000).output.split())
    for option in TABLE.values():
        assert " ".join(help_of(option.help).split()) in out, option.name
