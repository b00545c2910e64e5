"""Job requests: queue a job, also for a resume or an update, and check that its DATA have not
changed since then.

``create`` and ``requeue`` run on any machine that can read the job folder; then
``jobs.attempt.run_job`` runs it.
"""

import os
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from partirvm.core.termination import Termination
from partirvm.data import ZarrSource
from partirvm.errors import ChangedDataError, DoneError, MissingDataError, UsageError
from partirvm.execution.cluster import address_of
from partirvm.fit.run import is_growable
from partirvm.jobs.checkpoint import resumes
from partirvm.jobs.state import JobState, Status
from partirvm.jobs.store import JobStore
from partirvm.kernels.functions import require_no_code
from partirvm.options import Request
from partirvm.process import package_versions, warn_of_versions
from partirvm.resolve.kernel import portable
from partirvm.resolve.new_problem import check_request
from partirvm.resolve.resolve import LIMITS, check_parameters
from partirvm.spec.problem import LEAST_GAIN
from partirvm.storage.address import Where, absolute, reading, require_address, store_of
from partirvm.strategies.rounds import IncrementalRounds

Json: TypeAlias = dict[str, Any]
Place: TypeAlias = Where | None
Places: TypeAlias = Where | Sequence[Where]

BEYOND_VALIDATION = "resumed beyond validation"
"""Reason of an attempt that goes on although the error on the validation data stopped falling."""


def request_of(asked: Any, client: Any) -> tuple[Request, Any]:
    """Return an estimator's request (or the given request), and the estimator's client unless
    ``client`` is given."""
    return (
        (asked, client)
        if isinstance(asked, Request)
        else (asked.parameters(), client or asked.client)
    )


def require_places(location: str, places: Iterable[str | None], allow_data: Places) -> None:
    """Raise ``UsageError`` if a dataset is outside the job's store and not in ``allow_data``."""
    named = (allow_data,) if isinstance(allow_data, str | os.PathLike) else allow_data
    allowed = {absolute(place).rstrip("/") for place in named}
    for place in filter(None, places):
        require_address(place)
        if place.rstrip("/") not in allowed and store_of(place) != store_of(location):
            raise UsageError(
                f"{location}: the job reads {place}, which is not in the job's store: if you "
                f"trust whoever made the job, pass --allow-data {place}, or allow_data={place!r}"
            )


def require_code_allowed(location: str, request: Json, allow_code: bool) -> None:
    """Raise ``UsageError`` if a job names functions and code is not allowed."""
    if not allow_code:
        require_no_code([request["parameters"][name] for name in ("kernel", "basis")], location)


def parameters_of(request: Json, **changed: Any) -> Request:
    """Return the parameters of a job, including the changes made by resumes and updates and in
    ``changed``."""
    with reading("the options of the job", "start it again"):
        return Request(**{**request["parameters"], **changed})


def open_sources(data: Where, validation: Place) -> tuple[ZarrSource, ZarrSource | None]:
    """Open DATA and held-out DATA. Raises as ``ZarrSource`` does."""
    return ZarrSource(data), None if validation is None else ZarrSource(validation)


def open_held_out(request: Json) -> ZarrSource | None:
    """Open a job's held-out DATA, or return None if there are none. Raises as ``open_unchanged``
    does."""
    place = request["validation"]
    began = request["validation_fingerprint"]
    if place is not None and began is None:
        raise UsageError(f"{place}: the job began without a held-out dataset: omit --validation")
    return None if place is None else open_unchanged(place, began)


def open_unchanged(place: str, began: Json) -> ZarrSource:
    """Open a job's DATA. Raises ``MissingDataError``, or ``ChangedDataError`` if the fingerprint
    differs from ``began``."""
    moved = "if the dataset was moved, give the new location with --data or --validation"
    try:
        source = ZarrSource(place)
    except MissingDataError as error:
        raise MissingDataError(f"{error}; {moved}") from error
    if what := difference(source, began):
        raise ChangedDataError(
            f"{source.url} has changed since the job began ({what}): start a new job, or restore "
            f"the old data; {moved}; to use appended rows, run `partirvm update`"
        )
    return source


def difference(source: ZarrSource, began: Json) -> str:
    """Describe how the data differ from the fingerprint ``began``; return an empty string if they
    do not differ."""
    now = source.fingerprint()
    rows = f"{began['n_rows']:,} rows at the start, {now['n_rows']:,} now; "
    return (
        ""
        if now == began
        else rows + "values, names, categories, classes, moments or tile size differ"
    )


def scheduler_of(client: Any) -> str:
    """Return the address of a client's scheduler, or an empty string without a client."""
    return "" if client is None else address_of(client)


def create(
    data: Where,
    job: str,
    parameters: Request,
    validation: Place,
    overwrite: bool,
    client: Any = None,
) -> JobState:
    """Create a queued job after all checks that do not read rows, and return its state. Raises as
    ``fit`` does.

    Args:
        data: path or URL of DATA
        job: path or URL of JOB
        parameters: the options
        validation: path or URL of held-out DATA, or None
        overwrite: True to replace an old JOB
        client: Dask client of the cluster on which the job will run, whose scheduler's address the
            job stores; None for this machine
    """
    source, held_out = open_sources(data, validation)
    parameters = check_parameters(parameters)
    check_request(source, parameters, held_out)
    spec = {
        "data": absolute(source.url),
        "validation": None if held_out is None else absolute(held_out.url),
        "fingerprint": source.fingerprint(),
        "validation_fingerprint": None if held_out is None else held_out.fingerprint(),
        "parameters": portable(parameters),
        "versions": package_versions(),
        "scheduler": scheduler_of(client),
    }
    return JobStore.create(job, spec, overwrite=overwrite).folded()


def requeue(
    location: str,
    *,
    client: Any = None,
    allow_code: bool = False,
    allow_data: Places = (),
    grown: bool = False,
    **changed: Any,
) -> JobState:
    """Queue a job again, with the new locations of moved DATA. Raises as ``Job.resume`` or
    ``Job.update`` does.

    Args:
        location: path or URL of JOB
        client: as in ``create``
        allow_code: True to allow functions that the job names
        allow_data: datasets outside the job's store that it may read
        grown: True for an update
        changed: new ``LIMITS``, and new locations ``data`` and ``validation``; None for no change
    """
    changed = {key: value for key, value in changed.items() if value is not None}
    moved: dict[str, str] = {
        name: absolute(changed.pop(name)) for name in ("data", "validation") if name in changed
    }
    if other := sorted(changed.keys() - set(LIMITS)):
        raise UsageError(
            f"a resume cannot change {', '.join(other)}, only {', '.join(LIMITS)}: start a new job"
        )
    store = JobStore(location)
    before = store.state()
    with store.acquire():
        state = store.folded()
        if before.status is Status.INTERRUPTED and state.status is Status.QUEUED:
            # only the lease that ends here shows this; a refused request changes nothing
            store.record({"event": "interrupted", "reason": before.reason})
        request = {**state.request, **moved}
        kept = {"data", "validation"} - moved.keys()
        require_places(location, [state.request[name] for name in sorted(kept)], allow_data)
        require_code_allowed(location, request, allow_code)
        if state.status is Status.CANCELLED:
            raise UsageError(f"{location} was cancelled and its model discarded: start a new job")
        open_held_out(request)
        event = (
            _grown(store, request, allow_code, changed)
            if grown
            else _resumed(location, state, request, changed)
        )
        store.record({"event": "queued", **event, **moved, "scheduler": scheduler_of(client)})
        state = store.folded()
    warn_of_versions(f"{location}: the job", request["versions"])
    return state


def _resumed(location: str, state: JobState, request: Json, changed: Json) -> Json:
    """Return the event of a resume. A finished job needs a larger limit, or more time or memory
    (``DoneError``).

    Args:
        location: path or URL of JOB, for messages
        state: the state of the job
        request: the request of the job
        changed: new values of ``LIMITS`` by name
    """
    before = parameters_of(request)
    after = check_parameters(parameters_of(request, **changed))
    reason = "resumed"
    if state.status is Status.DONE and _goes_on(state, changed):
        reason = BEYOND_VALIDATION
    elif state.status is Status.DONE:
        # the reason for ending at a limit is part of the limit's name
        option = next((name for name in LIMITS if state.reason in name.split("_")), None)
        if option is None:
            raise DoneError(
                f"{location} is done, and a resume would change nothing. "
                f"{Termination(state.reason).advice}"
            )
        limits = [getattr(each, option) for each in (before, after)]
        was, now = [-LEAST_GAIN[effort] for effort in limits] if option == "effort" else limits
        if option in ("max_rounds", "max_vectors", "effort") and now <= was:
            raise DoneError(
                f"{location} is done; it reached {option} = {limits[0]}: resume with a larger "
                f"{option}"
            )
    open_unchanged(request["data"], request["fingerprint"])
    return {"reason": reason, "changes": {key: getattr(after, key) for key in changed}}


def _goes_on(state: JobState, changed: Json) -> bool:
    """Return True if a job that ended because the error on its validation data stopped falling is
    asked for more rounds than it has run."""
    rounds = [entry["number"] for entry in state.history if entry["kind"] == "round"]
    more = (changed.get("max_rounds") or 0) > max(rounds, default=0)
    return state.reason == Termination.VALIDATION.value and more


def _grown(store: JobStore, request: Json, allow_code: bool, changed: Json) -> Json:
    """Return the event of an update.

    Args:
        store: the store of the job, with the lease held
        request: the request of the job
        allow_code: True to allow functions that the job names
        changed: new values of ``LIMITS`` by name; ``max_rounds`` counts further rounds
    """
    source = _open_grown(request["data"], request["fingerprint"])
    last: Any = store.restore(lambda each: resumes(each, source.n_rows), allow_code=allow_code)
    if last is None or not is_growable(last.state, last.spec):
        raise UsageError(
            f"{store.location} cannot be updated: it has no fit to add new rows to (no round has "
            "finished, split-merge ended before its last merge, or the target is constant): "
            "start a new job"
        )
    # as many rounds as in the last update or the fit
    rounds = changed.get(
        "max_rounds", request.get("rounds", request["parameters"].get("max_rounds"))
    )
    changes: Json = {"max_rounds": None if rounds is None else last.state.round + rounds}
    if last.spec.in_order:
        changes["strategy"] = IncrementalRounds.schedule.name
    check_parameters(parameters_of(request, **changes))
    return {
        "reason": "updated",
        "changes": changes,
        "fingerprint": source.fingerprint(),
        "rounds": rounds,
    }


def _open_grown(place: str, began: Json) -> ZarrSource:
    """Open DATA with more rows than in a fingerprint. Raises ``UsageError`` for any other DATA."""
    source = ZarrSource(place)
    if not source.has_grown(began):
        what = difference(source, began) or "it is the same"
        raise UsageError(
            f"{source.url} has no rows that were appended since the last fit of the job ({what}): "
            "append rows first (`ingest --append`), restore changed rows, or start a new job"
        )
    return source
