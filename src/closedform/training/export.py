"""A model, its loss and an update rule as three files: how to begin, one step, and the forward."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, helper, numpy_helper

from closedform.compiler import (
    CLOCK,
    compile_evaluation,
    compile_init,
    compile_schedule,
    compile_step,
)
from closedform.errors import ExportError
from closedform.exporters.onnx_join import join_models, renamed
from closedform.exporters.onnx_model import IR_VERSION, to_model, write_models
from closedform.ir.types import Shape
from closedform.language import Schedule, UpdateRule
from closedform.lowering.rule import EVALUATION
from closedform.training.session import (
    EVAL_FILE,
    INIT_FILE,
    LEARNING_RATE,
    LOSS,
    TRAIN_FILE,
)
from closedform.version import __version__

if TYPE_CHECKING:
    import torch


def export(
    model: torch.nn.Module,
    loss: Callable[..., torch.Tensor],
    example_inputs: Sequence[torch.Tensor],
    rule: UpdateRule,
    path: str | os.PathLike[str],
    *,
    opset: int = 21,
    scalar_dtype: str = "f64",
) -> dict[str, ModelProto]:
    """Writes one training step of a model as ``train.onnx``, with ``init.onnx`` and ``eval.onnx``.

    ``train.onnx`` is ``(step, param.*, state.*, shared.*, buffer.*, batch.*, random.*) ->
    (next.step, next.param.*, next.state.*, next.shared.*, next.buffer.*, loss, learning_rate)``.
    Its random inputs are uniform numbers in [0, 1), one for each dropout; hyperparameters of the
    rule without a value are inputs under their names. ``init.onnx`` takes nothing and gives the
    step, the parameters as they are now, the buffers and the first states. ``eval.onnx`` is the
    forward in evaluation mode, at the rule's point of evaluation where it has one (averages,
    schedule-free). Every size of batch will do.

    Args:
        model: A module; frozen parameters (``requires_grad=False``) stay as they are.
        loss: Called with the model's output and the last tensors of the batch, one for each further
            parameter without a default; returns a scalar tensor.
        example_inputs: A batch of two rows or more, such as ``(images, labels)``.
        rule: The update rule; schedules in it are inside the graph.
        path: The folder, made if it does not exist.
        opset: ONNX opset.
        scalar_dtype: In what schedules and bias corrections are computed: ``"f64"``, or ``"f32"``
            for devices without float64.

    Returns:
        The checked models by file name.

    Raises:
        ExportError: torch cannot trace the model, an operator has no ONNX form, a parameter is not
            float32 or float64, or the folder cannot be made.

    Source: torch.fx traces the step, torch's own exporter writes the operators.
    """
    from closedform.torch.trace import trace

    if not isinstance(rule, UpdateRule):
        raise ExportError(
            f"rule must be an UpdateRule, got {type(rule).__name__}",
            hint="make one with closedform.optimizers",
        )
    traced = trace(model, loss, example_inputs, opset=opset)
    shapes = {name: array.shape for name, array in traced.params.items()}
    dtype = _dtype(traced.params)
    facts = {
        "closedform.version": __version__,
        "closedform.clock": CLOCK,
        "closedform.rule": rule.name,
        "closedform.model": type(model).__name__,
    }
    step = compile_step(rule, shapes, dtype=dtype, scalar_dtype=scalar_dtype)
    update = to_model(step, opset=opset)
    parts = {"model": traced.step, "update": update}
    rate = _learning_rate(rule, opset, scalar_dtype)
    if rate is not None:
        parts["schedule"] = rate
    carried = [value.name for value in update.graph.output]
    outputs = [*carried, *(f"next.buffer.{name}" for name in traced.changed), LOSS]
    if rate is not None:
        outputs.append(LEARNING_RATE)
    start = to_model(compile_init(rule, shapes, dtype=dtype), opset=opset)
    values = _constants(traced.params, traced.buffers, opset)
    begun = [output.name for of in (values, start) for output in of.graph.output]
    models = {
        TRAIN_FILE: join_models(parts, "train", outputs=outputs, metadata=facts),
        INIT_FILE: join_models(
            {"values": values, "states": start}, "init", outputs=begun, metadata=facts
        ),
        EVAL_FILE: _evaluation(rule, traced.forward, shapes, (dtype, scalar_dtype), opset),
    }
    hint = "a training step is written as three files: name a folder for them"
    write_models(models, Path(path), hint)
    return models


def _dtype(params: Mapping[str, NDArray[Any]]) -> str:
    dtypes = sorted({str(array.dtype) for array in params.values()})
    names = {"float32": "f32", "float64": "f64"}
    if len(dtypes) != 1 or dtypes[0] not in names:
        raise ExportError(
            f"all parameters must be float32, or all float64, got {', '.join(dtypes)}",
            hint="convert the model with model.float()",
        )
    return names[dtypes[0]]


def _learning_rate(rule: UpdateRule, opset: int, dtype: str) -> ModelProto | None:
    """The learning rate as a model of its own; None if it is an input, or the rule has none."""
    value = rule.hyperparameters.get("lr")
    if value is None:
        return None
    schedule = value if isinstance(value, Schedule) else Schedule(value, name="lr")
    graph = compile_schedule(schedule, dtype=dtype, scalar_dtype=dtype)
    model = to_model(graph, opset=opset)
    return renamed(model, {model.graph.output[0].name: LEARNING_RATE})


def _evaluation(
    rule: UpdateRule,
    forward: ModelProto,
    shapes: Mapping[str, Shape],
    dtypes: tuple[str, str],
    opset: int,
) -> ModelProto:
    """The forward at the point of evaluation of the rule, where it has one."""
    parts = {"model": forward}
    if rule.evaluation is not None:
        dtype, scalar = dtypes
        graph = compile_evaluation(rule, shapes, dtype=dtype, scalar_dtype=scalar)
        point = to_model(graph, opset=opset)
        at_point = {f"param.{name}": f"{EVALUATION}.{name}" for name in shapes}
        parts = {"point": point, "model": renamed(forward, at_point)}
    outputs = [output.name for output in forward.graph.output]
    return join_models(parts, "eval", outputs=outputs)


def _constants(
    params: Mapping[str, NDArray[Any]], buffers: Mapping[str, NDArray[Any]], opset: int
) -> ModelProto:
    """A model without inputs that gives parameters and buffers."""
    named = {f"param.{name}": array for name, array in params.items()}
    named |= {f"buffer.{name}": array for name, array in buffers.items()}
    nodes, outputs, initializers = [], [], []
    for name, array in named.items():
        value = np.ascontiguousarray(array).reshape(array.shape)
        initializers.append(numpy_helper.from_array(value, f"value/{name}"))
        nodes.append(helper.make_node("Identity", [f"value/{name}"], [name]))
        element = helper.np_dtype_to_tensor_dtype(array.dtype)
        outputs.append(helper.make_tensor_value_info(name, element, array.shape))
    graph = helper.make_graph(nodes, "values", [], outputs, initializer=initializers)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR_VERSION
    )
