"""Borders of traces: states, texts, types, fixed-width integers, handlers, and rounding.

Each function is judged by calling it. Where it is read, its value at every step is that of the
schedule, or the step is named in ``trace.comparison.rounded``; otherwise it is refused.
"""

import array
import collections
import contextlib
import heapq
import itertools
import math
import operator
import random
import types
import warnings
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import sympy as sp
import torch

import closedform as cf
from closedform.effort import METER
from closedform.errors import DomainError, TraceError
from closedform.importers.python import TracedSchedule

SAME = 1e-7
"""Relative: the function rounds in float64, and names steps that differ by more than 5e-8."""


def differing(schedule: TracedSchedule, function: Callable[[int], Any], steps: Any) -> list[int]:
    """The steps at which a schedule has another value than the function."""
    wrong = []
    for step in steps:
        try:
            exact = float(schedule.exact(step))
        except DomainError:
            exact = math.nan
        try:
            value = float(function(step))
        except (ArithmeticError, LookupError, ValueError):
            value = math.nan
        same = exact == value or (math.isnan(exact) and math.isnan(value))
        if not same and not abs(exact - value) <= max(SAME * abs(value), 1e-16):
            wrong.append(step)
    return wrong


# --- texts and types -----------------------------------------------------------------------------

FAR = (0, 1, 7, 128, 54_321, 10**7, 10**9 + 5)
NAMES = {"54321": 0.5, "0": 0.25, "phase2": 0.75}

READ_OR_REFUSED: dict[str, Callable[[int], Any]] = {
    "str": lambda step: NAMES.get(str(step), 0.1),
    "repr": lambda step: NAMES.get(repr(step), 0.1),
    "f_string": lambda step: NAMES.get(f"{step}", 0.1),
    "f_string_of_bounded": lambda step: NAMES.get(f"phase{min(step // 3, 4)}", 0.1),
    "format": lambda step: 0.5 if format(step, "08d") == "00054321" else 0.1,
    "format_method": lambda step: 0.5 if "{:d}".format(step) == "54321" else 0.1,  # noqa: UP032
    "percent": lambda step: 0.5 if "%s" % step == "54321" else 0.1,  # noqa: UP031
    "percent_d": lambda step: 0.5 if "%d" % step == "54321" else 0.1,  # noqa: UP031
    "join": lambda step: 0.5 if "".join(map(str, (step, 1))) == "543211" else 0.1,
    "length_of_text": lambda step: 0.1 * len(str(step)),
    "text_of_float": lambda step: 0.1 * len(str(step / 8)),
    "int_of_text": lambda step: int(str(step)) * 0.5,
    "hexadecimal": lambda step: 0.1 * len(hex(min(step, 40))),
    "hash": lambda step: {54_321: 0.5}.get(hash(step), 0.1),
    "type_is": lambda step: 0.5 if type(step) is int else 0.1,
    "type_of_quotient": lambda step: 0.5 if type(step / 2) is float else 0.1,
    "type_of_minimum": lambda step: 0.5 if type(min(step, 2.5)) is int else 0.1,
    "type_name": lambda step: {"int": 0.5}.get(type(step).__name__, 0.1),
    "isinstance": lambda step: 0.5 if isinstance(step, (float, str)) else 0.1,
    "isinstance_of_truth": lambda step: 0.5 if isinstance(step > 3, int) else 0.1,
    "getattr": lambda step: 0.5 if getattr(step, "real", 0) == 54_321 else 0.1,
    "getattr_default": lambda step: 0.1 * getattr(step, "value", 3),
    "hasattr": lambda step: 0.5 if hasattr(step, "item") or hasattr(step, "expr") else 0.1,
    "parts": lambda step: step.real + step.imag + step.numerator / step.denominator,
    "conjugate": lambda step: step.conjugate() * 0.5,
    "bit_length": lambda step: 0.1 * min(step, 1000).bit_length(),
    "bit_count": lambda step: 0.1 * step.bit_count(),
    "is_integer": lambda step: 0.5 if (step / 8).is_integer() else 0.1,
    "to_bytes": lambda step: 0.1 * step.to_bytes(8, "big")[-1],
    "as_integer_ratio": lambda step: 0.1 * step.as_integer_ratio()[0],
    "power_with_modulus": lambda step: pow(step, 2, 10**15) * 1e-15,
    "power_with_negative_modulus": lambda step: pow(step, 3, -7) * 0.5,
    "power_of_constants": lambda step: pow(TOP, 3, 1000) * step + pow(3, -1, 7),
    "power_of_a_number": lambda step: pow(3, step, 7),
    "operator_pow": lambda step: operator.pow(min(step, 9), 3) * 0.5,
    "bits": lambda step: (step & 6) + (step | 9) * 0.5 + (step ^ 5) * 0.25 + ~step * 0.125,
    "negative_mask": lambda step: (step & -4) + (step | -8) + ((20 - step) & 12),
    "shifts": lambda step: ((step << 2) + (step >> 3)) * 0.5,
    "fabs_is_a_float": lambda step: 0.5 if isinstance(math.fabs(step), int) else 0.1,
    "fraction": lambda step: Fraction(step, 7) % 1 + Fraction(1, 3) * step,
    "decimal": lambda step: float(Decimal("0.1") * step),
    "decimal_floor": lambda step: float((Decimal("0.5") * (3 - step)) // 1),
}  # fmt: skip
TOP = 77
REFUSED = {
    "str", "repr", "f_string", "format", "format_method", "percent", "percent_d", "join",
    "length_of_text", "text_of_float", "int_of_text", "hash", "type_of_minimum", "bit_count",
    "to_bytes", "as_integer_ratio", "power_of_a_number", "decimal_floor",
}  # fmt: skip


@pytest.mark.parametrize("name", READ_OR_REFUSED)
def test_texts_types_and_attributes_are_those_of_an_int(name: str) -> None:
    function = READ_OR_REFUSED[name]
    if name in REFUSED:
        with pytest.raises(TraceError):
            cf.from_python(function)
        return
    schedule = cf.from_python(function)
    assert differing(schedule, function, (*range(40), *FAR)) == []


def in_a_log_and_an_error(step: int) -> float:
    print(f"step {step}")
    if step > 54_321:
        raise ValueError(f"step {step} is after " + str(54_321))
    return 0.1


def stored_text(step: int) -> float:
    texts: list[str] = []
    texts.append(f"{step}")
    return NAMES.get(texts[0], 0.1)


def text_of_a_caught_error(step: int) -> float:
    try:
        raise ValueError(f"{step}")
    except ValueError as error:
        return NAMES.get(str(error), 0.1)


def key_of_a_caught_error(step: int) -> float:
    try:
        raise KeyError(step)
    except KeyError as error:
        return NAMES.get(f"{error.args[0]}", 0.1)


def test_a_text_that_is_only_shown_is_not_refused() -> None:
    schedule = cf.from_python(in_a_log_and_an_error)
    assert schedule.last_step == 54_321
    for function in (stored_text, text_of_a_caught_error, key_of_a_caught_error):
        with pytest.raises(TraceError, match="the text of the step takes too many values"):
            cf.from_python(function)


# --- integers of NumPy ---------------------------------------------------------------------------

WIDTHS = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64)
OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "double": lambda a, b: a * 2 + b,
    "square": lambda a, b: a**2 - b,
    "negate": lambda a, b: -a + abs(b),
}


@pytest.mark.sample(every=4)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy tells that scalars wrap
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("dtype", WIDTHS)
def test_integers_of_numpy_wrap(dtype: Any, name: str) -> None:
    info, draw = np.iinfo(dtype), random.Random(f"{dtype} {name}")
    extremes = [info.min, info.max, info.max - 1, info.max // 2 + 1, 3, 7]
    table = np.array([draw.choice(extremes) for _ in range(60)], dtype=dtype)
    operation = OPERATIONS[name]

    def function(step: int) -> float:
        index = min(step, len(table) - 2)
        return float(operation(table[index], table[index + 1])) / 128

    schedule = cf.from_python(function)
    assert differing(schedule, function, range(70)) == []
    # Wrapping does not round: no step is named, except where an int64 is longer than a float.
    if info.bits < 64:
        assert [step for step in range(70) if step in schedule.trace.comparison.rounded] == []


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_numpy_integers_of_the_step() -> None:
    for function in (
        lambda step: float(np.int64(step) * np.int64(2**40)) / 2**40,
        lambda step: float(np.int32(min(step, 2**31 - 1)) * np.int32(3)),
        lambda step: float(np.uint8(min(step, 255)) - np.uint8(100)),
    ):
        schedule = cf.from_python(function)
        steps = (*range(300), 2**22, 2**23, 2**23 + 1, 2**30, 2**31)
        assert differing(schedule, function, steps) == []


def test_a_local_array_is_a_table() -> None:
    def function(step: int) -> Any:
        table = np.linspace(0.0, 1.0, 100)
        return table[step]

    schedule = cf.from_python(function)
    assert schedule.last_step == 99
    assert differing(schedule, function, range(99)) == []


# --- states --------------------------------------------------------------------------------------


class Counts:
    number = 0
    items: list[int] = []  # noqa: RUF012 - as users write it

    def __call__(self, step: int) -> float:
        type(self).number += 1
        return 0.1 * step


class Sometimes:
    def __init__(self) -> None:
        self.last = 0.5

    def __call__(self, step: int) -> float:
        if step < 10:
            self.last = step / 10
            return 0.1
        return self.last


SPACE = types.SimpleNamespace(number=0, rate=0.5)
WINDOW: collections.deque[int] = collections.deque(maxlen=3)
NUMBERS, HEAP = array.array("d", [0.1, 0.2]), [3, 5]
COUNT = itertools.count()
CYCLE = itertools.cycle([0.1, 0.2])
GENERATOR = (0.1 * number for number in range(10**6))
DRAW, NUMPY_DRAW = random.Random(0), np.random.default_rng(0)
TENSOR = torch.ones(3)
APPEND = HEAP.append
TABLE: dict[str, Any] = {"rates": [0.1, 0.2]}


def assigns_a_class(step: int) -> float:
    Counts.number += 1
    return 0.1 if Counts.number < 5000 else 0.3


def appends_to_a_class(step: int) -> float:
    Counts.items.append(1)
    return 0.1 * len(Counts.items)


def assigns_a_namespace(step: int) -> float:
    SPACE.number += 1
    return 0.1 if SPACE.number < 5000 else 0.3


def assigns_by_setattr(step: int) -> Any:
    setattr(SPACE, "number", SPACE.number + 1)  # noqa: B010 - as users write it
    return 0.1 * SPACE.number


def assigns_its_attribute(step: int) -> float:
    assigns_its_attribute.calls = getattr(assigns_its_attribute, "calls", 0) + 1  # type: ignore[attr-defined]
    return 0.1 if assigns_its_attribute.calls < 5000 else 0.3  # type: ignore[attr-defined]


def changes_a_default(step: int, seen: list[int] = []) -> float:  # noqa: B006 - as users write it
    seen.append(step)
    return 0.1 * len(seen)


def pushes(step: int) -> float:
    heapq.heappush(HEAP, 1)
    return 0.1 * len(HEAP)


def appends_by_a_method(step: int) -> float:
    APPEND(1)
    return 0.1 * len(HEAP)


def appends_by_a_descriptor(step: int) -> float:
    list.append(HEAP, 1)
    return 0.1 * len(HEAP)


def sets_by_operator(step: int) -> float:
    operator.setitem(TABLE, "rates", [step])
    return 0.1


def changes_a_nested_list(step: int) -> float:
    TABLE["rates"][0] += 1
    return 0.1


def changes_a_tensor(step: int) -> Any:
    TENSOR.add_(1)
    return 0.1 * TENSOR[0].item()


def appends_to_a_deque(step: int) -> float:
    WINDOW.append(step)
    return 0.1 * len(WINDOW)


def assigns_a_module(step: int) -> float:
    math.rate = 0.5  # type: ignore[attr-defined]
    return 0.1 * step


STATES: list[Callable[[int], Any]] = [
    assigns_a_class, appends_to_a_class, assigns_a_namespace, assigns_by_setattr,
    assigns_its_attribute, changes_a_default, pushes, appends_by_a_method, appends_by_a_descriptor,
    sets_by_operator, changes_a_nested_list, changes_a_tensor, appends_to_a_deque,
    assigns_a_module, Counts(), Sometimes(),
    lambda step: 0.1 * NUMBERS[step % 2],
    lambda step: 0.1 if next(COUNT) < 5000 else 0.2,
    lambda step: next(CYCLE),
    lambda step: next(GENERATOR),
    lambda step: 0.1 if DRAW.random() > 1e-4 else 0.2,
    lambda step: 0.1 if NUMPY_DRAW.random() > 1e-4 else 0.2,
    lambda step: 0.1 * random.choice([1, 2]),
    lambda step: 0.1 * np.empty(1)[0],
    lambda step: 0.1 * id(step),
    lambda step: 0.1 * len(globals()),
]  # fmt: skip


@pytest.mark.parametrize("function", STATES)
def test_a_state_is_refused_and_left_as_it_is(function: Callable[[int], Any]) -> None:
    before = (Counts.number, SPACE.number, HEAP[:], len(WINDOW), str(TABLE), TENSOR.tolist())
    with pytest.raises(TraceError):
        cf.from_python(function)
    after = (Counts.number, SPACE.number, HEAP[:], len(WINDOW), str(TABLE), TENSOR.tolist())
    assert after == before
    assert not hasattr(math, "rate")


class Config:
    base = 0.5

    def __init__(self, rate: float) -> None:
        self.rates = [rate, rate / 2]

    def at(self, step: int) -> float:
        self.latest = self.rates[min(step, 1)] * self.base
        return self.latest


def makes_an_object(step: int) -> float:
    config = Config(0.1 * step)
    config.rates.append(step)
    return config.at(step) + config.rates[-1]


def changes_its_own(step: int) -> Any:
    window = collections.deque([0.1], maxlen=2)
    window.append(step)
    space = types.SimpleNamespace(rate=step)
    space.rate += 1
    counter = itertools.count(3)
    return sum(window) + space.rate + next(counter) + SPACE.rate


@pytest.mark.parametrize("function", [makes_an_object, changes_its_own, Config(0.3).at])
def test_what_the_function_makes_may_change(function: Callable[[int], Any]) -> None:
    assert differing(cf.from_python(function), function, range(40)) == []


# --- handlers ------------------------------------------------------------------------------------


def unreadable(step: int) -> float:
    return {54_321: 0.5}[hash(step)]


def bare(step: int) -> float:
    try:
        return unreadable(step)
    except:  # noqa: E722 - as users write it
        return 0.1


def every_exception(step: int) -> float:
    try:
        return unreadable(step)
    except BaseException:
        return 0.1


def attribute_error(step: int) -> float:
    try:
        return 0.5 if step.bit_count() == 7 else 0.1
    except AttributeError:
        return 0.1


def type_error(step: int) -> float:
    try:
        return float((np.array([1.0, 2.0]) * step).sum())
    except TypeError:
        return 0.1


def returns_in_finally(step: int) -> float:
    try:
        return unreadable(step)
    finally:
        return 0.1  # noqa: B012, SIM107 - as users write it


def suppressed(step: int) -> float:
    with contextlib.suppress(BaseException):
        return unreadable(step)
    return 0.1


@contextlib.contextmanager
def swallowing() -> Any:
    try:
        yield
    except BaseException:
        return


def swallowed(step: int) -> float:
    with swallowing():
        return unreadable(step)
    return 0.1


def complex_number(step: int) -> Any:
    try:
        return abs((step - 50) ** 0.5)
    except ValueError:
        return 0.1


HANDLERS = [
    bare, every_exception, attribute_error, type_error, returns_in_finally, suppressed, swallowed,
    complex_number,
]  # fmt: skip


@pytest.mark.parametrize("function", HANDLERS)
def test_no_handler_takes_a_refusal_back(function: Callable[[int], Any]) -> None:
    with pytest.raises(TraceError):
        cf.from_python(function)


# --- rounding ------------------------------------------------------------------------------------

ROUNDING: dict[str, Callable[[int], Any]] = {
    "modulo": lambda step: (step * 0.1) % 0.3,
    "digits": lambda step: round(1 / (step + 1), 3),
    "equality": lambda step: 0.5 if (step / 100) % 1 == 0.07 else 0.1,
    "quotient": lambda step: math.fmod(step * 3e-4, 3) // 3e-4,
    "cube_root": lambda step: int(step ** (1 / 3)) * 0.1,
    "floor": lambda step: math.floor(step * 0.1 / 0.3) * 0.5,
    "truncation": lambda step: int(step * 0.29) / 100,
    "index": lambda step: [0.1, 0.2, 0.3, 0.4][int(step * 0.7) % 4],
    "comparison": lambda step: 1.0 if step * 0.1 <= 0.3 else 0.5,
    "logarithm": lambda step: math.floor(math.log10(step + 1)) + math.floor(math.log(step + 1, 3)),
    "cancellation": lambda step: (1e16 + step) - 1e16,
    "sine": lambda step: math.sin(math.pi * step),
    "halves": lambda step: round(step * 0.35, 1) + round(step / 8),
    "single": lambda step: float(np.float32(step) * np.float32(0.1)) // 0.1,
    "pole": lambda step: 1 / (0.1 * step - 0.3) if step < 200 else 1.0,
    "root": lambda step: math.sqrt(0.3 - 0.1 * min(step, 3)),
    "search": lambda step: 0.5 ** np.searchsorted([0.3, 0.6, 0.7], step * 0.1),
    "minimum": lambda step: min(0.3, step * 0.1) // 0.1,
    "where": lambda step: float(np.where(step * 0.1 > 0.3, 1.0, 0.5)),
    "sum": lambda step: sum([step * 0.1, 0.2, -0.3]) // 0.1,
}


@pytest.mark.parametrize("name", ROUNDING)
def test_every_step_that_rounds_is_named_and_no_other(name: str) -> None:
    function = ROUNDING[name]
    schedule = cf.from_python(function)
    rounded = schedule.trace.comparison.rounded
    steps = (*range(330), 10**6, 10**7 + 1)
    wrong = differing(schedule, function, steps)
    named = [step for step in steps if step in rounded]
    assert set(wrong) <= set(named)
    # A named step differs by more than 5e-8, in this test by more than 1e-7.
    close = set(named) - set(wrong)
    for step in close:
        assert float(schedule.exact(step)) != float(function(step))
    assert all(step in rounded for step in rounded)


def test_rounded_steps_are_those_of_integers_only() -> None:
    rounded = cf.from_python(ROUNDING["comparison"]).trace.comparison.rounded
    assert 3 in rounded
    assert np.int64(3) in rounded
    for value in (2, -3, 3.5, True, "3", None):
        assert value not in rounded


def test_an_open_hyperparameter_names_no_step() -> None:
    schedule = cf.from_python(lambda step, rate: rate * step, hyper=["rate"])
    assert 3 not in schedule.trace.comparison.rounded


def test_a_hyperparameter_is_run_at_its_value() -> None:
    def function(step: int, rate: float = 0.1) -> float:
        return 1.0 if step * rate <= 0.3 else 0.5

    rounded = cf.from_python(function, hyper=["rate"]).trace.comparison.rounded
    assert [step for step in range(50) if step in rounded] == [3]


SCALARS = (np.int8(3), np.uint8(3), np.int32(3), np.float16(3.5), np.float32(3.5), np.float64(3.5))
# NumPy 2.0 raises an OverflowError where it compares its integer with that of a subclass of int,
# which constants are in a trace, and the dtype does not hold it.
REFUSED_COMPARISONS = (
    {(np.int8, 200), (np.uint8, -1)} if np.lib.NumpyVersion(np.__version__) < "2.1.0" else set()
)


@pytest.mark.parametrize("scalar", SCALARS, ids=lambda scalar: type(scalar).__name__)
@pytest.mark.parametrize("constant", [0.1, math.pi, 40, 100, 200, -1])
def test_scalars_of_numpy_keep_their_type_beside_constants(scalar: Any, constant: float) -> None:
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "lt", "eq"):
        operation = getattr(operator, name)
        for left, right in ((scalar, constant), (constant, scalar)):

            def function(step: int, a: Any = left, b: Any = right, do: Any = operation) -> float:
                return float(do(a, b)) + 0 * step

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # integers that wrap
                is_comparison = name in ("lt", "eq")
                is_refused = is_comparison and (type(scalar), constant) in REFUSED_COMPARISONS
                try:
                    expected = None if is_refused else function(1)
                except OverflowError:
                    expected = None
                if expected is None:
                    with pytest.raises(TraceError, match="out of bounds"):
                        cf.from_python(function)
                    continue
                found = float(cf.from_python(function).exact(1))
            # Constants of float64 are exact, where NumPy rounds some twice.
            assert found == pytest.approx(expected, rel=1e-15)


def entries_of_tables(seed: int) -> Callable[[int], float]:
    """Entries of tables in indices, rounds and conditions of one another."""
    draw = random.Random(seed)
    size = draw.randint(17, 32)  # a shorter table is a run for each entry
    table = [draw.randint(1, 400) / 100 for _ in range(size)]
    places = [draw.randint(0, 99) for _ in range(size)]

    def entry(step: int, depth: int = 0) -> float:
        index = step + draw_depth[depth]
        return table[places[index % size] % size] if kinds[depth] else table[index % size]

    draw_depth = [draw.randint(0, 1) for _ in range(4)]
    kinds = [draw.random() < 0.5 for _ in range(4)]
    digits = [draw.randint(0, 2) for _ in range(3)]
    scales = [draw.choice([3, 7, 1.5, 11]) for _ in range(3)]
    shape = seed % 4

    def function(step: int) -> float:
        first, second = entry(step), entry(step, 1)
        if shape == 0:
            inner = round(first / scales[0], digits[0])
            return round(round(inner + second, digits[1]) / scales[1], digits[2])
        if shape == 1:
            return 1.0 if round(first / scales[0], digits[0]) > second else second / 2
        if shape == 2:
            high = float(np.where(first > second, first, 2.0))
            return (
                high if high > scales[1] / 4 else table[places[places[step % size] % size] % size]
            )
        return round(table[int(first * 5) % size] * scales[0], digits[0])

    return function


@pytest.mark.sample(every=6)
@pytest.mark.parametrize("seed", range(48))
def test_entries_of_tables_in_rounds_indices_and_conditions(seed: int) -> None:
    """SymPy folds a table in a condition by sets of numbers, for hours."""
    function = entries_of_tables(seed)
    before = METER.work
    schedule = cf.from_python(function)
    assert METER.work - before < 1_000_000
    rounded = schedule.trace.comparison.rounded
    for step in (*range(70), 1009, 99_991):
        if step not in rounded:
            assert float(schedule.exact(step)) == pytest.approx(function(step), rel=1e-12), step


def test_an_entry_of_an_entry_of_long_tables() -> None:
    table, places = [0.1 * k for k in range(33)], [k * k % 99 for k in range(33)]
    for indices in (places, places[:5]):
        size = len(indices)
        schedule = cf.from_python(lambda step, n=size, at=indices: table[at[step % n] % 33])
        for step in (0, 8, 32, 33, 1000):
            assert schedule.exact(step) == sp.Rational(indices[step % size] % 33, 10)


def test_an_index_of_entries_of_several_long_tables_is_refused() -> None:
    tables = [[k * k % size for k in range(size)] for size in (35, 36)]
    with pytest.raises(TraceError, match="an index that is made of entries of several long tables"):
        cf.from_python(lambda step: tables[0][(tables[0][step % 35] + tables[1][step % 36]) % 35])


def test_a_condition_about_several_long_tables_is_refused() -> None:
    tables = [[k * k % size for k in range(size)] for size in (35, 36)]
    with pytest.raises(TraceError) as refused:
        cf.from_python(lambda step: 1.0 if tables[0][step % 35] > tables[1][step % 36] else 2.0)
    assert "a condition is about 1,224 combinations of entries, and 1,024 are" in str(refused.value)
    with pytest.raises(TraceError, match="a condition about several long tables"):
        cf.from_python(
            lambda step: float(np.where(tables[0][step % 35] > tables[1][step % 36], 1.0, 2.0))
        )


ENTRIES = [0.1, 0.2, 0.3, 0.4, 0.5]
READ: dict[str, Callable[[int], float]] = {
    "root": lambda step: ENTRIES[min(int(math.sqrt(step)), 4)],
    "logarithm": lambda step: ENTRIES[min(int(math.log2(step + 1)), 4)],
    "exponential": lambda step: ENTRIES[min(int(math.exp(step / 10)), 4)],
    "falling root": lambda step: ENTRIES[max(4 - int(step**0.5), 0)],
    "cosine": lambda step: ENTRIES[int(2.1 * (1 + math.cos(math.pi * step / 50)))],
}


@pytest.mark.parametrize("name", READ)
def test_a_table_is_read_at_the_floor_of_an_irrational_number(name: str) -> None:
    schedule = cf.from_python(READ[name])
    assert [float(schedule.exact(step)) for step in range(80)] == list(map(READ[name], range(80)))


def long_power(step: int) -> int:
    return int(step ** (10**9))


def long_base(step: int) -> int:
    return int((10**400) ** step)


@pytest.mark.parametrize(("function", "step"), [(long_power, 1), (long_base, 0)])
def test_powers_that_python_would_not_end_are_not_worked_out(
    function: Callable[[int], int], step: int
) -> None:
    # The compared steps go up to a million: Python itself would work 10**9 digits out.
    assert cf.from_python(function).exact(step) == 1
