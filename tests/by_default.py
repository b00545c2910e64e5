"""Selection of the cases that run by default; the others are marked ``slow``."""

from collections.abc import Container, Iterable
from typing import Any

import pytest
from hypothesis import settings


def examples(number: int) -> int:
    """Return this number of hypothesis examples, or 300 in the profile ``thorough``."""
    return 300 if settings.default.max_examples == 300 else number


def some(cases: Iterable[Any], default: Container[Any]) -> list[Any]:
    """Return the cases for ``parametrize``; those that are not in ``default`` are slow. A tuple is
    a case of several values.

    >>> [len(case.marks) for case in some(["a", "b"], {"a"})]
    [0, 1]
    """
    made = []
    for case in cases:
        values = case if isinstance(case, tuple) else (case,)
        made.append(pytest.param(*values, marks=[] if case in default else [pytest.mark.slow]))
    return made
