"""A user's kernel is exported with its own operations, or refused, never exported with other
operations."""

from dataclasses import dataclass

import numpy as np
import onnxruntime
import pytest
from exported import numpy_export
from numpy.random import default_rng
from numpy.testing import assert_allclose

from partirvm import RVMRegressor, kernels
from partirvm.errors import UsageError
from partirvm.kernels import KERNELS, Directions, Family, Kernel, RadialKernel
from partirvm.kernels.nonradial import PreparedSteps
from partirvm.kernels.radial import PreparedRadial
from partirvm.learning.forms import with_family
from partirvm.local import Metric
from partirvm.model import Model
from partirvm.scaling import Scaling
from partirvm.types import Columns


@dataclass(frozen=True, repr=False)
class RationalQuadratic(RadialKernel, name="rational-quadratic"):
    """1/(1 + r²), defined by the recipe for families in CONTRIBUTING."""

    def value(self, work):
        """Replace −r² by k."""
        np.minimum(work, 0.0, out=work)
        np.divide(1.0, 1.0 - work, out=work)

    def slope(self, work, values):
        """Replace −r² by ∂k/∂r² = −k²."""
        np.multiply(values, -values, out=work)


@dataclass(frozen=True, repr=False)
class ExportedQuadratic(RationalQuadratic, name="exported-quadratic"):
    """The same kernel with its operations."""

    def operations(self, x, Z):
        """Return 1/(1 + r²) as operations."""
        return 1.0 / (1.0 + self.squares(x, Z))


@dataclass(frozen=True, repr=False)
class Narrower(kernels.Gaussian, name="narrower-gaussian"):
    """A subclass of an exportable kernel, with other values."""

    def value(self, work):
        """Replace −r² by exp(−2r²)."""
        np.exp(2.0 * np.minimum(work, 0.0), out=work)

    def slope(self, work, values):
        """Replace −r² by ∂k/∂r² = −2k."""
        np.multiply(values, -2.0, out=work)


@dataclass(frozen=True, repr=False)
class Steps(kernels.Laplacian, name="other-steps", form=PreparedSteps):
    """An unchanged subclass, which is also refused because nobody has checked its values."""


@dataclass(frozen=True, repr=False)
class Rings(Family, name="rings", form=PreparedRadial, decreasing=False):
    """A family that does not decrease."""

    def value(self, work):
        """Replace −r² by cos r."""
        np.cos(np.sqrt(np.maximum(-work, 0.0)), out=work)


@dataclass(frozen=True)
class Unknown(Kernel, name="unknown-operation"):
    """A kernel with an operation that no format has."""

    def operations(self, x, Z):
        """Return arctan as an operation."""
        return np.arctan(x @ Z.T)


OWN = [RationalQuadratic(0.5), Narrower(0.5), Steps(0.5), Rings(0.5)]

for _kernel in (*OWN, ExportedQuadratic(0.5), Unknown()):
    KERNELS.pop(_kernel.name)  # other tests use every registered kernel


def nested(kernel):
    """Return kernels that contain this one."""
    pair = kernels.OnColumns(kernel, (1, 0))
    return [
        kernel,
        pair,
        kernels.Sum((kernels.Gaussian(0.2), kernel)),
        kernels.Product((kernels.Gaussian(0.2), pair)),
        kernels.Several((kernels.Gaussian(0.2), kernel)),
    ]


def model_of(kernel):
    """Return a model of two features with this kernel."""
    rng = default_rng(1)
    m = 4
    count = len(getattr(kernel, "kernels", (kernel,)))
    scaling = Scaling(np.array([0.2, -1.0]), np.array([1.5, 0.8]), np.array([3.0]), np.array([0.8]))
    design = kernels.design.Design(
        kernel, scaling, rng.normal(size=(m, 2)), np.arange(m) * count + count - 1, True
    )
    root = 0.1 * np.eye(m + 1)
    weights = rng.normal(size=m + 1)
    columns = Columns(("a", "b"))
    alpha = np.ones(m + 1)
    facts = {"noise_variance": 0.01, "evidence_noise": 0.01, "known_noise": True}
    return Model(
        design, weights, root, alpha, 0.0, 100, columns, known_alpha=tuple(range(m + 1)), **facts
    )


ROWS = default_rng(2).normal(size=(20, 2)) * 2


@pytest.mark.parametrize("form", ["to_c", "to_numpy", "to_onnx"])
@pytest.mark.parametrize("kernel", OWN, ids=lambda kernel: kernel.name)
def test_a_users_kernel_without_operations_is_refused_by_name(kernel, form, tmp_path):
    """Kernels that contain it are refused as well; nothing is written."""
    for each in nested(kernel):
        with pytest.raises(
            UsageError, match=rf"kernel '{kernel.name}' cannot be exported: .*`operations`"
        ):
            getattr(model_of(each), form)(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_a_users_kernel_with_operations_is_exported(tmp_path):
    """All formats agree with the model, whose kernel is 1/(1 + r²)."""
    for kernel in nested(ExportedQuadratic(0.5)):
        model = model_of(kernel)
        expected = model.predict(ROWS)
        assert_allclose(numpy_export(model, tmp_path)(ROWS)["mean"], expected, atol=1e-10)
        model.to_c(tmp_path / "model.h")
        model.to_onnx(tmp_path / "model.onnx", dtype="float64")
        session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
        assert_allclose(session.run(["mean"], {"X": ROWS})[0][:, 0], expected, atol=1e-10)
    model = model_of(ExportedQuadratic(0.5))
    u, v = (model.design.scaling.inputs(each) for each in (ROWS, model.design.centres))
    values = 1.0 / (1.0 + 0.5 * ((u[:, None] - v) ** 2).sum(axis=2))
    assert_allclose(
        model.predict(ROWS), 3.0 + 0.8 * (model.mean[0] + values @ model.mean[1:]), atol=1e-12
    )


@pytest.mark.parametrize("form", ["to_c", "to_numpy", "to_onnx"])
def test_an_operation_that_no_format_supports_is_refused(form, tmp_path):
    with pytest.raises(UsageError, match=r"operation 'Arctan'.*export\.graph"):
        getattr(model_of(Unknown()), form)(tmp_path / "model.h")


def test_functions_cannot_be_exported(tmp_path):
    kernel = kernels.FunctionKernel(lambda points, centres: points @ centres.T)
    with pytest.raises(UsageError, match="kernel 'function' cannot be exported"):
        model_of(kernel).to_numpy(tmp_path / "model.npz")


def test_shapley_values_for_a_users_kernel_are_sampled():
    """The kernel may be derived from one that is a product over inputs."""
    found = model_of(Narrower(0.5)).explain(ROWS[:3], ROWS[3:9])
    assert found["error_std"] is not None
    assert_allclose(
        found["values"].sum(axis=1) + found["base_values"],
        model_of(Narrower(0.5)).predict(ROWS[:3]),
    )


def test_gradients_of_a_users_kernel_follow_its_slope():
    """They equal finite differences, also if the kernel is derived from the Gaussian."""
    X = ROWS[:4]
    step = 1e-5
    for kernel in (RationalQuadratic(0.5), Narrower(0.5)):
        model = model_of(kernel)
        found = model.predict(X, return_gradient=True)[1]
        for j in range(2):
            move = step * np.eye(2)[j]
            expected = (model.predict(X + move) - model.predict(X - move)) / (2 * step)
            assert_allclose(found[:, j], expected, rtol=1e-6, atol=1e-7)


def test_a_fitted_estimator_with_a_users_kernel_is_exported_or_refused(tmp_path):
    rng = default_rng(0)
    X = rng.normal(size=(150, 2))
    y = np.sin(X[:, 0]) + 0.3 * rng.normal(size=150)
    model = RVMRegressor(kernel=RationalQuadratic(0.1), random_state=0).fit(X, y)
    with pytest.raises(UsageError, match="rational-quadratic"):
        model.to_c(tmp_path / "m.h")


def test_a_users_radial_kernel_is_handled_correctly_everywhere() -> None:
    """It accepts directions, its family can be exchanged, and neighbours use its distance."""
    kernel = RationalQuadratic((0.5, 2.0))
    axes = ((1.0, 1.0), (0.0, 1.0))
    turned = Directions(RationalQuadratic(0.25), axes)
    X = ROWS[:5]
    r2 = 0.25 * ((X @ np.array(axes).T - X[0] @ np.array(axes).T) ** 2).sum(axis=1)
    np.testing.assert_allclose(turned.values(X, X[:1])[:, 0], 1 / (1 + r2), rtol=1e-12)
    assert with_family(kernel, "matern32", 2) == kernels.Matern32((0.25, 1.0))
    metric = Metric.of(model_of(kernel).design, Columns(("a", "b")))
    np.testing.assert_allclose(metric.axes, np.diag(np.sqrt([0.5, 2.0])))


def test_local_residuals_with_a_users_radial_kernel() -> None:
    """Nearby rows correct a wide kernel; the correction is not silently omitted."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(400, 2))
    y = np.sin(5 * X[:, 0]) * np.cos(5 * X[:, 1]) + 0.05 * rng.normal(size=400)
    kernel = RationalQuadratic(0.1)
    near = RVMRegressor(kernel=kernel, residual="local", max_vectors=10, random_state=0)
    near.fit(X[:300], y[:300])
    assert near.model_.residuals is not None
    errors = near.predict(X[300:]) - y[300:]
    uncorrected = near.model_.sparse().predict(X[300:]) - y[300:]
    assert np.mean(errors**2) < np.mean(uncorrected**2)
