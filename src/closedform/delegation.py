"""The functions above the language that methods of ``Schedule`` and ``UpdateRule`` call.

The language layer is below the compiler, the prover and plotting, and imports none of them. The
package root registers a loader of their implementations, and a method looks them up when it runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    import numpy as np
    import sympy as sp
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike, NDArray

    from closedform.analysis.rescaling import Rescaled
    from closedform.analysis.resuming import Resumed
    from closedform.language.aliases import Number
    from closedform.language.schedule import Schedule
    from closedform.language.update_rule import UpdateRule
    from closedform.recipes.recipe import Recipe
    from closedform.verify.claims.core import Claim
    from closedform.verify.claims.report import Report


class Functions(Protocol):
    """The functions by name, as the language layer sees them."""

    def evaluate_schedule(
        self, schedule: Schedule, step: int | ArrayLike, /
    ) -> float | NDArray[np.float64]:
        """Returns the value of a schedule at a step or at an array of steps."""

    def verify(
        self,
        source: Schedule | UpdateRule,
        /,
        *claims: Claim,
        assume: Iterable[sp.Basic] = (),
        effort: float = ...,
        budget: float | None = ...,
    ) -> Report:
        """Returns the verdicts of claims."""

    def from_python(
        self, function: Callable[..., object], /, *, name: str | None, hyper: Iterable[str]
    ) -> Schedule:
        """Returns the schedule that a Python function computes."""

    def resume(
        self,
        schedule: Schedule,
        at: int,
        new: Schedule | None = None,
        /,
        *,
        total: int | None,
        batch_sizes: tuple[Number, Number] | None,
        scaling: str,
    ) -> Resumed:
        """Returns a schedule changed at an update of its run."""

    def rescale(
        self,
        recipe: Recipe,
        /,
        *,
        batch: Number,
        tokens: Number,
        width: Number,
        horizon: int | None,
        rule: str | None,
        keep: Iterable[str] | None,
        warmup: int | None,
        critical_batch: Number | None,
    ) -> Rescaled:
        """Returns a recipe for another batch size, number of tokens or width."""

    def plot(
        self,
        schedule: Schedule,
        path: str | os.PathLike[str] | None = None,
        /,
        *,
        steps: int | None,
        ax: Axes | None,
    ) -> Figure:
        """Draws a schedule."""

    def picture(
        self,
        curves: Mapping[str, Schedule | tuple[NDArray[np.int64], NDArray[np.float64]]],
        last: int | None = None,
    ) -> str:
        """Returns a plot of schedules or points as an SVG element; empty if there is none."""


class _Loader:
    """Loads each function when it is first looked up."""

    def __init__(self) -> None:
        self.load: Callable[[str], Any] | None = None

    def __getattr__(self, name: str) -> Any:
        if self.load is None:
            raise AttributeError(f"no loader is registered for {name}: import closedform first")
        function = self.load(name)
        setattr(self, name, function)
        return function


_loader = _Loader()


def register(load: Callable[[str], Any]) -> None:
    """Sets the function that loads an implementation by name; the package root calls it once."""
    _loader.load = load


def functions() -> Functions:
    """Returns the implementations."""
    return cast(Functions, _loader)
