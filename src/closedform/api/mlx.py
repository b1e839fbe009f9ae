"""``to_mlx``: a schedule as a learning rate of MLX, a rule as an optimizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

from closedform.api.compiling import check_source
from closedform.errors import ExportError, needs_extra
from closedform.language.schedule import Schedule
from closedform.language.update_rule import UpdateRule
from closedform.options import GraphOptions

if TYPE_CHECKING:
    from closedform.exporters.mlx_classes import MlxOptimizer, MlxSchedule


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
