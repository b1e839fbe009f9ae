"""Interval arithmetic of a step, with a proof of each interval for Rocq.

The intervals are computed as in the checker. A proof of one is a term that combines the proofs
of its parts by the lemmas ``b_…`` of ``Closedform.v``; the kernel computes their ends. A value of
a cosine, an exponential, a logarithm or a power at a fraction is bounded by a separate lemma.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flint import fmpq

from closedform.verify.checker import intervals as arithmetic
from closedform.verify.checker.intervals import EVERYWHERE, Interval, Intervals
from closedform.verify.checker.polynomials import UNIT, Monomial, Polynomial, key_of
from tools.rocq.definitions import Definitions, InexpressibleError, number_text
from tools.rocq.ends import Proof, end_text, ends_text, opposite, rational_text
from tools.rocq.function_bounds import (
    function_bounds,
    inverse_bounds,
    size_bounds,
)

if TYPE_CHECKING:
    from tools.rocq.script import Script

_WITH_PARTS = {*arithmetic._OF_ONE, *arithmetic._OF_TWO} - {"sinpi"}
"""The functions whose intervals are those of their arguments; a sine is printed as a cosine."""


class Bounds:
    """The intervals of numbers where some facts hold, with their proofs."""

    def __init__(self, script: Script, facts: Sequence[int], names_in_scope: set[int]) -> None:
        self.script = script
        self.definitions: Definitions = script.definitions
        self.replay = script.replay
        self.forms = self.replay.forms
        self.facts = tuple(facts)
        self.intervals = Intervals(self.replay, self.facts)
        self.names_in_scope = names_in_scope
        self._atoms: dict[int, Proof] = {}

    # --- numbers ---------------------------------------------------------------------------------

    def widen(self, proof: Proof, target: Interval) -> Proof:
        """The proof of an interval that holds another one."""
        if proof[1] == target:
            return proof
        (low, high), (least, most) = proof[1], target
        # The kernel would refuse a wrong containment; this error names it before Rocq runs.
        holds_low = least is None or (low is not None and least <= low)
        holds_high = most is None or (high is not None and high <= most)
        if not (holds_low and holds_high):
            raise InexpressibleError("an interval of the checker is narrower than its proof")
        return f"(b_wide {ends_text(target)} _ {proof[0]})", target

    def atom(self, atom: int) -> Proof:
        """Returns the proof of the interval of an atom, a hypothesis."""
        if atom not in self._atoms:
            name = self.definitions.atom(atom)
            target = self.intervals._of_atom(atom)
            if target == EVERYWHERE:
                self._atoms[atom] = f"(b_unknown {name})", target
                return self._atoms[atom]
            proof = self.widen(self._make(atom, target), target)
            hypothesis = self.script.name("b")
            self.script.write(
                f"assert ({hypothesis} : bnd {ends_text(target)} {name}) "
                f"by (refine {proof[0]}; computed)."
            )
            self._atoms[atom] = hypothesis, target
        return self._atoms[atom]

    def form(self, form: Polynomial) -> Proof:
        """Returns the proof of the interval of a polynomial, as it is printed."""
        total: Proof | None = None
        for monomial, coefficient in key_of(form):
            part = self._term(monomial, coefficient)
            if total is None:
                total = part
                continue
            (low, high), (least, most) = total[1], part[1]
            ends = (
                None if low is None or least is None else low + least,
                None if high is None or most is None else high + most,
            )
            total = f"(b_add {total[0]} {part[0]})", ends
        if total is None:
            return "(b_whole 0)", (fmpq(0), fmpq(0))
        # The printed proof may be as narrow as the checker's interval without its remainder rule.
        if _holds(self.intervals.of(form), total[1]):
            return total
        return self._common(total, self._remainder(form))

    def _common(self, first: Proof, second: Proof) -> Proof:
        """The interval that two intervals of a number have in common."""
        low, high = target = arithmetic._common(first[1], second[1])
        below = above = ""
        if low is not None:
            below = self.widen(first if first[1][0] == low else second, (low, None))[0]
        if high is not None:
            above = self.widen(first if first[1][1] == high else second, (None, high))[0]
        return self.join_ends(below, above, target)

    def _remainder(self, form: Polynomial) -> Proof:
        """The interval of a polynomial with a floor as its argument less a remainder."""
        split = self.intervals.remainder_of(form)
        if split is None:
            return f"(b_unknown ({self.definitions.polynomial(form)}))", EVERYWHERE
        atom, slope, replaced, least = split
        argument = self.forms.arguments[atom][0]
        text = f"({self.definitions.polynomial(argument)})"
        if least > -1:
            divisor = int(least.q)
            multiple = {monomial: number * divisor for monomial, number in argument.items()}
            integer = self.definitions.integer_multiple(divisor, argument, multiple)
            proof = f"(b_remainder {text} {divisor} {integer})"
        else:
            proof = f"(b_fraction {text})"
        proof, _ = self.widen((proof, (least, fmpq(0))), (least, fmpq(0)))
        whole = self.form(replaced)
        part = self._scaled((f"(b_wide {ends_text((least, fmpq(0)))} _ {proof})",
                             (least, fmpq(0))), slope)  # fmt: skip
        difference = f"({self.definitions.atom(atom)} - {text})"
        if slope != 1:
            difference = f"{number_text(slope)} * {difference}"
        equation = (
            f"(ltac:(polynomials) : {self.definitions.polynomial(form)} = "
            f"{self.definitions.polynomial(replaced)} + {difference})"
        )
        ends = arithmetic._plus(whole[1], part[1])
        return f"(b_equal {equation} (b_add {whole[0]} {part[0]}))", ends

    def _term(self, monomial: Monomial, coefficient: fmpq) -> Proof:
        above, below = int(coefficient.p), int(coefficient.q)
        if monomial == UNIT:
            lemma = f"(b_whole ({above}))" if below == 1 else f"(b_number ({above}) {below})"
            return lemma, (coefficient, coefficient)
        proof: Proof | None = None
        for atom, exponent in monomial:
            factor = self._power(atom, exponent)
            proof = factor if proof is None else self._product(proof, factor)
        if proof is None:
            raise InexpressibleError("a monomial without factors")
        return self._scaled(proof, coefficient)

    @staticmethod
    def _scaled(proof: Proof, coefficient: fmpq) -> Proof:
        if coefficient == 1:
            return proof
        above, below = int(coefficient.p), int(coefficient.q)
        low, high = proof[1]
        ends = (
            None if low is None else low * coefficient,
            None if high is None else high * coefficient,
        )
        if coefficient < 0:
            ends = ends[1], ends[0]
        scale = f"b_times ({above})" if below == 1 else f"b_scale ({above}) {below}"
        return f"({scale} {proof[0]})", ends

    def _product(self, left: Proof, right: Proof) -> Proof:
        zero = (fmpq(0), fmpq(0))
        if left[1] == zero:
            return f"(b_zero_left (y := _) {left[0]})", zero
        if right[1] == zero:
            return f"(b_swap (b_zero_left {right[0]}))", zero
        (a, b), (c, d) = left[1], right[1]
        target = arithmetic._times(left[1], right[1])
        # Four finite ends: the corners. With an open end only products of known sign have a lemma.
        if a is not None and b is not None and c is not None and d is not None:
            low, high = target
            ends = f"{end_text(low)} {end_text(high)}"
            return f"(b_corners {ends} _ {left[0]} {right[0]})", target
        if a is not None and c is not None and a >= 0 and c >= 0:
            low = a * c
            return (
                f"(b_quadrant {rational_text(low)} _ {left[0]} {right[0]})",
                (low, None),
            )
        if b is not None and b <= 0:
            inner = self._product(opposite(left), right)
            return f"(b_opposite_left {inner[0]})", arithmetic._opposite(inner[1])
        if d is not None and d <= 0:
            inner = self._product(right, left)
            return f"(b_swap {inner[0]})", inner[1]
        return "(b_unknown _)", EVERYWHERE

    def _power(self, atom: int, exponent: int) -> Proof:
        base = self.atom(atom)
        if exponent == 1:
            return base
        low, high = base[1]
        if low is not None and low >= 0:
            return self._rising_power(base, exponent)
        if exponent % 2 == 0:
            half = exponent // 2
            if high is not None and high <= 0:
                inner = self._rising_power(opposite(base), exponent)
                return f"(b_power_even {half} {inner[0]})", inner[1]
            size = size_bounds(self, self.definitions.atom(atom), base)
            inner = self._rising_power(size, exponent)
            return f"(b_power_abs {half} {inner[0]})", inner[1]
        raise InexpressibleError("the interval of an odd power is not printed")

    def _rising_power(self, base: Proof, exponent: int) -> Proof:
        low, high = base[1]
        if low is None:
            raise InexpressibleError("the interval of this power is not printed")
        ends = low**exponent, None if high is None else high**exponent
        most = "None" if ends[1] is None else f"(Some {rational_text(ends[1])})"
        return (
            f"(b_power_positive {exponent} {rational_text(ends[0])} {most} _ {base[0]})",
            ends,
        )

    def term(self, term: int) -> Proof:
        """Returns the proof of the interval of a term's constant."""
        proof = self.form(self.forms.of(term))
        lemma = self.definitions.equality(term)
        proof = proof if lemma is None else (f"(b_equal {lemma} {proof[0]})", proof[1])
        target = self.intervals.of_term(term)
        if not _holds(target, proof[1]):
            proof = self._common(proof, self._parts(term))
        return self.widen(proof, target)

    def _parts(self, term: int) -> Proof:
        """The proof of the interval of a term by the intervals of its parts."""
        op, args, _ = self.replay.terms.nodes[term]
        if op not in _WITH_PARTS:
            return f"(b_unknown {self.definitions.node(term)})", EVERYWHERE
        total, *further = parts = [self._written(self.term(arg)) for arg in args]
        if op not in ("+", "*", "/"):
            texts = [self.definitions.node(arg) for arg in args]
            of_values = arithmetic._OF_ONE.get(op) or arithmetic._OF_TWO[op]
            target = arithmetic._round_ends(of_values(*(part[1] for part in parts)))
            return function_bounds(self, op, texts, parts, target)
        for part in further:
            if op == "+":
                ends = arithmetic._plus(total[1], part[1])
                total = f"(b_add {total[0]} {part[0]})", ends
            elif op == "*":
                total = self._product(total, part)
            else:
                inverse = arithmetic._inverse(part[1])
                if inverse == EVERYWHERE:
                    return f"(b_unknown {self.definitions.node(term)})", EVERYWHERE
                total = self._product(total, inverse_bounds(self, part, inverse))
        return total

    @staticmethod
    def _written(proof: Proof) -> Proof:
        """The proof with its ends written out, for the lemmas that match them."""
        return f"(b_wide {ends_text(proof[1])} _ {proof[0]})", proof[1]

    # --- atoms -----------------------------------------------------------------------------------

    def _make(self, atom: int, target: Interval) -> Proof:
        op, _ = self.forms.atoms[atom]
        if op == "symbol":
            return self._symbol(atom, target)
        if op == "pi":
            # The ends of the lemma b_pi of Closedform.v, which are the ends of the checker.
            return "b_pi", (fmpq(314_159_265, 10**8), fmpq(314_159_266, 10**8))
        if op == "ite":
            return self._of_choice(self.forms.terms_of_atoms[atom], target)
        arguments = self.forms.arguments[atom]
        texts = [f"({self.definitions.polynomial(form)})" for form in arguments]
        terms = self.replay.terms.nodes[self.forms.terms_of_atoms[atom]][1]
        terms = terms[1:] if op == "inv" else terms
        insides = [self._argument(*pair) for pair in zip(arguments, terms, strict=True)]
        if op == "inv":
            return inverse_bounds(self, insides[0], target)
        return function_bounds(self, op, texts, insides, target)

    def _argument(self, form: Polynomial, term: int) -> Proof:
        """The interval of an argument, with its ends written out for the lemmas that match them."""
        proof = self.widen(self.form(form), self.intervals.of(form))
        lemma = self.definitions.equality(term)
        if self.forms.of(term) == form and lemma is not None:
            of_term = self.term(term)
            if not _holds(of_term[1], proof[1]):
                proof = f"(b_equal (eq_sym {lemma}) {of_term[0]})", of_term[1]
        return self._written(proof)

    def join_ends(self, low: str, high: str, target: Interval) -> Proof:
        """Returns the proof of an interval by the proofs of its ends; an open end has none."""
        return f"(b_both {low or '(b_unknown _)'} {high or '(b_unknown _)'})", target

    def numeric(self, statement: str, tactic: str = "numeric") -> str:
        """Returns the lemma that a statement about numbers is."""
        return self.definitions.numeric(statement, tactic)

    def _symbol(self, atom: int, target: Interval) -> Proof:
        best: dict[str, str] = {}
        name = self.definitions.atom(atom)
        is_integer = self.forms.is_integer(atom)
        for fact in self.facts:
            literal = self.replay.literal(fact)
            if literal is None or literal.relation == "!=" or len(literal.form) > 2:
                continue
            rest = {m: c for m, c in literal.form.items() if m}
            if list(rest) != [((atom, 1),)]:
                continue
            slope = rest[((atom, 1),)]
            end = -literal.form.get(UNIT, fmpq(0)) / slope
            for side in ("low", "high"):
                if literal.relation != "=" and (slope > 0) != (side == "low"):
                    continue
                goal = target[0] if side == "low" else target[1]
                if side in best or goal is None:
                    continue
                proof = self._end(fact, literal, slope, end, side, goal, name, atom, is_integer)
                if proof:
                    best[side] = proof
        return self.join_ends(best.get("low", ""), best.get("high", ""), target)

    def _end(
        self, fact: int, literal: Any, slope: fmpq, end: fmpq, side: str, goal: fmpq, name: str,
        atom: int, is_integer: bool,
    ) -> str:  # fmt: skip
        is_low = side == "low"
        is_strict = literal.relation == ">" and is_integer
        least_or_most = end
        if is_integer:
            if is_strict:
                least_or_most = fmpq(end.floor()) + 1 if is_low else fmpq(end.ceil()) - 1
            else:
                least_or_most = fmpq(end.ceil() if is_low else end.floor())
        if least_or_most != goal:
            return ""
        proof = self.script.literal_proof(fact)
        size = abs(slope)
        scale = self.script.positive(size)
        text = self.definitions.polynomial(literal.form)
        if literal.relation == "=":
            proof = f"(least_of_equal {proof})"
            if (slope > 0) != is_low:
                opposite = {m: -c for m, c in literal.form.items()}
                source, text = text, self.definitions.polynomial(opposite)
                proof = (
                    f"(least_of_opposite (p := {source}) (q := {text}) ltac:(polynomials) "
                    f"{self.script.literal_proof(fact)})"
                )
        elif literal.relation == ">" and not is_strict:
            proof = f"(Rlt_le _ _ {proof})"
        if is_strict:
            whole = self.definitions.integer(atom)
            inner = f"{name} - {number_text(end)}" if is_low else f"{number_text(end)} - {name}"
            equation = f"(ltac:(polynomials) : {text} = {number_text(size)} * ({inner}))"
            order = "ltac:(lra)"
            return (
                f"(b_{side}_strict ({int(goal.p)}) (q := {number_text(end)}) {whole} {scale} "
                f"{equation} {order} {proof})"
            )
        point = rational_text(end)
        inner = f"{name} - Q2R {point}" if is_low else f"Q2R {point} - {name}"
        equation = (
            f"(ltac:(unfold Q2R; cbn [Qnum Qden]; polynomials) : {text} = {number_text(size)} * "
            f"({inner}))"
        )
        lemma = f"(b_{side} {point} {scale} {equation} {proof})"
        if is_integer:
            whole = self.definitions.integer(atom)
            lemma = f"(b_{side}_whole ({int(goal.p)}) {whole} _ {lemma})"
        return lemma

    def _of_choice(self, term: int, target: Interval) -> Proof:
        """The hull of the values of a choice that are possible."""
        condition, then, otherwise = self.replay.terms.nodes[term][1]
        decision = self.definitions.decision(condition)
        truth = self.intervals.truth(condition)
        if truth is not False:
            first = self.widen(self.term(then), target)
        if truth is not True:
            nodes = self.replay.terms.nodes
            is_chain = nodes[otherwise][0] == "ite"
            second = (
                self._of_choice(otherwise, target)
                if is_chain
                else self.widen(self.term(otherwise), target)
            )
        if truth is None:
            return f"(b_ite {decision} {first[0]} {second[0]})", target
        proof = self.truth(condition, value=truth)
        inner = first if truth else second
        return f"(b_ite_{str(truth).lower()} {decision} {proof} {inner[0]})", target

    # --- truths ----------------------------------------------------------------------------------

    def truth(self, truth: int, *, value: bool) -> str:
        """Returns the proof that a truth holds everywhere here, or that it does not."""
        op, args, _ = self.replay.terms.nodes[truth]
        if op in ("true", "false"):
            return "I" if value else "(fun g => g)"
        if op == "not":
            inner = self.truth(args[0], value=not value)
            return (
                inner if value else f"(fun g : {self.definitions.proposition(truth)} => g {inner})"
            )
        if op in ("and", "or"):
            return self._connective(op, args, value=value)
        form = self.forms.difference(args[1], args[0])
        proof = self.form(form)
        lemma = self.definitions.difference(truth)
        left_ends, right_ends = (self.intervals.of_term(arg) for arg in args)
        of_sides = arithmetic._plus(right_ends, arithmetic._opposite(left_ends))
        if not _is_decided(op, proof[1]) and not _holds(of_sides, proof[1]):
            right, left = self.term(args[1]), opposite(self.term(args[0]))
            sides = f"(b_equal (eq_sym {lemma}) (b_add {right[0]} {left[0]}))", of_sides
            proof = self._written(self._common(proof, sides))
        kind = {"<": "lt", "<=": "le", "=": "eq"}[op]
        return f"(b_{'' if value else 'not_'}{kind} D{truth} _ {proof[0]})"

    def _connective(self, op: str, args: Sequence[int], *, value: bool) -> str:
        if len(args) == 1:
            return self.truth(args[0], value=value)
        rest = args[1:]
        # Without its type, Rocq cannot tell that what is refuted is a proposition.
        kind = self.definitions.junction(op, args)
        if value == (op == "and"):
            first, second = (
                self.truth(args[0], value=value),
                self._connective(op, rest, value=value),
            )
            if op == "and":
                return f"(conj {first} {second})"
            whole = self.script.name("w")
            return (
                f"(fun {whole} : {kind} => match {whole} with or_introl {whole} => {first} {whole} "
                f"| or_intror {whole} => {second} {whole} end)"
            )
        # One part decides.
        is_first = self.intervals.truth(args[0]) is value
        inner = (
            self.truth(args[0], value=value)
            if is_first
            else self._connective(op, rest, value=value)
        )
        if op == "or":
            return f"({'or_introl' if is_first else 'or_intror'} {inner})"
        whole = self.script.name("w")
        return f"(fun {whole} : {kind} => {inner} (proj{1 if is_first else 2} {whole}))"

    # --- decisions -------------------------------------------------------------------------------

    def floor(self, term: int, number: int) -> str:
        """Returns the proof that a floor is an integer."""
        proof = self.widen(self.term(term), (fmpq(number), fmpq(number)))
        return f"(b_point_whole ({number}) {proof[0]})"

    def empty(self) -> None:
        """Writes the end of a branch in which the bounds of a symbol exclude each other."""
        by_atom: dict[int, list[int]] = {}
        for fact in self.facts:
            literal = self.replay.literal(fact)
            if literal is None:
                continue
            atoms = {atom for monomial in literal.form for atom, _ in monomial}
            if len(atoms) == 1:
                by_atom.setdefault(atoms.pop(), []).append(fact)
        for atom, facts in by_atom.items():
            if not Intervals(self.replay, tuple(facts)).is_empty:
                continue
            ends: dict[str, tuple[fmpq, str]] = {}
            for fact in facts:
                for side in ("low", "high"):
                    single_bound = Intervals(self.replay, (fact,))
                    end = single_bound._of_atom(atom)[0 if side == "low" else 1]
                    if single_bound.is_empty or end is None:
                        continue
                    is_better = side not in ends or (
                        end > ends[side][0] if side == "low" else end < ends[side][0]
                    )
                    if is_better:
                        single = Bounds(self.script, [fact], self.names_in_scope)
                        single.intervals = single_bound
                        target = (end, None) if side == "low" else (None, end)
                        ends[side] = end, single._symbol(atom, target)[0]
            if len(ends) == 2 and ends["low"][0] > ends["high"][0]:
                self.script.write(
                    f"refine (b_empty _ (b_both {ends['low'][1]} {ends['high'][1]})); computed."
                )
                return
        raise InexpressibleError("an empty interval is not printed")


def _holds(outer: Interval, inner: Interval) -> bool:
    """Whether an interval holds another one."""
    return arithmetic._common(outer, inner) == inner


def _is_decided(op: str, difference: Interval) -> bool:
    """Whether the interval of right minus left decides a relation."""
    low, high = difference
    is_above = low is not None and (low > 0 or (op == "<=" and low == 0))
    is_below = high is not None and (high < 0 or (op == "<" and high == 0))
    return is_above or is_below or (op == "=" and low == high == 0)
