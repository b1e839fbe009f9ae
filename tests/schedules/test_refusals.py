"""The refusals of the families, message by message."""

from collections.abc import Callable
from typing import Any

import pytest

from closedform import schedules as library
from closedform.errors import DefinitionError, DomainError, LimitError

BAD: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "negative rate": (
        lambda: library.exponential(1, -0.5, 4),
        DomainError,
        "rate must be at least 0 where steps is 4, got -0.5 (exponential): a fractional power of "
        "a negative number is not real; set staircase",
    ),
    "pole": (
        lambda: library.inverse_time(1, -0.25),
        DomainError,
        "rate must be at least 0, got -0.25 (inverse_time): below 0 the value has a pole",
    ),
    "multiplier": (
        lambda: library.warm_restarts(1, 0, 5, multiplier=0),
        DomainError,
        "multiplier must be an integer >= 1, got 0 (warm_restarts)",
    ),
    "restarts": (
        lambda: library.warm_restarts(1, 0, 5, multiplier=2, restarts=10**9),
        LimitError,
        "restarts must be at most 1000 where periods grow, got int 1000000000 (warm_restarts): "
        "leave it out: restarts then reach beyond the last step of the clock",
    ),
    "mode": (
        lambda: library.cyclic(0, 1, 5, mode="triangle"),
        DefinitionError,
        "mode must be one of triangular, triangular2, exp_range, got 'triangle' (cyclic): did you "
        "mean 'triangular'?",
    ),
    "no rise": (
        lambda: library.cyclic(0, 1, 0, 3),
        DomainError,
        "up must be above 0, got 0 (cyclic): the height over no steps has no value",
    ),
    "negative fall": (
        lambda: library.cyclic(0, 1, 2, -3),
        DomainError,
        "down must be at least 0, got -3 (cyclic)",
    ),
    "peak at step 0": (
        lambda: library.one_cycle(0, 1, 0, 10, 0.1),
        DomainError,
        "rise * steps must not be 1, got 0.1 * 10: the first phase has no steps (one_cycle): "
        "change one of them by a little",
    ),
    "phases that do not fit": (
        lambda: library.wsd(1, 0, 10, 6, 5),
        DomainError,
        "warmup and decay must fit into steps, got 6 + 5 > 10 (wsd)",
    ),
    "decay to 0": (
        lambda: library.wsd(2, 0, 10, 0, 5, "inverse"),
        DomainError,
        "peak and end must be above 0 for the shape inverse, got 2 and 0 (wsd): linear, sqrt, "
        "cosine and square reach 0",
    ),
    "no decay": (
        lambda: library.wsd_checkpoints(1, 0, 9),
        DomainError,
        "the decay before checkpoint 9 has no steps: ratio 0.1 of 9 (wsd_checkpoints): take a "
        "larger ratio",
    ),
    "checkpoints out of order": (
        lambda: library.wsd_checkpoints(1, 0, 90, checkpoints=[60, 30]),
        DomainError,
        "checkpoints must increase from above 0 to at most steps = 90, got [60, 30] "
        "(wsd_checkpoints)",
    ),
    "empty table": (
        lambda: library.table([]),
        DefinitionError,
        "values must not be empty, got none (table)",
    ),
    "repeat without a length": (
        lambda: library.repeat(library.multiplicative(1, 0.5)),
        DefinitionError,
        "a schedule without a length needs the number of steps after which it repeats "
        "(schedule 'multiplicative'): give every",
    ),
    "bound": (
        lambda: library.hyperbolic(1, 0, 10, 8),
        DomainError,
        "bound must be at least steps, got 8 and 10 (hyperbolic)",
    ),
    "bounds that cross": (
        lambda: library.linear(0, 3, 10).clip(2, 1),
        DefinitionError,
        "low must be at most high, got 2 and 1 (schedule 'linear'): give the lower bound first",
    ),
    "milestones that are not a list": (
        lambda: library.sequential([library.constant(1), library.constant(2)], 9),  # type: ignore[arg-type]
        DefinitionError,
        "milestones must be a list of steps, got int 9: give a list of integers, or None for the "
        "lengths of the schedules",
    ),
    "order of tanh": (
        lambda: library.tanh_decay(1, 0, 10, 2, -2),
        DomainError,
        "high must be above low, got -2 and 2 (tanh_decay)",
    ),
    "cut": (
        lambda: library.slanted_triangular(1, 5, 0.1),
        DomainError,
        "cut * steps must be at least 1, got 0.1 * 5: the rise has no steps "
        "(slanted_triangular): take a larger cut",
    ),
    "no cosine": (
        lambda: library.cosine_k_decay(1, 0, 10, 1, 6, 0, 4),
        DomainError,
        "warmup and cooldown must leave steps for the cosine, got 6 + 4 of 10 (cosine_k_decay)",
    ),
    "all flat": (
        lambda: library.flat_cosine(1, 0, 10, 12),
        DomainError,
        "flat must be at least 0 and below steps, got 12 of 10 (flat_cosine)",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_argument_is_refused(name: str) -> None:
    build, kind, message = BAD[name]
    with pytest.raises(kind) as caught:
        build()
    assert str(caught.value) == message
    assert type(caught.value) is kind
