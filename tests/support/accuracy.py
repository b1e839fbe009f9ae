"""Float32 errors of optimizers against their float64 runs, ours and torch's on the same draws.

The protocol of the reference's error table: five shapes, five seeds of normal and of drifting
gradients, 12 and 100 steps. Its seeds are not known, so torch is run here, beside the rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from closedform import dialects
from closedform.language import UpdateRule
from closedform.runtime import OptimizerSession

Array = NDArray[Any]
Courses = dict[int, dict[str, Array]]

SHAPES: list[tuple[int, ...]] = [(), (7,), (5, 3), (4, 3, 2), (16, 16)]
MATRICES: list[tuple[int, ...]] = [(3, 2), (7, 5), (5, 8), (4, 12), (16, 16)]
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


def ours(rule: UpdateRule, draws: Draws, dtype: Any) -> Courses:
    """Returns the parameters after 12 and after 100 steps in onnxruntime."""
    start = {name: array.astype(dtype) for name, array in draws.start.items()}
    session = OptimizerSession(rule, start, threads=1)
    found: Courses = {}
    for step, gradients in enumerate(draws.gradients, 1):
        session.step({name: array.astype(dtype) for name, array in gradients.items()})
        if step in MARKS:
            found[step] = {name: array.copy() for name, array in session.params.items()}
    return found


def torch_own(name: str, kwargs: Mapping[str, Any], draws: Draws) -> Courses:
    """Returns the parameters of torch's single-tensor float32 path."""
    tensors = {key: torch.nn.Parameter(torch.tensor(a)) for key, a in draws.start.items()}
    options = {} if name == "Muon" else {"foreach": False}
    optimizer = getattr(torch.optim, name)(list(tensors.values()), **options, **kwargs)
    found: Courses = {}
    for step, gradients in enumerate(draws.gradients, 1):
        for key, array in gradients.items():
            tensors[key].grad = torch.tensor(array)
        optimizer.step()
        if step in MARKS:
            found[step] = {key: t.detach().numpy().copy() for key, t in tensors.items()}
    return found


def error(found: Courses, true: Courses, draws: Draws, step: int) -> float:
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
    rule = dialects.optimizer("torch", name, dict(kwargs))
    true = ours(rule, draws, np.float64)
    mine, theirs = ours(rule, draws, np.float32), torch_own(name, kwargs, draws)
    return {s: error(mine, true, draws, s) / error(theirs, true, draws, s) for s in MARKS}
