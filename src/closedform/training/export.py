"""A model, its loss and an update rule as three files: initial state, training step, forward."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import ModelProto

from closedform.errors import TrainingExportError
from closedform.exporters.onnx_model import make_folder
from closedform.ir.graph import Array
from closedform.language import Schedule, UpdateRule
from closedform.language.groups import Group
from closedform.options import CLOCK, GraphOptions, ModelSpec
from closedform.runtime.onnx_session import open_session, run_into
from closedform.training.dtypes import IN_FLOAT32, LOSS_SCALE, rules_by_name, update_dtype
from closedform.training.progress import phase, show_phases
from closedform.training.session import INIT_FILE, STEPS, TRAIN_FILE
from closedform.training.sources import loss_of, model_of
from closedform.version import __version__

if TYPE_CHECKING:
    import torch


def export(
    model: torch.nn.Module | ModelProto | str | os.PathLike[str],
    loss: Callable[..., Any] | str | None,
    example_inputs: Sequence[Any] | Mapping[str, Any],
    rule: UpdateRule,
    path: str | os.PathLike[str],
    *,
    groups: Sequence[Group] = (),
    dynamic_axes: Mapping[str, Mapping[int, str]] | None = None,
    targets: Sequence[str] = (),
    trainable: Sequence[str] | None = None,
    evaluation_loss: bool = False,
    opset: int = 21,
    scalar_dtype: str = "f64",
    compute_dtype: str | None = None,
    target: str | None = None,
    training_info: bool = False,
    validate: bool = True,
    verbose: bool | None = None,
) -> dict[str, ModelProto]:
    """Writes one training step of a model as ``train.onnx``, with ``init.onnx`` and ``eval.onnx``.

    ``train.onnx`` is ``(step, param.*, state.*, shared.*, buffer.*, batch.*, random.*) ->
    (next.step, next.param.*, next.state.*, next.shared.*, next.buffer.*, loss, learning_rate)``.
    Its random inputs are the numbers of random operators: uniform on [0, 1) (``random.0``, for a
    dropout), standard normal (``random.normal.1``) or exponential (``random.exponential.2``);
    hyperparameters of the rule without a value are inputs with their names. ``init.onnx`` has no
    inputs and returns the step, the current parameters, the buffers and the initial states.
    ``eval.onnx`` is the
    forward in evaluation mode, at the rule's point of evaluation if it has one (averages,
    schedule-free). The sizes named
    in ``dynamic_axes`` are free.

    Each module runs in the mode that it is in: dropout and batch normalisation of a module in
    evaluation mode do not train. The model is as before afterwards.

    A model in 16 bits is trained by a rule with ``transforms.master_weights`` of its dtype: the
    masters are states. Where the rule has a dynamic loss scale, the loss is multiplied by it before
    its gradients are computed; the loss that a step returns is not scaled.

    Args:
        model: A module; frozen parameters (``requires_grad=False``) stay as they are. Or an ONNX
            model or the path of its file, whose free sizes are as with ``dynamic_axes=None``, and
            whose inputs have ``_`` for each character that no identifier has.
        loss: One of ``"mse"``, ``"l1"``, ``"cross_entropy"`` and ``"binary_cross_entropy"`` (of
            logits), or a function: called with the model's output and the last entries of the
            batch, one for each further parameter without a default; returns a scalar tensor, or it
            and further results, which are outputs ``metric.*``. A module's own parameters are
            trained, too, as ``loss.*``.
            None for a model that returns its loss (as its output, as ``.loss``, or first).
        example_inputs: A batch of two rows or more, such as ``(images, labels)``, or a mapping with
            the arguments of the model and of the loss by name; an argument is a tensor, or nested
            containers of tensors.
        rule: The update rule; schedules in it are inside the graph.
        path: The folder, made if it does not exist.
        groups: Parameters with another rule or other hyperparameters; the first group that
            matches a name wins.
        dynamic_axes: Names of the free sizes by tensor and axis, such as
            ``{"input_ids": {0: "batch", 1: "sequence"}}``; None for the first of each tensor.
        targets: Names of arguments of the model that only its loss depends on, which ``eval.onnx``
            does not take.
        trainable: Weights of an ONNX model that are trained, as names or globs such as
            ``"*.weight"``; a glob matches floats with more than one entry. None for all that
            ``"*"`` matches and the loss depends on: the logger ``closedform.training`` lists them.
            A batch normalisation uses the statistics of the batch if its scale or bias is trained.
        evaluation_loss: Whether to write ``eval_loss.onnx``: the loss and its further results of a
            batch in evaluation mode.
        opset: ONNX opset, 18 or later.
        scalar_dtype: The dtype of schedules and bias corrections: ``"f64"``, or ``"f32"`` for
            devices without float64.
        compute_dtype: The dtype of the forward and backward of a model in 16 bits: None for that
            of its parameters, ``"f32"`` for float32 with only parameters and gradients in 16 bits.
        target: ``"webgpu"`` also writes ``webgpu.onnx`` and ``scalars.onnx``: the same step for the
            GPU of a browser, and its schedule in float64 for the CPU. None for the portable files.
        training_info: Whether to write ``training.onnx``, too: ``eval.onnx`` with the step as its
            ONNX training information, whose update binding assigns ``next.*``; the states of the
            rule must have at most 1.5 GB.
        validate: Whether to prove that the update is the rule (the verdicts go to the metadata),
            and to compare a step with torch, for the example and for other free sizes.
        verbose: Whether to show each phase with its seconds on stderr; None for only on a terminal.
            They are logged, too, as information of the logger ``closedform.training``.

    Returns:
        The checked models by file name. Weights of more than 1.5 GB are not in them, but in
        ``init.onnx.data``.

    Raises:
        ExportError: The ONNX file has an operator that is not supported or is too large, torch
            cannot trace the model, an operator has no ONNX form, or in bfloat16 no
            kernel, the parameters are not of the one dtype that the rule is for, the target has no
            kernel for an operator, or the folder cannot be made.

    Warns:
        UnprovedWarning: The update is not proved to be the rule.

    Source: torch.fx traces the step, torch's own exporter writes the operators.
    """
    from closedform.training.assembly import assemble
    from closedform.training.from_onnx import OnnxModule
    from closedform.training.to_onnx.forward import trained_params
    from closedform.training.to_onnx.isolation import restore_on_exit
    from closedform.training.to_onnx.trace import trace
    from closedform.training.webgpu.step import webgpu_models

    if not isinstance(rule, UpdateRule):
        raise TrainingExportError(
            f"rule must be an UpdateRule, got {type(rule).__name__}",
            hint="make one with closedform.optimizers",
        )
    if type(opset) is not int or opset < _OLDEST_OPSET:
        raise TrainingExportError(
            f"opset must be an integer of {_OLDEST_OPSET} or more, got {opset!r}",
            hint="torch writes the operators of a step for these",
        )
    model, loss = model_of(model, trainable, rule, groups), loss_of(loss)
    where = f"model {type(model).__name__}"
    if not hasattr(model, "named_parameters"):
        raise TrainingExportError(
            f"model must be a torch.nn.Module, got {type(model).__name__}",
            hint="register its parameters in a module",
        )
    params = trained_params(model, loss)
    rules = rules_by_name(params, rule, groups)
    is_file = isinstance(model, OnnxModule)
    dtype = update_dtype(params, rules, where, is_file=is_file)
    stored_text = " and ".join(
        sorted({group_rule.stored for group_rule in rules.values() if group_rule.stored})
    )
    if compute_dtype is not None and (compute_dtype != "f32" or not stored_text):
        raise TrainingExportError(
            f"compute_dtype must be 'f32', for a model in 16 bits, got {compute_dtype!r} for one "
            f"in {stored_text or dtype}",
            where=where,
            hint="leave it out, and forward and backward run in the dtype of the model",
        )
    _check_target(target, stored_text or dtype, where)
    options = GraphOptions(dtype=dtype, scalar_dtype=scalar_dtype)
    facts = {
        "closedform.version": __version__,
        "closedform.clock": CLOCK,
        "closedform.rule": rule.name,
        "closedform.model": type(model).__name__,
        **_length_of_run(rule),
    }
    with show_phases(verbose), restore_on_exit(model):
        model_graphs = trace(
            model,
            loss,
            example_inputs,
            dynamic_axes=dynamic_axes,
            targets=targets,
            evaluation_loss=evaluation_loss,
            opset=opset,
            check=validate,
            is_widened=compute_dtype is not None,
            scale_dtype=options.scalar_dtype
            if any(LOSS_SCALE in group_rule.shared for group_rule in rules.values())
            else None,
            keeps_file=all(group_rule.evaluation is None for group_rule in _rules(rule, groups)),
        )
        shapes = {name: array.shape for name, array in model_graphs.params.items()}
        spec = ModelSpec(rule, shapes, groups)
        with phase("assemble"):
            files = assemble(
                model_graphs,
                spec,
                options,
                facts,
                opset=opset,
                validate=validate,
                training_info=training_info,
            )
    if stored_text:
        _try(files.models, files.weights, stored_text, where)
    if target is not None:
        files.models.update(webgpu_models(files.models[TRAIN_FILE], where))
    hint = "a training step is written as several files: name a folder for them"
    folder = Path(path)
    make_folder(folder, hint)
    with show_phases(verbose), phase("write"):
        files.write(folder)
    return files.models


def _rules(rule: UpdateRule, groups: Sequence[Group]) -> list[UpdateRule]:
    return [rule, *(group.rule for group in groups if group.rule is not None)]


def _length_of_run(rule: UpdateRule) -> dict[str, str]:
    """The steps until the last schedule of a rule ends, for the metadata; none without an end."""
    values = rule.hyperparameters.values()
    # A schedule with parameters that are not bound has no length yet.
    lengths = [value.length for value in values if isinstance(value, Schedule) and not value.open]
    steps = [int(length) for length in lengths if length is not None]
    return {STEPS: str(max(steps))} if steps and max(steps) > 0 else {}


def _check_target(target: object, dtype: str, where: str) -> None:
    """Raises ExportError if the target is unknown or does not support the dtype."""
    if target not in (None, "webgpu"):
        raise TrainingExportError(
            f'target must be "webgpu" or None, got {target!r}',
            where=where,
            hint="leave it out: the portable files run in every onnxruntime",
        )
    if target is not None and dtype != "f32":
        raise TrainingExportError(
            f"target 'webgpu' is for models in float32, got one in {dtype}",
            where=where,
            hint=IN_FLOAT32,
        )


# torch.onnx writes opset 18 (torch 2.13) and converts to later ones.
_OLDEST_OPSET = 18


def _try(
    models: Mapping[str, ModelProto], weights: Mapping[str, Array], stored: str, where: str
) -> None:
    """Runs one step: onnxruntime reports a missing kernel of 16 bits only when it runs."""
    start, step = open_session(models[INIT_FILE]), open_session(models[TRAIN_FILE])
    step_inputs, initial_values, step_outputs = (
        {
            # Two rows: the least batch that a batch normalisation trains on.
            name: np.zeros([2 if size is None else size for size in port.shape], port.dtype)
            for name, port in ports.items()
        }
        for ports in (step.inputs, start.outputs, step.outputs)
    )
    run_into(
        start,
        {n: np.ascontiguousarray(v).reshape(v.shape) for n, v in weights.items()},
        initial_values,
    )
    try:
        run_into(
            step,
            {name: initial_values.get(name, array) for name, array in step_inputs.items()},
            step_outputs,
        )
    except Exception as error:  # onnxruntime's errors share no other base
        raise TrainingExportError(
            f"onnxruntime cannot do a step in {stored}: {error}",
            where=where,
            hint='give compute_dtype="f32": parameters stay as they are, and forward and backward '
            "run in float32",
        ) from error
