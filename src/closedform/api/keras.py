"""``to_keras``: a schedule as a learning rate of Keras 3, a rule as an optimizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict, Unpack, overload

from closedform.api.compiling import check_source
from closedform.errors import ExportError, needs_extra
from closedform.language.schedule import Schedule
from closedform.language.update_rule import UpdateRule
from closedform.options import GraphOptions

if TYPE_CHECKING:
    from keras.optimizers.schedules import LearningRateSchedule

    from closedform.exporters.keras_classes import KerasOptimizer, KerasSchedule


class KerasOptions(TypedDict, total=False):
    """The arguments of ``keras.optimizers.Optimizer``, as in Keras 3.15."""

    name: str
    learning_rate: float | LearningRateSchedule
    weight_decay: float | None
    clipnorm: float | None
    clipvalue: float | None
    global_clipnorm: float | None
    use_ema: bool
    ema_momentum: float
    ema_overwrite_frequency: int | None
    loss_scale_factor: float | None
    gradient_accumulation_steps: int | None


@overload
def to_keras(source: Schedule) -> KerasSchedule: ...
@overload
def to_keras(source: UpdateRule, **options: Unpack[KerasOptions]) -> KerasOptimizer: ...
def to_keras(
    source: Schedule | UpdateRule, **options: Unpack[KerasOptions]
) -> KerasSchedule | KerasOptimizer:
    """Returns a schedule as a learning rate of Keras 3, or an elementwise rule as an optimizer.

    Both run on Keras's backends JAX and torch, and are saved and loaded with a model where
    closedform is imported: their configs hold their graphs as text. The learning rate of a rule,
    its hyperparameter ``lr``, is that of Keras, which callbacks read and set; a schedule of it
    becomes one of Keras.

    Args:
        source: The schedule, or the rule.
        **options: For a rule: arguments of ``keras.optimizers.Optimizer``, such as ``clipnorm``,
            and ``learning_rate`` where the rule has no value of ``lr``.

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
