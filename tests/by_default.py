"""Cases that run by default; the others are marked ``slow``."""

from collections.abc import Container, Iterable
from typing import Any

import pytest
from hypothesis import settings


def examples(number: int) -> int:
    """This number of examples of hypothesis, 300 in its profile ``thorough``."""
    return 300 if settings.default.max_examples == 300 else number


def some(cases: Iterable[Any], default: Container[Any]) -> list[Any]:
    """The cases of ``parametrize``; those that are not among ``default`` are slow. A tuple is a
    case of several values.

    >>> [len(case.marks) for case in some(["a", "b"], {"a"})]
    [0, 1]
    """
    made = []
    for case in cases:
        values = case if isinstance(case, tuple) else (case,)
        made.append(pytest.param(*values, marks=[] if case in default else [pytest.mark.slow]))
    return made
