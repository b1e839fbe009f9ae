"""The symbols that expressions are written in: the clock, hyperparameters, tensors."""

from __future__ import annotations

import sympy as sp

from closedform.errors import DefinitionError


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
    return sp.Symbol(name, real=True, integer=integer or None, positive=positive)


def state(name: str) -> sp.Symbol:
    """Returns the symbol of a state of an update rule, before the step."""
    return sp.Symbol(f"state.{name}", real=True)


def local(name: str) -> sp.Symbol:
    """Returns the symbol of a definition of an update rule: a value that it names and uses."""
    return sp.Symbol(f"local.{name}", real=True)
