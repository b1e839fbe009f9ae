"""Constructs of Python in functions of the step: those that are traced, and those that are refused.

Each row of `TRACED` is a function that the test also calls; each row of `REFUSED` has the message.
"""

import bisect
import cmath
import functools
import itertools
import logging
import math
import operator
import random
import statistics
import subprocess
import sys
import time
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, IntEnum
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import sympy as sp
import torch

import closedform as cf
from closedform import t
from closedform.errors import ClosedFormError, TraceError

PEAK = 3e-4
MILESTONES = [30, 60, 90]
RATES = {0: 1.0, 30: 0.1, 60: 0.01}
TABLE = np.linspace(0.0, 1.0, 40)
STATE = {"count": 0}
HISTORY: list[float] = []
TOTAL = 0
LOGGER = logging.getLogger(__name__)


def helper(step, scale=2.0):
    return scale * step


def recursive(step, depth):
    return step if depth == 0 else recursive(step, depth - 1) / 2


def outer_scale():
    factor = 0.5

    def inner(step):
        return factor * step

    return inner


@functools.lru_cache
def cached(step):
    return 1 / (1 + step)


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return 2 * function(*args, **kwargs)

    return wrapper


@decorated
def doubled(step):
    return 1 / (1 + step)


@dataclass(frozen=True)
class Config:
    lr: float = 0.1
    warmup: int = 10


class Slots:
    __slots__ = ("rate",)

    def __init__(self):
        self.rate = 0.25

    def at(self, step):
        return self.rate * step


class Decay:
    base = 0.5

    def __init__(self, total=100):
        self.total = total
        self.last = 0.0

    def __call__(self, step):
        self.last = self.progress(step)
        return self.base * self.last

    def progress(self, step):
        return min(1.0, step / self.total)

    @property
    def half(self):
        return self.total / 2

    def by_property(self, step):
        return step / self.half

    @functools.lru_cache(maxsize=1)  # noqa: B019 - as users write it
    def cached(self, step):
        return self.progress(step) / 2

    def by_cache(self, step):
        return self.cached(step)

    @staticmethod
    def static(step):
        return math.exp(-step / 10)

    @classmethod
    def of_class(cls, step):
        return cls.base * step


class Child(Decay):
    def progress(self, step):
        return super().progress(step) ** 2


class Kind(Enum):
    LINEAR = "linear"
    COSINE = "cosine"


class Level(IntEnum):
    LOW = 1
    HIGH = 3


Point = namedtuple("Point", ["x", "y"])


def if_elif(step):
    if step < 10:
        lr = 1.0
    elif step < 20:
        lr = 0.5
    else:
        lr = 0.1
    return lr


def chained(step):
    return 1.0 if 5 <= step < 15 else 0.0


def boolean(step):
    if (step > 3 and step < 7) or step == 20 or not step < 100:
        return 1.0
    return 0.5


def truthiness(step):
    return 1.0 / step if step else 2.0


def or_default(step):
    return (step or 1) ** -0.5


def walrus(step):
    if (left := 50 - step) > 0:
        return left / 50
    return 0.0


def for_range(step):
    lr = 1.0
    for i in range(3):
        lr *= 0.5 if step >= 10 * (i + 1) else 1
    return lr


def for_milestones(step):
    lr = PEAK
    for milestone in MILESTONES:
        if step < milestone:
            break
        lr *= 0.1
    else:
        lr *= 0.5
    return lr


def while_bounded(step):
    step = min(step, 500)
    length = 10
    while step >= length:
        step -= length
        length *= 2
    return step / length


def while_concrete(step):
    n = 0
    while n < 4:
        n += 1
    return step * n


def loop_of_steps(step):
    total = 0.0
    for i in range(min(step, 5)):
        total += 1 / (i + 1)
    return total


def comprehension(step):
    return 0.1 ** len([m for m in MILESTONES if step >= m])


def generator_sum(step):
    return 0.5 ** sum(step >= m for m in MILESTONES)


def any_all(step):
    if any(step == m for m in MILESTONES) or all(step > m for m in MILESTONES):
        return 1.0
    return 0.0


def last_of_reversed(step):
    return next((i for i, m in reversed(list(enumerate(MILESTONES))) if step >= m), -1)


def list_index(step):
    return [1.0, 0.1, 0.01][min(step // 30, 2)]


def negative_index(step):
    return MILESTONES[-1 if step > 5 else -2] / 100


def dict_index(step):
    return RATES[min(step // 30, 2) * 30]


def dict_get(step):
    return RATES.get(step, 0.5)


def dict_in(step):
    return 1.0 if step in RATES else 0.0


def set_literal(step):
    return 0.5 if step in {10, 20} else 1.0


def tuple_literal(step):
    return 0.5 if step in (10, 20) else 1.0


def array_index(step):
    return TABLE[min(step, len(TABLE) - 1)]


def periodic_index(step):
    return (1.0, 0.5, 0.25)[step % 3]


def bisect_module(step):
    return 0.1 ** bisect.bisect_right(MILESTONES, step)


def searchsorted(step):
    return 0.1 ** np.searchsorted(MILESTONES, step, side="right")


def sorted_and_index(step):
    return sorted([step, 10, 20])[1] / 10


def unpacking(step):
    low, *_, high = 0.1, 0.2, 0.3
    first, second = divmod(step, 7)
    return low * first + high * second


def star_arguments(step, *args, **kwargs):
    return helper(*(step, 3.0)) + helper(step, **{**kwargs, "scale": 4.0})


def integers(step):
    return int(step / 3) + round(step / 4) + math.floor(step / 5) + math.ceil(step / 6)


def truncation(step):
    return int((step - 50) / 7) + math.trunc((20 - step) / 3)


def rounding(step):
    return round(0.125 * step, 1)


def modulo(step):
    return (step % 10) / 10 + (-step) % 7 + step // -4


def float_modulo(step):
    return math.fmod(step - 10, 3) + (step / 10) % 1.0


def shifts_and_powers(step):
    return 2.0**-step + (step + 1) ** 0.5 + pow(0.9, step) + math.pow(step + 1, -1)


def absolute(step):
    return abs(step - 10) + math.fabs(step - 20)


def min_max_forms(step):
    return max([step, 3]) + min(step, 10, 20) + max(0, *[step - 5]) + min(float("inf"), step)


def conversions(step):
    return float(step) + float("0.5") + int("3") + bool(step > 5) + float(step > 7)


def isinstance_checks(step):
    if not isinstance(step, int) or isinstance(step, (float, str)):
        raise TypeError(step)
    return step / 2 if isinstance(step / 2, float) else 0


def mathematics(step):
    x = step / 10
    return (
        (
            math.sin(x)
            + math.cos(x)
            + math.tanh(x)
            + math.exp(-x)
            + math.log(1 + x)
            + math.log10(x + 1)
        )
        + math.log(1 + x, 3)
        + math.sqrt(x)
        + math.log2(1 + x)
        + math.hypot(x, 1)
        + math.expm1(-x)
    )


def hyperbolic(step):
    x = step / 100
    return math.sinh(x) + math.cosh(x) + math.tan(x / 10) + math.radians(x) + math.degrees(x)


def numpy_scalars(step):
    x = np.float64(step) / np.float64(50)
    return np.clip(x, 0, 1) * np.cos(np.pi * x) + np.where(step > 5, 1.0, 0.5) + np.maximum(x, 0.5)


def numpy_interp(step):
    return np.interp(step, [0, 10, 40], [0.1, 1.0, 0.0])


def torch_scalars(step):
    x = torch.tensor(step / 50, dtype=torch.float64)
    return torch.clamp(x, 0.0, 1.0).item() + torch.sigmoid(x / 5) * 2


def local_import(step):
    from math import cos, pi

    return cos(pi * step / 100)


def nested_function(step):
    def inner(x):
        return 0.5 * x

    return (lambda x: inner(x) + 1)(step)


def reductions(step):
    product = functools.reduce(operator.mul, [0.5, 2.0, step])
    return product + list(itertools.accumulate([1, 2, step]))[-1] + sum(map(float, [step, 1]))


def enumerations(step, kind=Kind.COSINE):
    if kind is Kind.LINEAR:
        return 0.0
    return step * Level.HIGH if kind == Kind.COSINE else -1.0


def match_statement(step, kind="cosine"):
    match kind:
        case "linear":
            return 1.0
        case "cosine":
            return math.cos(step / 10)
        case _:
            raise ValueError(kind)


def match_of_values(step):
    match step:
        case 0:
            return 1.0
        case 1 | 2:
            return 0.5
        case n if n > 50:
            return 0.1
        case _:
            return 0.25


def try_except(step):
    try:
        return 1.0 / (step - 5)
    except ZeroDivisionError:
        return 0.0


def asserted(step):
    assert step >= 0, f"negative step {step}"
    return step / 2


def named_tuples(step):
    point = Point(step, 2)
    return point.x / point.y


def text_of_concrete(step, style="WARM-UP"):
    return step if f"{style.lower():>8}".strip() == "warm-up" else 0


def deques(step):
    window = deque([0.1, 0.2], maxlen=2)
    window.append(step / 10)
    return sum(window)


def local_containers(step):
    found: dict[str, Any] = defaultdict(float)
    found["lr"] += step / 10
    values = OrderedDict(a=found["lr"])
    values.update(b=2.0)
    values["a"] *= 2
    return sum(values.values())


def fractions(step):
    return Fraction(1, 3) * step


def unused_random(step):
    return step / 7 if step >= 0 else random.random()


def complex_constant(step):
    return step * (1 + cmath.phase(1j) * 0)


def global_float(step):
    return PEAK * 0.1 * step


def statistics_module(step):
    return statistics.fmean([1.0, 2.0]) * step


def sympy_functions(step):
    return sp.exp(-step / sp.Integer(10)) * sp.Rational(1, 2)


def logs(step):
    LOGGER.info("step %s", step)
    logging.debug("step %s", step)
    logging.getLogger("other").warning(f"{step:5d}")
    print(f"step {step:03d}", end="")
    return step / 2


def array_comparisons(step):
    marks = np.array(MILESTONES)
    return 0.1 ** (step >= marks).sum() * 0.5 ** np.count_nonzero(marks[:2] <= step)


def numpy_tables(step):
    return 0.1 ** np.digitize(step, MILESTONES) + np.select([step < 5, step < 9], [1.0, 2.0], 3.0)


def shifts(step):
    return 1.0 / (1 << (step // 10)) + (step >> 2) + (step << 1)


def lazy_searches(step):
    mark = next(filter(lambda m: step < m, MILESTONES), 120)
    before = list(itertools.takewhile(lambda m: m <= step, MILESTONES))
    lows = [low for low, high in itertools.pairwise([0, *MILESTONES]) if low <= step < high]
    return mark + len(before) + sum(lows)


class Settings(dict[str, Any]):
    __getattr__ = dict.__getitem__


SETTINGS = Settings(lr=0.1, steps=[10, 20])


def dict_subclass(step):
    return SETTINGS.lr * sum(step > mark for mark in SETTINGS["steps"])


class Trainer(torch.nn.Module):
    """The function uses an object with hundreds of methods, and with tensors."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        self.warmup = 5

    def factor(self):
        return lambda step: min(1.0, step / self.warmup)


def numpy_methods(step):
    return TABLE.max() * step + len(TABLE) + TABLE[3]


TRACED: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        if_elif, chained, boolean, truthiness, or_default, walrus, for_range, for_milestones,
        while_bounded, while_concrete, loop_of_steps, comprehension, generator_sum, any_all,
        last_of_reversed, list_index, negative_index, dict_index, dict_get, dict_in, set_literal,
        tuple_literal, array_index, periodic_index, bisect_module, searchsorted, sorted_and_index,
        unpacking, star_arguments, integers, truncation, rounding, modulo, float_modulo,
        shifts_and_powers, absolute, min_max_forms, conversions, isinstance_checks, mathematics,
        hyperbolic, numpy_scalars, numpy_interp, torch_scalars, local_import, nested_function,
        reductions, enumerations, match_statement, match_of_values, try_except, asserted,
        named_tuples, text_of_concrete, deques, local_containers, fractions, unused_random,
        complex_constant, global_float, statistics_module, sympy_functions, numpy_methods,
        doubled, logs, array_comparisons, numpy_tables, shifts, lazy_searches, dict_subclass,
    )
} | {
    "lambda": lambda step: 0.95**step,
    "partial": functools.partial(helper, scale=0.3),
    "partial_of_partial": functools.partial(functools.partial(recursive, depth=3)),
    "closure": outer_scale(),
    "cache": cached,
    "method": Decay().progress,
    "callable_object": Decay(),
    "inherited_method_with_super": Child(),
    "property": Decay().by_property,
    "cached_method": Decay().by_cache,
    "staticmethod": Decay.static,
    "classmethod": Decay.of_class,
    "slots": Slots().at,
    "module": Trainer().factor(),
    "frozen_dataclass": lambda step, config=Config(): config.lr * min(1.0, step / config.warmup),
    "builtin": math.sqrt,
    "schedule": lambda step: 0.5 * cf.schedules.linear(1, 0, 10)(step),
    "bound_partialmethod": functools.partial(Decay(50).progress),
}  # fmt: skip
STEPS = [*range(35), 59, 60, 61, 89, 90, 99, 100, 101, 333]


@pytest.mark.parametrize("name", TRACED)
def test_traced(name: str) -> None:
    function = TRACED[name]
    schedule = cf.from_python(function)
    expected = [float(function(step)) for step in STEPS]
    # Both round in float64, some ten times, relative to the largest term: 1.
    np.testing.assert_allclose(schedule(np.array(STEPS)), expected, rtol=1e-12, atol=1e-13)
    assert schedule.trace.comparison.rounded == ()


NEAR: dict[str, Callable[[int], Any]] = {
    "math": lambda step: math.isclose(step, 10**6, rel_tol=1e-6),
    "numpy": lambda step: np.isclose(step, 10**6),
    "numpy, relative to the second": lambda step: np.isclose(step, 10**6, 0.5, 0),
    "numpy, a name": lambda step: np.isclose(step, 10**6, atol=3, rtol=0),
    "torch": lambda step: torch.isclose(torch.tensor(1.0 * step), torch.tensor(1e6)),
}


@pytest.mark.parametrize("name", NEAR)
def test_each_module_has_tolerances_for_near_numbers(name: str) -> None:
    """numpy's tolerances are wider than those of math, and relative to the second number."""

    def function(step: int) -> float:
        return 1.0 if NEAR[name](step) else 0.5

    schedule = cf.from_python(function)
    for step in (499_999, 500_000, 999_990, 999_997, 10**6 + 1, 10**6 + 11, 1_500_001):
        assert schedule(step) == function(step), step


# --- refused -------------------------------------------------------------------------------------


def draws(step):
    return step * random.random()


def reads_the_time(step):
    return step + time.time()


def reads_the_date(step):
    return step + datetime.now().second


def numpy_draws(step):
    return step * np.random.rand()  # noqa: NPY002 - what users write


def torch_draws(step):
    return step * torch.rand(()).item()


def reads_a_file(step):
    with open("lr.txt") as file:
        return float(file.read()) * step


def asks(step):
    return float(input()) * step


def assigns_global(step):
    global TOTAL
    TOTAL += 1
    return step + TOTAL


def counts():
    count = 0

    def function(step):
        nonlocal count
        count += 1
        return step * count

    return function


class Counter:
    def __init__(self):
        self.count = 0

    def __call__(self, step):
        self.count += 1
        return self.count * step


def appends(step):
    HISTORY.append(step)
    return step / len(HISTORY)


def counts_in_dict(step):
    STATE["count"] += 1
    return STATE["count"] * step


def unbounded_while(step):
    while step >= 10:
        step -= 10
    return step / 10


def unbounded_range(step):
    lr = 1.0
    for _ in range(step):
        lr *= 0.9
    return lr


def unbounded_key(step):
    return {1: 0.1, 2: 0.2}[step]


def special_function(step):
    return math.erf(step / 10)


def gamma_function(step):
    return math.gamma(1 + step)


def text_of_step(step):
    return float(f"{step}") / 2


def returns_none(step):
    if step > 100:
        return 0.1
    return None


def returns_text(step):
    return "0.1"


def returns_pair(step):
    return step, step


def bit_operations(step):
    return step & (step >> 1)


def array_of_steps(step):
    return np.array([step, 2 * step]).sum()


def complex_value(step):
    return (step - 10) ** 0.5


def always_raises(step):
    raise RuntimeError("not implemented for this model")


def two_parameters(step, warmup):
    return step / warmup


def no_parameters():
    return 0.1


def infinite(step):
    return step * float("inf")


REFUSED: list[tuple[Callable[..., Any], str, str]] = [
    (draws, "random.random draws random numbers", "return step * random.random()"),
    (reads_the_time, "time.time reads the time", "return step + time.time()"),
    (reads_the_date, "reads the time", "datetime.now()"),
    (numpy_draws, "draws random numbers", "np.random.rand()"),
    (torch_draws, "torch.rand draws random numbers", "torch.rand(())"),
    (reads_a_file, "open reads or writes a file", 'with open("lr.txt")'),
    (asks, "input reads the keyboard", "float(input())"),
    (assigns_global, "assigns 'TOTAL', a variable outside of it", "TOTAL += 1"),
    (counts(), "assigns 'count', a variable outside of it", "count += 1"),
    (Counter(), "reads the attribute 'count' and then assigns it", "self.count += 1"),
    (appends, "changes a list that exists outside of it", "HISTORY.append(step)"),
    (counts_in_dict, "changes a dict that exists outside of it", 'STATE["count"] += 1'),
    (unbounded_while, "the number of iterations is not bounded", "while step >= 10:"),
    (unbounded_range, "the length of a loop, takes too many values", "in range(step)"),
    (unbounded_key, "the key of a dict or set takes too many values", "{1: 0.1, 2: 0.2}[step]"),
    (special_function, "is not one that can be traced", "math.erf(step / 10)"),
    (gamma_function, "is not one that can be traced", "math.gamma(1 + step)"),
    (text_of_step, "the text of the step takes too many values", 'float(f"{step}")'),
    (returns_none, "must return a number, and returns None from step 0 on", "def returns_none"),
    (returns_text, "returns str '0.1'", "def returns_text"),
    (returns_pair, "returns tuple (t, t)", "def returns_pair"),
    (bit_operations, "bits of two numbers that depend on the step", "step & (step >> 1)"),
    (array_of_steps, "an array of numbers that depend on the step", "np.array([step"),
    (always_raises, "no value at any step: RuntimeError: not implemented", "raise RuntimeError"),
    (two_parameters, "the parameter 'warmup' has no value", "function 'two_parameters'"),
    (no_parameters, "takes no argument for the step", "function 'no_parameters'"),
    (infinite, "inf in the arithmetic of a step", 'step * float("inf")'),
]


@pytest.mark.parametrize(("function", "what", "where"), REFUSED)
def test_refused(function: Callable[..., Any], what: str, where: str) -> None:
    with pytest.raises(TraceError) as found:
        cf.from_python(function)
    assert what in found.value.what
    assert where in str(found.value.where)
    if "line" in str(found.value.where):
        assert "test_python_constructs.py, line " in str(found.value.where)


@pytest.mark.parametrize("value", [3, "0.1", None, int])
def test_what_is_not_a_function_is_refused(value: Any) -> None:
    with pytest.raises(ClosedFormError, match="a schedule is read from a function of the step"):
        cf.from_python(value)


# --- exceptions: where the schedule has no value -------------------------------------------------


def beyond_total(step, total=100):
    if step > total:
        raise ValueError(f"step {step} is after the end")
    return 1 - step / total


def test_an_exception_ends_the_domain() -> None:
    schedule = cf.from_python(beyond_total)
    (raised,) = schedule.trace.raises
    assert (raised.first, raised.end, raised.conditions) == (101, None, ())
    assert raised.exception == "ValueError: step 101 is after the end"
    assert raised.place is not None
    assert raised.place.text.startswith("raise ValueError")
    assert schedule.exact(100) == 0
    with pytest.raises(cf.errors.DomainError, match="its last step is 100"):
        schedule.exact(101)


@pytest.mark.parametrize(
    ("function", "first", "end", "exception"),
    [
        (lambda step: 1 / step, 0, 1, "ZeroDivisionError"),
        (lambda step: step**-0.5, 0, 1, "ZeroDivisionError"),
        (lambda step: math.log(step), 0, 1, "ValueError"),
        (lambda step: math.sqrt(10 - step), 11, None, "ValueError"),
        (lambda step: MILESTONES[step], 3, None, "IndexError"),
        (lambda step: RATES[30 * step], 3, None, "KeyError"),
        (complex_value, 0, 10, "the value is complex"),
    ],
)
def test_exceptions_of_operations(
    function: Callable[..., Any], first: int, end: int | None, exception: str
) -> None:
    (raised,) = cf.from_python(function).trace.raises
    assert (raised.first, raised.end) == (first, end)
    assert raised.exception.startswith(exception)


def test_the_users_data_is_not_changed() -> None:
    HISTORY.clear()
    with pytest.raises(TraceError):
        cf.from_python(appends)
    decay = Decay()
    cf.from_python(decay)
    assert (HISTORY, decay.last, type(decay)) == ([], 0.0, Decay)


def test_an_assertion_ends_the_domain_and_the_graph_is_total(tmp_path: Path) -> None:
    def get_lr(step: int) -> float:
        x = step / 1750
        if not 0 <= x < 1:  # an assert, which pytest rewrites
            raise AssertionError
        return 1.0 if x < 0.55 else (1 - x) / 0.45 + (1 - (1 - x) / 0.45) * 0.1

    schedule = cf.from_python(get_lr)
    assert (schedule.domain, schedule.last_step) == ((t < 1750,), 1749)
    steps = np.arange(1750)
    np.testing.assert_allclose(schedule(steps), [get_lr(int(step)) for step in steps], atol=3e-16)
    path = tmp_path / "lr.onnx"
    cf.to_onnx(schedule, path)
    session = onnxruntime.InferenceSession(path)
    (last,) = session.run(None, {"step": np.array(1749)})
    assert abs(last - get_lr(1749)) <= 3e-16


def test_a_module_that_the_function_imports_first() -> None:
    code = (
        "import closedform as cf, sys\n"
        "def f(step):\n"
        "    import torch\n"
        "    return float(torch.clamp(torch.tensor(step / 8), max=1.0))\n"
        "assert 'torch' not in sys.modules\n"
        "print(cf.from_python(f).exact(4))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "1/2\n", done.stderr
