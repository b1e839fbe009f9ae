"""The schedule that an ONNX file computes, whichever tool wrote it."""

from __future__ import annotations

from dataclasses import replace

import sympy as sp
from onnx import ModelProto

from closedform.effort import Effort, OutOfEffort
from closedform.errors import VerificationError
from closedform.importers.onnx_checks import CheckedModel
from closedform.importers.onnx_graph import OnnxSource, checked_model, defaults_of, read_model
from closedform.ir import Graph, Role
from closedform.ir.types import MAX_STEP
from closedform.language import Schedule, t
from closedform.verify.prover import prove
from closedform.verify.terms import build
from closedform.verify.terms.definedness import Obligation, is_partial, obligations
from closedform.verify.terms.from_graph import as_stored, terms_of_graph
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.partition import partition
from closedform.verify.terms.sympy_io import term as term_of
from closedform.verify.terms.sympy_io import to_sympy
from closedform.verify.terms.tree import Op, Term, fold, nesting, symbols
from closedform.verify.translation.constants import Constants, with_split_constants

CLOCK = term_of(t)
MOST_NESTED = 500
"""Operations within operations.

SymPy recurses over them in quadratic time, up to the interpreter's limit on recursion, which other
packages raise: 5,000 sines took 0.5 s at 1,000 frames, 83 s at 10,000.
"""


def from_onnx(source: OnnxSource, *, stored: bool = False) -> Schedule:
    """Returns the schedule that an ONNX model computes, over the exact numbers.

    Arguments, errors and an example are as in :func:`closedform.api.onnx.from_onnx`.
    """
    model = checked_model(source)
    is_file = not isinstance(source, ModelProto | CheckedModel)
    where = f"file {str(source)!r}" if is_file else f"graph {model.graph.name!r}"
    graph = read_model(model)
    _check_schedule(graph, where)
    constant = as_stored if stored else with_split_constants(Constants(), graph)
    try:
        (term,) = terms_of_graph(graph, constant=constant).values()
        return Schedule(_expression(term, where), name=graph.name).bind(defaults_of(model))
    except RecursionError:
        raise VerificationError("its operations are nested too deeply", where=where) from None


def _expression(root: Term, where: str) -> sp.Basic:
    """The expression of a term, without a value wherever the term has none.

    SymPy drops what multiplies a 0 and what cancels: ``0 / t`` is 0, and ``t / t`` is 1. A
    condition that is dropped so, and not proved to hold at every step, becomes one of the whole.
    """
    total = without_undefined(root)
    if total == build.UNDEFINED:
        raise VerificationError("it has no value at any step", where=where)
    if nesting(total) > MOST_NESTED:
        raise RecursionError
    expr = _sympy_expression(total)
    if not is_partial(root):
        return expr
    remaining = {_claim(obligation) for obligation in obligations(term_of(expr))}
    claims = dict.fromkeys(_claim(obligation) for obligation in obligations(root))
    domain_claims = [without_undefined(claim) for claim in claims if claim not in remaining]
    is_known = build.UNDEFINED not in domain_claims
    condition = build.both(
        *(claim for claim in domain_claims if is_known and not prove(claim).proved)
    )
    if is_known and condition == build.TRUE:
        return expr
    if not is_known or condition == build.FALSE or is_partial(condition):
        raise VerificationError(
            "it has no value at some steps, and these are not known", where=where
        )
    return sp.Piecewise((expr, to_sympy(condition)), evaluate=False)


def _claim(obligation: Obligation) -> Term:
    """The claim of an obligation; that a quotient is not 0, where it has a value, is one of parts.

    SymPy writes a product of quotients as one, and a root of a power as a power.
    """
    goal = obligation.goal
    if goal.op is Op.NOT and goal.args[0].op is Op.EQUAL and goal.args[0].args[1] == build.ZERO:
        zeros = (build.equal(factor, build.ZERO) for factor in _factors(goal.args[0].args[0]))
        goal = build.both(*(build.negate(zero) for zero in zeros))
    return replace(obligation, goal=goal).claim


def _factors(node: Term) -> list[Term]:
    """The numbers that are not 0 where a number is not 0."""
    match node.op:
        case Op.MULTIPLY:
            return [part for factor in node.args for part in _factors(factor)]
        case Op.DIVIDE:
            return _factors(node.args[0])
        case Op.POWER if build.is_rational(node.args[1]) and node.args[1].value > 0:
            return _factors(node.args[0])
        case Op.EXP:
            return []
        case Op.RATIONAL if node.value != 0:
            return []
        case _:
            return [node]


def without_undefined(root: Term) -> Term:
    """Returns a term with the other branch in place of each choice that may have no value.

    SymPy refuses a Piecewise without a last branch within most functions.
    """

    def make(node: Term, args: list[Term]) -> Term:
        if node.op is Op.ITE and build.UNDEFINED in args[1:]:
            return args[2] if args[1] == build.UNDEFINED else args[1]
        if build.UNDEFINED in args:
            return build.UNDEFINED
        return build.rebuild(node, tuple(args)) if args else node

    return fold(root, make)


def _sympy_expression(root: Term) -> sp.Basic:
    """The expression of a term; segment by segment where it is too large with shared parts in it.

    A chain of choices, each on the one before, has few segments and would be a tree without end.
    """
    try:
        return to_sympy(root)
    except VerificationError:
        if set(symbols(root)) != {"t"}:
            raise
        effort = Effort.of(LIMITS.unfolding_work)
        try:
            segments = partition(root, CLOCK, 0, MAX_STEP + 1, check=effort.check)
        except OutOfEffort:
            segments = []
        if not 0 < len(segments) <= LIMITS.unfolded_segments:
            raise
        *earlier, last = [(to_sympy(segment.term(CLOCK)), segment.end) for segment in segments]
        branches = [(value, t < end) for value, end in earlier]
        return sp.Piecewise(*branches, (last[0], True))


def _check_schedule(graph: Graph, where: str) -> None:
    hint = "a schedule maps an integer step, and scalar hyperparameters, to one value"
    if len(graph.outputs) != 1:
        names = ", ".join(output.name for output in graph.outputs)
        raise VerificationError(f"expected one output, got {names}", where=where, hint=hint)
    roles = [node.attribute("role") for node in graph.inputs]
    if Role.STEP not in roles:
        names = ", ".join(str(node.attribute("name")) for node in graph.inputs) or "none"
        raise VerificationError(
            f"no input is the clock; the inputs are {names}", where=where, hint=hint
        )
    for node in graph.inputs:
        role, name = node.attribute("role"), node.attribute("name")
        if role not in (Role.STEP, Role.HYPER) or (role == Role.HYPER and node.type.shape):
            raise VerificationError(
                f"the input {name!r} of type {node.type} is not a hyperparameter",
                where=where,
                hint=hint,
            )
