"""Plan a fit of DATA, run a fit in this process, or submit a fit as a job that runs in the background."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

from partirvm.core.termination import Termination
from partirvm.errors import JobFailedError, LeaseError, StorageError
from partirvm.execution import executor_for
from partirvm.execution.cluster import address_of
from partirvm.jobs.attempt import Fitted, Planned, run_attempt
from partirvm.jobs.driver import Watcher
from partirvm.jobs.job import Job
from partirvm.jobs.places import Allowed, absolute, require_shared, sources, specification
from partirvm.jobs.state import JobState, Status, fold
from partirvm.jobs.store import JobStore
from partirvm.options import Request
from partirvm.planning.plan import Plan
from partirvm.resolve.measuring import Timer
from partirvm.resolve.new_problem import check_request
from partirvm.resolve.resolve import resolve
from partirvm.resolve.spec import check_parameters, portable
from partirvm.strategies.problem import Stopped


def plan(
    data: str,
    parameters: Request,
    *,
    validation: str | None = None,
    client: Any = None,
) -> Plan:
    """Return the plan of a fit of DATA, without running the fit. Raises as ``resolve.resolve.resolve`` does."""
    source, held_out = sources(data, validation)
    with closing(executor_for(client)) as executor:
        return resolve(source, check_parameters(parameters), executor, held_out).plan


def fit(
    data: str,
    job: str,
    parameters: Request,
    *,
    validation: str | None = None,
    client: Any = None,
    overwrite: bool = False,
    verify: bool = False,
    watcher: Watcher | None = None,
    on_plan: Callable[[Plan], None] | None = None,
    aborted: Callable[[], bool] | None = None,
) -> Fitted:
    """Fit DATA in this process and store model and history in JOB.

    All checks run before JOB is changed. They raise as ``resolve.resolve.resolve`` does, and ``ExistsError`` if JOB
    exists. With ``verify`` they raise ``ChangedDataError`` if a tile of DATA differs from the ingested tile.

    ``on_plan`` is called with the plan before the fit begins. ``aborted`` is called between tiles and between dense
    iterations, also during planning. When it returns True, the fit ends with the last saved model.

    A fit that ends without a model and without a checkpoint removes JOB. Such a fit raises ``JobFailedError`` if it was
    aborted. A fit with a checkpoint but without a model (split-merge) keeps JOB, which can be resumed, and returns no
    model.
    """
    parameters = check_parameters(parameters)
    portable(parameters)
    timer = Timer(parameters.time_limit)
    source, held_out = sources(data, validation)
    JobStore.require_place(job, overwrite=overwrite)
    if verify:
        source.verify()
    with closing(executor_for(client)) as executor:
        try:
            fit_spec = resolve(source, parameters, executor, held_out, timer.after(_interrupted_by(aborted)))
        except Stopped as error:
            raise JobFailedError(f"aborted during planning: {job} was not changed") from error
        spec = specification(source, held_out, validation, parameters)
        store = JobStore.create(job, spec, overwrite=overwrite)
        lease = store.lease or store.acquire()
        try:
            store.record({"event": "queued", "reason": "submitted", "time": timer.since})
            planned, allowed = Planned(fit_spec, executor, timer), Allowed.of(True, (), data, validation)
            hooks: dict[str, Any] = {"watcher": watcher, "on_plan": on_plan, "aborted": aborted}
            fitted = run_attempt(store, allowed, client=client, planned=planned, **hooks)
            cancelled = fold(store.events()).status is Status.CANCELLED
            if fitted.model is None and not (cancelled or store.has_checkpoint()):
                first = fit_spec.plan.schedule.unit
                raise JobFailedError(f"aborted before the first {first} was done: there is no job in {job}")
        except BaseException:
            _discard_if_empty(store)
            raise
        finally:
            with suppress(LeaseError, StorageError):
                lease.release()
    if cancelled:
        raise JobFailedError(f"{job} was cancelled: its model was discarded")
    return fitted


def _interrupted_by(aborted: Callable[[], bool] | None) -> Callable[[], Termination | None]:
    return lambda: Termination.ABORTED if aborted is not None and aborted() else None


def _discard_if_empty(store: JobStore) -> None:
    """Remove a job that has neither a model nor a checkpoint, unless another process has taken its lease."""
    with suppress(LeaseError, StorageError):
        assert store.lease is not None
        store.lease.check()
        if not (store.has_model() or store.has_checkpoint()):
            store.discard()


def create(
    data: str, job: str, parameters: Request, validation: str | None, overwrite: bool, cluster: str = ""
) -> JobState:
    """Create a queued job and return its state, after all checks that read no rows. Raises as ``fit`` does.

    ``cluster`` is the address of the scheduler that runs the job, or "" without a cluster.
    """
    source, held_out = sources(data, validation)
    parameters = check_parameters(parameters)
    check_request(source, parameters, held_out)
    spec = specification(source, held_out, validation, parameters)
    store = JobStore.create(job, spec, overwrite=overwrite)
    try:
        store.record({"event": "queued", "reason": "submitted", "cluster": cluster})
        return fold(store.events())
    finally:
        if store.lease is not None:
            with suppress(LeaseError, StorageError):
                store.lease.release()


def submit(
    data: str,
    job: str,
    parameters: Request,
    *,
    validation: str | None = None,
    client: Any = None,
    overwrite: bool = False,
) -> Job:
    """Start a job and return at once, after DATA and JOB have been opened.

    Without a ``client`` the job runs in a thread of this process, and is interrupted if this process ends. With a
    ``client`` the driver of the job runs on the cluster. The workers open DATA and JOB, so that this process may end
    and needs no access to their files. Relative paths start from the working folder of this process. All checks that
    read no rows raise as in ``fit``.
    """
    data, job = absolute(data), absolute(job)
    validation = None if validation is None else absolute(validation)
    made, allowed = Job(job), Allowed.of(True, (), data, validation)
    if client is None:
        state = create(data, job, parameters, validation, overwrite)
        made.start(state, allowed)
        return made
    from partirvm.execution.detached import ask

    require_shared(data, job, *([validation] if validation else []))
    parameters = check_parameters(parameters)
    portable(parameters)
    state = ask(client, create, data, job, parameters, validation, overwrite, address_of(client))
    made.start(state, allowed, client)
    return made
