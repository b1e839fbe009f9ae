"""The lemmas of ``checker.lemmas`` as terms of Rocq, in the order of the lists there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from flint import fmpq

from closedform.verify.checker.polynomials import Polynomial, plus, whole_constant
from tools.rocq.definitions import Definitions, InexpressibleError, number_text

_OF_ONE = {
    "pi": ("pi_low", "pi_high"),
    "exp": ("exp_pos", "exp_least", "exp_below_one", "exp_above_one", "exp_most"),
    "log": ("log_positive", "log_one", "log_negative", "log_most", "log_least"),
    "atan": (
        "atan_low", "atan_high", "atan_at_zero", "atan_positive", "atan_negative", "atan_most",
        "atan_least",
    ),
    "cospi": (
        "cospi_low", "cospi_high", "cospi_at_zero", "cospi_at_one", "cospi_at_two",
        "cospi_at_half", "cospi_above_minus_one", "cospi_below_one", "cospi_positive",
        "cospi_negative",
    ),
    "floor": (
        "floor_most", "floor_least", "floor_at_least 0", "floor_at_most 0", "floor_at_least 1",
        "floor_at_most 1",
    ),
    "/": ("quotient_times", "quotient_positive", "quotient_negative"),
    "^": (
        "pw_above_zero", "pw_zero_base", "pw_exponent_zero", "pw_exponent_one", "pw_base_one",
        "pw_unit_low", "pw_unit_high", "pw_below_one", "pw_above_one", "pw_above_one_falling",
        "pw_below_one_falling", "pw_tangent_above", "pw_tangent_negative", "pw_tangent_below",
        "pw_at_most_base", "pw_least_zero",
    ),
}  # fmt: skip


def lemma_about(definitions: Definitions, term: int, number: int) -> str:
    """Returns the proof of a lemma about one term.

    Raises:
        InexpressibleError: There is none.
    """
    op, args, value = definitions.terms.nodes[term]
    nodes = [definitions.node(arg) for arg in args]
    definitions.node(term)
    names = _OF_ONE.get(op, ())
    if op == "/" and number > 0:
        return f"({names[number]} {nodes[1]})"
    if number < len(names):
        return f"({names[number]} {' '.join(nodes)})"
    if op == "floor":
        return _of_floor(definitions, args[0], number - len(names))
    if op == "cospi":
        lemmas = "cospi_is_one", "cospi_is_minus_one", "cospi_at_even", "cospi_at_odd"
        lemma = lemmas[number - len(names)]
        return f"({lemma} {nodes[0]} {_quotient(definitions, args[0])})"
    if op == "sinpi":
        quarter_turn = definitions.terms.make(
            "+", (args[0], definitions.terms.multiply(
                definitions.terms.rational(-1), definitions.terms.rational(fmpq(1, 2)))),
        )  # fmt: skip
        return f"(sinpi_cospi {nodes[0]} {definitions.node(quarter_turn)} eq_refl)"
    if op == "lookup":
        return _of_table(definitions, args[0], cast("tuple[fmpq, ...]", value), number)
    if op == "^":
        return _of_power(definitions, args, number - len(names))
    raise InexpressibleError(f"lemma {number} about {op} is not printed")


def _of_floor(definitions: Definitions, operand: int, number: int) -> str:
    node = definitions.node(operand)
    if definitions.forms.is_whole(definitions.forms.of(operand)):
        if number == 0:
            return f"(floor_whole {node} {definitions.integer_node(operand)})"
        number -= 1
    of_quotient = "floor_quotient_most", "floor_quotient_least"
    if number < len(of_quotient):
        return f"({of_quotient[number]} {node} {_quotient(definitions, operand)})"
    lemma = ("floor_log_most", "floor_log_least")[number - len(of_quotient)]
    nodes = definitions.terms.nodes
    operands = (definitions.node(nodes[logarithm][1][0]) for logarithm in nodes[operand][1])
    return f"({lemma} {' '.join(operands)})"


def _quotient(definitions: Definitions, number: int) -> str:
    """The dividend and the divisor of a number, and the lemma that it is their quotient."""
    forms = definitions.forms
    above, below = definitions.replay.lemmas._quotient(number)
    node, *parts = (definitions.node(term) for term in (number, above, below))
    if above == number:
        proof = f"intros _. unfold {parts[1]}. field."
    else:
        form = forms.of(number)
        atoms = {atom for monomial in form for atom, _ in monomial}
        (inverse,) = (atom for atom in atoms if forms.atoms[atom][0] == "inv")
        proof = (
            f"intros H. {definitions.rewriting([below]).replace('. ', ' in H. ')}"
            f"{definitions.rewriting((number, above, below))}"
            f"unfold {definitions.atom(inverse)}. by_field H."
        )
    name = f"T{len(definitions.lines)}"
    definitions.write(f"Lemma {name} : {parts[1]} <> 0 -> {node} = {parts[0]} / {parts[1]}.")
    definitions.write(f"Proof. {proof} Qed.")
    return f"{' '.join(parts)} {name}"


def _of_table(definitions: Definitions, index: int, entries: tuple[fmpq, ...], number: int) -> str:
    texts = "; ".join(number_text(entry) for entry in entries)
    bound, name = (min(entries), "table_low") if number == 0 else (max(entries), "table_high")
    is_each = "ltac:(repeat first [apply List.Forall_nil | apply List.Forall_cons; [lra |]])"
    integer = definitions.integer_node(index)
    return (
        f"({name} [{texts}] ({number_text(bound)}) {len(entries) - 1} {definitions.node(index)} "
        f"{integer} {is_each} eq_refl)"
    )


def _of_power(definitions: Definitions, args: tuple[int, ...], number: int) -> str:
    base, exponent = (definitions.node(arg) for arg in args)
    form = definitions.forms.of(args[1])
    proofs = []
    if form == definitions.forms.of(definitions.terms.rational(fmpq(1, 2))):
        equality = definitions.equality(args[1])
        proofs = [f"(pw_root_low {base} {exponent} {equality})",
                  f"(pw_root {base} {exponent} {equality})"]  # fmt: skip
    if definitions.forms.is_whole(form):
        proofs.append(f"(pw_not_zero {base} {exponent} {definitions.integer_node(args[1])})")
    return proofs[number]


def lemma_about_two(definitions: Definitions, first: int, second: int, number: int) -> str:
    """Returns the proof of a lemma about two terms of one function.

    Raises:
        InexpressibleError: There is none.
    """
    terms = definitions.terms
    op, left, _ = terms.nodes[first]
    op_of_second, right, _ = terms.nodes[second]
    nodes = [definitions.node(arg) for arg in (*left, *right)]
    if (op, op_of_second) == ("^", "exp"):
        return f"(pw_is_exp {' '.join(nodes)})"
    if op == "exp":
        names = ("exp_step", "exp_same", "exp_increasing")
        return f"({names[number]} {' '.join(nodes)})"
    if op == "log":
        return f"({('log_same', 'ln_increasing')[number]} {' '.join(nodes)})"
    if op == "atan":
        return f"({('atan_same', 'atan_increasing')[number]} {' '.join(nodes)})"
    if op == "floor":
        names = ("floor_monotone", "floor_next", "floor_order")
        return f"({names[number]} {' '.join(nodes)})"
    if op == "cospi":
        of_cosines = ("cospi_same", "cospi_mirrored", "cospi_falls", "cospi_rises")
        if number < len(of_cosines):
            return f"({of_cosines[number]} {' '.join(nodes)})"
        last = "cospi_from_one", "cospi_from_minus_one", "cospi_product"
        place = number - len(definitions.replay.lemmas.of_pair(first, second))
        if place >= -len(last):
            return f"({last[place]} {' '.join(nodes)})"
        is_double = definitions.forms.of(left[0]) == plus({}, definitions.forms.of(right[0]), 2)
        if is_double and number == len(of_cosines):
            return _of_double(definitions, left[0], right[0])
        return _of_turns(definitions, left[0], right[0], number - len(of_cosines) - is_double)
    if op == "^":
        return _of_powers(definitions, left, right, number)
    raise InexpressibleError(f"lemma {number} about two of {op} is not printed")


def _of_double(definitions: Definitions, left: int, right: int) -> str:
    a, b = definitions.node(left), definitions.node(right)
    rewriting = definitions.rewriting((left, right))
    name = f"T{len(definitions.lines)}"
    definitions.write(f"Lemma {name} : {a} = 2 * {b}.")
    definitions.write(f"Proof. {rewriting}polynomials. Qed.")
    return f"(cospi_double {a} {b} {name})"


def _of_turns(definitions: Definitions, left: int, right: int, number: int) -> str:
    """The lemma about the difference of two angles or their sum, the first that is whole or not."""
    forms, half_turns = definitions.forms, definitions.replay.lemmas.half_turns
    shift = forms.of(definitions.terms.rational(fmpq(1, 2)))
    kinds = []
    for sign in (-1, 1):
        _, half = half_turns(left, right, sign)
        if forms.is_whole(half):
            kinds.append((sign, "cospi_whole", half))
        elif forms.is_whole(plus(half, shift)):
            kinds.append((sign, "cospi_half_turn", plus(half, shift)))
    sign, lemma, half = kinds[number]
    divisors: dict[int, Polynomial] = {}
    turns = plus(forms.of(left), forms.of(right), sign)
    for atom in sorted({atom for monomial in turns for atom, _ in monomial}):
        if forms.atoms[atom][0] == "inv":
            (divisors[atom],) = forms.arguments[atom]
    a, b = definitions.node(left), definitions.node(right)
    names = " ".join(f"N{atom}" for atom in divisors)
    text = f"({a} {'+' if sign > 0 else '-'} {b}) / 2"
    text += " + 1 / 2" if lemma == "cospi_half_turn" else ""
    lemma += "_sum" if sign > 0 else ""
    proof = _is_integer(definitions, text, half, divisors, left, right)
    if not divisors:
        return f"({lemma} {a} {b} {proof})"
    return f"(fun {names} => {lemma} {a} {b} ({proof} {names}))"


def _is_integer(
    definitions: Definitions,
    text: str,
    form: Polynomial,
    divisors: Mapping[int, Polynomial],
    *terms: int,
) -> str:
    """The lemma that a number is an integer, where the divisors that it is free of are not 0."""
    zero = definitions.node(definitions.terms.rational(0))
    premises, tactics, end = "", "", "polynomials"
    for atom, divisor in divisors.items():
        if [sum(exponent for _, exponent in monomial) for monomial in divisor] != [1]:
            raise InexpressibleError("a period in units of a sum is not printed")
        term = definitions.forms.term_of(divisor)
        node = definitions.node(term)
        base = definitions.atom(next(iter(divisor))[0][0])
        premises += f"~ ({node} = {zero}) -> "
        tactics += (
            f"intros N{atom}. assert (M{atom} : {base} <> 0) by (intro M; apply N{atom}; "
            f"{definitions.rewriting([term]).replace('. ', '; ')}unfold {zero}; lra). "
        )
        end = f"{f'unfold {definitions.atom(atom)}; '}{end}"
    if divisors:
        end = end.replace("polynomials", "field; repeat split; assumption")
    integers = definitions.integers(form)
    rewriting = definitions.rewriting(terms)
    polynomial = definitions.polynomial(form)
    name = f"T{len(definitions.lines)}"
    definitions.write(f"Lemma {name} : {premises}is_int ({text}).")
    definitions.write(
        f"Proof. {tactics}{rewriting}apply (int_eq (y := {polynomial})); "
        f"[{end} | exact {integers}]. Qed."
    )
    return name


def _of_powers(
    definitions: Definitions, left: tuple[int, ...], right: tuple[int, ...], number: int
) -> str:
    forms, terms = definitions.forms, definitions.terms
    (a, x), (b, y) = left, right
    base, exponent, other_base, second_exponent = (definitions.node(arg) for arg in (a, x, b, y))
    proofs = [f"(pw_same {base} {other_base} {exponent} {second_exponent})"]
    if forms.of(x) == forms.of(y):
        equation = _equality_of(definitions, x, y)
        proofs += [
            f"(pw_{name}_by {base} {other_base} {exponent} {second_exponent} {equation})"
            for name in ("monotone", "strict", "reversed", "quotient")
        ]
    if forms.of(a) == forms.of(b):
        equation = _equality_of(definitions, a, b)
        names = ("grows", "falls", "falls_strictly", "grows_strictly", "step")
        proofs += [
            f"(pw_{name}_by {base} {other_base} {exponent} {second_exponent} {equation})"
            for name in names
        ]
        length = whole_constant(forms.difference(y, x))
        if length is not None and length >= 0 and forms.is_whole(forms.of(x)):
            gap = definitions.node(terms.subtract(y, x))
            equality = definitions.equality(terms.subtract(y, x))
            whole = definitions.integer_node(x)
            proofs.append(
                f"(pw_whole_step_by {base} {other_base} {exponent} {second_exponent} "
                f"{length} {equation} {whole} "
                f"({equality or f'eq_refl {gap}'}))"
            )
    return proofs[number]


def _equality_of(definitions: Definitions, left: int, right: int) -> str:
    if left == right:
        return "eq_refl"
    name = f"T{len(definitions.lines)}"
    a, b = definitions.node(left), definitions.node(right)
    rewriting = definitions.rewriting((left, right))
    definitions.write(f"Lemma {name} : {a} = {b}.")
    definitions.write(f"Proof. {rewriting}reflexivity. Qed.")
    return name
