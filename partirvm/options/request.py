"""The request: every option of a fit with its default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Request:
    """What a user asks of a fit: names, defaults and meaning are those of ``RVMRegressor``, and go into a job's spec.

    ``kernel`` is a name, a function's ``module:function``, a kernel or its spec, or a callable, which no job can hold;
    or a list of such, which centres have side by side; None and "none" stand for no kernel. ``basis`` is "linear", a
    function's ``module:function``, a callable or a transformer, which no job can hold, or a list of such. ``gamma`` is
    a rule's name, a number or one number per feature, ``gamma_multiples`` by what it is multiplied in each of several
    kernels, ``gamma_prior`` that of those learned; ``time_limit`` is seconds or a text such as ``1h``; ``memory_limit``
    bytes or a text such as ``512MiB``, of each process. ``likelihood_rows`` and ``noise_rows`` are numbers of rows,
    ``noise_every`` of iterations; ``multi_output`` says what several targets share; ``heuristic_rows`` caps the rows
    that measure ρ. ``classify`` says that the target is to be a class, or a number; None that the data know.
    ``kernel_store`` says where kernel blocks are kept between
    passes ("auto", "memory", "zarr" or "none"), and changes no result.
    """

    kernel: Any = "gaussian"
    gamma: Any = "auto"
    gamma_multiples: tuple[float, ...] = (1.0,)
    gamma_prior: str = "flat"
    basis: Any = None
    strategy: str = "auto"
    partition_size: int | str = "auto"
    likelihood: str = "auto"
    final_likelihood: str = "full"
    likelihood_rows: int | str = "auto"
    noise_rows: int | None = None
    noise_every: int = 1
    selection: str = "auto"
    solver: str = "auto"
    noise_variance: float | str = "estimate"
    alpha_prior: tuple[float, float] = (0.0, 0.0)
    noise_prior: tuple[float, float] = (0.0, 0.0)
    updates: str = "mackay"
    fixed_alpha: Mapping[str, float] | None = None
    multi_output: str = "shared"
    fit_intercept: bool = True
    standardize: bool = True
    stop_fraction: float = 0.5
    stop_rule: str = "candidates"
    max_vectors: int | None = None
    max_rounds: int | None = None
    time_limit: float | str | None = None
    memory_limit: int | str = "auto"
    tol: float = 1e-7
    heuristic_rows: int = 2000
    classify: bool | None = None
    multi_class: str = "auto"
    moderate: bool | str = "auto"
    class_weight: Any = None
    kernel_store: str = "auto"
    seed: int = 0
