"""Peak memory compared with the plan's prediction, for all statistics, strategies and solvers, with
small limits.

    python -m benchmarks.memory_limits [--only TEXT] [--seconds 120] [--folder FOLDER] [--output
    FOLDER]

Data are generated and ingested once. Each setting runs in a separate process, which is stopped
after ``--seconds``. Each row of the table has a memory limit, a predicted peak, a measured peak,
and the ratio of the two peaks. The plan predicts the peak as the sum of the process, the allowance
and the formulas of ``planning.memory``. The operating system reports the measured peak (VmHWM). The
ratio should be between 0.5 and 1.0, and no peak should exceed its limit. The memory of a prediction
is compared with the plan of its fit, which ran earlier in another process. The memory of an
augmented prediction, which holds as many rows as a fit, is compared with the limit.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import apart, command_line, say, within, write

COLUMNS = {
    "setting": "", "data": "", "limit_mib": ".0f", "planned_mib": ".0f", "peak_mib": ".0f", "ratio": ".2f",
    "vectors": "", "wall_seconds": ".1f", "note": "",
}  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """A fit of DATA with options and a memory limit (MiB).

    ``then`` is a following action on its job, in another process.
    """

    name: str
    data: str
    limit: int
    options: dict[str, Any] = field(default_factory=dict)
    held_out: bool = False
    then: str = ""


def regression(
    n: int, d: int, noise: float = 0.1, targets: int = 1
) -> Callable[[], tuple[Any, Any]]:
    """Return a generator of a regression: a smooth function of the first two of d inputs, with
    noise.

    Several targets have different phases.
    """

    def rows() -> tuple[Any, Any]:
        rng = np.random.default_rng(7)
        X = rng.uniform(-1, 1, size=(n, d))
        waves = np.column_stack(
            [np.sin(6 * X[:, 0] + k) + X[:, 1] * X[:, 0] for k in range(targets)]
        )
        y = waves + noise * rng.standard_normal(waves.shape)
        return X, y if targets > 1 else y[:, 0]

    return rows


def classification(n: int, d: int, classes: int) -> Callable[[], tuple[Any, Any]]:
    """Return a generator of a classification; the classes are intervals of a noisy wave."""

    def rows() -> tuple[Any, Any]:
        X, y = regression(n, d, 0.2)()
        return X, np.searchsorted(np.quantile(y, np.arange(1, classes) / classes), y).astype(str)

    return rows


DATA: dict[str, Callable[[], tuple[Any, Any]]] = {
    "80,000 × 4": regression(80_000, 4),
    "8,000 × 4": regression(8_000, 4),
    "20,000 × 500": regression(20_000, 500),
    "2,000 × 500": regression(2_000, 500),
    "1,200 × 3, hardly noisy": regression(1_200, 3, 0.001),
    "1,200 × 3": regression(1_200, 3),
    "400 × 3": regression(400, 3),
    "20,000 × 6, 30 targets": regression(20_000, 6, targets=30),
    "600 × 6, 30 targets": regression(600, 6, targets=30),
    "30,000 × 4, 2 classes": classification(30_000, 4, 2),
    "6,000 × 8, 50 classes": classification(6_000, 8, 50),
    "600 × 4, 2 classes": classification(600, 4, 2),
}

MANY = "80,000 × 4"
SOME = "8,000 × 4"
LEAST = "400 × 3"
WIDE = "20,000 × 500"
FEW = "1,200 × 3, hardly noisy"
LESS = "1,200 × 3"
TARGETS = "20,000 × 6, 30 targets"
FEW_TARGETS = "600 × 6, 30 targets"
TWO = "30,000 × 4, 2 classes"
FIFTY = "6,000 × 8, 50 classes"
FEW_OF_TWO = "600 × 4, 2 classes"


def rounds(partition: int, number: int, gamma: Any = 2.0, **options: Any) -> dict[str, Any]:
    """Return the options of ``number`` rounds with ``partition`` candidates each."""
    return {"partition_size": partition, "max_rounds": number, "gamma": gamma, **options}


SETTINGS = (
    Setting("working set", MANY, 192, rounds(200, 4)),
    Setting("working set, nearly all columns kept", MANY, 256, rounds(300, 4, 300.0)),
    Setting("wide P", MANY, 512, rounds(1500, 1, 300.0)),
    Setting("candidates by gain", MANY, 256, rounds(200, 3, selection="gain")),
    Setting("candidates at random, held-out rows", MANY, 256, rounds(300, 3, 100.0, selection="random"), held_out=True),
    Setting("partition size measured", MANY, 256, {"gamma": 2.0, "max_rounds": 2}),
    Setting("kernel learned", SOME, 256, rounds(100, 1, "learn")),
    Setting("incremental, a sample", SOME, 256, rounds(400, 6, 30.0, strategy="incremental", fit_rows="sample")),
    Setting("incremental, all rows", SOME, 256, rounds(300, 4, 30.0, strategy="incremental", fit_rows="full")),
    Setting("split-merge, all rows", LESS, 384,
            {"gamma": 30.0, "partition_size": 300, "strategy": "split-merge"}),
    Setting("basic, auto, all columns kept", FEW, 320, {"gamma": 3000.0, "strategy": "basic"}),
    Setting("basic, fast, all columns kept", FEW, 320, {"gamma": 3000.0, "strategy": "basic", "solver": "fast"}),
    Setting("basic, fixed point, all kept", FEW, 320,
            {"gamma": 3000.0, "strategy": "basic", "solver": "fixed-point"}),
    Setting("basic, auto, few kept", FEW, 320, {"gamma": 2.0, "strategy": "basic"}),
    Setting("basic, several widths", LEAST, 384,
            {"gamma": 2.0, "strategy": "basic", "gamma_multiples": (1.0, 8.0, 64.0)}),
    Setting("basic, prior of α, EM", LEAST, 256,
            {"gamma": 30.0, "strategy": "basic", "alpha_prior": (1e-3, 1e-3)}),
    Setting("500 features", WIDE, 256, rounds(200, 2, 0.002)),
    Setting("500 features, learned", "2,000 × 500", 320, rounds(100, 1, "learn")),
    Setting("500 features, linear basis beside", WIDE, 320, rounds(200, 2, 0.002, basis="linear")),
    Setting("500 features, no kernel", WIDE, 256, {"kernel": None, "basis": "linear"}),
    Setting("several widths", MANY, 256, rounds(450, 3, gamma_multiples=(1.0, 8.0, 64.0))),
    Setting("30 targets", TARGETS, 384, rounds(120, 2)),
    Setting("30 targets, held-out rows", TARGETS, 512, rounds(100, 2, selection="random"), held_out=True),
    Setting("30 targets, basic", FEW_TARGETS, 1536, {"gamma": 20.0, "strategy": "basic"}),
    Setting("2 classes", TWO, 256, rounds(250, 2, kernel_store="none")),
    Setting("2 classes, blocks in memory", TWO, 256, rounds(100, 2, kernel_store="memory")),
    Setting("2 classes, blocks in Zarr", TWO, 256, rounds(100, 2, kernel_store="zarr")),
    Setting("2 classes, basic", FEW_OF_TWO, 256, {"gamma": 20.0, "strategy": "basic"}),
    Setting("2 classes, incremental", TWO, 256, rounds(200, 3, strategy="incremental", fit_rows="sample")),
    Setting("2 classes, split-merge", FEW_OF_TWO, 256,
            {"gamma": 2.0, "partition_size": 150, "strategy": "split-merge"}),
    Setting("50 classes", FIFTY, 512, rounds(50, 1)),
    Setting("50 classes, one softmax", FIFTY, 512, rounds(50, 1, likelihood="multinomial")),
    Setting("regression, blocks in memory", MANY, 256, rounds(100, 3, kernel_store="memory")),
    Setting("regression, blocks in Zarr", MANY, 256, rounds(100, 3, kernel_store="zarr")),
    Setting("predict with intervals", MANY, 192, rounds(300, 2, 30.0), then="interval"),
    Setting("predict, augmented", MANY, 192, rounds(300, 2, 30.0), then="augment"),
    Setting("evaluate", MANY, 192, rounds(300, 2, 30.0), then="evaluate"),
)  # fmt: skip


def make(folder: str, name: str) -> dict[str, Any]:
    """Ingest the data of a name, and a smaller set of held-out rows."""
    from partirvm import ingest

    X, y = DATA[name]()
    place = Path(folder, name)
    classes = y.dtype.kind == "U"
    ingest((X, y), place / "train.zarr", classes=classes)
    ingest((X[: min(len(X), 4000)], y[:4000]), place / "other.zarr", like=str(place / "train.zarr"))
    return {}


def fit(folder: str, setting: Setting, job: str) -> dict[str, Any]:
    """Run a fit as a job in this process, and return the plan's predictions."""
    from partirvm import jobs
    from partirvm.options import Request

    warnings.simplefilter("ignore")
    place = Path(folder, setting.data)
    parameters = Request(memory_limit=setting.limit << 20, **setting.options)
    held_out = str(place / "other.zarr") if setting.held_out else None
    done = jobs.fit(str(place / "train.zarr"), job, parameters, validation=held_out)
    assert done.plan is not None
    return {
        "planned_mib": done.plan.peak / 2**20,
        "formula_mib": done.plan.bytes.peak / 2**20,
        "vectors": done.model.n_vectors if done.model else None,
    }


def after(folder: str, setting: Setting, job: str) -> dict[str, Any]:
    """Predict or evaluate in this process."""
    from partirvm import predict

    warnings.simplefilter("ignore")
    place = Path(folder, setting.data)
    train = str(place / "train.zarr")
    other = str(place / "other.zarr")
    output = f"{job}-{setting.then}.parquet"
    if setting.then == "evaluate":
        predict.evaluate(job, train)
    elif setting.then == "augment":
        predict.predict(job, other, output, augment=train)
    else:
        predict.predict(job, train, output, interval=0.95)
    return {}


def measured(folder: str, setting: Setting, seconds: float) -> dict[str, Any]:
    """Run a setting, and return its table row."""
    job = str(Path(folder, "job-" + "".join(c if c.isalnum() else "-" for c in setting.name)))
    about = {"setting": setting.name, "data": setting.data, "limit_mib": setting.limit}
    try:
        found = within(seconds, fit, folder, setting, job)
        if setting.then:
            found |= within(seconds, after, folder, setting, job)
        if setting.then == "augment":
            found["planned_mib"] = float(setting.limit)
    except (TimeoutError, ChildProcessError) as error:
        return {**about, "note": str(error)}
    ratio = found["peak_mib"] / found["planned_mib"]
    note = (
        "above its limit"
        if found["peak_mib"] > setting.limit
        else ""
        if 0.5 <= ratio <= 1
        else "off"
    )
    return {**about, **found, "ratio": ratio, "note": note}


def main() -> None:
    """Ingest the data, run the fits, and write the table."""
    parser = command_line(__doc__, data=False)
    parser.add_argument(
        "--only", default="", help="run only settings whose name or data contain this text"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=120.0,
        help="maximum seconds of each process (default: 120)",
    )
    parser.add_argument(
        "--folder",
        help="folder for about 300 MB of temporary files (default: the system's temporary folder)",
    )
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="partirvm-benchmark-", dir=options.folder) as folder:
        for setting in SETTINGS:
            if options.only not in f"{setting.name}; {setting.data}":
                continue
            if not Path(folder, setting.data).exists():
                apart(make, folder, setting.data)
            rows.append(measured(folder, setting, options.seconds))
            say("  ".join(format(rows[-1].get(key) or "", spec if rows[-1].get(key) else "")
                          for key, spec in COLUMNS.items()))  # fmt: skip
    write(options.output, "memory_limits", rows, COLUMNS)


if __name__ == "__main__":
    main()
