"""The back ends that make code instead of files: C headers, JAX, torch modules, Keras and MLX.

``closedform.api`` has the same names; this module joins compiler, exporters and certificates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

from closedform.compiler import check_source, compile_schedule, find_nonfinite, refuse_nonfinite
from closedform.errors import ExportError, needs_extra
from closedform.ir.types import DType, Shape
from closedform.language.groups import Group
from closedform.language.schedule import Schedule
from closedform.language.update_rule import UpdateRule
from closedform.options import GraphOptions, ModelSpec, Precision

if TYPE_CHECKING:
    import optax

    from closedform.exporters.c_header import Header
    from closedform.exporters.jax_schedule import JaxSchedule
    from closedform.exporters.keras_classes import KerasOptimizer, KerasSchedule
    from closedform.exporters.mlx_classes import MlxOptimizer, MlxSchedule
    from closedform.exporters.torch_module import ScheduleModule
    from closedform.exporters.torch_rule import RuleModule
    from closedform.ir.graph import Graph
    from closedform.verify.terms.verdict import Verdict


def to_c(
    source: Schedule | UpdateRule,
    *,
    name: str | None = None,
    dtype: DType | str | None = None,
    scalar_dtype: DType | str = DType.F64,
    step_dtype: DType | str = DType.I64,
    inputs: Iterable[str] = (),
    precision: Precision | str = Precision.SINGLE,
    validate: bool = True,
) -> str:
    """Returns a C11 header that computes a schedule, or one step of a rule on flat arrays.

    A schedule is ``double NAME(int64_t t)``; hyperparameters that are inputs follow. A rule is
    ``void NAME_step(float *restrict param, const float *grad, float *state…, size_t n, int64_t t)``
    with ``NAME_init`` for its states; a rule with sums over all parameters or states of the model
    has further functions (:func:`closedform.exporters.c_header.rule_header`). The functions are
    ``static inline``, unless ``CLOSEDFORM_API`` is defined; they allocate nothing and need math.h
    alone, or the file that ``CLOSEDFORM_MATH_H`` names in its place. The comment of the header has
    the formula and the proved bound of the error.

    Compile without ``-ffast-math``; ``-O3 -fno-math-errno``
    vectorises the loops of rules.

    Args:
        source: The schedule, or the rule.
        name: The name of the function, or the prefix of the functions of a rule; the name of the
            source if not given.
        dtype: Dtype of a schedule's value (default f64), or of a rule's parameters, gradients and
            states (default f32).
        scalar_dtype: Dtype in which scalars are computed, f64 or f32.
        step_dtype: Dtype of the step, i64 or i32.
        inputs: For a schedule: names of hyperparameters that become parameters of the function.
        precision: "single" or "double-float", which needs no double and of math.h floorf, sqrtf
            and logf only, except for sums over all parameters, which are added in double; see
            :class:`closedform.options.GraphOptions`.
        validate: Whether the graph that is printed is proved equal to its source over the real
            numbers. The verdict is in the comment; the text itself is not read back. Of a rule with
            sums over all parameters, and in pairs of float32, nothing is proved.

    Raises:
        VerificationError: The graph is not its source.
        ExportError: An option does not apply to the source or has no such value, the name is not
            free in C, or the rule looks at shapes or takes means or maxima of tensors.
        LoweringError: An expression cannot be expressed in a graph, or its value is found to be
            NaN or infinite in floats at a step of its domain.

    Warns:
        UnprovedWarning: The graph is not proved to be its source; the message has the reason, and
            the range of steps that is proved.

    Example:
        >>> import closedform as cf
        >>> header = cf.to_c(cf.schedules.linear(1, 0, 100), name="learning_rate")
        >>> start = header.index("CLOSEDFORM_API double")
        >>> print(header[start : header.index("}", start) + 1])
        CLOSEDFORM_API double learning_rate(int64_t t)
        {
            const double v1 = (double)t;
            const double v2 = 100.0 - v1;
            const double v3 = v2 / 100.0;
            const _Bool v4 = t < INT64_C(100);
            const double v5 = v4 ? v3 : 0.0;
            return v5;
        }
    """
    options = GraphOptions(
        dtype=dtype,
        scalar_dtype=scalar_dtype,
        step_dtype=step_dtype,
        inputs=inputs,
        precision=precision,
    )
    header, verdict = header_and_verdict(source, options, name, validate=validate)
    from closedform.verify.translation.verdicts import warn_unless_proved

    warn_unless_proved(verdict, f"the C of {source.name!r}")
    return header.text


def header_and_verdict(
    source: Schedule | UpdateRule, options: GraphOptions, name: str | None, *, validate: bool = True
) -> tuple[Header, Verdict]:
    """Returns the header that ``to_c`` writes, and the verdict on its graph; see there."""
    from closedform.exporters.c_header import rule_header, schedule_header
    from closedform.verify.certificates.notes import error_note
    from closedform.verify.translation.verdicts import (
        NOT_VALIDATED,
        graph_verdict,
        refuse_refuted,
        step_verdict,
        translation_note,
    )

    if isinstance(source, UpdateRule):
        check_source(source, options, params={})
        schedules = {
            key: value
            for key, value in source.hyperparameters.items()
            if isinstance(value, Schedule)
        }
        scalar_options = replace(options, dtype=options.scalar_dtype)
        notes = [
            f"{key}: {error_note(value, scalar_options, compile_schedule(value, scalar_options))}"
            for key, value in schedules.items()
        ]
        verdict = NOT_VALIDATED

        def judge(graphs: Sequence[Graph | None]) -> str:
            nonlocal verdict
            if validate:
                verdict = step_verdict(source, graphs, options)
                refuse_refuted(verdict, f"rule {source.name!r}")
            return translation_note(verdict)

        header = rule_header(source, options, name, notes=notes, judge=judge)
        return header, verdict
    check_source(source, options)
    graph = compile_schedule(source, options)
    refuse_nonfinite(source, graph, find_nonfinite(source, graph))
    verdict = graph_verdict(source, graph, options) if validate else NOT_VALIDATED
    refuse_refuted(verdict, f"schedule {source.name!r}")
    notes = [error_note(source, options, graph), translation_note(verdict)]
    return schedule_header(source, graph, name, notes=notes), verdict


@overload
def to_jax(
    source: Schedule,
    *,
    dtype: DType | str | None = ...,
    inputs: Iterable[str] = ...,
    validate: bool = ...,
) -> JaxSchedule: ...
@overload
def to_jax(
    source: UpdateRule, *, validate: bool = ...
) -> optax.GradientTransformationExtraArgs: ...
def to_jax(
    source: Schedule | UpdateRule,
    *,
    dtype: DType | str | None = None,
    inputs: Iterable[str] = (),
    validate: bool = True,
) -> JaxSchedule | optax.GradientTransformationExtraArgs:
    """Returns a schedule as a function of the count, or a rule as a transformation of optax.

    The function ``value(count, **hyper)`` takes a count or an array of counts, the number of
    updates done, and may be traced: ``optax.sgd(learning_rate=value)``, ``jax.jit``, ``jax.vmap``,
    ``optax.inject_hyperparams``. In 64 bits it computes in float64; with 32 bits, JAX's default, in
    pairs of float32 on integers, to 0.501 ulp.

    The transformation has the updates of ``optax.apply_updates``, the differences of the
    parameters, and works in ``optax.chain``, ``optax.masked`` and ``jax.jit``. Its state is
    ``(count, states, shared)``; hyperparameters without a value are arguments of ``update``.

    Args:
        source: The schedule, or the rule.
        dtype: For a schedule: dtype of the value, f64 or f32; by default that of JAX's floats.
        inputs: For a schedule: names of hyperparameters that become arguments of the function; one
            that has a value keeps it as its default.
        validate: Whether the graph is proved equal to its source over the real numbers; with 32
            bits, that of the same formula with scalars in float64, since pairs of float32 say
            nothing there. The graphs of a rule are made for the parameters that ``update`` gets:
            they are proved when the first update is traced, with one parameter of each kind.

    Raises:
        ExportError: jax or optax is not installed, or an option does not apply.
        LoweringError: An expression cannot be expressed in a graph.
        VerificationError: The graph is not its source.

    Warns:
        UnprovedWarning: The graph is not proved to be its source; that of a rule says so at the
            first update.

    Example:
        >>> import closedform as cf
        >>> lr = cf.to_jax(cf.schedules.cosine(1, 0, 100))  # doctest: +SKIP
        >>> float(lr(50))  # doctest: +SKIP
        0.5
        >>> optimizer = cf.to_jax(cf.optimizers.adamw(lr=1e-3))  # doctest: +SKIP
        >>> state = optimizer.init(params)  # doctest: +SKIP
    """
    options = GraphOptions(dtype=dtype, inputs=inputs)
    with needs_extra("jax"):
        import optax  # noqa: F401

        from closedform.exporters.jax_rule import jax_rule
        from closedform.exporters.jax_schedule import jax_schedule
    if isinstance(source, UpdateRule):
        check_source(source, options, params={})
        if dtype is not None:
            raise ExportError(
                f"dtype is an option of schedules, got {dtype!r} for a rule",
                where=f"rule {source.name!r}",
                hint="the parameters have one",
            )
        if not validate:
            return jax_rule(source)
        return jax_rule(source, lambda graph: _validate_for_jax(source, graph, GraphOptions()))
    check_source(source, options)
    if not validate:
        return jax_schedule(source, options.dtype, options.inputs)

    def check(graph: Graph, graph_options: GraphOptions) -> None:
        if (
            graph_options.precision is Precision.DOUBLE_FLOAT
        ):  # it says nothing over the real numbers
            graph_options = GraphOptions(inputs=graph_options.inputs)
            graph = compile_schedule(source, graph_options)
        _validate_for_jax(source, graph, graph_options)

    return jax_schedule(source, options.dtype, options.inputs, check)


def _validate_for_jax(source: Schedule | UpdateRule, graph: Graph, options: GraphOptions) -> None:
    """Warns unless the graph that JAX runs is proved to be its source."""
    from closedform.verify.translation.verdicts import (
        graph_verdict,
        refuse_refuted,
        warn_unless_proved,
    )

    kind = "rule" if isinstance(source, UpdateRule) else "schedule"
    verdict = graph_verdict(source, graph, options)
    refuse_refuted(verdict, f"{kind} {source.name!r}")
    warn_unless_proved(verdict, f"the function for JAX of {kind} {source.name!r}")


@overload
def to_keras(source: Schedule) -> KerasSchedule: ...
@overload
def to_keras(source: UpdateRule, **options: Any) -> KerasOptimizer: ...
def to_keras(source: Schedule | UpdateRule, **options: Any) -> KerasSchedule | KerasOptimizer:
    """Returns a schedule as a learning rate of Keras 3, or an elementwise rule as an optimizer.

    Both run on Keras's backends JAX and torch, and are saved and loaded with a model where
    closedform is imported: their configs hold their graphs as text. The learning rate of a rule,
    its hyperparameter ``lr``, is that of Keras, which callbacks read and set; a schedule of it
    becomes one of Keras.

    Args:
        source: The schedule, or the rule.
        **options: For a rule: those of ``keras.optimizers.Optimizer``, such as ``clipnorm``, and
            ``learning_rate`` where the rule has no value of ``lr``.

    Raises:
        ExportError: keras is not installed or has another backend, an option is given for a
            schedule, or the rule looks at shapes, takes sums over all parameters, has states of the
            whole model or has no ``lr``.
        LoweringError: An expression cannot be expressed in a graph.

    Example:
        >>> import closedform as cf
        >>> rule = cf.optimizers.adamw(lr=cf.schedules.cosine(1e-3, 0, 1000))
        >>> model.compile(optimizer=cf.to_keras(rule), loss="mse")  # doctest: +SKIP
    """
    check_source(source, GraphOptions(), params={} if isinstance(source, UpdateRule) else None)
    with needs_extra("keras"):
        from closedform.exporters.keras_classes import keras_optimizer, keras_schedule
    if isinstance(source, UpdateRule):
        return keras_optimizer(source, **options)
    if options:
        raise ExportError(
            f"a schedule takes no options, got {', '.join(options)}",
            where=f"schedule {source.name!r}",
        )
    return keras_schedule(source)


@overload
def to_mlx(source: Schedule) -> MlxSchedule: ...
@overload
def to_mlx(
    source: UpdateRule, *, learning_rate: float | Schedule | MlxSchedule | None = ...
) -> MlxOptimizer: ...
def to_mlx(
    source: Schedule | UpdateRule,
    *,
    learning_rate: float | Schedule | MlxSchedule | None = None,
) -> MlxSchedule | MlxOptimizer:
    """Returns a schedule as a learning rate of MLX, or a rule as an optimizer.

    The function of a schedule takes the step, an integer or an array of them:
    ``mlx.optimizers.AdamW(learning_rate=value)``. The optimizer is a subclass of
    ``mlx.optimizers.Optimizer`` and may be compiled with ``mx.compile``. The learning rate of a
    rule, its hyperparameter ``lr``, is that of MLX, ``optimizer.learning_rate``.

    Args:
        source: The schedule, or the rule.
        learning_rate: For a rule: in the place of its ``lr``, a number, a schedule, or a function
            of the step.

    Raises:
        ExportError: mlx is not installed, a learning rate is given for a schedule or missing for a
            rule, or the rule takes sums over all parameters, has states of the whole model, takes
            further tensors or has no ``lr``.
        LoweringError: An expression cannot be expressed in a graph.

    Example:
        >>> import closedform as cf
        >>> rule = cf.optimizers.adamw(lr=cf.schedules.cosine(1e-3, 0, 1000))
        >>> optimizer = cf.to_mlx(rule)  # doctest: +SKIP
        >>> optimizer.update(model, grads)  # doctest: +SKIP
    """
    check_source(source, GraphOptions(), params={} if isinstance(source, UpdateRule) else None)
    with needs_extra("mlx"):
        from closedform.exporters.mlx_classes import mlx_optimizer, mlx_schedule
    if isinstance(source, UpdateRule):
        return mlx_optimizer(source, learning_rate)
    if learning_rate is not None:
        raise ExportError(
            f"a schedule has no learning rate, got {learning_rate!r}",
            where=f"schedule {source.name!r}",
        )
    return mlx_schedule(source)


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
        from closedform.exporters.torch_rule import RuleModule
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
        return RuleModule(ModelSpec(source, params or {}, groups), options)
    graph = compile_schedule(source, options)
    refuse_nonfinite(source, graph, find_nonfinite(source, graph))
    return ScheduleModule(graph, input_defaults(source, graph))
