"""Writes docs/gallery.md and its plots: every schedule of the library, drawn from the code.

`make gallery` runs it, on the examples of ``closedform.schedules.examples``.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import sympy as sp
from matplotlib import rc_context

from closedform import frameworks, schedules
from closedform.compiler import compile_init, compile_step
from closedform.ir.evaluate import evaluate
from closedform.language import Schedule, UpdateRule, t
from closedform.language.printing import latex
from closedform.options import GraphOptions, ModelSpec
from closedform.plotting import plot_schedule
from closedform.schedules.examples import EXAMPLES
from tools.sections import DOCS

PAGE = DOCS / "gallery.md"
PLOTS = DOCS / "gallery"

METRIC = sp.exp(-t / 20) + sp.cos(t / 3) / 40
"""The loss for which a metric-driven rule is drawn."""

_TITLES = {
    "compose": "Compositions",
    "given": "Given by a function or a table",
    "refined": "Computed from gradient norms",
    "plateau": "By a metric",
    "schedules": "Compositions",
    "sweeps": "Range tests",
    "wsd": "Warmup, stable, decay",
}
"""The names of families whose modules have other names."""

_INTRODUCTION = """\
# Gallery

Every schedule of the library: its formula with the names of its arguments, its names in other
frameworks, and one example. In the formulas t is the number of steps done. The
[interactive gallery](https://closedform.github.io/closedform/explore/) has the same schedules with
sliders, files and proofs; `closedform gallery -o site` writes it.
"""


def driven(rule: UpdateRule, steps: int) -> Schedule:
    """Returns the values of a metric-driven rule over ``METRIC``, starting at 1."""
    graph = compile_step(ModelSpec(rule, {"lr": ()}), GraphOptions(dtype="f64"))
    inputs = {
        **evaluate(compile_init(ModelSpec(rule, {"lr": ()}), GraphOptions(dtype="f64")), {}),
        "param.lr": np.ones(()),
    }
    metrics = Schedule(METRIC)(np.arange(steps))
    values = [1.0]
    for metric in np.asarray(metrics):
        results = evaluate(graph, {**inputs, "grad.lr": metric})
        inputs = {name.removeprefix("next."): value for name, value in results.items()}
        values.append(float(inputs["param.lr"]))
    return schedules.table(values).rename(rule.name)


def card(name: str) -> str:
    """Returns the section of the page for one schedule."""
    example = EXAMPLES[name]
    made = example.make()
    first_line = (inspect.getdoc(getattr(schedules, name)) or "").partition("\n")[0]
    says = first_line.removeprefix("Returns ").replace("``", "`")
    formula = latex(made.param) if isinstance(made, UpdateRule) else made.latex()
    known = frameworks.known_as(name).items()
    names = ", ".join(f"`{framework}:{entry}`" for framework, entries in known for entry in entries)
    return "\n".join(
        [
            f"## {name}",
            "",
            f"{says[:1].upper()}{says[1:]}",
            "",
            f"$${formula}$$",
            "",
            f"In other frameworks: {names or 'none of those that closedform knows'}.",
            "",
            f"![{example.call}](gallery/{name}.svg)",
            "",
            f"`{example.call}`",
            "",
        ]
    )


def grid() -> str:
    """Returns the families, each with small pictures of its schedules that lead to their cards.

    A family is a module of the library; the pictures are the plots of the cards.
    """
    families: dict[str, list[str]] = {}
    for name in EXAMPLES:
        module = getattr(schedules, name).__module__.rpartition(".")[2]
        title = _TITLES.get(module, module.replace("_", " ").capitalize())
        families.setdefault(title, []).append(
            f'[![{name}](gallery/{name}.svg){{ width="150" }}](#{name} "{name}")'
        )
    return "\n\n".join(
        f"**{title}**\n\n" + "\n".join(pictures) for title, pictures in families.items()
    )


def page() -> str:
    """Returns the whole page."""
    missing = set(schedules.__all__) ^ set(EXAMPLES)
    if missing:
        raise SystemExit(
            f"closedform.schedules.examples: give each schedule one example: {sorted(missing)}"
        )
    return "\n".join([_INTRODUCTION, grid(), "", *(card(name) for name in EXAMPLES)])


def draw(name: str, folder: Path) -> Path:
    """Returns the file of a schedule's plot, newly drawn."""
    example = EXAMPLES[name]
    made, steps = example.make(), example.steps
    schedule = driven(made, steps) if isinstance(made, UpdateRule) else made
    path = folder / f"{name}.svg"
    with rc_context({"svg.fonttype": "none"}):  # letters as text: a third of the size
        plot_schedule(schedule, path, steps=steps, title=name)
    return path


def main(names: Sequence[str]) -> None:
    """Writes the page and these plots, or all of them, and removes plots without a schedule."""
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
