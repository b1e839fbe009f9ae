"""The checker accepts proofs of true goals, and no proof of a false one."""

import copy
import json
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from flint import fmpq

import closedform
from closedform.effort import Effort
from closedform.verify.checker import replay
from closedform.verify.checker.intervals import Intervals
from closedform.verify.checker.replay import Replay, begin
from closedform.verify.checker.terms import RejectedProofError
from closedform.verify.search.boxes import Boxes
from closedform.verify.search.refutation import find_proof
from closedform.verify.search.statements import statement_of
from closedform.verify.search.steps import NoProofError
from closedform.verify.terms.build import (
    ONE,
    add,
    both,
    equal,
    floor_modulo,
    less,
    less_equal,
    minimum,
    multiply,
    negate,
    opaque,
    power,
    rational,
    symbol,
)
from closedform.verify.terms.evaluate import holds
from closedform.verify.terms.tree import Sign
from tests.support.sampling import is_exhaustive
from tests.verify.goals import PROVED, REFUTED, Goal
from tests.verify.test_goals import GOALS

Data = dict[str, Any]

# A part of the goals that are proved; the search soon finds a proof of most of them.
TRUE_GOALS = [goal for goal in GOALS if goal.expected is PROVED][2 :: 6 if is_exhaustive() else 12]
UNITS = 120_000
FALSE_GOALS = [goal for goal in GOALS if goal.expected is REFUTED]


@cache
def proofs() -> list[tuple[Goal, Data, Data]]:
    certified_goals = []
    for goal in TRUE_GOALS:
        statement = statement_of(goal.goal, goal.assume)
        try:
            certified_goals.append((goal, statement, find_proof(statement, Effort.of(UNITS))))
        except NoProofError:
            continue
    return certified_goals


def is_accepted(statement: Data, proof: Data) -> bool:
    try:
        replay.check(statement, proof)
    except RejectedProofError:
        return False
    return True


def test_proofs_of_true_goals_are_accepted() -> None:
    assert len(proofs()) >= 0.6 * len(TRUE_GOALS)
    for goal, statement, proof in proofs():
        assert is_accepted(statement, proof), goal.name


def test_search_finds_no_proof_of_a_false_goal() -> None:
    for goal in FALSE_GOALS[::4]:
        with pytest.raises(NoProofError):
            find_proof(statement_of(goal.goal, goal.assume), Effort.of(UNITS))


def false_statements(goal: Goal) -> Iterator[Data]:
    """Statements that are false because the goal is true, or by their form."""
    yield statement_of(negate(goal.goal), goal.assume)
    x = symbol("planted", sign=Sign.NONNEGATIVE)
    yield statement_of(both(goal.goal, less(rational(3), x)), goal.assume)
    yield statement_of(less(rational(1), x), (goal.goal, *goal.assume))


def test_proofs_of_other_statements_are_rejected() -> None:
    accepted = [
        goal.name
        for goal, _, proof in proofs()
        for statement in false_statements(goal)
        if is_accepted(statement, proof)
    ]
    accepted += [
        false.name
        for index, false in enumerate(FALSE_GOALS)
        for _, _, proof in proofs()[index % 5 :: 5]
        if is_accepted(statement_of(false.goal, false.assume), proof)
    ]
    assert accepted == []


def steps_in(step: Any) -> Iterator[list[Any]]:
    if isinstance(step, list):
        if step and isinstance(step[0], str):
            yield step
        for part in step:
            yield from steps_in(part)


def tampered(proof: Data, chance: random.Random) -> Data:
    """The proof with another number, place, step or node."""
    changed = copy.deepcopy(proof)
    step = chance.choice(list(steps_in(changed["step"])))
    match chance.randrange(4):
        case 0:
            step[:] = ["contradiction", [], 0]
        case 1:
            numbers = [index for index, part in enumerate(step) if type(part) is int]
            if numbers:
                step[chance.choice(numbers)] += chance.choice((-1, 1, 2))
        case 2 if len(step) > 2:
            step[-1], step[-2] = step[-2], step[-1]
        case _ if changed["nodes"]:
            row = chance.choice(changed["nodes"])
            if isinstance(row[2], str):
                row[2] = str(chance.choice((0, 1, -1)))
        case _:
            step[:] = ["combine", [["1", [], []]], []]
    return changed


def test_tampered_proofs_prove_nothing_false() -> None:
    chance = random.Random(38)
    for goal, _, proof in proofs():
        for statement in false_statements(goal):
            for _ in range(4):
                assert not is_accepted(statement, tampered(proof, chance)), goal.name


def test_numbers_of_a_combination_matter() -> None:
    changes = 0
    for goal, statement, proof in proofs():
        changed = copy.deepcopy(proof)
        for step in steps_in(changed["step"]):
            if step[0] == "combine" and len(step[1]) > 1:
                step[1][0][0] = str(
                    fmpq(1, 7) + fmpq(*map(int, (step[1][0][0] + "/1").split("/")[:2]))
                )
                changes += 1
                assert not is_accepted(statement, changed), goal.name
                break
    assert changes >= 5  # that many with the lowest versions, by which the proofs differ


@pytest.mark.parametrize(
    "proof",
    [
        {},
        {"nodes": [], "step": []},
        {"nodes": [], "step": ["split", 0]},
        {"nodes": [], "step": ["range", 0, [1], [["contradiction", [], 0]]]},
        {"nodes": [["rational", [], "1/0"]], "step": ["contradiction", [], 0]},
        {"nodes": [["+", [99], None]], "step": ["contradiction", [], 0]},
        {"nodes": [["symbol", [], ["user: x", True, "positive"]]], "step": ["empty", []]},
        {"nodes": [], "step": ["combine", [], []]},
        {"nodes": [], "step": ["combine", [["-1", [0], []]], []]},
        {"nodes": "none", "step": None},
    ],
)
def test_what_is_not_a_proof_is_rejected(proof: Data) -> None:
    x = symbol("x")
    statement = statement_of(less(rational(0), x))
    assert not is_accepted(statement, proof)


def test_intervals_hold_the_values_of_functions() -> None:
    """Against mpmath, at the ends of random intervals and between them."""
    import mpmath

    chance = random.Random(7)
    functions = {
        "cospi": lambda x: mpmath.cos(mpmath.pi * x),
        "sinpi": lambda x: mpmath.sin(mpmath.pi * x),
        "exp": mpmath.exp,
        "log": mpmath.log,
        "atan": mpmath.atan,
        "floor": mpmath.floor,
        "abs": abs,
    }
    for _ in range(150):
        name = chance.choice(list(functions))
        low = fmpq(chance.randint(1 if name == "log" else -40, 60), chance.randint(1, 12))
        high = low + fmpq(chance.randint(0, 40), chance.randint(1, 12))
        machine = replay.Replay()
        terms = machine.terms
        x = terms.declare("x", integer=False)
        facts = (
            terms.less_equal(terms.rational(low), x),
            terms.less_equal(x, terms.rational(high)),
        )
        interval = Intervals(machine, facts).of_term(terms.make(name, (x,)))
        for part in range(5):
            at = low + (high - low) * fmpq(part, 4)
            with mpmath.workdps(40):
                number = functions[name](mpmath.mpf(int(at.p)) / int(at.q))
                ends = [None if e is None else mpmath.mpf(int(e.p)) / int(e.q) for e in interval]
                slack = mpmath.mpf(10) ** -30
                assert ends[0] is None or ends[0] <= number + slack
                assert ends[1] is None or number <= ends[1] + slack


FOLDER = Path(closedform.__file__).parent / "verify" / "checker"


def test_checker_is_small_and_imports_neither_the_prover_nor_a_solver() -> None:
    sources = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.py")}
    # Lines of code and docstrings, without blank lines.
    lines = sum(1 for text in sources.values() for line in text.splitlines() if line.strip())
    assert lines <= 1670
    page = (Path(__file__).parents[3] / "docs" / "what_to_trust.md").read_text(encoding="utf-8")
    assert f"| `verify/checker` | {round(lines, -1):,} |" in page
    all_lines = sum(len(text.splitlines()) for text in sources.values())
    assert f"`wc -l` counts\n{all_lines:,})" in page
    for name, text in sources.items():
        imports = [line for line in text.splitlines() if line.startswith(("import", "from"))]
        outside = [
            line
            for line in imports
            if "closedform" in line and not re.search(r"closedform\.(verify\.checker|errors)", line)
        ]
        assert outside == [], name
        assert not any(word in text for word in ("import sympy", "import z3", "eval(")), name


def test_command_writes_the_proofs(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "closedform", "verify", "linear", "--start", "1", "--end"]
    command += ["0", "--steps", "10", "--certificate", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    counts = re.search(r"certificate: the proofs of (\d+) goals", result.stdout)
    assert counts is not None
    assert int(counts[1]) >= 5
    goals = json.loads((tmp_path / "linear.json").read_text(encoding="utf-8"))["goals"]
    assert sum(
        is_accepted(goal["statement"], goal["proof"]) for goal in goals if "proof" in goal
    ) == int(counts[1])


def test_decisions_and_bounds_of_intervals_matter() -> None:
    """A simplification is rejected with another alternative, or without one of its bounds."""
    t = symbol("t", integer=True)
    statement = statement_of(
        equal(minimum(t, rational(5)), rational(5)), (less_equal(rational(7), t),)
    )
    row = statement["nodes"].index(next(row for row in statement["nodes"] if row[0] == "min"))
    proof = {"nodes": [], "step": ["simplify", [0], [[row, 1]], ["contradiction", [], 1]]}
    assert is_accepted(statement, proof)
    for step in (
        ["simplify", [0], [[row, 0]], ["contradiction", [], 1]],
        ["simplify", [], [[row, 1]], ["contradiction", [], 1]],
        ["simplify", [1], [[row, 1]], ["contradiction", [], 1]],
        ["simplify", [0], [], ["contradiction", [], 1]],
        ["simplify", [0], [[row, 1]], ["contradiction", [], 0]],
        ["simplify", [0], [[row, 1]], ["empty", [0]]],
    ):
        assert not is_accepted(statement, {"nodes": [], "step": step}), step


def test_facts_that_are_forgotten_are_not_used() -> None:
    x = symbol("x")
    statement = statement_of(less(rational(0), x), (less(rational(1), x),))
    end = ["combine", [["1", [0], []], ["1", [1], []], ["1", [], []]], []]
    assert is_accepted(statement, {"nodes": [], "step": end})
    for places in ([0, 1], [0, 1, 1]):
        assert is_accepted(statement, {"nodes": [], "step": ["keep", places, end]}), places
    rejected: tuple[object, ...] = ([0], [1], [], [0, 2], [0, -1], [0, True], 0, None)
    for other in rejected:
        assert not is_accepted(statement, {"nodes": [], "step": ["keep", other, end]}), other
    for step in (["keep", end], ["keep", [0, 1], end, end], ["keep", [0, 1]]):
        assert not is_accepted(statement, {"nodes": [], "step": step}), step


def residue_statement(modulus: int, left_out: int) -> Data:
    """That an integer with none of the other residues has one."""
    t = symbol("t", integer=True)
    remainder = floor_modulo(t, rational(modulus))
    facts = [negate(equal(remainder, rational(r))) for r in range(modulus) if r != left_out]
    return statement_of(equal(remainder, rational(left_out)), facts)


def residue_proof(statement: Data, modulus: int) -> Data:
    """A proof by residues: in each case two facts contradict each other."""
    checker = Replay()
    facts, places = begin(checker, statement)
    (symbol_row,) = (n for n, row in enumerate(statement["nodes"]) if row[0] == "symbol")
    quotient = checker.terms.make("symbol", (), ("quotient", True, "any"))
    cases = checker.residues(facts, places[symbol_row], quotient, modulus)
    steps = []
    for case in cases:
        (step,) = (
            ["keep", [place], end]
            for place, fact in enumerate(case)
            if (end := Boxes(checker, (fact,)).contradiction()) is not None
        )
        steps.append(step)
    row = ["symbol", [], ["quotient", True, "any"]]
    return {"nodes": [row], "step": ["residues", symbol_row, len(places), steps]}


@pytest.mark.parametrize(("modulus", "left_out"), [(2, 0), (3, 2), (12, 5), (30, 29)])
def test_residues_cover_the_integers(modulus: int, left_out: int) -> None:
    statement = residue_statement(modulus, left_out)
    proof = residue_proof(statement, modulus)
    assert is_accepted(statement, proof)
    # Without one of the facts its residue is open, and so it is without one of the cases.
    fewer_facts = {**statement, "assume": statement["assume"][:-1]}
    assert not is_accepted(fewer_facts, proof)
    proof["step"][3].pop()
    assert not is_accepted(statement, proof)


def test_the_quotient_of_residues_is_a_new_integer() -> None:
    statement = residue_statement(3, 2)
    proof = residue_proof(statement, 3)
    for declaration in (
        ["quotient", False, "any"],
        ["quotient", True, "nonnegative"],
        ["user: t", True, "any"],
    ):
        changed = copy.deepcopy(proof)
        changed["nodes"][0][2] = declaration
        assert not is_accepted(statement, changed), declaration


@pytest.mark.parametrize("seed", range(30))
def test_remainders_of_remainders_are_proved_or_left_open(seed: int) -> None:
    """Claims about nested remainders of an integer: a proof is only of what all steps say."""
    chance = random.Random(seed)
    t = symbol("t", integer=True)
    number, first, second = t, chance.randint(2, 6), chance.randint(2, 4)
    number = floor_modulo(add(multiply(rational(chance.randint(1, 4)), t), ONE), rational(first))
    number = floor_modulo(add(number, rational(chance.randint(0, 3))), rational(second))
    bound = rational(chance.randint(0, second - 1))
    goal = less_equal(number, bound)
    is_true = all(holds(goal, {"t": fmpq(step)}) is True for step in range(-300, 300))
    statement = statement_of(goal)
    try:
        find_proof(statement, Effort.of(UNITS))
    except NoProofError:
        assert not is_true
    else:
        assert is_true


def test_facts_about_one_element_say_nothing_of_a_sum_over_a_tensor() -> None:
    x = symbol("x")
    sums = [opaque("reduce_sum", argument) for argument in (x, rational(0))]
    statement = statement_of(equal(*sums), (equal(x, rational(0)),))
    with pytest.raises(NoProofError):
        find_proof(statement)
    squares = statement_of(less_equal(rational(0), opaque("reduce_sum", multiply(x, x))))
    assert is_accepted(squares, find_proof(squares))


def test_a_square_times_two_numbers_above_zero() -> None:
    """As a sum of squares that a rate and a root weigh; without one of the signs it is false."""
    total, rate, root, gradient, decay = map(symbol, ("s", "lr", "r", "g", "d"))
    zero = rational(0)
    square = power(add(gradient, decay), rational(2))
    goal = less_equal(zero, add(total, multiply(rate, root, square)))
    signs = (less_equal(zero, total), less(zero, rate), less(zero, root))
    statement = statement_of(goal, signs)
    proof = find_proof(statement)
    (combination,) = (step for step in steps_in(proof["step"]) if step[0] == "combine")
    (weighted,) = (product for product in combination[1] if product[2])
    assert len(weighted[1]) == 2
    weighted[1].pop()
    assert not is_accepted(statement, proof)
    for left_out in range(3):
        fewer = (*signs[:left_out], *signs[left_out + 1 :])
        with pytest.raises(NoProofError):
            find_proof(statement_of(goal, fewer), Effort.of(UNITS))
