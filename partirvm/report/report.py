"""The report of a job: ``Job.report()`` and ``partirvm report``."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any

from partirvm.errors import PartirvmError
from partirvm.report.compare import as_csv
from partirvm.report.model_tables import Direction, Function
from partirvm.report.page import JobFacts, page
from partirvm.storage.folder import write_text

HEIGHT = 900
"""Height in pixels of the page in a notebook."""


@dataclass(frozen=True)
class Report:
    """The report of a job: an HTML page without scripts, and its values. A notebook shows the page below the cell."""

    facts: JobFacts

    @property
    def html(self) -> str:
        """The page as one document."""
        return page(self.facts)

    def to_json(self) -> dict[str, Any]:
        """Return all values of the page as plain JSON."""
        return asdict(self.facts)

    def save(self, location: str | Path, *, overwrite: bool = False) -> None:
        """Write the report to a path or URL: .json all values, .csv the table of fits, otherwise the page.

        Raises ``ExistsError`` if the file exists and ``overwrite`` is false, ``StorageError`` if it cannot be written.
        """
        location = str(location)
        if location.endswith(".json"):
            text = json.dumps(self.to_json(), indent=1)
        elif location.endswith(".csv"):
            text = as_csv(self.facts.history)
        else:
            text = self.html
        write_text(location, text, overwrite=overwrite)

    def _repr_html_(self) -> str:
        style = f"width:100%;height:{HEIGHT}px;border:1px solid #ccc"
        return f'<iframe title="Report of a job" sandbox srcdoc="{escape(self.html)}" style="{style}"></iframe>'


def report_of(job: Any) -> Report:
    """Return the report of a job in any state. It imports and runs no code that the job names."""
    return Report(_facts(job))


def _facts(job: Any) -> JobFacts:
    state, progress, spec = job.state(), job.progress(), job.store.asked()
    parameters = job.asked()
    validation = parameters.pop("validation")
    damaged: list[str] = []
    relevance, directions, bases, outputs = (
        _or_none(read, damaged) for read in (job.relevance, job.directions, job.bases, job.outputs)
    )
    return JobFacts(
        location=job.location,
        status=state.status.value,
        status_advice=state.status.advice,
        reason=state.reason,
        advice=progress["advice"],
        queued=state.queued,
        began=state.began,
        ended=state.ended,
        seconds=progress["seconds"],
        spec={**spec, "parameters": parameters, "data": job.data(), "validation": validation},
        plan=state.plan,
        history=state.history,
        relevance=relevance,
        directions=[Direction(**each) for each in directions or ()],
        bases=[Function(**each) for each in bases or ()],
        outputs=outputs or (),
        damaged=list(dict.fromkeys(damaged)),
    )


def _or_none(read: Callable[[], Any], damaged: list[str]) -> Any:
    """Return the result of ``read``, or None if the model cannot be read; the error is then added to ``damaged``."""
    try:
        return read()
    except PartirvmError as error:
        damaged.append(str(error))
        return None
