"""The words that options take, as types: a type checker refuses any other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

Selection: TypeAlias = Literal["auto", "error", "largest-error", "random", "gain"]
FitRows: TypeAlias = Literal["auto", "full", "growing", "sample"]
SolverName: TypeAlias = Literal["auto", "fixed-point", "fast"]
Actions: TypeAlias = Literal["best", "random"]
GammaRule: TypeAlias = Literal["auto", "scale", "learn", "learn-per-feature"]
Gamma: TypeAlias = GammaRule | float | Sequence[float]
GammaPrior: TypeAlias = Literal["flat", "half-normal"]
MultiOutput: TypeAlias = Literal["shared", "independent"]
MultiClass: TypeAlias = Literal["auto", "pooled", "multinomial", "ovr"]
Metric: TypeAlias = Literal["auto", "widths", "directions"]
KernelStore: TypeAlias = Literal["auto", "memory", "zarr", "none"]
Effort: TypeAlias = Literal["quick", "balanced", "thorough"]
Reference: TypeAlias = Literal["auto", "none"]
NoiseForm: TypeAlias = Literal["auto", "constant", "local"]
Auto: TypeAlias = Literal["auto"]
Estimate: TypeAlias = Literal["estimate"]
