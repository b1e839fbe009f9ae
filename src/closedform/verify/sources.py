"""What a graph has to be: the terms of a schedule, and of each output of one step of a rule.

The graph of a step is read elementwise (``lift``), so the terms of a parameter are in symbols that
stand for one element of its tensors, under the names of the inputs of the graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import sympy as sp

from closedform.errors import VerificationError
from closedform.ir import Graph, Node, Shape
from closedform.ir.program import GRAD as GRAD_NAME
from closedform.ir.program import INPUT, NEXT, STATE
from closedform.ir.program import PARAM as PARAM_NAME
from closedform.language import GRAD, PARAM, Schedule, UpdateRule, state, t
from closedform.language.model import tensor_input
from closedform.language.shapes import EPSILON
from closedform.language.symbols import local
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


def rule_terms(rule: UpdateRule, graph: Graph) -> Iterator[tuple[str, str, Term]]:
    """Yields the name, the parameter and the wanted term of each output of the graph of a step.

    Raises:
        VerificationError: The rule has states of the whole model, sums over all parameters, or an
            output that is none of its own.
    """
    if rule.shared or rule.stored is not None or rule.advances != sp.true:
        raise VerificationError(
            "states of the whole model, clocks that may stand and parameters of another dtype are "
            "not validated",
            where=f"rule {rule.name!r}",
        )
    inputs = {str(node.attribute("name")): node for node in graph.inputs}
    known: dict[str, dict[str, Term]] = {}
    for output in graph.outputs:
        name = output.name.removeprefix(NEXT)
        if name == "step":
            yield output.name, "", terms.add(terms.term(t), terms.ONE)
            continue
        param, label = _split(name, inputs)
        if param not in known:
            known[param] = _wanted(rule, param, inputs[f"{PARAM_NAME}.{param}"])
        if label not in known[param]:
            raise VerificationError(
                f"the output {output.name!r} is none of the rule's",
                where=f"rule {rule.name!r}",
            )
        yield output.name, param, known[param][label]


def _split(name: str, inputs: Mapping[str, Node]) -> tuple[str, str]:
    """The parameter and the label in ``param.w`` or ``state.w.exp_avg``; names may hold dots."""
    kind, _, rest = name.partition(".")
    if kind == PARAM_NAME:
        return rest, PARAM_NAME
    params = [key.removeprefix(f"{PARAM_NAME}.") for key in inputs if key.startswith(PARAM_NAME)]
    found = [param for param in params if rest.startswith(f"{param}.")]
    if f"{kind}." != STATE or not found:
        raise VerificationError(f"the output {NEXT + name!r} belongs to no parameter")
    param = max(found, key=len)
    return param, rest.removeprefix(f"{param}.")


def _wanted(rule: UpdateRule, param: str, node: Node) -> dict[str, Term]:
    """The next value of a parameter and of its states, by label."""
    shape: Shape = node.type.shape
    own = rule.for_shape(shape, param)
    numbers = {EPSILON: sp.Rational(float(np.finfo(node.type.dtype.numpy).eps))}
    values = {_symbol(symbol): terms.term(number) for symbol, number in numbers.items()}
    for expr in own.all_expressions():
        for symbol in expr.free_symbols:
            found = _value(own, symbol, param)
            if found is not None:
                values[_symbol(symbol)] = found
    for name, expr in own.definitions.items():
        values[_symbol(local(name))] = terms.substitute(terms.term(expr), values)
    return {
        label: terms.substitute(terms.term(expr), values)
        for label, expr in own.expressions().items()
    }


def _symbol(symbol: sp.Symbol) -> Term:
    return terms.term(symbol)


def _value(rule: UpdateRule, symbol: sp.Symbol, param: str) -> Term | None:
    """What a symbol of a rule stands for in the graph."""
    if symbol == PARAM:
        return terms.symbol(f"{PARAM_NAME}.{param}")
    if symbol == GRAD:
        return terms.symbol(f"{GRAD_NAME}.{param}")
    for name in rule.states:
        if symbol == state(name):
            return terms.symbol(f"{STATE}{param}.{name}")
    for name in rule.inputs:
        if symbol == tensor_input(name):
            return terms.symbol(f"{INPUT}{param}.{name}")
    value = rule.hyperparameters.get(symbol.name)
    if isinstance(value, Schedule):
        return source_term(value)
    return None if value is None else terms.term(value)
