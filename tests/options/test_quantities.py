"""Bytes and durations in human-readable form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partirvm.errors import UsageError
from partirvm.options.constraints import parse_bytes, parse_duration


@given(
    st.integers(1, 999),
    st.sampled_from(["KiB", "MiB", "GiB", "TiB"]),
    st.sampled_from(["", " "]),
    st.booleans(),
)
def test_bytes_are_read_with_units(number, unit, space, lower):
    """A single letter is a binary unit; kB, MB, GB and TB are decimal."""
    power = "KMGT".index(unit[0]) + 1
    text = f"{number}{space}{unit}"
    assert parse_bytes(text.lower() if lower else text) == number * 1024**power
    assert parse_bytes(f"{number}{unit[0]}") == number * 1024**power
    assert parse_bytes(f"{number}{unit[0]}B") == number * 1000**power


@given(st.floats(1e-3, 1e7))
def test_durations_are_read_with_suffixes(seconds):
    assert parse_duration(seconds) == pytest.approx(seconds, rel=1e-12)
    for suffix, factor in [("s", 1), ("m", 60), ("min", 60), ("h", 3600), ("d", 86400)]:
        assert parse_duration(f"{seconds!r}{suffix}") == pytest.approx(seconds * factor, rel=1e-12)


@pytest.mark.parametrize("parse", [parse_bytes, parse_duration])
@pytest.mark.parametrize(
    "text", ["", "much", "-1", "0", "1 parsec", "1 2", "nan", "inf", None, "1h30"]
)
def test_texts_that_are_not_a_quantity_are_refused(parse, text):
    """The error gives the option, the text and an example."""
    with pytest.raises(UsageError, match=r"limit .*expected a (size|duration) such as"):
        parse(text)
