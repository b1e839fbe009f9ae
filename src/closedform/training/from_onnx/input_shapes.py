"""The shapes that an ONNX file declares for its inputs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import onnx
import torch

from closedform.errors import TrainingExportError


@dataclass(frozen=True, slots=True)
class InputShapes:
    """Declared shapes of inputs.

    Attributes:
        free_sizes: Names of the free sizes by input and axis.
        shapes: The shapes of the inputs that have them, with names of free sizes.
        where: The file, named in errors.
    """

    free_sizes: Mapping[str, Mapping[int, str]]
    shapes: Mapping[str, tuple[int | str, ...]]
    where: str

    @classmethod
    def read(cls, inputs: Mapping[str, onnx.ValueInfoProto], where: str) -> InputShapes:
        """Returns the shapes of inputs by name."""
        free_sizes = _free_sizes(inputs)
        shapes = {
            name: tuple(
                free_sizes.get(name, {}).get(axis, dim.dim_value)
                for axis, dim in enumerate(value.type.tensor_type.shape.dim)
            )
            for name, value in inputs.items()
            if value.type.tensor_type.HasField("shape")
        }
        return cls(free_sizes, shapes, where)

    def check_ranks(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Raises ExportError if a tensor has another number of axes than its input."""
        for name, tensor in tensors.items():
            if name in self.shapes and tensor.dim() != len(self.shapes[name]):
                raise self._error(name, tensor)

    def check_sizes(self, tensors: Mapping[str, torch.Tensor], cause: Exception) -> None:
        """Raises ExportError from a cause if a tensor has another size than its input.

        Files declare sizes that their nodes do not need: only where they fail, these matter.
        """
        sizes: dict[str, int] = {}
        for name, shape in self.shapes.items():
            for dim, size in zip(shape, tensors[name].shape, strict=True):
                expected_size = sizes.setdefault(dim, size) if isinstance(dim, str) else dim
                if size != expected_size:
                    expected_sizes = {dim: expected_size} if isinstance(dim, str) else {}
                    raise self._error(name, tensors[name], expected_sizes) from cause

    def _error(
        self, name: str, tensor: torch.Tensor, sizes: Mapping[str, int] = MappingProxyType({})
    ) -> TrainingExportError:
        dims = self.shapes[name]
        texts = [
            f"{dim} = {sizes[dim]}" if isinstance(dim, str) and dim in sizes else str(dim)
            for dim in dims
        ]
        names = sorted({dim for dim in dims if isinstance(dim, str)})
        free_text = f"{', '.join(names)} may be any size" if names else "no size of it is free"
        return TrainingExportError(
            f"the input {name!r} must have the shape [{', '.join(texts)}], got "
            f"{list(tensor.shape)} in the example",
            where=self.where,
            hint=f"give an example of the shape in the file: {free_text}",
        )


def _free_sizes(inputs: Mapping[str, onnx.ValueInfoProto]) -> dict[str, dict[int, str]]:
    """Names of the free sizes by input and axis: two are one size only where their names are one.

    Exporters write ``?`` and ``None`` for a size without a name.
    """
    names: dict[str, str] = {}
    free: dict[str, dict[int, str]] = {}
    for name, value in inputs.items():
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.HasField("dim_value"):
                continue
            symbol = dim.dim_param
            if not re.search(r"[^\W_]", symbol) or symbol in ("None", "-1"):
                symbol = f"{name}_{axis}"
            plain = re.sub(r"\W", "_", symbol)
            plain = plain if plain.isidentifier() else f"size_{plain}"
            # ``a.b`` and ``a-b`` are two sizes, although both become a_b.
            while names.setdefault(plain, symbol) != symbol:
                plain += "_"
            free.setdefault(name, {})[axis] = plain
    return free
