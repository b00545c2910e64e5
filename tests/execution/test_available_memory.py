"""The memory that a process may use is the lowest limit of its control groups."""

import psutil
import pytest

from partirvm.process import available_memory, peak_memory, resident_memory

GIB = 1 << 30
UNLIMITED = "9223372036854771712"  # what version 1 shows if there is no limit


def available(folder, cgroup, **limits):
    """Return the available memory with this /proc/self/cgroup and these limits by folder."""
    (folder / "proc" / "self").mkdir(parents=True)
    if cgroup is not None:
        (folder / "proc" / "self" / "cgroup").write_text(cgroup)
    for name, limit in limits.items():
        file = folder / "cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{limit}\n")
    return available_memory(folder / "proc", folder / "cgroup")


@pytest.mark.parametrize(
    ("cgroup", "limits", "gib"),
    [
        (None, {}, None),
        ("0::/\n", {"memory.max": "max"}, None),
        (None, {"memory.max": 3 * GIB}, 3),
        ("0::/slurm/job_1/step_0\n", {"slurm/job_1/memory.max": 4 * GIB, "slurm/job_1/step_0/memory.max": "max"}, 4),
        ("0::/slurm/job_1\n", {"memory.max": 9 * GIB,
         "slurm/memory.max": 5 * GIB, "slurm/job_1/memory.max": 6 * GIB}, 5),
        ("0::/slurm/job_1\n", {"slurm/job_2/memory.max": 2 * GIB}, None),
        ("0::/../../app.slice\n", {"app.slice/memory.max": 7 * GIB}, 7),
        ("0::/a:b\n", {"a:b/memory.max": 7 * GIB}, 7),
        (None, {"memory/memory.limit_in_bytes": 3 * GIB}, 3),
        ("11:cpu,cpuacct:/other\n4:memory:/slurm/uid_0/job_1\n1:name=systemd:/memory\n0::/\n",
         {"memory/memory.limit_in_bytes": UNLIMITED, "memory/slurm/uid_0/memory.limit_in_bytes": 6 * GIB,
          "memory/slurm/uid_0/job_1/memory.limit_in_bytes": UNLIMITED, "memory/other/memory.limit_in_bytes": GIB}, 6),
    ],
)  # fmt: skip
def test_the_lowest_limit_of_the_control_groups_applies(cgroup, limits, gib, tmp_path):
    """Without a limit it is the memory of the machine."""
    total = psutil.virtual_memory().total
    assert available(tmp_path, cgroup, **limits) == (
        total if gib is None else min(gib * GIB, total)
    )


def test_resident_memory_is_below_peak_and_limit():
    assert 0 < resident_memory() <= peak_memory()
    assert available_memory() >= resident_memory()
