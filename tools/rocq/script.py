"""The steps of a proof as a script of Rocq.

The steps are taken with the rules of the checker, which say what the facts are; each of them is a
hypothesis ``f7``, the proposition of truth 7 about the constants of its numbers. A step that gives
a new fact states it with its proof. Nothing here is trusted: the kernel accepts the script or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from flint import fmpq

from closedform.verify.checker.polynomials import UNIT, constant_of
from closedform.verify.checker.replay import _STEPS as CHECKED_STEPS
from closedform.verify.checker.replay import Facts, Replay, _is_weaker, begin
from closedform.verify.checker.terms import fraction
from tools.rocq.bounds import Bounds
from tools.rocq.definitions import (
    LITERALS,
    Definitions,
    InexpressibleError,
    number_text,
)
from tools.rocq.lemma_names import lemma_about, lemma_about_two
from tools.rocq.ranges import run_range
from tools.rocq.relations import clear_divisor, round_fact
from tools.rocq.replacements import replace_terms

_WEAKENINGS = {
    (">", ">"): "weaken_above",
    (">", ">="): "weaken_above_least",
    (">", "!="): "weaken_above_differ",
    (">=", ">="): "weaken_least",
    ("=", "="): "weaken_equal",
    ("=", ">="): "weaken_equal_least",
    ("!=", "!="): "weaken_differ",
}
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
        (*self.hypotheses, self.goal), facts, self.places = truths_of(self.replay, statement)
        self.terms.read(proof["nodes"], self.places)
        names_in_scope = self._begin()
        self.run(proof["step"], facts, names_in_scope, 0)

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
        return f"({LITERALS[literal.relation]}_of {lemma} f{fact})"

    def entail(self, facts: Sequence[int], truth: int, names_in_scope: set[int]) -> str:
        """Returns the name of the fact that a relation is, stated where it only follows."""
        if truth in names_in_scope:
            return f"f{truth}"
        literal = self.replay.literal(truth)
        if literal is None:
            raise InexpressibleError("a condition that is not a relation is not among the facts")
        back = f"of_{LITERALS[literal.relation]} {self.definitions.difference(truth)}"
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

    def run(self, step: Any, facts: Facts, names_in_scope: set[int], depth: int) -> None:
        """Writes a step and those after it."""
        while True:
            # Rocq's parser and kernel recurse over nested proofs.
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
            if name == "residues":
                raise InexpressibleError("the residues of an integer are not printed")
            parts = CHECKED_STEPS[name](self.replay, rest, facts, self.places)
            if name == "range":
                run_range(self, rest, facts, parts, names_in_scope, depth)
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
                    self.run(part, part_facts, context_facts, depth)
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

    def _keep(self, rest: list[Any], facts: Facts, parts: Any, names_in_scope: set[int]) -> Any:
        # A hypothesis that is not used needs no tactic.
        return [lambda names_in_scope: None]

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
            replace_terms(self, equations, facts, names_in_scope)
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
            replace_terms(self, {before: (after, equation)}, facts, names_in_scope)

        return [follow]

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
        return [lambda names_in_scope: replace_terms(self, equations, facts, names_in_scope)]

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
                # Lemma names: "a" is above 0, "l" at least 0; a product is strict where both
                # factors are.
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
    "keep": Script._keep,
    "cases": Script._cases,
    "differ": Script._differ,
    "choose": Script._choose,
    "lemma": Script._lemma,
    "rewrite": Script._rewrite,
    "round": round_fact,
    "clear": clear_divisor,
    "simplify": Script._simplify,
}


def section(
    name: str, module: str, statement: Mapping[str, Any], proof: Mapping[str, Any]
) -> tuple[str, str]:
    """Returns a section of Rocq that proves a statement, and the section that claims it.

    Args:
        name: The name of the section.
        module: The module of the proofs.
        statement: The statement as data.
        proof: The proof as data.

    Raises:
        InexpressibleError: The proof has something that is not printed yet.
    """
    script = Script(statement, proof)
    definitions = script.definitions
    proposition = definitions.proposition
    truths = (*script.hypotheses, script.goal)
    parts = [proposition(truth) for truth in truths]
    readable, _ = definitions.readable(truths)
    names = " ".join(f"g{number}" for number in range(len(script.hypotheses)))
    lines = [
        f"Module {name}.",
        "Section Proof.",
        *definitions.declarations(),
        *definitions.lines,
        f"Lemma steps : {' -> '.join(parts)}.",
        f"Proof. {f'intros {names}.' if names else ''}",
        *script.lines,
        "Qed.",
        "",
        "Theorem holds :",
        *(f"  {part} ->" for part in readable[:-1]),
        f"  {readable[-1]}.",
        "Proof using All. exact steps. Qed.",
        "End Proof.",
        f"End {name}.",
    ]
    claim = claim_section(name, module, statement, definitions.variables)
    return "\n".join(lines) + "\n", claim


def claim_section(
    name: str, module: str, statement: Mapping[str, Any], variables: Mapping[str, str]
) -> str:
    """Returns the section that claims a statement, by the theorem of another module.

    Only the statement says what is claimed; the proof may be any.

    Args:
        name: The name of the section, and that of the proof in the module.
        module: The module of the proofs.
        statement: The statement as data.
        variables: The variables of the theorem there, in its order.
    """
    replay = Replay()
    definitions = Definitions(replay)
    truths = truths_of(replay, statement)[0]
    for truth in truths:
        definitions.proposition(truth)
    readable, constants = definitions.readable(truths)
    # A variable that only the proof has may have any value.
    arguments = [
        variable if variable in definitions.variables else f"({_any_of(kind)})"
        for variable, kind in variables.items()
    ]
    lines = [
        f"Module {name}.",
        "Section Claim.",
        *definitions.declarations(),
        *constants,
        "Theorem claim :",
        *(f"  {part} ->" for part in readable[:-1]),
        f"  {readable[-1]}.",
        f"Proof. exact ({' '.join([f'@{module}.{name}.holds', *arguments])}). Qed.",
        "End Claim.",
        f"End {name}.",
    ]
    return "\n".join(lines) + "\n"


def _any_of(kind: str) -> str:
    *inputs, _ = kind.split(" -> ")
    return f"fun {' '.join('_' for _ in inputs)} => 0" if inputs else f"0%{kind}"


def truths_of(
    replay: Replay, statement: Mapping[str, Any]
) -> tuple[tuple[int, ...], Facts, list[int]]:
    """Returns the hypotheses of a statement and its goal, the last; its facts, and its terms."""
    facts, places = begin(replay, statement)
    assumptions = [places[place] for place in statement["assume"]]
    goal = places[statement["goal"]]
    return (*replay._declarations([*assumptions, goal]), *assumptions, goal), facts, places
