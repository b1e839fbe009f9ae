"""Schedules of the library over about a million steps, and their formulas in other packages.

An example of the library is 100 to 300 steps long. Here its lengths are ``FACTOR`` times as long,
so that all 2**20 steps differ, and its values are multiplied by a peak that is not a power of two.
"""

import ast
import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closedform import schedules
from closedform.language import Schedule
from closedform.schedules.examples import EXAMPLES, Example
from tests.support.study import STUDY

FACTOR = 8_000
EXHAUSTIVE = 2**20
LAST = 2**50
LENGTHS = ("Steps", "Count")
"""The annotations of parameters that are numbers of steps."""

# Numbers of members and not of steps, which share the annotation of a list of steps.
COUNTS = frozenset({("wsd_checkpoints", "checkpoints")})

PEAK = 3e-4


def lengthen(value: object) -> object:
    """Returns a number of steps, or a list of them, ``FACTOR`` times as large."""
    if isinstance(value, list):
        return [lengthen(entry) for entry in value]
    return value * FACTOR if isinstance(value, int) else value


def long_run(name: str, example: Example) -> Schedule | None:
    """Returns the schedule of an example over a long run; None for an update rule.

    Examples whose arguments are not literals keep their lengths.
    """
    function = getattr(schedules, name)
    call = ast.parse(example.call, mode="eval").body
    assert isinstance(call, ast.Call)
    try:
        positional = [ast.literal_eval(node) for node in call.args]
        named = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    except ValueError:
        schedule = example.make()
        return schedule * PEAK if isinstance(schedule, Schedule) else None
    signature = inspect.signature(function)
    bound = signature.bind(*positional, **named)
    for key, parameter in signature.parameters.items():
        annotation = str(parameter.annotation)
        is_length = any(word in annotation for word in LENGTHS) and "Stage" not in annotation
        if key in bound.arguments and is_length and (name, key) not in COUNTS:
            bound.arguments[key] = lengthen(bound.arguments[key])
    schedule = function(*bound.args, **bound.kwargs)
    return schedule * PEAK if isinstance(schedule, Schedule) else None


def long_runs() -> dict[str, Schedule]:
    """Returns the schedules of the table by name: the library, and the study's ten formulas."""
    library = {name: long_run(name, example) for name, example in EXAMPLES.items()}
    named = {name: schedule for name, schedule in library.items() if schedule is not None}
    return named | {f"study: {name}": schedule for name, schedule in STUDY.items()}


def compared_steps(schedule: Schedule, starts: list[int], last: int) -> NDArray[np.int64]:
    """Returns all steps up to ``EXHAUSTIVE``, then boundaries, powers of two and random steps.

    Args:
        schedule: Its last step bounds the steps.
        starts: The first steps of its branches.
        last: The last step that the back end's clock holds.
    """
    end = min(LAST, last, schedule.last_step or LAST)
    draws = np.random.default_rng(0)
    near = [start + offset for start in starts for offset in range(-3, 4)]
    powers = [2**power + offset for power in range(20, 51) for offset in (-1, 0, 1)]
    points = [
        np.arange(EXHAUSTIVE),
        np.array([*near, *powers], np.int64),
        draws.integers(0, end, 10_000, endpoint=True),
        np.exp2(draws.uniform(20, 50, 10_000)).astype(np.int64),
    ]
    steps = np.unique(np.concatenate(points))
    return steps[(steps >= 0) & (steps <= end)]


Peer = Callable[[NDArray[np.int64]], NDArray[Any]]


def stepped(make: Callable[[Any], Any], rate: float) -> Peer:
    """Returns the rates of a torch scheduler, stepped from 0, as float64."""

    def rates(steps: NDArray[np.int64]) -> NDArray[np.float64]:
        import torch

        optimizer = torch.optim.SGD([torch.zeros(1)], lr=rate)
        scheduler = make(optimizer)
        values = np.empty(len(steps))
        for place in range(len(steps)):
            values[place] = optimizer.param_groups[0]["lr"]
            optimizer.step()
            scheduler.step()
        return values

    return rates


def peers() -> Iterator[tuple[str, str, Peer]]:
    """Yields package, name of the study's formula and function, each as its package ships it.

    The steps are 0, 1, 2, …; a function of float32 returns float32.
    """
    import keras
    import mlx.optimizers
    import optax
    import torch
    import transformers

    total, peak, end, base = 10**6, 1e-3, 1e-5, 0.99999
    torch_schedulers = torch.optim.lr_scheduler
    yield (
        "torch",
        "cosine_decay",
        stepped(lambda opt: torch_schedulers.CosineAnnealingLR(opt, total, end), peak),
    )
    yield (
        "torch",
        "linear",
        stepped(lambda opt: torch_schedulers.LinearLR(opt, 1.0, end / peak, total), peak),
    )
    yield (
        "torch",
        "decay_099999",
        stepped(lambda opt: torch_schedulers.ExponentialLR(opt, base), peak),
    )
    for name, function in {
        "cosine_decay": lambda opt: transformers.get_cosine_with_min_lr_schedule_with_warmup(
            opt, 0, total, min_lr=end
        ),
        "polynomial_09": lambda opt: transformers.get_polynomial_decay_schedule_with_warmup(
            opt, 0, total, lr_end=end, power=0.9
        ),
    }.items():
        yield "transformers", name, stepped(function, peak)
    for name, schedule in {
        "cosine_decay": optax.cosine_decay_schedule(peak, total, end / peak),
        "linear": optax.linear_schedule(peak, end, total),
        "decay_099999": optax.exponential_decay(peak, 1, base),
        "polynomial_09": optax.polynomial_schedule(peak, end, 0.9, total),
    }.items():
        yield "optax", name, partial(_numpy_values, schedule)
    rates = keras.optimizers.schedules
    for name, schedule in {
        "cosine_decay": rates.CosineDecay(peak, total, end / peak),
        "linear": rates.PolynomialDecay(peak, total, end, 1.0),
        "decay_099999": rates.ExponentialDecay(peak, 1, base),
        "polynomial_09": rates.PolynomialDecay(peak, total, end, 0.9),
    }.items():
        yield "Keras", name, partial(_keras_values, schedule)
    for name, schedule in {
        "cosine_decay": mlx.optimizers.cosine_decay(peak, total, end),
        "linear": mlx.optimizers.linear_schedule(peak, end, total),
        "decay_099999": mlx.optimizers.exponential_decay(peak, base),
    }.items():
        yield "MLX", name, partial(_mlx_values, schedule)


def _numpy_values(schedule: Any, steps: NDArray[np.int64]) -> NDArray[Any]:
    return np.asarray(schedule(steps))


def _mlx_values(schedule: Any, steps: NDArray[np.int64]) -> NDArray[Any]:
    import mlx.core as mx

    return np.asarray(schedule(mx.array(steps.astype(np.int32))))


def _keras_values(schedule: Any, steps: NDArray[np.int64]) -> NDArray[Any]:
    from keras import ops

    values = ops.convert_to_numpy(schedule(ops.convert_to_tensor(steps.astype(np.int32))))
    return np.asarray(values)
