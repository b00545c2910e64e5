"""The addresses that partirvm opens, and the translation of store errors into partirvm errors.

fsspec imports a class for each protocol; some of these run templates, combine other addresses or connect to any host,
and an address may come from somebody else's file. So every address is checked before fsspec or Zarr opens it: protocols
beyond ``PROTOCOLS`` only if the user names them, chains never. Endpoints and credentials are set in fsspec.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias, cast

from partirvm.errors import FormatError, MissingDataError, PartirvmError, StorageError, UsageError

PROTOCOLS = ("file", "s3", "gs", "gcs", "az", "abfs", "memory")
"""The protocols that are allowed by default."""

Where: TypeAlias = str | os.PathLike[str]
"""A path or an fsspec URL."""

QUERIES = ("http", "https")
"""The protocols whose addresses may have a query, and name a single file rather than a folder."""

allowed = set(PROTOCOLS)
"""The protocols allowed in this process."""

CLIENTS = {"aiobotocore", "aiohttp", "azure", "botocore", "google", "gcsfs"}
"""Packages with their own error classes, which fsspec does not convert."""


def allow_protocols(*names: str) -> None:
    """Allow this process to open URLs with further fsspec protocols, such as ``https``.

    By default, partirvm opens paths and ``file``, ``s3``, ``gs``, ``gcs``, ``az``, ``abfs`` and ``memory`` URLs. Jobs
    that this process starts on a cluster may open the same URLs. The command line has ``--allow-protocol``.

    Examples
    --------
    >>> from partirvm import allow_protocols
    >>> allow_protocols("https")  # ingest("https://…/trips.parquet", …) now reads this URL
    """
    allowed.update(names)


def absolute(place: Where) -> str:
    """Return an absolute path, which is valid in any working directory. URLs are returned unchanged."""
    place = os.fspath(place)
    return place if "://" in place else os.path.abspath(place)  # noqa: PTH100 - keeps the user's symbolic links


def protocol_of(place: str) -> str:
    """Return an address's protocol as fsspec parses it: ``file`` for a path. Raises ``UsageError`` for a chain."""
    if "::" in place:
        raise UsageError(f"{place}: chained addresses ('::') are not opened: pass a single path or URL")
    if place.startswith("data:") and "://" not in place:
        return "data"
    protocol, found, _ = place.partition("://")
    return protocol if found else "file"


def without_query(place: str) -> str:
    """Return an address without its query and fragment. In a path or a glob, ``?`` and ``#`` are part of the name.

    >>> without_query("https://host/a.csv?version=2"), without_query("s3://bucket/20?6.csv")
    ('https://host/a.csv', 's3://bucket/20?6.csv')
    """
    return re.split("[?#]", place, maxsplit=1)[0] if place.partition("://")[0] in QUERIES else place


def require_address(place: str) -> None:
    """Raise ``UsageError`` unless this process may open the address."""
    protocol = protocol_of(place)
    if protocol not in allowed:
        raise UsageError(
            f"{place}: addresses of the protocol {protocol!r} are not opened, only {', '.join(PROTOCOLS)}: if you "
            f"trust this address, pass --allow-protocol {protocol}, or call allow_protocols({protocol!r})"
        )


def store_of(place: str) -> tuple[str, str]:
    """Return the protocol and the host or bucket of an address; all paths on this machine are one store.

    >>> store_of("s3://bucket/jobs/1"), store_of("gcs://b/x"), store_of("/data/d.zarr")
    (('s3', 'bucket'), ('gs', 'b'), ('file', ''))
    """
    protocol = protocol_of(place)
    host = "" if protocol in ("file", "memory") else place.partition("://")[2].partition("/")[0]
    return {"gcs": "gs", "abfs": "az"}.get(protocol, protocol), host


def open_filesystem(url: Where) -> tuple[Any, str]:
    """Return a file system and a path in it. ``UsageError`` if not allowed, ``StorageError`` if unreachable."""
    import fsspec

    url = os.fspath(url)
    require_address(url)
    try:
        with reading(url):
            return cast(tuple[Any, str], fsspec.core.url_to_fs(url))
    except FormatError as error:  # an unknown protocol, or a protocol whose package is missing
        raise UsageError(f"{url}: cannot open this address ({error.__cause__})") from error


@contextmanager
def reading(place: str, advice: str = "is the address right?", broken: type[Exception] = FormatError) -> Iterator[None]:
    """Convert store or decoder errors to partirvm errors that name the place.

    A missing file raises ``MissingDataError``; an ``OSError`` with an error number, a time-out or a store client's
    error raises ``StorageError``; any other error means that the file is damaged, and raises ``broken``.
    """
    try:
        yield
    except (PartirvmError, MemoryError):
        raise
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MissingDataError(f"{place} is missing ({error.strerror or error}): {advice}") from error
    except Exception as error:
        if (isinstance(error, OSError) and error.errno) or _is_of_client(error):
            raise StorageError(f"{place}: cannot be read: {_reason(error)}: {advice}") from error
        # the text of a KeyError is only the key
        text = str(error) if " " in str(error) else f"{type(error).__name__} {error}".rstrip()
        raise broken(f"{place}: cannot be read ({text}): {advice}") from error


@contextmanager
def storing(place: str, advice: str = "make room or choose another place") -> Iterator[None]:
    """Convert errors of a full, read-only, forbidden or unreachable store to a ``StorageError`` naming the place."""
    try:
        yield
    except PartirvmError:  # some are also an OSError or a TimeoutError
        raise
    except Exception as error:
        if not isinstance(error, OSError) and not _is_of_client(error):
            raise
        raise StorageError(f"{place}: cannot be written: {_reason(error)}: {advice}") from error


def _is_of_client(error: Exception) -> bool:
    """Return True for time-outs, broken connections and errors from store client packages."""
    packages = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    return isinstance(error, TimeoutError | ConnectionError) or bool(packages & CLIENTS)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
