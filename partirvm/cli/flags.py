"""Messages for the command line: the options that a message names, written as flags.

Messages name options as in Python (``max_rounds``, ``solver="fast"``), because the command line and the Python API
share the code that writes the messages. The command line passes errors, warnings, plans and results of a fit through
``as_flags``. Names in quotes, in paths and in calls belong to the user's data or to Python and are not changed.
"""

from __future__ import annotations

import re

from partirvm.options import TABLE

FLAGS = {option.name: option.flag for option in TABLE.values()}
FLAGS |= {"allow_code": "--allow-code", "augment": "--augment", "storage_options": "--storage-options"}
del FLAGS["classify"]
"""Dict from the Python name of an option to its flag."""

_BEFORE, _AFTER = r"(?<![\w'\"`/.\-=])", r"(?![\w'\"`/(=\-]|\.\w)"
_ANY = "|".join(FLAGS)
_VALUE = re.compile(rf"{_BEFORE}(?<!\()({_ANY})=('[^']*'|\"[^\"]*\"|[\w.]+)")
_SUBJECT = re.compile(rf"(^|; |: )({_ANY})(?= is | of | names | leaves )")
_NAME = re.compile(rf"{_BEFORE}({'|'.join(name for name in FLAGS if '_' in name)}){_AFTER}")


def as_flags(message: str) -> str:
    """Replace the Python names of options in a message by their flags.

    >>> as_flags("max_rounds was reached: raise it, or use solver='fast'")
    '--max-rounds was reached: raise it, or use --solver fast'
    >>> as_flags("strategy is 'x': it must be basic"), as_flags("the column 'max_rounds' in jobs/max_rounds.csv")
    ("--strategy is 'x': it must be basic", "the column 'max_rounds' in jobs/max_rounds.csv")
    """
    message = _VALUE.sub(lambda found: _given(found[1], found[2].strip("'\"")), message)
    message = _SUBJECT.sub(lambda found: found[1] + FLAGS[found[2]], message)
    return _NAME.sub(lambda found: FLAGS[found[1]], message)


def help_of(text: str) -> str:
    """Turn the text of an option in the table into the help of its flag, without quotes around values.

    >>> help_of('Rows of fit_rows="sample"; "auto" is 20·P.')
    'Rows of --likelihood sample; auto is 20·P.'
    """
    return as_flags(text).replace('"', "")


def _given(name: str, value: str) -> str:
    flag = FLAGS[name]
    if value == "True":
        return flag
    if value == "False":
        return f"--no-{flag[2:]}"
    return f"{flag} {'none' if value == 'None' else value}"
