"""Equality on segments of steps: shown only where it is true."""

import random

import pytest
import sympy as sp
from flint import arb, fmpq

from closedform import t
from closedform.effort import METER, Effort, OutOfEffort
from closedform.language import floor_div, floor_mod
from closedform.verify.identity.equality import StepRange, are_equal, is_defined
from closedform.verify.terms import build, sympy_io, tree
from closedform.verify.terms.evaluate import Undefined, value
from closedform.verify.terms.partition import align_segments, partition
from closedform.verify.terms.tree import Sign, Term, fold, walk
from tests.verify.test_soundness import drawn

CLOCK = sympy_io.term(t)
ALL = StepRange(CLOCK, 0, 2**50)
HALF, FIFTH, TENTH = (sp.Rational(1, each) for each in (2, 5, 10))
x = sp.Symbol("x", positive=True)
v = sp.Symbol("v", real=True)


def shown(left: sp.Expr, right: sp.Expr, steps: StepRange = ALL) -> list[str | None]:
    """How each segment is shown to be equal."""
    first, end = steps.first, steps.last + 1
    lists = [partition(sympy_io.term(side), CLOCK, first, end) for side in (left, right)]
    return [
        are_equal(one, other, StepRange(CLOCK, first, end - 1))
        for first, end, (one, other) in align_segments(*lists)
    ]


def inert_cos(turns: sp.Expr) -> sp.Expr:
    return sp.cos(sp.pi * turns, evaluate=False)


COSINE = inert_cos(t / 30) / 2 + HALF

EQUAL = {
    "lines": (2 * (t + 1), 2 * t + 2),
    "quotient": ((t + 1) ** 2 / (t + 1), t + 1),
    "power": (sp.Rational(9, 10) ** t, sp.exp(t * sp.log(sp.Rational(9, 10)))),
    "split root": (sp.sqrt(4 * t + 4), 2 * sp.sqrt(t + 1)),
    "half angle": ((1 - inert_cos(t / 640)) / 2, sp.sin(sp.pi * t / 1280) ** 2),
    "quarter turn": (
        inert_cos(t / 640 - sp.Rational(63, 64)),
        sp.sin(sp.pi * (t / 640 - sp.Rational(31, 64))),
    ),
    "period": (inert_cos(t / 30), inert_cos(floor_mod(t, 60) / 30)),
    "folded": (inert_cos(t / 30), inert_cos((30 - sp.Abs(floor_mod(t, 60) - 30)) / 30)),
    "fine period": (
        inert_cos((1000 * t - 9179) / 18821),
        inert_cos(floor_mod(1000 * t - 9179, 37642) / 18821),
    ),
    "triangle": (
        sp.Min(floor_mod(t, 10), 10 - floor_mod(t, 10)),
        5 - sp.Abs(floor_mod(t, 10) - 5),
    ),
    "restarts": (floor_div(t, 7) * 7 + floor_mod(t, 7), t),
    "two cosines": (
        inert_cos(t / 80) * inert_cos(floor_mod(t, 14) / 7),
        sp.sin(sp.pi * (t + 40) / 80) * inert_cos(t / 7),
    ),
    "order of a minimum": (
        sp.Min(1 / sp.sqrt(t + 1), (t + 1) / 40 ** sp.Rational(3, 2)),
        sp.Min((t + 1) * sp.sqrt(10) / 800, 1 / sp.sqrt(t + 1)),
    ),
    "maximum of one sign": (sp.Max(0, inert_cos(t / 30) / 2 + HALF), inert_cos(t / 30) / 2 + HALF),
    "minimum of one sign": (
        sp.Min(1, sp.Max(TENTH, inert_cos(t / 30) / 2 + HALF)),
        sp.Max(TENTH, inert_cos(floor_mod(t, 60) / 30) / 2 + HALF),
    ),
    "comparison of one sign": (
        sp.Piecewise((t, inert_cos(t / 30) < 2), (7, True)),
        t,
    ),
    "shared maximum": (
        sp.Max(TENTH, inert_cos(t / 30) / 2 + HALF),
        sp.Max(1 - sp.sin(sp.pi * floor_mod(t, 60) / 60, evaluate=False) ** 2, TENTH),
    ),
    "floor in a cosine": (
        sp.Max(TENTH, inert_cos(floor_div(t, 7) / 30)),
        sp.Max(TENTH, inert_cos((30 - sp.Abs(floor_mod(floor_div(t, 7), 60) - 30)) / 30)),
    ),
    "floors of one slope": (
        inert_cos(floor_div(t - 15, 7) / 30),
        inert_cos(floor_mod(floor_div(t - 1, 7) - 2, 60) / 30),
    ),
    "constant angles": (
        inert_cos(floor_mod(t - 1, 1000) / 1000),
        1 - 2 * sp.sin(sp.pi * floor_mod(t - 1, 1000) / 2000, evaluate=False) ** 2,
    ),
    "a choice as a maximum": (
        sp.Piecewise((COSINE, COSINE > TENTH), (TENTH, True)),
        sp.Max(TENTH, 1 - sp.sin(sp.pi * floor_mod(t, 60) / 60, evaluate=False) ** 2),
    ),
    "a choice as a minimum": (
        sp.Piecewise((3 * COSINE, COSINE < TENTH), (3 * TENTH, True)),
        3 * sp.Min(TENTH, 1 - sp.sin(sp.pi * t / 60, evaluate=False) ** 2),
    ),
    "scaled comparison": (
        sp.Piecewise((t, COSINE > TENTH), (7, True)),
        sp.Piecewise((t, inert_cos(floor_mod(t, 60) / 30) > -4 * FIFTH), (7, True)),
    ),
    "scaled equality": (
        sp.Piecewise(
            (t, sp.Eq(floor_mod(t, 1000) / 10, floor_div(floor_mod(t, 1000), 10))), (7, True)
        ),
        sp.Piecewise(
            (t, sp.Eq(10 * floor_div(floor_mod(t, 1000), 10), floor_mod(t, 1000))), (7, True)
        ),
    ),
    "branches": (
        sp.Piecewise((COSINE, inert_cos(t / 7) > FIFTH), (t, True)),
        sp.Piecewise(
            (1 - sp.sin(sp.pi * t / 60, evaluate=False) ** 2, 5 * inert_cos(t / 7) > 1), (t, True)
        ),
    ),
    "whole numbers in a floor": (
        inert_cos(floor_div(t + 7 * floor_div(t, 90), 7) / 30),
        inert_cos((floor_div(t, 7) + floor_div(t, 90)) / 30),
    ),
    "half of a special angle": (
        inert_cos(floor_mod(t - 1, 16) / 16),
        1 - 2 * sp.sin(sp.pi * floor_mod(t - 1, 16) / 32, evaluate=False) ** 2,
    ),
    "hyperparameter": (x * (t + 1) - x * t, x),
    "bias correction": (
        sp.sqrt(v) / sp.sqrt(1 - sp.Rational(9, 10) ** (t + 1)),
        (1 / sp.sqrt(1 - sp.exp((t + 1) * sp.log(sp.Rational(9, 10))))) * sp.sqrt(v),
    ),
}

DIFFERENT = {
    "lines": (2 * t, 2 * t + 1),
    "off by one": (sp.Min(t, 5), sp.Min(t, 6)),
    "base": (sp.Rational(9, 10) ** t, sp.exp(t * sp.log(sp.Rational(8, 10)))),
    "sign": (inert_cos(t / 30), -inert_cos(t / 30)),
    "phase": (
        inert_cos(t / 640 - sp.Rational(63, 64)),
        sp.sin(sp.pi * (t / 640 - sp.Rational(32, 64))),
    ),
    "period": (inert_cos(t / 30), inert_cos(floor_mod(t, 61) / 30)),
    "fold": (inert_cos(t / 30), inert_cos((30 - sp.Abs(floor_mod(t, 60) - 29)) / 30)),
    "floor": (floor_div(t, 3), t / 3),
    "minimum": (sp.Min(1 / sp.sqrt(t + 1), t + 1), sp.Max(1 / sp.sqrt(t + 1), t + 1)),
    "root": (sp.sqrt(t**2 + 1), t + 1),
    "maximum of two signs": (
        sp.Max(0, inert_cos(t / 30) / 2 + sp.Rational(49, 100)),
        inert_cos(t / 30) / 2 + sp.Rational(49, 100),
    ),
    "shared maximum": (
        sp.Max(TENTH, inert_cos(t / 30) / 2 + HALF),
        sp.Max(TENTH, inert_cos(floor_mod(t, 61) / 30) / 2 + HALF),
    ),
    "maximum and minimum": (
        sp.Max(TENTH, inert_cos(t / 30) / 2 + HALF),
        sp.Min(TENTH, inert_cos(t / 30) / 2 + HALF),
    ),
    "a choice as a maximum": (
        sp.Piecewise((COSINE, COSINE > FIFTH), (TENTH, True)),
        sp.Max(TENTH, COSINE),
    ),
    "scaled minimum": (
        sp.Min(3 * TENTH, 3 * COSINE + sp.Rational(1, 10**6)),
        3 * sp.Min(TENTH, 1 - sp.sin(sp.pi * t / 60, evaluate=False) ** 2),
    ),
    "a choice of the other one": (
        sp.Piecewise((COSINE, COSINE < TENTH), (TENTH, True)),
        sp.Max(TENTH, COSINE),
    ),
    "scaled comparison": (
        sp.Piecewise((t, COSINE > TENTH), (7, True)),
        sp.Piecewise((t, -COSINE > -TENTH), (7, True)),
    ),
    "branches": (
        sp.Piecewise((COSINE, inert_cos(t / 7) > FIFTH), (t, True)),
        sp.Piecewise((COSINE, inert_cos(t / 7) > FIFTH), (t + 1, True)),
    ),
    "comparison": (sp.Piecewise((t, inert_cos(t / 30) < 1), (7, True)), t),
    "floor in a cosine": (
        inert_cos(floor_div(t, 7) / 30),
        inert_cos(floor_mod(floor_div(t, 7), 61) / 30),
    ),
    "floors of one slope": (
        inert_cos(floor_div(t - 15, 7) / 30),
        inert_cos(floor_mod(floor_div(t - 2, 7) - 2, 60) / 30),
    ),
    "constant angles": (
        inert_cos(floor_mod(t - 1, 1000) / 1000),
        1 - 2 * sp.sin(sp.pi * floor_mod(t - 2, 1000) / 2000, evaluate=False) ** 2,
    ),
    "hyperparameter": (x * t, x * t + x),
}


@pytest.mark.parametrize("name", EQUAL)
def test_equal_terms_are_shown_equal(name: str) -> None:
    assert None not in shown(*EQUAL[name])


@pytest.mark.parametrize("name", DIFFERENT)
def test_different_terms_are_not(name: str) -> None:
    assert None in shown(*DIFFERENT[name])


def test_ways_are_named() -> None:
    assert shown(*EQUAL["lines"]) == ["lines"]
    assert shown(*EQUAL["power"]) == ["identity"]
    assert shown(*EQUAL["folded"]) == ["period"]
    assert shown(*EQUAL["maximum of one sign"]) == ["identity"]
    assert shown(*EQUAL["floor in a cosine"]) == ["floor"]
    assert shown(sp.exp(t), sp.exp(t)) == ["structure"]


@pytest.mark.parametrize(
    ("expr", "first", "wanted"),
    [
        (1 / (t + 1), 0, True),
        (1 / t, 0, False),
        (1 / t, 1, True),
        (1 / (5 - t), 0, False),
        (sp.sqrt(t - 3), 0, False),
        (sp.sqrt(t - 3), 3, True),
        (sp.log(t + 1), 0, True),
        (sp.log(t), 0, False),
        (1 / (floor_div(t, 10) / 2 + 1), 0, True),
        ((t + 1) ** x, 0, True),
        (t**x, 0, True),
        (t ** (-x), 0, False),
        (1 / (sp.exp(-t) - 2), 0, False),
    ],
)
def test_definedness_on_steps(expr: sp.Expr, first: int, wanted: bool) -> None:
    term = sympy_io.term(expr)
    assert is_defined(term, StepRange(CLOCK, first, 2**50)) is wanted


SIGNS: list[tuple[Term, Sign]] = [
    (sympy_io.term(t + 1), Sign.POSITIVE),
    (sympy_io.term(t), Sign.NONNEGATIVE),
    (sympy_io.term(-t - 1), Sign.NEGATIVE),
    (sympy_io.term(t - 5), Sign.ANY),
    (sympy_io.term((t + 1) * (t - 2**50 - 1)), Sign.NEGATIVE),
    (sympy_io.term(sp.exp(t - 7)), Sign.POSITIVE),
    (sympy_io.term(x * t), Sign.NONNEGATIVE),
    (sympy_io.term(floor_div(t, 3)), Sign.NONNEGATIVE),
    (sympy_io.term(sp.Max(t - 5, 2)), Sign.POSITIVE),
    (sympy_io.term(sp.Min(t + 1, x)), Sign.POSITIVE),
    (sympy_io.term((t - 5) ** 2), Sign.NONNEGATIVE),
]


@pytest.mark.parametrize(("term", "sign"), SIGNS, ids=str)
def test_signs_on_steps(term: Term, sign: Sign) -> None:
    assert ALL.sign_of(term) is sign


# --- generated terms -----------------------------------------------------------------------------


def mutated(chance: random.Random, root: Term) -> Term:
    """The term with one of its numbers changed, or with one of its operations exchanged."""
    exchanged = {tree.Op.MINIMUM: build.maximum, tree.Op.MAXIMUM: build.minimum}
    nodes = [node for node in walk(root) if build.is_rational(node) or node.op in exchanged]
    if not nodes:
        return build.add(root, build.HALF)
    node = chance.choice(nodes)
    if build.is_rational(node):
        change = fmpq(chance.choice((-1, 1)), chance.choice((1, 2, 60)))
        return build.substitute(root, {node: build.rational(node.value + change)})
    return build.substitute(root, {node: exchanged[node.op](*node.args)})


def rewritten(chance: random.Random, root: Term) -> Term:
    """An equal term: operands in another order, floors and cosines of shifted arguments."""

    def make(node: Term, args: list[Term]) -> Term:
        if node.op in (tree.Op.ADD, tree.Op.MULTIPLY, tree.Op.MINIMUM, tree.Op.MAXIMUM):
            chance.shuffle(args)
        if node.op is tree.Op.COSPI and chance.random() < 0.5:
            return build.cospi(build.subtract(build.TWO, args[0]))
        if node.op is tree.Op.FLOOR and chance.random() < 0.5:
            return build.subtract(build.floor(build.add(args[0], build.ONE)), build.ONE)
        return build.rebuild(node, tuple(args)) if args else node

    return fold(root, make)


@pytest.mark.parametrize("seed", range(3))
def test_generated_terms_are_shown_equal_only_where_they_are(seed: int) -> None:
    chance = random.Random(seed)
    counts = {True: 0, False: 0}
    last = 80
    for _ in range(50):
        left = drawn(chance, [CLOCK], 4)
        is_faithful = chance.random() < 0.5
        right = (rewritten if is_faithful else mutated)(chance, left)
        lists = [partition(side, CLOCK, 0, last + 1) for side in (left, right)]
        for first, end, (one, other) in align_segments(*lists):
            if are_equal(one, other, StepRange(CLOCK, first, end - 1)) is None:
                continue
            counts[is_faithful] += 1
            for step in range(first, end):
                values = [value(side, {"t": fmpq(step)}) for side in (left, right)]
                if not any(isinstance(each, Undefined) for each in values):
                    assert arb(values[0]).overlaps(arb(values[1])), (seed, step, left, right)
    assert counts[True] > 15


@pytest.mark.parametrize("depth", [30, 60, 120])
def test_a_comparison_ends_with_its_effort(depth: int) -> None:
    """Choices of choices: to compare each with all the others takes the cube of their number."""

    def nested(first: tuple[Term, Term], is_turned: bool) -> Term:
        x, y = first
        for _ in range(depth):
            sums = build.add(x, build.multiply(y, y)), build.add(y, build.multiply(x, x))
            x, y = build.maximum(*sums[:: -1 if is_turned else 1]), build.minimum(*sums)
        return x

    tensors = build.symbol("x"), build.symbol("y")
    left, right = nested(tensors, False), nested(tensors, True)
    begin, allowed = METER.work, 100_000
    with Effort.of(allowed).enforce(), pytest.raises(OutOfEffort):
        are_equal(left, right, StepRange(CLOCK, 0, 100))
    # Work is looked at when it is reported: of a polynomial when it is made.
    assert METER.work - begin < 3 * allowed
    with Effort.of(allowed).enforce():
        assert are_equal(nested(tensors, False), left, StepRange(CLOCK, 0, 100)) == "structure"
