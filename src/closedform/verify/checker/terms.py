"""Terms of the checker: nodes of a table, equal where they are written alike.

A node is an operation, the numbers of its arguments, and a value. Arguments come before the nodes
that use them, so that every pass is a loop over numbers in order. The meaning is total: ``a / 0``
and 0 to a power below 0 are 0, and another operation outside of its domain has some value. A
relation that is proved so holds wherever its sides are defined; that they are is a statement of its
own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from flint import fmpq

from closedform.errors import VerificationError

Node = tuple[str, tuple[int, ...], object]

RELATIONS = frozenset({"<", "<=", "="})
TRUTHS = RELATIONS | {"true", "false", "and", "or", "not"}
CURVES = ("cospi", "sinpi", "exp", "log", "atan")
FUNCTIONS = frozenset({*CURVES, "floor", "abs", "sign"})
NUMBERS = FUNCTIONS | {
    "rational", "symbol", "pi", "undefined", "+", "*", "/", "^", "min", "max", "ite", "lookup",
    "opaque",
}  # fmt: skip
CHOICES = frozenset({"ite", "min", "max", "abs", "sign"})
SIGNS = frozenset({"any", "positive", "nonnegative", "negative", "nonpositive"})
_COUNTS = {"rational": 0, "symbol": 0, "pi": 0, "undefined": 0, "true": 0, "false": 0, "/": 2,
           "^": 2, "min": 2, "max": 2, "ite": 3, "lookup": 1, "not": 1, "<": 2, "<=": 2, "=": 2,
           **dict.fromkeys(FUNCTIONS, 1)}  # fmt: skip


class RejectedProofError(VerificationError):
    """A step of a proof does not follow, or the data is not a proof."""


def require(condition: object, message: str) -> None:
    """Rejects the proof where a condition of a step does not hold."""
    if not condition:
        raise RejectedProofError(message)


@dataclass(slots=True)
class Terms:
    """The table of all terms of one check.

    Attributes:
        nodes: The terms by their numbers.
        work: What was done so far, in about microseconds: terms, monomials, ends of intervals. The
            search ends by it, a replay does not.
    """

    nodes: list[Node] = field(default_factory=list)
    work: int = 0
    _places: dict[Node, int] = field(default_factory=dict)
    _declarations: dict[str, int] = field(default_factory=dict)

    def make(self, op: str, args: Iterable[int] = (), value: object = None) -> int:
        """Returns the number of a term; the same one for the same term."""
        node = (op, tuple(args), value)
        self.work += 1
        place = self._places.get(node)
        if place is None:
            place = self._places[node] = len(self.nodes)
            self.nodes.append(node)
        return place

    def read(self, rows: Sequence[object], places: list[int]) -> None:
        """Reads rows ``[operation, [arguments], value]``; an argument is the number of a row.

        Raises:
            RejectedProofError: A row is not a term, or a symbol is declared in two ways.
        """
        for row in rows:
            require(isinstance(row, list) and len(row) == 3, f"a term is a list of 3, got {row!r}")
            row = cast("list[Any]", row)
            op, args, value = row
            require(isinstance(op, str) and op in NUMBERS | TRUTHS, f"no operation {op!r}")
            require(isinstance(args, list), f"the arguments of {op} are a list")
            require(
                all(type(arg) is int and 0 <= arg < len(places) for arg in args),
                f"an argument of {op} comes before it",
            )
            operands = [places[arg] for arg in args]
            require(len(args) == _COUNTS.get(op, len(args)), f"{op} with {len(args)} arguments")
            self._check_kinds(op, operands)
            places.append(self.make(op, operands, self._value_of(op, value)))

    def _check_kinds(self, op: str, operands: Sequence[int]) -> None:
        wants_truth = [op in ("and", "or", "not")] * len(operands)
        if op == "ite":
            wants_truth[0] = True
        for operand, is_wanted in zip(operands, wants_truth, strict=True):
            require(self.is_truth(operand) == is_wanted, f"{op} of a term of another kind")
        require(operands or op not in ("+", "*", "and", "or"), f"{op} of nothing")

    def _value_of(self, op: str, value: object) -> object:
        if op == "rational":
            return fraction(value)
        if op == "lookup":
            require(isinstance(value, list) and value, "a table is a list of numbers")
            value = cast("list[Any]", value)
            return tuple(fraction(entry) for entry in value)
        if op == "opaque":
            require(isinstance(value, str), "the name of a function is a text")
            return value
        if op == "symbol":
            require(isinstance(value, list) and len(value) == 3, "a symbol has three values")
            value = cast("list[Any]", value)
            name, integer, sign = value
            is_declared = isinstance(name, str) and type(integer) is bool and sign in SIGNS
            require(is_declared, f"no declaration: {value!r}")
            node = self.make("symbol", (), (name, integer, sign))
            require(
                self._declarations.setdefault(name, node) == node, f"{name} is declared in two ways"
            )
            return (name, integer, sign)
        require(value is None, f"{op} has no value")
        return None

    def is_declared(self, name: str) -> bool:
        """Whether a symbol of this name exists."""
        return name in self._declarations

    def declare(self, name: str, *, integer: bool) -> int:
        """Returns a new symbol."""
        require(not self.is_declared(name), f"{name} is not new")
        self._declarations[name] = self.make("symbol", (), (name, integer, "any"))
        return self._declarations[name]

    def is_truth(self, term: int) -> bool:
        """Whether a term is a truth and not a number."""
        return self.nodes[term][0] in TRUTHS

    def rational(self, value: int | fmpq) -> int:
        """Returns a constant."""
        return self.make("rational", (), fmpq(value))

    def add(self, *terms: int) -> int:
        """Returns a sum."""
        return self.make("+", terms)

    def multiply(self, *terms: int) -> int:
        """Returns a product."""
        return self.make("*", terms)

    def subtract(self, left: int, right: int) -> int:
        """Returns ``left - right``."""
        return self.add(left, self.multiply(self.rational(-1), right))

    def less(self, left: int, right: int) -> int:
        """Returns ``left < right``."""
        return self.make("<", (left, right))

    def less_equal(self, left: int, right: int) -> int:
        """Returns ``left <= right``."""
        return self.make("<=", (left, right))

    def equal(self, left: int, right: int) -> int:
        """Returns ``left = right``."""
        return self.make("=", (left, right))

    def negate(self, truth: int) -> int:
        """Returns the negation, pushed inwards as far as equations."""
        op, args, _ = self.nodes[truth]
        if op in ("true", "false"):
            return self.make("false" if op == "true" else "true")
        if op == "<":
            return self.less_equal(args[1], args[0])
        if op == "<=":
            return self.less(args[1], args[0])
        if op == "=":
            return self.make("not", (truth,))
        if op == "not":
            return args[0]
        return self.make("or" if op == "and" else "and", [self.negate(part) for part in args])

    def positive_form(self, truth: int) -> int:
        """Returns a truth with its negations pushed inwards as far as equations."""
        op, args, _ = self.nodes[truth]
        if op == "not":
            return self.negate(self.positive_form(args[0]))
        if op in ("and", "or"):
            return self.make(op, [self.positive_form(part) for part in args])
        return truth

    def implies(self, *parts: int) -> int:
        """Returns ``(first and second and …) => last``."""
        *conditions, conclusion = parts
        alternatives = [self.negate(condition) for condition in conditions]
        return self.make("or", (*alternatives, conclusion)) if alternatives else conclusion

    def alternatives(self, term: int) -> list[tuple[int, int]]:
        """Returns the conditions of a choice, which cover everything, with its values there."""
        op, args, _ = self.nodes[term]
        require(op in CHOICES, f"{op} is not a choice")
        zero = self.rational(0)
        if op == "ite":
            condition = self.positive_form(args[0])
            return [(condition, args[1]), (self.negate(condition), args[2])]
        if op in ("min", "max"):
            left, right = args
            low = self.less_equal(left, right)
            ordered_pair = (left, right) if op == "min" else (right, left)
            return [(low, ordered_pair[0]), (self.negate(low), ordered_pair[1])]
        number = args[0]
        if op == "abs":
            opposite = self.multiply(self.rational(-1), number)
            return [(self.less_equal(zero, number), number), (self.less(number, zero), opposite)]
        units = self.rational(1), self.rational(-1)
        return [
            (self.less(zero, number), units[0]),
            (self.less(number, zero), units[1]),
            (self.equal(number, zero), zero),
        ]

    def below(self, *roots: int) -> list[int]:
        """Returns the terms of which some terms are made, each once, arguments first."""
        visited = set(roots)
        pending = list(roots)
        while pending:
            for arg in self.nodes[pending.pop()][1]:
                if arg not in visited:
                    visited.add(arg)
                    pending.append(arg)
        self.work += len(visited)
        return sorted(visited)

    def substitute(self, roots: Iterable[int], replacements: Mapping[int, int]) -> list[int]:
        """Returns terms with each key replaced by its value, outermost first.

        Not inside an opaque function: of a tensor a term is one element, and a fact about it says
        nothing of the others, on which the function depends.
        """
        targets = list(roots)
        results: dict[int, int] = {}
        for term in self.below(*targets):
            op, args, value = self.nodes[term]
            if term in replacements:
                results[term] = replacements[term]
            elif op == "opaque" or all(results[arg] == arg for arg in args):
                results[term] = term
            else:
                results[term] = self.make(op, [results[arg] for arg in args], value)
        return [results[target] for target in targets]


def fraction(value: object) -> fmpq:
    """Returns a fraction that is written as ``p`` or ``p/q``."""
    require(isinstance(value, str), f"a number is a text, got {value!r}")
    above, _, below = str(value).partition("/")
    try:
        return fmpq(int(above), int(below or "1"))
    except (ValueError, ZeroDivisionError) as error:
        raise RejectedProofError(f"{value!r} is not a fraction") from error
