"""The steps of a proof as a script of Rocq.

The steps are taken with the rules of the checker, which say what the facts are; each of them is a
hypothesis ``f7``, the proposition of truth 7 about the constants of its numbers. A step that gives
a new fact states it with its proof. Nothing here is trusted: the kernel accepts the script or not.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, cast

from flint import fmpq

from closedform.verify.checker.polynomials import (
    UNIT,
    Polynomial,
    clear,
    constant_of,
    content,
    plus,
)
from closedform.verify.checker.replay import _STEPS as CHECKED_STEPS
from closedform.verify.checker.replay import Facts, Replay, _is_weaker, begin
from closedform.verify.checker.terms import fraction
from closedform.verify.rocq.bounds import Bounds
from closedform.verify.rocq.definitions import Definitions, InexpressibleError, number_text
from closedform.verify.rocq.lemma_names import lemma_about, lemma_about_two

_WEAKENINGS = {
    (">", ">"): "weaken_above",
    (">", ">="): "weaken_above_least",
    (">", "!="): "weaken_above_differ",
    (">=", ">="): "weaken_least",
    ("=", "="): "weaken_equal",
    ("=", ">="): "weaken_equal_least",
    ("!=", "!="): "weaken_differ",
}
_LITERALS = {">": "above", ">=": "least", "=": "equal", "!=": "differ"}
_CONGRUENCES = {"<": "lt_cong", "<=": "le_cong", "=": "eq_cong"}
_OPERATORS = {"+": "Rplus", "*": "Rmult", "/": "Rdiv", "^": "pw", "min": "Rmin", "max": "Rmax",
              "cospi": "cospi", "sinpi": "sinpi", "exp": "exp", "log": "ln", "floor": "floor",
              "abs": "Rabs", "sign": "sgn"}  # fmt: skip
_CHOICES = {
    "min": ("min_left", "min_right"),
    "max": ("max_right", "max_left"),
    "abs": ("abs_itself", "abs_opposite"),
    "sign": ("sgn_positive", "sgn_negative", "sgn_zero"),
}


class Script:
    """The script of one goal.

    Attributes:
        definitions: The constants and lemmas that it uses.
        lines: The tactics.
        hypotheses: The facts of the statement: declarations, then assumptions.
        goal: The goal, a truth.
    """

    def __init__(self, statement: Mapping[str, Any], proof: Mapping[str, Any]) -> None:
        self.replay = Replay()
        self.terms = self.replay.terms
        self.definitions = Definitions(self.replay)
        self.lines: list[str] = []
        self._names = 0
        facts, self.places = begin(self.replay, statement)
        assumptions = [self.places[place] for place in statement["assume"]]
        self.goal = self.places[statement["goal"]]
        self.hypotheses = [*self.replay._declarations([*assumptions, self.goal]), *assumptions]
        self.terms.read(proof["nodes"], self.places)
        names_in_scope = self._begin()
        self._run(proof["step"], facts, names_in_scope, 0)

    # --- facts -----------------------------------------------------------------------------------

    def write(self, line: str) -> None:
        """Adds a line of tactics."""
        if len(self.lines) > 60_000:
            raise InexpressibleError("the script is too long")
        self.lines.append(line)

    def name(self, letter: str = "h") -> str:
        """Returns a new name."""
        self._names += 1
        return f"{letter}_{self._names}"

    def take(self, hypothesis: str, truth: int, names_in_scope: set[int]) -> None:
        """Names the parts of a hypothesis as facts."""
        op, args, _ = self.terms.nodes[truth]
        if op == "and":
            for arg in args[:-1]:
                head, tail = self.name(), self.name()
                self.write(f"destruct {hypothesis} as [{head} {tail}].")
                self.take(head, arg, names_in_scope)
                hypothesis = tail
            self.take(hypothesis, args[-1], names_in_scope)
        elif truth in names_in_scope or op == "true":
            self.write(f"clear {hypothesis}.")
        else:
            self.write(f"rename {hypothesis} into f{truth}.")
            names_in_scope.add(truth)

    def state(self, truth: int, proof: str, names_in_scope: set[int]) -> None:
        """States a truth, by tactics, and takes its parts as facts."""
        positive = self.terms.positive_form(truth)
        if positive in names_in_scope:
            return
        name = self.name()
        self.write(f"assert ({name} : {self.definitions.proposition(positive)}) by ({proof}).")
        self.take(name, positive, names_in_scope)

    def literal_proof(self, fact: int) -> str:
        """Returns the proof of the literal of a fact."""
        literal = self.replay.relation(fact)
        lemma = self.definitions.difference(fact)
        return f"({_LITERALS[literal.relation]}_of {lemma} f{fact})"

    def entail(self, facts: Sequence[int], truth: int, names_in_scope: set[int]) -> str:
        """Returns the name of the fact that a relation is, stated where it only follows."""
        if truth in names_in_scope:
            return f"f{truth}"
        literal = self.replay.literal(truth)
        if literal is None:
            raise InexpressibleError("a condition that is not a relation is not among the facts")
        back = f"of_{_LITERALS[literal.relation]} {self.definitions.difference(truth)}"
        if constant_of(literal.form) is not None:
            self.state(truth, f"apply ({back}); lra", names_in_scope)
            return f"f{truth}"
        for fact in facts:
            known_literal = self.replay.literal(fact)
            if known_literal is not None and _is_weaker(known_literal, literal):
                proof = self.weakening(
                    known_literal.relation, known_literal.form, literal.relation, literal.form,
                    self.literal_proof(fact),
                )  # fmt: skip
                self.state(truth, f"apply ({back}); {proof}", names_in_scope)
                return f"f{truth}"
        raise InexpressibleError("a condition is not a fact")

    def weakening(self, relation: str, form: Any, weaker: str, multiple: Any, proof: str) -> str:
        """Returns the tactics that prove a multiple of a literal, or a weaker one."""
        monomial = next(iter(form), UNIT)
        factor = multiple[monomial] / form[monomial] if form else fmpq(1)
        lemma = _WEAKENINGS[relation, weaker]
        text = number_text(factor)
        if relation == "=":
            return f"refine ({lemma} (c := {text}) _ {proof}); polynomials"
        if "differ" in lemma:
            return f"refine ({lemma} (c := {text}) _ _ {proof}); [lra | polynomials]"
        return f"refine ({lemma} {self.positive(factor)} _ {proof}); polynomials"

    @staticmethod
    def positive(number: fmpq) -> str:
        """Returns the proof that a fraction is above 0, as it is printed."""
        above, below = int(number.p), int(number.q)
        return f"(pos_whole {above})" if below == 1 else f"(pos_num {above} {below})"

    # --- the start -------------------------------------------------------------------------------

    def _begin(self) -> set[int]:
        names_in_scope: set[int] = set()
        terms, proposition = self.terms, self.definitions.proposition
        for number, truth in enumerate(self.hypotheses):
            name, positive = f"g{number}", terms.positive_form(truth)
            if positive != truth:
                negation = terms.negate(positive)
                new = self.name()
                self.write(f"assert ({new} : {proposition(positive)}).")
                self.write(
                    f"{{ assert (d : {proposition(positive)} \\/ {proposition(negation)}) by "
                    f"dichotomy. destruct d as [d | d]; [exact d | exfalso]. "
                    f"exact ({self.refutation(truth, 'd')} {name}). }}"
                )
                name = new
            self.take(name, positive, names_in_scope)
        positive = terms.positive_form(self.goal)
        negation = terms.negate(positive)
        name = self.name()
        self.write(
            f"assert ({name} : {proposition(positive)} \\/ {proposition(negation)}) by dichotomy."
        )
        self.write(f"destruct {name} as [{name} | {name}].")
        self.write(f"{{ exact {self.assertion(self.goal, name)}. }}")
        self.write("exfalso.")
        self.take(name, negation, names_in_scope)
        return names_in_scope

    def assertion(self, truth: int, hypothesis: str) -> str:
        """Returns the proof of a truth from its positive form."""
        op, args, _ = self.terms.nodes[truth]
        if op == "not" and self.terms.nodes[args[0]][0] != "=":
            return self.refutation(args[0], hypothesis)
        if op not in ("and", "or") or len(args) == 1:
            return hypothesis
        rest = self.terms.make(op, args[1:]) if len(args) > 2 else args[1]
        left, right = self.name("l"), self.name("r")
        first, second = self.assertion(args[0], left), self.assertion(rest, right)
        if op == "and":
            return f"(match {hypothesis} with conj {left} {right} => conj {first} {second} end)"
        return (
            f"(match {hypothesis} with or_introl {left} => or_introl {first} "
            f"| or_intror {right} => or_intror {second} end)"
        )

    def refutation(self, truth: int, hypothesis: str) -> str:
        """Returns the proof that a truth does not hold from its negation, pushed inwards."""
        op, args, _ = self.terms.nodes[truth]
        if op in ("true", "false"):
            return "(fun g => g)" if op == "false" else f"(fun _ => {hypothesis})"
        if op in ("<", "<="):
            lemma = "Rle_not_lt" if op == "<" else "Rlt_not_le"
            return f"({lemma} _ _ {hypothesis})"
        if op == "=":
            return hypothesis
        if op == "not":
            return f"(fun g => g {self.assertion(args[0], hypothesis)})"
        if len(args) == 1:
            return self.refutation(args[0], hypothesis)
        rest = self.terms.make(op, args[1:]) if len(args) > 2 else args[1]
        left, right, whole = self.name("l"), self.name("r"), self.name("w")
        first, second = self.refutation(args[0], left), self.refutation(rest, right)
        if op == "and":
            return (
                f"(fun {whole} => match {hypothesis} with or_introl {left} => {first} (proj1 "
                f"{whole}) | or_intror {right} => {second} (proj2 {whole}) end)"
            )
        return (
            f"(fun {whole} => match {hypothesis} with conj {left} {right} => match {whole} with "
            f"or_introl {whole} => {first} {whole} | or_intror {whole} => {second} {whole} end end)"
        )

    # --- steps -----------------------------------------------------------------------------------

    def _run(self, step: Any, facts: Facts, names_in_scope: set[int], depth: int) -> None:
        while True:
            if depth > 150:
                raise InexpressibleError("the proof is too deep")
            name, *rest = cast("list[Any]", step)
            if name == "combine":
                self._combine(rest, facts)
                return
            if name == "contradiction":
                self._contradiction(rest, facts, names_in_scope)
                return
            if name == "empty":
                self._empty(rest, facts, names_in_scope)
                return
            parts = CHECKED_STEPS[name](self.replay, rest, facts, self.places)
            if name == "range":
                self._run_range(rest, facts, parts, names_in_scope, depth)
                return
            contexts = _PRINTERS[name](self, rest, facts, parts, names_in_scope)
            if not parts:
                return
            depth += 1
            for (part, part_facts), follow in list(zip(parts, contexts, strict=True))[:-1]:
                self.write("{")
                if follow is not None:
                    context_facts = set(names_in_scope)
                    follow(context_facts)
                    self._run(part, part_facts, context_facts, depth)
                self.write("}")
            (step, facts), follow = parts[-1], contexts[-1]
            follow(names_in_scope)

    def _taking(self, hypothesis: str, truth: int) -> Any:
        return lambda names_in_scope: self.take(hypothesis, truth, names_in_scope)

    def _split(self, rest: list[Any], facts: Facts, parts: Any, names_in_scope: set[int]) -> Any:
        condition = self.terms.positive_form(self.places[rest[0]])
        negation = self.terms.negate(condition)
        name = self.name()
        proposition = self.definitions.proposition
        self.write(
            f"assert ({name} : {proposition(condition)} \\/ {proposition(negation)}) by dichotomy."
        )
        self.write(f"destruct {name} as [{name} | {name}].")
        return [self._taking(name, condition), self._taking(name, negation)]

    def _cases(self, rest: list[Any], facts: Facts, parts: Any, names_in_scope: set[int]) -> Any:
        fact = facts[rest[0]]
        args = self.terms.nodes[fact][1]
        names = [self.name() for _ in args]
        pattern = names[-1]
        for name in reversed(names[:-1]):
            pattern = f"[{name} | {pattern}]"
        copy = self.name()
        self.write(f"pose proof f{fact} as {copy}. destruct {copy} as {pattern}.")
        return [self._taking(name, arg) for name, arg in zip(names, args, strict=True)]

    def _differ(self, rest: list[Any], facts: Facts, parts: Any, names_in_scope: set[int]) -> Any:
        fact = facts[rest[0]]
        left, right = self.terms.nodes[self.terms.nodes[fact][1][0]][1]
        name = self.name()
        self.write(f"destruct (Rdichotomy _ _ f{fact}) as [{name} | {name}].")
        sides = self.terms.less(left, right), self.terms.less(right, left)
        return [self._taking(name, side) for side in sides]

    def _choose(self, rest: list[Any], facts: Facts, parts: Any, names_in_scope: set[int]) -> Any:
        term, number = self.places[rest[0]], rest[1]
        condition, value = self.terms.alternatives(term)[number]
        proof = self.proof_of_condition(condition, facts, names_in_scope)
        equations = {term: (value, self.choice(term, number, proof))}

        def follow(names_in_scope: set[int]) -> None:
            self.replace(equations, facts, names_in_scope)
            self._take_entailed(condition, facts, names_in_scope)

        return [follow]

    def _take_entailed(
        self, condition: int, facts: Sequence[int], names_in_scope: set[int]
    ) -> None:
        for part in self.replay.knowing((), condition):
            self.entail(facts, part, names_in_scope)

    def proof_of_condition(
        self, condition: int, facts: Sequence[int], names_in_scope: set[int]
    ) -> str:
        """Returns the proof of a positive truth whose parts are facts or follow from one."""
        op, args, _ = self.terms.nodes[condition]
        if op == "true":
            return "I"
        if op != "and":
            return self.entail(facts, condition, names_in_scope)
        proofs = [self.proof_of_condition(arg, facts, names_in_scope) for arg in args]
        text = proofs[-1]
        for proof in reversed(proofs[:-1]):
            text = f"(conj {proof} {text})"
        return text

    def choice(self, term: int, number: int, proof: str) -> str:
        """Returns the proof that a choice is its value, from the condition in positive form."""
        op, args, _ = self.terms.nodes[term]
        if op == "ite":
            condition = args[0]
            raw = (
                self.assertion(condition, proof)
                if number == 0
                else self.refutation(condition, proof)
            )
            return f"(ite_{'false' if number else 'true'} {self.definitions.decision(condition)} _ _ {raw})"  # noqa: E501
        nodes = " ".join(self.definitions.node(arg) for arg in args)
        return f"({_CHOICES[op][number]} {nodes} {proof})"

    def replace(
        self,
        equations: Mapping[int, tuple[int, str]],
        facts: Sequence[int],
        names_in_scope: set[int],
    ) -> None:
        """States the facts with terms replaced, each by the proof of its equation."""
        terms, node = self.terms, self.definitions.node
        results: dict[int, int] = {}
        proofs: dict[int, str] = {}
        for term in terms.below(*facts):
            op, args, value = terms.nodes[term]
            if term in equations:
                value, proof = equations[term]
                new, further = self._image(value, term, results, proofs)
                results[term] = new
                proof = proof if further is None else f"(eq_trans {proof} {further})"
                proofs[term] = self._equation(term, new, proof)
                continue
            if all(results[arg] == arg for arg in args):
                results[term] = term
                continue
            new = results[term] = terms.make(op, [results[arg] for arg in args], value)
            if op == "ite":
                iff = self._equivalence(args[0], results, proofs)
                values = [proofs.get(arg, f"(eq_refl {node(arg)})") for arg in args[1:]]
                decisions = [self.definitions.decision(c) for c in (args[0], results[args[0]])]
                node(new)
                text = f"(ite_cong {' '.join(decisions)} _ _ _ _ {iff} {' '.join(values)})"
                proofs[term] = self._equation(term, new, text)
            elif not terms.is_truth(term):
                proofs[term] = self._equation(term, new, self._congruence(term, proofs))
        for fact in facts:
            new = results[fact]
            if new != fact:
                equivalence = self._equivalence(fact, results, proofs)
                self.state(new, f"exact (proj1 {equivalence} f{fact})", names_in_scope)

    def _image(
        self, value: int, term: int, results: Mapping[int, int], proofs: Mapping[int, str]
    ) -> tuple[int, str | None]:
        """The value of a replaced term with the terms inside of it replaced, and the proof."""
        if value in results and value < term:
            return results[value], proofs.get(value)
        op, args, of = self.terms.nodes[value]
        if op not in ("*", "+") or all(results.get(arg, arg) == arg for arg in args):
            return value, None
        new = self.terms.make(op, [results.get(arg, arg) for arg in args], of)
        return new, self._equation(value, new, self._congruence(value, proofs))

    def _equation(self, term: int, new: int, proof: str) -> str:
        left, right = self.definitions.node(term), self.definitions.node(new)
        name = self.name("s")
        self.write(f"assert ({name} : {left} = {right}) by (refine {proof}; computed).")
        return name

    def _congruence(self, term: int, proofs: Mapping[int, str]) -> str:
        op, args, _ = self.terms.nodes[term]
        node = self.definitions.node
        equations = [proofs.get(arg, f"(eq_refl {node(arg)})") for arg in args]
        if op in ("+", "*"):
            text = equations[0]
            for equation in equations[1:]:
                text = f"(f_equal2 {_OPERATORS[op]} {text} {equation})"
            return text
        if op in _OPERATORS:
            return (
                f"(f_equal{'2' if len(args) == 2 else ''} {_OPERATORS[op]} {' '.join(equations)})"
            )
        names = [equation for arg, equation in zip(args, equations, strict=True) if arg in proofs]
        return f"ltac:(unfold {node(term)}; rewrite {', '.join(names)}; reflexivity)"

    def _equivalence(
        self, truth: int, results: Mapping[int, int], proofs: Mapping[int, str]
    ) -> str:
        op, args, _ = self.terms.nodes[truth]
        if results[truth] == truth or op in ("true", "false"):
            return f"(iff_refl {self.definitions.proposition(truth)})"
        if op in _CONGRUENCES:
            node = self.definitions.node
            sides = [proofs.get(arg, f"(eq_refl {node(arg)})") for arg in args]
            return f"({_CONGRUENCES[op]} {' '.join(sides)})"
        parts = [self._equivalence(arg, results, proofs) for arg in args]
        if op == "not":
            return f"(not_cong {parts[0]})"
        text = parts[-1]
        for part in reversed(parts[:-1]):
            text = f"({op}_cong {part} {text})"
        return text

    def _lemma(self, rest: list[Any], facts: Facts, parts: Any, names_in_scope: set[int]) -> Any:
        functions = [self.places[place] for place in rest[0]]
        number = rest[1]
        make = self.replay.lemmas.of if len(functions) == 1 else self.replay.lemmas.of_pair
        truth = make(*functions)[number]
        if self.terms.nodes[functions[0]][0] in _CHOICES or (
            self.terms.nodes[functions[0]][0] == "ite"
        ):
            return [
                lambda names_in_scope: self._lemma_of_choice(
                    functions[0], number, truth, names_in_scope
                )
            ]
        proof = (
            lemma_about(self.definitions, functions[0], number)
            if len(functions) == 1
            else lemma_about_two(self.definitions, functions[0], functions[1], number)
        )
        return [lambda names_in_scope: self.state(truth, f"imply {proof}", names_in_scope)]

    def _lemma_of_choice(
        self, term: int, number: int, truth: int, names_in_scope: set[int]
    ) -> None:
        condition, _ = self.terms.alternatives(term)[number]
        self.definitions.node(term)
        proposition = self.definitions.proposition
        negation = self.terms.negate(condition)
        disjunction = f"{proposition(condition)} \\/ {proposition(negation)}"
        self.state(
            truth,
            f"assert (d : {disjunction}) by dichotomy; destruct d as [d | d]; "
            f"[right; exact {self.choice(term, number, 'd')} | left; exact d]",
            names_in_scope,
        )

    def _rewrite(self, rest: list[Any], facts: Facts, parts: Any, names_in_scope: set[int]) -> Any:
        fact = facts[rest[0]]
        before, after = self.places[rest[1]], self.places[rest[2]]
        equation = self.entail([fact], self.terms.equal(before, after), names_in_scope)

        def follow(names_in_scope: set[int]) -> None:
            self.replace({before: (after, equation)}, facts, names_in_scope)

        return [follow]

    def _round(self, rest: list[Any], facts: Facts, parts: Any, names_in_scope: set[int]) -> Any:
        fact, claim = facts[rest[0]], self.places[rest[1]]
        literal = self.replay.relation(fact)
        rounding = self.replay.round_relation(literal)
        scale = content(literal.form)
        whole = {monomial: value / scale for monomial, value in literal.form.items()}
        offset = whole.pop(UNIT, fmpq(0))
        is_strict = literal.relation == ">"
        least = int((-offset).floor()) + 1 if is_strict else int((-offset).ceil())
        polynomial = self.definitions.polynomial
        integers = self.definitions.integers(whole)
        name = self.name()
        self.write(
            f"assert ({name} : 0 <= {polynomial(whole)} - IZR ({least})) by (refine "
            f"(round_{'above' if is_strict else 'least'} (c := {number_text(scale)}) "
            f"(o := {number_text(offset)}) ({least}) {integers} {self.positive(scale)} _ _ "
            f"{self.literal_proof(fact)}); [polynomials | lra])."
        )
        target = self.replay.relation(claim)
        back = f"of_{_LITERALS[target.relation]} {self.definitions.difference(claim)}"
        weaker = self.weakening(">=", rounding.form, target.relation, target.form, name)  # type: ignore[union-attr]
        return [
            lambda names_in_scope: self.state(claim, f"apply ({back}); {weaker}", names_in_scope)
        ]

    def _clear(self, rest: list[Any], facts: Facts, parts: Any, names_in_scope: set[int]) -> Any:
        fact, divisor = facts[rest[0]], self.places[rest[1]]
        claim = self.places[rest[2]]
        literal = self.replay.relation(fact)
        product = self.replay.clear_divisor(literal, divisor, facts)
        terms, definitions = self.terms, self.definitions
        zero = terms.rational(0)
        signs = (
            terms.less(zero, divisor),
            terms.less(divisor, zero),
            terms.negate(terms.equal(divisor, zero)),
        )
        sign = next(sign for sign in signs if self.replay.entails(facts, sign))
        is_negative = sign == signs[1]
        fact_of_sign = self.entail(facts, sign, names_in_scope)
        # The divisor as it stands in the normal forms; its sign.
        ((monomial, scale),) = self.replay.forms.inverse(self.replay.forms.of(divisor)).items()
        form = plus({}, self.replay.forms.of(divisor), scale)
        text = definitions.polynomial(form)
        not_zero, sign_proof = self.name(), self.name()
        rewriting = definitions.rewriting([divisor])
        self.write(
            f"assert ({not_zero} : {text} <> 0) by (let z := fresh in intro z; "
            f"assert (e : {definitions.node(divisor)} = 0) "
            f"by ({rewriting.replace('. ', '; ')}first [exact z | lra]); "
            f"unfold {definitions.node(zero)} in *; first [exact ({fact_of_sign} e) | lra])."
        )
        atom = monomial[0][0]
        degree = self._degree(literal.form, product.form, atom)
        base = text
        if is_negative == (scale > 0) and literal.relation in (">", ">="):
            opposite = {m: -c for m, c in form.items()}
            base = definitions.polynomial(opposite)
        target = self.replay.relation(claim)
        back = f"of_{_LITERALS[target.relation]} {definitions.difference(claim)}"
        source = definitions.polynomial(literal.form)
        result = definitions.polynomial(product.form)
        kind = _LITERALS[literal.relation]
        name = self.name()
        unfolding = (
            f"unfold {definitions.atom(atom)}"
            if self.replay.forms.atoms[atom][0] == "inv"
            else "idtac"
        )
        field = f"{unfolding}; by_field {not_zero}"
        proof = self.literal_proof(fact)
        if literal.relation in ("=", "!="):
            hole = f"{not_zero} " if literal.relation == "!=" else ""
            tactic = f"refine (clear_{kind} (d := {base}) {degree} {hole}_ {proof}); {field}"
        elif degree % 2 == 0:
            hole = f"{not_zero} " if literal.relation == ">" else ""
            root = text
            half = degree // 2
            tactic = f"refine (clear_{kind}_even (d := {root}) {half} {hole}_ {proof}); {field}"
        else:
            self.write(
                f"assert ({sign_proof} : 0 < {base}) by (generalize {fact_of_sign}; "
                f"{rewriting.replace('. ', '; ')}unfold {definitions.node(zero)}; intros; lra)."
            )
            tactic = f"refine (clear_{kind} (d := {base}) {degree} {sign_proof} _ {proof}); {field}"
        relation = {">": "0 < {}", ">=": "0 <= {}", "=": "{} = 0", "!=": "{} <> 0"}[
            literal.relation
        ].format(f"({result})")
        self.write(f"assert ({name} : {relation}).")
        self.write(f"{{ (* {source} *) {tactic}. }}")
        weaker = self.weakening(literal.relation, product.form, target.relation, target.form, name)
        return [
            lambda names_in_scope: self.state(claim, f"apply ({back}); {weaker}", names_in_scope)
        ]

    def _degree(self, before: Any, after: Any, atom: int) -> int:
        """How many times a relation was multiplied by its divisor."""
        divisor = self.replay.forms.arguments[atom]
        form: Polynomial = (
            divisor[0] if self.replay.forms.atoms[atom][0] == "inv" else {((atom, 1),): fmpq(1)}
        )
        return clear(before, atom, form)[1]

    def _range(self, rest: list[Any], facts: Facts, parts: Any, names_in_scope: set[int]) -> Any:
        symbol, ends = self.places[rest[0]], rest[1]
        bounds = Bounds(self, facts, names_in_scope)
        ((monomial, _),) = self.replay.forms.of(symbol).items()
        low, high = bounds.intervals.of_term(symbol)
        whole = self.definitions.integer(monomial[0][0])
        bound = "" if low is None and high is None else bounds.atom(monomial[0][0])[0]
        least = None if low is None else int(low.ceil())
        most = None if high is None else int(high.floor())
        node = self.definitions.node(symbol)
        borders = [None, *ends, None]
        lower, contexts = "", []
        for before, end in itertools.pairwise(borders):
            upper, above = (self.name(), self.name()) if end is not None else ("", "")
            is_behind = before is not None and most is not None and before >= most
            is_before = end is not None and least is not None and end < least
            opening = (
                f"destruct (split_range ({end}) {whole}) as [{upper} | {above}]; "
                f"[| simpl Z.add in {above}]."
                if end is not None
                else ""
            )
            closing = ""
            if is_behind or is_before:
                hint = lower if is_behind else upper
                closing = f"exfalso; apply_range {bound}; lra."
                del hint
            first = least if before is None else before + 1
            last = most if end is None else end
            contexts.append((opening, closing, lower, upper, before, end, first, last))
            lower = above
        parts_of_range: list[Any] = []
        pending: list[str] = []
        for opening, closing, lower, upper, before, end, first, last in contexts:
            if closing:
                is_last = end is None
                pending += [opening] if opening else []
                pending.append(closing if is_last else f"{{ {closing} }}")
                continue
            lines, pending = [*pending, opening], []
            parts_of_range.append((lines, self._part_of_range(
                symbol, node, facts, bound, (lower, upper), (before, end), (first, last)
            )))  # fmt: skip
        return parts_of_range, pending

    def _part_of_range(
        self, symbol: int, node: str, facts: Facts, bound: str, names: tuple[str, str],
        borders: tuple[int | None, int | None], ends: tuple[int | None, int | None],
    ) -> Any:  # fmt: skip
        terms = self.terms
        (lower, upper), (before, end), (first, last) = names, borders, ends

        def follow(names_in_scope: set[int]) -> None:
            if first is not None and first == last:
                number = terms.rational(first)
                name = self.name("s")
                self.write(
                    f"assert ({name} : {node} = {self.definitions.node(number)}) by "
                    f"({f'apply_range {bound}; ' if bound else ''}"
                    f"unfold {self.definitions.node(number)}; lra)."
                )
                equation = terms.equal(symbol, number)
                self.replace({symbol: (number, name)}, facts, names_in_scope)
                self.state(equation, f"exact {name}", names_in_scope)
                return
            if before is not None:
                truth = terms.less_equal(terms.rational(before + 1), symbol)
                self.state(truth, f"exact {lower}", names_in_scope)
            if end is not None:
                truth = terms.less_equal(symbol, terms.rational(end))
                self.state(truth, f"exact {upper}", names_in_scope)

        return follow

    def _run_range(
        self, rest: list[Any], facts: Facts, parts: Any, names_in_scope: set[int], depth: int
    ) -> None:
        parts_of_range, pending = self._range(rest, facts, parts, names_in_scope)
        for place, ((part, part_facts), (lines, follow)) in enumerate(
            zip(parts, parts_of_range, strict=True)
        ):
            for line in lines:
                if line:
                    self.write(line)
            is_last = place == len(parts) - 1 and not pending
            opens = lines[-1] != "" or not is_last
            if opens:
                self.write("{")
            inner = set(names_in_scope)
            follow(inner)
            self._run(part, part_facts, inner, depth + 1)
            if opens:
                self.write("}")
        for line in pending:
            self.write(line)

    def _simplify(self, rest: list[Any], facts: Facts, parts: Any, names_in_scope: set[int]) -> Any:
        box, decisions = rest[0], rest[1]
        bounds = Bounds(self, [facts[place] for place in box], names_in_scope)
        equations: dict[int, tuple[int, str]] = {}
        for place, number in decisions:
            term = self.places[place]
            if self.terms.nodes[term][0] == "floor":
                equations[term] = self.terms.rational(number), bounds.floor(term, number)
            else:
                condition, value = self.terms.alternatives(term)[number]
                proof = bounds.truth(condition, value=True)
                equations[term] = value, self.choice(term, number, proof)
        return [lambda names_in_scope: self.replace(equations, facts, names_in_scope)]

    def _contradiction(self, rest: list[Any], facts: Facts, names_in_scope: set[int]) -> None:
        box, place = rest
        bounds = Bounds(self, [facts[number] for number in box], names_in_scope)
        fact = facts[place]
        self.write(f"refine ({bounds.truth(fact, value=False)} f{fact}); computed.")

    def _empty(self, rest: list[Any], facts: Facts, names_in_scope: set[int]) -> None:
        (box,) = rest
        Bounds(self, [facts[place] for place in box], names_in_scope).empty()

    def _combine(self, rest: list[Any], facts: Facts) -> None:
        products, equations = rest
        total, is_strict = "", False
        polynomial = self.definitions.polynomial
        for number, factors, squares in products:
            text, strict = self.positive(fraction(number)), True
            for place in squares:
                root = polynomial(self.replay.forms.of(self.places[place]))
                text = f"(mul_{'a' if strict else 'l'}l {text} (square_least ({root})))"
                strict = False
            for place in factors:
                fact = facts[place]
                above = self.replay.relation(fact).relation == ">"
                kinds = f"{'a' if strict else 'l'}{'a' if above else 'l'}"
                text = f"(mul_{kinds} {text} {self.literal_proof(fact)})"
                strict = strict and above
            if total:
                kinds = f"{'a' if is_strict else 'l'}{'a' if strict else 'l'}"
                total = f"(add_{kinds} {total} {text})"
            else:
                total = text
            is_strict = is_strict or strict
        for place, factor in equations:
            fact = facts[place]
            factor_text = polynomial(self.replay.forms.of(self.places[factor]))
            total = f"(add_ae ({factor_text}) {total} {self.literal_proof(fact)})"
        self.write(f"refine (no_sum {total} _). polynomials.")


_PRINTERS = {
    "split": Script._split,
    "cases": Script._cases,
    "differ": Script._differ,
    "choose": Script._choose,
    "lemma": Script._lemma,
    "rewrite": Script._rewrite,
    "round": Script._round,
    "clear": Script._clear,
    "simplify": Script._simplify,
}


def section(name: str, statement: Mapping[str, Any], proof: Mapping[str, Any]) -> str:
    """Returns a section of Rocq that proves a statement.

    Raises:
        InexpressibleError: The proof has something that is not printed yet.
    """
    script = Script(statement, proof)
    definitions = script.definitions
    proposition = definitions.proposition
    truths = (*script.hypotheses, script.goal)
    parts = [proposition(truth) for truth in truths]
    readable = [definitions.readable(truth, truths) for truth in truths]
    names = " ".join(f"g{number}" for number in range(len(script.hypotheses)))
    lines = [
        f"Module {name}.",
        "Section Proof.",
        *definitions.variables,
        *definitions.lines,
        f"Lemma steps : {' -> '.join(parts)}.",
        f"Proof. {f'intros {names}.' if names else ''}",
        *script.lines,
        "Qed.",
        "",
        "Theorem holds :",
        *(f"  {part} ->" for part in readable[:-1]),
        f"  {readable[-1]}.",
        "Proof. exact steps. Qed.",
        "End Proof.",
        f"End {name}.",
    ]
    return "\n".join(lines) + "\n"
