"""Plans of fits to DATA, and fits to DATA that are jobs: ``plan`` and ``submit``."""

from __future__ import annotations

import os
from typing import Any

from partirvm import jobs
from partirvm.errors import UsageError
from partirvm.estimators.base import RelevanceVectorMachine
from partirvm.jobs import Job
from partirvm.planning.plan import Plan


def plan(
    estimator: RelevanceVectorMachine,
    data: str | os.PathLike[str],
    *,
    validation: str | os.PathLike[str] | None = None,
    client: Any = None,
) -> Plan:
    """Return the plan of a fit to DATA: partition size, passes, seconds and memory; ``print`` shows it.

    DATA and validation are paths or URLs of what ``ingest`` made. Raises ``UsageError`` for anything else,
    ``MemoryLimitError`` if the fit needs more memory than allowed, and the errors of ``fit``.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from partirvm import RVMRegressor, ingest, plan
    >>> X = np.linspace(-5, 5, 300)[:, None]
    >>> y = np.sinc(X[:, 0]) + 0.05 * np.random.default_rng(0).normal(size=300)
    >>> folder = tempfile.TemporaryDirectory()
    >>> _ = ingest((X, y), f"{folder.name}/rows.zarr")
    >>> found = plan(RVMRegressor(gamma=2.0, strategy="working-set", partition_size=20), f"{folder.name}/rows.zarr")
    >>> found.partition_size
    20
    >>> folder.cleanup()
    """
    places = _places(data, validation)
    return jobs.plan(places[0], estimator.parameters(), validation=places[1], client=client or estimator.client)


def submit(
    estimator: RelevanceVectorMachine,
    data: str | os.PathLike[str],
    job: str | os.PathLike[str],
    *,
    validation: str | os.PathLike[str] | None = None,
    client: Any = None,
    overwrite: bool = False,
) -> Job:
    """Start fitting this estimator to DATA, keep it in the folder JOB, and return at once.

    With a client (by default the estimator's) the job runs on the cluster, and this process may end. Without a client
    the job runs in a thread, and is interrupted if this process ends. The returned handle, ``open_job(job)`` and the
    command line can watch, abort and resume the job; ``model()`` returns its latest model. The estimator is not fitted.
    Raises ``ExistsError`` if JOB exists, unless ``overwrite``, and errors that can be found without reading rows.

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
    places = _places(data, validation)
    options = {"client": client or estimator.client, "overwrite": overwrite}
    return jobs.submit(places[0], os.fspath(job), estimator.parameters(), validation=places[1], **options)


def _places(data: Any, validation: Any) -> tuple[str, str | None]:
    """Return the paths or URLs as text. Raises ``UsageError`` for rows in memory where DATA is needed."""
    try:
        return str(os.fspath(data)), None if validation is None else str(os.fspath(validation))
    except TypeError as error:
        raise UsageError(f"{error}: give the path or URL of DATA that ingest made") from error
