"""The addresses that partirvm opens, and translation of their stores' errors into those of partirvm.

fsspec imports a class for each protocol; some run templates, join other addresses, or connect to any host, and an
address may come from somebody's file. So every address is checked before fsspec or Zarr opens it: protocols other than
``PROTOCOLS`` only if the user names them, chains never. fsspec's configuration has endpoints and credentials.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias, cast

from partirvm.errors import FormatError, MissingDataError, PartirvmError, StorageError, UsageError

PROTOCOLS = ("file", "s3", "gs", "gcs", "az", "abfs", "memory")
"""The protocols that are opened without a question."""

Where: TypeAlias = str | os.PathLike[str]
"""A path, or a URL of fsspec."""

allowed = set(PROTOCOLS)
"""The protocols that this process may open."""

CLIENTS = {"aiobotocore", "aiohttp", "azure", "botocore", "google", "gcsfs"}
"""Packages with error classes of their own that fsspec does not convert."""


def allow_protocols(*names: str) -> None:
    """Allow this process to open URLs of further protocols of fsspec, such as ``https``.

    By default partirvm opens paths and URLs of ``file``, ``s3``, ``gs``, ``gcs``, ``az``, ``abfs`` and ``memory``. Jobs
    that this process starts on a cluster may open the same. The command line has ``--allow-protocol``.

    Examples
    --------
    >>> from partirvm import allow_protocols
    >>> allow_protocols("https")  # ingest("https://…/trips.parquet", …) now reads this URL
    """
    allowed.update(names)


def absolute(place: Where) -> str:
    """Return an absolute path, which is valid in every working folder. A URL is returned unchanged."""
    place = os.fspath(place)
    return place if "://" in place else os.path.abspath(place)  # noqa: PTH100 - keeps symbolic links of the user


def protocol_of(place: str) -> str:
    """Return the protocol of an address as fsspec reads it: ``file`` for a path. Raises ``UsageError`` for a chain."""
    if "::" in place:
        raise UsageError(f"{place}: chained addresses ('::') are not opened: pass a single path or URL")
    if place.startswith("data:") and "://" not in place:
        return "data"
    protocol, found, _ = place.partition("://")
    return protocol if found else "file"


def require_address(place: str) -> None:
    """Raise ``UsageError`` unless this process may open the address."""
    protocol = protocol_of(place)
    if protocol not in allowed:
        raise UsageError(
            f"{place}: addresses of the protocol {protocol!r} are not opened, only {', '.join(PROTOCOLS)}: if you "
            f"trust this address, pass --allow-protocol {protocol}, or call allow_protocols({protocol!r})"
        )


def store_of(place: str) -> tuple[str, str]:
    """Return the protocol and the host or bucket of an address; all paths of this machine are one store.

    >>> store_of("s3://bucket/jobs/1"), store_of("gcs://b/x"), store_of("/data/d.zarr")
    (('s3', 'bucket'), ('gs', 'b'), ('file', ''))
    """
    protocol = protocol_of(place)
    host = "" if protocol in ("file", "memory") else place.partition("://")[2].partition("/")[0]
    return {"gcs": "gs", "abfs": "az"}.get(protocol, protocol), host


def open_filesystem(url: Where) -> tuple[Any, str]:
    """Return file system and path inside. ``UsageError``: not allowed or unknown, ``StorageError``: silent store."""
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
    """Convert errors of a store or of a decoder to errors of partirvm that name the place.

    A missing file raises ``MissingDataError``; an ``OSError`` with a number, a time-out or an error of a store's client
    ``StorageError``; any other error, ``broken``: the bytes differ from the written ones.
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
    """Convert errors of a full, read-only, forbidden or silent store to a ``StorageError`` that names the place."""
    try:
        yield
    except PartirvmError:  # some are an OSError or a TimeoutError, too
        raise
    except Exception as error:
        if not isinstance(error, OSError) and not _is_of_client(error):
            raise
        raise StorageError(f"{place}: cannot be written: {_reason(error)}: {advice}") from error


def _is_of_client(error: Exception) -> bool:
    """Return True for a time-out, a broken connection, and errors of the packages that talk to stores."""
    packages = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    return isinstance(error, TimeoutError | ConnectionError) or bool(packages & CLIENTS)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
