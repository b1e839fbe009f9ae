"""Claims about changes, extremes, distances, clocks and sums, beside exact values of all steps."""

import itertools
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import onnx
import pytest
import sympy as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import closedform as cf
from closedform import Schedule, claims, schedules, t
from closedform.errors import VerificationError
from closedform.verify.claims.core import Claim
from closedform.verify.claims.files import verify_file
from closedform.verify.claims.statements import as_texts, read_arguments
from tests.support.sampling import examples


def status(claim: Claim) -> str:
    return claim.verify().status.value


# --- beside exact values -------------------------------------------------------------------------

numbers = st.fractions(min_value=-4, max_value=4, max_denominator=6)


@st.composite
def segments(draw: st.DrawFn) -> tuple[Schedule, list[Fraction]]:
    """A schedule of a few straight segments, constant from its end on, and its values."""
    knots = [draw(numbers)]
    expr: list[tuple[sp.Expr, Any]] = []
    values: list[Fraction] = []
    for _ in range(draw(st.integers(1, 3))):
        start, end, length = knots[-1], draw(numbers), draw(st.integers(1, 5))
        begin = len(values)
        slope = (end - start) / length
        values += [start + slope * step for step in range(length)]
        straight = sp.Rational(start) + sp.Rational(slope) * (t - begin)
        expr.append((straight, t < begin + length))
        knots.append(end)
    values += [knots[-1]] * 3
    return Schedule(sp.Piecewise(*expr, (sp.Rational(knots[-1]), True))), values


def check(claim: Claim, is_true: bool) -> None:
    verdict = claim.verify()
    assert verdict.status.value == ("PROVED" if is_true else "REFUTED"), (claim.sentence, verdict)


@settings(max_examples=examples(30), deadline=None)
@given(segments(), numbers, st.integers(0, 9))
def test_verdicts_are_those_of_exact_values(
    drawn: tuple[Schedule, list[Fraction]], bound: Fraction, step: int
) -> None:
    schedule, values = drawn
    step = min(step, len(values) - 1)
    changes = [after - before for before, after in itertools.pairwise(values)]
    check(claims.bounded_change(schedule, high=bound), max(changes) <= bound)
    check(claims.bounded_change(schedule, low=bound), min(changes) >= bound)
    check(claims.argmax(schedule, step), values[step] == max(values))
    check(claims.argmin(schedule, step), values[step] == min(values))
    end = len(values) - 3
    rising = all(change > 0 for change in changes[:end])
    check(claims.monotone(schedule, "strictly increasing", where=t <= end), rising)
    falls = all(change < 0 for change in changes[:end])
    check(claims.monotone(schedule, "strictly decreasing", where=t <= end), falls)
    check(claims.monotone(schedule, "strictly increasing"), False)
    gap = max(abs(value - bound) for value in values)
    check(claims.close(schedule, sp.Rational(bound), gap), True)
    check(claims.close(schedule, sp.Rational(bound), gap - Fraction(1, 100)), False)
    total = sum(values[:end], Fraction(0)) + values[-1] * (2000 - end)
    check(claims.area(schedule, sp.Rational(total), 2000), True)
    check(claims.area(schedule, sp.Rational(total) + 1, 2000), False)


@settings(max_examples=examples(20), deadline=None)
@given(segments(), st.integers(-3, 3), st.sampled_from([1, 2, Fraction(1, 2), Fraction(2, 3)]))
def test_clocks_are_those_of_exact_values(
    drawn: tuple[Schedule, list[Fraction]], shift: int, scale: Fraction
) -> None:
    schedule, values = drawn

    def at(step: int) -> Fraction:
        return values[min(step, len(values) - 1)]

    steps = [step for step in range(60) if (scale * step).denominator == 1]
    pairs = [
        (at(step), at(int(scale * step + shift))) for step in steps if scale * step + shift >= 0
    ]
    is_same = all(one == other for one, other in pairs)
    has_value = all(scale * step + shift >= 0 for step in steps)
    check(claims.equal(schedule, schedule, shift=shift, scale=scale), is_same and has_value)
    where = sp.Rational(scale) * t + shift >= 0
    check(claims.equal(schedule, schedule, shift=shift, scale=scale, where=where), is_same)


# --- single claims -------------------------------------------------------------------------------

LR = schedules.linear(0, 1, 10).then(schedules.cosine(1, 0, 90))


def test_sums_of_smooth_schedules_over_many_steps() -> None:
    # The sum over a half period of a cosine is that of the line between its ends.
    assert status(claims.area(schedules.cosine(1, 0, 10**5), sp.Rational(10**5 + 1, 2), 10**5)) == (
        "PROVED"
    )
    assert status(claims.area(schedules.cosine(1, 0, 10**5), 50_000, 10**5)) == "REFUTED"
    geometric = schedules.exponential(1, 0.5)
    assert status(claims.area(geometric, 2 - sp.Rational(2) ** -1999, 2000)) == "PROVED"
    assert status(claims.area(geometric, 2, 2000)) == "REFUTED"
    cubic = schedules.polynomial(1, 0, 5000, power=3)
    exact = sum(Fraction(5000 - step, 5000) ** 3 for step in range(5000))
    assert status(claims.area(cubic, sp.Rational(exact), 5000)) == "PROVED"
    found = claims.area(schedules.inverse_square_root(1, 1, 40), 100, 5000).verify()
    assert found.unknown
    assert "no sum is known of the value from step" in found.reason


def test_closeness_in_units_in_the_last_place() -> None:
    one = schedules.constant(1)
    near = Schedule(1 + sp.Rational(3, 2**52))
    assert status(claims.close(near, one, ulp=3)) == "PROVED"
    assert status(claims.close(near, one, ulp=2)) == "REFUTED"
    assert status(claims.close(near, one, ulp=1, dtype="f32")) == "PROVED"
    later = Schedule(sp.Piecewise((1, t < 50), (2, True)))
    assert status(claims.close(later, one, 0, until=49)) == "PROVED"
    assert claims.close(later, one, 0, until=50).verify().counterexample == {"t": 50}


def test_open_hyperparameters() -> None:
    line = schedules.linear(1, 0, 10).unbind()
    start, end, steps = (cf.expr.hyper(name) for name in ("start", "end", "steps"))
    symbols = {symbol.name: symbol for symbol in line.open}
    start, end, steps = (symbols[name.name] for name in (start, end, steps))
    assert status(claims.argmax(line, 0, assume=[end <= start])) == "PROVED"
    assert status(claims.argmax(line, 0)) == "REFUTED"
    assert status(claims.argmin(line, steps, assume=[end <= start])) == "PROVED"


MISTAKES = [
    (lambda: claims.bounded_change(LR), "a bound on the change is needed, got neither"),
    (lambda: claims.close(LR, LR), "got within=None and ulp=None"),
    (lambda: claims.close(LR, LR, 1, ulp=1), "got within=1 and ulp=1"),
    (lambda: claims.equal(LR, LR, shift=sp.Rational(1, 2)), "an integer shift"),
    (lambda: claims.equal(LR, LR, scale=-1), "a rational scale above 0, got shift=0 and scale=-1"),
    (lambda: claims.area(LR, 1, -1), "steps must be an integer of at least 0, got -1"),
    (lambda: claims.monotone(LR, "up"), "direction must be one of increasing, decreasing"),
]


@pytest.mark.parametrize(("make", "message"), MISTAKES, ids=[each for _, each in MISTAKES])
def test_mistakes_are_named(make: Any, message: str) -> None:
    with pytest.raises(VerificationError, match=message.replace("(", r"\(")):
        make()


# --- asked again from a file ---------------------------------------------------------------------

STATED = {
    "bounded": claims.bounded(LR, 0, 1, where=t < 50),
    "strictly monotone": claims.monotone(LR, "strictly increasing", where=t <= 10),
    "bounded_change": claims.bounded_change(LR, -0.02, 0.1),
    "argmax": claims.argmax(LR, 10),
    "argmin": claims.argmin(LR, 100, where=(t >= 10) & (t < 500)),
    "close": claims.close(LR, schedules.linear(0, 1, 10).then(schedules.linear(1, 0, 90)), 0.11),
    "close in ulp": claims.close(LR, LR, ulp=1, until=80),
    "equal": claims.equal(LR, LR),
    "equal, shifted": claims.equal(LR, Schedule(LR.bound.subs(t, t - 5)), shift=5),
    "area": claims.area(schedules.linear(0, 1, 10), sp.Rational(191, 2), 101),
    "area of many": claims.area(schedules.linear(0, 1, 10), sp.Rational(9991, 2), 5001),
    "periodic": claims.periodic(schedules.constant(1), 3),
    "float_finite": claims.float_finite(LR),
    "float_bounded": claims.float_bounded(schedules.linear(0, 1, 10), 0, 1),
    "float_monotone": claims.float_monotone(schedules.linear(0, 1, 10), "increasing"),
    "float_within": claims.float_within(schedules.linear(1, 2, 10), 4),
    "recurrence": claims.recurrence(
        schedules.multiplicative(8, 0.5), 8, lambda previous, t: previous / 2
    ),
    "sum by induction": claims.area(schedules.multiplicative(1, 0.5), 2 - 2 * 0.5**t),
}


def file_of(claim: Claim, path: Path, *, arguments: Any = None) -> Path:
    assert isinstance(claim.subject, Schedule)
    report = claim.subject.verify(claim)
    assert [finding.shown for finding in report] == ["PROVED"], str(report)
    model = cf.to_onnx(claim.subject, path, claims=report)
    if arguments is not None:
        entry = next(each for each in model.metadata_props if each.key == "closedform.claims")
        content = json.loads(entry.value)
        content[0]["arguments"] = arguments
        entry.value = json.dumps(content)
        onnx.save(model, path)
    return path


@pytest.mark.sample(every=6)
@pytest.mark.parametrize("name", STATED)
def test_a_stated_claim_is_asked_again(name: str, tmp_path: Path) -> None:
    claim = STATED[name]
    assert claim.arguments is not None
    _, report = verify_file(file_of(claim, tmp_path / "lr.onnx"))
    again = [each for each in report if each.claim.name == claim.name][-1]
    assert again.shown == "PROVED", str(report)
    assert not again.claim.is_question


FALSE_ARGUMENTS = {
    "bounded": {"low": "0", "high": "1/2", "where": "t < 50"},
    "strictly monotone": {"direction": "strictly increasing"},
    "bounded_change": {"high": "1/20"},
    "argmax": {"at": "11"},
    "close": {"other": "where(t < 10, t/10, 1)", "within": "1/10"},
    "equal": {"other": "1"},
    "area of many": {"total": "4996", "steps": "5001"},
    "float_bounded": {"low": "1/2", "last": "100"},
    "float_monotone": {"direction": "decreasing", "last": "100"},
    "recurrence": {"first": "8", "step": "previous/3"},
}


@pytest.mark.sample(every=6)
@pytest.mark.parametrize("name", FALSE_ARGUMENTS)
def test_a_false_statement_is_refuted(name: str, tmp_path: Path) -> None:
    path = file_of(STATED[name], tmp_path / "lr.onnx", arguments=FALSE_ARGUMENTS[name])
    _, report = verify_file(path)
    assert [finding.claim.name for finding in report.refuted] == [STATED[name].name]


def test_arguments_are_text_and_back() -> None:
    given = {
        "low": sp.Rational(-1, 3),
        "at": 7,
        "direction": "increasing",
        "where": sp.And(t >= 3, sp.Or(t < 5, sp.Eq(t, 9))),
        "other": sp.Piecewise((t**2, t < 4), (sp.Max(sp.cos(sp.pi * t / 7), sp.exp(-t)), True)),
        "total": sp.sqrt(t + 1) + cf.expr.floor_div(t, 3) * cf.expr.floor_mod(t, 5),
    }
    texts = as_texts(**given, high=None)
    assert texts is not None
    back = read_arguments(json.loads(json.dumps(texts)))
    from closedform.verify.terms.sympy_io import term

    assert back["direction"] == "increasing"
    for name in given.keys() - {"direction"}:
        assert term(sp.sympify(back[name])) == term(sp.sympify(given[name])), name


@pytest.mark.parametrize(
    "arguments",
    [
        {"other": "__import__('os')"},
        {"other": "2**(2**(2**99999))"},
        {"where": "t"},
        {"high": "1e999999999"},
        {"high": "9" * 10_000},
        {"other": "(" * 3000 + "t" + ")" * 3000},
    ],
)
def test_hostile_arguments_are_an_error(arguments: dict[str, str]) -> None:
    with pytest.raises((ValueError, cf.errors.DefinitionError)):
        read_arguments(arguments)
