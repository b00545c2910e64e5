"""Messages name options in the form of the face that prints them."""

from __future__ import annotations

import pytest

from partirvm.cli.options import as_flags


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("raise memory_limit or lower partition_size.", "raise --memory-limit or lower --partition-size."),
        (
            "with multi_class='ovr'; use fit_rows=\"sample\"",
            "with --multi-class ovr; use --likelihood sample",
        ),
        ("leave fit_intercept=False out, say allow_code=True", "leave --no-intercept out, say --allow-code"),
        ("no kernel is learned", "no kernel is learned"),
        ("the column 'memory_limit' of `max_rounds`", "the column 'memory_limit' of `max_rounds`"),
        (
            "data/max_rounds.csv and max_rounds.csv: there are none",
            "data/max_rounds.csv and max_rounds.csv: there are none",
        ),
        ("RVMRegressor(max_rounds=3) and model.max_rounds", "RVMRegressor(max_rounds=3) and model.max_rounds"),
    ],
)
def test_options_become_flags(message, expected):
    assert as_flags(message) == expected
