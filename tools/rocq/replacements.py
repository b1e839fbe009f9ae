"""Terms replaced in facts, with a proof of each equation and equivalence by congruence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tools.rocq.definitions import FUNCTIONS

if TYPE_CHECKING:
    from tools.rocq.script import Script

_CONGRUENCES = {"<": "lt_cong", "<=": "le_cong", "=": "eq_cong"}
_OPERATORS = {"+": "Rplus", "*": "Rmult", "/": "Rdiv", **FUNCTIONS}


def replace_terms(
    script: Script,
    equations: Mapping[int, tuple[int, str]],
    facts: Sequence[int],
    names_in_scope: set[int],
) -> None:
    """States the facts with terms replaced, each by the proof of its equation."""
    terms, node = script.terms, script.definitions.node
    results: dict[int, int] = {}
    proofs: dict[int, str] = {}
    for term in terms.below(*facts):
        op, args, value = terms.nodes[term]
        if term in equations:
            value, proof = equations[term]
            new, further = _image(script, value, term, results, proofs)
            results[term] = new
            proof = proof if further is None else f"(eq_trans {proof} {further})"
            proofs[term] = _equation(script, term, new, proof)
            continue
        if all(results[arg] == arg for arg in args):
            results[term] = term
            continue
        new = results[term] = terms.make(op, [results[arg] for arg in args], value)
        if op == "ite":
            iff = _equivalence(script, args[0], results, proofs)
            values = [proofs.get(arg, f"(eq_refl {node(arg)})") for arg in args[1:]]
            decisions = [script.definitions.decision(c) for c in (args[0], results[args[0]])]
            node(new)
            text = f"(ite_cong {' '.join(decisions)} _ _ _ _ {iff} {' '.join(values)})"
            proofs[term] = _equation(script, term, new, text)
        elif not terms.is_truth(term):
            proofs[term] = _equation(script, term, new, _congruence(script, term, proofs))
    for fact in facts:
        new = results[fact]
        if new != fact:
            equivalence = _equivalence(script, fact, results, proofs)
            script.state(new, f"exact (proj1 {equivalence} f{fact})", names_in_scope)


def _image(
    script: Script, value: int, term: int, results: Mapping[int, int], proofs: Mapping[int, str]
) -> tuple[int, str | None]:
    """The value of a replaced term with the terms inside of it replaced, and the proof."""
    if value in results and value < term:
        return results[value], proofs.get(value)
    op, args, of = script.terms.nodes[value]
    if op not in ("*", "+") or all(results.get(arg, arg) == arg for arg in args):
        return value, None
    new = script.terms.make(op, [results.get(arg, arg) for arg in args], of)
    return new, _equation(script, value, new, _congruence(script, value, proofs))


def _equation(script: Script, term: int, new: int, proof: str) -> str:
    left, right = script.definitions.node(term), script.definitions.node(new)
    name = script.name("s")
    script.write(f"assert ({name} : {left} = {right}) by (refine {proof}; computed).")
    return name


def _congruence(script: Script, term: int, proofs: Mapping[int, str]) -> str:
    op, args, _ = script.terms.nodes[term]
    node = script.definitions.node
    equations = [proofs.get(arg, f"(eq_refl {node(arg)})") for arg in args]
    if op in ("+", "*"):
        text = equations[0]
        for equation in equations[1:]:
            text = f"(f_equal2 {_OPERATORS[op]} {text} {equation})"
        return text
    if op in _OPERATORS:
        return f"(f_equal{'2' if len(args) == 2 else ''} {_OPERATORS[op]} {' '.join(equations)})"
    names = [equation for arg, equation in zip(args, equations, strict=True) if arg in proofs]
    return f"ltac:(unfold {node(term)}; rewrite {', '.join(names)}; reflexivity)"


def _equivalence(
    script: Script, truth: int, results: Mapping[int, int], proofs: Mapping[int, str]
) -> str:
    op, args, _ = script.terms.nodes[truth]
    if results[truth] == truth or op in ("true", "false"):
        return f"(iff_refl {script.definitions.proposition(truth)})"
    if op in _CONGRUENCES:
        node = script.definitions.node
        sides = [proofs.get(arg, f"(eq_refl {node(arg)})") for arg in args]
        return f"({_CONGRUENCES[op]} {' '.join(sides)})"
    parts = [_equivalence(script, arg, results, proofs) for arg in args]
    if op == "not":
        return f"(not_cong {parts[0]})"
    text = parts[-1]
    for part in reversed(parts[:-1]):
        text = f"({op}_cong {part} {text})"
    return text
