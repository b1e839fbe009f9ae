"""``to_torch``: a schedule or one step of a rule as a torch module."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, overload

from closedform.api.compiling import check_source
from closedform.compiler import (
    compile_init,
    compile_schedule,
    compile_step,
    find_nonfinite,
    refuse_nonfinite,
)
from closedform.errors import needs_extra
from closedform.ir.types import DType, Shape
from closedform.language.groups import Group
from closedform.language.schedule import Schedule
from closedform.language.update_rule import UpdateRule
from closedform.options import GraphOptions, ModelSpec, Precision

if TYPE_CHECKING:
    from closedform.exporters.torch_module import ScheduleModule
    from closedform.exporters.torch_rule import RuleModule


@overload
def to_torch(
    source: Schedule,
    *,
    dtype: DType | str | None = ...,
    scalar_dtype: DType | str = ...,
    step_dtype: DType | str = ...,
    inputs: Iterable[str] = ...,
    precision: Precision | str = ...,
) -> ScheduleModule: ...
@overload
def to_torch(
    source: UpdateRule,
    *,
    params: Mapping[str, Shape],
    groups: Sequence[Group] = ...,
    dtype: DType | str | None = ...,
    scalar_dtype: DType | str = ...,
    step_dtype: DType | str = ...,
    precision: Precision | str = ...,
) -> RuleModule: ...
def to_torch(
    source: Schedule | UpdateRule,
    *,
    params: Mapping[str, Shape] | None = None,
    groups: Sequence[Group] = (),
    dtype: DType | str | None = None,
    scalar_dtype: DType | str = DType.F64,
    step_dtype: DType | str = DType.I64,
    inputs: Iterable[str] = (),
    precision: Precision | str = Precision.SINGLE,
) -> ScheduleModule | RuleModule:
    """Returns a torch module of a schedule or of one step of a rule.

    That of a schedule maps integer steps of any shape to values of the same shape. That of a rule
    is a pure function, ``(params, grads, states, step) -> (params, states)``, of dicts of tensors;
    ``initial_states(params)`` returns the first states. Both may be compiled and exported with
    ``torch.compile`` and ``torch.export``.

    Args:
        source: The schedule or rule.
        params: For a rule: shapes by parameter name.
        groups: For a rule: parameters with a separate rule.
        dtype: Dtype of a schedule's value (default f64), or of a rule's parameters, gradients and
            states (default f32).
        scalar_dtype: Dtype in which scalars are computed, f64 or f32.
        step_dtype: Dtype of the step, i64 or i32.
        inputs: For a schedule: names of hyperparameters that become inputs of the module; one that
            has a value keeps it as its default.
        precision: "single" or "double-float", see :class:`closedform.options.GraphOptions`.

    Raises:
        ExportError: torch is not installed, an option does not apply to the source or has no such
            value, or a rule decides whether its step counts or takes other tensors than the
            gradient.
        LoweringError: An expression cannot be expressed in a graph, or its value is found to be
            NaN or infinite in floats at a step of its domain.

    Example:
        >>> import torch
        >>> import closedform as cf
        >>> module = cf.to_torch(cf.optimizers.sgd(0.5), params={"w": (2,)})
        >>> ones = {"w": torch.ones(2)}
        >>> module(ones, ones, module.initial_states(ones), torch.tensor(0))
        ({'w': tensor([0.5000, 0.5000])}, {})
    """
    from closedform.exporters.onnx_files import input_defaults

    with needs_extra("torch"):
        from closedform.exporters.torch_module import ScheduleModule
        from closedform.exporters.torch_rule import RuleModule, check_functional
    is_rule = isinstance(source, UpdateRule)
    options = GraphOptions(
        dtype=dtype,
        scalar_dtype=scalar_dtype,
        step_dtype=step_dtype,
        step_shape=() if is_rule else ("n",),
        inputs=inputs,
        precision=precision,
    )
    check_source(source, options, params=params, groups=groups)
    if isinstance(source, UpdateRule):
        spec = ModelSpec(source, params or {}, groups)
        for assignment in spec.assignments:
            check_functional(assignment.rule)
        return RuleModule(spec, compile_step(spec, options), compile_init(spec, options))
    graph = compile_schedule(source, options)
    refuse_nonfinite(source, graph, find_nonfinite(source, graph))
    return ScheduleModule(graph, input_defaults(source, graph))
