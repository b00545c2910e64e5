"""Seconds of classification fits with many classes and with many rows, on generated data.

    python -m benchmarks.classification.many [--rows N] [--output FOLDER]

Many classes: ``data.letters``, 4,000 rows × 16 features in 26 classes, merged into 2, 5 and 10 by
    remainders.
Many rows: N rows (500,000) of ten numbers and two one-hot categories of 4 and 40 levels, 54
    features in all, and seven
classes; log odds are linear and sine functions of the numbers plus effects of the levels. Each fit
uses default options in a process of its own with a memory limit of 1 GiB; accuracy and log loss are
those of as many other rows, at most 20,000.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.classification.data import Split, divided, letters
from benchmarks.measure import apart, command_line, say, write
from partirvm import RVMClassifier

COLUMNS = {
    "rows": ",", "features": "", "classes": "", "seconds": ".1f", "cpu_seconds": ".1f", "peak_mib": ".0f",
    "vectors": ",", "accuracy": ".4f", "log_loss": ".4f",
}  # fmt: skip


def merged(classes: int) -> Split:
    """Return the letters with this many labels."""
    split = letters("", 0)
    y = split.y % classes
    y_test = split.y_test % classes
    return Split(split.X, y, split.X_test, y_test, classes)


def table(rows: int) -> Split:
    """Return rows with numbers and categories, and 20,000 others."""
    n = rows + 20_000
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(n, 10))
    kind = rng.integers(4, size=n)
    place = rng.integers(40, size=n)
    X = np.hstack([numbers * rng.uniform(1, 500, 10), np.eye(4)[kind], np.eye(40)[place]])
    linear, wave, of_kind, of_place = (rng.normal(size=(k, 7)) for k in (10, 10, 4, 40))
    odds = numbers @ linear + np.sin(2 * numbers) @ wave + of_kind[kind] + of_place[place]
    y = (odds + rng.gumbel(size=odds.shape)).argmax(axis=1)
    return divided(X, y, np.arange(rows), np.arange(rows, n))


def fit(rows: int, classes: int) -> dict[str, Any]:
    """Fit in this process, to ``rows`` of the table if there are any."""
    split = table(rows) if rows else merged(classes)
    wall = time.perf_counter()
    cpu = time.process_time()
    model = RVMClassifier(random_state=0, memory_limit="1GiB").fit(split.X, split.y)
    seconds = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}
    p = model.predict_proba(split.X_test)
    return {
        **seconds,
        "rows": len(split.X),
        "features": split.X.shape[1],
        "classes": split.n_classes,
        "vectors": model.n_relevance_vectors_,
        "accuracy": float((p.argmax(axis=1) == split.y_test).mean()),
        "log_loss": float(-np.log(p[np.arange(len(p)), split.y_test]).mean()),
    }


def main(arguments: list[str] | None = None) -> None:
    """Run every fit; write the table."""
    parser = command_line(__doc__, data=False)
    parser.add_argument("--rows", type=int, default=500_000, metavar="N")
    options = parser.parse_args(arguments)
    rows = []
    for count, classes in [(0, 2), (0, 5), (0, 10), (0, 26), (options.rows, 7)]:
        rows.append(apart(fit, count, classes))
        say(f"{rows[-1]['rows']:,} rows, {classes} classes: {rows[-1]['seconds']:.1f} s")
    write(options.output, "many_classes", rows, COLUMNS)


if __name__ == "__main__":
    main()
