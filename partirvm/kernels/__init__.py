"""Kernels and design matrices: pure NumPy functions that compute blocks of the design matrix from
coordinates.

``Gaussian(0.5)`` is a kernel; ``Gaussian("learn")`` is a ``kernel`` option of an estimator, which
learns it.
"""

from partirvm.kernels.anova import Anova
from partirvm.kernels.base import KERNELS, Family, Kernel, NoKernel, kernel_from_spec
from partirvm.kernels.composed import OnColumns, Product, Several, Sum
from partirvm.kernels.design import NONE, Design, LocalNoise
from partirvm.kernels.functions import Basis, FunctionKernel
from partirvm.kernels.nonradial import Categorical, Laplacian, Linear, LinearSpline, Polynomial
from partirvm.kernels.radial import Directions, Gaussian, Matern32, Matern52, RadialKernel

__all__ = [
    "KERNELS",
    "NAMES",
    "NONE",
    "WITH_GAMMA",
    "Basis",
    "Categorical",
    "Design",
    "Directions",
    "Family",
    "FunctionKernel",
    "Gaussian",
    "Kernel",
    "Laplacian",
    "Linear",
    "LinearSpline",
    "LocalNoise",
    "Matern32",
    "Matern52",
    "NoKernel",
    "OnColumns",
    "Polynomial",
    "Product",
    "RadialKernel",
    "Several",
    "Sum",
    "kernel_from_spec",
]

WITH_GAMMA: dict[str, type[Family]] = {
    family.name: family
    for family in (Gaussian, Laplacian, Matern32, Matern52, Polynomial, Categorical, Anova)
}
"""Kernels that are fully specified by a name and gamma."""

NAMES: dict[str, type[Kernel]] = {
    **WITH_GAMMA,
    Linear.name: Linear,
    LinearSpline.name: LinearSpline,
}
"""Kernels that can be selected by name alone."""
