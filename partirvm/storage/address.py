"""The addresses that partirvm opens, and the translation of store errors into partirvm errors.

fsspec imports a class for each protocol; some protocols run templates, combine other addresses or
connect to any host, and an address may come from someone else's file. So every address is checked
before fsspec or Zarr opens it: protocols beyond ``PROTOCOLS`` are allowed only if the user names
them, and chains never. Endpoints and credentials are set in fsspec, in the environment or in files.
Credentials in an address are separated from it at once (``address``): this process uses them, but
nothing stores or shows them.
"""

import os
import re
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias, cast
from urllib.parse import unquote

from partirvm.errors import FormatError, MissingDataError, PartirvmError, StorageError, UsageError
from partirvm.quoting import LOGIN, without_credentials

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

    By default, partirvm opens paths and ``file``, ``s3``, ``gs``, ``gcs``, ``az``, ``abfs`` and
    ``memory`` URLs. Jobs that this process starts on a cluster may open the same URLs. The command
    line has ``--allow-protocol``.

    Examples
    --------
    >>> from partirvm import allow_protocols
    >>> allow_protocols("https")  # ingest("https://…/trips.parquet", …) now reads this URL
    """
    allowed.update(names)


_logins: dict[tuple[str, str], tuple[str, str]] = {}
"""User names and passwords from the addresses given to this process, by store; they are never
stored."""

ACCESS = (
    "401",
    "403",
    "Forbidden",
    "Unauthorized",
    "credentials",
    "AccessDenied",
    "InvalidAccessKeyId",
    "Signature",
)
"""Texts in errors from stores that refuse access."""

HINT = (
    "; credentials in an address are used only by the process that is given it, and are never "
    "stored: set them in the environment (such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY) "
    "or in a file (such as ~/.aws/credentials or ~/.config/fsspec/conf.json)"
)
"""Advice for a refused access."""


def address(place: Where) -> str:
    """Return an address without user name and password, which this process keeps in memory for
    opening the store."""
    place = os.fspath(place)
    login = LOGIN.match(place)
    if login is None:
        return place
    clean = LOGIN.sub(r"\g<scheme>\g<other>", place, count=1)
    name, _, password = (login["login"] or login["pair"] or "").partition(":")
    _logins[store_of(clean)] = unquote(name), unquote(password)
    return clean


def options_of(place: str) -> dict[str, Any]:
    """Return the fsspec options of an address: any credentials for its store from an earlier
    address."""
    protocol = protocol_of(place)
    options: dict[str, Any] = {"encoded": True} if protocol in QUERIES and "%" in place else {}
    name, password = _logins.get(store_of(place), ("", ""))
    if not name:
        return options
    if protocol in QUERIES:
        login = b64encode(f"{name}:{password}".encode()).decode()
        return {**options, "headers": {"Authorization": f"Basic {login}"}}
    if protocol == "s3":
        return {"key": name, "secret": password}
    return {} if protocol in PROTOCOLS else {"username": name, "password": password}


def absolute(place: Where) -> str:
    """Return an absolute path, which is valid in any working directory, or a URL without
    credentials."""
    place = address(place)
    return place if "://" in place else os.path.abspath(place)  # noqa: PTH100 - keeps the user's symbolic links


def protocol_of(place: str) -> str:
    """Return an address's protocol as fsspec parses it: ``file`` for a path. Raises ``UsageError``
    for a chain."""
    if "::" in place:
        raise UsageError(
            f"{place}: chained addresses ('::') are not opened: pass a single path or URL"
        )
    if place.startswith("data:") and "://" not in place:
        return "data"
    protocol, separator, _ = place.partition("://")
    return protocol if separator else "file"


def without_query(place: str) -> str:
    """Return an address without its query and fragment. In a path or a glob, ``?`` and ``#`` are
    part of the name.

    >>> without_query("https://host/a.csv?version=2"), without_query("s3://bucket/20?6.csv")
    ('https://host/a.csv', 's3://bucket/20?6.csv')
    """
    return re.split("[?#]", place, maxsplit=1)[0] if place.partition("://")[0] in QUERIES else place


def require_address(place: str) -> None:
    """Raise ``UsageError`` unless this process may open the address."""
    protocol = protocol_of(place)
    if protocol not in allowed:
        raise UsageError(
            f"{place}: addresses of the protocol {protocol!r} are not opened, only "
            f"{', '.join(PROTOCOLS)}: if you trust this address, pass --allow-protocol "
            f"{protocol}, or call allow_protocols({protocol!r})"
        )


def store_of(place: str) -> tuple[str, str]:
    """Return the protocol and the host or bucket of an address; all paths on this machine are one
    store.

    >>> store_of("s3://bucket/jobs/1"), store_of("gcs://b/x"), store_of("/data/d.zarr")
    (('s3', 'bucket'), ('gs', 'b'), ('file', ''))
    """
    protocol = protocol_of(place)
    host = "" if protocol in ("file", "memory") else place.partition("://")[2].partition("/")[0]
    return {"gcs": "gs", "abfs": "az"}.get(protocol, protocol), host


def open_filesystem(url: Where) -> tuple[Any, str]:
    """Return a file system and a path in it. Raises ``UsageError`` if it is not allowed,
    ``StorageError`` if it is unreachable."""
    import fsspec

    url = address(url)
    require_address(url)
    try:
        with reading(url):
            return cast(tuple[Any, str], fsspec.core.url_to_fs(url, **options_of(url)))
    except FormatError as error:  # an unknown protocol, or a protocol whose package is missing
        raise UsageError(f"{url}: cannot open this address ({error.__cause__})") from error


@contextmanager
def reading(
    place: str, advice: str = "is the address right?", broken: type[Exception] = FormatError
) -> Iterator[None]:
    """Convert store or decoder errors to partirvm errors that name the place.

    A missing file raises ``MissingDataError``; an ``OSError`` with an error number, a time-out or a
    store client's error raises ``StorageError``; any other error means that the file is damaged,
    and raises ``broken``.
    """
    try:
        yield
    except (PartirvmError, MemoryError):
        raise
    except (FileNotFoundError, NotADirectoryError) as error:
        refusal = error.__cause__  # fsspec reports every HTTP status as a missing file
        if isinstance(refusal, Exception) and getattr(refusal, "status", 404) != 404:
            raise StorageError(
                f"{place}: cannot be read: {_reason(refusal)}: {advice}"
            ) from _shown(error)
        raise MissingDataError(
            f"{place} is missing ({error.strerror or error}): {advice}"
        ) from _shown(error)
    except Exception as error:
        if (isinstance(error, OSError) and error.errno) or _is_of_client(error):
            raise StorageError(f"{place}: cannot be read: {_reason(error)}: {advice}") from _shown(
                error
            )
        # the text of a KeyError is only the key
        text = str(error) if " " in str(error) else f"{type(error).__name__} {error}".rstrip()
        raise broken(f"{place}: cannot be read ({text}): {advice}") from _shown(error)


@contextmanager
def storing(place: str, advice: str = "make room or choose another place") -> Iterator[None]:
    """Convert errors of a full, read-only, forbidden or unreachable store to a ``StorageError``
    that names the place."""
    try:
        yield
    except PartirvmError:  # some of them are also an OSError or a TimeoutError
        raise
    except Exception as error:
        if not isinstance(error, OSError) and not _is_of_client(error):
            raise
        raise StorageError(f"{place}: cannot be written: {_reason(error)}: {advice}") from _shown(
            error
        )


def _is_of_client(error: Exception) -> bool:
    """Return True for time-outs, broken connections and errors from store client packages."""
    packages = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    return isinstance(error, TimeoutError | ConnectionError) or bool(packages & CLIENTS)


def _reason(error: Exception) -> str:
    text: str = getattr(error, "strerror", None) or str(error) or type(error).__name__
    remote = _is_of_client(error) or "://" in str(error) or not getattr(error, "filename", None)
    refused = isinstance(error, PermissionError) or any(mark in str(error) for mark in ACCESS)
    return text + HINT if remote and refused else text


def _shown(error: Exception) -> Exception | None:
    """Return an error as the cause of another one, or None if a traceback would show credentials in
    its text."""
    cause: BaseException | None = error
    while cause is not None:
        if without_credentials(str(cause)) != str(cause):
            return None
        cause = cause.__cause__ or cause.__context__
    return error
