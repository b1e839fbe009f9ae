"""Drawn calls of every schedule of the library, whose values are logged with 6 digits.

Values have one or two significant digits, lengths are integers; the log has every update and goes
on after the end of the shape.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from closedform import schedules
from closedform.analysis.difference import diff
from closedform.language import Schedule
from closedform.schedules.cyclic import MODES
from closedform.schedules.wsd import SHAPES
from closedform.verify.terms.verdict import Status


@dataclass(frozen=True)
class Draw:
    """A drawn schedule, and the last update that is logged."""

    name: str
    arguments: Mapping[str, Any]
    schedule: Schedule
    last: int

    def logged(self, digits: int = 6, every: int = 1) -> dict[int, float]:
        """The values as a log prints them."""
        steps = np.arange(0, self.last + 1, every)
        values = np.asarray(self.schedule(steps), dtype=np.float64)
        return {int(t): float(f"{v:.{digits}g}") for t, v in zip(steps, values, strict=True)}


class Drawer:
    """Draws arguments.

    Args:
        seed: The seed, such as the name of a schedule and a number.
    """

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)

    def peak(self) -> float:
        """A learning rate with one or two digits."""
        digits = self.random.choice((1, 1, 2))
        mantissa = self.random.randint(10 ** (digits - 1), 10**digits - 1)
        return float(f"{mantissa}e{self.random.randint(-5, -1) - digits + 1}")

    def low(self, peak: float) -> float:
        """A value below the peak: a tenth, a hundredth, or 0."""
        return float(f"{peak * self.random.choice((0.1, 0.1, 0.01, 0.2, 0)):.6g}")

    def count(self, low: int, high: int) -> int:
        """A number of steps: a round one or any."""
        number = self.random.randint(low, high)
        return max(number // 10 * 10, low) if self.random.random() < 0.5 else number

    def pick(self, *choices: Any) -> Any:
        """One of the choices."""
        return self.random.choice(choices)


Arguments = dict[str, Any]


def _fall(d: Drawer) -> Arguments:
    peak = d.peak()
    return {"start": peak, "end": d.low(peak), "steps": d.count(100, 900)}


def _rise(d: Drawer) -> Arguments:
    return {"start": 0, "end": d.peak(), "steps": d.count(20, 300)}


def _cycle(d: Drawer) -> Arguments:
    rise = d.pick(0.3, 0.3, 0.25, 0.4, 0.2)
    steps = d.count(100, 600)
    return {"steps": steps} if rise == 0.3 else {"steps": steps, "rise": rise}


def _three(d: Drawer) -> Arguments:
    warmup, decay = d.count(10, 60), d.count(40, 200)
    return {"steps": warmup + decay + d.count(20, 300), "warmup": warmup, "decay": decay}


def _tail(d: Drawer) -> Arguments:
    steps = d.count(200, 700)
    return {"steps": steps, "tail": d.count(20, steps // 2)}


def _value(d: Drawer) -> Arguments:
    return {"value": d.peak()}


def _wsd_low(d: Drawer, shape: str, peak: float) -> float:
    low = d.low(peak)
    return low or peak / 10 if shape in ("inverse", "exponential") else low


def _wsd(d: Drawer) -> Arguments:
    shape, peak = d.pick(*SHAPES), d.peak()
    given = {"peak": peak, "end": float(f"{_wsd_low(d, shape, peak):.6g}"), **_three(d)}
    return given if shape == "linear" else {**given, "shape": shape}


def _power_tail(d: Drawer) -> Arguments:
    given = _three(d)
    decay = given.pop("decay")
    return {"peak": d.peak(), "exponent": d.pick(-0.5, -0.3, -0.51), **given, "tail": decay}


def _levels(d: Drawer) -> Arguments:
    count = d.pick(2, 3, 4)
    marks = sorted(d.random.sample(range(20, 400), count - 1))
    values: list[float] = []
    while len(values) < count:
        value = d.peak()
        if value not in values:
            values.append(value)
    return {"values": values, "milestones": marks}


def _stages(d: Drawer) -> Arguments:
    peak = d.peak()
    shape = d.pick("linear", "cosine", "sqrt")
    stages = [(peak, d.count(20, 60)), (peak, d.count(20, 90)), (0, d.count(40, 200), shape)]
    return {"start": 0, "stages": stages}


def _one(d: Drawer) -> Arguments:
    peak = d.peak()
    return {
        "start": float(f"{peak / d.pick(25, 10, 20):.6g}"),
        "peak": peak,
        "end": float(f"{peak * d.pick(1e-4, 1e-3, 0):.6g}"),
        **_cycle(d),
        **d.pick({}, {}, {"anneal": "linear"}),
    }


def _k_decay(d: Drawer) -> Arguments:
    steps, peak = d.count(200, 900), d.peak()
    given = {"peak": peak, "end": d.low(peak), "steps": steps}
    return {**given, "k": d.pick(0.5, 1.5, 2, 3), "warmup": d.count(10, steps // 4)}


def _cyclic(d: Drawer) -> Arguments:
    high = d.peak()
    mode = d.pick(*MODES)
    given = {"low": float(f"{high / 10:.6g}"), "high": high, "up": d.count(20, 100), "mode": mode}
    given |= d.pick({}, {"down": d.count(20, 100)})
    if mode == "triangular":
        del given["mode"]
    return {**given, "gamma": d.pick(0.999, 0.99, 0.9994)} if mode == "exp_range" else given


def _cooldown(d: Drawer) -> Arguments:
    warmup, cooldown = d.count(10, 50), d.count(20, 100)
    given = {"peak": d.peak(), "steps": warmup + cooldown + d.count(100, 500)}
    return {**given, "timescale": d.count(10, 200), "warmup": warmup, "cooldown": cooldown}


def _parts(d: Drawer) -> tuple[Schedule, Schedule, int, int]:
    peak, warmup, steps = d.peak(), d.count(10, 100), d.count(200, 700)
    rise = schedules.linear(0, peak, warmup)
    low = d.low(peak)
    fall = d.pick(
        lambda: schedules.cosine(peak, low, steps),
        lambda: schedules.linear(peak, low, steps),
        lambda: schedules.polynomial(peak, low, steps, 2),
        lambda: schedules.exponential(peak, d.pick(0.5, 0.1), steps),
        lambda: schedules.cosine_hard_restarts(peak, low, steps, 2),
    )()
    return rise, fall, warmup, steps


def _sequential(d: Drawer) -> Schedule:
    rise, fall, _, _ = _parts(d)
    return schedules.sequential([rise, fall])


def _chained(d: Drawer) -> Schedule:
    fall = schedules.cosine(**_fall(d))
    return schedules.chained([fall, schedules.step_decay(1, d.pick(0.5, 0.7), d.count(40, 90))])


def _product(d: Drawer) -> Schedule:
    warmup = d.count(10, 100)
    later = schedules.cosine(**_fall(d))
    return schedules.product([schedules.linear(0, 1, warmup), later])


def _maximum(d: Drawer) -> Schedule:
    peak = d.peak()
    fall = d.pick(schedules.linear, schedules.cosine)(peak, 0, d.count(100, 800))
    return schedules.maximum([fall, schedules.constant(float(f"{peak * d.pick(0.1, 0.2):.6g}"))])


def _splice(d: Drawer) -> Schedule:
    peak, steps = d.peak(), d.count(100, 300)
    at = d.count(20, steps - 20)
    make = d.pick(schedules.linear, schedules.cosine)
    return schedules.splice(make(peak, 0, steps), at, make(peak, 0, steps + d.count(100, 300)))


def _repeat(d: Drawer) -> Schedule:
    made: Schedule = d.pick(schedules.linear, schedules.cosine)(**_fall(d))
    return made.repeat()


COMPOSITIONS: Mapping[str, Callable[[Drawer], Schedule]] = {
    "sequential": _sequential,
    "chained": _chained,
    "product": _product,
    "maximum": _maximum,
    "splice": _splice,
    "repeat": _repeat,
    "scale": lambda d: schedules.scale(schedules.cosine(**_fall(d)), 0.5),
}

ARGUMENTS: Mapping[str, Callable[[Drawer], Arguments]] = {
    "constant": _value,
    "cosine": _fall,
    "cosine_annealing": _fall,
    "cosine_constant_tail": lambda d: {**_fall(d), **_tail(d)},
    "cosine_hard_restarts": lambda d: {**_fall(d), "cycles": d.pick(2, 3, 4, 2.5)},
    "cosine_k_decay": _k_decay,
    "cosine_linear_envelope": _fall,
    "cosine_linear_tail": lambda d: {**_fall(d), **_tail(d)},
    "cosine_with_min": lambda d: {**_fall(d), "cycles": d.pick(1, 1.5, 2, 2.5)},
    "cyclic": _cyclic,
    "exponential": lambda d: {
        **_value(d),
        "rate": d.pick(0.5, 0.1, 0.9, 0.94, 0.97),
        "steps": d.count(10, 200),
    },
    "flat_cosine": lambda d: {**_fall(d), "flat": d.count(20, 90)},
    "fsl": lambda d: {
        "start": d.peak(),
        "steps": d.count(100, 900),
        "beta": d.pick(1.2, 1.5, 2, 0.8),
    },
    "geometric": lambda d: {"start": 1e-5, "end": d.peak() + 1e-4, "steps": d.count(50, 500)},
    "half_cosine": _fall,
    "hyperbolic": lambda d: {
        "start": d.peak(),
        "infimum": 0,
        "steps": (steps := d.count(100, 900)),
        "bound": steps + d.count(10, 300),
    },
    "inverse_square_root": lambda d: {**_value(d), "warmup": d.count(10, 200)},
    "inverse_square_root_cooldown": _cooldown,
    "inverse_time": lambda d: {
        **_value(d),
        "rate": d.pick(0.5, 1, 0.1, 2),
        "steps": d.count(10, 300),
    },
    "linear": _fall,
    "log_warmup": _rise,
    "multi_step": lambda d: {
        **_value(d),
        "gamma": d.pick(0.1, 0.5, 0.2, 0.3),
        "milestones": sorted(d.random.sample(range(20, 400), d.pick(1, 2, 3))),
    },
    "multiplicative": lambda d: {**_value(d), "gamma": d.pick(0.99, 0.995, 0.97, 0.98)},
    "noam": lambda d: {"width": d.pick(256, 512, 768, 1024), "warmup": d.count(40, 400)},
    "one_cycle": _one,
    "one_cycle_momentum": lambda d: {
        "high": d.pick(0.95, 0.99, 0.9),
        "low": d.pick(0.85, 0.8, 0.7),
        **_cycle(d),
    },
    "piecewise_constant": _levels,
    "polynomial": lambda d: {**_fall(d), "power": d.pick(2, 0.5, 3, 1.5, 0.9)},
    "power": lambda d: {
        **_value(d),
        "exponent": d.pick(-0.5, -0.3, -1, -0.7),
        "warmup": d.count(10, 100),
    },
    "power_with_tail": _power_tail,
    "quadratic_warmup": _rise,
    "range_test": lambda d: {
        "start": d.peak(),
        "rate": d.pick(1, 0.5, 2),
        "steps": d.count(20, 200),
        "staircase": d.pick(False, True),
    },
    "rex": _fall,
    "slanted_triangular": lambda d: {"peak": d.peak(), "steps": d.count(100, 900)},
    "stages": _stages,
    "step_decay": lambda d: {
        **_value(d),
        "gamma": d.pick(0.1, 0.5, 0.9, 0.3),
        "steps": d.count(20, 200),
    },
    "tanh_decay": lambda d: {**_fall(d), **d.pick({}, {"low": -7}, {"high": 2})},
    "trapezoidal": lambda d: {"peak": (peak := d.peak()), "end": d.low(peak), **_three(d)},
    "tri_stage": lambda d: {
        "peak": (peak := d.peak()),
        "end": float(f"{peak / d.pick(10, 100):.6g}"),
        "warmup": d.count(10, 100),
        "hold": d.count(20, 100),
        "decay": d.count(50, 300),
    },
    "warm_restarts": lambda d: {
        "start": (peak := d.peak()),
        "end": d.low(peak),
        "steps": d.count(40, 150),
        **d.pick({}, {"multiplier": 2}, {"multiplier": 2, "restarts": 2}, {"restarts": 3}),
    },
    "wsd": _wsd,
    "wsd_checkpoints": lambda d: {
        "peak": d.peak(),
        "end": 0,
        "steps": d.count(200, 500),
        "ratio": d.pick(0.1, 0.2, 0.3),
        "checkpoints": d.pick(2, 3),
        "shape": "linear",
    },
}

NOT_DRAWN = {
    "function": "any expression",
    "table": "its values are the log",
    "refined": "its values are the log",
    "reduce_on_plateau": "it depends on a metric",
    "jagged_restarts": "restarts within another schedule are not searched",
}


def draw(name: str, number: int) -> Draw:
    """Returns a drawn schedule of a function of the library."""
    d = Drawer(f"{name} {number}")
    if name in COMPOSITIONS:
        made, arguments = COMPOSITIONS[name](d), {}
    else:
        arguments = ARGUMENTS[name](d)
        made = getattr(schedules, name)(**arguments)
    length = made.length
    last = int(length) + d.count(20, 60) if length is not None else d.count(400, 900)
    if name in ("repeat", "cyclic", "cosine_annealing"):
        period = made.length or d.count(150, 300)
        last = int(period) * 3 if name == "cosine_annealing" else 1000 + d.count(300, 900)
    return Draw(name, arguments, made, last)


def is_right(drawn: Draw, found: Schedule | None) -> bool:
    """Whether a schedule is the drawn one: its exact values are equal, also after the log."""
    if found is None:
        return False
    steps = np.arange(0, 2 * drawn.last)
    ours = np.asarray(found(steps), dtype=np.float64)
    theirs = np.asarray(drawn.schedule(steps), dtype=np.float64)
    scale = float(np.max(np.abs(theirs)))
    return bool(np.all(np.abs(ours - theirs) <= 1e-12 * scale))


def is_proved_on_log(drawn: Draw, found: Schedule | None) -> bool:
    """Whether a schedule is proved equal to the drawn one at every logged update.

    A line that is cut off at a value after the end of the log is that line in the log. The proof
    is that of ``diff``, or the exact values of all logged updates.
    """
    if found is None:
        return False
    curve = diff(found, drawn.schedule, until=drawn.last + 1).curves[0]
    if curve.verdict is Status.PROVED:
        return True
    return curve.verdict is not Status.REFUTED and all(
        found.exact(step) == drawn.schedule.exact(step) for step in drawn.logged()
    )


def fits_log(drawn: Draw, found: Schedule | None) -> bool:
    """Whether a schedule has the logged values of the drawn one, as they are printed."""
    if found is None:
        return False
    logged = drawn.logged()
    ours = np.asarray(found(np.array(list(logged))), dtype=np.float64)
    printed = [
        abs(a - b) <= 0.51 * 10.0 ** (_exponent(b) - 5)
        for a, b in zip(ours, logged.values(), strict=True)
    ]
    return all(printed)


def _exponent(value: float) -> int:
    """The place of the first digit of a number."""
    return int(f"{value:e}".partition("e")[2])
