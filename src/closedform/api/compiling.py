"""``cf.compile``, and the checks of arguments that all exports share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import overload

from closedform.compiler import DEFAULTS, compile_schedule, compile_step
from closedform.errors import ExportError
from closedform.ir.graph import Graph
from closedform.ir.types import DType, Shape
from closedform.language.groups import Group
from closedform.language.schedule import Schedule
from closedform.language.update_rule import UpdateRule
from closedform.options import GraphOptions, ModelSpec, Precision


@overload
def compile(
    source: Schedule,
    *,
    step_shape: Shape = ...,
    dtype: DType | str | None = ...,
    scalar_dtype: DType | str = ...,
    step_dtype: DType | str = ...,
    inputs: Iterable[str] = ...,
    precision: Precision | str = ...,
) -> Graph: ...
@overload
def compile(
    source: UpdateRule,
    *,
    params: Mapping[str, Shape],
    groups: Sequence[Group] = ...,
    dtype: DType | str | None = ...,
    scalar_dtype: DType | str = ...,
    step_dtype: DType | str = ...,
    precision: Precision | str = ...,
) -> Graph: ...
def compile(
    source: Schedule | UpdateRule,
    *,
    params: Mapping[str, Shape] | None = None,
    groups: Sequence[Group] = (),
    step_shape: Shape = (),
    dtype: DType | str | None = None,
    scalar_dtype: DType | str = DType.F64,
    step_dtype: DType | str = DType.I64,
    inputs: Iterable[str] = (),
    precision: Precision | str = Precision.SINGLE,
) -> Graph:
    """Returns the graph of a schedule, or of one step of a rule on parameters of these shapes.

    Args:
        source: The schedule or rule.
        params: For a rule: shapes by parameter name.
        groups: For a rule: parameters with a separate rule.
        step_shape: For a schedule: the shape of the step, ``()`` for one step or ``("n",)`` for
            any number of steps.
        dtype: Dtype of a schedule's value (default f64), or of a rule's parameters, gradients and
            states (default f32).
        scalar_dtype: Dtype in which scalars are computed, f64 or f32.
        step_dtype: Dtype of the step, i64 or i32.
        inputs: For a schedule: names of hyperparameters that become inputs of the graph.
        precision: "single" or "double-float", see :class:`closedform.options.GraphOptions`.

    Raises:
        ExportError: ``source`` is neither a schedule nor a rule, ``params`` is missing for a rule
            or given for a schedule, or an option has no such value.
        LoweringError: An expression cannot be expressed in a graph.
        DomainError: The schedule has no finite real value at some step.
        DefinitionError: A group matches no parameter, or a rule does not accept a shape.
    """
    options = GraphOptions(
        dtype=dtype,
        scalar_dtype=scalar_dtype,
        step_dtype=step_dtype,
        step_shape=step_shape,
        inputs=inputs,
        precision=precision,
    )
    check_source(source, options, params=params, groups=groups)
    if isinstance(source, UpdateRule):
        return compile_step(ModelSpec(source, params or {}, groups), options)
    return compile_schedule(source, options)


def check_source(
    source: object,
    options: GraphOptions,
    *,
    params: Mapping[str, Shape] | None = None,
    groups: Sequence[Group] = (),
) -> None:
    """Raises ExportError if an argument is for the other kind of source."""
    if isinstance(source, UpdateRule):
        for name in ("step_shape", "inputs"):
            if getattr(options, name) != getattr(DEFAULTS, name):
                raise ExportError(
                    f"{name} is an option of schedules, got {getattr(options, name)!r} for a rule",
                    where=f"rule {source.name!r}",
                    hint="leave it out",
                )
        return
    if not isinstance(source, Schedule):
        raise ExportError(
            f"the source must be a Schedule or an UpdateRule, got {type(source).__name__} "
            f"{source!r}",
            hint="from_python reads a function of the step; Schedule(expression) is one of SymPy",
        )
    if params is not None or groups:
        raise ExportError(
            "a schedule has no parameters, got params or groups", where=f"schedule {source.name!r}"
        )
