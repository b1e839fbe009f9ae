"""A model, its loss and an update rule as three files: initial state, training step, forward."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
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
    has_evaluation,
)
from closedform.errors import ExportError
from closedform.exporters.onnx_join import join_models, renamed
from closedform.exporters.onnx_model import to_model, write_models
from closedform.exporters.onnx_versions import lowest_ir_version
from closedform.ir import naming
from closedform.ir.types import DType
from closedform.language import Schedule, UpdateRule
from closedform.language.functions import STORED
from closedform.options import GraphOptions, ModelSpec
from closedform.runtime.onnx_session import open_session, run_into
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
    compute_dtype: str | None = None,
    validate: bool = True,
) -> dict[str, ModelProto]:
    """Writes one training step of a model as ``train.onnx``, with ``init.onnx`` and ``eval.onnx``.

    ``train.onnx`` is ``(step, param.*, state.*, shared.*, buffer.*, batch.*, random.*) ->
    (next.step, next.param.*, next.state.*, next.shared.*, next.buffer.*, loss, learning_rate)``.
    Its random inputs are uniform numbers in [0, 1), one for each dropout; hyperparameters of the
    rule without a value are inputs with their names. ``init.onnx`` has no inputs and returns the
    step, the current parameters, the buffers and the initial states. ``eval.onnx`` is the
    forward in evaluation mode, at the rule's point of evaluation if it has one (averages,
    schedule-free). The batch size is free.

    A model in 16 bits is trained by a rule with ``transforms.master_weights`` of its dtype: the
    masters are states. Where the rule has a dynamic loss scale, the loss is multiplied by it before
    its gradients are computed; the loss that a step returns is not scaled.

    Args:
        model: A module; frozen parameters (``requires_grad=False``) stay as they are.
        loss: Called with the model's output and the last tensors of the batch, one for each further
            parameter without a default; returns a scalar tensor.
        example_inputs: A batch of two rows or more, such as ``(images, labels)``.
        rule: The update rule; schedules in it are inside the graph.
        path: The folder, made if it does not exist.
        opset: ONNX opset.
        scalar_dtype: The dtype of schedules and bias corrections: ``"f64"``, or ``"f32"`` for
            devices without float64.
        compute_dtype: The dtype of the forward and backward of a model in 16 bits: None for that
            of its parameters, ``"f32"`` for float32 with only parameters and gradients in 16 bits.
        validate: Whether to prove that the update is the rule; the verdicts go to the metadata.

    Returns:
        The checked models by file name.

    Raises:
        ExportError: torch cannot trace the model, an operator has no ONNX form, or in bfloat16 no
            kernel, the parameters are not of the one dtype that the rule is for, or the folder
            cannot be made.

    Source: torch.fx traces the step, torch's own exporter writes the operators.
    """
    from closedform.training.tracing.trace import LOSS_SCALE, trace

    if not isinstance(rule, UpdateRule):
        raise ExportError(
            f"rule must be an UpdateRule, got {type(rule).__name__}",
            hint="make one with closedform.optimizers",
        )
    where = f"model {type(model).__name__}"
    if not hasattr(model, "named_parameters"):
        raise ExportError(
            f"model must be a torch.nn.Module, got {type(model).__name__}",
            hint="make its parameters those of a module",
        )
    trained = (param for param in model.parameters() if param.requires_grad)
    dtype = _dtype({str(param.dtype) for param in trained}, rule, where)
    if compute_dtype is not None and (compute_dtype != "f32" or rule.stored is None):
        raise ExportError(
            f"compute_dtype must be 'f32', for a model in 16 bits, got {compute_dtype!r} for one "
            f"in {rule.stored or dtype}",
            where=where,
            hint="leave it out, and forward and backward run in the dtype of the model",
        )
    options = GraphOptions(dtype=dtype, scalar_dtype=scalar_dtype)
    traced = trace(
        model,
        loss,
        example_inputs,
        opset=opset,
        is_widened=compute_dtype is not None,
        scale_dtype=options.scalar_dtype if LOSS_SCALE in rule.shared else None,
    )
    shapes = {name: array.shape for name, array in traced.params.items()}
    facts = {
        "closedform.version": __version__,
        "closedform.clock": CLOCK,
        "closedform.rule": rule.name,
        "closedform.model": type(model).__name__,
    }
    spec = ModelSpec(rule, shapes)
    step = compile_step(spec, options)
    update = to_model(step, opset=opset)
    parts = {"model": traced.step, "update": update}
    rate = _learning_rate(rule, opset, options.scalar_dtype)
    if rate is not None:
        parts["schedule"] = rate
    carried = [value.name for value in update.graph.output]
    outputs = [*carried, *(naming.following(naming.buffer(name)) for name in traced.changed), LOSS]
    if rate is not None:
        outputs.append(LEARNING_RATE)
    start = to_model(compile_init(spec, options), opset=opset)
    if validate:
        from closedform.verify.translation.artefact import validate_rule

        own = {"step": update, "init": start}
        validate_rule(spec, options, own)
    values = _constants(traced.params, traced.buffers, opset)
    begun = [output.name for of in (values, start) for output in of.graph.output]
    models = {
        TRAIN_FILE: join_models(parts, "train", outputs=outputs, metadata=facts | _verdict(update)),
        INIT_FILE: join_models(
            {"values": values, "states": start},
            "init",
            outputs=begun,
            metadata=facts | _verdict(start),
        ),
        EVAL_FILE: _evaluation(spec, options, traced.forward, opset),
    }
    if rule.stored is not None:
        _try(models, rule.stored, where)
    hint = "a training step is written as three files: name a folder for them"
    write_models(models, Path(path), hint)
    return models


def _verdict(part: ModelProto) -> dict[str, str]:
    """The metadata that validation wrote to a part, as entries of the whole."""
    return {f"{entry.key}.rule": entry.value for entry in part.metadata_props}


_WORDS = {
    "torch.float32": "f32",
    "torch.float64": "f64",
    "torch.float16": "f16",
    "torch.bfloat16": "bf16",
}


def _dtype(found: Collection[str], rule: UpdateRule, where: str) -> str:
    """The dtype that a rule computes in for parameters of these dtypes."""
    if not found:
        return "f32"  # no parameter is trained: the trace raises the error
    listed, known = (", ".join(names).replace("torch.", "") for names in (sorted(found), _WORDS))
    (dtype,) = {_WORDS.get(name) for name in found} if len(found) == 1 else (None,)
    if dtype is None:
        raise ExportError(
            f"all parameters must be of one dtype of {known}, got {listed}",
            where=where,
            hint="convert the model with model.float()",
        )
    if dtype in STORED and rule.stored != dtype:
        raise ExportError(
            f"a model in {listed} needs a rule with masters for {dtype}, got {rule.name!r} "
            f"with {'none' if rule.stored is None else f'masters for {rule.stored}'}",
            where=where,
            hint=f"wrap the rule: transforms.master_weights(rule, {dtype!r})",
        )
    if dtype not in STORED and rule.stored is not None:
        raise ExportError(
            f"the rule {rule.name!r} is for parameters in {rule.stored}, got a model in {listed}",
            where=where,
            hint="convert the model with .half() or .bfloat16(), or leave the masters out",
        )
    return "f32" if dtype in STORED else dtype


def _try(models: Mapping[str, ModelProto], stored: str, where: str) -> None:
    """Runs one step: onnxruntime reports a missing kernel of 16 bits only when it runs."""
    start, step = open_session(models[INIT_FILE]), open_session(models[TRAIN_FILE])
    given, begun, made = (
        {
            name: np.zeros([2 if size is None else size for size in port.shape], port.dtype)
            for name, port in ports.items()
        }
        for ports in (step.inputs, start.outputs, step.outputs)
    )
    run_into(start, {}, begun)
    try:
        run_into(step, {name: begun.get(name, array) for name, array in given.items()}, made)
    except Exception as error:  # onnxruntime's errors share no other base
        raise ExportError(
            f"onnxruntime cannot do a step in {stored}: {error}",
            where=where,
            hint='give compute_dtype="f32": parameters stay as they are, and forward and backward '
            "run in float32",
        ) from error


def _learning_rate(rule: UpdateRule, opset: int, dtype: DType) -> ModelProto | None:
    """The learning rate as a model of its own; None if it is an input, or the rule has none."""
    value = rule.hyperparameters.get("lr")
    if value is None:
        return None
    schedule = value if isinstance(value, Schedule) else Schedule(value, name="lr")
    graph = compile_schedule(schedule, GraphOptions(dtype=dtype, scalar_dtype=dtype))
    model = to_model(graph, opset=opset)
    return renamed(model, {model.graph.output[0].name: LEARNING_RATE})


def _evaluation(
    spec: ModelSpec,
    options: GraphOptions,
    forward: ModelProto,
    opset: int,
) -> ModelProto:
    """The forward at the point of evaluation of the rule, if it has one."""
    parts = {"model": forward}
    if has_evaluation(spec):
        point = to_model(compile_evaluation(spec, options), opset=opset)
        at_point = {naming.param(name): naming.evaluation(name) for name in spec.params}
        parts = {"point": point, "model": renamed(forward, at_point)}
    outputs = [output.name for output in forward.graph.output]
    return join_models(parts, "eval", outputs=outputs)


def _constants(
    params: Mapping[str, NDArray[Any]], buffers: Mapping[str, NDArray[Any]], opset: int
) -> ModelProto:
    """A model without inputs that gives parameters and buffers."""
    named = {naming.param(name): array for name, array in params.items()}
    named |= {naming.buffer(name): array for name, array in buffers.items()}
    nodes, outputs, initializers = [], [], []
    for name, array in named.items():
        value = np.ascontiguousarray(array).reshape(array.shape)
        initializers.append(numpy_helper.from_array(value, f"value/{name}"))
        nodes.append(helper.make_node("Identity", [f"value/{name}"], [name]))
        element = helper.np_dtype_to_tensor_dtype(array.dtype)
        outputs.append(helper.make_tensor_value_info(name, element, array.shape))
    graph = helper.make_graph(nodes, "values", [], outputs, initializer=initializers)
    return helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=lowest_ir_version(opset),
    )
