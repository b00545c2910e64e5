"""The exceptions and warnings of partirvm: one tree, each class also a builtin.

Every message names the thing, the place, what was found and what to do. ``except PartirvmError`` catches all of them;
``except ValueError`` (or the builtin at hand) catches what a scikit-learn or NumPy user would expect it to.
"""

from __future__ import annotations

from partirvm.quoting import message_text


class PartirvmError(Exception):
    """Base of every error that partirvm raises on purpose. The command line turns it into exit status 2 (or 4)."""

    def __str__(self) -> str:
        """The message, safe to print on a terminal: it may quote data."""
        return message_text(super().__str__())

    def __reduce__(self) -> tuple[type[PartirvmError], tuple[object, ...]]:
        """Pickle as class and message: the way a cluster sends errors fails for those of several builtin parents."""
        return type(self), self.args


class UsageError(PartirvmError, ValueError):
    """An option, an argument or a combination of them that cannot be meant: unknown kernel, non-positive gamma."""


class DoneError(UsageError):
    """There is nothing left to do: the command line says so, and exits 0."""


class DataError(PartirvmError, ValueError):
    """The data cannot be used: NaN, text columns, no rows, a wrong number of features."""


class DataTypeError(DataError, TypeError):
    """The data are of a type that cannot be used: a sparse matrix, objects that are no numbers."""


class MissingDataError(DataError, FileNotFoundError):
    """A file, an array or a Zarr chunk that should be there is not, or cannot be decoded."""


class ChangedDataError(DataError):
    """The data are not the ones that the model or job was made from."""


class FormatError(PartirvmError, ValueError):
    """A file of partirvm's own that this version cannot read, for instance one of a newer format."""


class CutShortError(FormatError):
    """A file of partirvm's own that ends in its middle, as a killed writer leaves it where nothing can be linked."""


class NewerFormatError(FormatError):
    """A file of a newer version of partirvm: nothing is wrong with it, this version cannot read it."""


class MemoryLimitError(PartirvmError, MemoryError):
    """The work cannot fit under the memory limit; the message says what it needs, what it has and what to change."""


class ExistsError(PartirvmError, FileExistsError):
    """The output is there already, and was not asked to be replaced."""


class StorageError(PartirvmError, OSError):
    """A store that is full, read-only, out of reach or otherwise refuses to be written or read."""


class LeaseError(PartirvmError, RuntimeError):
    """Another process is at work on the job: one at a time."""


class LeaseLostError(LeaseError):
    """Another process took the job over while this one was silent; what this one goes on to write does not count."""


class TransitionError(FormatError):
    """A job's events tell of something that cannot happen, such as a round after the end."""


class NumericalError(PartirvmError, ArithmeticError):
    """A factorisation failed for every jitter tried: the numbers given are not finite or wildly scaled."""


class ClusterError(PartirvmError, RuntimeError):
    """The Dask cluster cannot do the work: packages differ, the scheduler is gone, tasks keep failing."""


class NoWorkersError(ClusterError, TimeoutError):
    """No worker joined the cluster within the time-out."""


class JobFailedError(PartirvmError, RuntimeError):
    """The job started and failed for a reason that is not the user's input: exit status 4."""


class PartirvmWarning(UserWarning):
    """Base of every warning of partirvm: the fit is correct, something about it deserves a look."""

    def __str__(self) -> str:
        """The message, safe to print on a terminal: it may quote data."""
        return message_text(super().__str__())


class DataWarning(PartirvmWarning):
    """Something about the data: duplicate rows, a constant feature, a constant target, a far extrapolation."""


class NoiseFloorWarning(PartirvmWarning):
    """The estimated noise reached its floor: the data look noise-free, or the model interpolates them."""


class OverconfidenceWarning(PartirvmWarning):
    """Rows that the fit had not seen would lie far outside what it states: its noise was raised to their errors."""


class LimitWarning(PartirvmWarning):
    """The fit ended at a limit (rounds, vectors, seconds, memory) before it converged."""
