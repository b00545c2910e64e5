"""Fit DATA in the background (``submit``), and watch and control fits through their folders.

Any process that can read a job folder can open the job with ``open_job``.
"""

from __future__ import annotations

import os
import shlex
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Literal, get_type_hints

from partirvm.core.termination import Termination
from partirvm.errors import LeaseError, UsageError
from partirvm.execution.cluster import start
from partirvm.jobs.attempt import TAKE_OVER_SECONDS, run_attempt, run_job
from partirvm.jobs.checkpoint import Checkpoint
from partirvm.jobs.request import Place, Places, create, request_of, requeue, scheduler_of
from partirvm.jobs.state import TRANSITIONS, JobState, Status, lost_workers_of
from partirvm.jobs.store import JobStore
from partirvm.model import AnyModel
from partirvm.model.facts import basis_functions_json, directions_json, sizes_json
from partirvm.model.feature_effects import effects_json
from partirvm.quoting import html_table
from partirvm.spec.entries import Record
from partirvm.storage import Where, open_folder
from partirvm.storage.address import absolute
from partirvm.storage.records import MOST, TIME, require

POLL_SECONDS = 0.5  # seconds between two polls by a waiting caller
GRACE = 30.0  # seconds after a lost driver's last sign of life in which its cluster may restart it


COUNTS = "rows features tiles passes rounds threads workers memory_limit memory_peak seconds"
TEXTS = {"strategy": str, "fit_rows": str, "text": str, "notes": list[str]}

ASSESSED = {
    "target": str,
    "rows": Literal["left-out", "held-out", "training"],
    "figures": dict[str, float],
    **dict.fromkeys(("n_scored", "n_rows", "n_vectors", "local_bytes", "n_features"), range(MOST)),
    "noise_varies": bool,
    "features": list[str],
    "largest_class": str,
    "levels": list[list[str | int]],
    "copies": float,
    "outliers": str,
    **dict.fromkeys(("kernel_rows", "kernel_widths", "groups"), range(MOST)),
    "left_out_groups?": range(MOST),
    "jumps?": list[list[str | float]],
    "tree_share?": float,
}
"""Schema of ``Assessment`` in a history line."""

RECORDED = get_type_hints(Record)
ADDED = ("held_out_ece",)
"""Fields of ``Record`` that histories of earlier formats lack."""

FIELDS = {
    "plan": {**dict.fromkeys(COUNTS.split(), range(MOST)), **TEXTS},
    "fit": {
        **{f"{name}?" if name in ADDED else name: hint for name, hint in RECORDED.items()},
        "assessment?": ASSESSED,
        "termination": str,
        "seconds": TIME,
        "pass_seconds": TIME,
        "passes": int,
    },
}
"""Schemas (``storage.records``) of the plan and of history lines, with the fields that readers
use."""


def submit(
    estimator: Any,
    data: Where,
    job: Where,
    *,
    validation: Place = None,
    client: Any = None,
    overwrite: bool = False,
) -> Job:
    """Start fitting this estimator to DATA in the job folder JOB, and return immediately.

    With a client, the job runs on the cluster, and this process may end; otherwise it runs in a
    thread and is interrupted if this process ends. The returned handle, ``open_job(job)`` and the
    command line watch, abort and resume the job; ``model()`` returns its latest model. Raises
    ``ExistsError`` if JOB exists, unless ``overwrite`` is true, and errors that can be found
    without reading rows.

    Parameters
    ----------
    estimator : RVMRegressor, RVMClassifier or Request
        The options of the fit; an estimator is not fitted.
    data : path or URL
        DATA, a dataset made by ``ingest``.
    job : path or URL
        The new folder JOB.
    validation : path or URL, optional
        Held-out DATA.
    client : dask.distributed.Client, optional
        The cluster on which the job runs; by default the estimator's client, if any.
    overwrite : bool, default False
        Whether to replace an old JOB.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from partirvm import RVMRegressor, ingest, submit
    >>> X = np.linspace(-5, 5, 300)[:, None]
    >>> y = np.sinc(X[:, 0]) + 0.05 * np.random.default_rng(0).normal(size=300)
    >>> folder = tempfile.TemporaryDirectory()
    >>> _ = ingest((X, y), f"{folder.name}/rows.zarr")
    >>> model = RVMRegressor(gamma=2.0, strategy="working-set", partition_size=20, max_rounds=2)
    >>> job = submit(model, f"{folder.name}/rows.zarr", f"{folder.name}/job")
    >>> job.wait(timeout=60).value
    'done'
    >>> job.model().n_vectors < 40
    True
    >>> folder.cleanup()
    """
    asked, client = request_of(estimator, client)
    scheduler_of(client)  # fails for a closed client, before any folder is changed
    made = Job(absolute(job))
    return made._start(
        create(data, made.location, asked, validation, overwrite, client), True, client
    )


def open_job(job: Where) -> Job:
    """Return the job in this folder. Raises ``MissingDataError`` if there is none.

    Examples
    --------
    >>> open_job("jobs/run1").progress()["status"]  # doctest: +SKIP
    'done'
    """
    opened = Job(os.fspath(job))
    opened.store.spec()
    return opened


def jobs_in(folder: str) -> list[Job]:
    """Return all jobs directly inside a folder, sorted by name; none if there is no such folder."""
    jobs_of_folder = (Job(f"{folder.rstrip('/')}/{name}") for name in open_folder(folder).list())
    return [job for job in jobs_of_folder if job.store.exists()]


class Job:
    """A handle to a job folder; all information is read from this folder."""

    def __init__(self, location: str) -> None:
        self.store = JobStore(location)
        self.location = self.store.location

    def __repr__(self) -> str:
        return f"Job({self.location!r})"

    def _repr_html_(self) -> str:
        """Return the job's status and the model's figures, for a notebook."""
        return html_table("Job", self._rows())

    def _rows(self) -> list[tuple[str, str]]:
        from partirvm.report.text import job_facts, status_rows  # ``report`` imports this module

        return status_rows(job_facts(self))

    def report(self) -> Any:
        """Return the job report: plan, curves, diagnostics and history. A notebook displays it;
        ``save`` writes it."""
        from partirvm.report.page import (
            report_of,
        )  # ``report`` imports this module, so this cannot be a top-level import

        return report_of(self)

    def state(self) -> JobState:
        """Return the state of the job, with its plan and history. Raises ``FormatError`` for
        damaged events."""
        state = self.store.state()
        for event in (*state.history, *filter(None, [state.plan])):
            require(event, FIELDS[event["event"]], f"{self.location}: the event {event['event']!r}")
        return state

    def status(self) -> Status:
        """Return the status, whose ``advice`` is a sentence for the user."""
        return self.store.state().status

    def progress(self) -> dict[str, Any]:
        """Return the progress as plain JSON: status, reason, seconds, and the last history line."""
        state = self.state()
        last = state.history[-1] if state.history else {}
        keys = (
            "kind number level candidates vectors train_rmse held_out_rmse train_log_loss "
            "train_error "
        )
        keys += "held_out_log_loss held_out_error log_evidence"
        return {
            "job": self.location,
            "status": state.status.value,
            "reason": state.reason,
            "doing": state.doing,
            "advice": advice_of(state, self.location),
            "attempt": state.attempt,
            "lost_workers": lost_workers_of(state),
            "strategy": (state.plan or {}).get("strategy"),
            "fits": sum(entry["kind"] not in ("heuristic", "kernel") for entry in state.history),
            **{key: last.get(key) for key in keys.split()},
            "model": self.store.has_model(),
            "seconds": state.computing_seconds(),
            "since": state.since,
        }

    def asked(self) -> dict[str, Any]:
        """Return the request as JSON: the parameters, including the changes made by resumes,
        ``data`` and ``validation``."""
        request = self.store.folded().request
        return {
            **request["parameters"],
            "data": request["data"],
            "validation": request["validation"],
        }

    def follow(self, timeout: float | None = None) -> Iterator[JobState]:
        """Yield the current state, and the state after each change, until no process runs the job.
        Raises ``TimeoutError`` after ``timeout`` seconds."""
        end = time.monotonic() + (float("inf") if timeout is None else timeout)
        last = None
        while True:
            state = self.state()
            if state != last:
                yield state
            last = state
            now = time.monotonic()
            holder = self.store.holder()
            lately = holder is not None and time.time() - holder.last_beat < GRACE
            if state.status.final and not (state.ended is None and lately):
                return
            if now >= end:
                raise TimeoutError(f"{self.location} is still {state.status} after {timeout:g} s")
            time.sleep(min(POLL_SECONDS, end - now))

    def wait(self, timeout: float | None = None) -> Status:
        """Wait until no process runs the job and return its status. Raises as ``follow`` does."""
        *_, state = self.follow(timeout)
        return state.status

    def abort(self, reason: str = "") -> Status:
        """Ask the job to end and keep its model. Return the status immediately; a job that has
        ended is not changed."""
        return self._end("abort", reason)

    def cancel(self, reason: str = "") -> Status:
        """Ask the job to end and discard its model. Return the status. Raises ``UsageError`` for a
        job that is done."""
        return self._end("cancel", reason)

    def resume(
        self,
        *,
        client: Any = None,
        allow_code: bool = False,
        allow_data: Places = (),
        **changed: Any,
    ) -> Job:
        """Resume from the last checkpoint, in a thread of this process or on a cluster; return
        immediately.

        ``changed`` holds new limits: ``max_rounds``, ``max_vectors``, ``effort``, ``time_limit``
        (counted from the resume) and ``memory_limit``; and the new locations of moved DATA:
        ``data`` and ``validation``. ``allow_code`` permits a named function as kernel or basis;
        ``allow_data`` lists datasets outside the job's store that the job may read.

        The job is not changed if an error is raised: ``UsageError`` for other changes or a missing
        permission, ``DoneError`` if nothing would change, ``MissingDataError``,
        ``ChangedDataError``, or ``LeaseError``.
        """
        state = self.requeue(client=client, allow_code=allow_code, allow_data=allow_data, **changed)
        return self._start(state, allow_code, client)

    def update(self, **how: Any) -> Job:
        """Update with rows appended to the DATA; ``how`` is as in ``resume``, but the only limit
        that can change is ``max_rounds``.

        The vectors are fitted to all rows; then at most ``max_rounds`` rounds follow. The working
        set selects candidates among all rows; any other strategy continues as ``incremental``, with
        the new rows as the next partitions. Scaling, kernel and classes do not change. Raises as
        ``resume`` does, and ``UsageError`` if there are no new rows or no fit that they can join.
        """
        return self.resume(grown=True, **how)

    def requeue(self, **how: Any) -> JobState:
        """Queue the job again for ``run_job`` and return its state. Takes the arguments and raises
        the errors of ``resume``."""
        return requeue(self.location, **how)

    def _start(self, state: JobState, allow_code: bool, client: Any) -> Job:
        """Run the queued attempt in a thread of this process, or on the cluster of ``client``."""
        place = absolute(self.location)
        if client is not None:
            # unique even if the job is overwritten
            key = f"partirvm-{place}-{state.attempt}-{int(1e3 * state.since)}"
            start(client, key, run_job, place, attempt=state.attempt, allow_code=allow_code)
            return self
        store = JobStore(place)
        lease = store.acquire(patience=TAKE_OVER_SECONDS)

        def run() -> None:
            with lease, suppress(Exception):  # errors are recorded in the job
                run_attempt(store, state.attempt, allow_code)

        threading.Thread(target=run, name=f"partirvm {place}", daemon=True).start()
        return self

    def model(self, *, allow_code: bool = False) -> AnyModel:
        """Return the last model. Raises ``MissingDataError`` if there is none, ``UsageError`` for
        code without permission."""
        return self.store.model(allow_code=allow_code)

    def facts(self) -> dict[str, Any]:
        """Return facts about the model (``model.facts``) for reports, as plain JSON; empty without
        a model."""
        last: Checkpoint | None = self.store.restore(allow_code=True)
        if last is None or not self.store.has_model():
            return {}
        model = self.store.model(allow_code=True)
        design = model.design
        variance = last.spec.input_variance
        features = model.columns.features
        relevances = model.relevance
        names = design.scaling.names(features)
        return {
            "outputs": model.output_names,
            "relevance": None
            if relevances is None
            else dict(zip(features, relevances.tolist(), strict=True)),
            "directions": directions_json(design.kernel, variance, names),
            "bases": basis_functions_json(model),
            "missing": design.scaling.shares_missing(features),
            "sizes": sizes_json(model),
            "effects": effects_json(model),
        }

    def _end(self, what: str, reason: str) -> Status:
        end = {"abort": Status.ABORTED, "cancel": Status.CANCELLED}[what]
        state = self.state()
        if state.status is Status.ABORTING or end in TRANSITIONS[state.status]:
            self.store.request(
                what, state.attempt, reason
            )  # seen by any driver, even one that is just starting
            if state.status in {Status.RUNNING, Status.ABORTING}:
                return Status.ABORTING
            try:
                with self.store.acquire():  # no process runs the job
                    now = self.store.folded()
                    if end in TRANSITIONS[now.status] and now.attempt == state.attempt:
                        self.store.record(
                            {"event": end.value, "reason": reason or "no process was running it"}
                        )
                        if end is Status.CANCELLED:
                            self.store.forget()
            except LeaseError:
                return Status.ABORTING
        elif what == "cancel" and state.status is Status.DONE:
            raise UsageError(f"{self.location} is done and cannot be cancelled: delete the folder")
        return self.status()


def resume_command(state: JobState, location: str) -> str:
    """Return the command that resumes a job where it ran: in one process, or on the cluster in its
    last request."""
    words = ["partirvm", "resume", location]
    if scheduler := state.request.get("scheduler"):
        words += ["--scheduler", scheduler]
    return shlex.join(words)


def advice_of(state: JobState, location: str = "JOB") -> str:
    """Return the advice for the status or, if the job is done, for the reason, with remarks on
    accuracy."""
    advice = state.status.advice
    last = state.history[-1] if state.history else {}
    if state.status in {Status.QUEUED, Status.INTERRUPTED, Status.FAILED}:
        return f"{advice} The command: `{resume_command(state, location)}`"
    if state.status is not Status.DONE:
        return advice
    if state.reason in Termination._value2member_map_:
        advice = Termination(state.reason).advice
        if state.before and not state.added:
            advice = f"The last run added nothing. {advice}"
    remarks = [*last.get("reference", {}).get("remarks", ()), last.get("groups", {}).get("remark")]
    sentences = map(_sentence, filter(None, [last.get("worse", ""), *remarks]))
    return " ".join([advice, *sentences])


def _sentence(text: str) -> str:
    """Return text with a capital letter at the beginning and a full stop at the end."""
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
