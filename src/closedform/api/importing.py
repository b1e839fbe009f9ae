"""The front ends that trace objects of Python, torch and optax.

They take the prover as an argument, which stands above them; it is passed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, overload

import sympy as sp

from closedform.errors import ArgumentError, needs_extra
from closedform.language.groups import Group
from closedform.language.schedule import Schedule
from closedform.language.update_rule import UpdateRule

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    from closedform.importers.optax.subject import Transformation
    from closedform.importers.python import TracedSchedule


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
        return trace(source, TracingProver())
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
