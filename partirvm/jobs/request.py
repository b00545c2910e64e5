"""The request of a job: queue it, and again for a resume or an update; check that its DATA have not changed meanwhile.

``create`` and ``requeue`` run on any machine that can read the job's folder; then ``jobs.attempt.run_job`` runs it.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

from partirvm.core.termination import Termination
from partirvm.data import ZarrSource
from partirvm.data.source import Fingerprint
from partirvm.errors import ChangedDataError, DoneError, FormatError, MissingDataError, PartirvmWarning, UsageError
from partirvm.execution.tasks import package_versions
from partirvm.jobs.checkpoint import resumes
from partirvm.jobs.run import is_growable
from partirvm.jobs.state import JobState, Status
from partirvm.jobs.store import JobStore
from partirvm.kernels.functions import require_no_code
from partirvm.options import Request
from partirvm.resolve.new_problem import check_request
from partirvm.resolve.resolve import LIMITS, check_parameters, portable
from partirvm.storage.address import require_address, store_of
from partirvm.strategies.rounds import IncrementalRounds
from partirvm.strategies.working_set import LEAST_GAIN

Place: TypeAlias = str | os.PathLike[str] | None
Places: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

ENDED_BY = {
    Termination.ROUNDS: "max_rounds",
    Termination.VECTORS: "max_vectors",
    Termination.EFFORT: "effort",
    Termination.TIME: "time_limit",
    Termination.MEMORY: "memory_limit",
}
"""Reasons of an end after which a finished job can be resumed, each with the option that caused the end."""


def absolute(place: str) -> str:
    """Return an absolute path, which is valid in every working folder. A URL is returned unchanged."""
    return place if "://" in place else os.path.abspath(place)  # noqa: PTH100 - keeps symbolic links of the user


@dataclass(frozen=True)
class Allowed:
    """What the caller permits a job: importing the functions it names (``code``), ``data`` in another store."""

    code: bool = False
    data: tuple[str, ...] = ()

    @classmethod
    def of(cls, allow_code: bool, allow_data: Places, *moved: Place) -> Allowed:
        """Return the permissions of a call; the places ``moved`` that it gives are allowed too."""
        named = (allow_data,) if isinstance(allow_data, str | os.PathLike) else tuple(allow_data)
        places = [os.fspath(place) for place in (*named, *moved) if place is not None]
        return cls(allow_code, tuple(absolute(place).rstrip("/") for place in places))


def require_allowed(location: str, state: JobState, allowed: Allowed) -> None:
    """Raise ``UsageError`` if a job names code, or DATA in another store than its own, that are not allowed."""
    for place in filter(None, (state.request["data"], state.request["validation"])):
        require_address(place)
        if place.rstrip("/") not in allowed.data and store_of(place) != store_of(location):
            raise UsageError(
                f"{location}: the job reads {place}, which is in another store than the job: if you trust whoever "
                f"made the job, pass --allow-data {place}, or allow_data={place!r}"
            )
    if not allowed.code:
        parameters = state.request["parameters"]
        require_no_code((parameters["kernel"], parameters["basis"]), location)


def parameters_of(state: JobState, **changed: Any) -> Request:
    """Return the parameters of a job with the changes made by resumes and updates, and further ones."""
    try:
        return Request(**{**state.request["parameters"], **changed})
    except TypeError as error:
        raise FormatError(f"the job asks for other options than this version: {error}: start it again") from error


def open_sources(data: str, validation: str | None) -> tuple[ZarrSource, ZarrSource | None]:
    """Open DATA and held-out DATA. Raises as ``ZarrSource`` does."""
    return ZarrSource(data), None if validation is None else ZarrSource(validation)


def open_held_out(request: dict[str, Any]) -> ZarrSource | None:
    """Open the held-out DATA of a job, or return None if it has none. Raises as ``open_unchanged`` does."""
    place, began = request["validation"], request["validation_fingerprint"]
    if place is not None and began is None:
        raise UsageError(f"{place}: the job began without held-out DATA: omit --validation")
    return None if place is None else open_unchanged(place, began, "--validation")


def open_unchanged(place: str, began: dict[str, Any], option: str = "--data") -> ZarrSource:
    """Open DATA of a job. Raises ``MissingDataError``, or ``ChangedDataError`` without the fingerprint ``began``."""
    try:
        source = ZarrSource(place)
    except MissingDataError as error:
        why = str(error).rstrip(".")
        raise MissingDataError(f"{why}; if the DATA were moved, give the new place with {option}") from error
    if what := difference(source, began):
        raise ChangedDataError(
            f"{source.url} has changed since the job began ({what}): start a new job, restore the old data, or give "
            f"the place of the old data with {option}; to use appended rows, run `partirvm update`"
        )
    return source


def difference(source: ZarrSource, began: dict[str, Any]) -> str:
    """Return a text on the difference between data and the fingerprint ``began``; empty if they are equal."""
    then, now = _fingerprint(began), source.fingerprint()
    shapes = [f"{each.n_rows:,} × {each.n_features}" for each in (then, now)]
    if shapes[0] != shapes[1]:
        return f"{shapes[0]} values at the start, {shapes[1]} now"
    tiles = [number for number, pair in enumerate(zip(then.hashes, now.hashes, strict=False)) if pair[0] != pair[1]]
    if tiles:
        return f"{len(tiles):,} of its {len(then.hashes):,} tiles have other values; the first is tile {tiles[0]:,}"
    return "" if now == then else "its names, categories, classes, moments or tile size differ"


def _fingerprint(found: dict[str, Any]) -> Fingerprint:
    return Fingerprint(**{**found, "hashes": tuple(found["hashes"])})


def compare_versions(began: dict[str, str]) -> None:
    """Warn if the versions of packages differ from those at the start of the job."""
    now = package_versions()
    if other := [f"{name} {then}, now {now[name]}" for name, then in began.items() if now.get(name, then) != then]:
        warnings.warn(
            f"versions of packages have changed since the job began ({'; '.join(other)}): the last digits may differ "
            "from those of an uninterrupted fit",
            PartirvmWarning,
            stacklevel=2,
        )


def create(
    data: str, job: str, parameters: Request, validation: str | None, overwrite: bool, cluster: str = ""
) -> JobState:
    """Create a queued job and return its state, after all checks that read no rows. Raises as ``fit`` does."""
    source, held_out = open_sources(data, validation)
    parameters = check_parameters(parameters)
    check_request(source, parameters, held_out)
    spec = {
        "data": absolute(source.url),
        "validation": None if held_out is None else absolute(held_out.url),
        "fingerprint": asdict(source.fingerprint()),
        "validation_fingerprint": None if held_out is None else asdict(held_out.fingerprint()),
        "parameters": portable(parameters),
        "versions": package_versions(),
        "cluster": cluster,
    }
    store = JobStore.create(job, spec, overwrite=overwrite)
    store.release()
    return store.folded()


def requeue(
    location: str, moved: dict[str, str], allowed: Allowed, grown: bool, changed: dict[str, Any], cluster: str = ""
) -> JobState:
    """Queue a job again, with new places of DATA that were ``moved``. Raises as ``Job.resume`` or ``Job.update``."""
    if other := sorted(changed.keys() - set(LIMITS)):
        raise UsageError(
            f"a resume cannot change {', '.join(other)}, only {', '.join(LIMITS)}: start a new job with these options"
        )
    changed = {key: value for key, value in changed.items() if value is not None}
    store = JobStore(location)
    with store.held():
        state = store.asked()
        state = replace(state, request={**state.request, **moved})
        require_allowed(location, state, allowed)
        if state.status is Status.CANCELLED:
            raise UsageError(f"{location} was cancelled and its model discarded: start a new job")
        open_held_out(state.request)
        event = _grown(store, state, allowed, changed) if grown else _resumed(location, state, changed)
        store.record({"event": "queued", **event, "cluster": cluster, **moved})
        return store.folded()


def _resumed(location: str, state: JobState, changed: dict[str, Any]) -> dict[str, Any]:
    """Return the event of a resume, or raise ``DoneError``."""
    before, after = parameters_of(state), check_parameters(parameters_of(state, **changed))
    if state.status is Status.DONE:
        reason = next((each for each in Termination if each.value == state.reason), None)
        if reason is None or reason not in ENDED_BY:
            advice = state.reason if reason is None else reason.advice
            raise DoneError(f"{location} is done, and a resume would change nothing: {advice}")
        option = ENDED_BY[reason]
        was, is_now = getattr(before, option), getattr(after, option)
        text = f"{location} is done; it reached {option} = {was}: resume with a larger {option}"
        if option == "effort":
            was, is_now = -LEAST_GAIN[was], -LEAST_GAIN[is_now]
        if option not in ("time_limit", "memory_limit") and is_now <= was:
            raise DoneError(text)
    open_unchanged(state.request["data"], state.request["fingerprint"])
    return {"reason": "resumed", "changes": {key: getattr(after, key) for key in changed}}


def _grown(store: JobStore, state: JobState, allowed: Allowed, changed: dict[str, Any]) -> dict[str, Any]:
    """Return the event of an update."""
    source, began = ZarrSource(state.request["data"]), state.request["fingerprint"]
    if not source.has_grown(_fingerprint(began)):
        since = "since the last fit of the job"
        if difference(source, began):
            raise ChangedDataError(
                f"the earlier rows of {source.url} have changed {since}: start a new job, or restore the earlier rows"
            )
        raise UsageError(f"{source.url} has no new rows {since}: append rows first (`ingest --append`)")
    last: Any = store.restore(lambda each: resumes(each, source.n_rows), allow_code=allowed.code)
    if last is None or last.state is None:
        why = "the job has finished no round"
    elif not is_growable(last.state):
        why = "split-merge ended before its last merge"
    elif not last.spec.problem.target_variance:
        why = "the target of the earlier rows is constant, so that the target of new rows cannot be scaled"
    else:  # as many rounds as the last update, or as the fit
        rounds = changed.get("max_rounds", state.request.get("rounds", state.request["parameters"].get("max_rounds")))
        changes: dict[str, Any] = {"max_rounds": None if rounds is None else last.state.round + rounds}
        if last.spec.in_order:
            changes["strategy"] = IncrementalRounds.name
        check_parameters(parameters_of(state, **changes))
        fingerprint = asdict(source.fingerprint())
        return {"reason": "updated", "changes": changes, "fingerprint": fingerprint, "rounds": rounds}
    raise UsageError(
        f"{store.location} cannot be updated: {why}; no fit is there that new rows could join: start a new job"
    )
