"""Docstrings of public names have an entry for each parameter, those of internal ones a line."""

import ast
import inspect
import re
from pathlib import Path

import pytest
from sources import parsed

import partirvm
from partirvm.model import ClassModel, Model
from partirvm.report import page, plots

SECTION = re.compile(
    r"^(?:Parameters|Attributes)\n-+\n(.*?)(?=^\w[\w ]*\n-{3,}$|\Z)", re.MULTILINE | re.DOTALL
)
"""A section of entries, up to the next section."""

ROOT = Path(partirvm.__file__).parent

MANY = 4
"""Minimum number of parameters from which a function describes each of them."""

GIVEN = {"integrations/skl2onnx.py:_parse"}
"""Functions whose parameters are determined and described by another package."""


def public_callables():
    """Yield the name and the object of every documented public function, class and method."""
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
    """Return the names that have an entry, ``name : type``; several names may share one."""
    heads = re.findall(r"^(\S.*)$", "\n".join(SECTION.findall(docstring)), re.MULTILINE)
    return {name.strip(" *") for head in heads for name in head.split(" : ")[0].split(",")}


def parameters_of(each):
    """Return the names of the parameters, without ``self``."""
    return [name for name in inspect.signature(each).parameters if name not in ("self", "cls")]


def test_entries_are_parsed():
    """Running text has no entries."""
    text = (
        "Do.\n\nParameters\n----------\na : int\n    One. b : float Two.\nc, d : "
        "str\n\nRaises\n------\nE : x\n"
    )
    assert entries(text) == {"a", "c", "d"}
    assert entries("Do a with b.") == set()


@pytest.mark.parametrize(
    "name", [name for name, each in PUBLIC.items() if entries(inspect.getdoc(each))]
)
def test_each_parameter_has_an_entry_if_one_has(name):
    """A tool that joins lines may turn an entry into running text."""
    found = entries(inspect.getdoc(PUBLIC[name]))
    assert not [parameter for parameter in parameters_of(PUBLIC[name]) if parameter not in found]


@pytest.mark.parametrize(
    "name", [name for name, each in PUBLIC.items() if entries(inspect.getdoc(each))]
)
def test_no_entry_is_hidden_in_the_text_of_another(name):
    """Such an entry is ``name : type`` inside a description, where the name is a parameter."""
    texts = re.findall(
        r"^    .*$", "\n".join(SECTION.findall(inspect.getdoc(PUBLIC[name]))), re.MULTILINE
    )
    hidden = [
        each for each in parameters_of(PUBLIC[name]) if re.search(rf"\b{each} : ", " ".join(texts))
    ]
    assert not hidden


def names_of(function):
    """Return the names of the parameters in a syntax tree, without ``self``, ``*args``,
    ``**kwargs``."""
    found = function.args
    names = [each.arg for each in (*found.posonlyargs, *found.args, *found.kwonlyargs)]
    return [name for name in names if name not in ("self", "cls")]


def without_line(function):
    """Return the parameters without a line ``name: text``, ``one, two: text`` or ``name :
    type``."""
    text = ast.get_docstring(function) or ""
    heads = re.findall(r"^ *(\w+(?:, \w+)*) ?:", text, re.MULTILINE)
    described = {name for head in heads for name in head.split(", ")}
    return [name for name in names_of(function) if name not in described]


def functions_of(tree):
    """Yield every function and method in a syntax tree."""
    return [
        each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def test_parameter_lines_are_parsed():
    """Running text has no lines of parameters; ``self`` and ``*more`` need none."""
    source = (
        "def f(self, a, b, /, c, *more, d):\n"
        '    """Do with d.\n\n    Args:\n        a, b: numbers\n        c : rows (n, d)\n    """\n'
    )
    (function,) = functions_of(ast.parse(source))
    assert names_of(function) == ["a", "b", "c", "d"]
    assert without_line(function) == ["d"]


def test_parameters_of_internal_functions_have_a_line():
    """Exceptions are commands' help texts, special methods and a likelihood's overridden
    methods."""
    inherited = {each.name for each in functions_of(parsed(ROOT / "spec/problem.py"))}
    missing = set()
    for file in sorted(ROOT.rglob("*.py")):
        tree = parsed(file)
        path = file.relative_to(ROOT).as_posix()
        room = path.split("/")[0]
        exempt = inherited if room == "likelihoods" and path != "spec/problem.py" else set()
        missing |= {
            f"{path}:{each.name}"
            for each in functions_of(tree)
            if room != "cli"
            and not re.fullmatch("__.*__", each.name)
            and each.name not in exempt
            and len(names_of(each)) >= MANY
            and without_line(each)
        }
    assert missing == GIVEN
