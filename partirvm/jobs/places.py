"""The request of a job and the places of its DATA, with checks that the DATA have not changed since the job began."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeAlias

from partirvm.data import ZarrSource
from partirvm.data.source import Fingerprint
from partirvm.errors import ChangedDataError, FormatError, MissingDataError, PartirvmWarning, UsageError
from partirvm.execution.tasks import package_versions
from partirvm.jobs.store import JobStore
from partirvm.kernels.functions import require_no_code
from partirvm.options import Request
from partirvm.quoting import listed
from partirvm.resolve.parameters import portable
from partirvm.storage.address import require_address, store_of

Place: TypeAlias = str | os.PathLike[str] | None
"""A path or URL, or None for the stored one."""

Places: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def sources(data: str, validation: str | None) -> tuple[ZarrSource, ZarrSource | None]:
    """Open DATA and held-out DATA. Raises as ``ZarrSource`` does, e.g. ``MissingDataError``."""
    return ZarrSource(data), None if validation is None else ZarrSource(validation)


def absolute(place: str) -> str:
    """Return an absolute path, which is valid in every working folder. A URL is returned unchanged."""
    return place if "://" in place else os.path.abspath(place)  # noqa: PTH100 - keeps symbolic links of the user


def moved(data: Place, validation: Place) -> dict[str, str]:
    """Return the given new places by name, without those that are None."""
    places = {"data": data, "validation": validation}
    return {name: absolute(os.fspath(place)) for name, place in places.items() if place is not None}


def require_shared(*places: str) -> None:
    """Raise ``UsageError`` for a place in the memory of this process, which a cluster cannot read."""
    for place in places:
        if place.startswith("memory:"):
            raise UsageError(f"{place}: a cluster cannot read the memory of one process: use a folder or a URL")


def specification(
    source: ZarrSource, held_out: ZarrSource | None, validation: str | None, parameters: Request
) -> dict[str, Any]:
    """Return the request of a job as JSON: places and fingerprints of the data, checked parameters, versions."""
    return {
        "data": absolute(source.url),
        "validation": None if validation is None else absolute(validation),
        "fingerprint": asdict(source.fingerprint()),
        "validation_fingerprint": None if held_out is None else asdict(held_out.fingerprint()),
        "parameters": portable(parameters),
        "tile_rows": source.tile_rows,
        "versions": package_versions(),
    }


def current_request(spec: dict[str, Any], state_changes: dict[str, Any]) -> Request:
    """Return the parameters of the spec with the changes made by resumes and updates."""
    asked = {**spec["parameters"], **state_changes}
    unknown = sorted(asked.keys() - {each.name for each in fields(Request)})
    if unknown:
        raise FormatError(
            f"the job asks for options that this version does not know: {listed(unknown)}: start it again"
        )
    return Request(**asked)


@dataclass(frozen=True)
class Allowed:
    """What the caller permits a job that somebody else may have made.

    ``code`` permits importing the functions that the job names. ``data`` are absolute addresses of DATA that may be
    read although they are in another store than the job.
    """

    code: bool = False
    data: tuple[str, ...] = ()

    @classmethod
    def of(cls, allow_code: bool, allow_data: Places, *moved: Place) -> Allowed:
        """Return the permissions of a call; the places ``moved`` that it gives are allowed too."""
        named = (allow_data,) if isinstance(allow_data, str | os.PathLike) else tuple(allow_data)
        places = [os.fspath(place) for place in (*named, *moved) if place is not None]
        return cls(allow_code, tuple(absolute(place).rstrip("/") for place in places))


NOTHING_ALLOWED = Allowed()


def require_allowed(store: JobStore, events: list[dict[str, Any]], allowed: Allowed) -> None:
    """Raise ``UsageError`` if a job names code, or DATA in another store than its own, that are not allowed."""
    spec = store.asked()
    for place in filter(None, places_of(events, spec)):
        require_address(place)
        if place.rstrip("/") in allowed.data or store_of(place) == store_of(store.location):
            continue
        raise UsageError(
            f"{store.location}: the job reads {place}, which is in another store than the job: if you trust whoever "
            f"made the job, pass --allow-data {place}, or allow_data={place!r}"
        )
    if not allowed.code:
        request = current_request(spec, changes(events))
        require_no_code((request.kernel, request.basis), store.location)


def changes(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the parameters changed by resumes and updates, with their last values."""
    return {key: value for event in events for key, value in event.get("changes", {}).items()}


def latest(events: list[dict[str, Any]], began: dict[str, Any]) -> dict[str, Any]:
    """Return the current fingerprint of the DATA: that of the last update, or ``began`` without an update."""
    return next((event["fingerprint"] for event in reversed(events) if "fingerprint" in event), began)


def places_of(events: list[dict[str, Any]], spec: dict[str, Any]) -> tuple[str, str | None]:
    """Return the last known places of DATA and held-out DATA, from resumes and updates or from the spec.

    Raises ``UsageError`` if held-out DATA were given to a job that began without held-out DATA.
    """

    def last(name: str) -> Any:
        return next((event[name] for event in reversed(events) if event.get(name)), spec[name])

    data, validation = last("data"), last("validation")
    if validation is not None and spec["validation"] is None:
        raise UsageError(f"{validation}: the job began without held-out DATA: omit --validation")
    return str(data), validation


def require_grown(source: ZarrSource, then: dict[str, Any]) -> dict[str, Any]:
    """Return the fingerprint of DATA that have grown since the fingerprint ``then``.

    Raises ``UsageError`` if there are no new rows, and ``ChangedDataError`` if the earlier rows have changed.
    """
    before = _fingerprint(then)
    if not source.has_grown(before):
        if source.fingerprint() == before:
            raise UsageError(
                f"{source.url} has no new rows since the last fit of the job: append rows first (`ingest --append`)"
            )
        raise ChangedDataError(
            f"the earlier rows of {source.url} have changed since the last fit of the job: start a new job, or restore "
            "the earlier rows"
        )
    return asdict(source.fingerprint())


def _fingerprint(found: dict[str, Any]) -> Fingerprint:
    """Return a fingerprint made from its JSON."""
    return Fingerprint(**{**found, "hashes": tuple(found["hashes"])})


def same_sources(events: list[dict[str, Any]], spec: dict[str, Any]) -> tuple[ZarrSource, ZarrSource | None]:
    """Open DATA and held-out DATA of a job.

    Raises ``MissingDataError`` if they are missing and ``ChangedDataError`` if they have changed.
    """
    data, _ = places_of(events, spec)
    appended = "; to use appended rows, run `partirvm update`"
    return _same(data, "--data", latest(events, spec["fingerprint"]), appended), same_held_out(events, spec)


def same_held_out(events: list[dict[str, Any]], spec: dict[str, Any]) -> ZarrSource | None:
    """Open the held-out DATA of a job, or return None if it has none. Raises as ``same_sources`` does."""
    _, validation = places_of(events, spec)
    return None if validation is None else _same(validation, "--validation", spec["validation_fingerprint"])


def _same(place: str, option: str, began: dict[str, Any], advice: str = "") -> ZarrSource:
    """Open the source at this place and check that it matches the fingerprint ``began``.

    ``option`` is the option of a resume that gives the place; error messages name it.
    """
    try:
        source = ZarrSource(place)
    except MissingDataError as error:
        raise MissingDataError(
            f"{str(error).rstrip('.')}; if the DATA were moved, give the new place with {option}"
        ) from error
    what = difference(source, began)
    if what is not None:
        raise ChangedDataError(
            f"{source.url} has changed since the job began ({what}): start a new job, restore the old data, or give "
            f"the place of the old data with {option}{advice}"
        )
    return source


def difference(source: ZarrSource, began: dict[str, Any]) -> str | None:
    """Return a text on the difference between data and the fingerprint ``began``, or None if they are equal."""
    then, now = _fingerprint(began), source.fingerprint()
    if now == then:
        return None
    shapes = [f"{each.n_rows:,} × {each.n_features}" for each in (then, now)]
    if shapes[0] != shapes[1]:
        return f"{shapes[0]} values at the start, {shapes[1]} now"
    tiles = [number for number, (one, two) in enumerate(zip(then.hashes, now.hashes, strict=False)) if one != two]
    if not tiles:
        return "its names, categories, classes, moments or tile size differ"
    return f"{len(tiles):,} of its {len(then.hashes):,} tiles have other values; the first is tile {tiles[0]:,}"


def compare_versions(began: dict[str, str]) -> None:
    """Warn if the versions of packages differ from those at the start of the job."""
    now = package_versions()
    other = [f"{name} {then}, now {now[name]}" for name, then in began.items() if now.get(name, then) != then]
    if other:
        warnings.warn(
            f"versions of packages have changed since the job began ({'; '.join(other)}): the last digits may differ "
            "from those of an uninterrupted fit",
            PartirvmWarning,
            stacklevel=2,
        )
