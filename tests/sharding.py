"""Units of tests for processes and shards, with the seconds that each took.

A unit is a file, or a folder whose tests share clusters, servers or undisturbed jobs. The seconds
are in ``seconds.json`` by tier; ``--record-seconds`` measures them anew. With them the longest
units run first, and ``--shard k/n`` takes the k-th of n parts that take about equal time.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

SHARED = ("tests/execution", "tests/faults", "tests/objects")
"""Folders that are each one unit: their tests share clusters, servers and undisturbed jobs."""

FILE = Path(__file__).with_name("seconds.json")

UNKNOWN = 10.0
"""Seconds of a unit that was not measured."""


def unit_of(nodeid: str) -> str:
    """Return the unit of a test.

    >>> unit_of("tests/faults/test_kills.py::test_kills"), unit_of("tests/cli/test_demo.py::test_it")
    ('tests/faults', 'tests/cli/test_demo.py')
    """
    for folder in SHARED:
        if nodeid.startswith(folder):
            return folder
    return nodeid.partition("::")[0]


def seconds_of_units(tier: str) -> dict[str, float]:
    """Return the measured seconds of each unit of a tier."""
    measured: dict[str, float] = json.loads(FILE.read_text()).get(tier, {})
    return measured


def longest_first(units: Iterable[str], seconds: Mapping[str, float]) -> list[str]:
    """Return the units from the longest to the shortest; equal ones by name.

    >>> longest_first(["a", "b", "c"], {"a": 1, "b": 20})
    ['b', 'c', 'a']
    """
    return sorted(set(units), key=lambda unit: (-seconds.get(unit, UNKNOWN), unit))


def shards(units: Iterable[str], seconds: Mapping[str, float], count: int) -> list[list[str]]:
    """Return the units in ``count`` parts: each unit, the longest first, joins the part that has
    the fewest seconds.

    >>> shards(["a", "b", "c", "d"], {"a": 5, "b": 4, "c": 3, "d": 2}, 2)
    [['a', 'd'], ['b', 'c']]
    """
    parts: list[list[str]] = [[] for _ in range(count)]
    loads = [0.0] * count
    for unit in longest_first(units, seconds):
        shortest = loads.index(min(loads))
        parts[shortest].append(unit)
        loads[shortest] += seconds.get(unit, UNKNOWN)
    return parts


def record(tier: str, seconds: Counter[str]) -> None:
    """Store the seconds of the units that ran, to a tenth; other units keep theirs."""
    measured = json.loads(FILE.read_text())
    units = {**measured.get(tier, {}), **{unit: round(spent, 1) for unit, spent in seconds.items()}}
    measured[tier] = dict(sorted(units.items()))
    FILE.write_text(json.dumps(measured, indent=1) + "\n")
