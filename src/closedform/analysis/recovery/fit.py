"""Least squares over the parameters of a structure, many starts at once.

Values enter most expressions linearly: for given other parameters they are solved directly
(variable projection), and only the others are searched, by damped Gauss-Newton steps.
Residuals are in units of the precision of the logged values: a reproduction has none above 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import sympy as sp
from numpy.typing import NDArray

from closedform.analysis.recovery.marks import Points
from closedform.analysis.recovery.structures import Role, Structure
from closedform.ir.types import FloatArray

_BAD = 1e30
"""The residual where an expression has no value."""


@dataclass(frozen=True, slots=True)
class Fits:
    """Parameters and residuals of many starts.

    Attributes:
        values: Name of each parameter -> its value in each start.
        residuals: Of each start and point, in units of the precision.
    """

    values: Mapping[str, FloatArray]
    residuals: FloatArray

    @property
    def costs(self) -> FloatArray:
        """The root of the mean squared residual of each start."""
        root: FloatArray = np.sqrt(np.mean(np.minimum(self.residuals**2, _BAD), axis=1))
        return root

    @property
    def largest(self) -> FloatArray:
        """The largest residual of each start."""
        largest_residuals: FloatArray = np.max(np.abs(self.residuals), axis=1)
        return largest_residuals

    def is_close(self, index: int | None = None) -> bool:
        """Returns whether a start, or any of them, may be a reproduction before it is rounded.

        The parameters that were logged have no residual above 1, so that the least mean square is
        not above 1 either; a single residual of the least squares may be.
        """
        close = (self.costs <= 1 + 1e-6) & (self.largest <= _LARGEST)
        return bool(close.any() if index is None else close[index])

    def best(self, count: int) -> NDArray[np.int64]:
        """Returns the positions of the starts with the smallest costs."""
        return np.argsort(self.costs, kind="stable")[:count]


_LARGEST = 4.0
"""The largest residual at the least squares of a fit that is close."""


_HOPELESS = 1e3
"""Cost from which a start is given up where a step gains less than a thousandth of it."""


COST_OF_A_CALL = 300
"""Values that take as long as a call that computes none: a log of few points is many calls."""


class Effort:
    """The number of values that a search may yet compute.

    Args:
        left: The number.
    """

    def __init__(self, left: int) -> None:
        self.left = left

    @property
    def is_spent(self) -> bool:
        """Whether nothing is left."""
        return self.left <= 0


class Problem:
    """A structure with points, some of its parameters known.

    Args:
        structure: The structure.
        points: The points.
        effort: From which the values that it computes are taken.
        is_projected: Whether linear parameters are solved directly; else all are searched.
    """

    def __init__(
        self,
        structure: Structure,
        points: Points,
        effort: Effort,
        *,
        is_projected: bool = True,
    ) -> None:
        self.structure = structure
        self.effort = effort
        self.points = points
        free = structure.parameters
        self.linear = [parameter for parameter in free if parameter.is_linear and is_projected]
        self.others = [parameter for parameter in free if parameter not in self.linear]
        self.program = structure.program(is_projected=is_projected)

    def project(self, theta: FloatArray) -> Fits:
        """Returns the fits with these values of the parameters that are not linear.

        Args:
            theta: Of shape (starts, parameters).
        """
        count = len(theta)
        points = self.points
        # Effort is values of the curve, not seconds: the same result on each machine.
        self.effort.left -= COST_OF_A_CALL + count * len(points.steps) * (1 + len(self.linear))
        weights = 1 / points.errors
        shape = (count, len(points.steps))
        all_columns = self.program.columns(self._symbols(theta), points.steps)
        base, *gradients = (np.broadcast_to(parameter, shape) for parameter in all_columns)
        with np.errstate(all="ignore"):
            columns = [parameter - base for parameter in gradients]
        with np.errstate(all="ignore"):
            target = (points.values - base) * weights
        # Finite, so that one bad point neither makes the cost NaN nor overflows when it is squared.
        target = np.where(np.abs(target) < np.sqrt(_BAD), target, np.sqrt(_BAD))
        values = {parameter.name: theta[:, index] for index, parameter in enumerate(self.others)}
        if columns:
            with np.errstate(all="ignore"):
                basis = np.stack(columns, axis=2) * weights[None, :, None]
            basis = np.where(np.abs(basis) < 1e100, basis, 0.0)
            solution = _solve_least_squares(basis, target)
            target = target - np.einsum("pnm,pm->pn", basis, solution)
            values |= {
                parameter.name: solution[:, index] for index, parameter in enumerate(self.linear)
            }
        return Fits(values, target)

    def refine(
        self,
        theta: FloatArray,
        iterations: int = 25,
        frozen: NDArray[np.bool_] | None = None,
    ) -> tuple[FloatArray, Fits]:
        """Returns the parameters after Gauss-Newton steps, and their fits.

        Args:
            theta: The starts.
            iterations: The largest number of steps.
            frozen: Which parameters keep their values.
        """
        if not self.others or (frozen is not None and frozen.all()):
            return theta, self.project(theta)
        best_theta = theta.copy()
        places = np.arange(len(best_theta))  # the starts that are not finished
        theta = best_theta.copy()
        fits = self.project(theta)
        residuals, costs = fits.residuals, fits.costs
        # Levenberg-Marquardt, all starts at once: a start that gets worse takes shorter steps,
        # others go on.
        damping = np.full(len(theta), 1e-3)
        for _ in range(iterations):
            jacobian = self.jacobian(theta, residuals)
            if frozen is not None:
                jacobian[:, :, frozen] = 0.0
            # Columns of length 1: steps of 1e5 updates and rates of 1e-4 would make the normal
            # matrix singular.
            scale = np.sqrt(np.sum(jacobian**2, axis=1)) + 1e-300
            jacobian = jacobian / scale[:, None, :]
            normal = np.einsum("pnk,pnl->pkl", jacobian, jacobian)
            gradient = np.einsum("pnk,pn->pk", jacobian, residuals)
            eye = np.eye(len(self.others))
            normal = np.nan_to_num(normal) + (damping[:, None, None] + 1e-12) * eye
            step = np.linalg.solve(normal, -np.nan_to_num(gradient)[:, :, None])
            candidates = self.clip_parameters(theta + step[:, :, 0] / scale, theta)
            new = self.project(candidates)
            is_better = new.costs < costs
            gain = np.where(is_better, costs - new.costs, 0.0)
            theta = np.where(is_better[:, None], candidates, theta)
            residuals = np.where(is_better[:, None], new.residuals, residuals)
            has_converged = gain < np.where(costs > _HOPELESS, 1e-3, 1e-9) * costs
            costs = np.where(is_better, new.costs, costs)
            damping = np.where(is_better, damping * 0.2, np.minimum(damping * 8, 1e6))
            best_theta[places] = theta
            open_ = ~(has_converged & ((damping > 1e3) | is_better | (costs < 1e-3)))
            if not open_.any():
                break
            places, theta, residuals = places[open_], theta[open_], residuals[open_]
            costs, damping = costs[open_], damping[open_]
        return best_theta, self.project(best_theta)

    def clip_parameters(self, theta: FloatArray, old: FloatArray) -> FloatArray:
        """Returns parameters within their ranges; none changes by more than a factor of 4."""
        result = np.where(np.isfinite(theta), theta, old)
        for index, parameter in enumerate(self.others):
            low, high = RANGES.get(parameter.role, (-np.inf, np.inf))
            column = np.clip(result[:, index], low, high)
            if parameter.role in (Role.STEPS, Role.FACTOR, Role.NUMBER):
                column = np.clip(column, old[:, index] / 4, old[:, index] * 4)
            if parameter.symbol.is_positive and parameter.role is Role.VALUE:
                column = np.clip(column, old[:, index] / 4, old[:, index] * 4)
            result[:, index] = column
        return result

    def jacobian(self, theta: FloatArray, residuals: FloatArray) -> FloatArray:
        """Returns the derivatives of the residuals, of shape (starts, points, parameters)."""
        count, width = theta.shape
        span = float(self.points.steps[-1] - self.points.steps[0]) + 1
        level = float(np.max(np.abs(self.points.values))) or 1.0
        shifted_theta = np.repeat(theta, width, axis=0).reshape(count, width, width)
        sizes = np.empty((count, width))
        for index, parameter in enumerate(self.others):
            least = {
                Role.STEPS: 0.01 * span,
                Role.VALUE: 1e-3 * level,
                Role.FACTOR: 1e-12,
                Role.NUMBER: 1e-12,
            }.get(parameter.role, 1e-3)
            # Forward differences; the floor keeps a parameter at 0 from having no step.
            size = 1e-6 * np.maximum(np.abs(theta[:, index]), least)
            sizes[:, index] = size
            shifted_theta[:, index, index] += size
        shifted_residuals = self.project(shifted_theta.reshape(count * width, width)).residuals
        change = shifted_residuals.reshape(count, width, -1) - residuals[:, None, :]
        result: FloatArray = np.transpose(change / sizes[:, :, None], (0, 2, 1))
        return np.clip(np.nan_to_num(result), -1e25, 1e25)

    def _symbols(self, theta: FloatArray) -> dict[sp.Symbol, FloatArray]:
        return {parameter.symbol: theta[:, [index]] for index, parameter in enumerate(self.others)}


RANGES: Mapping[Role, tuple[float, float]] = {
    Role.STEPS: (1e-3, 1e9),
    Role.FRACTION: (1e-6, 1 - 1e-6),
    Role.FACTOR: (1e-9, 1e9),
    Role.NUMBER: (1e-6, 1e9),
    Role.EXPONENT: (-20.0, 20.0),
    Role.ARGUMENT: (-40.0, 40.0),
}
"""Role -> the least and the largest value that is searched."""


def _solve_least_squares(basis: FloatArray, target: FloatArray) -> FloatArray:
    """The least squares solutions of each start; the smallest one where there are several."""
    scale = np.sqrt(np.sum(basis**2, axis=1)) + 1e-300
    scaled_basis = basis / scale[:, None, :]
    normal = np.einsum("pnm,pnl->pml", scaled_basis, scaled_basis)
    right = np.einsum("pnm,pn->pm", scaled_basis, target)
    # The pseudoinverse takes the smallest solution where points do not tell two parameters apart.
    inverse = np.linalg.pinv(normal, rcond=1e-13, hermitian=True)
    solution = np.einsum("pml,pl->pm", inverse, right)
    left = target - np.einsum("pnm,pm->pn", scaled_basis, solution)  # one step of refinement
    solution = solution + np.einsum(
        "pml,pl->pm", inverse, np.einsum("pnm,pn->pm", scaled_basis, left)
    )
    result: FloatArray = solution / scale
    return result
