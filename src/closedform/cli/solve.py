"""``closedform solve``: the hyperparameter for which a value or an area is a number."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from closedform.cli.arguments import (
    SourceOptions,
    add_json,
    add_name,
    add_source_options,
    add_until,
    parse_literal,
)
from closedform.cli.parser import Parser, UsageError

if TYPE_CHECKING:
    from closedform.analysis.inverse import Solution

_HELP = """\
Find the hyperparameter of NAME for which its area, or its value at an update, is a number.

The area is the sum of the values of all updates. Options of NAME are its arguments, also that
which is asked for: its value is where the search begins.

examples:
  closedform solve cosine --start 3e-4 --end 0 --steps 1000 --for steps --area 0.2
  closedform solve linear --start 1 --end 0 --steps 100 --for start --value 0.5 --at 20
"""


def parser(prog: str) -> Parser:
    """Returns the parser of the command."""
    command = Parser(prog, _HELP, has_arguments=True)
    add_name(command)
    command.add_argument(
        "--for",
        dest="unknown",
        required=True,
        metavar="HYPERPARAMETER",
        help="the hyperparameter to find",
    )
    command.add_argument("--area", metavar="NUMBER", help="the sum of the values of all updates")
    add_until(command, "the number of updates of the area, if NAME has no length")
    command.add_argument("--value", metavar="NUMBER", help="the value at update --at")
    command.add_argument("--at", type=int, help="the update of --value")
    command.add_argument(
        "--range",
        dest="bounds",
        metavar="LOW,HIGH",
        help="the values that are searched (a thousandth to a thousand times that of NAME)",
    )
    add_json(command)
    add_source_options(command)
    return command


def run(
    *,
    name: str,
    words: list[str],
    unknown: str,
    area: str | None,
    until: int | None,
    value: str | None,
    at: int | None,
    bounds: str | None,
    as_json: bool,
    options: SourceOptions,
) -> None:
    """Prints the hyperparameter."""
    from closedform.analysis.inverse import solve
    from closedform.cli.sources import load_source, schedule_of
    from closedform.language import exact_number
    from closedform.language.quantities import Equation

    if (area is None) == (value is None):
        raise UsageError("give either --area or --value with --at")
    if (value is None) != (at is None):
        raise UsageError("--value and --at are given together")
    if value is not None and until is not None:
        raise UsageError("--until is for --area")
    low, high = (None, None) if bounds is None else _bounds(bounds)
    source = load_source(name, words, options)
    schedule = schedule_of(source, name, options.key)
    if until is None and schedule.length is None:
        until = getattr(source, "horizon", None)
    quantity = schedule.area(until) if at is None else schedule.at(at)
    target = _number(str(area if value is None else value))
    equation = Equation(quantity, exact_number(target, "the number"))
    solution = solve(equation, unknown, low=low, high=high)
    print(json.dumps(_plain(solution), indent=2) if as_json else _text(solution))


def _number(text: str) -> int | float:
    number = parse_literal(text)
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise UsageError(f"expected a number, got {text!r}")
    return number


def _bounds(text: str) -> tuple[float, float]:
    low, comma, high = text.partition(",")
    if not comma:
        raise UsageError(f"--range must be two numbers such as 10,1000, got {text!r}")
    return _number(low), _number(high)


def _text(solution: Solution) -> str:
    text = str(solution.value) if solution.is_exact else repr(_float(solution.value))
    if solution.is_exact:
        return f"{solution.name} = {text}, exactly"
    if solution.low.is_Integer and solution.high.is_Integer:
        return (
            f"{solution.name} = {text}, the nearest: {solution.low} gives {solution.at_low!r}, "
            f"{solution.high} gives {solution.at_high!r}"
        )
    return f"{solution.name} = {text}, from {_float(solution.low)!r} to {_float(solution.high)!r}"


def _float(number: Any) -> float | int:
    from closedform.language.exact import to_float

    return int(number) if number.is_Integer else to_float(number)


def _plain(solution: Solution) -> dict[str, Any]:
    """The solution as JSON; numbers are integers or the nearest floats."""
    return {
        "name": solution.name,
        "value": _float(solution.value),
        "is_exact": solution.is_exact,
        "low": _float(solution.low),
        "high": _float(solution.high),
        "at_low": solution.at_low,
        "at_high": solution.at_high,
    }
