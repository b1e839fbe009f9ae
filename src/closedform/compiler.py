"""The whole way of the data on one page: from a schedule or a rule to a graph and its artefacts.

- ``compile``: prepare (simplify, guard), lower, run the passes.
- ``to_onnx``: compile, build the model, write it.
- ``to_torch``: compile, build the module.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import sympy as sp

from closedform.errors import DefinitionError, ExportError, nearest
from closedform.ir.evaluate import evaluate
from closedform.ir.graph import Graph, Role
from closedform.ir.passes import DEFAULT
from closedform.ir.program import Program, flatten
from closedform.ir.types import DType, Shape
from closedform.language.exact import to_float
from closedform.language.printing import latex
from closedform.language.schedule import Schedule
from closedform.language.update_rule import UpdateRule
from closedform.lowering.domain import MAX_STEP
from closedform.lowering.double_float import Precision
from closedform.lowering.model import RuleFor, lower_evaluation, lower_init, lower_program
from closedform.lowering.schedule import lower_schedule
from closedform.version import __version__

if TYPE_CHECKING:
    import onnx
    from numpy.typing import ArrayLike, NDArray

    from closedform.exporters.torch_module import ScheduleModule
    from closedform.verify.claims.report import Report

CLOCK = "t is the number of optimizer steps done; the first step runs with t = 0"
"""The convention of the clock, written into every artefact."""


def compile(
    source: Schedule | UpdateRule,
    *,
    params: Mapping[str, Shape] | None = None,
    **options: Any,
) -> Graph:
    """Returns the graph of a schedule, or of one step of a rule on parameters of these shapes.

    Args:
        source: What to compile.
        params: Shapes by parameter name; for a rule only, and then required.
        **options: Those of ``compile_schedule`` or ``compile_step``.

    Raises:
        ExportError: ``source`` is neither, ``params`` is missing for a rule, given for a schedule
            or no shapes, or an option is unknown.
    """
    if not isinstance(source, Schedule | UpdateRule):
        raise ExportError(
            f"what is compiled must be a Schedule or an UpdateRule, got {type(source).__name__} "
            f"{source!r}",
            hint="closedform.Schedule(expression) makes one of a SymPy expression",
        )
    if isinstance(source, UpdateRule):
        if not params:
            raise ExportError(
                "a rule is compiled for parameters, got none",
                where=f"rule {source.name!r}",
                hint='give params={"w": (3, 4), …}',
            )
        check_shapes(params, f"rule {source.name!r}")
        check_options(options, compile_step, f"rule {source.name!r}")
        return compile_step(source, params, **options)
    check_options(options, compile_schedule, f"schedule {source.name!r}")
    if params is not None:
        raise ExportError("a schedule has no parameters", where=f"schedule {source.name!r}")
    return compile_schedule(source, **options)


def check_shapes(params: Mapping[str, Shape], where: str) -> None:
    """Raises ExportError if a shape is no tuple of sizes."""
    for name, shape in params.items():
        sizes = shape if isinstance(shape, tuple) else (None,)
        if not all(isinstance(n, str) or (type(n) is int and n >= 0) for n in sizes):
            raise ExportError(
                f"the shape of parameter {name!r} must be a tuple of integers >= 0, got {shape!r}",
                where=where,
                hint='give params={"w": (3, 4), …}, such as array.shape',
            )


def check_options(
    options: Mapping[str, Any], function: Callable[..., object], where: str, *taken: str
) -> None:
    """Raises ExportError if an option is no keyword of the function, or one that is taken."""
    parameters = inspect.signature(function).parameters.values()
    known = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in taken]
    for name in options:
        if name not in known:
            raise ExportError(
                f"there is no option {name!r}", where=where, hint=nearest(name, known)
            )


def compile_schedule(
    schedule: Schedule,
    *,
    step_shape: Shape = (),
    dtype: DType | str = DType.F64,
    scalar_dtype: DType | str = DType.F64,
    step_dtype: DType | str = DType.I64,
    inputs: Iterable[str] = (),
    precision: Precision | str = Precision.SINGLE,
) -> Graph:
    """Returns the graph ``step -> value`` of a schedule.

    Args:
        schedule: What to compile.
        step_shape: Shape of the step, ``()`` for one step or ``("n",)`` for any number of them.
        dtype: Dtype of the value; it is rounded once from the scalar dtype.
        scalar_dtype: Dtype that is computed in, f64 or f32.
        step_dtype: Dtype of the step, i64 or i32.
        inputs: Names of hyperparameters that become inputs of the graph.
        precision: "single" computes in the scalar dtype; "double-float" in pairs of float32, for
            devices without float64: a graph of f32 and integers whose value is within 0.501 ulp.

    Raises:
        ExportError: An option has no such value, or double-float is asked for with another dtype
            than f32.
        LoweringError: The expression cannot be expressed in a graph.
        DomainError: The schedule has no finite real value at some step.
        ExportError: ``inputs`` is a string.
    """
    if isinstance(inputs, str):
        raise ExportError(
            f"inputs must be a list of names, got str {inputs!r}",
            where=f"schedule {schedule.name!r}",
            hint=f"give inputs=({inputs!r},)",
        )
    place = f"schedule {schedule.name!r}"
    lowered = lower_schedule(
        schedule,
        step_shape=step_shape,
        dtype=tensor_dtype(dtype, "dtype"),
        scalar_dtype=tensor_dtype(scalar_dtype, "scalar_dtype"),
        precision=_precision(precision, place, dtype=dtype, scalar_dtype=scalar_dtype),
        step_dtype=tensor_dtype(step_dtype, "step_dtype"),
        inputs=inputs,
    )
    return DEFAULT(lowered)


def compile_step(
    rule: UpdateRule,
    params: Mapping[str, Shape],
    *,
    dtype: DType | str = DType.F32,
    scalar_dtype: DType | str = DType.F64,
    step_dtype: DType | str = DType.I64,
) -> Graph:
    """Returns the graph of one step of a rule on parameters of these shapes."""
    members = [RuleFor(rule, params)]
    program = compile_program(
        rule.name, members, dtype=dtype, scalar_dtype=scalar_dtype, step_dtype=step_dtype
    )
    return flatten(program)


def compile_program(
    name: str,
    members: Sequence[RuleFor],
    *,
    dtype: DType | str = DType.F32,
    scalar_dtype: DType | str = DType.F64,
    step_dtype: DType | str = DType.I64,
) -> Program:
    """Returns one step of a model: its scalars, and a graph for each kind of tensor.

    The passes run on each part, so that the cost grows with the number of kinds of tensors.
    """
    lowered = lower_program(
        name,
        members,
        dtype=tensor_dtype(dtype, "dtype"),
        scalar_dtype=tensor_dtype(scalar_dtype, "scalar_dtype"),
        step_dtype=tensor_dtype(step_dtype, "step_dtype"),
    )
    return lowered.map(DEFAULT)


def compile_evaluation(
    rule: UpdateRule,
    params: Mapping[str, Shape],
    *,
    dtype: DType | str = DType.F32,
    scalar_dtype: DType | str = DType.F64,
    step_dtype: DType | str = DType.I64,
) -> Graph:
    """Returns the point at which a model is evaluated: parameters and states to parameters.

    Outputs are ``evaluation.<parameter>``; the step is the number of steps done.
    """
    lowered = lower_evaluation(
        rule.name,
        [RuleFor(rule, params)],
        dtype=tensor_dtype(dtype, "dtype"),
        scalar_dtype=tensor_dtype(scalar_dtype, "scalar_dtype"),
        step_dtype=tensor_dtype(step_dtype, "step_dtype"),
    )
    return flatten(lowered.map(DEFAULT))


def compile_init(
    rule: UpdateRule, params: Mapping[str, Shape], *, dtype: DType | str = DType.F32
) -> Graph:
    """Returns the graph of the states of a rule before the first step."""
    members = [RuleFor(rule, params)]
    return DEFAULT(lower_init(rule.name, members, dtype=tensor_dtype(dtype, "dtype")))


_CHOICES = {
    "dtype": (DType.F64, DType.F32),
    "scalar_dtype": (DType.F64, DType.F32),
    "step_dtype": (DType.I64, DType.I32),
}


def tensor_dtype(value: DType | str, argument: str) -> DType:
    """Returns the dtype that an option asks for; ExportError if it is none of its choices."""
    choices = _CHOICES[argument]
    if value not in choices:
        legal = " or ".join(choices)
        raise ExportError(f"{argument} must be {legal}, got {value!r}")
    return DType(value)


def _precision(value: Precision | str, place: str, **dtypes: DType | str) -> Precision:
    if value not in list(Precision):
        legal = " or ".join(Precision)
        raise ExportError(f"precision must be {legal}, got {value!r}", where=place)
    for argument, dtype in dtypes.items():
        if value == Precision.DOUBLE_FLOAT and dtype != DType.F32:
            raise ExportError(
                f"precision 'double-float' computes in float32, got {argument} {dtype!s}",
                where=place,
                hint='give dtype="f32" and scalar_dtype="f32"',
            )
    return Precision(value)


def evaluate_schedule(schedule: Schedule, step: int | ArrayLike) -> float | NDArray[np.float64]:
    """Returns the float64 value of a schedule at a step or an array of steps, in NumPy.

    Raises:
        DefinitionError: A step is no integer, negative, or above ``MAX_STEP``.
    """
    place = f"schedule {schedule.name!r}"
    try:
        steps = np.asarray(step)
    except ValueError:
        raise DefinitionError(
            f"steps must be an integer or an array of one shape, got {step!r}", where=place
        ) from None
    if steps.size and not _are_integers(steps):
        raise DefinitionError(f"steps must be integers, got {steps.dtype} {step!r}", where=place)
    if steps.size and (steps.min() < 0 or steps.max() > MAX_STEP):
        wrong = steps.min() if steps.min() < 0 else steps.max()
        raise DefinitionError(f"steps must be in 0..{MAX_STEP}, got {wrong}", where=place)
    graph = schedule.memo("graph", lambda: compile_schedule(schedule, step_shape=("n",)))
    values = evaluate(graph, {"step": steps.astype(np.int64).reshape(-1)})["value"]
    return float(values[0]) if np.isscalar(step) or steps.ndim == 0 else values.reshape(steps.shape)


def _are_integers(steps: NDArray[Any]) -> bool:
    """Whether all are integers; an array of objects, such as Python's long ints, is looked into."""
    if steps.dtype.kind != "O":
        return steps.dtype.kind in "iu"
    return all(
        isinstance(item, int | np.integer) and not isinstance(item, bool) for item in steps.flat
    )


def to_onnx(
    source: Schedule | UpdateRule,
    path: str | PathLike[str],
    *,
    params: Mapping[str, Shape] | None = None,
    opset: int = 21,
    validate: bool = True,
    claims: Report | None = None,
    **options: Any,
) -> onnx.ModelProto | dict[str, onnx.ModelProto]:
    """Writes a schedule as one ONNX file, or a rule as ``init.onnx`` and ``step.onnx``.

    Args:
        source: What to export.
        path: The file of a schedule; the folder of a rule, made if it does not exist.
        params: Shapes by parameter name, for a rule.
        opset: ONNX opset, 7 to 23; one that does not have an op of the graph is refused.
        validate: Whether to show that each file is its source; metadata tell the verdicts.
        claims: A report on a schedule, as ``verify()`` gives it, for the metadata.
        **options: Those of ``compile``; for a rule also ``groups``, parameters with a rule of their
            own, ``inline``, one flat graph in place of local functions, and ``parts``, the graphs
            of single tensors as files of their own.

    Returns:
        The checked model, or the two models by name.

    Raises:
        ExportError: The folder does not exist, or the opset does not have an op.
    """
    from closedform.exporters.onnx_model import to_model, write_model
    from closedform.model_files import write_rule
    from closedform.verify.translation.artefact import validate_model

    if isinstance(source, UpdateRule):
        if claims is not None:
            raise ExportError(
                "claims are written for a schedule, got a rule", where=f"rule {source.name!r}"
            )
        return write_rule(source, path, params, opset=opset, validate=validate, **options)
    graph = compile(source, params=params, **options)
    model = to_model(graph, opset=opset, **_schedule_facts(source, graph, claims))
    if validate:
        validate_model(source, model)
    write_model(model, path)
    return model


def to_torch(schedule: Schedule, **options: Any) -> ScheduleModule:
    """Returns a torch module: integer steps of any shape to values of the same shape.

    Args:
        schedule: What to compile.
        **options: Those of ``compile_schedule``, but ``step_shape``. A hyperparameter among
            ``inputs`` that has a value keeps it as its default.

    Raises:
        ExportError: ``schedule`` is no Schedule, or an option is unknown.
    """
    from closedform.exporters.torch_module import ScheduleModule

    if not isinstance(schedule, Schedule):
        raise ExportError(
            f"to_torch takes a Schedule, got {type(schedule).__name__}",
            hint="run an UpdateRule with OptimizerSession",
        )
    check_options(options, compile_schedule, f"schedule {schedule.name!r}", "step_shape")
    graph = compile_schedule(schedule, step_shape=("n",), **options)
    return ScheduleModule(graph, _defaults(schedule, graph))


def _schedule_facts(schedule: Schedule, graph: Graph, claims: Report | None) -> dict[str, Any]:
    values = {name: str(value) for name, value in schedule.hyperparameters.items()}
    return {
        "metadata": _metadata(schedule.expr, values, claims),
        "defaults": _defaults(schedule, graph),
        "docs": {"step": CLOCK, "value": f"value of schedule {schedule.name}"},
    }


def _defaults(schedule: Schedule, graph: Graph) -> dict[str, float]:
    """The known values of the hyperparameters that are inputs of the graph."""
    known = schedule.hyperparameters
    names = [node.attribute("name") for node in graph.inputs if _is_hyper(node)]
    return {name: to_float(known[name]) for name in names if name in known}


def _metadata(
    expr: sp.Expr, hyperparameters: Mapping[str, str], claims: Report | None = None
) -> dict[str, str]:
    stated = {} if claims is None else {"closedform.claims": claims.as_metadata()}
    return {
        **stated,
        "closedform.version": __version__,
        "closedform.clock": CLOCK,
        "closedform.expression": sp.srepr(expr),
        "closedform.latex": latex(expr),
        "closedform.hyperparameters": json.dumps(hyperparameters, sort_keys=True),
    }


def _is_hyper(node: Any) -> bool:
    return bool(node.attribute("role") == Role.HYPER)
