"""Converters for skl2onnx (sklearn-onnx), which convert pipelines that end in a partirvm estimator
to ONNX."""

from typing import Any

from partirvm.estimators import RVMClassifier, RVMRegressor
from partirvm.export.graph import graph_of
from partirvm.export.onnx_file import LACKING, OPSET, onnx_model


def register() -> None:
    """Register both estimators with skl2onnx, whose ``convert_sklearn`` and ``to_onnx`` then accept
    them.

    A regressor has the output ``mean``, or the outputs named in the conversion option ``outputs``,
    for example ``options={RVMRegressor: {"outputs": ("mean", "lower", "upper")}}``. A classifier
    has a label and probabilities, and supports skl2onnx's options ``zipmap`` and
    ``output_class_labels``. Requires the package skl2onnx.

    Examples
    --------
    >>> from partirvm.integrations.skl2onnx import register
    >>> register()  # doctest: +SKIP
    """
    from skl2onnx import update_registered_converter as update
    from skl2onnx.common.shape_calculator import calculate_linear_classifier_output_shapes as shapes

    options = {
        "zipmap": [True, False, "columns"],
        "output_class_labels": [False, True],
        "nocl": [True, False],
    }
    update(RVMClassifier, "PartirvmClassifier", shapes, _convert, options=options)
    declared = {"parser": _parse, "options": {"outputs": None}}  # _parse declares the shapes
    update(RVMRegressor, "PartirvmRegressor", lambda operator: None, _convert, **declared)


def _parse(scope: Any, model: Any, inputs: Any, custom_parsers: Any = None) -> Any:
    """Declare the operator of a regressor, and its outputs, which keep their names."""
    from skl2onnx.common.data_types import guess_tensor_type

    operator = scope.declare_local_operator("PartirvmRegressor", model)
    operator.inputs = inputs
    for name in scope.get_options(model, {"outputs": ("mean",)})["outputs"]:
        operator.outputs.append(
            scope.declare_local_variable(name, guess_tensor_type(inputs[0].type))
        )
        operator.outputs[-1].type.shape = [None, model.model_.n_targets]
    return operator.outputs


def _convert(scope: Any, operator: Any, container: Any) -> None:
    """Append the nodes of the estimator's graph, under names that no other operator has."""
    double = type(operator.inputs[0].type).__name__ == "DoubleTensorType"
    graph = graph_of(
        operator.raw_operator, [output.raw_name for output in operator.outputs], lacking=LACKING
    )
    own = {"X": operator.inputs[0].onnx_name} | {
        output.raw_name: output.onnx_name for output in operator.outputs
    }
    prefix = scope.get_unique_operator_name("rvm")
    made = onnx_model(
        graph, "float64" if double else "float32", lambda name: own.get(name, f"{prefix}_{name}")
    ).graph
    container.initializers.extend(made.initializer)
    container.nodes.extend(made.node)
    container.node_domain_version_pair_sets.add(("", OPSET))
