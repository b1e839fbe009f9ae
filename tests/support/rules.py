"""Tensors of the shapes that a rule is for."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto

from closedform.compiler import (
    compile_evaluation,
    compile_init,
    compile_program,
    has_evaluation,
)
from closedform.errors import DefinitionError
from closedform.exporters.onnx_files import DEFAULT_FORMAT, rule_models
from closedform.exporters.onnx_targets import OnnxFormat
from closedform.ir.types import Shape
from closedform.language import UpdateRule
from closedform.options import GraphOptions, ModelSpec

SHAPES: Mapping[str, tuple[int, ...]] = {"w": (6, 4), "v": (5, 6), "b": (4,), "s": ()}
"""Matrices of both orientations, a vector and a number."""


def accepts(rule: UpdateRule, shape: Shape) -> bool:
    """Whether a rule is for a shape: Muon, for one, is for matrices alone."""
    try:
        rule.for_shape(shape)
    except DefinitionError:
        return False
    return True


def shapes_for(
    rule: UpdateRule, shapes: Mapping[str, tuple[int, ...]] = SHAPES
) -> dict[str, tuple[int, ...]]:
    """Returns those of the shapes that a rule is for."""
    return {name: shape for name, shape in shapes.items() if accepts(rule, shape)}


def draw(seed: int, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, NDArray[np.float32]]:
    """Returns normally distributed tensors of the shapes."""
    rng = np.random.default_rng(seed)
    return {name: np.asarray(rng.normal(size=shape), np.float32) for name, shape in shapes.items()}


def compiled_models(
    spec: ModelSpec, options: GraphOptions, form: OnnxFormat = DEFAULT_FORMAT
) -> dict[str, ModelProto]:
    """Returns the models of a rule by name, which are not validated."""
    evaluation = compile_evaluation(spec, options) if has_evaluation(spec) else None
    program, init = compile_program(spec, options), compile_init(spec, options)
    return rule_models(spec, program, init, evaluation, form)
