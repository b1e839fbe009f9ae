"""Rocq accepts the printed proofs of true goals and rejects proofs of false goals.

The tests that run `coqc` are skipped only where it is not installed; a separate CI job has it.
"""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

import closedform as cf
from closedform.verify.checker.terms import CHOICES
from closedform.verify.claims.certified import CertifiedGoal
from closedform.verify.search.refutation import find_proof
from closedform.verify.search.statements import statement_of
from closedform.verify.terms.build import (
    add,
    atan,
    cospi,
    divide,
    equal,
    floor,
    less,
    less_equal,
    log,
    multiply,
    power,
    rational,
    subtract,
    symbol,
)
from closedform.verify.terms.tree import Sign, Term
from tests.rocq.coq import COQC, Coq, with_library
from tests.verify.checker.lemma_samples import SAMPLES, sample_of
from tests.verify.test_goals import GOALS
from tools.rocq import files
from tools.rocq.__main__ import main
from tools.rocq.definitions import Definitions
from tools.rocq.files import (
    AXIOMS_OF_REALS,
    LIBRARY,
    RocqFile,
    module_name,
    printed_axioms,
    rocq_file,
    unexpected_axioms,
)
from tools.rocq.lemma_names import lemma_about, lemma_about_two
from tools.rocq.script import claim_section

needs_coqc = pytest.mark.skipif(COQC is None, reason="coqc is not installed")


@pytest.fixture(scope="module")
def coq(tmp_path_factory: pytest.TempPathFactory) -> Coq:
    return with_library(tmp_path_factory.mktemp("rocq"))


def library() -> str:
    return (Path(files.__file__).parent / LIBRARY).read_text(encoding="utf-8")


def goal_of(goal: Term, assume: Iterable[Term] = ()) -> CertifiedGoal:
    """A goal with its proof."""
    statement = statement_of(goal, tuple(assume))
    return CertifiedGoal("the claim", "the goal", statement, find_proof(statement))


def test_the_library_proves_everything() -> None:
    text = library()
    assert text.count("\nLemma ") >= 40
    for word in ("Admitted", "admit", "Axiom", "Parameter", "Conjecture", "Hypothesis"):
        assert not re.search(rf"\b{word}\b", text), word


def test_a_certificate_is_printed_next_to_its_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certificate = cf.schedules.linear(1e-3, 0, 10).verify().certificate()
    certificate.write(tmp_path / "a-linear one.json")
    main([str(tmp_path / "a-linear one.json")])
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "Closedform.v", "a-linear one.json", "a_linear_one.v", "a_linear_one_claims.v",
    ]  # fmt: skip
    file = rocq_file("a_linear_one", certificate.subject, certificate.goals)
    total = len(certificate.goals)
    line = f"Rocq: {total - len(file.reasons)} of {total} proved goals printed"
    assert capsys.readouterr().out.splitlines()[0] == line
    assert (tmp_path / "Closedform.v").read_text(encoding="utf-8") == library()
    text = (tmp_path / "a_linear_one.v").read_text(encoding="utf-8")
    assert text == file.text
    assert "Theorem holds" in text
    claims = (tmp_path / "a_linear_one_claims.v").read_text(encoding="utf-8")
    assert re.search(r"@a_linear_one\.goal_\d\.holds", claims)
    assert claims.rstrip().endswith("Print Assumptions claims.")


def test_a_file_that_is_not_a_certificate_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text('{"version": 1}', encoding="utf-8")
    with pytest.raises(ValueError, match="a certificate of version 5 is expected, got 1"):
        main([str(path)])
    assert [file.name for file in tmp_path.iterdir()] == ["other.json"]


def proofs_of_lemmas(module: str, functions: Sequence[Term]) -> str:
    """The lemmas about some functions, each with the proof that a script has of it."""
    sample = sample_of(functions)
    definitions = Definitions(sample.replay)
    lines = []
    for number, (about, place) in enumerate(sample.lemmas):
        truth = sample.replay.terms.positive_form(sample.truth(about, place))
        proposition = definitions.proposition(truth)
        proof = (
            lemma_about(definitions, about[0], place)
            if len(about) == 1
            else lemma_about_two(definitions, about[0], about[1], place)
        )
        lines += [f"Lemma lemma_{number} : {proposition}.", f"Proof. imply {proof}. Qed."]
    lines = [*definitions.declarations(), *definitions.lines, *lines]
    return "\n".join(
        [f"Module {module}.", "Section Proofs.", *lines, "End Proofs.", f"End {module}."]
    )


@needs_coqc
def test_the_lemmas_of_the_checker_are_proved(coq: Coq) -> None:
    """All but those of choices, which a script proves by their cases."""
    modules = [
        proofs_of_lemmas(f"sample_{place}", functions)
        for place, functions in enumerate(SAMPLES.values())
        if functions[0].op.value not in CHOICES
    ]
    head = rocq_file("lemmas", "lemmas", []).text
    result = coq.check(RocqFile("lemmas", "\n".join([head, *modules]), "", {}))
    assert result.returncode == 0, result.stderr


@needs_coqc
def test_a_report_is_accepted(coq: Coq) -> None:
    """Cosines at both ends, a choice on an integer clock, a difference of two steps."""
    certificate = cf.schedules.cosine(1e-3, 1e-5, 100).verify().certificate()
    file = rocq_file("cosine", certificate.subject, certificate.goals)
    assert len(certificate.goals) - len(file.reasons) >= 6
    result = coq.check(file)
    assert result.returncode == 0, result.stderr
    assert "ClassicalDedekindReals.sig_forall_dec" in result.stdout
    assert unexpected_axioms(result.stdout) == ()


@needs_coqc
def test_quotients_and_powers_are_accepted(coq: Coq) -> None:
    """A divisor with fractions; powers of open intervals, and of exact ends."""
    x = symbol("x", sign=Sign.NONNEGATIVE)
    divisor = add(rational(1), multiply(rational(1, 2), x))
    root = power(add(x, rational(40)), rational(1, 2))
    shares = [less_equal(x, rational(4))]
    goals = [
        goal_of(goal, assume)
        for goal, assume in (
            (less_equal(divide(rational(1), divisor), rational(1)), []),
            (less(rational(6), root), []),
            (less_equal(power(add(x, rational(40)), rational(-1, 2)), rational(1, 6)), []),
            (less_equal(power(x, rational(1, 2)), rational(2)), shares),
            (less_equal(power(add(x, rational(1)), rational(-2)), rational(1)), shares),
        )
    ]
    # A box refutes a fact that is a disjunction with an inequality inside.
    (junction,) = (goal for goal in GOALS if goal.name == "k decay: defined ((t + (-1 * W)) ^ k)")
    goals.append(goal_of(junction.goal, junction.assume))
    file = rocq_file("powers", "powers", goals)
    assert not file.reasons
    assert "/ (1 + 1 / 2 * (n" in file.text
    assert "b_pw_base_low" in file.text
    assert re.search(r"fun g : \(~ \(n\d+ = n\d+\)\) => g", file.text)
    result = coq.check(file)
    assert result.returncode == 0, result.stderr


def goals_of_quotients() -> list[CertifiedGoal]:
    """Floors of quotients and of logarithms, products of cosines, quotients of powers.

    The last one is proved by its parts: its floor is 1.
    """
    x, y, n = map(symbol, ("x", "y", "n"))
    one, two, zero = (rational(number) for number in (1, 2, 0))
    whole = floor(divide(log(n), log(y)))
    signs = less(one, y), less(zero, n)
    sum_of_cosines = add(cospi(add(x, y)), cospi(subtract(x, y)))
    ratio = power(divide(y, n), x)
    step = symbol("t", integer=True, sign=Sign.NONNEGATIVE)
    period = symbol("T", integer=True, sign=Sign.POSITIVE)
    cycles = floor(divide(add(step, period), period))
    powers = (power(x, divide(step, below)) for below in (multiply(period, cycles), period))
    return [
        goal_of(less_equal(power(y, whole), n), signs),
        goal_of(less(n, multiply(y, power(y, whole))), signs),
        goal_of(
            less_equal(floor(divide(add(x, y), y)), add(floor(divide(x, y)), one)), [less(zero, y)]
        ),
        goal_of(equal(multiply(two, cospi(x), cospi(y)), sum_of_cosines)),
        goal_of(equal(power(y, x), multiply(power(n, x), ratio)), signs),
        goal_of(equal(*powers), [less(step, period), less(zero, x)]),
    ]


@needs_coqc
def test_floors_of_quotients_are_accepted(coq: Coq) -> None:
    goals = goals_of_quotients()
    assert '"keep"' in json.dumps(goals[-1].proof)
    file = rocq_file("quotients", "goals", goals)
    assert file.reasons == {}
    for lemma in ("floor_log_most", "floor_log_least", "cospi_product", "pw_quotient_by"):
        assert lemma in file.text
    result = coq.check(file)
    assert result.returncode == 0, result.stderr


def goals_of_intervals() -> list[CertifiedGoal]:
    """A remainder, a product of a sum, roots, half angles, periods of variables, arctangents."""
    clock, rate = symbol("t", integer=True, sign=Sign.NONNEGATIVE), symbol("a")
    unit = symbol("T", integer=True)
    remainder = add(clock, multiply(rational(-25), floor(divide(clock, rational(25)))))
    half = rational(1, 2)
    angle = cospi(rate)
    double = cospi(multiply(rational(2), rate))
    in_unit = less_equal(rational(0), rate), less_equal(rate, rational(1))
    return [
        goal_of(less_equal(remainder, rational(24))),
        goal_of(
            less_equal(multiply(rate, add(rational(1), multiply(rational(-1), rate))), rational(1)),
            in_unit,
        ),
        goal_of(equal(power(rational(12), half), multiply(rational(2), power(rational(3), half)))),
        goal_of(equal(add(double, rational(1)), multiply(rational(2), power(angle, rational(2))))),
        goal_of(less_equal(atan(rate), rational(11, 7))),
        goal_of(less_equal(atan(rate), rational(4, 5)), in_unit),
        goal_of(less(rational(-8, 5), multiply(rate, atan(rate))), in_unit),
        goal_of(less(atan(rate), atan(add(rate, rational(1))))),
        goal_of(less_equal(multiply(rate, atan(rate)), multiply(rate, rate)), in_unit),
        *(
            goal_of(
                equal(
                    cospi(divide(add(rate, multiply(rational(turns), unit)), unit)),
                    multiply(rational((-1) ** turns), cospi(divide(rate, unit))),
                ),
                [less(rational(0), unit)],
            )
            for turns in (1, 2)
        ),
    ]


@needs_coqc
def test_the_intervals_of_remainders_and_products_are_accepted(coq: Coq) -> None:
    file = rocq_file("intervals", "goals", goals_of_intervals())
    assert file.reasons == {}
    result = coq.check(file)
    assert result.returncode == 0, result.stderr


@needs_coqc
@pytest.mark.exhaustive
def test_the_library_uses_the_axioms_of_reals_and_integers(coq: Coq) -> None:
    names = re.findall(r"^Lemma (\w+)", library(), re.MULTILINE)
    pairs = f"@{names[-1]}"
    for name in reversed(names[:-1]):
        pairs = f"(@{name}, {pairs})"
    result = coq.check(
        RocqFile(
            "assumptions",
            "From Closedform Require Import Closedform.\n"
            f"Definition lemmas := {pairs}.\nPrint Assumptions lemmas.\n",
            "",
            {},
        )
    )
    assert result.returncode == 0, result.stderr
    assert unexpected_axioms(result.stdout) == ()
    assert printed_axioms(result.stdout) >= AXIOMS_OF_REALS


@needs_coqc
def test_the_axioms_of_reals_are_those_of_the_standard_library(coq: Coq) -> None:
    """Nothing but the standard library is loaded: its logarithm depends on the excluded middle."""
    text = "From Coq Require Import Reals.\nPrint Assumptions ln.\n"
    result = coq.check(RocqFile("standard", text, "", {}))
    assert printed_axioms(result.stdout) == AXIOMS_OF_REALS


@needs_coqc
@pytest.mark.exhaustive
def test_floats_of_the_machine_are_not_among_the_axioms(coq: Coq) -> None:
    """Without a precision, the tactic ``interval`` computes with them."""
    text = (
        "From Coq Require Import Reals.\nFrom Interval Require Import Tactic.\n"
        "Lemma bound : (exp 1 <= 3)%R.\nProof. interval. Qed.\nPrint Assumptions bound.\n"
    )
    result = coq.check(RocqFile("floats", text, "", {}))
    assert "PrimFloat.float" in unexpected_axioms(result.stdout)


@needs_coqc
def test_claims_that_are_not_proved_are_rejected(coq: Coq) -> None:
    """The file of the claims, printed from a false or another statement, beside a true proof."""
    x = symbol("x", sign=Sign.NONNEGATIVE)
    true = less_equal(rational(-1), cospi(x))
    file = rocq_file("true", "it is true", [goal_of(true)])
    assert coq.check(RocqFile("true", file.text, "", {})).returncode == 0
    claims = (
        less_equal(rational(-1), cospi(x)),
        less_equal(rational(1), cospi(x)),
        less_equal(rational(-1), cospi(symbol("x"))),
    )
    head = file.claims.partition("Module goal_0.")[0]
    assert "Open Scope R_scope." in head
    for number, claim in enumerate(claims):
        section = claim_section("goal_0", "true", statement_of(claim), {"x_x": "R"})
        name = f"other_{number}"
        is_accepted = coq.check(RocqFile(name, head + section, "", {})).returncode == 0
        assert is_accepted == (number == 0), claim


def test_axioms_are_read_from_the_output() -> None:
    output = (
        "Axioms:\nPrimInt63.sub : int -> int -> int\nUint63.of_to_Z\n  : forall x : int,\n"
        "    of_Z (to_Z x) = x\nClassicalDedekindReals.sig_not_dec\n  : forall P : Prop, {~ ~ P}\n"
    )
    assert unexpected_axioms(output) == ()
    for name in ("PrimInt63.trusted", "M.axiom", "axiom"):
        assert unexpected_axioms(f"{output}{name} : False\n") == (name,)


def test_a_goal_without_a_proof_has_a_reason() -> None:
    file = rocq_file("none", 'a "subject" (* here *)', [CertifiedGoal("a", "b", None, None, "c")])
    assert file.reasons == {0: "it has no proof object"}
    assert "Theorem" not in file.text
    assert file.text.count("(*") == file.text.count("*)") == 1


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("cosine", "cosine"),
        ("lr: 1-cycle", "lr_1_cycle"),
        ("2", "claims_2"),
        ("Closedform", "claims_Closedform"),
    ],
)
def test_names_of_modules(name: str, module: str) -> None:
    assert module_name(name) == module
