"""``closedform plot``: a plot of a schedule, in a file or in the terminal."""

from __future__ import annotations

import sys
from pathlib import Path

from closedform.cli.arguments import NAME_HELP, add_source_options, parse_facts
from closedform.cli.parser import Parser, positive

_HELP = """\
Plot the schedule NAME in the terminal, or write it to a file with -o.

The arguments of NAME are options: closedform plot cosine --start 3e-4 --end 0 --steps 100.
"""


def parser(prog: str) -> Parser:
    """Returns the parser of the command."""
    found = Parser(prog, _HELP, has_arguments=True)
    found.add_argument("name", help=NAME_HELP)
    found.add_argument("-o", "--output", type=Path, help="a .png, .svg or .pdf file")
    found.add_argument("--force", action="store_true", help="overwrite the file")
    found.add_argument("--until", type=positive, help="the last step of the plot")
    add_source_options(found)
    return found


def run(
    *,
    name: str,
    words: list[str],
    output: Path | None,
    force: bool,
    until: int | None,
    key: str,
    base_value: float | None,
    as_implemented: bool,
    framework: str | None,
    facts: list[str] | None,
) -> None:
    """Draws the plot."""
    from closedform.cli.output import check_free, heading, is_unicode
    from closedform.cli.sources import load_source, schedule_of
    from closedform.plotting import even_steps, last_step, plot_schedule, terminal_plot

    if output is not None:
        check_free(output, force=force)
    source = load_source(
        name,
        words,
        key=key,
        base=base_value,
        as_implemented=as_implemented,
        framework=framework,
        facts=parse_facts(facts),
    )
    schedule = schedule_of(source, name, key)
    title = schedule.name if source is schedule else f"{key} of {Path(name).name}"
    end = last_step(schedule) if until is None else until
    if output is not None:
        plot_schedule(schedule, output, steps=end, title=title)
        print(output)
        return
    is_ascii = not is_unicode(sys.stdout.encoding)
    text = terminal_plot(schedule(even_steps(end)), last=end, is_ascii=is_ascii)
    heading(title)
    print(text)
