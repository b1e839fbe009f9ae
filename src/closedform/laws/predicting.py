"""``predict``: the loss that a law predicts for a schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import overload

import numpy as np

from closedform.errors import ArgumentError
from closedform.ir.types import FloatArray
from closedform.language import Schedule
from closedform.language.aliases import Number
from closedform.language.exact import to_float
from closedform.laws.evaluation import Evaluator
from closedform.laws.law import Law
from closedform.laws.published import law_of
from closedform.laws.rates import Counts, Rates, rate_values, run_length


@overload
def predict(
    schedule: Schedule | Sequence[float] | FloatArray,
    law: str | Law,
    parameters: str | Mapping[str, Number] | None = None,
    horizon: int | None = None,
    *,
    warmup: int = 0,
) -> float: ...


@overload
def predict(
    schedule: Schedule | Sequence[float] | FloatArray,
    law: str | Law,
    parameters: str | Mapping[str, Number] | None = None,
    *,
    horizon: Sequence[int] | Counts,
    warmup: int = 0,
) -> FloatArray: ...


def predict(
    schedule: Schedule | Sequence[float] | FloatArray,
    law: str | Law,
    parameters: str | Mapping[str, Number] | None = None,
    horizon: int | Sequence[int] | Counts | None = None,
    *,
    warmup: int = 0,
) -> float | FloatArray:
    r"""Returns the loss that a published law predicts for a schedule of the learning rate.

    .. math:: \text{multi\_power:}\quad L_0 + A S^{-\alpha} - B \sum_{k=1}^{n-1}
        (\eta_{k-1} - \eta_k)\bigl(1 - (C \eta_k^{-\gamma} S_k + 1)^{-\beta}\bigr)

    .. math:: \text{momentum:}\quad L_0 + A S^{-\alpha} - C \sum_{k=1}^{n-1}
        (\eta_{k-1} - \eta_k) \frac{1 - \lambda^{n-k}}{1 - \lambda}

    .. math:: \text{last\_iterate:}\quad \frac{D^2 + G^2 Q}{2 S} + \frac{G^2}{2}
        \sum_{k=0}^{n-2} \frac{\eta_k}{S_{k+1}} \frac{Q_k}{S_k}

    with the rates :math:`\eta_0 \dots \eta_{n-1}` of the n updates, :math:`S_k` and :math:`Q_k`
    their sum and that of their squares from update k on, :math:`S = S_0` and :math:`Q = Q_0`.

    The sums of the rates are exact and the terms are added up without a rounding: the result has
    the error of the float64 of single terms, also after a million updates.

    Args:
        schedule: The schedule, or the rates of the updates.
        law: "multi_power", "momentum", "last_iterate", or a law.
        parameters: Values of the parameters by name, or the name of a published fit: "25M", "100M"
            and "400M" of the Multi-Power Law, "unit" (D = G = 1) of the bound.
        horizon: The number of updates n of the run; the length of the schedule if not given.
            Several numbers ask for the loss after each of them: a curve.
        warmup: The updates of a warmup, whose changes of the rate add nothing to the sum of
            changes; its rates count in S. With 0 all changes count, as in the authors' code of
            the Multi-Power Law.

    Raises:
        UnknownNameError: The law, the fit or a parameter does not exist.
        ArgumentError: A parameter or the horizon is missing or out of range.
        DomainError: A rate is negative, or the formula has no value: it divides by the rate at
            changes (Multi-Power Law) or by the sum of those that follow (bound).

    Example:
        >>> from closedform.schedules import cosine, wsd
        >>> for lr in (cosine(3e-4, 3e-5, 24_000), wsd(3e-4, 3e-5, 24_000, 0, 4_000)):
        ...     print(f"{predict(lr, 'multi_power', '400M', warmup=2160):.4f}")
        2.6029
        2.5372

    Source: Luo et al., arXiv 2503.12811; Tissue et al., arXiv 2408.11029; Schaipp et al.,
    arXiv 2501.18965, theorem 1.
    """
    declaration = law_of(law)
    check_warmup(declaration, warmup)
    point = {symbol: to_float(number) for symbol, number in declaration.values(parameters).items()}
    evaluator = Evaluator(declaration, warmup)
    if horizon is None or isinstance(horizon, int | np.integer):
        updates = run_length(schedule, None if horizon is None else int(horizon))
        return evaluator.loss(Rates.of(rate_values(schedule, updates)), point, updates)
    numbers = [run_length(schedule, int(number)) for number in horizon]
    rates = Rates.of(rate_values(schedule, max(numbers, default=1)))
    return np.array([evaluator.loss(rates, point, updates) for updates in numbers])


def check_warmup(law: Law, warmup: int) -> None:
    """Raises an ArgumentError for a negative warmup, or one of a law that sums no changes."""
    if isinstance(warmup, bool) or not isinstance(warmup, int) or warmup < 0:
        raise ArgumentError(
            f"warmup must be an integer of at least 0, got {warmup!r}", where="warmup"
        )
    if warmup and not law.has_warmup:
        raise ArgumentError(
            f"the law sums no changes of the rate: expected warmup 0, got {warmup}",
            where=f"law {law.name!r}",
        )
