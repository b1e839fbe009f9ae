"""``fit``: the parameters of a law from the losses of runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike

import numpy as np
import sympy as sp

from closedform.errors import ArgumentError, nearest
from closedform.ir.types import FloatArray
from closedform.language import Schedule
from closedform.laws.evaluation import Evaluator
from closedform.laws.law import Law
from closedform.laws.predicting import check_warmup
from closedform.laws.published import law_of
from closedform.laws.rates import Counts, Rates, rate_values, run_length

HUBER = 1e-3
"""The residual of the logarithm from which the Huber loss is linear, as in both papers."""

_ITERATIONS = 200
_ENOUGH = 1e-6
"""The relative decrease of the objective at which a fit ends."""


@dataclass(frozen=True, slots=True)
class Run:
    """The losses of a run.

    Attributes:
        schedule: The schedule, or the rates of the updates.
        updates: Numbers of updates, after each of which there is a loss.
        losses: The losses.
    """

    schedule: Schedule | Sequence[float] | FloatArray
    updates: Sequence[int] | Counts
    losses: Sequence[float] | FloatArray

    @classmethod
    def from_log(
        cls,
        path: str | PathLike[str],
        schedule: Schedule | None = None,
        *,
        metric: str = "loss",
        first: int = 0,
    ) -> Run:
        """Returns the run of a log that ``closedform diff`` reads, with its steps and losses.

        Args:
            path: The log.
            schedule: The schedule of the rate. If not given, the logged rates, with straight lines
                between logged updates.
            metric: The column of the loss.
            first: The first update whose loss counts: the laws are of runs after their warmup.

        Raises:
            ConfigError: The log cannot be read.
            ArgumentError: It has no such column, or its rates do not begin at update 0.
        """
        from closedform.recipes.logs import read_log

        log = read_log(path)
        if metric not in log.metrics:
            raise ArgumentError(
                f"the log has no column {metric!r} of losses",
                where=str(path),
                hint=nearest(metric, log.metrics) if log.metrics else None,
            )
        points = {
            step: loss
            for step, loss in zip(log.steps.tolist(), log.metrics[metric].tolist(), strict=True)
            # Losses of the warmup would be fitted by a law that has none.
            if not math.isnan(loss) and step >= first
        }
        rates: Schedule | FloatArray
        if schedule is None:
            steps, series, _ = log.in_order("lr")
            if not len(steps) or steps[0] != 0:
                raise ArgumentError(
                    f"the rates of the log begin at update {next(iter(steps), None)}, not at 0",
                    where=str(path),
                    hint="give the schedule",
                )
            # Logs have every n-th update; the laws sum the rates of all.
            rates = np.interp(np.arange(steps[-1] + 1), steps, series.numbers)
            # Beyond the last rate nothing is known.
            points = {step: loss for step, loss in points.items() if step <= steps[-1]}
        else:
            rates = schedule
        # A loss that is logged with update t is that after it: t + 1 updates are done.
        return cls(rates, [step + 1 for step in points], list(points.values()))


@dataclass(frozen=True, slots=True)
class Fit:
    """Parameters of a law that fit the losses of runs.

    Attributes:
        law: The law.
        parameters: Their values by name, for ``predict``.
        objective: The sum of the Huber losses of the residuals of log(loss).
        error: The mean of the distances of predictions and losses, as parts of the losses.
        is_converged: Whether the objective stopped to decrease.
    """

    law: Law
    parameters: Mapping[str, float]
    objective: float
    error: float
    is_converged: bool


def fit(
    law: str | Law,
    runs: Sequence[Run],
    *,
    start: Mapping[str, float] | None = None,
    fixed: Mapping[str, float] | None = None,
    warmup: int = 0,
) -> Fit:
    r"""Returns the parameters of a law that fit the losses of runs best.

    .. math:: \min_\theta \sum_{\text{runs}} \sum_i
        \mathrm{Huber}_{0.001}\bigl(\log L_i - \log L_\theta(n_i)\bigr)

    The search is Levenberg and Marquardt's in the logarithms of the parameters, with the exact
    derivatives of the formula and the weights of the Huber loss renewed in each iteration.

    Args:
        law: "multi_power", "momentum", "last_iterate", or a law.
        runs: The runs, of two schedules or more: one schedule does not separate the effect of its
            sum from that of its changes.
        start: Where the search begins, for some of the parameters.
        fixed: Values of parameters that are not fitted; lambda of "momentum" is 0.999 if not given.
        warmup: As in ``predict``.

    Raises:
        UnknownNameError: The law does not exist.
        ArgumentError: There are no losses, fewer than parameters, or one that is not above 0.
        DomainError: A rate is negative, or the formula has no value.

    Example:
        >>> from closedform.laws import predict
        >>> from closedform.schedules import cosine, linear
        >>> true = {"L0": 2.0, "A": 0.5, "alpha": 0.5, "C": 0.4}
        >>> updates = range(10, 201, 10)
        >>> runs = [
        ...     Run(lr, updates, predict(lr, "momentum", true, horizon=updates))
        ...     for lr in (cosine(1e-2, 1e-3, 200), linear(1e-2, 5e-3, 200))
        ... ]
        >>> fitted = fit("momentum", runs)
        >>> {name: round(value, 6) for name, value in fitted.parameters.items()}
        {'L0': 2.0, 'A': 0.5, 'alpha': 0.5, 'C': 0.4, 'lambda': 0.999}

    Source: section 3 of Luo et al., arXiv 2503.12811; Hoffmann et al., arXiv 2203.15556.
    """
    declaration = law_of(law)
    check_warmup(declaration, warmup)
    problem = _Problem(declaration, runs, warmup)
    constants = {**declaration.defaults, **(fixed or {})}
    free = [symbol for symbol in declaration.parameters if symbol.name not in constants]
    if len(problem.losses) < len(free):
        raise ArgumentError(
            f"a fit of {len(free)} parameters needs as many losses, got {len(problem.losses)}",
            where="fit",
        )
    point = problem.start({**declaration.start, **constants, **(start or {})})
    declaration.values({symbol.name: value for symbol, value in point.items()})
    point, is_converged = problem.search(point, free)
    residuals = problem.residuals(point)
    return Fit(
        declaration,
        {symbol.name: float(value) for symbol, value in point.items()},
        _huber(residuals),
        # exp(-r) - 1 = prediction/loss - 1, without cancellation.
        float(np.mean(np.abs(np.expm1(-residuals)))),
        is_converged,
    )


class _Problem:
    """The losses of all runs, and the residuals of a law."""

    def __init__(self, law: Law, runs: Sequence[Run], warmup: int) -> None:
        if not runs:
            raise ArgumentError("a fit needs runs, got none", where="fit")
        self.law = law
        self.evaluator = Evaluator(law, warmup)
        self.points: list[tuple[Rates, int]] = []
        losses: list[float] = []
        for index, run in enumerate(runs):
            if len(run.updates) != len(run.losses):
                raise ArgumentError(
                    f"updates and losses must be as many, got {len(run.updates)} and "
                    f"{len(run.losses)}",
                    where=f"run {index}",
                )
            # not > also refuses NaN.
            if any(not loss > 0 for loss in run.losses):
                raise ArgumentError(
                    f"losses must be above 0, got {min(run.losses)}", where=f"run {index}"
                )
            horizons = [run_length(run.schedule, int(number)) for number in run.updates]
            rates = Rates.of(rate_values(run.schedule, max(horizons, default=1)))
            self.points += [(rates, number) for number in horizons]
            losses += map(float, run.losses)
        self.losses = np.array(losses)

    def start(self, values: Mapping[str, float]) -> dict[sp.Symbol, float]:
        """Returns where the search begins: L0 below all losses, and A by the median of them."""
        # L0 has to be below all losses; 0.9 leaves the power law something to explain.
        least = 0.9 * float(self.losses.min(initial=np.inf))
        sums = [float(rates.sums.between(0, number)) for rates, number in self.points]
        height = float(np.median(self.losses)) - least
        # A/S^0.5 through the median of the losses.
        guesses = {"L0": least, "alpha": 0.5, "A": height * float(np.median(sums)) ** 0.5}
        return {
            symbol: float(values.get(symbol.name, guesses.get(symbol.name, 1.0)))
            for symbol in self.law.parameters
        }

    def residuals(self, point: Mapping[sp.Symbol, float]) -> FloatArray:
        """Returns log(loss) - log(prediction); infinity where a prediction is not above 0."""
        predictions = np.array(
            [self.evaluator.loss(rates, point, number) for rates, number in self.points]
        )
        logarithms = np.log(np.where(predictions > 0, predictions, np.nan))
        # An infinite residual: such a step is not taken.
        residuals: FloatArray = np.nan_to_num(np.log(self.losses) - logarithms, nan=np.inf)
        return residuals

    def slopes(self, point: Mapping[sp.Symbol, float], free: Sequence[sp.Symbol]) -> FloatArray:
        """Returns the derivatives of log(prediction) by the logarithms of parameters."""
        columns = [self.law.parameters.index(symbol) for symbol in free]
        # d/d(log θ) = θ d/dθ: parameters are positive and of very different size.
        scale = np.array([point[symbol] for symbol in free])
        rows = [
            self.evaluator.parameter_gradient(rates, point, number)[columns]
            * (scale / self.evaluator.loss(rates, point, number))
            for rates, number in self.points
        ]
        return np.array(rows)

    def search(
        self, point: dict[sp.Symbol, float], free: Sequence[sp.Symbol]
    ) -> tuple[dict[sp.Symbol, float], bool]:
        """Returns the best point that damped steps reach, and whether they stopped by themselves.

        The objective is that of the Huber loss, so that no step raises it.
        """
        # The usual start of Levenberg and Marquardt: nearly a Gauss-Newton step.
        damping = 1e-3
        residuals = self.residuals(point)
        objective = _huber(residuals)
        for _ in range(_ITERATIONS):
            # Iteratively reweighted least squares: δ/|r| beyond δ makes a square of the linear
            # part.
            weights = np.sqrt(HUBER / np.maximum(np.abs(residuals), HUBER))
            matrix = self.slopes(point, free) * weights[:, None]
            normal = matrix.T @ matrix
            vector = matrix.T @ (weights * residuals)
            before = objective
            while damping < 1e12:
                # Marquardt's scaling by the diagonal; 1e-300 for a parameter without effect.
                scaling = np.diag(np.diag(normal) * damping + 1e-300)
                # lstsq, since two parameters may have the same effect on these runs.
                change = np.linalg.lstsq(normal + scaling, vector, rcond=None)[0]
                candidate = dict(point)
                # A step of more than a factor of e leaves the range in which the slopes hold.
                for symbol, entry in zip(free, np.clip(change, -1, 1), strict=True):
                    candidate[symbol] = point[symbol] * float(np.exp(entry))
                trial = self.residuals(candidate)
                if _huber(trial) < objective:
                    point, residuals, objective = candidate, trial, _huber(trial)
                    # Faster down than up by less than one step: 5 and 4 do not cycle.
                    damping = max(damping / 5, 1e-12)
                    break
                damping *= 4
            if before - objective <= _ENOUGH * before:
                return point, True
        return point, False


def _huber(residuals: FloatArray) -> float:
    """The sum of the Huber losses, as ``torch_huber`` of the authors' code."""
    sizes = np.abs(residuals)
    losses = np.where(sizes < HUBER, sizes**2 / 2, HUBER * (sizes - HUBER / 2))
    return float(np.sum(losses))
