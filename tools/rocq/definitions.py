"""The terms of a proof as constants of Rocq, with lemmas that say what their normal forms are.

Each term of the checker's table is a constant ``n7`` with the constants of its arguments in its
body; so a term that is used twice is written once. An atom of a normal form is a constant ``a7``,
or the constant of its term. The lemma ``F7`` says that ``n7`` is its normal form, ``D9`` that the
difference of the sides of relation 9 is, ``V3`` what the inverse of a polynomial is, and ``I4``
that an atom is an integer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, cast

from flint import fmpq

from closedform.errors import VerificationError
from closedform.verify.checker.polynomials import (
    Polynomial,
    constant_of,
    key_of,
    whole_constant,
)
from closedform.verify.checker.replay import Replay


class InexpressibleError(VerificationError):
    """A proof has a step or a term that is not printed for Rocq yet; the text says which."""


FUNCTIONS = {"cospi": "cospi", "sinpi": "sinpi", "exp": "exp", "log": "ln", "atan": "atan",
             "floor": "floor", "abs": "Rabs", "sign": "sgn", "^": "pw", "min": "Rmin",
             "max": "Rmax"}  # fmt: skip
"""The functions of the checker, as ``Closedform.v`` and the libraries call them."""
_DECISIONS = {"<": "Rlt_dec", "<=": "Rle_dec", "=": "Req_EM_T"}
_SIGNS = {"<": "<", "<=": "<=", "=": "="}
LITERALS = {">": "above", ">=": "least", "=": "equal", "!=": "differ"}
"""How the lemmas of ``Closedform.v`` call the relations of a polynomial to 0."""
_SYNTACTIC = frozenset({"symbol", "pi", "undefined", "ite"})
MOST_LINES = 60_000
_MOST_CHARACTERS = 300


def number_text(value: fmpq | int) -> str:
    """Returns a fraction as a term of Rocq.

    Example:
        >>> number_text(fmpq(-3, 7))
        'IZR (-3) / 7'
    """
    fraction = fmpq(value)
    above, below = int(fraction.p), int(fraction.q)
    whole = f"IZR ({above})" if above < 0 else str(above)
    return whole if below == 1 else f"{whole} / {below}"


class Definitions:
    """The constants and lemmas of one proof, in the order of their use.

    Attributes:
        lines: The definitions and lemmas.
        variables: The types of the variables by their names.
    """

    def __init__(self, replay: Replay) -> None:
        self.replay = replay
        self.terms = replay.terms
        self.forms = replay.forms
        self.lines: list[str] = []
        self.variables: dict[str, str] = {}
        self._symbols: dict[int | tuple[str, int], str] = {}
        self._nodes: set[int] = set()
        self._atoms: set[int] = set()
        self._equalities: dict[int, str] = {}
        self._differences: set[int] = set()
        self._inverses: dict[Any, str] = {}
        self._integers: set[int] = set()
        self._numeric: dict[str, str] = {}

    def write(self, line: str) -> None:
        """Adds a line."""
        if len(self.lines) > MOST_LINES:
            raise InexpressibleError("the script is too long")
        self.lines.append(line)

    # --- terms -----------------------------------------------------------------------------------

    def node(self, term: int) -> str:
        """Returns the constant of a number."""
        if term not in self._nodes:
            for below in self.terms.below(term):
                if below not in self._nodes and not self.terms.is_truth(below):
                    self._nodes.add(below)
                    self.write(f"Definition n{below} : R := {self._body(below)}.")
        return f"n{term}"

    def _body(self, term: int) -> str:
        op, args, value = self.terms.nodes[term]
        if op == "rational":
            return number_text(cast("fmpq", value))
        if op == "symbol":
            name, is_integer, _ = cast("tuple[str, bool, str]", value)
            variable = self.symbol(term, name, is_integer=is_integer)
            return f"IZR {variable}" if is_integer else variable
        if op == "pi":
            return "PI"
        if op == "undefined":
            return self.symbol(term, "undefined", is_integer=False)
        if op == "ite":
            return f"if {self.decision(args[0])} then n{args[1]} else n{args[2]}"
        names = [f"n{arg}" for arg in args]
        if op in ("+", "*", "/"):
            return f" {op} ".join(names)
        return self._application(op, value, names)

    def _application(self, op: str, value: object, arguments: Sequence[str]) -> str:
        if op == "lookup":
            entries = "; ".join(number_text(entry) for entry in cast("tuple[fmpq, ...]", value))
            return f"table [{entries}] {arguments[0]}"
        if op == "opaque":
            key = (str(value), len(arguments))
            if key not in self._symbols:
                self._symbols[key] = f"f_{len(self._symbols)}"
                self.variables[self._symbols[key]] = " -> ".join(["R"] * (len(arguments) + 1))
            return f"{self._symbols[key]} {' '.join(arguments)}"
        return f"{FUNCTIONS[op]} {' '.join(arguments)}"

    def symbol(self, term: int, name: str, *, is_integer: bool) -> str:
        """Returns the variable of a symbol."""
        if term not in self._symbols:
            text = "x_" + re.sub(r"[^A-Za-z0-9]+", "_", name.removeprefix("user: "))
            while text in self._symbols.values():
                text += "_"
            self._symbols[term] = text
            self.variables[text] = "Z" if is_integer else "R"
        return self._symbols[term]

    def declarations(self) -> list[str]:
        """Returns the declarations of the variables."""
        return [f"Variable {name} : {kind}." for name, kind in self.variables.items()]

    def proposition(self, truth: int) -> str:
        """Returns a truth as a proposition about the constants of its numbers."""
        op, args, _ = self.terms.nodes[truth]
        if op in ("true", "false"):
            return op.capitalize()
        if op == "not":
            return f"(~ {self.proposition(args[0])})"
        if op in ("and", "or"):
            return self.junction(op, args)
        left, right = (self.node(arg) for arg in args)
        return f"({left} {_SIGNS[op]} {right})"

    def junction(self, op: str, args: Sequence[int]) -> str:
        """Returns the proposition that all of some truths hold, or one of them."""
        sign = " /\\ " if op == "and" else " \\/ "
        parts = [self.proposition(arg) for arg in args]
        text = parts[-1]
        for part in reversed(parts[:-1]):
            text = f"({part}{sign}{text})"
        return text

    def decision(self, truth: int) -> str:
        """Returns the term that decides a truth."""
        op, args, _ = self.terms.nodes[truth]
        if op in ("true", "false"):
            return f"dec_{op}"
        if op == "not":
            return f"(dec_not {self.decision(args[0])})"
        if op in ("and", "or"):
            text = self.decision(args[-1])
            for part in reversed(args[:-1]):
                text = f"(dec_{op} {self.decision(part)} {text})"
            return text
        return f"({_DECISIONS[op]} {self.node(args[0])} {self.node(args[1])})"

    def readable(self, truths: Sequence[int]) -> tuple[list[str], list[str]]:
        """Returns truths with the bodies of short constants in their places.

        The second list has the definitions of the constants that are too long.
        """
        texts: dict[int, str] = {}
        constants: list[str] = []
        for term in self.terms.below(*truths):
            op, _, value = self.terms.nodes[term]
            if self.terms.is_truth(term):
                text = self.proposition(term)
            elif op == "symbol":
                variable = self._symbols[term]
                is_integer = cast("tuple[str, bool, str]", value)[1]
                text = f"(IZR {variable})" if is_integer else variable
            else:
                text = f"({self._body(term)})"
            text = re.sub(r"\bn(\d+)\b", lambda match: texts[int(match[1])], text)
            is_short = self.terms.is_truth(term) or len(text) <= _MOST_CHARACTERS
            texts[term] = text if is_short else f"n{term}"
            if not is_short:
                constants.append(f"Definition n{term} : R := {text}.")
        return [re.sub(r"\((\w+)\)", r"\1", texts[truth]) for truth in truths], constants

    # --- normal forms ----------------------------------------------------------------------------

    def atom(self, atom: int) -> str:
        """Returns the constant of an atom."""
        op, key = self.forms.atoms[atom]
        if op in _SYNTACTIC:
            return self.node(self.forms.terms_of_atoms[atom])
        if atom not in self._atoms:
            self._atoms.add(atom)
            arguments = [f"({self.polynomial(form)})" for form in self.forms.arguments[atom]]
            body = f"/ {arguments[0]}" if op == "inv" else self._application(op, key[0], arguments)
            self.write(f"Definition a{atom} : R := {body}.")
        return f"a{atom}"

    def polynomial(self, form: Polynomial) -> str:
        """Returns a polynomial; equal ones are printed alike."""
        parts = []
        for monomial, coefficient in key_of(form):
            factors = [
                self.atom(atom) if exponent == 1 else f"{self.atom(atom)} ^ {exponent}"
                for atom, exponent in monomial
            ]
            number = number_text(coefficient)
            if not factors:
                parts.append(number)
            elif coefficient == 1:
                parts.append(" * ".join(factors))
            else:
                parts.append(f"{number} * ({' * '.join(factors)})")
        return " + ".join(parts) if parts else "0"

    def _is_itself(self, term: int) -> bool:
        form = self.forms.of(term)
        if len(form) != 1:
            return False
        ((monomial, coefficient),) = form.items()
        return (
            coefficient == 1
            and len(monomial) == 1
            and monomial[0][1] == 1
            and self.atom(monomial[0][0]) == self.node(term)
        )

    def equality(self, term: int) -> str | None:
        """Returns the lemma that a term is its normal form; None where it is by its name."""
        if self._is_itself(term):
            return None
        if term not in self._equalities:
            ready = {below for below in self.terms.below(term) if below in self._equalities}
            for below in self._numbers_below(term):
                if below not in ready and not self._is_itself(below):
                    self._write_equality(below)
        return self._equalities[term]

    def _numbers_below(self, term: int) -> list[int]:
        """The terms of whose normal forms that of a term is made; arguments first."""
        terms_below, pending = {term}, [term]
        while pending:
            current = pending.pop()
            if current in self._equalities:
                continue
            for arg in self.forms._operands(current):
                if arg not in terms_below:
                    terms_below.add(arg)
                    pending.append(arg)
        return sorted(terms_below)

    def rewriting(self, terms: Iterable[int]) -> str:
        """Returns the tactic that puts the normal forms of some terms in their places."""
        names = [self.equality(term) for term in dict.fromkeys(terms)]
        lemmas = [name for name in names if name is not None]
        return f"rewrite {', '.join(lemmas)}. " if lemmas else ""

    def _write_equality(self, term: int) -> None:
        if term in self._equalities:
            return
        name, form = self.node(term), self.forms.of(term)
        rewriting = self.rewriting(self.forms._operands(term))
        end = self._end_of_equality(term)
        text = self.polynomial(form)
        self._equalities[term] = f"F{term}"
        self.write(f"Lemma F{term} : {name} = {text}.")
        # Before the normal forms stand there: their numbers are quotients too.
        quotient = "unfold Rdiv. " if self.terms.nodes[term][0] == "/" else ""
        self.write(f"Proof. unfold {name}. {quotient}{rewriting}{end} Qed.")

    def _end_of_equality(self, term: int) -> str:
        op, args, _ = self.terms.nodes[term]
        form = self.forms.of(term)
        if op in ("rational", "+", "*"):
            return "polynomials."
        arguments = [self.forms.of(arg) for arg in args]
        if op == "/":
            return f"{self._rewrite_inverse(arguments[1])}polynomials."
        if op == "^":
            exponent = whole_constant(arguments[1])
            if exponent is not None and 0 <= exponent <= 64:
                return f"rewrite (pw_power _ _ {exponent}) by reflexivity. polynomials."
            if exponent is not None and -64 <= exponent < 0:
                inverse = self._rewrite_inverse(arguments[0])
                return (
                    f"rewrite (pw_inverse_power _ _ {-exponent}) by reflexivity. "
                    f"{inverse}polynomials."
                )
            number = constant_of(arguments[0])
            if number is not None and number > 0 and constant_of(arguments[1]) == fmpq(1, 2):
                return self._end_of_root(form)
        if op == "cospi" and not arguments[0]:
            return "apply cospi_zero."
        if op in ("exp", "atan") and not arguments[0]:
            return f"apply {op}_0."
        if op == "floor" and constant_of(arguments[0]) is not None:
            whole = constant_of(form)
            return f"apply (floor_between {'' if whole is None else f'({whole})'}); lra."
        monomial = next(iter(form), ())
        if len(form) != 1 or not monomial:
            raise InexpressibleError(f"the normal form of this {op} is not printed")
        atom = monomial[0][0]
        end = f"unfold {self.atom(atom)}. "
        if op == "cospi" and self.forms.arguments[atom][0] != arguments[0]:
            opposite = self.polynomial(self.forms.arguments[atom][0])
            end += f"rewrite (cospi_even _ ({opposite})) by polynomials. "
        return end + "reflexivity."

    def _end_of_root(self, form: Polynomial) -> str:
        """The proof that the root of a number is a multiple of roots: by their squares."""
        ((monomial, coefficient),) = form.items()
        lines, squares = "", []
        for atom, _ in monomial:
            name = self.atom(atom)
            number = self.polynomial(self.forms.arguments[atom][0])
            lines += (
                f"assert (s{atom} : {name} * {name} = {number}) "
                f"by (unfold {name}; apply pw_root; lra). "
                f"assert (0 <= {name}) by (unfold {name}; apply pw_root_low; lra). "
            )
            squares.append(f"({name} * {name})")
        factor, root = number_text(coefficient), self.polynomial(form)
        product = " * ".join([factor, factor, *squares])
        rewriting = "".join(f"rewrite s{atom}; " for atom, _ in monomial)
        return (
            f"{lines}apply pw_root_is; [lra | lra | "
            "repeat apply Rmult_le_pos; first [assumption | lra] | "
            f"replace (({root}) * ({root})) with ({product}) by ring; {rewriting}lra]."
        )

    def _rewrite_inverse(self, form: Polynomial) -> str:
        if not form:
            return "rewrite Rinv_0. "
        if constant_of(form) is not None:
            return ""
        return f"rewrite {self.inverse(form)}. "

    def integer_multiple(self, factor: int, form: Polynomial, multiple: Polynomial) -> str:
        """Returns the lemma that a multiple of a polynomial is an integer."""
        integers = self.integers(multiple)
        name = f"T{len(self.lines)}"
        self.write(f"Lemma {name} : is_int ({factor} * ({self.polynomial(form)})).")
        self.write(
            f"Proof. apply (int_eq (y := {self.polynomial(multiple)})); "
            f"[polynomials | exact {integers}]. Qed."
        )
        return name

    def inverse(self, form: Polynomial) -> str:
        """Returns the lemma that says what the inverse of a polynomial is."""
        key = key_of(form)
        if key in self._inverses:
            return self._inverses[key]
        name = self._inverses[key] = f"V{len(self._inverses)}"
        inverse = self.forms.inverse(form)
        text, result = self.polynomial(form), self.polynomial(inverse)
        if len(form) == 1:
            ((monomial, _),) = form.items()
            parts = []
            for atom, _ in monomial:
                ((inner, _),) = self.forms._inverse_of_atom(atom).items()
                if len(inner) == 1 and self.forms.atoms[atom][0] != "inv":
                    parts.append(self.atom(inner[0][0]))
                else:
                    parts.append(self.atom(atom))
            unfolding = f"unfold {', '.join(dict.fromkeys(parts))}. "
            proof = (
                f"{unfolding}repeat rewrite Rinv_mult. rewrite <- ?pow_inv. "
                "rewrite ?Rinv_inv. polynomials."
            )
        else:
            ((monomial, coefficient),) = inverse.items()
            atom = monomial[0][0]
            inner_text = self.polynomial(self.forms.arguments[atom][0])
            scale = number_text(1 / coefficient)
            proof = (
                f"unfold {self.atom(atom)}. replace ({text}) with ({scale} * ({inner_text})) "
                "by polynomials. rewrite Rinv_mult. polynomials."
            )
        self.write(f"Lemma {name} : / ({text}) = {result}.")
        self.write(f"Proof. {proof} Qed.")
        return name

    def difference(self, truth: int) -> str:
        """Returns the lemma that the difference of the sides of a relation is its polynomial."""
        op, args, _ = self.terms.nodes[truth]
        if op == "not":
            return self.difference(args[0])
        if truth not in self._differences:
            self._differences.add(truth)
            text = self.polynomial(self.forms.difference(args[1], args[0]))
            left, right = self.node(args[0]), self.node(args[1])
            rewriting = self.rewriting(args)
            self.write(f"Lemma D{truth} : {right} - {left} = {text}.")
            self.write(f"Proof. {rewriting}polynomials. Qed.")
        return f"D{truth}"

    def numeric(self, statement: str, tactic: str) -> str:
        """Returns the lemma that a statement about numbers is."""
        if statement not in self._numeric:
            self._numeric[statement] = f"N{len(self._numeric)}"
            self.write(f"Lemma {self._numeric[statement]} : {statement}.")
            self.write(f"Proof. {tactic}. Qed.")
        return self._numeric[statement]

    # --- integers --------------------------------------------------------------------------------

    def integer(self, atom: int) -> str:
        """Returns the lemma that an atom is an integer."""
        if atom not in self._integers:
            op, _ = self.forms.atoms[atom]
            name = self.atom(atom)
            if op == "symbol":
                proof = f"unfold {name}; apply int_whole"
            elif op in ("floor", "sign"):
                proof = f"apply int_{'sgn' if op == 'sign' else op}"
            else:
                parts = [self.integers(form) for form in self.forms.arguments[atom]]
                proof = f"exact (int_{op} {' '.join(parts)})"
            self._integers.add(atom)
            self.write(f"Lemma I{atom} : is_int {name}.")
            self.write(f"Proof. {proof}. Qed.")
        return f"I{atom}"

    def integers(self, form: Polynomial) -> str:
        """Returns the proof that a polynomial over integers is an integer, as it is printed."""
        parts = []
        for monomial, coefficient in key_of(form):
            number = f"(int_whole ({coefficient}))"
            factors = [
                self.integer(atom)
                if exponent == 1
                else f"(int_pow {exponent} {self.integer(atom)})"
                for atom, exponent in monomial
            ]
            product = self._fold("int_mul", factors) if factors else number
            is_scaled = bool(factors) and coefficient != 1
            parts.append(f"(int_mul {number} {product})" if is_scaled else product)
        return self._fold("int_add", parts) if parts else "(int_whole 0)"

    @staticmethod
    def _fold(lemma: str, parts: Sequence[str]) -> str:
        text = parts[0]
        for part in parts[1:]:
            text = f"({lemma} {text} {part})"
        return text

    def integer_node(self, term: int) -> str:
        """Returns the proof that a term whose normal form is over integers is an integer."""
        proof = self.integers(self.forms.of(term))
        lemma = self.equality(term)
        return proof if lemma is None else f"(int_eq {lemma} {proof})"
