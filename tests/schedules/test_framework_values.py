"""Schedules that training frameworks have, beside the values that the frameworks computed.

Each row builds the schedule from the library alone and names a record of the framework's own code
(``tests/reference``). Values past the end of the run, where a framework leaves the curve, are
outside the row's interval.
"""

from collections.abc import Callable

import numpy as np
import pytest

from closedform import schedules as library
from closedform.language import Schedule
from tests.reference.records import framework_records

RECORDS = {row["id"]: row for row in framework_records()}

# Record, first and last step that are compared, and the schedule.
ROWS: dict[str, tuple[str, int, int, Callable[[], Schedule]]] = {
    "cosine_linear_envelope": (
        "olmo-cosine_linear_envelope-014",
        3,
        50,
        lambda: library.cosine_linear_envelope(0.00011, 0.00011, 13).shift(-2),
    ),
    "cosine_linear_envelope, to a tenth": (
        "olmo-cosine_linear_envelope-016",
        2,
        40,
        lambda: library.cosine_linear_envelope(0.19, 0.019, 7).shift(-2),
    ),
    "maximum": (
        "olmo-max_scheduler-001",
        3,
        70,
        lambda: library.maximum(
            [
                library.cosine(0.0079, 0.00395, 47).shift(-2),
                library.power(0.0079, -0.5, 3).shift(1),
            ]
        ),
    ),
    "half_cosine": (
        "olmo_core-HalfCosWithWarmup-007",
        2,
        40,
        lambda: library.half_cosine(0.083, 0, 18).shift(-1),
    ),
    "cosine_linear_tail": (
        "olmo_core-CosWithWarmupAndLinearDecay-001",
        0,
        11,
        lambda: library.cosine_linear_tail(0.87, 0.087, 12, tail=1).shift(1),
    ),
    "power_with_tail": (
        "olmo_core-PowerLR-009",
        0,
        29,
        lambda: library.power_with_tail(1.3e-5, -0.3, 30, 3, 6).shift(1),
    ),
    "power_with_tail, from and to values above 0": (
        "olmo_core-PowerLR-003",
        0,
        15,
        lambda: library.power_with_tail(4.6e-5, -0.51, 16, 2, 2, 4.6e-6, 4.6e-6).shift(1),
    ),
    "stages": (
        "olmo_core-ComposableScheduler-019",
        0,
        70,
        lambda: library.stages(0.00027, [(0, 10)], at=46, override=(0.00027, 1)).shift(1),
    ),
    "stages, overridden by a cosine": (
        "olmo_core-ComposableScheduler-003",
        0,
        40,
        lambda: library.stages(0.039, [(0, 3)], at=12, override=(0, 6, "cosine")).shift(1),
    ),
    "stages, overridden": (
        "olmo_core-ComposableScheduler-014",
        0,
        40,
        lambda: library.stages(0.0044, [(0.00044, 3, "cosine")], at=8, override=(0, 6)).shift(1),
    ),
    "stages in tokens, overridden on the way up": (
        "olmo_core-ComposableScheduler-002",
        0,
        70,
        lambda: library.stages(0.00011, [(0, 10), (0.000011, 16)], at=25, override=(0, 4)).shift(1),
    ),
    "geometric": (
        "olmo_core-ExponentialScheduler-004",
        0,
        120,
        lambda: library.geometric(0.00016, 0.016, 100).shift(1),
    ),
    "geometric, whose first value is held": (
        "axolotl-InterpolatingLogScheduler-003",
        0,
        25,
        lambda: library.geometric(1e-6, 1e-4, 4).shift(-1),
    ),
    "tri_stage": (
        "fairseq-tri_stage-003",
        0,
        36,
        lambda: library.tri_stage(2.2e-5, 2.2e-6, 2, 3, 8, warmup_start=2.2e-7),
    ),
    "jagged_restarts": (
        "axolotl-jagged_restart-001",
        0,
        98,
        lambda: library.jagged_restarts(
            library.cosine(0.00014, 0, 100), 4, warmup=1, anneal=1
        ).shift(1),
    ),
    "jagged_restarts of a warmup": (
        "axolotl-jagged_restart-011",
        0,
        18,
        lambda: library.jagged_restarts(
            library.linear(0, 0.0026, 2).then(library.cosine(0.0026, 0, 18)), 4, 3, 1
        ).shift(1),
    ),
    "cosine_constant_tail": (
        "axolotl-cosine_constant_lr-010",
        2,
        120,
        lambda: library.cosine_constant_tail(1.9e-5, 1.9e-7, 98, tail=90).shift(-2),
    ),
    "quadratic_warmup": (
        "axolotl-cosine_quadratic_warmup-003",
        0,
        2,
        lambda: library.quadratic_warmup(0, 0.00013, 3),
    ),
    "quadratic_warmup of 12 steps": (
        "axolotl-cosine_quadratic_warmup-009",
        0,
        12,
        lambda: library.quadratic_warmup(0, 0.0011, 12),
    ),
    "log_warmup": (
        "deepspeed-WarmupLR-001",
        1,
        40,
        lambda: library.log_warmup(0, 2.85e-5, 20).shift(-1),
    ),
    "range_test": (
        "deepspeed-LRRangeTest-004",
        0,
        60,
        lambda: library.range_test(5.3e-5, 0.1, 7),
    ),
    "range_test in stairs": (
        "deepspeed-LRRangeTest-010",
        0,
        10**6,
        lambda: library.range_test(0.0001, 1, 2000, staircase=True),
    ),
    "wsd, half_exponential": (
        "megatron-WSD-002",
        0,
        64,
        lambda: library.wsd(0.0023, 0.000767, 64, 1, 57, "half_exponential", warmup_start=0.00115),
    ),
    "inverse_square_root_cooldown": (
        "big_vision-rsqrt-006",
        0,
        100,
        lambda: library.inverse_square_root_cooldown(1, 100, 5, warmup=10, cooldown=5, shift=5),
    ),
    "inverse_square_root_cooldown without a cooldown": (
        "big_vision-rsqrt-003",
        0,
        50,
        lambda: library.inverse_square_root_cooldown(1, 30, 5, warmup=5),
    ),
    "product": (
        "t5x-005",
        0,
        60,
        lambda: (
            library.product(
                [library.constant(0.5), library.linear(0, 1, 10), library.power(1, -0.5, 10)]
            )
            .clip(low=1e-8)
            .shift(-3)
        ),
    ),
    "product with stairs": (
        "t5x-030",
        0,
        60,
        lambda: library.product([library.linear(0, 0.001, 5), library.step_decay(1, 0.5, 3)]).clip(
            low=1e-8
        ),
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_values_are_those_of_the_framework(name: str) -> None:
    record, first, last, make = ROWS[name]
    row = RECORDS[record]
    places = [
        (step, value)
        for step, value in zip(row["steps"], row["values"], strict=True)
        if first <= step <= last
    ]
    assert len(places) >= 3
    steps, values = map(np.array, zip(*places, strict=True))
    # The records are float64 that the frameworks computed, within 1e-12 of the largest value.
    np.testing.assert_allclose(make()(steps), values, rtol=0, atol=1e-12 * np.abs(values).max())
