"""Float32 errors of optimizers against their float64 runs, ours and torch's on the same draws.

The protocol of the reference's error table: five shapes, five seeds of normal and of drifting
gradients, 12 and 100 steps. Its draws are not known (no seed and no shape is in it), so torch is
run here, beside the rule. Beside a system that cannot be run, medians over draws of our own are
compared with the median of its row, which is over ten draws: ``Beside``. That the shapes of the
reference's records are those of its table shows where torch is put into our place.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from closedform import frameworks
from closedform.language import UpdateRule
from closedform.runtime import OptimizerSession

Array = NDArray[Any]
Trajectories = dict[int, dict[str, Array]]

SHAPES: list[tuple[int, ...]] = [(), (7,), (5, 3), (4, 3, 2), (16, 16)]
MATRICES: list[tuple[int, ...]] = [(3, 2), (7, 5), (5, 8), (4, 12), (16, 16)]
RECORDED: list[tuple[int, ...]] = [(), (5,), (3, 4), (2, 3, 4), (8, 16)]
RECORDED_MATRICES: list[tuple[int, ...]] = [(3, 4), (8, 16), (16, 8), (4, 4), (12, 5)]
MARKS = (12, 100)


class Draws:
    """Parameters and gradients of several runs, all in one model, by name.

    Args:
        shapes: Shapes of the parameters of each run.
        seeds: Number of seeds; each gives a run with normal and one with drifting gradients.
    """

    def __init__(self, shapes: list[tuple[int, ...]], seeds: int) -> None:
        self.start: dict[str, Array] = {}
        self.gradients: list[dict[str, Array]] = [{} for _ in range(MARKS[-1])]
        for run in range(2 * seeds):
            rng = np.random.default_rng(run)
            for place, shape in enumerate(shapes):
                name = f"p{run}_{place}"
                self.start[name] = rng.normal(size=shape).astype(np.float32)
                way = rng.normal(size=shape)
                for gradients in self.gradients:
                    drawn = rng.normal(size=shape)
                    drawn = way + 0.3 * drawn if run % 2 else drawn
                    gradients[name] = np.array(drawn, np.float32)


def ours(rule: UpdateRule, draws: Draws, dtype: Any) -> Trajectories:
    """Returns the parameters after 12 and after 100 steps in onnxruntime."""
    start = {name: array.astype(dtype) for name, array in draws.start.items()}
    session = OptimizerSession(rule, start, threads=1)
    found: Trajectories = {}
    for step, gradients in enumerate(draws.gradients, 1):
        session.step({name: array.astype(dtype) for name, array in gradients.items()})
        if step in MARKS:
            found[step] = {name: array.copy() for name, array in session.params.items()}
    return found


def torch_own(name: str, kwargs: Mapping[str, Any], draws: Draws) -> Trajectories:
    """Returns the parameters of torch's single-tensor float32 path."""
    tensors = {key: torch.nn.Parameter(torch.tensor(a)) for key, a in draws.start.items()}
    options = {} if name == "Muon" else {"foreach": False}
    optimizer = getattr(torch.optim, name)(list(tensors.values()), **options, **kwargs)
    found: Trajectories = {}
    for step, gradients in enumerate(draws.gradients, 1):
        for key, array in gradients.items():
            tensors[key].grad = torch.tensor(array)
        optimizer.step()
        if step in MARKS:
            found[step] = {key: t.detach().numpy().copy() for key, t in tensors.items()}
    return found


def error(found: Trajectories, true: Trajectories, draws: Draws, step: int) -> float:
    """Returns the rms over all elements of the difference, relative to the size of the tensor."""
    squares = []
    for name, first in draws.start.items():
        wanted = true[step][name]
        size = max(float((wanted**2).mean()), float((first.astype(np.float64) ** 2).mean()))
        squares.append(((found[step][name] - wanted) ** 2 / size).ravel())
    return float(np.sqrt(np.concatenate(squares).mean()))


def beside_torch(name: str, kwargs: Mapping[str, Any], seeds: int = 5) -> dict[int, float]:
    """Returns the error of our float32 run as a multiple of torch's, after 12 and 100 steps."""
    draws = Draws(MATRICES if name == "Muon" else SHAPES, seeds)
    rule = frameworks.optimizer("torch", name, dict(kwargs))
    true = ours(rule, draws, np.float64)
    mine, theirs = ours(rule, draws, np.float32), torch_own(name, kwargs, draws)
    return {s: error(mine, true, draws, s) / error(theirs, true, draws, s) for s in MARKS}


def errors_of_runs(found: Trajectories, true: Trajectories, draws: Draws, step: int) -> Array:
    """Returns the metric ``rel`` of the error table for each run: the worst over its elements."""
    worst: dict[str, float] = {}
    for name, first in draws.start.items():
        wanted = true[step][name]
        size = max(float((wanted**2).mean()), float((first.astype(np.float64) ** 2).mean()))
        relative = np.abs(found[step][name] - wanted) / np.maximum(np.abs(wanted), 0.01 * size**0.5)
        run = name.partition("_")[0]
        worst[run] = max(worst.get(run, 0.0), float(relative.max()))
    return np.array(list(worst.values()))


@dataclass(frozen=True, slots=True)
class Beside:
    """Errors beside the median of a row.

    Attributes:
        ratio: The median over our runs, as a multiple of that of the row.
        chance: How often a median over ten of our runs is at most that of the row.
    """

    ratio: float
    chance: float


def beside_median(errors: Array, of_row: float) -> Beside:
    """Returns the errors of runs beside the median of a row."""
    drawn = np.random.default_rng(0).choice(errors, (4000, 10))
    chance = float((np.median(drawn, axis=1) <= of_row).mean())
    return Beside(float(np.median(errors)) / of_row, chance)


def beside_row(
    rule: UpdateRule, medians: Mapping[int, float], torch_class: tuple[str, Any] | None = None
) -> dict[int, Beside]:
    """Returns the error beside a row, after 12 and 100 steps.

    Args:
        rule: The rule.
        medians: The median of the row by the number of steps.
        torch_class: A class of torch and its arguments, the errors of which are taken in place of
            the rule's.
    """
    draws = Draws(RECORDED_MATRICES if rule.name == "muon" else RECORDED, seeds=10)
    true = ours(rule, draws, np.float64)
    found = torch_own(*torch_class, draws) if torch_class else ours(rule, draws, np.float32)
    return {s: beside_median(errors_of_runs(found, true, draws, s), medians[s]) for s in MARKS}
