"""The symbols that expressions are written in: the clock, hyperparameters, tensors."""

from __future__ import annotations

import sympy as sp

from closedform.errors import DefinitionError

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
