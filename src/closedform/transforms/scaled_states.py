"""Equivalent states: a rule that stores multiples of its states, which takes fewer operators.

A running mean ``m' = β m + (1 - β) g`` multiplies the gradient by 1 - β in every step. Its multiple
``M = m / (1 - β)`` follows ``M' = β M + g``, and the factor joins the scalars of the step, which
are computed once for the whole model. Such a scaling is searched for each state:

1. A state s is a candidate if its next value is ``a s + c x``, a and c numbers, x a tensor: it is
   stored as s / c. A maximum of a state and a candidate takes part with the same factor.
2. In the other expressions, roots, maxima and denominators give up their positive factors, so that
   these meet in one scalar: ``k m / (r √v + ε)`` is ``(k / r) m / (√v + ε / r)``.
3. The graph of one tensor is compiled, and the scaling is kept if it has fewer operators.

Nothing here is trusted: ``closedform.verify.equivalent_states`` proves the result.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import sympy as sp

from closedform.compiler import compile_parts
from closedform.ir.graph import Graph
from closedform.ir.ops import Op
from closedform.language.model import tensor_input
from closedform.language.symbols import GRAD, PARAM, local, state, t
from closedform.language.update_rule import State, UpdateRule

Scales = Mapping[str, sp.Expr]


@dataclass(frozen=True, slots=True)
class ScaledStates:
    """A rule, and the rule of its stored states.

    Attributes:
        original: The rule.
        rule: The rule that steps the stored states; with the names of the original.
        scales: By state: what a stored state is multiplied by to give that of the original. States
            that are stored as they are are left out.
        operators: The number of operators on tensors in a step, of the original and of ``rule``.
    """

    original: UpdateRule
    rule: UpdateRule
    scales: Scales
    operators: tuple[int, int]


def scaled_states(rule: UpdateRule) -> ScaledStates:
    """Returns the scaling of the states that leaves the fewest operators.

    Args:
        rule: The rule. One that is not elementwise, is evaluated at a separate point, or has
            states of the whole model stays as it is, and so does a state whose factor is not a
            positive number.
    """
    before = operators(rule)
    best = ScaledStates(rule, rule, {}, (before, before))
    if not rule.is_elementwise or rule.evaluation is not None or rule.shared or rule.definitions:
        return best
    factors: dict[str, sp.Expr] = {}
    for candidate in _candidates(rule):
        trial = {**factors, **candidate}
        scaled_rule = _with_scales(rule, trial)
        after = operators(scaled_rule)
        if after < best.operators[1]:
            factors = trial
            scales = {name: _number(factor, rule) for name, factor in factors.items()}
            best = ScaledStates(rule, scaled_rule, scales, (before, after))
    return best


def added_tensor(rule: UpdateRule, name: str) -> sp.Expr | None:
    """Returns x where the next value of a state s is ``a s + c x``; None for another form."""
    linear = _linear(rule, name, rule.states[name])
    return None if linear is None else linear[2]


def operators(rule: UpdateRule) -> int:
    """Returns the number of operators on tensors in a step of one parameter, a vector."""
    if not rule.is_elementwise:
        return 0
    ((graphs,),) = compile_parts(rule.name, [(rule, [("n",)])])
    return sum(_tensor_operators(graph) for graph in graphs if graph is not None)


def _tensor_operators(graph: Graph) -> int:
    nodes = (node for node in graph.nodes if node.op not in (Op.INPUT, Op.CONST))
    return sum(1 for node in nodes if node.type.rank)


def _with_scales(rule: UpdateRule, scales: Scales) -> UpdateRule:
    """Returns the rule of states that are stored divided by these factors, which are above 0.

    Where an expression holds the next value of a state, a mark stands for that value until the
    factors are pulled out of the expression.
    """
    inside = {state(name): factor * state(name) for name, factor in scales.items()}
    # A next value that occurs in another expression stays a whole, and is computed once.
    marks = {name: sp.Dummy(name, real=True) for name in scales}
    places = {rule.states[name].next: mark for name, mark in marks.items()}

    def next_of(name: str) -> sp.Expr:
        """The next value of a stored state, other states that are stored being marks."""
        spec, factor = rule.states[name], scales[name]
        linear = _linear(rule, name, spec)
        if linear is not None and linear[1] == factor:
            return linear[0] * state(name) + _pull_out_scales(linear[2], rule, inside)
        marks_of_others = {expr: mark for expr, mark in places.items() if expr != spec.next}
        symbol_values = {
            **inside,
            **{marks[mark_name]: scales[mark_name] * marks[mark_name] for mark_name in marks},
        }
        return _pull_out_scales(spec.next.xreplace(marks_of_others), rule, symbol_values) / factor

    next_values = {name: next_of(name) for name in scales}
    wholes = {mark: next_values[name] for name, mark in marks.items()}

    def with_scales(expr: sp.Expr) -> sp.Expr:
        symbol_values = {**inside, **{marks[name]: scales[name] * marks[name] for name in marks}}
        # The marks twice: the next value of a state may hold the mark of another.
        return (
            _pull_out_scales(expr.xreplace(places), rule, symbol_values)
            .xreplace(wholes)
            .xreplace(wholes)
        )

    states = {}
    for name, spec in rule.states.items():
        if name in scales:
            initial = spec.initial / _number(scales[name], rule)
            states[name] = replace(spec, next=next_values[name].xreplace(wholes), initial=initial)
        else:
            states[name] = replace(spec, next=with_scales(spec.next))
    return replace(rule, param=with_scales(rule.param), states=states)


def _candidates(rule: UpdateRule) -> Iterator[dict[str, sp.Expr]]:
    """Scalings of one state, and of one together with a state that compares itself with it."""
    for name, spec in rule.states.items():
        factor = _factor(rule, name, spec)
        if factor is None:
            continue
        yield {name: factor}
        for second in rule.states:
            # AMSGrad's max(v_max, v) stays a maximum where both have one scale.
            if second != name and rule.states[second].next.has(sp.Max, sp.Min):
                yield {name: factor, second: factor}


def _factor(rule: UpdateRule, name: str, spec: State) -> sp.Expr | None:
    """The factor c of a next value ``a s + c x``; None if there is none."""
    linear = _linear(rule, name, spec)
    if linear is None:
        return None
    number = _number(linear[1], rule)
    return linear[1] if number.is_Rational and number > 0 and number != 1 else None


def _linear(rule: UpdateRule, name: str, spec: State) -> tuple[sp.Expr, sp.Expr, sp.Expr] | None:
    """(a, c, x) of a next value ``a s + c x``, a and c scalars; None for another."""
    state_symbol = state(name)
    if spec.initial == PARAM or state_symbol not in spec.next.free_symbols:
        return None
    constant_term = sp.factor_terms(spec.next.xreplace({state_symbol: sp.S.Zero}))
    decay = sp.cancel(sp.expand(spec.next - constant_term) / state_symbol)
    if decay.free_symbols & _tensors(rule) or constant_term.has(sp.nan, sp.zoo):
        return None
    factor, tensor = constant_term.as_independent(*_tensors(rule), as_Add=False)
    return decay, factor, tensor


def _tensors(rule: UpdateRule) -> set[sp.Symbol]:
    further_tensors = itertools.chain(map(tensor_input, rule.inputs), map(local, rule.definitions))
    return {PARAM, GRAD, *map(state, rule.states), *further_tensors}


def _number(expr: sp.Expr, rule: UpdateRule) -> sp.Expr:
    """The value of a scalar; the expression with its symbols where one has no number."""
    numbers = rule.hyperparameters
    values = {s: numbers[s.name] for s in expr.free_symbols if s.name in numbers}
    is_fixed = all(isinstance(value, sp.Expr) for value in values.values())
    return expr.xreplace(values) if is_fixed else expr


def _pull_out_scales(
    expr: sp.Expr, rule: UpdateRule, values: Mapping[sp.Symbol, sp.Expr]
) -> sp.Expr:
    """An expression with states replaced, and positive factors moved out of roots and sums."""
    tensors = _tensors(rule) | set(values)

    def is_tensor(part: sp.Expr) -> bool:
        return bool(part.free_symbols & tensors)

    def split(part: sp.Expr) -> tuple[sp.Expr, sp.Expr]:
        """A positive scalar and the rest."""
        factor, tensor = part.as_independent(*tensors, as_Add=False)
        return (factor, tensor) if _is_positive(factor, rule) else (sp.S.One, part)

    def visit(part: sp.Expr) -> sp.Expr:
        if part in values:
            return values[part]
        if not part.args or not is_tensor(part):
            return part
        args = [visit(arg) for arg in part.args]
        if isinstance(part, sp.Pow) and args[1].is_Rational:
            # (k x)^r is k^r x^r for k > 0.
            factor, core = split(_factor_out(args[0], split, is_tensor))
            return factor ** args[1] * core ** args[1]
        if isinstance(part, sp.Max | sp.Min):
            factors = {split(arg)[0] for arg in args}
            # max(k x, k y) is k max(x, y) for k > 0.
            if len(factors) == 1:
                (factor,) = factors
                return factor * part.func(*(split(arg)[1] for arg in args))
        if isinstance(part, sp.Add):
            return _factor_out(sp.Add(*args), split, is_tensor)
        return part.func(*args)

    return visit(expr)


def _factor_out(
    expr: sp.Expr,
    split: Callable[[sp.Expr], tuple[sp.Expr, sp.Expr]],
    is_tensor: Callable[[sp.Expr], bool],
) -> sp.Expr:
    """A sum whose tensors have one factor k, as ``k (x + rest / k)``."""
    if not isinstance(expr, sp.Add):
        return expr
    parts = [split(arg) for arg in expr.args if is_tensor(arg)]
    factors = {factor for factor, _ in parts}
    if len(factors) != 1 or sp.S.One in factors:
        return expr
    (factor,) = factors
    rest = [arg / factor for arg in expr.args if not is_tensor(arg)]
    return factor * sp.Add(*(inner for _, inner in parts), *rest)


def _is_positive(factor: sp.Expr, rule: UpdateRule) -> bool:
    """Whether a scalar is above 0 at each step, as far as floats at three of them say."""
    hyperparameters = rule.hyperparameters
    values = {s: hyperparameters.get(s.name) for s in factor.free_symbols - {t}}
    if not all(isinstance(value, sp.Expr) for value in values.values()):
        return False
    floats = {symbol: sp.Float(value) for symbol, value in values.items()}
    numbers = [factor.xreplace({**floats, t: sp.Float(step)}) for step in (0, 1, 1000)]
    return all(number.is_number and bool(sp.N(number) > 0) for number in numbers)
