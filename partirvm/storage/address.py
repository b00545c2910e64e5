"""The addresses that partirvm opens: paths, and URLs of the protocols in ``PROTOCOLS``.

fsspec imports a class for each protocol, and some of these classes run templates, join other addresses, or connect to
any host. An address may come from the file of somebody else. So every address is checked here before fsspec or Zarr
opens it. Other protocols are opened only if the user names them. Chains of addresses (``zip://a::s3://b``) are never
opened.
"""

from __future__ import annotations

from typing import Any

from partirvm.errors import UsageError

PROTOCOLS = ("file", "s3", "gs", "gcs", "az", "abfs", "memory")
"""The protocols that are opened without a question."""

_SAME = {"gcs": "gs", "abfs": "az"}
"""Protocols with two names."""

_allowed = set(PROTOCOLS)


def allow_protocols(*names: str) -> None:
    """Allow this process to open URLs of further protocols of fsspec, such as ``https``.

    By default partirvm opens paths and URLs of ``file``, ``s3``, ``gs``, ``gcs``, ``az``, ``abfs`` and ``memory``. The
    jobs that this process starts on a cluster are allowed the same protocols. The command line has the option
    ``--allow-protocol``.

    Examples
    --------
    >>> from partirvm import allow_protocols
    >>> allow_protocols("https")  # ingest("https://…/trips.parquet", …) now reads this URL
    """
    _allowed.update(names)


def allowed_protocols() -> tuple[str, ...]:
    """Return the protocols that this process may open."""
    return tuple(sorted(_allowed))


def protocol_of(place: str) -> str:
    """Return the protocol of an address as fsspec reads it: ``file`` for a path. Raises ``UsageError`` for a chain."""
    if "::" in place:
        raise UsageError(f"{place}: an address with '::' is not opened: give one path or URL, without a chain")
    if place.startswith("data:") and "://" not in place:
        return "data"
    protocol, found, _ = place.partition("://")
    return protocol if found else "file"


def require_address(place: str, storage_options: dict[str, Any] | None = None) -> None:
    """Raise ``UsageError`` unless this process may open the address. ``storage_options`` are those of fsspec."""
    for protocol in (protocol_of(place), (storage_options or {}).get("protocol", "file")):
        if protocol not in _allowed:
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
    if protocol in ("file", "memory"):
        return protocol, ""
    return _SAME.get(protocol, protocol), place.partition("://")[2].partition("/")[0]
