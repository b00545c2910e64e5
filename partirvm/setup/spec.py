"""``FitSpec``: the complete, frozen specification of a fit, stored in the job folder.

``setup.resolve`` makes a spec from a source and a request, and ``jobs.run`` runs the spec. A resume reads the stored
spec and changes only the limits that the user may change (``with_limits``). ``pack`` converts a spec to plain values
and arrays.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from partirvm.core.priors import GammaDensity, Prior
from partirvm.data import Source
from partirvm.data.arrays import ClassWeighted
from partirvm.kernels import kernel_from_spec
from partirvm.kernels.bases import basis_from_spec
from partirvm.kernels.design import NONE, Design
from partirvm.likelihoods import LIKELIHOODS
from partirvm.options import Request
from partirvm.planning.cost import Rates, RoundCost
from partirvm.planning.make_plan import Method, make_plan
from partirvm.planning.memory import DataShape, StepBytes
from partirvm.planning.plan import STORE_FRACTION, KernelStore, Machine, Plan, Sparseness, choose
from partirvm.setup.basis import checked_basis
from partirvm.setup.kernel import checked_kernel
from partirvm.setup.parameters import portable
from partirvm.storage import reading
from partirvm.storage.records import MOST
from partirvm.strategies import STRATEGIES
from partirvm.strategies.fit_rows import rows_used
from partirvm.strategies.problem import AppendedBatch, Options, Problem
from partirvm.strategies.selection import RANDOM, SELECTIONS
from partirvm.types import Scaling

Float = NDArray[np.float64]

LIMITS = ("max_rounds", "max_vectors", "effort", "time_limit", "memory_limit")
"""Options that a resume may change; any other change would give a different fit."""


@dataclass(frozen=True)
class FitSpec:
    """The specification of a fit that is ready to run.

    ``request`` is the request of the user with every "auto" that affects the model resolved. ``problem`` holds the
    kernel, learned or given. ``class_weights`` (K,) is None if ``class_weight`` is not used. ``input_variance`` (d,) is
    the variance of the scaled inputs, ``constant`` (d,) marks constant features, and ``counted`` is the number of rows
    of positive weight.

    ``measured`` are the history entries of kernel learning and of the heuristic's fit. ``notes`` are the notes of the
    plan that were found before planning. ``before`` is the spec before rows were appended (``setup.resolve``), or None.
    """

    request: Request
    problem: Problem
    options: Options
    plan: Plan
    class_weights: Float | None
    input_variance: Float
    constant: NDArray[np.bool_]
    counted: int
    measured: tuple[dict[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    before: FitSpec | None = None

    def of_rows(self, n_rows: int) -> FitSpec:
        """Return the spec for a checkpoint of ``n_rows`` rows: this spec, or the spec before rows were appended."""
        return self.before if self.before is not None and n_rows < self.problem.n_rows else self

    def weigh(self, source: Source) -> Source:
        """Return the source with the class weights of the fit applied to its row weights."""
        return source if self.class_weights is None else ClassWeighted(source, self.class_weights)

    def with_codes(self, codes: NDArray[np.integer[Any]] | None) -> FitSpec:
        """Return the spec with class codes (N,), which are read from the source and not stored in the spec's file."""
        return replace(self, problem=replace(self.problem, codes=codes))

    def with_limits(self, asked: Request, machine: Machine, rates: Rates, *, elastic: bool) -> FitSpec:
        """Return the spec of the same fit with the ``LIMITS`` of ``asked``, planned for this machine.

        If the memory limit is unchanged, the maximum number of columns stays unchanged too. Otherwise a process with a
        slightly larger base memory would end the fit earlier than the previous process. Raises ``MemoryLimitError`` if
        the fit needs more memory than the limit.
        """
        request = replace(self.request, **{name: getattr(asked, name) for name in LIMITS})
        plan = planned(request, self.problem, self.plan.shape, machine, rates, elastic, joining=self.plan.joining)
        notes = self.notes + plan.notes
        plan = replace(plan, sparseness=self.plan.sparseness, learned=self.plan.learned, notes=notes)
        changed = {name: getattr(request, name) for name in ("max_rounds", "max_vectors", "effort")}
        options = replace(self.options, **changed)
        if machine.limit != self.plan.machine.limit:
            options = replace(options, **memory_limits(plan))
        return replace(self, request=request, plan=plan, options=options)

    def pack(self) -> dict[str, Any]:
        """Convert the spec to plain values and arrays, without the class codes.

        Raises ``UsageError`` for a kernel or a basis that other processes cannot import.
        """
        facts = ("class_weights", "input_variance", "constant", "counted", "measured", "notes")
        return {
            "request": portable(self.request),
            "problem": _pack_problem(self.problem),
            "options": asdict(self.options),
            "plan": asdict(self.plan),
            **{name: getattr(self, name) for name in facts},
            "before": None if self.before is None else self.before.pack(),
        }

    @classmethod
    def unpack(cls, packed: dict[str, Any]) -> FitSpec:
        """Make the spec from the result of ``pack``. Raises ``FormatError`` for other fields or types."""
        with reading("the spec of the fit", "restore the folder specs/ of the job, or start it again"):
            own = {
                "request": _unpack_request(packed["request"]),
                "problem": _unpack_problem(packed["problem"]),
                "options": Options(**packed["options"]),
                "plan": _unpack_plan(packed["plan"]),
                "before": None if packed["before"] is None else cls.unpack(packed["before"]),
            }
            spec: FitSpec = require_types(cls(**{**packed, **own}))
            return spec


def planned(
    request: Request,
    problem: Problem,
    shape: DataShape,
    machine: Machine,
    rates: Rates,
    elastic: bool,
    *,
    shrink_partition: bool = False,
    joining: int | None = None,
) -> Plan:
    """Plan a resolved request by arithmetic only. Raises ``MemoryLimitError`` as ``make_plan`` does."""
    P, selection = int(request.partition_size), SELECTIONS.get(request.selection, RANDOM)
    method = Method(
        STRATEGIES[request.strategy].schedule,
        rows_used(request, shape.n_rows),
        selection.candidate_search(P, shape.n_rows, shape.n_candidates, shuffled=problem.shuffled),
    )
    asked = {"held_out": problem.held_out, "shrink_threads": elastic, "shrink_partition": shrink_partition}
    plan = make_plan(shape, machine, rates, request, method, **asked, joining=joining)
    return replace(plan, kernel_store=_kernel_store(plan, rates, request))


def memory_limits(plan: Plan) -> dict[str, Any]:
    """Return the ``Options`` that depend on memory: limits of columns, of parallel fits, and of kernel learning."""
    return {
        "max_columns": plan.max_columns,
        "batch": plan.batch_elements,
        "learning_columns": plan.learning_columns,
    }


def _kernel_store(plan: Plan, rates: Rates, request: Request) -> KernelStore:
    """Choose where kernel blocks are kept: in memory, in Zarr or nowhere."""
    if not plan.shape.n_kernels:
        return KernelStore("none", 0, "there is no kernel")
    spare = plan.room(plan.columns)
    if request.kernel_store == request.memory_limit == "auto":
        spare = min(spare, int(STORE_FRACTION * plan.machine.limit))
    return choose(
        request.kernel_store,
        rates,
        plan.shape.n_rows,
        plan.columns,
        plan.machine.workers,
        spare,
        shutil.disk_usage(tempfile.gettempdir()).free,
        repeats=plan.shape.classes,
    )


def _unpack_request(packed: dict[str, Any]) -> Request:
    return Request(**{**packed, "kernel": checked_kernel(packed["kernel"]), "basis": checked_basis(packed["basis"])})


def _pack_problem(problem: Problem) -> dict[str, Any]:
    """Convert a problem to plain values; of the empty design, keep kernel, basis functions, scaling and origin."""
    empty = problem.empty
    own = {name: value for name, value in vars(problem).items() if name not in ("empty", "codes", "prior", "batches")}
    return {
        **own,
        "kernel": empty.kernel.spec(),
        "functions": None if empty.functions is None else empty.functions.spec(),
        "scaling": vars(empty.scaling).copy(),
        "origin": empty.origin,
        "likelihood": problem.likelihood.name,
        "prior": asdict(problem.prior),
        "batches": [asdict(batch) for batch in problem.batches],
    }


def _unpack_problem(packed: dict[str, Any]) -> Problem:
    values = dict(packed)
    scaling, functions, prior = Scaling(**values.pop("scaling")), values.pop("functions"), values.pop("prior")
    densities = {name: GammaDensity(**prior[name]) for name in ("alpha", "noise")}
    return Problem(
        empty=Design(
            kernel_from_spec(values.pop("kernel")),
            scaling,
            np.zeros((0, len(scaling.x_shift))),
            NONE,
            bias=False,
            origin=values.pop("origin"),
            functions=None if functions is None else basis_from_spec(functions),
        ),
        likelihood=LIKELIHOODS[values.pop("likelihood")],
        prior=Prior(**{**prior, **densities}),
        batches=tuple(AppendedBatch(**batch) for batch in values.pop("batches")),
        **values,
    )


def _unpack_plan(packed: dict[str, Any]) -> Plan:
    sparseness = packed["sparseness"]
    parts = {
        "shape": DataShape(**packed["shape"]),
        "machine": Machine(**packed["machine"]),
        "bytes": StepBytes(**packed["bytes"]),
        "rounds": tuple(RoundCost(**each) for each in packed["rounds"]),
        "schedule": STRATEGIES[packed["schedule"]["name"]].schedule,
        "sparseness": None if sparseness is None else Sparseness(**sparseness),
        "kernel_store": KernelStore(**packed["kernel_store"]),
    }
    return Plan(**{**packed, **parts})


declared = cache(get_type_hints)


def require_types(value: Any) -> Any:
    """Return a dataclass instance whose fields were read from a file.

    Raises ``TypeError`` if a field, also in other dataclasses inside it, has not its declared type. Only numbers,
    texts, None, arrays, tuples and unions of them are checked.
    """
    hints = declared(type(value))  # type: ignore[arg-type,unused-ignore]
    for each in fields(value):
        found, name = getattr(value, each.name), f"{type(value).__name__}.{each.name}"
        if not _has_type(found, hints[each.name]):
            raise TypeError(f"{name} is {type(found).__name__} {found!r:.40}, expected {each.type}")
        for part in found if isinstance(found, tuple) else (found,):
            if is_dataclass(part) and not isinstance(part, type):
                require_types(part)
    return value


PLAIN: dict[Any, tuple[type, ...]] = {
    bool: (bool, np.bool_),
    int: (int, np.integer),
    float: (int, float, np.number),
    str: (str,),
    type(None): (type(None),),
    np.ndarray: (np.ndarray,),
}
"""The types of values that each declared type accepts; values of other declared types are not checked."""


def _has_type(value: Any, hint: Any) -> bool:
    origin, parts = get_origin(hint) or hint, get_args(hint)
    if origin in (Union, UnionType):
        return any(_has_type(value, part) for part in parts)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        wanted = parts[:1] * len(value) if parts[1:] == (...,) else parts
        return len(value) == len(wanted) and all(map(_has_type, value, wanted))
    if isinstance(value, bool) and origin in (int, float):
        return False
    if isinstance(value, int) and abs(value) >= MOST:
        return origin not in PLAIN
    return origin not in PLAIN or isinstance(value, PLAIN[origin])
