"""Bytes and durations as people write them."""

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
def test_units_of_bytes(number, unit, space, lower):
    """Binary units, a single letter is binary too, and kB MB GB TB are decimal."""
    power = "KMGT".index(unit[0]) + 1
    text = f"{number}{space}{unit}"
    assert parse_bytes(text.lower() if lower else text) == number * 1024**power
    assert parse_bytes(f"{number}{unit[0]}") == number * 1024**power
    assert parse_bytes(f"{number}{unit[0]}B") == number * 1000**power


@given(st.floats(1e-3, 1e7))
def test_durations(seconds):
    """Numbers, suffixes, and the texts that people read."""
    assert parse_duration(seconds) == pytest.approx(seconds, rel=1e-12)
    for suffix, factor in [("s", 1), ("m", 60), ("min", 60), ("h", 3600), ("d", 86400)]:
        assert parse_duration(f"{seconds!r}{suffix}") == pytest.approx(seconds * factor, rel=1e-12)


@pytest.mark.parametrize("parse", [parse_bytes, parse_duration])
@pytest.mark.parametrize(
    "text", ["", "much", "-1", "0", "1 parsec", "1 2", "nan", "inf", None, "1h30"]
)
def test_what_is_no_quantity(parse, text):
    """UsageError that names the option, the text and an example."""
    with pytest.raises(UsageError, match=r"limit .*expected a (size|duration) such as"):
        parse(text)
