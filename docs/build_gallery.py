"""Writes docs/gallery.md and its plots: every schedule of the library, drawn from the code.

`make gallery` runs it. ``EXAMPLES`` is one row a schedule: a schedule without a row is an error.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import sympy as sp
from matplotlib import rc_context

from closedform import dialects, schedules
from closedform.compiler import compile_init, compile_step
from closedform.ir.evaluate import evaluate
from closedform.language import Schedule, UpdateRule, t
from closedform.language.printing import latex
from closedform.plotting import plot_schedule

DOCS = Path(__file__).parent
PAGE = DOCS / "gallery.md"
PLOTS = DOCS / "gallery"

RISE = schedules.linear(0, 1, 20)
FALL = schedules.cosine(1, 0.1, 80)

Example = tuple[str, Callable[[], Schedule | UpdateRule], int]
EXAMPLES: Mapping[str, Example] = {
    "constant": ("constant(0.1)", lambda: schedules.constant(0.1), 100),
    "linear": ("linear(1, 0, 100)", lambda: schedules.linear(1, 0, 100), 120),
    "polynomial": (
        "polynomial(1, 0.1, 100, power=2)",
        lambda: schedules.polynomial(1, 0.1, 100, power=2),
        120,
    ),
    "cosine": ("cosine(1, 0.1, 100)", lambda: schedules.cosine(1, 0.1, 100), 120),
    "cosine_annealing": (
        "cosine_annealing(1, 0.1, 50)",
        lambda: schedules.cosine_annealing(1, 0.1, 50),
        200,
    ),
    "cosine_k_decay": (
        "cosine_k_decay(1, 0.1, 100, k=2, warmup=15, cooldown=10)",
        lambda: schedules.cosine_k_decay(1, 0.1, 100, k=2, warmup=15, cooldown=10),
        110,
    ),
    "cosine_with_min": (
        "cosine_with_min(1, 0.2, 100, cycles=2.5)",
        lambda: schedules.cosine_with_min(1, 0.2, 100, cycles=2.5),
        120,
    ),
    "cosine_hard_restarts": (
        "cosine_hard_restarts(1, 0, 100, cycles=4)",
        lambda: schedules.cosine_hard_restarts(1, 0, 100, cycles=4),
        120,
    ),
    "flat_cosine": (
        "flat_cosine(1, 0, 100, flat=70)",
        lambda: schedules.flat_cosine(1, 0, 100, flat=70),
        120,
    ),
    "warm_restarts": (
        "warm_restarts(1, 0.1, 20, multiplier=2, restarts=2)",
        lambda: schedules.warm_restarts(1, 0.1, 20, multiplier=2, restarts=2),
        160,
    ),
    "cyclic": (
        'cyclic(0.1, 1, 20, 30, mode="triangular2")',
        lambda: schedules.cyclic(0.1, 1, 20, 30, mode="triangular2"),
        200,
    ),
    "one_cycle": (
        "one_cycle(0.04, 1, 0, 100)",
        lambda: schedules.one_cycle(0.04, 1, 0, 100),
        110,
    ),
    "one_cycle_momentum": (
        "one_cycle_momentum(0.95, 0.85, 100)",
        lambda: schedules.one_cycle_momentum(0.95, 0.85, 100),
        110,
    ),
    "exponential": (
        "exponential(1, 0.5, 30, staircase=True)",
        lambda: schedules.exponential(1, 0.5, 30, staircase=True),
        150,
    ),
    "multiplicative": (
        "multiplicative(1, 0.97)",
        lambda: schedules.multiplicative(1, 0.97),
        150,
    ),
    "step_decay": (
        "step_decay(1, 0.5, 30)",
        lambda: schedules.step_decay(1, 0.5, 30),
        150,
    ),
    "multi_step": (
        "multi_step(1, 0.3, [50, 80, 90])",
        lambda: schedules.multi_step(1, 0.3, [50, 80, 90]),
        120,
    ),
    "piecewise_constant": (
        "piecewise_constant([0.2, 1, 0.5, 0.1], [10, 50, 80])",
        lambda: schedules.piecewise_constant([0.2, 1, 0.5, 0.1], [10, 50, 80]),
        110,
    ),
    "inverse_time": (
        "inverse_time(1, 1, 20)",
        lambda: schedules.inverse_time(1, 1, 20),
        200,
    ),
    "inverse_square_root": (
        "inverse_square_root(1, scale=5, warmup=25)",
        lambda: schedules.inverse_square_root(1, scale=5, warmup=25),
        250,
    ),
    "noam": ("noam(512, 40)", lambda: schedules.noam(512, 40), 300),
    "power": ("power(1, -0.7, warmup=20)", lambda: schedules.power(1, -0.7, warmup=20), 200),
    "rex": ("rex(1, 0, 100)", lambda: schedules.rex(1, 0, 100), 120),
    "tanh_decay": ("tanh_decay(1, 0, 100)", lambda: schedules.tanh_decay(1, 0, 100), 120),
    "hyperbolic": (
        "hyperbolic(1, 0, 100, bound=120)",
        lambda: schedules.hyperbolic(1, 0, 100, bound=120),
        120,
    ),
    "slanted_triangular": (
        "slanted_triangular(1, 100)",
        lambda: schedules.slanted_triangular(1, 100),
        120,
    ),
    "trapezoidal": (
        "trapezoidal(1, 0, 100, warmup=10, decay=30)",
        lambda: schedules.trapezoidal(1, 0, 100, warmup=10, decay=30),
        120,
    ),
    "wsd": (
        'wsd(1, 0, 100, warmup=10, decay=30, shape="sqrt")',
        lambda: schedules.wsd(1, 0, 100, warmup=10, decay=30, shape="sqrt"),
        120,
    ),
    "wsd_checkpoints": (
        "wsd_checkpoints(1, 0.1, 200, warmup=10, ratio=0.3, checkpoints=3)",
        lambda: schedules.wsd_checkpoints(1, 0.1, 200, warmup=10, ratio=0.3, checkpoints=3),
        220,
    ),
    "function": (
        "function(lambda t: 1 + sp.sin(t / 10) / (1 + t / 20))",
        lambda: schedules.function(lambda t: 1 + sp.sin(t / 10) / (1 + t / 20)),
        200,
    ),
    "table": (
        "table([0.1, 0.5, 1, 0.9, 0.6, 0.6, 0.3, 0.2])",
        lambda: schedules.table([0.1, 0.5, 1, 0.9, 0.6, 0.6, 0.3, 0.2]),
        12,
    ),
    "sequential": (
        "sequential([linear(0, 1, 20), cosine(1, 0.1, 80)])",
        lambda: schedules.sequential([RISE, FALL]),
        120,
    ),
    "chained": (
        "chained([cosine(1, 0.1, 80), step_decay(1, 0.7, 20)])",
        lambda: schedules.chained([FALL, schedules.step_decay(1, 0.7, 20)]),
        120,
    ),
    "repeat": ("repeat(linear(1, 0.2, 30))", lambda: schedules.linear(1, 0.2, 30).repeat(), 120),
    "scale": ("scale(linear(0, 1, 20), 0.5)", lambda: schedules.scale(RISE, 0.5), 30),
    "splice": (
        "splice(linear(1, 0, 100), 60, linear(1, 0, 150))",
        lambda: schedules.splice(schedules.linear(1, 0, 100), 60, schedules.linear(1, 0, 150)),
        170,
    ),
    "reduce_on_plateau": (
        "reduce_on_plateau(factor=0.5, patience=5, cooldown=5)",
        lambda: schedules.reduce_on_plateau(factor=0.5, patience=5, cooldown=5),
        120,
    ),
}
"""The call as it is printed, what it makes, and the last step that is drawn."""

METRIC = sp.exp(-t / 20) + sp.cos(t / 3) / 40
"""The loss over which the rule that waits for one is drawn."""

_INTRODUCTION = """\
# Gallery

Every schedule of the library: its formula with the names of its arguments, what other systems
call it, and one example. `make gallery` writes this page and its plots from the code. In the
formulas t is the number of steps done.
"""


def driven(rule: UpdateRule, steps: int) -> Schedule:
    """Returns the course of a rule that waits for a metric over ``METRIC``, begun at 1."""
    graph = compile_step(rule, {"lr": ()}, dtype="f64")
    inputs = {**evaluate(compile_init(rule, {"lr": ()}, dtype="f64"), {}), "param.lr": np.ones(())}
    metrics = Schedule(METRIC)(np.arange(steps))
    values = [1.0]
    for metric in np.asarray(metrics):
        results = evaluate(graph, {**inputs, "grad.lr": metric})
        inputs = {name.removeprefix("next."): value for name, value in results.items()}
        values.append(float(inputs["param.lr"]))
    return schedules.table(values).rename(rule.name)


def card(name: str) -> str:
    """Returns the part of the page for one schedule."""
    call, make, _ = EXAMPLES[name]
    made = make()
    first_line = (inspect.getdoc(getattr(schedules, name)) or "").partition("\n")[0]
    says = first_line.removeprefix("Returns ").replace("``", "`")
    formula = latex(made.param) if isinstance(made, UpdateRule) else made.latex()
    known = dialects.known_as(name).items()
    names = ", ".join(f"`{system}:{entry}`" for system, entries in known for entry in entries)
    return "\n".join(
        [
            f"## {name}",
            "",
            f"{says[:1].upper()}{says[1:]}",
            "",
            f"$${formula}$$",
            "",
            f"In other systems: {names or 'none of those that the dialects know'}.",
            "",
            f"![{call}](gallery/{name}.svg)",
            "",
            f"`{call}`",
            "",
        ]
    )


def page() -> str:
    """Returns the whole page."""
    missing = set(schedules.__all__) ^ set(EXAMPLES)
    if missing:
        raise SystemExit(
            f"docs/build_gallery.py: give each schedule one example: {sorted(missing)}"
        )
    return "\n".join([_INTRODUCTION, *(card(name) for name in EXAMPLES)])


def draw(name: str, folder: Path) -> Path:
    """Returns the file of a schedule's plot, newly drawn."""
    _, make, steps = EXAMPLES[name]
    made = make()
    schedule = driven(made, steps) if isinstance(made, UpdateRule) else made
    path = folder / f"{name}.svg"
    with rc_context({"svg.fonttype": "none"}):  # letters as text: a third of the size
        plot_schedule(schedule, path, steps=steps, title=name)
    return path


def main(names: Sequence[str]) -> None:
    """Writes the page and these plots, or all, and removes plots of what is no longer there."""
    PLOTS.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8", newline="\n")
    for name in names or EXAMPLES:
        draw(name, PLOTS)
    for path in PLOTS.iterdir():
        if path.stem not in EXAMPLES:
            path.unlink()
    size = sum(path.stat().st_size for path in PLOTS.iterdir())
    sys.stdout.write(f"{PAGE}: {len(EXAMPLES)} schedules, {size:,} bytes of plots\n")


if __name__ == "__main__":
    main(sys.argv[1:])
