"""Relations between polynomials that follow by rounding, and by clearing of a divisor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flint import fmpq

from closedform.verify.checker.polynomials import UNIT, Polynomial, clear, content, plus
from closedform.verify.checker.replay import Facts
from tools.rocq.definitions import LITERALS, number_text

if TYPE_CHECKING:
    from tools.rocq.script import Script


def round_fact(
    script: Script, rest: list[Any], facts: Facts, parts: Any, names_in_scope: set[int]
) -> Any:
    """Returns what follows the step ``round``: a relation of integers, at the next integer."""
    fact, claim = facts[rest[0]], script.places[rest[1]]
    literal = script.replay.relation(fact)
    rounding = script.replay.round_relation(literal)
    scale = content(literal.form)
    whole = {monomial: value / scale for monomial, value in literal.form.items()}
    offset = whole.pop(UNIT, fmpq(0))
    is_strict = literal.relation == ">"
    least = int((-offset).floor()) + 1 if is_strict else int((-offset).ceil())
    polynomial = script.definitions.polynomial
    integers = script.definitions.integers(whole)
    name = script.name()
    script.write(
        f"assert ({name} : 0 <= {polynomial(whole)} - IZR ({least})) by (refine "
        f"(round_{'above' if is_strict else 'least'} (c := {number_text(scale)}) "
        f"(o := {number_text(offset)}) ({least}) {integers} {script.positive(scale)} _ _ "
        f"{script.literal_proof(fact)}); [polynomials | lra])."
    )
    target = script.replay.relation(claim)
    back = f"of_{LITERALS[target.relation]} {script.definitions.difference(claim)}"
    weaker = script.weakening(">=", rounding.form, target.relation, target.form, name)  # type: ignore[union-attr]
    return [lambda names_in_scope: script.state(claim, f"apply ({back}); {weaker}", names_in_scope)]


def clear_divisor(
    script: Script, rest: list[Any], facts: Facts, parts: Any, names_in_scope: set[int]
) -> Any:
    """Returns what follows the step ``clear``: a relation multiplied by a power of a divisor."""
    fact, divisor = facts[rest[0]], script.places[rest[1]]
    claim = script.places[rest[2]]
    literal = script.replay.relation(fact)
    product = script.replay.clear_divisor(literal, divisor, facts)
    terms, definitions = script.terms, script.definitions
    zero = terms.rational(0)
    signs = (
        terms.less(zero, divisor),
        terms.less(divisor, zero),
        terms.negate(terms.equal(divisor, zero)),
    )
    sign = next(sign for sign in signs if script.replay.entails(facts, sign))
    is_negative = sign == signs[1]
    fact_of_sign = script.entail(facts, sign, names_in_scope)
    # The divisor as it stands in the normal forms; its sign.
    ((monomial, scale),) = script.replay.forms.inverse(script.replay.forms.of(divisor)).items()
    form = plus({}, script.replay.forms.of(divisor), scale)
    text = definitions.polynomial(form)
    not_zero, sign_proof = script.name(), script.name()
    rewriting = definitions.rewriting([divisor])
    script.write(
        f"assert ({not_zero} : {text} <> 0) by (let z := fresh in intro z; "
        f"assert (e : {definitions.node(divisor)} = 0) "
        f"by ({rewriting.replace('. ', '; ')}first [exact z | lra]); "
        f"unfold {definitions.node(zero)} in *; first [exact ({fact_of_sign} e) | lra])."
    )
    atom = monomial[0][0]
    degree = _degree(script, literal.form, product.form, atom)
    base = text
    if is_negative == (scale > 0) and literal.relation in (">", ">="):
        opposite = {m: -c for m, c in form.items()}
        base = definitions.polynomial(opposite)
    target = script.replay.relation(claim)
    back = f"of_{LITERALS[target.relation]} {definitions.difference(claim)}"
    source = definitions.polynomial(literal.form)
    result = definitions.polynomial(product.form)
    kind = LITERALS[literal.relation]
    name = script.name()
    unfolding = (
        f"unfold {definitions.atom(atom)}"
        if script.replay.forms.atoms[atom][0] == "inv"
        else "idtac"
    )
    field = f"{unfolding}; by_field {not_zero}"
    proof = script.literal_proof(fact)
    if literal.relation in ("=", "!="):
        hole = f"{not_zero} " if literal.relation == "!=" else ""
        tactic = f"refine (clear_{kind} (d := {base}) {degree} {hole}_ {proof}); {field}"
    elif degree % 2 == 0:
        hole = f"{not_zero} " if literal.relation == ">" else ""
        root = text
        half = degree // 2
        tactic = f"refine (clear_{kind}_even (d := {root}) {half} {hole}_ {proof}); {field}"
    else:
        script.write(
            f"assert ({sign_proof} : 0 < {base}) by (generalize {fact_of_sign}; "
            f"{rewriting.replace('. ', '; ')}unfold {definitions.node(zero)}; intros; lra)."
        )
        tactic = f"refine (clear_{kind} (d := {base}) {degree} {sign_proof} _ {proof}); {field}"
    relation = {">": "0 < {}", ">=": "0 <= {}", "=": "{} = 0", "!=": "{} <> 0"}[
        literal.relation
    ].format(f"({result})")
    script.write(f"assert ({name} : {relation}).")
    script.write(f"{{ (* {source} *) {tactic}. }}")
    weaker = script.weakening(literal.relation, product.form, target.relation, target.form, name)
    return [lambda names_in_scope: script.state(claim, f"apply ({back}); {weaker}", names_in_scope)]


def _degree(script: Script, before: Any, after: Any, atom: int) -> int:
    """How many times a relation was multiplied by its divisor."""
    divisor = script.replay.forms.arguments[atom]
    form: Polynomial = (
        divisor[0] if script.replay.forms.atoms[atom][0] == "inv" else {((atom, 1),): fmpq(1)}
    )
    return clear(before, atom, form)[1]
