"""Ingest keeps to its memory limit: measured in a process, and computed from its budget."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from by_default import some
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng

from partirvm.data import ZarrSource, ingest
from partirvm.data.ingest_budget import (
    ALLOWANCE,
    BATCHES,
    LEAST_BATCH,
    LEAST_SORT,
    Budget,
    tile_bytes,
)
from partirvm.errors import MemoryLimitError

MiB = 1 << 20
BLOCK = 100_000
NAMES = [f"x{column}" for column in range(16)]

CODE = """
import sys
from partirvm.cli import main
status = main(sys.argv[1:])
peak = next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM'))
print(status, peak, 'pandas' in sys.modules)
"""


def tables(rows):
    """Yield rows of 16 features and a target, in tables of at most 100,000 rows."""
    rng = default_rng(0)
    for start in range(0, rows, BLOCK):
        columns = rng.standard_normal((17, min(BLOCK, rows - start)))
        yield pa.table(dict(zip([*NAMES, "y"], columns, strict=True)))


def one_group(path, rows):
    pq.write_table(pa.concat_tables(tables(rows)), path, row_group_size=rows)


def many_groups(path, rows):
    pq.write_table(pa.concat_tables(tables(rows)), path, row_group_size=7_000)


def csv(path, rows):
    pyarrow.csv.write_csv(pa.concat_tables(tables(rows)), path)


def ingested(source, data, limit):
    """Return status, VmHWM in MiB, whether pandas was imported, and stderr of a process that
    ingests."""
    arguments = [
        "ingest",
        source,
        data,
        "--memory-limit",
        f"{limit}MiB",
        "--target",
        "y",
        "--quiet",
    ]
    command = [sys.executable, "-c", CODE, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    status, kibibytes, pandas = done.stdout.splitlines()[-1].split()
    return int(status), int(kibibytes) >> 10, pandas == "True", done.stderr


def digest(data):
    return str(ZarrSource(data).fingerprint())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("write", "ending"),
    some(
        [(one_group, "parquet"), (many_groups, "parquet"), (csv, "csv")], [(one_group, "parquet")]
    ),
)
def test_an_ingest_keeps_to_its_memory_limit(write, ending, tmp_path):
    """The table has 400,000 × 17 numbers, 52 MiB; the bytes of DATA do not depend on the limit."""
    source = tmp_path / f"t.{ending}"
    write(source, 400_000)
    limits = (192, 512) if write is many_groups else (192,)
    for limit in limits:
        status, peak, pandas, stderr = ingested(source, tmp_path / f"{limit}.zarr", limit)
        assert status == 0, stderr
        assert peak <= limit
        assert not pandas, "46 MiB"
    assert len({digest(tmp_path / f"{limit}.zarr") for limit in limits}) == 1


@pytest.mark.slow
def test_a_memory_limit_that_is_too_low_is_refused(tmp_path):
    """The message gives the need, the limit and the options to change; nothing is written."""
    one_group(tmp_path / "t.parquet", 30_000)
    status, _, _, stderr = ingested(tmp_path / "t.parquet", tmp_path / "d.zarr", 96)
    assert status == 2
    assert "t.parquet: ingesting 17 columns needs" in stderr
    assert "the memory limit is 96 MiB: raise --memory-limit, or use fewer columns" in stderr
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


def test_a_batch_beyond_the_memory_limit_ends_the_ingest(tmp_path):
    """An example is a batch of huge Parquet pages, whose size the metadata do not give."""
    used = [0, 513 * MiB]
    budget = Budget(512 * MiB, used=lambda: used.pop(0))
    with pytest.raises(MemoryLimitError, match="exceeded memory_limit"):
        ingest((np.eye(5), np.ones(5)), tmp_path / "d.zarr", memory_limit=budget)
    assert not (tmp_path / "d.zarr").exists()


@given(
    limit=st.integers(1, 4096), base=st.integers(0, 1024), held=st.integers(0, 1024), width=st.integers(3, 5000),
    tile_rows=st.sampled_from([1, 64, 2048, 8192, 16384]), most=st.sampled_from([4 * MiB, 64 * MiB]),
)  # fmt: skip
def test_an_accepted_budget_fits_the_limit(limit, base, held, width, tile_rows, most):
    """This follows from the formulas for reading and writing; a limit is refused only if the
    minimum does not fit."""
    budget = Budget(limit * MiB, used=lambda: base * MiB)
    reader = SimpleNamespace(name="t", most_batch=most)
    least = max(LEAST_BATCH, 64 * 8 * width)
    free = (limit - base) * MiB - ALLOWANCE
    fits = (
        free >= held * MiB + BATCHES * least
        and free >= tile_bytes(width, tile_rows) + 2 * LEAST_SORT
    )
    try:
        batch = budget.batch_bytes(reader, width, tile_rows, held=held * MiB)
    except MemoryLimitError:
        assert not fits
        return
    assert fits
    assert least <= batch <= max(most, least)
    assert held * MiB + BATCHES * batch <= free
    assert tile_bytes(width, tile_rows) + 2 * budget.sort_bytes(width, tile_rows) <= free
