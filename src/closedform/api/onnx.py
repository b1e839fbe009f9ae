"""ONNX: ``to_onnx`` writes a schedule or rule, ``from_onnx`` reads one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

from closedform.api.compiling import check_source
from closedform.compiler import (
    compile_evaluation,
    compile_init,
    compile_program,
    compile_schedule,
    has_evaluation,
)
from closedform.errors import ExportError
from closedform.ir.types import DType, Shape
from closedform.language.groups import Group
from closedform.language.schedule import Schedule
from closedform.language.update_rule import UpdateRule
from closedform.options import GraphOptions, ModelSpec, Precision

if TYPE_CHECKING:
    import onnx

    from closedform.exporters.onnx_targets import OnnxFormat
    from closedform.referee.ports import PortNames
    from closedform.verify.claims.report import Report


@overload
def to_onnx(
    source: Schedule,
    path: str | os.PathLike[str] | None = ...,
    *,
    step_shape: Shape = ...,
    dtype: DType | str | None = ...,
    scalar_dtype: DType | str = ...,
    step_dtype: DType | str = ...,
    inputs: Iterable[str] = ...,
    precision: Precision | str = ...,
    opset: int | None = ...,
    target: str | None = ...,
    validate: bool = ...,
    claims: Report | None = ...,
) -> onnx.ModelProto: ...
@overload
def to_onnx(
    source: UpdateRule,
    path: str | os.PathLike[str] | None = ...,
    *,
    params: Mapping[str, Shape],
    groups: Sequence[Group] = ...,
    dtype: DType | str | None = ...,
    scalar_dtype: DType | str = ...,
    step_dtype: DType | str = ...,
    precision: Precision | str = ...,
    inline: bool = ...,
    split: bool = ...,
    opset: int | None = ...,
    target: str | None = ...,
    validate: bool = ...,
    training_info: bool = ...,
) -> dict[str, onnx.ModelProto]: ...
def to_onnx(
    source: Schedule | UpdateRule,
    path: str | os.PathLike[str] | None = None,
    *,
    params: Mapping[str, Shape] | None = None,
    groups: Sequence[Group] = (),
    step_shape: Shape = (),
    dtype: DType | str | None = None,
    scalar_dtype: DType | str = DType.F64,
    step_dtype: DType | str = DType.I64,
    inputs: Iterable[str] = (),
    precision: Precision | str = Precision.SINGLE,
    inline: bool = True,
    split: bool = False,
    opset: int | None = None,
    target: str | None = None,
    validate: bool = True,
    claims: Report | None = None,
    training_info: bool = False,
) -> onnx.ModelProto | dict[str, onnx.ModelProto]:
    """Returns a schedule as an ONNX model, or a rule as the models ``init`` and ``step``.

    With a path they are written as well: a schedule as one file, a rule as ``init.onnx`` and
    ``step.onnx`` in a folder.

    A rule whose model is evaluated at a separate point, such as an average, also gets
    ``evaluation.onnx``. onnxruntime's own optimisation finds nothing in the graphs of a rule, and
    its time grows faster than their nodes: switch it off for models with hundreds of parameters.

    Args:
        source: The schedule or rule.
        path: The file of a schedule, or the folder of a rule, made if it does not exist; None to
            write nothing.
        params: For a rule: shapes by parameter name.
        groups: For a rule: parameters with a separate rule.
        step_shape: For a schedule: the shape of the step, ``()`` for one step or ``("n",)`` for
            any number of steps in one run.
        dtype: Dtype of a schedule's value (default f64), or of a rule's parameters, gradients and
            states (default f32).
        scalar_dtype: Dtype in which scalars are computed, f64 or f32.
        step_dtype: Dtype of the step, i64 or i32.
        inputs: For a schedule: names of hyperparameters that become inputs of the graph; one that
            has a value keeps it as its default.
        precision: "single" or "double-float", see :class:`closedform.options.GraphOptions`.
        inline: For a rule: whether ``step.onnx`` is one flat graph; otherwise the step of each kind
            of tensor is a local function, which onnxruntime reads, and tract and OpenVINO do not.
        split: For a rule: whether the graphs of single tensors are written as separate files,
            for tensors that are sharded or on several devices, which needs a path; see
            :func:`closedform.exporters.onnx_files.split_files`.
        opset: ONNX opset, 7 to 23; one that does not have an op of the graph is refused. The
            default is that of the target, or 21. The IR version is the lowest that it needs.
        target: The runtime that reads the files, such as ``"onnxruntime>=1.17"``: a name of
            ``closedform.exporters.onnx_targets.TARGETS``, with the lowest version if that matters.
            ``"32-bit"`` is a device without float64 and int64: a file with a value or constant of
            another dtype than f32, i32 and bool is refused.
        validate: Whether each file is read back and proved equal to its source, and its floats
            finite; both verdicts are written into its metadata, as ``closedform.translation`` and
            ``closedform.floats``. A file that is refuted is not written; one that is not proved is
            written with an ``UnprovedWarning``, which ``warnings.simplefilter("error", …)`` turns
            into an error before anything is written. False skips this; the metadata says so.
        claims: For a schedule: a report, as ``verify()`` returns it, for the metadata.
        training_info: For a rule: whether a further model ``training`` has the step as ONNX's
            training information: ``param.*`` are initializers of its graph, with zeros, and the
            step is its algorithm, with ``grad.*`` as inputs and an update binding of each variable.

    Returns:
        The checked model, or the models by name.

    Raises:
        ExportError: An option does not apply to the source or has no such value, the folder does
            not exist or cannot be made, the opset does not have an op, or the target is unknown or
            does not have the opset, local functions or a dtype.
        LoweringError: An expression cannot be expressed in a graph, or the value of a schedule
            that is validated is NaN or infinite in floats at a step of its domain.
        VerificationError: A file is not its source.

    Warns:
        UnprovedWarning: A file is not proved to be its source, at all steps at which it runs; the
            message has the reason, and the range of steps that is proved.
    """
    from closedform.exporters.onnx_files import schedule_model
    from closedform.exporters.onnx_model import checked_path, write_model
    from closedform.exporters.onnx_targets import onnx_format
    from closedform.verify.translation.verdicts import (
        mark_not_validated,
        validate_model,
        warn_unless_proved,
    )

    options = GraphOptions(
        dtype=dtype,
        scalar_dtype=scalar_dtype,
        step_dtype=step_dtype,
        step_shape=step_shape,
        inputs=inputs,
        precision=precision,
    )
    check_source(source, options, params=params, groups=groups)
    if path is not None:
        # Before the work: a missing folder is reported at once, not after minutes of proofs.
        checked_path(path)
    form = onnx_format(opset=opset, inline=inline, target=target)
    if isinstance(source, UpdateRule):
        if claims is not None:
            raise ExportError(
                "claims are written for a schedule, got a rule", where=f"rule {source.name!r}"
            )
        spec = ModelSpec(source, params or {}, groups)
        return _rule_models(
            spec,
            options,
            path,
            form,
            split=split,
            validate=validate,
            training_info=training_info,
        )
    if not inline or split or training_info:
        raise ExportError(
            "inline, split and training_info are options of rules, got a schedule",
            where=f"schedule {source.name!r}",
            hint="leave them out",
        )
    claim_metadata = None if claims is None else claims.as_metadata()
    graph = compile_schedule(source, options)
    model = schedule_model(source, graph, form=form, claims=claim_metadata)
    if validate:
        verdict = validate_model(source, model)
        warn_unless_proved(verdict, f"the file of schedule {source.name!r}")
    else:
        mark_not_validated(model)
    if path is not None:
        write_model(model, path)
    return model


def _rule_models(
    spec: ModelSpec,
    options: GraphOptions,
    path: str | os.PathLike[str] | None,
    form: OnnxFormat,
    *,
    split: bool,
    validate: bool,
    training_info: bool,
) -> dict[str, onnx.ModelProto]:
    """Returns the models of a rule by name, which are written into a folder if there is one."""
    from closedform.exporters.onnx_files import (
        CALLS_FILE,
        TRAINING,
        rule_models,
        split_models,
        training_model,
    )
    from closedform.exporters.onnx_model import write_models
    from closedform.verify.translation.verdicts import (
        mark_not_validated,
        validate_rule,
        warn_unless_proved,
    )

    if split and path is None:
        raise ExportError(
            "split is for files, and there is no path",
            where=f"rule {spec.rule.name!r}",
            hint="give the path of a folder",
        )
    program, init = compile_program(spec, options), compile_init(spec, options)
    evaluation = compile_evaluation(spec, options) if has_evaluation(spec) else None
    models = rule_models(spec, program, init, evaluation, form)
    if validate:
        for name, verdict in validate_rule(spec, options, models, program=program).items():
            warn_unless_proved(verdict, f"the file {name}.onnx of rule {spec.rule.name!r}")
    else:
        for model in models.values():
            mark_not_validated(model)
    if training_info:
        models[TRAINING] = training_model(spec, init, models)
    if path is None:
        return models
    folder = Path(path)
    calls = None
    if split:
        parts, calls = split_models(spec, program, form)
        models |= parts
    files: dict[str, onnx.ModelProto | str] = {
        f"{name}.onnx": model for name, model in models.items()
    }
    if calls is not None:
        files[CALLS_FILE] = f"{json.dumps(calls, indent=1)}\n"
    write_models(files, folder, "a rule is written as several files: give the path of a folder")
    return models


@overload
def from_onnx(
    source: onnx.ModelProto | str | os.PathLike[str], *, stored: bool = ..., ports: None = ...
) -> Schedule: ...


@overload
def from_onnx(
    source: onnx.ModelProto | str | os.PathLike[str],
    *,
    stored: bool = ...,
    ports: PortNames | Literal["use"],
) -> UpdateRule | dict[str, UpdateRule]: ...


def from_onnx(
    source: onnx.ModelProto | str | os.PathLike[str],
    *,
    stored: bool = False,
    ports: PortNames | None = None,
) -> Schedule | UpdateRule | dict[str, UpdateRule]:
    """Returns the schedule or the rule that an ONNX model computes, over the exact numbers.

    The model of a schedule has one output, an integer input that is the clock, and any number of
    scalar inputs, which become hyperparameters; one that has a default keeps it as its value. Only
    its operators are read, never its metadata, and nothing in it is run.

    With ``ports`` the model is a step of an optimizer, whichever tool wrote it. An integer that
    each step raises by 1 is the clock. A state begins with what ``"initial_states"`` of the ports
    says (the parameter, if its elements differ), else with 0.

    Args:
        source: A model, or the path of its file.
        ports: What the inputs and outputs of a step are, such as ``{"in_0": "grad.w", "in_1":
            "param.w", "in_2": "state.w.exp_avg"}``, or the path of a JSON file of this; ``"use"``
            for what their use says: what is added to an average is a gradient.
        stored: If False, a float constant is read as the simplest number that rounds to it, a
            rational or a multiple of pi, such as 1/10 for 0.1. If True, as the binary fraction that
            it holds.

    Raises:
        VerificationError: The file cannot be read, the model is not a schedule or step, or an
            operator in it is not supported; the message names the node and the operator.
        ArgumentError: The ports do not fit the file.

    Returns:
        The schedule; of a step, the rule, or the rule of each parameter by name where they differ.

    Example:
        >>> import closedform as cf
        >>> model = cf.to_onnx(cf.schedules.cosine(1, 0, 100))
        >>> cf.from_onnx(model).exact(50)
        1/2
    """
    if ports is not None:
        from closedform.referee.rule_of_step import rules_of_file

        return rules_of_file(source, None if ports == "use" else ports, stored=stored)
    from closedform.verify.translation.from_onnx import from_onnx as read

    return read(source, stored=stored)
