"""The term that the graph of a schedule must compute."""

from __future__ import annotations

from closedform.language import Schedule
from closedform.verify import terms
from closedform.verify.terms import Term


def source_term(schedule: Schedule, inputs: frozenset[str] | set[str] = frozenset()) -> Term:
    """Returns the term of a schedule with its numbers put in, but for those that are inputs.

    The numbers are put in where SymPy cannot rewrite what comes out.
    """
    root = terms.term(schedule.expr)
    numbers = {
        node: terms.term(schedule.hyperparameters[name])
        for name, node in terms.symbols(root).items()
        if name in schedule.hyperparameters and name not in inputs
    }
    return terms.substitute(root, numbers)
