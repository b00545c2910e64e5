"""partirvm: Relevance Vector Machines on data larger than memory, on a laptop or a Dask cluster.

``RVMRegressor`` and ``RVMClassifier`` follow scikit-learn; ``ingest`` converts files and arrays to
DATA; ``plan`` shows what a fit would do; ``submit`` starts a job, a fit in the background,
``open_job`` reopens it; strategies, kernels, noise, warps and priors that have options are objects,
such as ``WorkingSet`` and ``Gaussian``; solvers are strings such as ``"fast"``, with separate
parameters for their options; ``save_model`` writes an estimator or a model, ``load_model`` reads
either of these or a job's model; ``DiagnosticsDisplay`` plots predictions against observations,
and ``EffectsDisplay`` effects of features; ``FitCallback`` follows a fit. Names are loaded on first
use, to keep the import fast.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "data": ["ingest"],
    "data.row_groups": ["Groups"],
    "estimators": ["RVMClassifier", "RVMRegressor", "load_model", "save_model"],
    "jobs": ["open_job", "plan", "submit"],
    "kernels.permission": ["allow_functions"],
    "kernels": [
        "Anova",
        "Categorical",
        "Gaussian",
        "Laplacian",
        "Matern32",
        "Matern52",
        "Polynomial",
    ],
    "options.values": [
        "AlphaPrior",
        "ColumnOptions",
        "Incremental",
        "Local",
        "Noise",
        "Radial",
        "SplitMerge",
        "Trees",
        "Warp",
        "WorkingSet",
    ],
    "report.effect_charts": ["EffectsDisplay"],
    "report.plots": ["DiagnosticsDisplay"],
    "report.progress": ["FitCallback"],
    "storage.address": ["allow_protocols"],
}
"""The public names of each module."""

_MODULES = {name: f"partirvm.{module}" for module, names in _HOMES.items() for name in names}

__all__ = [
    "AlphaPrior",
    "Anova",
    "Categorical",
    "ColumnOptions",
    "DiagnosticsDisplay",
    "EffectsDisplay",
    "FitCallback",
    "Gaussian",
    "Groups",
    "Incremental",
    "Laplacian",
]
__all__ += [
    "Local",
    "Matern32",
    "Matern52",
    "Noise",
    "Polynomial",
    "RVMClassifier",
    "RVMRegressor",
    "Radial",
]
__all__ += [
    "SplitMerge",
    "Trees",
    "Warp",
    "WorkingSet",
    "__version__",
    "allow_functions",
    "allow_protocols",
    "ingest",
]
__all__ += ["load_model", "open_job", "plan", "save_model", "submit"]

if TYPE_CHECKING:
    from partirvm.data import ingest
    from partirvm.data.row_groups import Groups
    from partirvm.estimators import RVMClassifier, RVMRegressor, load_model, save_model
    from partirvm.jobs import open_job, plan, submit
    from partirvm.kernels import (
        Anova,
        Categorical,
        Gaussian,
        Laplacian,
        Matern32,
        Matern52,
        Polynomial,
    )
    from partirvm.kernels.permission import allow_functions
    from partirvm.options.values import (
        AlphaPrior,
        ColumnOptions,
        Incremental,
        Local,
        Noise,
        Radial,
        SplitMerge,
        Trees,
        Warp,
        WorkingSet,
    )
    from partirvm.report.effect_charts import EffectsDisplay
    from partirvm.report.plots import DiagnosticsDisplay
    from partirvm.report.progress import FitCallback
    from partirvm.storage.address import allow_protocols


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
