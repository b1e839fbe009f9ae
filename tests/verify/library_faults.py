"""Faults planted in the expressions of the library, claimed to be none, and how proofs are judged.

A fault changes one place of the term of a schedule with open hyperparameters, or of one output of
a step of a rule: a comparison, a sign, a step or a number by one, a clamp that is missing, two
arguments exchanged. It is claimed that the term is the same still, with the definedness of both, as
``closedform.claims.equal`` claims it. What is proved is evaluated at every step to 60 for many
draws of the hyperparameters, by an evaluator that shares nothing with the prover.
"""

import importlib
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from inspect import unwrap

from closedform import schedules
from closedform.language import Schedule, UpdateRule
from closedform.verify.claims.core import Claim, Goal
from closedform.verify.claims.reading import read_schedule
from closedform.verify.claims.step import step_of
from closedform.verify.terms.build import (
    ONE,
    add,
    cospi,
    divide,
    equal,
    less,
    less_equal,
    maximum,
    minimum,
    negative,
    power,
    rational,
    rebuild,
    sinpi,
    subtract,
)
from closedform.verify.terms.definedness import obligations
from closedform.verify.terms.sympy_io import term, to_sympy
from closedform.verify.terms.tree import Op, Sign, Term, symbols, walk
from closedform.verify.terms.verdict import Verdict
from tests.support.mutation import Mutant, TooSlowError, at_most, lines_run, mutants_of, planted
from tests.support.term_values import UndecidedError, UndefinedError, compare, value_at
from tests.test_library import OPTIMIZERS, SCHEDULES
from tests.verify.faults import Outcome, judged

ELEMENTWISE = (
    *("sgd", "sgd_dampened", "adam", "adamw", "adamw_cerebras", "rmsprop", "adagrad", "lion"),
    *("adamax", "nadam", "radam", "adadelta", "rprop", "asgd", "signum", "adabelief", "laprop"),
)
# The table of periods that grow has 50 branches; one period is the same expression.
SINGLE: Mapping[str, Callable[[], Schedule]] = {
    **{name: unwrap(make) for name, make in SCHEDULES.items()},  # made anew: the code is faulty
    "warm_restarts": lambda: schedules.warm_restarts(1, 0.1, 10),
    # Made anew each time: a fault in the code shows in what is made with it.
    "linear": lambda: schedules.linear(0, 3e-4, 20),
    "cosine": lambda: schedules.cosine(3e-4, 3e-5, 80),
}
SOURCES = tuple(
    importlib.import_module(f"closedform.schedules.{name}")
    for name in (
        *("blends", "constant", "cosine", "cyclic", "decays", "exponential", "inverse"),
        *("one_cycle", "polynomial", "restarts", "wsd"),
    )
)
LARGEST = 150  # nodes of a term
SQUARES = re.compile(r"sq|sum|acc|inf|step_size|var")
STEPS, DRAWS = 60, 40


@dataclass(frozen=True, slots=True)
class Original:
    """An expression of the library, and what is assumed of its symbols."""

    name: str
    subject: Schedule | UpdateRule
    root: Term
    assume: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """A changed expression."""

    original: Original
    what: str
    changed: Term

    def __str__(self) -> str:
        return f"{self.original.name}: {self.what}"

    def claim(self) -> Claim:
        """The claim that it is not a fault."""
        sides = (self.original.root, self.changed)
        presumes = tuple(
            Goal(f"{found.text} is defined", found.goal, found.path)
            for side in sides
            for found in obligations(side)
        )
        goal = Goal("the value is the same", equal(*sides))
        original = self.original
        return Claim("equal", str(self), original.subject, (goal,), presumes, original.assume)


@cache
def originals() -> tuple[Original, ...]:
    """The schedules with all hyperparameters open, and each output of a step of the rules."""
    found = []
    for name, make in SINGLE.items():
        schedule = make()
        unbound = schedule.unbind() if schedule.hyperparameters else schedule
        reading = read_schedule(unbound)
        found.append(Original(name, unbound, reading.value, reading.assume))
    for name in ELEMENTWISE:
        rule = OPTIMIZERS[name]()
        numbers = [
            key for key, value in rule.hyperparameters.items() if not isinstance(value, Schedule)
        ]
        step = step_of(rule, numbers)
        for output, expr in {"param": step.param, **step.states}.items():
            root = term(expr)
            found.append(Original(f"{name}.{output}", rule, root, _usual(root, numbers)))
    return tuple(one for one in found if sum(1 for _ in walk(one.root)) <= LARGEST)


def _usual(root: Term, numbers: list[str]) -> tuple[Term, ...]:
    """Hyperparameters of rules are above 0 and below 1, means of squares at or above 0."""
    zero = rational(0)
    facts = []
    for name, node in symbols(root).items():
        if name in numbers:
            facts += [less(zero, node), less(node, ONE)]
        elif name.startswith("state.") and SQUARES.search(name):
            facts.append(less_equal(zero, node))
    return tuple(facts)


# --- planting ------------------------------------------------------------------------------------


def faults_of(original: Original) -> list[Fault]:
    """Every fault of an expression, each changed term once."""
    found: dict[Term, Fault] = {}
    for place, node in _places(original.root):
        for what, new in _changes(node):
            changed = _put(original.root, place, new)
            if changed != original.root:
                text = f"{_short(node)} -> {_short(new)} ({what})"
                found.setdefault(changed, Fault(original, text, changed))
    return list(found.values())


def _short(node: Term) -> str:
    text = str(node)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _places(root: Term, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Term]]:
    yield path, root
    for index, arg in enumerate(root.args):
        yield from _places(arg, (*path, index))


def _put(root: Term, path: tuple[int, ...], new: Term) -> Term:
    if not path:
        return new
    args = list(root.args)
    args[path[0]] = _put(args[path[0]], path[1:], new)
    return rebuild(root, tuple(args))


def _changes(node: Term) -> Iterator[tuple[str, Term]]:
    """The possible replacements of a node, and the kind of fault that each is."""
    args = node.args
    match node.op:
        case Op.LESS:
            yield "comparison", less_equal(*args)
            yield "swapped", less(args[1], args[0])
        case Op.LESS_EQUAL:
            yield "comparison", less(*args)
            yield "swapped", less_equal(args[1], args[0])
        case Op.ADD:
            for index, arg in enumerate(args):
                others = (*args[:index], *args[index + 1 :])
                yield "sign", add(*others, negative(arg))
        case Op.MULTIPLY:
            yield "sign", negative(node)
        case Op.DIVIDE:
            yield "swapped", divide(args[1], args[0])
        case Op.POWER:
            yield "swapped", power(args[1], args[0])
        case Op.ITE:
            yield "swapped", rebuild(node, (args[0], args[2], args[1]))
            yield "missing branch", args[2]
        case Op.MINIMUM | Op.MAXIMUM:
            yield "missing clamp", args[0]
            yield "missing clamp", args[1]
            opposite = maximum if node.op is Op.MINIMUM else minimum
            yield "comparison", opposite(*args)
        case Op.FLOOR:
            yield "missing floor", args[0]
        case Op.COSPI:
            yield "swapped", sinpi(args[0])
            yield "sign", cospi(negative(args[0]))
        case Op.ABSOLUTE | Op.SIGN:
            yield "missing sign", args[0]
        case Op.SYMBOL if node.value.integer:
            yield "off by one", add(node, ONE)
            yield "off by one", subtract(node, ONE)
        case Op.RATIONAL:
            yield "off by one", add(node, ONE)
            yield "off by one", subtract(node, ONE)
            yield "sign", negative(node)


def drawn(count: int, seed: int) -> list[Fault]:
    """So many faults, the same number of each expression as far as it has them."""
    chance = random.Random(seed)
    pools = [chance.sample(found, len(found)) for found in map(faults_of, originals())]
    chosen: list[Fault] = []
    for turn in range(max(map(len, pools))):
        chosen += [pool[turn] for pool in pools if turn < len(pool)]
    return chosen[:count]


def source_faults(count: int, seed: int) -> Iterator[Fault]:
    """So many faults of the code that makes the schedules, as far as they make another one."""
    lines = _lines_run()
    pool = [mutant for module in SOURCES for mutant in mutants_of(module)]
    for mutant in random.Random(seed).sample(pool, len(pool)):
        for original, run in lines:
            changed = None
            if (mutant.path, mutant.line) in run:
                changed = _made_with(mutant, original)
            if changed is not None:
                yield Fault(original, str(mutant), changed)
                count -= 1
                break
        if not count:
            return


@cache
def _lines_run() -> list[tuple[Original, set[tuple[str, int]]]]:
    """The schedules, with the lines that are run when one is made."""
    found = []
    for original in originals():
        if isinstance(original.subject, Schedule):
            with lines_run({str(module.__file__) for module in SOURCES}) as lines:
                SINGLE[original.name]()
            found.append((original, lines))
    return found


def _made_with(mutant: Mutant, original: Original) -> Term | None:
    """The result of the faulty code for a schedule; None if it raises, or is the same."""
    try:
        with planted(mutant), at_most(2):
            made = SINGLE[original.name]()
        unbound = made.unbind() if made.hyperparameters else made
        changed = read_schedule(unbound).value
        symbols(original.root, changed)  # raises where a symbol is declared in another way
    except (Exception, TooSlowError):  # a fault may raise anything
        return None
    return None if changed == original.root else changed


# --- judging -------------------------------------------------------------------------------------


def judge(fault: Fault, effort: float = 0.4) -> tuple[Outcome, Verdict]:
    """The outcome of the claim that a fault is none."""
    claim = fault.claim()
    verdict = claim.verify(effort=effort)
    is_wrong = verdict.refuted and differs(fault, verdict)

    def proved() -> Outcome:
        return Outcome.MISSED if contradiction(claim) else Outcome.EQUIVALENT

    refuted = Outcome.REFUTED if is_wrong else Outcome.FALSE_REFUTATION
    return judged(verdict, proved, refuted), verdict


def differs(fault: Fault, verdict: Verdict) -> bool:
    """Whether at the counterexample the two values differ, or one is missing."""
    found = verdict.counterexample or {}
    anywhere = dict.fromkeys(symbols(fault.original.root, fault.changed), Fraction(1))
    point = {**anywhere, **{name: Fraction(int(n.p), int(n.q)) for name, n in found.items()}}
    try:
        values = [value_at(side, point) for side in (fault.original.root, fault.changed)]
        return compare(*values) != 0
    except UndefinedError:
        return True
    except UndecidedError:
        return False


def contradiction(claim: Claim, steps: int = STEPS) -> Mapping[str, Fraction] | None:
    """A point at which a goal of a proved claim is false or has no value; None if none is found."""
    facts = symbols(*claim.assume)
    for goal in (*claim.presumes, *claim.goals):
        # A goal about the real line declares t in another way than one about the steps.
        declared = {**facts, **symbols(goal.statement, *goal.given)}
        found = () if goal.is_somewhere else points(declared, steps, seed=len(declared))
        for point in found:
            given = (*claim.assume, *goal.given)
            if _is_false(goal.statement, point) and _all(given, point):
                return point
    return None


def _all(conditions: tuple[Term, ...], point: Mapping[str, Fraction]) -> bool:
    try:
        return all(value_at(condition, point) for condition in conditions)
    except (UndefinedError, UndecidedError):
        return False


def _is_false(statement: Term, point: Mapping[str, Fraction]) -> bool:
    try:
        return not value_at(statement, point)
    except UndefinedError:
        return True
    except UndecidedError:  # equal to 40 digits
        return False


def points(declared: Mapping[str, Term], steps: int, seed: int) -> Iterator[dict[str, Fraction]]:
    """Every step up to a last one, for many draws of what else there is, small and large."""
    chance = random.Random(seed)
    others = {name: node for name, node in declared.items() if name != "t"}
    for draw in range(DRAWS if others else 1):
        fixed = {name: _number(node, chance, draw) for name, node in others.items()}
        for step in range(steps + 1) if "t" in declared else (0,):
            yield {**fixed, "t": Fraction(step)}


def _number(node: Term, chance: random.Random, draw: int) -> Fraction:
    """A number that the declaration of a symbol admits; the first draws are small."""
    most = 4 if draw < DRAWS // 2 else 24
    whole = chance.randint(0, most)
    number = Fraction(whole)
    if not node.value.integer:
        # Half of the reals are below 1, as rates and betas are.
        number = Fraction(whole, chance.choice((1, 2, 3, most + 1, most + 1, most + 1)))
    sign = node.value.sign
    if sign in (Sign.POSITIVE, Sign.NEGATIVE):
        number = number or Fraction(1)
    if sign is Sign.ANY:
        return number if chance.random() < 0.75 else -number
    return number if sign in (Sign.POSITIVE, Sign.NONNEGATIVE) else -number


# --- the standard claims -------------------------------------------------------------------------


def standard(fault: Fault, effort: float = 0.2) -> tuple[int, list[str]]:
    """The number of standard claims proved of a changed schedule, and those that are false."""
    made = SINGLE[fault.original.name]()
    changed = Schedule(to_sympy(fault.changed), name=made.name)
    numbers = {s.name: made.hyperparameters[s.name] for s in changed.open}
    report = changed.bind(**numbers).verify(effort=effort)
    proved = [finding.claim for finding in report if finding.verdict.proved]
    false = [f"{fault}: {claim.sentence}" for claim in proved if contradiction(claim, 300)]
    return len(proved), false


def schedule_faults(count: int, seed: int) -> list[Fault]:
    """So many faults of schedules."""
    found = [fault for fault in drawn(10**6, seed) if isinstance(fault.original.subject, Schedule)]
    return found[:count]
