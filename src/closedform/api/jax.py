"""``to_jax``: a schedule as a function of the count, a rule as a transformation of optax."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, overload

from closedform.api.compiling import check_source
from closedform.compiler import compile_schedule
from closedform.errors import ExportError, needs_extra
from closedform.ir.types import DType
from closedform.language.schedule import Schedule
from closedform.language.update_rule import UpdateRule
from closedform.options import GraphOptions, Precision

if TYPE_CHECKING:
    import optax

    from closedform.exporters.jax_schedule import JaxSchedule
    from closedform.ir.graph import Graph


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
