"""A user's kernel is exported with its own formula, or refused: never with that of another
kernel."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime
import pytest

from partirvm import RVMRegressor, kernels
from partirvm.errors import UsageError
from partirvm.kernels.base import KERNELS, Family, Kernel
from partirvm.kernels.nonradial import PreparedSteps
from partirvm.kernels.radial import PreparedRadial
from partirvm.model import Model
from partirvm.scaling.maps import Scaling
from partirvm.types import Columns


@dataclass(frozen=True, repr=False)
class RationalQuadratic(Family, name="rational-quadratic", form=PreparedRadial):
    """1/(1 + r²), by the recipe for families in CONTRIBUTING."""

    def value(self, work):
        """Replace −r² by k."""
        np.minimum(work, 0.0, out=work)
        np.divide(1.0, 1.0 - work, out=work)

    def slope(self, work, values):
        """Replace −r² by ∂k/∂r² = −k²."""
        np.multiply(values, -values, out=work)


@dataclass(frozen=True, repr=False)
class ExportedQuadratic(RationalQuadratic, name="exported-quadratic"):
    """The same with its operations."""

    def operations(self, x, Z):
        """1/(1 + r²)."""
        return 1.0 / (1.0 + self.squares(x, Z))


@dataclass(frozen=True, repr=False)
class Narrower(kernels.Gaussian, name="narrower-gaussian"):
    """A subclass of a kernel that can be exported, with other values."""

    def value(self, work):
        """Replace −r² by exp(−2r²)."""
        np.exp(2.0 * np.minimum(work, 0.0), out=work)

    def slope(self, work, values):
        """Replace −r² by ∂k/∂r² = −2k."""
        np.multiply(values, -2.0, out=work)


@dataclass(frozen=True, repr=False)
class Steps(kernels.Laplacian, name="other-steps", form=PreparedSteps):
    """A subclass without any change is refused, too: nobody checks what its values are."""


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
        """arctan."""
        return np.arctan(x @ Z.T)


OWN = [RationalQuadratic(0.5), Narrower(0.5), Steps(0.5), Rings(0.5)]

for _kernel in (*OWN, ExportedQuadratic(0.5), Unknown()):
    KERNELS.pop(_kernel.name)  # other tests use every registered kernel


def nested(kernel: Any) -> list[Any]:
    """Return kernels that contain this one."""
    pair = kernels.OnColumns(kernel, (1, 0))
    return [
        kernel,
        pair,
        kernels.Sum((kernels.Gaussian(0.2), kernel)),
        kernels.Product((kernels.Gaussian(0.2), pair)),
        kernels.Several((kernels.Gaussian(0.2), kernel)),
    ]


def model_of(kernel: Any) -> Any:
    """Return a model of two features with this kernel."""
    rng = np.random.default_rng(1)
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
    facts: dict[str, Any] = {"noise_variance": 0.01, "evidence_noise": 0.01, "known_noise": True}
    return Model(
        design, weights, root, alpha, 0.0, 100, columns, known_alpha=tuple(range(m + 1)), **facts
    )


ROWS = np.random.default_rng(2).normal(size=(20, 2)) * 2


@pytest.mark.parametrize("form", ["to_c", "to_numpy", "to_onnx"])
@pytest.mark.parametrize("kernel", OWN, ids=lambda kernel: kernel.name)
def test_a_users_kernel_is_refused_by_name(kernel: Any, form: str, tmp_path: Any) -> None:
    """Also inside sums, products, kernels on columns and several kernels; nothing is written."""
    for each in nested(kernel):
        with pytest.raises(
            UsageError, match=rf"kernel '{kernel.name}' cannot be exported: .*`operations`"
        ):
            getattr(model_of(each), form)(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_a_users_kernel_with_operations_is_exported(tmp_path: Any) -> None:
    """The three formats agree with the model; its values are those of 1/(1 + r²)."""
    for number, kernel in enumerate(nested(ExportedQuadratic(0.5))):
        model = model_of(kernel)
        name = f"model{number}"
        expected = model.predict(ROWS)
        model.to_numpy(tmp_path / f"{name}.npz")
        model.to_c(tmp_path / f"{name}.h")
        model.to_onnx(tmp_path / f"{name}.onnx", dtype="float64")
        spec = importlib.util.spec_from_file_location("reader", tmp_path / f"{name}_predict.py")
        reader = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(reader)
        np.testing.assert_allclose(
            reader.load(tmp_path / f"{name}.npz")(ROWS)["mean"], expected, atol=1e-10
        )
        session = onnxruntime.InferenceSession(tmp_path / f"{name}.onnx")
        np.testing.assert_allclose(
            session.run(["mean"], {"X": ROWS})[0][:, 0], expected, atol=1e-10
        )
    model = model_of(ExportedQuadratic(0.5))
    u, v = (model.design.scaling.inputs(each) for each in (ROWS, model.design.centres))
    values = 1.0 / (1.0 + 0.5 * ((u[:, None] - v) ** 2).sum(axis=2))
    np.testing.assert_allclose(
        model.predict(ROWS), 3.0 + 0.8 * (model.mean[0] + values @ model.mean[1:]), atol=1e-12
    )


@pytest.mark.parametrize("form", ["to_c", "to_numpy", "to_onnx"])
def test_an_operation_that_no_format_has_is_refused(form: str, tmp_path: Any) -> None:
    with pytest.raises(UsageError, match=r"operation 'Arctan'.*export\.graph"):
        getattr(model_of(Unknown()), form)(tmp_path / "model.h")


def test_functions_are_refused(tmp_path: Any) -> None:
    kernel = kernels.FunctionKernel(lambda points, centres: points @ centres.T)
    with pytest.raises(UsageError, match="kernel 'function' cannot be exported"):
        model_of(kernel).to_numpy(tmp_path / "model.npz")


def test_shapley_values_of_a_users_kernel_are_sampled() -> None:
    """It is no product over inputs, although its class comes from one that is."""
    found = model_of(Narrower(0.5)).explain(ROWS[:3], ROWS[3:9])
    assert found["error_std"] is not None
    np.testing.assert_allclose(
        found["values"].sum(axis=1) + found["base_values"],
        model_of(Narrower(0.5)).predict(ROWS[:3]),
    )


def test_gradients_of_a_users_kernel_are_those_of_its_slope() -> None:
    """By differences; a kernel derived from the Gaussian has another slope."""
    X = ROWS[:4]
    step = 1e-5
    for kernel in (RationalQuadratic(0.5), Narrower(0.5)):
        model = model_of(kernel)
        found = model.predict(X, return_gradient=True)[1]
        for j in range(2):
            move = step * np.eye(2)[j]
            expected = (model.predict(X + move) - model.predict(X - move)) / (2 * step)
            np.testing.assert_allclose(found[:, j], expected, rtol=1e-6, atol=1e-7)


def test_a_fitted_estimator_with_a_users_kernel(tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 2))
    y = np.sin(X[:, 0]) + 0.3 * rng.normal(size=150)
    model = RVMRegressor(kernel=RationalQuadratic(0.1), random_state=0).fit(X, y)
    with pytest.raises(UsageError, match="rational-quadratic"):
        model.to_c(tmp_path / "m.h")
