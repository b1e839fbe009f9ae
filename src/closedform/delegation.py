"""The functions above the language that methods of ``Schedule`` and ``UpdateRule`` call.

The language layer is below the compiler, the prover and plotting, and imports none of them. The
package root registers where their implementations are, and a method looks them up when it runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    import sympy as sp
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike, NDArray

    from closedform.analysis.resuming import Resumed
    from closedform.language.aliases import Number
    from closedform.language.schedule import Schedule
    from closedform.language.update_rule import UpdateRule
    from closedform.verify.claims.core import Claim
    from closedform.verify.claims.report import Report


class Compiler(Protocol):
    """The module ``closedform.compiler`` as the language layer sees it."""

    def evaluate_schedule(
        self, schedule: Schedule, step: int | ArrayLike, /
    ) -> float | NDArray[np.float64]:
        """Returns the value of a schedule at a step or at an array of steps."""


class Functions(Protocol):
    """The module ``closedform.api`` as the language layer sees it."""

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

    def picture(self, schedule: Schedule) -> str:
        """Returns a picture of a schedule as an HTML element; empty if there is none."""


_loaders: list[tuple[Callable[[], Functions], Callable[[], Compiler]]] = []


def register(load: Callable[[], Functions], load_compiler: Callable[[], Compiler]) -> None:
    """Sets the functions that load the implementations; the package root calls it once."""
    _loaders[:] = [(load, load_compiler)]


def functions() -> Functions:
    """Returns the implementations."""
    return _loaders[0][0]()


def compiler() -> Compiler:
    """Returns the compiler, which a first value needs without the rest."""
    return _loaders[0][1]()
