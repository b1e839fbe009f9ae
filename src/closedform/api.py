"""The public functions that join compiler, exporters, importers and verification.

No other module imports all of them. Methods of ``Schedule`` and ``UpdateRule`` come here, see
:mod:`closedform.delegation`.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

import numpy as np
import sympy as sp

from closedform.compiler import (
    check_source,
    compile_schedule,
)
from closedform.deprecation import REMOVED_IN
from closedform.effort import Watch
from closedform.errors import ArgumentError, ExportError, VerificationError, describe, needs_extra
from closedform.ir.graph import Graph
from closedform.ir.types import DType, Shape
from closedform.language.groups import Group
from closedform.language.schedule import Schedule, check_schedule
from closedform.language.update_rule import UpdateRule
from closedform.options import ANY_STEPS, GraphOptions, ModelSpec, Precision
from closedform.targets import to_torch as to_torch

if TYPE_CHECKING:
    import onnx
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    from closedform.analysis.resuming import Resumed
    from closedform.exporters.onnx_targets import OnnxFormat
    from closedform.importers.onnx_ports import PortNames
    from closedform.importers.optax.subject import Transformation
    from closedform.importers.python import TracedSchedule
    from closedform.language.aliases import Number
    from closedform.verify.certificates.certificate import Certificate, Engine
    from closedform.verify.claims.core import Claim
    from closedform.verify.claims.foreign import FileReport
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
    parts: bool | None = None,
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
        parts: Deprecated name of ``split``.

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

    if parts is not None:
        warnings.warn(
            f"parts is deprecated and will be removed in {REMOVED_IN}; use split",
            DeprecationWarning,
            stacklevel=2,
        )
        split = parts
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
        checked_path(path)
    form = onnx_format(opset=opset, inline=inline, target=target)
    if isinstance(source, UpdateRule):
        if claims is not None:
            raise ExportError(
                "claims are written for a schedule, got a rule", where=f"rule {source.name!r}"
            )
        spec = ModelSpec(source, params or {}, groups)
        return _rule_models(spec, options, path, form, split=split, validate=validate)
    if not inline or split:
        raise ExportError(
            "inline and split are options of rules, got a schedule",
            where=f"schedule {source.name!r}",
            hint="leave them out",
        )
    claim_metadata = None if claims is None else claims.as_metadata()
    model = schedule_model(source, options, form=form, claims=claim_metadata)
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
) -> dict[str, onnx.ModelProto]:
    """Returns the models of a rule by name, which are written into a folder if there is one."""
    from closedform.exporters.onnx_files import CALLS_FILE, rule_models, split_models
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
    models, program = rule_models(spec, options, form)
    if validate:
        for name, verdict in validate_rule(spec, options, models, program=program).items():
            warn_unless_proved(verdict, f"the file {name}.onnx of rule {spec.rule.name!r}")
    else:
        for model in models.values():
            mark_not_validated(model)
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
        from closedform.verify.translation.step_rule import rules_of_file

        return rules_of_file(source, None if ports == "use" else ports, stored=stored)
    from closedform.verify.translation.from_onnx import from_onnx as read

    return read(source, stored=stored)


def from_python(
    function: Callable[..., object],
    *,
    name: str | None = None,
    hyper: Iterable[str | sp.Symbol] = (),
) -> TracedSchedule:
    """Returns the schedule that a Python function of the step computes.

    The function is run once for each of its paths, with a symbol as the step, in an environment
    that understands ``math``, scalar functions of NumPy and torch, and the builtins. Comparisons
    are decided by the prover; where the function raises an exception, the schedule has no value.
    The result is compared with the function, and ``trace`` of the schedule reports how.

    Args:
        function: A function, lambda, partial, method or callable object. Its first argument is the
            step, an integer >= 0; other parameters have values, or are named in ``hyper``.
        name: The name of the schedule; that of the function if not given.
        hyper: Names of parameters, closure variables, globals or attributes of the function that
            become hyperparameters, with the values that they have; an int is declared an integer,
            and one above 0 positive. Give symbols of :func:`closedform.expr.hyper` by those names
            to declare something else. All other variables are constants.

    Raises:
        TraceError: The function cannot be traced; the message names the file, the line and the
            construct.
        DefinitionError: A name in ``hyper`` is not a variable of the function.

    Example:
        >>> import math
        >>> import closedform as cf
        >>> def get_lr(step, warmup=10, total=100):
        ...     if step < warmup:
        ...         return 3e-4 * step / warmup
        ...     progress = min(1.0, (step - warmup) / (total - warmup))
        ...     return 3e-4 * 0.5 * (1 + math.cos(math.pi * progress))
        >>> schedule = cf.from_python(get_lr)
        >>> [schedule.exact(step) for step in (0, 5, 10, 55, 200)]
        [0, 3/20000, 3/10000, 3/20000, 0]
        >>> cf.from_python(get_lr, hyper=["warmup"]).bind(warmup=20).exact(10)
        3/20000
    """
    from closedform.importers.python import trace
    from closedform.verify.tracing import TracingProver

    return trace(function, TracingProver(), name=name, hyper=hyper)


@overload
def from_torch(source: LRScheduler) -> Schedule | list[Schedule]: ...
@overload
def from_torch(source: Optimizer) -> UpdateRule | list[UpdateRule]: ...
def from_torch(
    source: LRScheduler | Optimizer,
) -> Schedule | UpdateRule | list[Schedule] | list[UpdateRule]:
    """Returns the schedule that a scheduler of torch sets, or the update rule of an optimizer.

    The class's own code is traced, and the result is compared with the object, which is not
    changed.

    A scheduler is read in optimizer updates. Its method is traced, as :func:`from_python` traces a
    function. A method that computes the value from the value before is a recurrence: its closed
    form is proved by induction.

    Of an optimizer, one ``step()`` of a copy is run with symbols for its numbers and tensors.
    Hyperparameters of the param group keep their names and values, the number of steps is ``t``,
    branches on it and on data become ``Piecewise``. The rule is then compared with the optimizer on
    random gradients.

    Args:
        source: A scheduler of torch, of transformers, timm or pytorch-accelerated, or of a class of
            your own; SequentialLR and ChainedScheduler may contain others. Or an optimizer of torch
            or of any other class, before its first step; where its step depends on shapes, the rule
            is for those of its parameters.

    Returns:
        One schedule, or a list with one for each param group where they differ; or the rule, or a
        list with one for each param group.

    Raises:
        ArgumentError: It is neither.
        TraceError: A scheduler depends on a metric or on random numbers, or its values are given by
            a recurrence without a known closed form, which the message shows. The step of an
            optimizer does something that has no expression, or its rule differs from it; the
            message names the operation, the file and the line.

    Example:
        >>> import torch
        >>> import closedform as cf
        >>> optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
        >>> scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 30, gamma=0.1)
        >>> [cf.from_torch(scheduler).exact(step) for step in (0, 29, 30, 60)]
        [1/10, 1/10, 1/100, 1/1000]
        >>> cf.from_torch(torch.optim.SGD([torch.zeros(3)], lr=0.1, weight_decay=0.5)).param
        -lr*(grad + param*weight_decay) + param
    """
    with needs_extra("torch"):
        from closedform.importers.torch_optimizer import is_optimizer, trace
        from closedform.importers.torch_scheduler import is_scheduler, schedules_of
    from closedform.verify.tracing import TracingProver

    if is_optimizer(source):
        return trace(source)
    if not is_scheduler(source):
        raise ArgumentError(
            f"from_torch takes a scheduler or an optimizer, got {type(source).__name__}",
            hint="pass an instance of LRScheduler or Optimizer of torch",
        )
    schedules = schedules_of(source, TracingProver())
    return schedules[0] if all(schedule == schedules[0] for schedule in schedules) else schedules


@overload
def from_optax(
    source: Transformation, params: object | None = ..., *, name: str | None = ...
) -> UpdateRule | list[Group]: ...
@overload
def from_optax(source: Callable[..., object], *, name: str | None = ...) -> Schedule: ...
def from_optax(
    source: Transformation | Callable[..., object],
    params: object | None = None,
    *,
    name: str | None = None,
) -> UpdateRule | list[Group] | Schedule:
    """Returns the schedule or the update rule of an object of optax.

    Its functions are traced by JAX, and the jaxpr is read: a schedule as an expression in the
    count, the ``update`` of a gradient transformation as a rule. States have the names that they
    have in optax, floats in closures (``b1``, ``learning_rate``) and those of
    ``inject_hyperparams`` are hyperparameters, counts of steps are ``t``. Before the rule is
    returned, it has been compared with the transformation on random gradients, in float64.

    Args:
        source: A schedule, or another function of the count in ``jax.numpy``; or a
            ``GradientTransformation``, such as ``optax.chain(…)`` or ``MultiSteps``.
        params: The parameters of the model as a pytree of arrays or shapes, for masks, labels and
            updates that depend on the shape. Without them the rule is traced for matrices and
            vectors.
        name: The name of the schedule or rule.

    Returns:
        A Schedule; or an UpdateRule; or a list of Groups by names of parameters (``layer.kernel``),
        where parameters of one number of axes have different rules, as with ``multi_transform``.
        The rule of the first group and the other groups are what ``to_onnx`` takes.

    Raises:
        ArgumentError: It is neither, or ``params`` is not a pytree with keys.
        ExportError: jax is not installed.
        TraceError: An operation has no expression, or the result differs from the original; the
            message names the operation, the file and the line.

    Example:
        >>> import optax  # doctest: +SKIP
        >>> import closedform as cf
        >>> schedule = cf.from_optax(optax.cosine_decay_schedule(0.1, 100))  # doctest: +SKIP
        >>> [schedule.exact(step) for step in (0, 50, 100)]  # doctest: +SKIP
        [1/10, 1/20, 0]
        >>> cf.from_optax(optax.sgd(0.1)).param  # doctest: +SKIP
        -grad*learning_rate + param
    """
    if not callable(source) and not (hasattr(source, "init") and hasattr(source, "update")):
        raise ArgumentError(
            f"from_optax takes a schedule or a transformation, got {type(source).__name__}",
            hint="pass a function of the count, or an object with init and update",
        )
    with needs_extra("jax"):  # which traces the functions of optax
        import jax  # noqa: F401
    from closedform.importers.optax import trace_schedule, trace_transformation
    from closedform.importers.optax.subject import Transformation
    from closedform.verify.tracing import TracingProver

    if isinstance(source, Transformation):
        return trace_transformation(source, params, TracingProver(), name)
    return trace_schedule(source, TracingProver(), name)


def verify(
    source: Schedule | UpdateRule,
    *claims: Claim,
    assume: Iterable[sp.Basic] = (),
    effort: float = 1.0,
    budget: float | None = None,
) -> Report:
    """Returns the verdicts of claims about a schedule or a rule.

    Args:
        source: The schedule or rule; hyperparameters without a value may have any value.
        *claims: Claims made with ``closedform.claims``; the standard ones if none is given.
        assume: For a schedule: conditions on open hyperparameters, for the standard claims.
        effort: How much work each claim may take, as a multiple of the usual. Work is counted, not
            timed: the verdict is the same on every machine.
        budget: Seconds of wall-clock time for each claim, in addition; None for no such limit. A
            verdict that this limit ends depends on the machine, and says so.

    Raises:
        VerificationError: An argument is not a claim, ``effort`` or ``budget`` is not above 0, or
            the prover has no meaning for the source.

    Example:
        >>> import closedform as cf
        >>> from closedform.api import verify
        >>> print(verify(cf.schedules.linear(0, 1, 10))["bounded"].claim.sentence)
        the value is >= 0 and <= 1
    """
    from closedform.verify.claims.standard import verify_rule, verify_schedule

    if isinstance(source, UpdateRule):
        return verify_rule(source, *claims, effort=effort, budget=budget)
    return verify_schedule(source, *claims, assume=assume, effort=effort, budget=budget)


def verify_file(
    path: str | os.PathLike[str],
    *,
    against: str | UpdateRule | Mapping[str, UpdateRule] | None = None,
    ports: PortNames | None = None,
    key: str = "lr",
    effort: float = 1.0,
    budget: float | None = None,
    seconds: float = 60.0,
    memory: int = 2 * 2**30,
    proof: str | os.PathLike[str] | None = None,
) -> FileReport:
    """Returns what is found out about an ONNX file that anyone made, within hard limits.

    The file is read in a separate process. Claims about a schedule are asked again; what the file
    says of its own source is reported as stated, not checked. A file that needs more than the
    limits, or ends the process, is UNKNOWN with the reason.

    Args:
        path: The file.
        against: A source that it is compared with, as ``closedform verify`` takes it:
            ``"cosine --start 1 --end 0 --steps 100"``, ``"adamw"``, a config file, or
            ``"file.py:name"``, which is run; needs the extra ``cli``. For the step of an optimizer
            also a rule, such as one that was traced from optax, or the rule of each parameter by
            name.
        ports: For a step that another tool wrote: what its inputs and outputs are, such as
            ``{"in_0": "grad.w", "in_1": "param.w", "in_2": "state.w.exp_avg"}``, or the path of a
            JSON file of this; None for what their use says.
        key: The scheduled hyperparameter, for a config.
        effort: How much work each claim and the comparison may take, as a multiple of the usual.
        budget: Seconds of wall-clock time for each of them, in addition; None for no such limit.
        seconds: Wall-clock seconds for the whole file.
        memory: Bytes of memory for it; not enforced on Windows.
        proof: A folder into which each proved goal is written as an SMT-LIB 2 script, and a list
            of them; needs the extra ``prove``.

    Raises:
        VerificationError: The file cannot be read, the folder not written, or a limit is not
            above 0.
        ArgumentError: The source is unknown, its arguments do not fit it, or it is of another kind
            than the file.
    """
    from closedform.verify.claims.foreign import FileReport, unknown_report
    from closedform.verify.isolation import Ended, run_limited

    if not isinstance(path, str | os.PathLike):
        raise ArgumentError(f"path must be the path of an ONNX file, got {describe(path)}")
    request = {
        "path": os.fspath(path),
        "against": against if isinstance(against, str) else None,
        "source": None if isinstance(against, str) or against is None else _as_data(against),
        "ports": os.fspath(ports) if isinstance(ports, os.PathLike) else ports,
        "key": key,
        "effort": effort,
        "budget": budget,
        "proof": None if proof is None else os.fspath(proof),
    }
    watch = Watch()
    try:
        reply = run_limited("closedform.cli.worker", request, seconds=seconds, memory=memory)
    except Ended as ended:
        return unknown_report(os.fspath(path), str(ended), watch.seconds)
    if "error" not in reply:
        return FileReport.of_data(reply["report"])
    message, where, hint = reply["error"]
    kind = ArgumentError if reply["is_usage"] else VerificationError
    raise kind(message, where=where, hint=hint)


def _as_data(rules: UpdateRule | Mapping[str, UpdateRule]) -> dict[str, object]:
    """Rules by parameter, for the process that reads a file; "" for one of all parameters."""
    from closedform.language.rule_data import rule_as_data

    by_param = {"": rules} if isinstance(rules, UpdateRule) else dict(rules)
    for entry in by_param.values():
        if not isinstance(entry, UpdateRule):
            raise ArgumentError(
                f"against must be text, a rule or rules by parameter, got {describe(entry)}"
            )
    return {param: rule_as_data(rule) for param, rule in by_param.items()}


def certify(
    schedule: Schedule,
    graph: Graph | None = None,
    steps: range | Sequence[int] | NDArray[np.int64] | None = None,
    *,
    engine: str | Engine = "evaluate",
    dtype: DType | str | None = None,
    scalar_dtype: DType | str = DType.F64,
    step_dtype: DType | str = DType.I64,
    precision: Precision | str = Precision.SINGLE,
) -> Certificate:
    """Returns how far a compiled schedule is from its exact value.

    Args:
        schedule: The schedule; its expression gives the exact values.
        graph: Its graph, compiled with ``step_shape=("n",)``; compiled here with the options below
            if it is not given.
        steps: A range, or single steps. Up to a million all are compared. By default the length
            of the schedule and one step more, or a million.
        engine: "evaluate" is the reference evaluator, "onnxruntime" the exported model there; a
            function takes an array of steps and returns an array of values, such as
            ``lambda s: module(torch.from_numpy(s)).numpy()``.
        dtype: Dtype of the value, f64 or f32.
        scalar_dtype: Dtype in which it is computed, f64 or f32.
        step_dtype: Dtype of the step, i64 or i32.
        precision: "single" or "double-float".

    Raises:
        VerificationError: The schedule is open, there are no steps or some are out of range, the
            graph does not take an array of steps, or the engine returns something other than
            floats.
        ExportError: An option has no such value, or is given with a graph.

    Example:
        >>> import closedform as cf
        >>> lr = cf.schedules.cosine(1e-3, 1e-5, 1000)
        >>> certificate = cf.certify(lr, dtype="f32")
        >>> certificate.is_exhaustive, certificate.measured.steps
        (True, 1001)
        >>> certificate.measured.ulp.value < 0.5001
        True
    """
    from closedform.verify.certificates.certificate import certify as certify_graph

    check_schedule(schedule, "certify takes a Schedule")
    options = GraphOptions(
        dtype=dtype,
        scalar_dtype=scalar_dtype,
        step_dtype=step_dtype,
        step_shape=("n",),
        precision=precision,
    )
    if graph is None:
        graph = compile_schedule(schedule, options)
    elif options != ANY_STEPS:
        raise ExportError(
            "options of the compiler are for a graph that is compiled here, got a graph as well",
            where=f"schedule {schedule.name!r}",
            hint="leave them out",
        )
    return certify_graph(schedule, graph, steps, engine=engine)


def resume(
    schedule: Schedule,
    at: int,
    new: Schedule | None = None,
    *,
    total: int | None = None,
    batch_sizes: tuple[Number, Number] | None = None,
    scaling: str = "none",
) -> Resumed:
    """Returns a schedule changed at an update of its run (:func:`closedform.resume`).

    Args:
        schedule: The schedule of the run.
        at: The first update with the change.
        new: The schedule that follows, from its own step 0.
        total: The new number of updates of the whole run.
        batch_sizes: The batch sizes before and after.
        scaling: The change of the value with the batch size: ``none``, ``linear`` or ``sqrt``.
    """
    from closedform.analysis.resuming import resume as resume_schedule

    return resume_schedule(schedule, at, new, total=total, batch_sizes=batch_sizes, scaling=scaling)


def picture(schedule: Schedule) -> str:
    """Returns a picture of a schedule for a notebook, as an HTML element."""
    from closedform.plotting import picture

    return picture(schedule)


def plot(
    schedule: Schedule,
    path: str | os.PathLike[str] | None = None,
    *,
    steps: int | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draws one schedule, as its method ``plot`` does; see :func:`closedform.plot`.

    Args:
        schedule: The schedule.
        path: A file to write, .png, .svg or .pdf.
        steps: The last step of the plot.
        ax: The axes of matplotlib to draw in.
    """
    from closedform.plotting import plot as plot_curves

    return plot_curves(schedule, path, steps=steps, ax=ax)
