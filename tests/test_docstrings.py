"""Parameters in the docstrings of public names have an entry each in a numpydoc section."""

import inspect
import re

import pytest

import partirvm
from partirvm.model import ClassModel, Model
from partirvm.report import page, plots

SECTION = re.compile(
    r"^(?:Parameters|Attributes)\n-+\n(.*?)(?=^\w[\w ]*\n-{3,}$|\Z)", re.MULTILINE | re.DOTALL
)
"""A section of entries, up to the next section."""


def public_callables():
    """Yield the name and the object of every public function, class and method with a docstring of
    this package."""
    owners = [getattr(partirvm, name) for name in partirvm.__all__] + [Model, ClassModel]
    for module in (plots, page):
        owners += [
            value
            for value in vars(module).values()
            if getattr(value, "__module__", "") == module.__name__
        ]
    for owner in filter(callable, owners):
        methods = inspect.getmembers(owner, callable) if inspect.isclass(owner) else []
        for name, each in [("", owner), *methods]:
            own = not inspect.isclass(each) and str(getattr(each, "__module__", "")).startswith(
                "partirvm"
            )
            if (own or not name) and not name.startswith("_") and each.__doc__:
                yield f"{owner.__name__}.{name}".rstrip("."), each


PUBLIC = dict(public_callables())


def entries(docstring):
    """Return the names that have an entry, ``name : type`` or several names with a common one."""
    heads = re.findall(r"^(\S.*)$", "\n".join(SECTION.findall(docstring)), re.MULTILINE)
    return {name.strip(" *") for head in heads for name in head.split(" : ")[0].split(",")}


def parameters_of(each):
    """Return the names of the parameters, without ``self``."""
    return [name for name in inspect.signature(each).parameters if name not in ("self", "cls")]


def test_entries_are_read():
    """Two entries, one of which has two names; running text has none."""
    text = (
        "Do.\n\nParameters\n----------\na : int\n    One. b : float Two.\nc, d : "
        "str\n\nRaises\n------\nE : x\n"
    )
    assert entries(text) == {"a", "c", "d"}
    assert entries("Do a with b.") == set()


@pytest.mark.parametrize(
    "name", [name for name, each in PUBLIC.items() if entries(inspect.getdoc(each))]
)
def test_each_parameter_has_its_own_entry_where_there_are_entries(name):
    """A tool that joins lines makes running text of an entry."""
    found = entries(inspect.getdoc(PUBLIC[name]))
    assert not [parameter for parameter in parameters_of(PUBLIC[name]) if parameter not in found]


@pytest.mark.parametrize(
    "name", [name for name, each in PUBLIC.items() if entries(inspect.getdoc(each))]
)
def test_no_entry_is_hidden_in_the_text_of_another(name):
    """``name : type`` inside a description, where the name is a parameter."""
    texts = re.findall(
        r"^    .*$", "\n".join(SECTION.findall(inspect.getdoc(PUBLIC[name]))), re.MULTILINE
    )
    hidden = [
        each for each in parameters_of(PUBLIC[name]) if re.search(rf"\b{each} : ", " ".join(texts))
    ]
    assert not hidden
