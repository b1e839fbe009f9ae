"""The symbols and numbers of expressions: the clock, hyperparameters, tensors, exact numbers."""

from __future__ import annotations

import math
from fractions import Fraction
from numbers import Integral, Rational, Real

import sympy as sp

from closedform.errors import DefinitionError, describe
from closedform.language.aliases import Operand
from closedform.language.sizes import check_sizes
from closedform.language.sympy_corrections import (
    correct_folding,
    correct_integrality,
    correct_powers,
)
from closedform.magnitude import check_digits

correct_integrality()
correct_folding()
correct_powers()


class InternalName(str):
    """A name of the library's own: it equals no text, and no name of another use.

    SymPy and the prover know symbols by their names. A symbol with such a name
    differs from each that a user or a file can name, and prints as one that is written alike.

    Args:
        label: How it prints.
        use: What it is for; names of one use and one label are the same.

    Example:
        >>> name = InternalName("x", "prover")
        >>> name == "x", str(name), name == InternalName("x", "prover")
        (False, 'x', True)
    """

    __slots__ = ("use",)

    use: str

    def __new__(cls, label: str, use: str) -> InternalName:
        """Returns the name of a label and a use."""
        name = super().__new__(cls, label)
        name.use = use
        return name

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return str(self), self.use

    def __eq__(self, other: object) -> bool:
        return isinstance(other, InternalName) and self._key() == other._key()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self._key())

    def __lt__(self, other: str) -> bool:
        return self._key() < _key_of(other)

    def __gt__(self, other: str) -> bool:
        return self._key() > _key_of(other)

    def __le__(self, other: str) -> bool:
        return self._key() <= _key_of(other)

    def __ge__(self, other: str) -> bool:
        return self._key() >= _key_of(other)

    def _key(self) -> tuple[str, str]:
        return str(self), self.use


def _key_of(name: str) -> tuple[str, str]:
    """The sort key of a name; a plain one comes before those that print alike."""
    return name._key() if isinstance(name, InternalName) else (name, "")


def internal_symbol(label: str, use: str, **assumptions: bool) -> sp.Symbol:
    """Returns a symbol that differs from each that a user can name.

    Args:
        label: How it prints.
        use: What it is for; see ``InternalName``.
        **assumptions: SymPy's assumptions.
    """
    return sp.Symbol(InternalName(label, use), **assumptions)


# The assumptions are part of its identity: sp.Symbol("t") is another symbol.
t = sp.Symbol("t", integer=True, nonnegative=True)
"""The clock: the number of optimizer steps done so far, an integer >= 0."""

PARAM = sp.Symbol("param", real=True)
"""The parameter tensor of an update rule, before the step."""

GRAD = sp.Symbol("grad", real=True)
"""The gradient tensor of an update rule."""

_RESERVED = frozenset({"t", "step", "param", "grad"})


def hyper(name: str, *, integer: bool = False, positive: bool | None = None) -> sp.Symbol:
    """Returns the symbol of a hyperparameter.

    Args:
        name: A Python identifier; ``t``, ``step``, ``param`` and ``grad`` are reserved.
        integer: True for a number of steps or another count.
        positive: True if it is always above zero; then it may be a divisor even where
            it is an input of the exported graph.

    Raises:
        DefinitionError: The name is not an identifier or is reserved.
    """
    if not isinstance(name, str) or not name.isidentifier() or name in _RESERVED:
        raise DefinitionError(
            f"a hyperparameter's name must be an identifier other than {sorted(_RESERVED)}, "
            f"got {name!r}",
            hint="choose another name",
        )
    # None and not False: SymPy's integer=False states that the value is never an integer.
    return sp.Symbol(name, real=True, integer=integer or None, positive=positive)


def state(name: str) -> sp.Symbol:
    """Returns the symbol of a state of an update rule, before the step."""
    return sp.Symbol(f"state.{name}", real=True)


def local(name: str) -> sp.Symbol:
    """Returns the symbol of a definition of an update rule: a value that it names and uses."""
    return sp.Symbol(f"local.{name}", real=True)


def exact_number(value: object, name: str = "value") -> sp.Expr:
    """Returns the exact SymPy number of a Python number.

    An int is itself, a float is the decimal that its repr shows (``0.1`` is 1/10), a Fraction and
    a SymPy number are themselves, with SymPy Floats read like Python floats.

    Args:
        value: The number.
        name: What the number is for, named in errors.

    Raises:
        DefinitionError: Not a number, a bool, a string, not finite, or not real.
        LimitError: It has more digits than the library works with.
    """
    # bool is a Real for Python, and strings would be parsed by SymPy, which evaluates them.
    if isinstance(value, bool | str) or not isinstance(value, Real | sp.Expr | Fraction):
        raise DefinitionError(
            f"{name} must be a number, got {describe(value)}",
            hint="give an int, a float, a Fraction or a SymPy number",
        )
    if isinstance(value, sp.Expr):
        return _exact_sympy(value, name)
    if isinstance(value, Integral):
        check_digits(int(value), name)
        return sp.Integer(int(value))
    if isinstance(value, Rational):
        check_digits(Fraction(int(value.numerator), int(value.denominator)), name)
        return sp.Rational(int(value.numerator), int(value.denominator))
    number = float(value)
    if not math.isfinite(number):
        raise DefinitionError(f"{name} must be finite, got {number}")
    # A float32 or float16 scalar keeps the digits of its repr: str() shows them.
    text = repr(number) if isinstance(value, float) else str(value)
    return sp.Rational(text)


def _exact_sympy(value: sp.Expr, name: str) -> sp.Expr:
    if not value.is_number:
        raise DefinitionError(f"{name} must be a number, got the expression {value}")
    if isinstance(value, sp.Rational):
        check_digits(Fraction(int(value.p), int(value.q)), name)
    result = rationalize(value, name)
    if result.is_finite is False or result.is_extended_real is False or result.has(sp.nan):
        raise DefinitionError(f"{name} must be finite and real, got {value}")
    return result


def operand(value: Operand, function: str) -> sp.Expr:
    """Returns an argument of a function: an expression as it is, or the exact number."""
    return value if isinstance(value, sp.Expr) else exact_number(value, f"argument of {function}")


def rationalize(expr: sp.Basic, name: str = "an expression") -> sp.Basic:
    """Returns ``expr`` with each Float replaced by the decimal that its shortest repr shows.

    Args:
        expr: The expression.
        name: What it is, for errors.

    Raises:
        LimitError: A number is too long, or a Float beyond float64.
    """
    check_sizes(expr, name)
    # 0.1 in an expression is meant as 1/10: repr is the shortest decimal that reads back.
    floats = {number: sp.Rational(repr(float(number))) for number in expr.atoms(sp.Float)}
    return expr.xreplace(floats) if floats else expr
