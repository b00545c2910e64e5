"""partirvm: Relevance Vector Machines on data larger than memory, on a laptop or a Dask cluster.

``RVMRegressor`` and ``RVMClassifier`` follow scikit-learn; ``ingest`` makes DATA of files and arrays; ``plan`` says
what a fit would do; ``submit`` starts a job, a fit that can be left alone, and ``open_job`` finds it again;
strategies, kernels, solvers and priors with options of their own are values, such as ``WorkingSet`` and ``Gaussian``;
``save_model`` writes a fitted estimator or a model, and ``load_model`` reads either back, or the model of a job;
``DiagnosticsDisplay`` draws predictions beside what was observed; ``FitCallback`` hears how a fit goes. Names are
loaded when they are first used, so that importing the package is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "DiagnosticsDisplay": "partirvm.report.display",
    "FitCallback": "partirvm.estimators.callbacks",
    "RVMClassifier": "partirvm.estimators",
    "RVMRegressor": "partirvm.estimators",
    "allow_protocols": "partirvm.storage.address",
    "ingest": "partirvm.data",
    "load_model": "partirvm.estimators",
    "open_job": "partirvm.jobs",
    "plan": "partirvm.estimators",
    "save_model": "partirvm.estimators",
    "submit": "partirvm.estimators",
}

_VALUES = (
    "AlphaPrior",
    "Incremental",
    "Noise",
    "Radial",
    "SplitMerge",
    "WorkingSet",
)
"""Options as values, which estimators are given."""

_FAMILIES = ("Categorical", "Gaussian", "Laplacian", "Matern32", "Matern52", "Polynomial", "Sigmoid")

_HOMES.update(dict.fromkeys(_VALUES, "partirvm.options.values"))
_HOMES.update(dict.fromkeys(_FAMILIES, "partirvm.kernels"))

__all__ = [
    "DiagnosticsDisplay",
    "FitCallback",
    "RVMClassifier",
    "RVMRegressor",
    "__version__",
    "allow_protocols",
    "ingest",
]
__all__ += ["load_model", "open_job", "plan", "save_model", "submit"]
__all__ += [
    "AlphaPrior",
    "Categorical",
    "Gaussian",
    "Incremental",
    "Laplacian",
    "Matern32",
    "Matern52",
    "Noise",
    "Polynomial",
    "Radial",
    "Sigmoid",
    "SplitMerge",
    "WorkingSet",
]

if TYPE_CHECKING:
    from partirvm.data import ingest
    from partirvm.estimators import RVMClassifier, RVMRegressor, load_model, plan, save_model, submit
    from partirvm.estimators.callbacks import FitCallback
    from partirvm.jobs import open_job
    from partirvm.kernels import Categorical, Gaussian, Laplacian, Matern32, Matern52, Polynomial, Sigmoid
    from partirvm.options.values import (
        AlphaPrior,
        Incremental,
        Noise,
        Radial,
        SplitMerge,
        WorkingSet,
    )
    from partirvm.report.display import DiagnosticsDisplay
    from partirvm.storage.address import allow_protocols


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
