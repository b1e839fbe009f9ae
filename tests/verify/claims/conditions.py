"""Random nested conditions with partial operands: the prover, ``exact`` and onnxruntime agree."""

import random
from collections import Counter

import numpy as np
import sympy as sp

from closedform import Schedule, claims, compile, t
from closedform.errors import ClosedFormError, DomainError
from tests.support.engines import run_onnxruntime

LAST = 40
"""The last step that is compared; all roots of the operands are before it."""


def partial_operand(chance: random.Random) -> sp.Expr:
    """Returns an operand that has no value at some of the steps."""
    root = chance.randint(1, 20)
    shifted = root - t if chance.random() < 0.3 else t - root
    return chance.choice((sp.sqrt, sp.log, lambda x: 1 / x))(shifted)


def drawn_condition(chance: random.Random, depth: int) -> sp.Basic:
    """Returns a random condition; no comparison of it is of two irrational numbers."""
    if depth == 0 or chance.random() < 0.15:
        if chance.random() < 0.6:
            return chance.choice((sp.Lt, sp.Ge))(t, chance.randint(1, 30))
        bound = sp.Rational(chance.randint(-9, 20), 7)
        return chance.choice((sp.Lt, sp.Ge))(bound, partial_operand(chance))
    parts = [drawn_condition(chance, depth - 1) for _ in range(3)]
    match chance.randrange(6):
        case 0:
            return sp.ITE(*parts)
        case 1:
            return sp.Not(sp.And(*parts[:2]))
        case 2:
            return sp.Not(sp.Or(*parts[:2]))
        case 3:
            return sp.And(*parts[: chance.randint(2, 3)])
        case _:
            return sp.Or(*parts[: chance.randint(2, 3)])


def judged(count: int, seed: int) -> Counter[str]:
    """Returns the counts of agreements.

    Raises:
        AssertionError: Two of the three disagree.
    """
    chance = random.Random(seed)
    counts: Counter[str] = Counter()
    for _ in range(count):
        condition = drawn_condition(chance, chance.randint(1, 3))
        if condition in (sp.true, sp.false):
            continue
        lr = Schedule(sp.Piecewise((1, condition), (2, True)))
        if not lr.expr.free_symbols:
            continue
        values = [_exact(lr, step) for step in range(LAST)]
        undefined = [step for step, value in enumerate(values) if value is None]
        verdict = claims.finite(lr).verify(effort=0.2)
        what = f"seed {seed}: {lr.expr}: {verdict}"
        counts[f"finite {verdict.status.value}"] += 1
        assert not (verdict.proved and undefined), f"{what}, no value at {undefined[0]}"
        if verdict.refuted:
            assert verdict.counterexample is not None, what
            assert _exact(lr, int(verdict.counterexample["t"])) is None, what
        counts[_in_the_graph(lr, values, what)] += 1
    return counts


def _exact(lr: Schedule, step: int) -> int | None:
    try:
        return int(lr.exact(step))
    except DomainError:
        return None


def _in_the_graph(lr: Schedule, values: list[int | None], what: str) -> str:
    try:
        graph = compile(lr, step_shape=(LAST,))
    except ClosedFormError:
        assert None in values, f"{what}: a value at each step, but no graph"
        return "refused"
    (computed,) = run_onnxruntime(graph, {"step": np.arange(LAST)}).values()
    assert values == list(computed), f"{what}: {values} and {list(computed)}"
    return "same values in onnxruntime"
