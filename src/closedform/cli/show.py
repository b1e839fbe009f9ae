"""``closedform show``: formula, boundary values and graph of a schedule or rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from closedform.cli.arguments import (
    SourceOptions,
    json_flag,
    name_argument,
    parse_shapes,
    source_bundle,
    until_option,
)
from closedform.cli.output import heading, print_folded, print_json, table
from closedform.cli.parser import command, flag, option

if TYPE_CHECKING:
    import sympy as sp

    from closedform.language import Schedule, UpdateRule
    from closedform.recipes import Recipe
    from closedform.recipes.summary import Summary

_MAX_ROWS = 60
_FEW_ROWS = 6
HELP = """\
Show the formula, the values at the boundaries and the graph of NAME.

The arguments of NAME are options.

example:
  closedform show cosine --start 3e-4 --end 0 --steps 100
"""


@command
class Options:
    """The options of ``closedform show``."""

    name: str = name_argument()
    words: list[str]
    latex: bool = flag("print formulas in LaTeX")
    ir: bool = flag("also print the graph")
    is_whole: bool = flag(
        "for a config: all param groups, and the formulas of the optimizer", "--all"
    )
    until: int | None = until_option("the last step of the table")
    params: list[str] | None = option(
        "for the graph of an optimizer: w=4x3; repeat for each parameter",
        action="append",
        metavar="NAME=SHAPE",
    )
    as_json: bool = json_flag()
    source_options: SourceOptions = source_bundle()


def run(options: Options) -> None:
    """Prints the summary of a config, the schedules and the rule."""
    from closedform.cli.sources import load_source, rule_of, schedule_of, schedules_of
    from closedform.language import Schedule

    shapes = parse_shapes(options.params or ["w=4x3"])
    source = load_source(options.name, options.words, options.source_options)
    schedules = schedules_of(source)
    key = options.source_options.key
    if key != "lr" and not isinstance(source, Schedule):
        schedules = {key: schedule_of(source, options.name, key)}
    until = options.until or getattr(source, "horizon", None)
    if options.as_json:
        data: dict[str, Any] = {
            "schedules": {k: _schedule_data(schedule, until) for k, schedule in schedules.items()}
        }
        rule = rule_of(source)
        if rule is not None:
            data["optimizer"] = _rule_data(rule)
        summary = _summary_of(source)
        if summary is not None:
            data["recipe"] = summary.data()
        print_json(data)
        return
    summary = _summary_of(source)
    if summary is not None:
        for line in summary.lines(None) if options.is_whole else summary.lines():
            print(line)
        print()
    for key, schedule in schedules.items():
        heading(schedule.name if isinstance(source, Schedule) else f"{key}: {schedule.name}")
        _show_schedule(schedule, latex=options.latex, ir=options.ir, until=until)
    if summary is None or options.is_whole or options.ir:
        rule = rule_of(source)
        if rule is not None:
            heading(f"optimizer: {rule.name}")
            _show_rule(rule, latex=options.latex, shapes=shapes if options.ir else None)


def _summary_of(source: Schedule | UpdateRule | Recipe) -> Summary | None:
    """The summary of a config; None of another source."""
    from closedform.language import Schedule

    if isinstance(source, Schedule):
        return None
    from closedform.recipes import Recipe
    from closedform.recipes.summary import summarize

    return summarize(source) if isinstance(source, Recipe) else None


def _schedule_data(schedule: Schedule, until: int | None) -> dict[str, Any]:
    from closedform.language.printing import text

    values = [] if schedule.open else _values(schedule, until)
    return {
        "name": schedule.name,
        "formula": text(schedule.expr),
        "hyperparameters": {k: str(v) for k, v in schedule.hyperparameters.items()},
        "open": [str(symbol) for symbol in schedule.open],
        "values": [{"step": step, "value": value, "remark": note} for step, value, note in values],
    }


def _rule_data(rule: UpdateRule) -> dict[str, Any]:
    from closedform.language.printing import text

    return {
        "name": rule.name,
        "formulas": {name: text(expr) for name, expr in rule.expressions().items()},
        "local": {name: text(expr) for name, expr in rule.definitions.items()},
        "states": {name: str(state.initial) for name, state in rule.states.items()},
        "hyperparameters": {k: _value_text(value) for k, value in rule.hyperparameters.items()},
    }


def _show_schedule(schedule: Schedule, *, latex: bool, ir: bool, until: int | None) -> None:
    print(schedule.latex() if latex else formula(schedule.expr))
    for name, value in schedule.hyperparameters.items():
        print(f"  {name} = {value}")
    for symbol in schedule.open:
        print(f"  {symbol} has no value")
    print()
    if not schedule.open:
        _show_values(schedule, until)
    if ir:
        import closedform as cf
        from closedform.ir.text import print_graph

        print(print_graph(cf.compile(schedule)))


def _values(schedule: Schedule, until: int | None) -> list[tuple[int, float, str]]:
    """The steps at and next to the boundaries, their values and remarks.

    The values are the float64 values nearest to the exact ones, for comparison with the formula.
    """
    from closedform.language.boundaries import boundaries
    from closedform.language.exact import to_float
    from closedform.plotting.steps import last_step

    end = last_step(schedule) if until is None else until
    marks = [mark for mark in boundaries(schedule.bound) if mark <= end]
    # Both sides of each boundary: a jump shows between them.
    near = {step for mark in marks for step in (mark - 1, mark, mark + 1)}
    # Where little changes, the quarters show the curve.
    quarters = (
        {end * part // 4 for part in range(1, 4)} if len(near) < _FEW_ROWS <= end // 4 else set()
    )
    steps = sorted({0, end, *near, *quarters})
    remarks = {0: "start"} | dict.fromkeys(marks, "boundary")
    remarks[end] = "boundary, end" if end in marks else "end"
    # Exact and rounded once, so that the digits can be compared with a formula.
    return [(step, to_float(schedule.exact(step)), remarks.get(step, "")) for step in steps]


def _show_values(schedule: Schedule, until: int | None) -> None:
    values = _values(schedule, until)
    rows = [(f"{step:,}", repr(value), remark) for step, value, remark in values[:_MAX_ROWS]]
    table(("step", "value", ""), rows, numbers=True)
    if len(values) > _MAX_ROWS:
        print(f"… and {len(values) - _MAX_ROWS} more rows; use --until to shorten the table")
    print()


def _show_rule(rule: UpdateRule, *, latex: bool, shapes: dict[str, tuple[int, ...]] | None) -> None:
    import sympy as sp

    from closedform.language.printing import latex as in_latex

    def formula_text(expr: sp.Basic) -> str:
        return in_latex(expr) if latex else formula(expr)

    for name, expr in rule.definitions.items():
        print_folded(f"local.{name} = {formula_text(expr)}")
    for name, expr in rule.expressions().items():
        print_folded(f"{name} <- {formula_text(expr)}")
    for name, common in rule.shared.items():
        print_folded(f"shared.{name} <- {formula_text(common.next)}")
    if rule.advances != sp.true:
        print_folded(f"the clock advances if {formula_text(rule.advances)}")
    if rule.evaluation is not None:
        print_folded(f"evaluated at {formula_text(rule.evaluation)}")
    for name in rule.inputs:
        print_folded(f"  input.{name} is an input of every step, shape of param")
    for name, state in rule.states.items():
        print_folded(f"  {name} starts at {state.initial}, shape of {state.shape}")
    for name, common in rule.shared.items():
        print_folded(f"  shared.{name} starts at {common.initial}, one per model")
    for name, value in rule.hyperparameters.items():
        print_folded(f"  {name} = {_value_text(value)}")
    print()
    if shapes is not None:
        import closedform as cf
        from closedform.ir.text import print_graph

        print(print_graph(cf.compile(rule, params=shapes)))


def _value_text(value: object) -> str:
    from closedform.language import Schedule

    if isinstance(value, Schedule):
        return f"schedule {value.name!r}"
    return "an input of the graph" if value is None else str(value)


def formula(expr: sp.Expr) -> str:
    """Returns an expression as text, a Piecewise with one branch per line."""
    import sympy as sp

    from closedform.language.printing import text

    if not isinstance(expr, sp.Piecewise):
        return text(expr)
    branches = [(text(value), text(condition)) for value, condition in expr.args]
    width = max(len(value) for value, _ in branches)
    return "\n".join(
        f"  {value:<{width}}   {'otherwise' if condition == 'True' else f'if {condition}'}"
        for value, condition in branches
    )
