"""The processes that run the tasks of a fit, and their memory."""

from dataclasses import dataclass

from partirvm.planning.memory import (
    ALLOWANCE,
)


@dataclass(frozen=True)
class Machine:
    """The processes that run tasks.

    Attributes:
        threads: the number of threads of a process.
        base: bytes that a process uses before the fit.
        limit: the memory limit of a process in bytes.
        workers: the number of processes.
        least_threads: a fit may use fewer threads if memory is short, but not fewer than these.
        libraries: the bytes of libraries that a comparison with boosted trees would load.
    """

    threads: int
    base: int
    limit: int
    workers: int = 1
    least_threads: int = 1
    libraries: int = 0

    @property
    def budget(self) -> int:
        """Bytes available to the fit in a process."""
        return self.limit - self.base - ALLOWANCE
