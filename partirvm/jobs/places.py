"""Where the data of a job are, what it was asked, and whether both are what they were when it began."""

from __future__ import annotations

import os
import warnings
from dataclasses import asdict
from typing import Any

from partirvm.backends.tasks import package_versions
from partirvm.data import ZarrSource
from partirvm.data.appending import has_grown
from partirvm.data.source import Fingerprint
from partirvm.errors import ChangedDataError, MissingDataError, PartirvmWarning, UsageError
from partirvm.jobs.store import JobStore
from partirvm.kernels.functions import require_no_code
from partirvm.options import Request
from partirvm.setup.parameters import portable


def sources(data: str, validation: str | None) -> tuple[ZarrSource, ZarrSource | None]:
    """DATA and held-out DATA, opened. Raises ``MissingDataError`` and the like."""
    return ZarrSource(data), None if validation is None else ZarrSource(validation)


def absolute(place: str) -> str:
    """A path that means the same in every folder and process; URLs stay as they are."""
    return place if "://" in place else os.path.abspath(place)  # noqa: PTH100 - follows no links, as the user wrote it


def specification(
    source: ZarrSource, held_out: ZarrSource | None, validation: str | None, parameters: Request
) -> dict[str, Any]:
    """What a job is asked: where the data are and how they look, checked parameters, versions."""
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
    """The parameters of the spec, with what was changed by those who resumed the job."""
    return Request(**{**spec["parameters"], **state_changes})


def require_allowed(store: JobStore, allow_code: bool) -> None:
    """Raise ``UsageError`` where a job names a function as its kernel or basis, and code is not allowed."""
    if not allow_code:
        asked = current_request(store.spec(), changes(store.events()))
        require_no_code((asked.kernel, asked.basis), store.location)


def changes(events: list[dict[str, Any]]) -> dict[str, Any]:
    """What resumes have changed so far."""
    return {key: value for event in events for key, value in event.get("changes", {}).items()}


def latest(events: list[dict[str, Any]], began: dict[str, Any]) -> dict[str, Any]:
    """The fingerprint of the DATA that the job is at work on: that of the last update, or the one it began with."""
    return next((event["fingerprint"] for event in reversed(events) if "fingerprint" in event), began)


def places_of(events: list[dict[str, Any]], spec: dict[str, Any]) -> tuple[str, str | None]:
    """Where DATA and held-out DATA of a job are: as a resume or an update said last, or where they were when it began.

    Raises ``UsageError`` where held-out DATA were given to a job that began without.
    """

    def last(name: str) -> Any:
        return next((event[name] for event in reversed(events) if event.get(name)), spec[name])

    data, validation = last("data"), last("validation")
    if validation is not None and spec["validation"] is None:
        raise UsageError(f"{validation}: the job began without held-out DATA, go on without --validation")
    return str(data), validation


def require_grown(source: ZarrSource, then: dict[str, Any]) -> dict[str, Any]:
    """The fingerprint of DATA that are those of this earlier one with more rows. Raises ``ChangedDataError``."""
    before = _fingerprint(then)
    if not has_grown(source, before):
        if source.fingerprint() == before:
            raise UsageError(f"{source.url} has no new rows since the job saw it: append some (`ingest --append`)")
        raise ChangedDataError(
            f"{source.url} is not what it was when the job saw it, with more rows after it: start a new job, or bring "
            "the old data back"
        )
    return asdict(source.fingerprint())


def _fingerprint(found: dict[str, Any]) -> Fingerprint:
    """A fingerprint from its JSON."""
    return Fingerprint(**{**found, "hashes": tuple(found["hashes"])})


def same_sources(events: list[dict[str, Any]], spec: dict[str, Any]) -> tuple[ZarrSource, ZarrSource | None]:
    """DATA and held-out DATA of a job, opened. Raises ``MissingDataError``, and ``ChangedDataError`` for others."""
    data, _ = places_of(events, spec)
    appended = "; with rows that were appended `partirvm update` goes on"
    return _same(data, "--data", latest(events, spec["fingerprint"]), appended), same_held_out(events, spec)


def same_held_out(events: list[dict[str, Any]], spec: dict[str, Any]) -> ZarrSource | None:
    """Held-out DATA of a job, opened, None if it has none. Raises as ``same_sources`` does."""
    _, validation = places_of(events, spec)
    return None if validation is None else _same(validation, "--validation", spec["validation_fingerprint"])


def _same(place: str, option: str, began: dict[str, Any], advice: str = "") -> ZarrSource:
    """The source at this place, which ``option`` of a resume gives, checked to be that of the job's start."""
    try:
        source = ZarrSource(place)
    except MissingDataError as error:
        raise MissingDataError(f"{error}; if they were moved, give their new place with {option}") from error
    what = difference(source, began)
    if what is not None:
        raise ChangedDataError(
            f"{source.url} has changed since the job began ({what}): start a new job, restore the old data, or "
            f"give their place with {option}{advice}"
        )
    return source


def difference(source: ZarrSource, began: dict[str, Any]) -> str | None:
    """How data differ from the fingerprint in a job's specification, as a text; None if they do not."""
    then, now = _fingerprint(began), source.fingerprint()
    if now == then:
        return None
    shapes = [f"{each.n_rows:,} × {each.n_features}" for each in (then, now)]
    if shapes[0] != shapes[1]:
        return f"{shapes[0]} values at the start, {shapes[1]} now"
    tiles = [number for number, (one, two) in enumerate(zip(then.hashes, now.hashes, strict=False)) if one != two]
    if not tiles:
        return "its names, categories, classes, moments or tile size differ"
    return f"{len(tiles):,} of its {len(then.hashes):,} tiles have other values, the first is tile {tiles[0]:,}"


def compare_versions(began: dict[str, str]) -> None:
    now = package_versions()
    other = [f"{name} {then}, now {now[name]}" for name, then in began.items() if now.get(name, then) != then]
    if other:
        warnings.warn(
            f"versions of packages have changed since the job began ({'; '.join(other)}): the last digits may differ "
            "from those of an uninterrupted fit",
            PartirvmWarning,
            stacklevel=2,
        )
