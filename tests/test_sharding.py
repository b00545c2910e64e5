"""Shards and tiers of the tests."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from sharding import UNKNOWN, longest_first, shards
from tiers import Guard

ROOT = Path(__file__).parents[1]

SECONDS = st.dictionaries(st.sampled_from("abcdefghijkl"), st.floats(0.1, 100), min_size=1)


@given(SECONDS, st.integers(1, 5))
def test_each_unit_is_in_one_shard_and_shards_take_similar_time(seconds, count):
    """The longest shard exceeds the mean by at most one unit (Graham 1969)."""
    parts = shards(seconds, seconds, count)
    assert Counter(unit for part in parts for unit in part) == Counter(list(seconds))
    loads = [sum(seconds[unit] for unit in part) for part in parts]
    assert max(loads) <= sum(loads) / count + max(seconds.values()) + 1e-9


def test_a_unit_without_measured_seconds_has_the_default():
    assert longest_first(["known", "new"], {"known": UNKNOWN - 1}) == ["new", "known"]


def test_the_nightly_workflow_runs_every_shard():
    workflow = ROOT / ".github/workflows/nightly.yml"
    if not workflow.exists():
        pytest.skip("the sdist holds no workflows")
    job = yaml.safe_load(workflow.read_text())["jobs"]["slow"]
    numbers = job["strategy"]["matrix"]["shard"]
    command = job["steps"][-1]["run"]
    count = int(re.search(r"shard \}\}/(\d+)$", command)[1])
    assert numbers == list(range(1, count + 1))


def test_a_unit_test_that_starts_a_process_fails(request):
    """The message names the fixture that makes it a system test."""
    with Guard().watching(request.node), pytest.raises(AssertionError, match="`processes`"):
        subprocess.run([sys.executable, "-c", ""], check=True)
