"""Error messages for a failed connection to a Dask scheduler: no scheduler, or certificates that do not match."""

from __future__ import annotations

CONFIGURE = "name the tls.yaml of a client's certificates in DASK_CONFIG"


def refusal(address: str, error: Exception) -> str:
    """Return the message for an error of ``distributed.Client(address)``.

    >>> refusal("10.0.0.5:8786", OSError("timed out"))[:60]
    "no Dask scheduler responds at '10.0.0.5:8786' (timed out): s"
    >>> refusal("tls://10.0.0.5:8786", TypeError("TLS expects a `ssl_context` argument"))[:60]
    "no client certificate for the Dask scheduler at 'tls://10.0."
    """
    if isinstance(error, TypeError):
        return f"no client certificate for the Dask scheduler at {address!r}: {CONFIGURE}"
    if isinstance(error, RuntimeError):
        return f"cannot connect to a Dask scheduler at {address!r}: {error}; give its tls:// address"
    if isinstance(error, FileNotFoundError | PermissionError):
        return f"cannot read the certificates that Dask's configuration names ({error}): {CONFIGURE}"
    said = f"{error} {error.__cause__ or ''}".rstrip()  # some errors of ssl are only in the text
    if "SSL" in said:
        return (
            f"the Dask scheduler at {address!r} and this process do not accept each other's certificates ({said}): "
            f"{CONFIGURE}, made together with the scheduler's; a scheduler without TLS has a tcp:// address"
        )
    if "(closed)" in said:
        return (
            f"the Dask scheduler at {address!r} closed the connection ({error}): if it uses TLS, give its tls:// "
            f"address, and {CONFIGURE}"
        )
    return (
        f"no Dask scheduler responds at {address!r} ({error}): start one with `dask scheduler`, and give the address "
        "that it prints, such as tcp://10.0.0.5:8786"
    )
