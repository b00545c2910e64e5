"""Results published by Ben-Shimon & Shmilovici (2006): means ± standard deviations over random
splits.

*Accelerating the relevance vector machine via data partitioning*. The seconds were measured on the
authors' machines, so only ratios within a row are comparable. Each value in a row has the form
(mean, standard deviation); values are in the order of ``STRATEGIES`` in Tables 2–4, and of its last
three in Tables 7–9.
"""

from __future__ import annotations

from typing import TypeAlias

Value: TypeAlias = tuple[float, float]
"""Mean and standard deviation."""

STRATEGIES = ("basic", "split-merge", "incremental", "working-set")
"""The columns of Tables 2–4, in the order of the paper. Tables 7–9 have the last three."""

PARTITION_SIZE = 50
"""The partition size P of Tables 2–4."""

PARTITION_SIZES = (25, 50, 100, 200, 400, 800)
"""The partition sizes P of Table 6, in addition to the heuristic's P."""

ERRORS: dict[str, tuple[Value, ...]] = {
    "boston": ((3.8, 0.9), (4.2, 1.0), (4.0, 1.0), (3.9, 0.9)),
    "sinc": ((0.01, 0.003), (0.034, 0.002), (0.01, 0.002), (0.001, 0.002)),
    "friedman_1": ((0.56, 0.02), (0.69, 0.06), (1.0, 0.01), (0.60, 0.02)),
    "abalone": ((2.1, 0.1), (2.1, 0.1), (2.1, 0.1), (2.1, 0.1)),
    "pumadyn_8fh": ((3.16, 0.04), (3.16, 0.04), (3.16, 0.04)),
    "pumadyn_8fm": ((1.05, 0.012), (1.05, 0.011), (1.05, 0.012)),
    "pumadyn_8nh": ((3.27, 0.06), (3.28, 0.06), (3.28, 0.06)),
    "pumadyn_8nm": ((1.06, 0.02), (1.08, 0.02), (1.06, 0.02)),
    "pumadyn_32fh": ((0.02, 2e-4), (0.02, 2e-4), (0.02, 2e-4)),
    "pumadyn_32fm": ((0.005, 8e-5), (0.005, 9e-5), (0.005, 1e-4)),
    "pumadyn_32nh": ((0.033, 4e-4), (0.033, 4e-4), (0.033, 4e-4)),
    "pumadyn_32nm": ((0.027, 3e-4), (0.027, 3e-4), (0.027, 3e-4)),
}
"""Tables 2 and 7: RMSE."""

VECTORS: dict[str, tuple[Value, ...]] = {
    "boston": ((53.6, 3.2), (41.3, 4.0), (45.7, 3.6), (43.4, 3.2)),
    "sinc": ((7.8, 1.6), (7.4, 0.7), (7.6, 0.9), (7.7, 0.7)),
    "friedman_1": ((172.8, 7.7), (149.5, 7.2), (149.4, 3.5), (150.7, 6.0)),
    "abalone": ((24.6, 2.0), (21.7, 2.4), (23.2, 1.0), (22.1, 1.6)),
    "pumadyn_8fh": ((37.7, 1.8), (37.7, 2.8), (37.4, 2.8)),
    "pumadyn_8fm": ((69.1, 3.03), (69.7, 2.4), (70.2, 4.2)),
    "pumadyn_8nh": ((134.7, 4.6), (137.9, 4.6), (145.1, 5.0)),
    "pumadyn_8nm": ((86.8, 3.3), (83.0, 2.6), (81.8, 3.1)),
    "pumadyn_32fh": ((66.9, 5.3), (78.5, 5.6), (79.8, 4.8)),
    "pumadyn_32fm": ((117.6, 17.0), (169.3, 22.2), (203.0, 22.7)),
    "pumadyn_32nh": ((11.3, 4.1), (9.4, 2.9), (9.1, 1.4)),
    "pumadyn_32nm": ((42.8, 2.8), (62.2, 9.0), (64.4, 8.0)),
}
"""Tables 3 and 8: numbers of relevance vectors."""

SECONDS: dict[str, tuple[Value, ...]] = {
    "boston": ((4.12, 1.8), (3.8, 1.2), (2.9, 1.3), (2.6, 1.4)),
    "sinc": ((11.12, 1.1), (1.7, 0.2), (2.1, 0.3), (2.4, 1.5)),
    "friedman_1": ((193.7, 31.6), (140.6, 20.1), (534.2, 86.7), (551.7, 1.0)),
    "abalone": ((412.7, 18.5), (34.1, 2.8), (19.7, 1.1), (20.6, 1.6)),
    "pumadyn_8fh": ((33.2, 2.6), (20.1, 4.6), (24.3, 4.6)),
    "pumadyn_8fm": ((82.1, 9.5), (33.8, 1.7), (34.1, 1.1)),
    "pumadyn_8nh": ((278.4, 31.2), (212.7, 44.5), (239.8, 15.5)),
    "pumadyn_8nm": ((153.3, 12.5), (47.1, 5.2), (46.2, 4.3)),
    "pumadyn_32fh": ((18.4, 0.6), (17.4, 0.7), (18.6, 1.0)),
    "pumadyn_32fm": ((21.5, 0.6), (29.1, 0.4), (29.4, 1.1)),
    "pumadyn_32nh": ((11.2, 0.4), (16.4, 0.4), (16.9, 0.6)),
    "pumadyn_32nm": ((13.3, 0.4), (15.8, 0.5), (16.8, 0.6)),
}
"""Tables 4 and 9: seconds, which the tables call time."""

TABLE_6 = {"pumadyn_8fh": 45, "pumadyn_8nm": 134, "pumadyn_32fh": 89, "pumadyn_32nm": 89}
"""The heuristic's P of each set in Table 6."""


def _value(table: dict[str, tuple[Value, ...]], name: str, strategy: str) -> Value | None:
    """Return the value of a set and a strategy; None if the paper has none."""
    row = table.get(name, ())
    columns = STRATEGIES[len(STRATEGIES) - len(row) :]
    return row[columns.index(strategy)] if strategy in columns else None


def rmse(name: str, strategy: str) -> Value | None:
    """Return the paper's RMSE of a set and a strategy."""
    return _value(ERRORS, name, strategy)


def vectors(name: str, strategy: str) -> Value | None:
    """Return the paper's number of vectors of a set and a strategy."""
    return _value(VECTORS, name, strategy)


def seconds(name: str, strategy: str) -> Value | None:
    """Return the paper's seconds of a set and a strategy, on the authors' machine."""
    return _value(SECONDS, name, strategy)
