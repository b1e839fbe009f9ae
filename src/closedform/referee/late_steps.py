"""Late steps of a run that stays at rest until then: gradients and parameters of 0.

A fault of a schedule shows after its warmup. Most rules stay where they begin as long as gradients
and parameters are 0, which is proved for all steps, of the rule and of the file: then a run reaches
its first states at any step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from closedform.ir import naming
from closedform.language import PARAM
from closedform.referee.ports import Port, PortKind
from closedform.referee.runs import Runs
from closedform.referee.simulation import CLOCK, Simulation
from closedform.verify.prover import prove
from closedform.verify.terms import build
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.sympy_io import term
from closedform.verify.terms.tree import RELATIONS, Op, Term, symbols, walk
from closedform.verify.translation.constants import rounding_interval

MOST_STARTS = 16
"""Late steps that are tried."""

_USUAL = (5, 100, 10_000)
_FIRST, _LAST = 4, 2**24 - 16


def late_starts(runs: Runs) -> list[int]:
    """Returns steps near the lengths of schedules: constants of the rule and of the file.

    A length is a whole number or the denominator of a rate; a run begins two steps before it.
    """
    terms = [*runs.outputs.values(), *runs.floats.exact_outputs.values()]
    nodes = list(walk(*_with_clock(runs, terms)))
    # The steps at which branches change come first.
    ends = [arg for node in nodes if node.op in RELATIONS for arg in node.args]
    constants = [node.value for node in (*ends, *nodes) if node.op is Op.RATIONAL]
    lengths = [abs(int(part)) for number in constants for part in (number.p, number.q)]
    steps = [start for length in lengths for start in (length - 2, length // 2)]
    in_range = [step for step in (*steps, *_USUAL) if _FIRST <= step <= _LAST]
    return list(dict.fromkeys(in_range))[:MOST_STARTS]


def _with_clock(runs: Runs, terms: Iterable[Term]) -> list[Term]:
    """The terms that depend on a count of steps."""
    counts = {CLOCK.value.name}
    for name, port in runs.step.ports.inputs.items():
        if port.kind is PortKind.STATE and not runs.step.types[port].shape:
            counts.add(f"file.{name}")
    return [entry for entry in terms if counts & symbols(entry).keys()]


def stays_at_rest(runs: Runs, simulation: Simulation) -> bool:
    """Returns whether no step changes the first states while gradients and parameters are 0."""
    rest = _rule_at_rest(runs)
    if not all(_begins_as_meant(runs, simulation, port, rest) for port in runs.step.ports.initial):
        return False
    for name in runs.state_names:
        if not _is_proved(runs, runs.outputs[naming.following(name)], rest, rest[name]):
            return False
    values = _file_at_rest(simulation, rest)
    for output, port in runs.step.outputs.items():
        following = build.ZERO
        if port.kind is PortKind.STATE:
            following = _value_at_rest(simulation, port, rest, build.add(CLOCK, build.ONE))
        if not _is_proved(runs, runs.floats.exact_outputs[output], values, following):
            return False
    return True


def _begins_as_meant(
    runs: Runs, simulation: Simulation, port: Port, rest: Mapping[str, Term]
) -> bool:
    """Whether the stated first value of a state is the one of its meaning at rest."""
    if port not in simulation.renaming:
        return True
    value = _value_at_rest(simulation, port, rest, build.ZERO)
    dtype = runs.step.types[port].dtype
    numbers = {float(entry) for entry in np.ravel(runs.step.ports.initial[port]).tolist()}
    if not build.is_rational(value) or runs.begins_as_param(port):
        return False
    # A float stands for any number that rounds to it, but for a whole one.
    intervals = [
        rounding_interval(number, dtype)
        if dtype.is_float and not number.is_integer()
        else (build.exact(number), build.exact(number))
        for number in numbers
    ]
    return all(low <= value.value <= high for low, high in intervals)


def _file_at_rest(simulation: Simulation, rest: Mapping[str, Term]) -> dict[str, Term]:
    """The values of the inputs of the file at rest by the name of its symbol."""
    return {
        f"file.{name}": _value_at_rest(simulation, port, rest, CLOCK)
        for name, port in simulation.step.ports.inputs.items()
        if port.kind in (PortKind.PARAM, PortKind.GRAD) or port in simulation.renaming
    }


def _value_at_rest(
    simulation: Simulation, port: Port, rest: Mapping[str, Term], count: Term
) -> Term:
    if port.kind is not PortKind.STATE:
        return build.ZERO
    meaning = simulation.renaming[port]
    return rest[meaning.name] if meaning.name else meaning.term(count)


def _rule_at_rest(runs: Runs) -> dict[str, Term]:
    """The values of the inputs of the rule at rest by name."""
    rest = {
        name: build.ZERO
        for param in runs.step.shapes
        for name in (naming.param(param), naming.grad(param))
    }
    for entry in runs.states:
        rest[entry.name] = build.ZERO if entry.initial == PARAM else term(entry.initial)
    return rest


def _is_proved(runs: Runs, root: Term, values: Mapping[str, Term], expected: Term) -> bool:
    """Whether a term is another one at every step, for values of its symbols by name."""
    places = {node: values[name] for name, node in symbols(root).items() if name in values}
    goal = build.equal(build.substitute(root, places), expected)
    if goal == build.TRUE:
        return True
    assumption = build.less_equal(build.ZERO, CLOCK)
    effort = runs.effort.portion(LIMITS.question_work)
    return prove(goal, assume=(assumption,), effort=effort).proved
