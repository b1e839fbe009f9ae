"""The random numbers that torch draws in the step of an optimizer."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils._python_dispatch import TorchDispatchMode


class Recorder(TorchDispatchMode):
    """Keeps the standard numbers behind the random ones that torch draws, in their order."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.numbers: list[tuple[str, NDArray[np.float64]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs one operator."""
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::")
        if name in ("normal_", "uniform_"):
            first, second = (0.0, 1.0) if len(args) == 1 else args[1:3]
            scale = second if name == "normal_" else second - first
            self.numbers.append((name.removesuffix("_"), (result.numpy() - first) / scale))
        elif name in ("randn", "randn_like", "rand", "rand_like"):
            kind = "normal" if name.startswith("randn") else "uniform"
            self.numbers.append((kind, result.numpy().copy()))
        return result

    def inputs(
        self, labels: Iterable[str], shape: tuple[int, ...]
    ) -> dict[str, NDArray[np.float64]]:
        """Returns the inputs of a rule of these names, for the only parameter of a shape.

        Those that the step has not drawn are NaN, which the rule does not take.
        """
        values = {label: np.full(shape, np.nan) for label in labels}
        counts: dict[str, int] = {}
        for kind, array in self.numbers:
            if array.shape == shape:
                counts[kind] = counts.get(kind, 0) + 1
                values[kind if counts[kind] == 1 else f"{kind}_{counts[kind]}"] = array
        return values
