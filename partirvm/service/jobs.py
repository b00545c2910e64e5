"""Fits that leave a job's folder behind."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import partirvm
from partirvm.backends import executor_for
from partirvm.core.termination import Termination
from partirvm.data import ZarrSource
from partirvm.errors import JobFailedError
from partirvm.jobs.driver import MemoryJournal, Outcome, Watcher
from partirvm.jobs.store import JobStore
from partirvm.model import Model
from partirvm.planning.plan import Plan
from partirvm.service.fitting import prepare, run
from partirvm.types import FitParameters


@dataclass(frozen=True)
class Fitted:
    """What a finished fit leaves: its model, one dict per fit of the history, how it ended, and the plan it had."""

    model: Model
    history: list[dict[str, Any]]
    outcome: Outcome
    plan: Plan


class _JobJournal(MemoryJournal):
    """Writes to the job's folder what it also keeps in memory."""

    def __init__(self, store: JobStore) -> None:
        super().__init__()
        self._store = store

    def save(self, model: Model) -> None:
        self._store.save(model)
        super().save(model)

    def record(self, entry: dict[str, Any]) -> None:
        super().record(entry)
        self._store.record({"event": "fit", **entry})


def plan(data: str, parameters: FitParameters, *, validation: str | None = None, client: Any = None) -> Plan:
    """What ``fit`` would do with DATA, without doing it. Raises as ``service.fitting.prepare`` does."""
    source, held_out = _sources(data, validation)
    executor = executor_for(client)
    try:
        return prepare(source, parameters, executor, held_out).plan
    finally:
        executor.close()


def fit(
    data: str,
    job: str,
    parameters: FitParameters,
    *,
    validation: str | None = None,
    client: Any = None,
    overwrite: bool = False,
    verify: bool = False,
    watcher: Watcher | None = None,
    on_plan: Callable[[Plan], None] | None = None,
    aborted: Callable[[], bool] | None = None,
) -> Fitted:
    """Fit DATA and leave model and history in JOB.

    Everything that can be refused is refused before JOB is touched: raises as ``service.fitting.prepare`` does,
    ``ExistsError`` for a JOB that is there, and with ``verify`` ``ChangedDataError`` if a tile of DATA is not what was
    ingested. ``on_plan`` is called with the plan before the fit begins. ``aborted`` is asked between tiles and between
    dense iterations: once it says so the fit ends with the model saved last. A fit that ends without any model, raising
    ``JobFailedError`` if that was aborted, leaves no JOB, or the one that it was to overwrite.
    """
    source, held_out = _sources(data, validation)
    if verify:
        source.verify()
    executor = executor_for(client)
    try:
        prepared = prepare(source, parameters, executor, held_out)
        store = JobStore.create(job, _spec(source, validation, parameters), overwrite=overwrite)
        journal = _JobJournal(store)
        stop = None if aborted is None else lambda: Termination.ABORTED if aborted() else None
        try:
            store.record({"event": "plan", **prepared.plan.to_json()})
            if on_plan is not None:
                on_plan(prepared.plan)
            outcome = run(prepared, executor, journal, watcher=watcher, interrupted=stop)
            if journal.model is None:
                raise JobFailedError(f"aborted before the first round was done: {job} is as it was before the fit")
        except BaseException:
            if not store.has_model():
                store.discard()
            raise
        store.record({"event": "done", "reason": outcome.reason.value, "seconds": outcome.seconds})
    finally:
        executor.close()
    return Fitted(journal.model, journal.history, outcome, prepared.plan)


def _sources(data: str, validation: str | None) -> tuple[ZarrSource, ZarrSource | None]:
    return ZarrSource(data), None if validation is None else ZarrSource(validation)


def _spec(source: ZarrSource, validation: str | None, parameters: FitParameters) -> dict[str, Any]:
    return {
        "data": source.url,
        "validation": validation,
        "fingerprint": asdict(source.fingerprint()),
        "parameters": asdict(parameters),
        "tile_rows": source.tile_rows,
        "versions": {"partirvm": partirvm.__version__, "python": platform.python_version()},
    }
