"""partirvm's exceptions and warnings: one hierarchy, with a builtin base for each class.

Every message states what was found, where, and what to do. ``except PartirvmError`` catches all of
them; ``except ValueError`` (or the builtin base class) catches the errors that a scikit-learn or
NumPy user would expect.
"""

import re
import sys
import warnings

from partirvm.quoting import message_text, without_credentials

BETWEEN = ("partirvm", "sklearn", "joblib")
"""Packages that are skipped so that a warning points to the line of user code that called them."""

_warned: set[tuple[type[Warning], str, str, int]] = set()


def _shown(error: Exception) -> str:
    """Return the message, one line per argument, safe to print on a terminal even if it quotes
    data."""
    return "\n".join(message_text(str(line)) for line in error.args)


def _cleaned(line: object) -> object:
    """Return a message line without credentials, which ``repr`` and logs of the arguments would
    otherwise reveal."""
    return without_credentials(line) if isinstance(line, str) else line


class PartirvmError(Exception):
    """Base class of all errors that partirvm raises deliberately. The command line maps it to exit
    status 2 (or 4)."""

    __str__ = _shown

    def __init__(self, *lines: object) -> None:
        super().__init__(*map(_cleaned, lines))

    def __reduce__(self) -> tuple[type["PartirvmError"], tuple[object, ...]]:
        """Pickle as class and message: the default fails for exceptions with several builtin base
        classes."""
        return type(self), self.args


class UsageError(PartirvmError, ValueError):
    """An invalid option, argument or combination of them, such as an unknown kernel or a
    non-positive gamma."""


class DoneError(UsageError):
    """Nothing is left to do: the command line prints the message and exits with status 0."""


class DataError(PartirvmError, ValueError):
    """The data cannot be used: NaN, text columns, no rows, or the wrong number of features."""


class DataTypeError(DataError, TypeError):
    """The data have an unsupported type, such as objects that are not numbers."""


class MissingDataError(DataError, FileNotFoundError):
    """A file, an array or a Zarr chunk is missing or cannot be decoded."""


class ChangedDataError(DataError):
    """The data differ from the data from which the model or job was made."""


class FormatError(PartirvmError, ValueError):
    """This version cannot read a partirvm file, for example because its format is newer."""


class MemoryLimitError(PartirvmError, MemoryError):
    """The work does not fit in the memory limit; the message states the required memory, the
    available memory and what to change."""


class ExistsError(PartirvmError, FileExistsError):
    """The output already exists, and overwriting was not requested."""


class StorageError(PartirvmError, OSError):
    """A store is full, read-only or unreachable, or refuses reads or writes for another reason."""


class LeaseError(PartirvmError, RuntimeError):
    """Another process is running the job; only one can do so at a time."""


class LeaseLostError(LeaseError):
    """Another process took over the job while this one was unresponsive; later writes by this one
    are ignored."""


class NumericalError(PartirvmError, ArithmeticError):
    """A factorisation failed for every jitter tried: the matrix is not finite or very badly
    scaled."""


class ClusterError(PartirvmError, RuntimeError):
    """The Dask cluster cannot do the work: packages differ, the scheduler is gone, or tasks keep
    failing."""


class NoWorkersError(ClusterError, TimeoutError):
    """No worker joined the cluster before the timeout."""


class JobFailedError(PartirvmError, RuntimeError):
    """The job started and failed for a reason other than the user's input: exit status 4."""


class PartirvmWarning(UserWarning):
    """Base class of all partirvm warnings: the fit is correct, but something should be checked."""

    __str__ = _shown

    def __init__(self, *lines: object) -> None:
        super().__init__(*map(_cleaned, lines))


class DataWarning(PartirvmWarning):
    """The data look unusual: a constant feature, a constant target, or rows far from every
    relevance vector."""


class UnseenLevelWarning(DataWarning):
    """Rows have a label of a category that the training rows do not have: it counts as a missing
    label."""


class NoiseFloorWarning(PartirvmWarning):
    """The estimated noise reached its floor: the data look noise-free, or the model interpolates
    them."""


class OverconfidenceWarning(PartirvmWarning):
    """Leave-one-out errors are much larger than the predicted standard deviations: the noise was
    raised to match."""


class AccuracyWarning(PartirvmWarning):
    """Boosted trees or an earlier round of the fit predict better than the model."""


class VersionWarning(PartirvmWarning):
    """A job or model was made with different package versions: results are correct, but their last
    bits may differ."""


class LimitWarning(PartirvmWarning):
    """The fit ended at a limit (rounds, vectors, seconds, memory) before it converged."""


def warn(message: str, category: type[Warning]) -> None:
    """Issue a warning that points to the user's line, the first one outside ``BETWEEN``.

    A scikit-learn search fits many times and resets Python's registry of shown warnings before each
    fit. For calls from scikit-learn, warnings that differ only in numbers are therefore issued once
    per user line and process.
    """
    frame = sys._getframe(1)
    level = 2
    searched = False
    while (
        frame.f_back
        and (package := frame.f_globals.get("__name__", "").partition(".")[0]) in BETWEEN
    ):
        frame = frame.f_back
        level = level + 1
        searched = searched or package == "sklearn"
    key = category, re.sub(r"\d[\d,.]*", "", message), frame.f_code.co_filename, frame.f_lineno
    if not (searched and key in _warned):
        warnings.warn(message, category, level)
    _warned.add(key)
