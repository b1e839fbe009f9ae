"""``closedform show``: formula, boundary values and graph of a schedule or rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from closedform.cli.arguments import AsImplemented, BaseValue, Key, Name

if TYPE_CHECKING:
    import sympy as sp

    from closedform.language import Schedule, UpdateRule

_MAX_ROWS = 60


def show(
    context: typer.Context,
    name: Name,
    latex: Annotated[bool, typer.Option("--latex", help="Print formulas in LaTeX.")] = False,
    ir: Annotated[bool, typer.Option("--ir", help="Also print the graph.")] = False,
    until: Annotated[int | None, typer.Option(help="The last step of the table.", min=1)] = None,
    params: Annotated[
        list[str] | None,
        typer.Option(help="For the graph of an optimizer: w=4x3; repeat for each parameter."),
    ] = None,
    key: Key = "lr",
    base_value: BaseValue = None,
    as_implemented: AsImplemented = False,
) -> None:
    """Show the formula, the values at the boundaries and the graph of NAME.

    The arguments of NAME are options: closedform show cosine --start 3e-4 --end 0 --steps 100.
    """
    from closedform.cli.arguments import parse_shapes
    from closedform.cli.output import heading
    from closedform.cli.sources import load_source, schedules_of
    from closedform.language import Schedule, UpdateRule

    shapes = parse_shapes(params or ["w=4x3"])
    source = load_source(
        name, context.args, key=key, base=base_value, as_implemented=as_implemented
    )
    if isinstance(source, Schedule):
        heading(source.name)
        _show_schedule(source, latex=latex, ir=ir, until=until)
        return
    for scheduled, schedule in schedules_of(source).items():
        heading(f"{scheduled}: {schedule.name}")
        _show_schedule(
            schedule, latex=latex, ir=ir, until=until or getattr(source, "max_steps", None)
        )
    rule = source if isinstance(source, UpdateRule) else source.optimizer()
    heading(f"optimizer: {rule.name}")
    _show_rule(rule, latex=latex, shapes=shapes if ir else None)


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


def _show_values(schedule: Schedule, until: int | None) -> None:
    from closedform.cli.output import table
    from closedform.language.exact import to_float
    from closedform.plotting import boundaries, last_step

    end = last_step(schedule) if until is None else until
    marks = [mark for mark in boundaries(schedule) if mark <= end]
    steps = sorted({0, end, *(step for mark in marks for step in (mark - 1, mark, mark + 1))})
    remarks = {0: "start"} | dict.fromkeys(marks, "boundary")
    remarks[end] = "boundary, end" if end in marks else "end"
    # The float64 values nearest to the exact ones, for comparison with the formula.
    rows = [
        (f"{step:,}", repr(to_float(schedule.exact(step))), remarks.get(step, ""))
        for step in steps[:_MAX_ROWS]
    ]
    table(("step", "value", ""), rows, numbers=True)
    if len(steps) > _MAX_ROWS:
        print(f"… and {len(steps) - _MAX_ROWS} more rows; use --until to shorten the table")
    print()


def _show_rule(rule: UpdateRule, *, latex: bool, shapes: dict[str, tuple[int, ...]] | None) -> None:
    import sympy as sp

    from closedform.language.printing import latex as in_latex

    def shown(expr: sp.Basic) -> str:
        return in_latex(expr) if latex else formula(expr)

    for name, expr in rule.definitions.items():
        print(f"local.{name} = {shown(expr)}")
    for name, expr in rule.expressions().items():
        print(f"{name} <- {shown(expr)}")
    for name, common in rule.shared.items():
        print(f"shared.{name} <- {shown(common.next)}")
    if rule.advances != sp.true:
        print(f"the clock advances if {shown(rule.advances)}")
    if rule.evaluation is not None:
        print(f"evaluated at {shown(rule.evaluation)}")
    for name in rule.inputs:
        print(f"  input.{name} is an input of every step, shape of param")
    for name, state in rule.states.items():
        print(f"  {name} starts at {state.initial}, shape of {state.shape}")
    for name, common in rule.shared.items():
        print(f"  shared.{name} starts at {common.initial}, one per model")
    for name, value in rule.hyperparameters.items():
        print(f"  {name} = {_shown(value)}")
    print()
    if shapes is not None:
        import closedform as cf
        from closedform.ir.text import print_graph

        print(print_graph(cf.compile(rule, params=shapes)))


def _shown(value: object) -> str:
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
