"""Parameters of docstrings as the table of options states them, and a command that writes them.

    PYTHONPATH=tests/options python -m docstrings

An entry is ``name : type, default=value``, the text of the option's help, and whatever the class adds after it.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from pathlib import Path
from typing import Any

from partirvm import RVMClassifier, RVMRegressor
from partirvm.options import TABLE

CLASSES = (RVMRegressor, RVMClassifier)

WIDTH = 120


def meaning(option: str) -> str:
    """The help of an option without its default."""
    return re.sub(r"\s*\[default: [^]]*\]$", "", TABLE[option].help)


def options_of(documented: type) -> dict[str, str]:
    """Names of parameters of a class, with the options of the table that they are."""
    return {name: name for name in inspect.signature(documented).parameters if name in TABLE}


def default_of(documented: type, name: str) -> Any:
    """The default of a parameter."""
    return inspect.signature(documented).parameters[name].default


def entries(documented: type) -> dict[str, tuple[str, str]]:
    """The parameters that a docstring has: the type by name, and the text, its white space normal."""
    section = re.search(r"Parameters\n-+\n(.*?)(\n\n[A-Z]\w+\n---|\Z)", inspect.getdoc(documented) or "", re.DOTALL)
    if section is None:
        return {}
    found = re.findall(r"^(\w+) : (.*)\n((?:(?:    .*)?\n?)*)", section[1] + "\n", re.MULTILINE)
    return {name: (kind, " ".join(text.split())) for name, kind, text in found}


def write(documented: type) -> None:
    """Put the texts of the table into the docstring of a class; what follows them after a blank stays."""
    path = Path(inspect.getfile(documented))
    source = path.read_text()
    start = source.index(f"class {documented.__name__}(")
    for name, option in options_of(documented).items():
        if name not in entries(documented):
            continue
        kind, text = entries(documented)[name]
        own = text.removeprefix(meaning(option)).strip() if text.startswith(meaning(option)) else text
        kind = re.sub(r", default=.*", "", kind)
        body = textwrap.fill(
            f"{meaning(option)} {own}".strip(),
            WIDTH,
            initial_indent=" " * 8,
            subsequent_indent=" " * 8,
            break_on_hyphens=False,
            break_long_words=False,
        )
        shown = repr(default_of(documented, name)).replace("'", '"')
        new = f"    {name} : {kind}, default={shown}\n{body}\n"
        pattern = re.compile(rf"^    {name} : .*\n(?:        .*\n)+", re.MULTILINE)
        found = pattern.search(source, start)
        assert found is not None, (documented, name)
        source = source[: found.start()] + new + source[found.end() :]
    path.write_text(source)


if __name__ == "__main__":
    for each in CLASSES:
        write(each)
