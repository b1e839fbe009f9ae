"""A law: the loss after a run as an expression in sums over its learning rates.

Every law here is of one form. The rates of the n updates of a run are eta_0 … eta_(n-1), and the
loss is an expression in parameters, in the sum of the rates or of their squares, and in sums over
k of a summand in eta_k, eta_(k-1) and the sums from k on. The same expressions are evaluated in
float64 and in ball arithmetic, are differentiated for fits and designs, and are the formula in the
documentation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import sympy as sp

from closedform.errors import ArgumentError, UnknownNameError, nearest
from closedform.language import exact_number
from closedform.language.aliases import Number

RATE = sp.Symbol("eta_k", nonnegative=True)
"""The rate of update k."""

PREVIOUS = sp.Symbol(r"\eta_{k-1}", nonnegative=True)
"""The rate of the update before it."""

TAIL = sp.Symbol("S_k", nonnegative=True)
"""The sum of the rates from update k on, with that of k."""

AFTER = sp.Symbol("S_{k+1}", nonnegative=True)
"""The sum of the rates after update k."""

TAIL_SQUARES = sp.Symbol("Q_k", nonnegative=True)
"""The sum of the squares of the rates from update k on, with that of k."""

COUNT = sp.Symbol("n-k", positive=True)
"""The number of updates from update k on."""

TOTAL = sp.Symbol("S", positive=True)
"""The sum of all rates."""

TOTAL_SQUARES = sp.Symbol("Q", positive=True)
"""The sum of the squares of all rates."""


@dataclass(frozen=True, slots=True)
class Summation:
    """A sum over the updates of a run.

    Attributes:
        symbol: The symbol of the sum in the loss.
        summand: In the symbols of this module and parameters of the law.
        is_of_changes: Whether the summand has the factor eta_(k-1) - eta_k: it is summed from the
            first update after the warmup on, and updates that repeat the rate add nothing.
            Otherwise the sum is over all updates but the last.
    """

    symbol: sp.Symbol
    summand: sp.Expr
    is_of_changes: bool = False


@dataclass(frozen=True, slots=True)
class Law:
    """A published functional of a schedule.

    Attributes:
        name: Its name, for ``predict`` and ``design``.
        title: Its name in prose.
        loss: The loss after n updates.
        sums: The sums in it.
        parameters: The parameters, all of them positive, in the order of the paper.
        published: Name of a fit of the authors -> parameter -> value.
        source: The paper and the code.
        defaults: Values of parameters that the paper does not fit.
        below: Numbers that values of parameters must be below.
        start: Values from which a fit begins, of the parameters that the data do not suggest.
    """

    name: str
    title: str
    loss: sp.Expr
    sums: tuple[Summation, ...]
    parameters: tuple[sp.Symbol, ...]
    published: Mapping[str, Mapping[str, float]]
    source: str
    defaults: Mapping[str, float] = field(default_factory=dict)
    below: Mapping[str, int] = field(default_factory=dict)
    start: Mapping[str, float] = field(default_factory=dict)

    @property
    def formula(self) -> sp.Expr:
        """The loss with its sums written out, for documents."""
        k, n = sp.symbols("k n", integer=True, nonnegative=True)
        written = {
            part.symbol: sp.Sum(
                part.summand, (k, 1, n - 1) if part.is_of_changes else (k, 0, n - 2)
            )
            for part in self.sums
        }
        return self.loss.xreplace(written)

    @property
    def has_warmup(self) -> bool:
        """Whether the law leaves out changes of the rate during a warmup."""
        return any(part.is_of_changes for part in self.sums)

    def values(self, parameters: str | Mapping[str, Number] | None) -> dict[sp.Symbol, sp.Expr]:
        """Returns exact values of all parameters.

        Args:
            parameters: The name of a published fit, or a value for each name.

        Raises:
            UnknownNameError: There is no such fit or parameter.
            ArgumentError: A parameter has no value, or one that is not above 0.
        """
        where = f"law {self.name!r}"
        if isinstance(parameters, str):
            if parameters not in self.published:
                raise UnknownNameError(
                    f"the law has no published fit {parameters!r}",
                    where=where,
                    hint=nearest(parameters, self.published) or "give the parameters as a mapping",
                )
            parameters = self.published[parameters]
        names = {symbol.name: symbol for symbol in self.parameters}
        numbers: dict[str, Number] = {**self.defaults, **(parameters or {})}
        for name in numbers:
            if name not in names:
                raise UnknownNameError(
                    f"the law has no parameter {name!r}", where=where, hint=nearest(name, names)
                )
        missing = [name for name in names if name not in numbers]
        if missing:
            fits = ", ".join(map(repr, self.published))
            raise ArgumentError(
                f"the law needs values of {', '.join(names)}, got none of {', '.join(missing)}",
                where=where,
                hint="give parameters as a mapping" + (f", or one of {fits}" if fits else ""),
            )
        values = {names[name]: exact_number(number, name) for name, number in numbers.items()}
        for symbol, number in values.items():
            limit = self.below.get(symbol.name, sp.oo)
            if not 0 < number < limit:
                interval = "above 0" if limit is sp.oo else f"above 0 and below {limit}"
                raise ArgumentError(f"{symbol.name} must be {interval}, got {number}", where=where)
        return {symbol: values[symbol] for symbol in self.parameters}
