"""Inert terms: the prover's language, as data. What is written stays as written.

Numbers: rational constants, symbols, pi, ``+ * / ^``, ``cos(pi u)``, ``sin(pi u)``, exp, log,
atan, floor, min, max, abs, sign, ``ite(condition, a, b)``, table lookup, undefined. Truths:
``< <= =``, and, or, not. Every walk is a loop: a table of 10,000 branches is a chain as deep.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from closedform.effort import METER, OutOfEffort
from closedform.errors import VerificationError, shortened

T = TypeVar("T")


class Op(StrEnum):
    """The kinds of terms."""

    RATIONAL = "rational"
    SYMBOL = "symbol"
    PI = "pi"
    UNDEFINED = "undefined"
    ADD = "+"
    MULTIPLY = "*"
    DIVIDE = "/"
    POWER = "^"
    COSPI = "cospi"
    SINPI = "sinpi"
    EXP = "exp"
    LOG = "log"
    ATAN = "atan"
    FLOOR = "floor"
    MINIMUM = "min"
    MAXIMUM = "max"
    ABSOLUTE = "abs"
    SIGN = "sign"
    ITE = "ite"
    LOOKUP = "lookup"
    OPAQUE = "opaque"
    TRUE = "true"
    FALSE = "false"
    LESS = "<"
    LESS_EQUAL = "<="
    EQUAL = "="
    AND = "and"
    OR = "or"
    NOT = "not"


RELATIONS = frozenset({Op.LESS, Op.LESS_EQUAL, Op.EQUAL})
_FLATTENED = frozenset({Op.ADD, Op.MULTIPLY, Op.MINIMUM, Op.MAXIMUM, Op.AND, Op.OR})
"""Associative operations: SymPy writes one within its like as a single operation."""
TRUTHS = RELATIONS | {Op.TRUE, Op.FALSE, Op.AND, Op.OR, Op.NOT}


class Sign(StrEnum):
    """The sign that a symbol's declaration gives."""

    ANY = "any"
    POSITIVE = "positive"
    NONNEGATIVE = "nonnegative"
    NEGATIVE = "negative"
    NONPOSITIVE = "nonpositive"


@dataclass(frozen=True, slots=True)
class Declared:
    """A symbol's declaration: its name is its identity, the rest are assumptions.

    The prover's own symbols have an ``InternalName``, which no user's symbol has.
    """

    name: str
    integer: bool = False
    sign: Sign = Sign.ANY


# Units of work for a term that is made. One that is visited costs 2.
_MAKING = 3


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Term:
    """An immutable term. Equal terms are those that are written alike.

    Args:
        op: Its kind.
        args: The terms below it.
        value: A number, a declaration, a table of numbers, or the name of an opaque function.
    """

    op: Op
    args: tuple[Term, ...] = ()
    value: Any = None
    _hash: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.op, self.args, self.value)))
        METER.work += _MAKING

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, value: object) -> bool:
        if self is value:
            return True
        # The stored hash decides most comparisons; equal ones are compared without recursion.
        if not isinstance(value, Term) or self._hash != value._hash:
            return False
        return _written_alike(self, value)

    def __repr__(self) -> str:
        return show(self)


def _written_alike(left: Term, right: Term) -> bool:
    """Compares two terms of one hash without recursion; shared parts are met once."""
    pending, seen_pairs = [(left, right)], set()
    while pending:
        first, second = pending.pop()
        if first is second or (id(first), id(second)) in seen_pairs:
            continue
        is_alike = (
            first.op is second.op and first._hash == second._hash and first.value == second.value
        )
        if not is_alike or len(first.args) != len(second.args):
            return False
        seen_pairs.add((id(first), id(second)))
        pending.extend(zip(first.args, second.args, strict=True))
    return True


def nesting(root: Term) -> int:
    """Returns the most operations within operations; sums of sums and their like count as one."""
    depths: dict[Term, int] = {}
    for node in walk(root):
        depths[node] = max(
            (
                depths[operand] + (operand.op is not node.op or node.op not in _FLATTENED)
                for operand in node.args
            ),
            default=0,
        )
    return depths[root]


def walk(*roots: Term, skip: Container[Term] = ()) -> Iterator[Term]:
    """Yields each distinct term once, operands first; nothing in ``skip`` nor only below it."""
    seen_nodes: set[Term] = set()
    # A stack of its nodes: terms are nested deeper than Python recurses. True marks a node below
    # which all is done.
    pending = [(root, False) for root in reversed(roots)]
    meter = METER
    if meter.work > meter.most:
        raise OutOfEffort
    while pending:
        meter.work += 2
        node, ready = pending.pop()
        if node in seen_nodes or node in skip:
            continue
        if ready or not node.args:
            seen_nodes.add(node)
            yield node
        else:
            pending.append((node, True))
            pending.extend((arg, False) for arg in reversed(node.args))


def fold(root: Term, make: Callable[[Term, list[T]], T]) -> T:
    """Returns ``make(node, results of its arguments)`` of the root, each node made once."""
    results: dict[Term, T] = {}
    for node in walk(root):
        results[node] = make(node, [results[arg] for arg in node.args])
    return results[root]


def chain(node: Term) -> tuple[list[tuple[Term, Term]], Term]:
    """Returns the conditions and values of a chain of choices, and what stands last in it."""
    branches = []
    while node.op is Op.ITE:
        condition, then, node = node.args
        branches.append((condition, then))
    return branches, node


def symbols(*roots: Term) -> dict[str, Term]:
    """Returns the symbols of some terms by name, sorted.

    Raises:
        VerificationError: One name is declared in two ways.
    """
    symbols_by_name: dict[str, Term] = {}
    for node in walk(*roots):
        if node.op is Op.SYMBOL and symbols_by_name.setdefault(node.value.name, node) != node:
            declaration = symbols_by_name[node.value.name].value
            raise VerificationError(
                f"{node.value.name} is declared as {node.value} and as {declaration}",
                hint="declare a name once: the prover knows symbols by their names",
            )
    return dict(sorted(symbols_by_name.items()))


_LONGEST = 2000


def show(root: Term) -> str:
    """Returns the term as one line of text, cut where it is very long."""

    def make(node: Term, args: list[str]) -> str:
        match node.op:
            case Op.RATIONAL:
                return str(node.value)
            case Op.SYMBOL:
                return str(node.value.name)
            case Op.PI | Op.UNDEFINED | Op.TRUE | Op.FALSE:
                return node.op.value
            case Op.ADD | Op.MULTIPLY | Op.AND | Op.OR | Op.POWER | Op.DIVIDE:
                text = f"({f' {node.op.value} '.join(args)})"
            case Op.LESS | Op.LESS_EQUAL | Op.EQUAL:
                text = f"{args[0]} {node.op.value} {args[1]}"
            case Op.LOOKUP:
                text = f"table of {len(node.value)}[{args[0]}]"
            case Op.OPAQUE:
                text = f"{node.value}({', '.join(args)})"
            case _:
                text = f"{node.op.value}({', '.join(args)})"
        return shortened(text, _LONGEST)

    return fold(root, make)
