"""Properties of every schedule of the library, a row each; a new one without a row fails here.

A row is the length of its example (``closedform.schedules.examples``) and the arguments that it
refuses. From it: a docstring with formula, arguments, errors, doctest and source; LaTeX; golden IR,
which is run; the length; its errors; onnxruntime beside the exact value.
"""

import inspect
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import closedform as cf
from closedform import schedules as library
from closedform.errors import ClosedFormError
from closedform.ir.evaluate import evaluate
from closedform.ir.graph import Graph
from closedform.ir.ops import OPS
from closedform.ir.text import parse_graph, print_graph
from closedform.language import Schedule, UpdateRule
from closedform.language.exact import to_float
from closedform.schedules.examples import EXAMPLES
from tests.conftest import GOLDEN
from tests.support.engines import run_onnxruntime

Refused = tuple[Callable[[], Any], str]
NO_STEPS = "steps must be above 0, got 0"
LINE = library.linear(0, 1, 20)

# Length of the example, and calls that are refused with a part of their message.
ROWS: dict[str, tuple[int | None, tuple[Refused, ...]]] = {
    "chained": (
        80,
        (
            (lambda: library.chained([]), "chained needs at least one schedule, got none"),
            (lambda: library.chained([LINE, LINE]), "divided by its first value, which is 0"),
        ),
    ),
    "constant": (
        None,
        (
            (lambda: library.constant("a"), "must be a number, got str 'a'"),
            (lambda: library.constant(1, steps=0), NO_STEPS),
        ),
    ),
    "cosine": (100, ((lambda: library.cosine(1, 0, 0), NO_STEPS),)),
    "cosine_annealing": (50, ((lambda: library.cosine_annealing(1, 0, 0), NO_STEPS),)),
    "cosine_hard_restarts": (
        100,
        (
            (lambda: library.cosine_hard_restarts(1, 0, 0), NO_STEPS),
            (lambda: library.cosine_hard_restarts(1, 0, 9, -2), "cycles must be above 0, got -2"),
        ),
    ),
    "cosine_k_decay": (
        100,
        (
            (lambda: library.cosine_k_decay(1, 0, 9, k=0), "k must be above 0, got 0"),
            (lambda: library.cosine_k_decay(1, 0, 0), "steps must be an integer >= 1, got 0"),
            (lambda: library.cosine_k_decay(1, 0, 9, 1, 5, 0, 4), "got 5 + 4 of 9"),
        ),
    ),
    "cosine_constant_tail": (
        100,
        (
            (lambda: library.cosine_constant_tail(1, 0, 9, 0), "tail must be an integer >= 1"),
            (lambda: library.cosine_constant_tail(1, 0, 9, 9), "tail must be below steps, got 9"),
        ),
    ),
    "cosine_linear_envelope": (
        100,
        ((lambda: library.cosine_linear_envelope(1, 0, 0), NO_STEPS),),
    ),
    "cosine_linear_tail": (
        100,
        (
            (lambda: library.cosine_linear_tail(1, 0, 0, 1), "steps must be an integer >= 1"),
            (lambda: library.cosine_linear_tail(1, 0, 9, 10), "at most steps, got 10 of 9"),
        ),
    ),
    "cosine_with_min": (
        100,
        (
            (lambda: library.cosine_with_min(1, 0, 0), NO_STEPS),
            (lambda: library.cosine_with_min(1, 0, 9, 0), "cycles must be above 0, got 0"),
        ),
    ),
    "cyclic": (
        None,
        (
            (lambda: library.cyclic(0, 1, -3), "up must be above 0, got -3"),
            (lambda: library.cyclic(0, 1, 3, -1), "down must be at least 0, got -1"),
            (lambda: library.cyclic(0, 1, 3, mode="exp"), "mode must be one of triangular"),
            (lambda: library.cyclic(0, 1, 3, scale_mode="c"), "scale_mode must be one of cycle"),
        ),
    ),
    "exponential": (
        None,
        (
            (lambda: library.exponential(1, 0.5, 0), NO_STEPS),
            (lambda: library.exponential(1, -2, 3), "rate must be at least 0 where steps is 3"),
        ),
    ),
    "flat_cosine": (
        100,
        (
            (lambda: library.flat_cosine(1, 0, 0, 0), NO_STEPS),
            (lambda: library.flat_cosine(1, 0, 9, 9), "flat must be at least 0 and below steps"),
        ),
    ),
    "fsl": (
        100,
        (
            (lambda: library.fsl(1, 0, 2), NO_STEPS),
            (lambda: library.fsl(1, 9, 0.5), "beta must be above 1/2, got 0.5"),
        ),
    ),
    "function": (
        None,
        ((lambda: library.function(lambda t: "a"), "must be a number, got str 'a'"),),
    ),
    "geometric": (
        100,
        (
            (lambda: library.geometric(1, 2, 0), NO_STEPS),
            (lambda: library.geometric(0, 1, 9), "start must be above 0, got 0"),
            (lambda: library.geometric(1, -1, 9), "end must be above 0, got -1"),
        ),
    ),
    "half_cosine": (100, ((lambda: library.half_cosine(1, 0, 0), NO_STEPS),)),
    "hyperbolic": (
        100,
        (
            (lambda: library.hyperbolic(1, 0, 0, 9), NO_STEPS),
            (lambda: library.hyperbolic(1, 0, 9, 7), "bound must be at least steps, got 7 and 9"),
        ),
    ),
    "inverse_square_root": (
        None,
        ((lambda: library.inverse_square_root(1, 1, 0), "warmup must be above 0, got 0"),),
    ),
    "inverse_square_root_cooldown": (
        200,
        (
            (
                lambda: library.inverse_square_root_cooldown(1, 9, 0),
                "timescale must be above 0, got 0",
            ),
            (
                lambda: library.inverse_square_root_cooldown(1, 9, 5, 5, 5),
                "must fit into steps, got 5 + 5 > 9",
            ),
            (
                lambda: library.inverse_square_root_cooldown(1, 9, 5, shift=-1),
                "shift must be at least 0, got -1",
            ),
        ),
    ),
    "inverse_time": (
        None,
        (
            (lambda: library.inverse_time(1, 1, 0), NO_STEPS),
            (lambda: library.inverse_time(1, -2), "rate must be at least 0, got -2"),
        ),
    ),
    "jagged_restarts": (
        None,
        (
            (lambda: library.jagged_restarts(LINE, 0), "every must be an integer >= 1, got 0"),
            (lambda: library.jagged_restarts(LINE, 5, 5), "must fit into every, got 5 + 1 > 5"),
        ),
    ),
    "linear": (100, ((lambda: library.linear(1, 0, 0), NO_STEPS),)),
    "log_warmup": (
        99,
        (
            (lambda: library.log_warmup(0, 1, 0), NO_STEPS),
            (lambda: library.log_warmup(0, 1, 1), "steps must be above 1, got 1"),
        ),
    ),
    "maximum": (
        None,
        ((lambda: library.maximum([]), "maximum needs at least one schedule, got none"),),
    ),
    "multi_step": (
        90,
        (
            (lambda: library.multi_step(1, 0.5, "7"), "must be a sequence of steps, got str '7'"),
            (lambda: library.multi_step(1, "a", [7]), "must be a number, got str 'a'"),
        ),
    ),
    "multiplicative": (
        None,
        ((lambda: library.multiplicative(1, "a"), "gamma of multiplicative must be a number"),),
    ),
    "noam": (
        None,
        (
            (lambda: library.noam(0, 9), "width must be above 0, got 0"),
            (lambda: library.noam(9, 0), "warmup must be above 0, got 0"),
        ),
    ),
    "one_cycle": (
        100,
        (
            (lambda: library.one_cycle(0, 1, 0, 0), "steps must be an integer >= 1, got 0"),
            (lambda: library.one_cycle(0, 1, 0, 9, 2), "number from 0 to 1, got 2"),
            (lambda: library.one_cycle(0, 1, 0, 5, 0.2), "rise * steps must not be 1"),
            (lambda: library.one_cycle(0, 1, 0, 9, anneal="c"), "anneal must be one of cos"),
        ),
    ),
    "one_cycle_momentum": (
        100,
        (
            (lambda: library.one_cycle_momentum(1, 0, -5), "steps must be an integer >= 1"),
            (lambda: library.one_cycle_momentum(1, 0, 9, -1), "number from 0 to 1, got -1"),
        ),
    ),
    "piecewise_constant": (
        80,
        (
            (lambda: library.piecewise_constant([1], [2]), "expected 2, got 1"),
            (lambda: library.piecewise_constant([1, 2], [0]), "got 0 after 0"),
        ),
    ),
    "polynomial": (
        100,
        (
            (lambda: library.polynomial(1, 0, 0), NO_STEPS),
            (lambda: library.polynomial(1, 0, Fraction(5, 2), cycle=True), "an integer where"),
        ),
    ),
    "power": (None, ((lambda: library.power(1, -1, 0), "warmup must be above 0, got 0"),)),
    "power_with_tail": (
        200,
        (
            (lambda: library.power_with_tail(0, -1, 9, 1, 1), "peak must be above 0, got 0"),
            (lambda: library.power_with_tail(1, -1, 9, 0, 1), "warmup must be an integer >= 1"),
            (lambda: library.power_with_tail(1, -1, 9, 5, 5), "must fit into steps, got 5 + 5 > 9"),
            (
                lambda: library.power_with_tail(1, -1, 9, 1, 5, shape="exponential"),
                "end must be above 0 for the shape exponential, got 0",
            ),
        ),
    ),
    "product": (
        80,
        ((lambda: library.product([]), "product needs at least one schedule, got none"),),
    ),
    "quadratic_warmup": (100, ((lambda: library.quadratic_warmup(0, 1, 0), NO_STEPS),)),
    "range_test": (None, ((lambda: library.range_test(1, 1, 0), NO_STEPS),)),
    "reduce_on_plateau": (
        None,
        ((lambda: library.reduce_on_plateau(factor=1), "factor must be at least 0 and below 1"),),
    ),
    "refined": (
        8,
        (
            (lambda: library.refined([1]), "at least two finite numbers, got 1: 1.0"),
            (lambda: library.refined([1, 0.0]), "norm 1 must be above 0, got 0.0"),
            (lambda: library.refined([1, 1], smoothing=2), "smoothing must be from 0 to 1, got 2"),
        ),
    ),
    "repeat": (
        None,
        (
            (lambda: library.repeat(LINE, 0), "every must be above 0, got 0"),
            (lambda: library.repeat(library.constant(1)), "needs the number of steps after which"),
        ),
    ),
    "rex": (100, ((lambda: library.rex(1, 0, 0), NO_STEPS),)),
    "scale": (20, ((lambda: library.scale(LINE, "a"), "factor must be a number, got str 'a'"),)),
    "sequential": (
        100,
        (
            (lambda: library.sequential([]), "sequential needs at least one schedule, got none"),
            (lambda: library.sequential([LINE, LINE], [0]), "strictly increasing, got 0 after 0"),
            (lambda: library.sequential([LINE], [3]), "expected 0, got 1"),
        ),
    ),
    "slanted_triangular": (
        100,
        (
            (lambda: library.slanted_triangular(1, 1), "steps must be an integer >= 2, got 1"),
            (lambda: library.slanted_triangular(1, 9, 1), "cut must be above 0 and below 1"),
            (lambda: library.slanted_triangular(1, 20, ratio=0), "ratio must be above 0, got 0"),
        ),
    ),
    "splice": (
        150,
        ((lambda: library.splice(LINE, -1, LINE), "at must be an integer >= 0, got -1"),),
    ),
    "stages": (
        100,
        (
            (lambda: library.stages(1, []), "stages must be a list of stages, got []"),
            (lambda: library.stages(1, [(0, 0)]), "steps must be an integer >= 1, got 0"),
            (lambda: library.stages(1, [(0, 9, "root")]), "shape must be one of linear"),
            (lambda: library.stages(1, [(0, 9, "inverse")]), "needs values above 0, got 1 and 0"),
            (lambda: library.stages(1, [(0, 9)], at=3), "must be given together, got 3 and None"),
            (
                lambda: library.stages(1, [(0,)]),  # type: ignore[list-item]
                "a stage must be (end, steps)",
            ),
        ),
    ),
    "step_decay": (None, ((lambda: library.step_decay(1, 0.5, 0), NO_STEPS),)),
    "table": (
        8,
        (
            (lambda: library.table([]), "values must not be empty, got none"),
            (lambda: library.table("ab"), "must be a sequence of numbers, got str 'ab'"),
        ),
    ),
    "tanh_decay": (
        100,
        (
            (lambda: library.tanh_decay(1, 0, 0), NO_STEPS),
            (lambda: library.tanh_decay(1, 0, 9, 3, 3), "high must be above low, got 3 and 3"),
        ),
    ),
    "trapezoidal": (
        100,
        (
            (lambda: library.trapezoidal(1, 0, 9, 5, 5), "must fit into steps, got 5 + 5 > 9"),
            (lambda: library.trapezoidal(1, 0, 9, 5, 0), "decay must be an integer >= 1, got 0"),
        ),
    ),
    "tri_stage": (
        100,
        (
            (lambda: library.tri_stage(1, 0.1, 5, -1, 5), "hold must be an integer >= 0, got -1"),
            (lambda: library.tri_stage(1, 0, 5, 5, 5), "above 0 for the shape exponential"),
        ),
    ),
    "warm_restarts": (
        140,
        (
            (lambda: library.warm_restarts(1, 0, 0), NO_STEPS),
            (lambda: library.warm_restarts(1, 0, 9, 0), "multiplier must be an integer >= 1"),
            (lambda: library.warm_restarts(1, 0, 9, 1, -1), "restarts must be an integer >= 0"),
        ),
    ),
    "wsd": (
        100,
        (
            (lambda: library.wsd(1, 0, 9, -1, 5), "warmup must be an integer >= 0, got -1"),
            (lambda: library.wsd(1, 0, 9, 1, 5, "root"), "shape must be one of linear"),
            (lambda: library.wsd(1, 0, 9, 1, 5, "inverse"), "above 0 for the shape inverse"),
        ),
    ),
    "wsd_checkpoints": (
        200,
        (
            (lambda: library.wsd_checkpoints(1, 0, 9, ratio=0), "above 0 and at most 1, got 0"),
            (lambda: library.wsd_checkpoints(1, 0, 5), "has no steps: ratio 0.1 of 5"),
            (lambda: library.wsd_checkpoints(1, 0, 9, checkpoints=0), "an integer >= 1, got 0"),
        ),
    ),
}
BAD = [(name, index) for name, (_, bad) in ROWS.items() for index in range(len(bad))]


def test_every_schedule_has_a_row_and_an_example() -> None:
    assert set(ROWS) == set(EXAMPLES) == set(library.__all__)
    assert all(bad for _, bad in ROWS.values())


@pytest.mark.parametrize("name", ROWS)
def test_docstring_has_formula_arguments_errors_example_and_source(name: str) -> None:
    text = inspect.getdoc(getattr(library, name)) or ""
    assert re.match(r"Returns [^\n]+\.\n", text)
    for part in (".. math::", "Args:", "Raises:", "Example:", ">>> ", "Source: "):
        assert part in text, part
    arguments = text.partition("Args:")[2].partition("Raises:")[0]
    for parameter in inspect.signature(getattr(library, name)).parameters:
        assert re.search(rf"^ +(\*\*)?{parameter}: ", arguments, re.MULTILINE), parameter


@pytest.mark.parametrize(("name", "index"), BAD)
def test_argument_without_a_meaning_is_refused(name: str, index: int) -> None:
    build, part = ROWS[name][1][index]
    with pytest.raises(ClosedFormError) as caught:
        build()
    assert part in str(caught.value)


def example(name: str) -> Schedule | UpdateRule:
    return EXAMPLES[name].make()


def graph_of(made: Schedule | UpdateRule) -> Graph:
    if isinstance(made, Schedule):
        return cf.compile(made, step_shape=("n",))
    return cf.compile(made, params={"lr": ()}, dtype="f64")


@pytest.mark.parametrize("name", ROWS)
def test_length_and_latex(name: str) -> None:
    made = example(name)
    if isinstance(made, UpdateRule):
        assert ROWS[name][0] is None
        return
    assert made.length == ROWS[name][0]
    formula = made.latex()
    for symbol in made.expr.free_symbols:
        assert symbol.name.replace("_", r"\_") in formula
    if made.length is not None and name != "table":
        # After its length the shape is complete: those that hold their end hold it there.
        is_final = name not in ("cosine_annealing", "chained")
        assert not is_final or made.exact(int(made.length) + 5) == made.exact(int(made.length))


@pytest.mark.parametrize("name", ROWS)
def test_golden_graph_is_what_the_code_says(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"library/{name}", print_graph(graph_of(example(name))))


def test_every_golden_graph_is_of_a_schedule() -> None:
    assert {path.stem for path in (GOLDEN / "library").iterdir()} == set(ROWS)


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("name", [name for name in ROWS if name != "reduce_on_plateau"])
def test_golden_graph_and_onnxruntime_are_the_exact_value(name: str) -> None:
    schedule = example(name)
    assert isinstance(schedule, Schedule)
    graph = parse_graph((GOLDEN / "library" / f"{name}.txt").read_text(encoding="utf-8"))
    end = EXAMPLES[name].steps
    steps = np.unique(np.linspace(0, end, 25).astype(np.int64))
    exact = np.array([to_float(schedule.exact(int(step))) for step in steps])
    # Each op of the graph rounds, to within the units in the last place that its row says.
    bound = (1 + sum(OPS[node.op].ulp for node in graph.nodes)) * np.spacing(np.abs(exact).max())
    for values in (
        evaluate(graph, {"step": steps})["value"],
        run_onnxruntime(graph, {"step": steps})["value"],
    ):
        assert np.abs(values - exact).max() <= bound
