"""``closedform solve``: the hyperparameter for which a value or an area is a number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from closedform.cli.arguments import (
    SourceOptions,
    json_flag,
    name_argument,
    parse_literal,
    source_bundle,
    until_option,
)
from closedform.cli.output import print_result
from closedform.cli.parser import UsageError, command, option

if TYPE_CHECKING:
    pass

HELP = """\
Find the hyperparameter of NAME for which its area, or its value at an update, is a number.

The area is the sum of the values of all updates. Options of NAME are its arguments, also that
which is asked for: its value is where the search begins.

examples:
  closedform solve cosine --start 3e-4 --end 0 --steps 1000 --for steps --area 0.2
  closedform solve linear --start 1 --end 0 --steps 100 --for start --value 0.5 --at 20
"""


@command
class Options:
    """The options of ``closedform solve``."""

    name: str = name_argument()
    words: list[str]
    unknown: str = option(
        "the hyperparameter to find", "--for", required=True, metavar="HYPERPARAMETER"
    )
    area: str | None = option("the sum of the values of all updates", metavar="NUMBER")
    until: int | None = until_option("the number of updates of the area, if NAME has no length")
    value: str | None = option("the value at update --at", metavar="NUMBER")
    at: int | None = option("the update of --value", type=int)
    bounds: str | None = option(
        "the values that are searched (a thousandth to a thousand times that of NAME)",
        "--range",
        metavar="LOW,HIGH",
    )
    as_json: bool = json_flag()
    source_options: SourceOptions = source_bundle()


def run(options: Options) -> None:
    """Prints the hyperparameter."""
    from closedform.analysis.inverse import solve
    from closedform.cli.sources import load_source, schedule_of
    from closedform.language import exact_number
    from closedform.language.quantities import Equation

    if (options.area is None) == (options.value is None):
        raise UsageError("give either --area or --value with --at")
    if (options.value is None) != (options.at is None):
        raise UsageError("--value and --at are given together")
    if options.value is not None and options.until is not None:
        raise UsageError("--until is for --area")
    low, high = (None, None) if options.bounds is None else _bounds(options.bounds)
    source = load_source(options.name, options.words, options.source_options)
    schedule = schedule_of(source, options.name, options.source_options.key)
    until = options.until
    if until is None and schedule.length is None:
        until = getattr(source, "horizon", None)
    quantity = schedule.area(until) if options.at is None else schedule.at(options.at)
    target = _number(str(options.area if options.value is None else options.value))
    equation = Equation(quantity, exact_number(target, "the number"))
    solution = solve(equation, options.unknown, low=low, high=high)
    print_result(solution, as_json=options.as_json)


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
