"""A traced model and its update rule as the files of a training run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from onnx import ModelProto, helper

from closedform.compiler import (
    compile_evaluation,
    compile_init,
    compile_schedule,
    compile_step,
    has_evaluation,
)
from closedform.exporters.onnx_join import join_models, rename_values
from closedform.exporters.onnx_metadata import RULE_SUFFIX, SCHEMA_KEY
from closedform.exporters.onnx_model import to_model, write_model
from closedform.exporters.onnx_targets import lowest_ir_version
from closedform.exporters.onnx_training_info import with_training_info
from closedform.exporters.onnx_weights import write_weights
from closedform.ir import naming
from closedform.ir.evaluate import evaluate
from closedform.ir.graph import input_names
from closedform.ir.types import DType
from closedform.language import Schedule, UpdateRule
from closedform.options import GraphOptions, ModelSpec
from closedform.training.buckets import with_buckets
from closedform.training.session import (
    EVAL_FILE,
    EVAL_LOSS_FILE,
    INIT_FILE,
    LEARNING_RATE,
    LOSS,
    TRAIN_FILE,
    TRAINING_INFO_FILE,
)
from closedform.training.to_onnx.trace import Trace

_VALUE = "values/value/"
"""Prefix of the initializers of ``init.onnx``."""


@dataclass(frozen=True, slots=True)
class TrainingFiles:
    """The models of a training run.

    Attributes:
        models: The models by file name.
        weights: The parameters and buffers of the initial state, by the names of inputs of
            ``init.onnx`` that are initializers in its file.
    """

    models: dict[str, ModelProto]
    weights: dict[str, NDArray[Any]]

    def write(self, folder: Path) -> None:
        """Writes the models; that of the initial state has its weights afterwards.

        Raises:
            ExportError: A file cannot be written.
        """
        for name, model in self.models.items():
            if name == INIT_FILE:
                write_weights(model, self.weights, folder / name)
            elif name == TRAINING_INFO_FILE:
                write_weights(model, _by_variable(self.weights), folder / name)
            else:
                write_model(model, folder / name)


def assemble(
    model_graphs: Trace,
    spec: ModelSpec,
    options: GraphOptions,
    facts: Mapping[str, str],
    *,
    opset: int,
    validate: bool,
    training_info: bool = False,
) -> TrainingFiles:
    """Returns the models of a training run.

    Args:
        model_graphs: The model with its loss and gradients.
        spec: The rules of its parameters.
        options: The options of the update.
        facts: The metadata.
        opset: ONNX opset.
        validate: Whether to prove that the update is the rule; the verdicts go to the metadata.
        training_info: Whether one of the models has the step as ONNX's training information.

    Raises:
        ExportError: The states are too large for training information.
        VerificationError: The update is not the rule.

    Warns:
        UnprovedWarning: The update is not proved to be the rule.
    """
    buckets = with_buckets(spec)
    update = to_model(compile_step(buckets.spec, options), opset=opset)
    start = to_model(compile_init(spec, options), opset=opset)
    if validate:
        from closedform.verify.translation.verdicts import validate_rule, warn_unless_proved

        verdicts = validate_rule(buckets.spec, options, {"step": update})
        # The initial states are per parameter, the update may be per bucket.
        verdicts |= validate_rule(spec, options, {"init": start})
        for part, verdict in verdicts.items():
            warn_unless_proved(verdict, f"the {part} of rule {spec.rule.name!r} in the export")
    # A forward may write to a parameter in place: the update takes the value afterwards.
    replacements = {
        naming.param(name): f"{naming.WRITTEN}{name}" for name in model_graphs.written_params
    }
    update_parts = buckets.around(update, opset)
    of_buckets = {value.name for part in update_parts.values() for value in part.graph.input}
    parts = {"model": model_graphs.step}
    parts |= {label: rename_values(part, replacements) for label, part in update_parts.items()}
    rate = _learning_rate(spec.rule, opset, options.scalar_dtype)
    if rate is not None:
        parts["schedule"] = rate
    outputs = [
        *(
            value.name
            for part in update_parts.values()
            for value in part.graph.output
            if value.name not in of_buckets
        ),
        *(naming.following(naming.buffer(name)) for name in model_graphs.changed_buffers),
        LOSS,
        *(f"{naming.METRIC}{name}" for name in model_graphs.metrics),
        *([] if rate is None else [LEARNING_RATE]),
    ]
    more = {}
    if model_graphs.evaluation_loss is not None:
        more = {EVAL_LOSS_FILE: _evaluation(spec, options, model_graphs.evaluation_loss, opset)}
    weights = {f"{_VALUE}{name}": array for name, array in model_graphs.tensors().items()}
    # An Identity for each initializer: outputs have other names.
    values = _values(weights, opset)
    initial_values = [output.name for of in (values, start) for output in of.graph.output]
    models = {
        TRAIN_FILE: join_models(
            parts,
            "train",
            outputs=outputs,
            metadata={**facts, **_verdict(update), **_metadata(model_graphs.step)},
        ),
        INIT_FILE: join_models(
            {"values": values, "states": start},
            "init",
            outputs=initial_values,
            metadata={**facts, **_verdict(start)},
        ),
        EVAL_FILE: model_graphs.forward
        if model_graphs.is_of_file
        else _evaluation(spec, options, model_graphs.forward, opset),
        **more,
    }
    if training_info:
        arrays = _by_variable(weights)
        init = compile_init(spec, options)
        states = evaluate(init, {name: arrays[name] for name in input_names(init)})
        models[TRAINING_INFO_FILE] = with_training_info(
            models[EVAL_FILE], models[TRAIN_FILE], start, {**arrays, **states}, arrays.keys()
        )
    return TrainingFiles(models, weights)


def _by_variable(weights: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Weights by the names of the variables of the step."""
    return {name.removeprefix(_VALUE): array for name, array in weights.items()}


def _verdict(part: ModelProto) -> dict[str, str]:
    """The metadata that validation wrote to a part, as entries of the whole."""
    return {
        f"{entry.key}{RULE_SUFFIX}": entry.value
        for entry in part.metadata_props
        if entry.key != SCHEMA_KEY
    }


def _learning_rate(rule: UpdateRule, opset: int, dtype: DType) -> ModelProto | None:
    """The learning rate as a separate model; None if it is an input, or the rule has none."""
    value = rule.hyperparameters.get("lr")
    if value is None:
        return None
    schedule = value if isinstance(value, Schedule) else Schedule(value, name="lr")
    graph = compile_schedule(schedule, GraphOptions(dtype=dtype, scalar_dtype=dtype))
    model = to_model(graph, opset=opset)
    return rename_values(model, {model.graph.output[0].name: LEARNING_RATE})


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
        # The forward reads the outputs of the point instead of the parameters.
        at_point = {naming.param(name): naming.evaluation(name) for name in spec.params}
        parts = {"point": point, "model": rename_values(forward, at_point)}
    outputs = [output.name for output in forward.graph.output]
    return join_models(parts, "eval", outputs=outputs, metadata=_metadata(forward))


def _metadata(part: ModelProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in part.metadata_props}


def _values(weights: Mapping[str, NDArray[Any]], opset: int) -> ModelProto:
    """A model that gives parameters and buffers as they are."""
    nodes, inputs, outputs = [], [], []
    for name, array in weights.items():
        result = name.removeprefix(_VALUE)
        nodes.append(helper.make_node("Identity", [name], [result]))
        element = helper.np_dtype_to_tensor_dtype(array.dtype)
        inputs.append(helper.make_tensor_value_info(name, element, array.shape))
        outputs.append(helper.make_tensor_value_info(result, element, array.shape))
    graph = helper.make_graph(nodes, "values", inputs, outputs)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=lowest_ir_version(opset)
    )
