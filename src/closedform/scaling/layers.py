"""The parameters of a model by their layers: widths, fan-in and fan-out, blocks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import prod
from typing import Protocol

import sympy as sp

from closedform.errors import ArgumentError, DefinitionError, describe
from closedform.scaling.tables import Layer

EMBEDDINGS = ("*embed*", "*wte*", "*wpe*")
"""Globs on names of embeddings, whose shapes are those of output weights."""

# As torch names the members of a ModuleList: layers.3.weight.
BLOCKS = r"(?:^|\.)(\d+)\."
"""The index of a block in the name of a parameter: the first number between dots."""


class Sized(Protocol):
    """A parameter of a model."""

    @property
    def shape(self) -> Sequence[int]:
        """Its shape."""


class Model(Protocol):
    """A model as torch has it."""

    def named_parameters(self) -> Iterable[tuple[str, Sized]]:
        """Returns the parameters with their names."""


Shapes = Mapping[str, Sequence[int]]
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter and its layer.

    Attributes:
        name: Its name.
        shape: Its shape.
        layer: The kind of its layer.
        fan_in: The ratio of its fan-in to the base model.
        fan_out: The ratio of its fan-out.
        sizes: The fan-in and the fan-out themselves.
        is_in_block: Whether it belongs to a block, of which the depth counts.
    """

    name: str
    shape: Shape
    layer: Layer
    fan_in: sp.Rational
    fan_out: sp.Rational
    sizes: tuple[int, int]
    is_in_block: bool


def shapes_of(model_or_shapes: Model | Shapes) -> dict[str, Shape]:
    """Returns the shapes of the parameters of a model, by name, in the order of the model.

    Raises:
        ArgumentError: It is neither a model nor a mapping of shapes.

    Example:
        >>> shapes_of({"w": [4, 3]})
        {'w': (4, 3)}
    """
    if isinstance(model_or_shapes, Mapping):
        return {str(name): tuple(map(int, shape)) for name, shape in model_or_shapes.items()}
    if hasattr(model_or_shapes, "named_parameters"):
        return {
            name: tuple(map(int, parameter.shape))
            for name, parameter in model_or_shapes.named_parameters()
        }
    raise ArgumentError(
        f"a model or its shapes by name must be given, got {describe(model_or_shapes)}",
        hint='give a torch.nn.Module, or {"w": (4, 3)}',
    )


def block_of(name: str, blocks: str = BLOCKS) -> int | None:
    """Returns the index of the block of a parameter, None for one outside the blocks.

    Example:
        >>> block_of("h.3.attn.weight"), block_of("head.weight")
        (3, None)
    """
    match = re.search(blocks, name)
    return None if match is None else int(match[1])


def matches(name: str, globs: Sequence[str]) -> bool:
    """Returns whether a glob matches a name."""
    return any(fnmatchcase(name, glob) for glob in globs)


def layers_of(
    model_or_shapes: Model | Shapes,
    base_shapes: Model | Shapes,
    embeddings: Sequence[str] = EMBEDDINGS,
    blocks: str = BLOCKS,
) -> list[Parameter]:
    """Returns the parameters with their layers, by the dimensions in which the base model differs.

    Args:
        model_or_shapes: The model.
        base_shapes: The base model, or another model of the same architecture, whose widths all
            differ. A block that it does not have has the shapes of its first block.
        embeddings: Globs on the names of embeddings, in addition to torch's modules of them.
        blocks: The pattern of the index of a block in a name.

    Raises:
        DefinitionError: The base model has no such parameter, or the shapes do not fit.

    Example:
        >>> shapes = {"embed": (10, 8), "h.0.w": (8, 8), "h.0.b": (8,), "head": (10, 8)}
        >>> base = {name: tuple(4 if n == 8 else n for n in s) for name, s in shapes.items()}
        >>> [entry.layer.value for entry in layers_of(shapes, base)]
        ['embedding', 'hidden', 'vector', 'output']
    """
    bases = shapes_of(base_shapes)
    embeddings = (*embeddings, *_embedding_weights(model_or_shapes))
    first_blocks = {
        # reversed: of equal keys a dict keeps the last one, which is the first block.
        re.sub(blocks, _without_index, name): shape
        for name, shape in reversed(bases.items())
    }
    parameters = []
    for name, shape in shapes_of(model_or_shapes).items():
        base = bases.get(name, first_blocks.get(re.sub(blocks, _without_index, name)))
        if base is None or len(base) != len(shape):
            raise DefinitionError(
                f"the base model has no parameter of this name and rank {len(shape)}, got {base}",
                where=f"parameter {name!r} of shape {list(shape)}",
                hint="base_shapes must be of the same architecture",
            )
        parameters.append(_parameter(name, shape, base, embeddings, blocks))
    return parameters


def _embedding_weights(model_or_shapes: Model | Shapes) -> list[str]:
    """The names of the weights of torch's modules that look up rows."""
    named_modules = getattr(model_or_shapes, "named_modules", tuple)
    return [
        f"{name}.weight" if name else "weight"
        for name, module in named_modules()
        # torch.nn.Embedding and subclasses of it, without an import of torch.
        if hasattr(module, "num_embeddings")
    ]


def _without_index(match: re.Match[str]) -> str:
    return match[0].replace(match[1], "*")


def _parameter(
    name: str, shape: Shape, base: Shape, embeddings: Sequence[str], blocks: str
) -> Parameter:
    ratios = [sp.Rational(size, before) for size, before in zip(shape, base, strict=True)]
    is_in_block = block_of(name, blocks) is not None
    if len(shape) < 2:
        layer = Layer.VECTOR if any(ratio != 1 for ratio in ratios) else Layer.FIXED
        fan_out = ratios[0] if ratios else sp.S.One
        return Parameter(name, shape, layer, sp.S.One, fan_out, (1, prod(shape)), is_in_block)
    # Later dimensions are a kernel's, which width does not change.
    if any(ratio != 1 for ratio in ratios[2:]):
        raise DefinitionError(
            "only the first two dimensions of a parameter may be widths, got a base shape "
            f"{list(base)}",
            where=f"parameter {name!r} of shape {list(shape)}",
        )
    # torch's order: [fan-out, fan-in, kernel …].
    fan_out, fan_in = ratios[:2]
    sizes = (prod(shape[1:]), shape[0])
    is_embedding = len(shape) == 2 and matches(name, embeddings)
    if is_embedding:
        # The rows of an embedding are its inputs.
        fan_in, fan_out, sizes = fan_out, fan_in, (shape[0], shape[1])
    kinds = {
        (False, False): Layer.FIXED,
        (False, True): Layer.EMBEDDING if is_embedding else Layer.INPUT,
        (True, False): Layer.OUTPUT,
        (True, True): Layer.HIDDEN,
    }
    return Parameter(
        name, shape, kinds[fan_in != 1, fan_out != 1], fan_in, fan_out, sizes, is_in_block
    )
