"""The job report: a self-contained HTML page, and its values as JSON."""

import json
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from html import escape
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from partirvm.errors import PartirvmError
from partirvm.model.feature_effects import Effects
from partirvm.options import Request
from partirvm.quoting import counted, moment, printable
from partirvm.report.effect_charts import effect_charts
from partirvm.report.history import (
    MEASURED,
    SIDES,
    Kind,
    columns,
    figures_of,
    format_share,
    kind_of,
    last_model,
)
from partirvm.report.plots import CONTRAST, OBSERVED, Chart, from_json, target_charts
from partirvm.report.text import (
    brief_rows,
    figure_rows,
    is_corrected,
    parameter_text,
    versions_text,
)
from partirvm.storage import Folder, open_folder, require_replaceable, storing

LISTS = ("directions", "bases", "outputs", "sizes", "effects", "damaged")
"""Values that are lists and are empty without a model."""

LEAST_SHARE = 1e-3
"""Smallest fraction of the variance or of squared distances that is shown as a number."""

FEATURES = 6
"""Number of features that are named for each direction."""


LEAST_SPAN = 0.01
"""Smallest span of the vertical axis of a curve, as a fraction of its largest value."""

MARK = "· partirvm</title>"
"""Text that every page contains, by which a file is recognised as a page."""


@dataclass(frozen=True)
class Report:
    """The job report: an HTML page without scripts, and its values. A notebook displays the page
    below the cell.

    ``values`` is plain JSON: ``Job.progress()`` and more. ``status_advice`` refers to the status,
    ``advice`` to the reason why the job ended. Times are seconds since 1970 or None. ``plan`` is
    ``Plan.to_json()``, and ``history`` contains the driver's entries. ``relevance``, ``directions``
    and ``bases`` come from ``Job``; ``missing`` is the fraction of training rows without a value,
    by feature. ``outputs`` contains the names of the targets or classes; ``effects`` comes
    from ``model.feature_effects``; ``sizes`` comes from
    ``model.facts.sizes_json``; ``damaged`` lists the errors of unreadable parts.
    """

    values: dict[str, Any]

    @property
    def html(self) -> str:
        """The page as one document, without scripts or external resources."""
        return _page(SimpleNamespace(**self.values))

    def save(self, location: str | Path, *, overwrite: bool = False) -> None:
        """Write all values (.json) or the page. Raises ``ExistsError`` unless ``overwrite``, or
        ``StorageError``."""
        place = open_folder(str(location))
        text = json.dumps(self.values, indent=1) if place.suffix == ".json" else self.html
        require_replaceable(place, "a report", _is_report, overwrite=overwrite)
        with storing(place.location):
            place.write("", text.encode())

    def _repr_html_(self) -> str:
        style = "width:100%;height:900px;border:1px solid #ccc"
        content = escape(self.html)
        return (
            f'<iframe title="Report of a job" sandbox srcdoc="{content}" style="{style}"></iframe>'
        )


def _is_report(place: Folder) -> bool:
    """Return True for a file written by ``Report.save``."""
    mark = '"status_advice"' if place.suffix == ".json" else MARK
    return place.is_file() and mark.encode() in place.read("")


def report_of(job: Any) -> Report:
    """Return the report of a job in any state, without importing or running code that the job
    names."""
    state = job.state()
    values = {
        name: getattr(state, name) for name in ("queued", "began", "ended", "plan", "history")
    }
    values |= {**job.progress(), "location": job.location, "status_advice": state.status.advice}
    values |= {"parameters": job.asked(), "versions": state.request["versions"]}
    values["differing_versions"] = versions_text(state.request["versions"], state.versions)
    values |= {"relevance": None, "missing": {}, **{name: [] for name in LISTS}}
    try:
        values |= job.facts()
    except PartirvmError as error:
        values["damaged"] = [str(error)]
    return Report(values)


def history_charts(history: Sequence[Mapping[str, Any]], kind: Kind) -> list[Chart]:
    """Return the charts of errors, vectors and evidence over the fits; evidence is shown only for
    fits with equal numbers of rows."""
    fits = [entry for entry in history if entry["kind"] not in MEASURED]
    alike = [entry for entry in fits if entry["rows"] == fits[0]["rows"]]
    charts = []
    for measure in (kind.head, kind.beside):
        charts += _curves(
            measure.title, measure.unit, fits, {side: measure.over(side) for side in SIDES}
        )
    charts += _curves("Relevance vectors", "", fits, {"vectors": "vectors"})
    evidence = f"over {alike[0]['rows']:,} rows" if alike else ""
    return [*charts, *_curves("Log evidence", evidence, alike, {"evidence": "log_evidence"})]


def _curves(
    title: str, remark: str, fits: Sequence[Mapping[str, Any]], keys: Mapping[str, str]
) -> list[Chart]:
    """Return a chart of values over the fits; there is no chart if no value has two finite points.

    Args:
        title: the title of the chart, without "over fits".
        remark: the remark below the title.
        fits: entries of the history.
        keys: the key of each value in an entry, by the name of its curve.
    """
    lines: dict[str, tuple[Any, Any]] = {}
    for name, key in keys.items():
        values = np.array([entry.get(key) for entry in fits], dtype=np.float64)
        finite = np.flatnonzero(np.isfinite(values))
        if len(finite):
            lines[name] = (finite + 1, values[finite])

    def paint(axis: Any) -> None:
        for (name, points), form, colour in zip(
            lines.items(), ("o-", "s--"), (OBSERVED, CONTRAST), strict=False
        ):
            axis.plot(*points, form, color=colour, linewidth=1.4, markersize=4, label=name)
        values = np.concatenate([values for _, values in lines.values()])
        axis.set(xlabel="fit", yscale="log" if 0 < 20 * values.min() < values.max() else "linear")
        axis.xaxis.get_major_locator().set_params(integer=True)
        _show_at_least(axis, LEAST_SPAN * float(np.abs(values).max()))
        if len(lines) > 1:
            axis.legend()

    if not any(len(values) > 1 for _, values in lines.values()):
        return []
    return [Chart(f"{title} over fits", remark, paint)]


def _show_at_least(axis: Any, span: float) -> None:
    """Widen the vertical axis to a span, so that tiny changes do not look large."""
    lower, upper = axis.get_ylim()
    if upper - lower < span:
        middle = 0.5 * (lower + upper)
        axis.set_ylim(middle - 0.5 * span, middle + 0.5 * span)


def size_charts(sizes: Sequence[Sequence[float]], last: Mapping[str, Any]) -> list[Chart]:
    """Return the chart of the error after pruning the model of the entry ``last`` to these sizes;
    there is none for classes."""
    if (error := last.get("train_rmse")) is None or len(sizes) < 2:
        return []
    vectors, growth = np.array(sizes).T

    def paint(axis: Any) -> None:
        axis.plot(
            vectors, np.sqrt(np.maximum(error**2 + growth, 0.0)), "o-", color=OBSERVED, markersize=4
        )
        axis.set(xscale="log", xlabel="remaining relevance vectors", ylim=(0, None))
        axis.set_xticks(vectors[::4], [f"{int(count):,}" for count in vectors[::4]])
        axis.minorticks_off()

    return [
        Chart(
            "Error of fewer vectors",
            "RMSE on training rows after pruning, in the target's units",
            paint,
        )
    ]


@cache
def _renderer() -> Callable[..., str]:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    def finalize(value: Any) -> Any:
        return printable(value, keep="\n\t\u00a0") if type(value) is str else value

    environment = Environment(
        loader=PackageLoader("partirvm.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=finalize,
    )
    environment.filters["sentence"] = sentence
    return environment.get_template("page.html.jinja").render


def sentence(note: str) -> str:
    """Return a note as a sentence.

    >>> sentence("40 groups have effects"), sentence("boosting took too long.")
    ('40 groups have effects.', 'Boosting took too long.')
    """
    return note[:1].upper() + note[1:] + ("" if note.endswith(".") else ".")


def _page(job: Any) -> str:
    kind = kind_of(job.history[-1] if job.history else {}, job.plan)
    last = last_model(job.history)
    facts = figures_of(job.history, job.plan or {})
    diagnostics = last.get("diagnostics") or ()
    return _renderer()(
        job=job,
        name=job.location.rstrip("/").rpartition("/")[2] or job.location,
        moment=partial(moment, utc=True),
        counted=counted,
        share=format_share,
        summary=facts["summary"],
        brief=brief_rows({**facts, "seconds": job.seconds}),
        figures=figure_rows({**facts, "seconds": job.seconds}),
        corrected=is_corrected(facts),
        curves=[*history_charts(job.history, kind), *size_charts(job.sizes, last)],
        effects=[Effects.from_json(stored) for stored in job.effects],
        effect_charts=effect_charts,
        targets=target_charts(from_json(diagnostics), job.outputs),
        diagnostics=diagnostics,
        least_share=LEAST_SHARE,
        main_features=lambda loadings: sorted(loadings.items(), key=lambda pair: -abs(pair[1]))[
            :FEATURES
        ],
        columns=columns(kind, kind.shown(job.history)),
        parameter_text=parameter_text,
        defaults=json.loads(json.dumps(asdict(Request()))),
        encode=b64encode if find_spec("matplotlib") else None,
    )
