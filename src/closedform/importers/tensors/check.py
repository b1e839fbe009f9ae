"""Traced rules compared with their originals: their graphs, and the distance of two results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import sympy as sp

from closedform.compiler import compile_init, compile_step
from closedform.errors import ClosedFormError, TraceError
from closedform.ir import naming
from closedform.ir.evaluate import evaluate
from closedform.ir.graph import Graph
from closedform.ir.types import DType
from closedform.language.functions import Rounded
from closedform.language.update_rule import UpdateRule
from closedform.options import GraphOptions, ModelSpec

STEPS = 20
"""The number of first steps on which a rule is compared."""

# A step in float64 has some hundred roundings of 1.1e-16, and the rule adds in another order; a
# wrong coefficient shows in the third digit.
TOLERANCE = 1e-10

Graphs = tuple[Graph, Graph]
"""The graphs of the start and of a step."""


def graphs_of(spec: ModelSpec) -> Graphs:
    """Returns the graphs of a model in float64.

    Raises:
        TraceError: The rule has no graph.
    """
    options = GraphOptions(dtype=DType.F64)
    try:
        return compile_init(spec, options), compile_step(spec, options)
    except TraceError:
        raise
    except ClosedFormError as error:
        raise TraceError(
            f"the rule was traced and has no graph: {error.what}",
            where=error.where,
            hint=error.hint,
        ) from error


class RunningRule:
    """A rule that is run by the evaluator.

    Args:
        graphs: Its graphs.
        params: Values of the parameters by name.

    Attributes:
        values: Values by name: ``step``, ``param.<name>``, ``state.<name>.<state>`` and
            ``shared.<state>``.
    """

    def __init__(self, graphs: Graphs, params: Mapping[str, Any]) -> None:
        init, self._step = graphs
        start = {naming.param(name): value for name, value in params.items()}
        input_names = {node.attribute("name") for node in init.inputs}
        initial = evaluate(init, {key: value for key, value in start.items() if key in input_names})
        self.values: dict[str, Any] = {**start, **initial}
        self._inputs = [str(node.attribute("name")) for node in self._step.inputs]

    def set_clock(self, time: int) -> None:
        """Sets the number of steps done."""
        self.values[naming.STEP] = np.array(time)

    def step(self, gradients: Mapping[str, Any], tensors: Mapping[str, Any] | None = None) -> None:
        """Takes one step.

        Args:
            gradients: Of the parameters by name.
            tensors: Other inputs by the names of their ports.
        """
        gradient_inputs = {naming.grad(name): value for name, value in gradients.items()}
        inputs = {**self.values, **gradient_inputs, **(tensors or {})}
        outputs = evaluate(self._step, {name: inputs[name] for name in self._inputs})
        self.values |= {name.removeprefix(naming.NEXT): array for name, array in outputs.items()}


class RuleDeviation(NamedTuple):
    """How far a rule is from its original.

    Attributes:
        gap: The largest difference, in units of the largest element of the tensor.
        label: The tensor.
        step: The step.
    """

    gap: float = 0.0
    label: str = ""
    step: int = 0

    @property
    def is_small(self) -> bool:
        """Whether it is that of roundings; NaN is not."""
        return self.gap <= TOLERANCE

    def check(self, where: str, original: str, cause: str) -> None:
        """Raises TraceError if it is not small.

        Args:
            where: What is traced, for errors.
            original: What the rule is compared with.
            cause: Why they may differ.
        """
        if not self.is_small:
            raise TraceError(
                f"the traced rule differs from the {original} by {self.gap:.3g} of the largest "
                f"element of {self.label} at step {self.step}",
                where=where,
                hint=cause,
            )


def without_rounding(rule: UpdateRule) -> UpdateRule:
    """Returns a rule without roundings to 16 bits; itself if it has none."""
    if not any(expr.has(Rounded) for expr in rule.all_expressions()):
        return rule

    def bare(expr: sp.Basic) -> sp.Basic:
        return expr.replace(Rounded, lambda inner, _: inner)

    return replace(rule, **rule.expressions_by(bare))


def relative_gap(actual: Any, expected: Any) -> float:
    """Returns the largest difference, in units of the largest element."""
    actual, expected = np.broadcast_arrays(actual, expected)
    if not actual.size:
        return 0.0
    is_same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    if is_same.all():
        return 0.0
    size = float(np.max(np.abs(expected[np.isfinite(expected)]), initial=0.0))
    with np.errstate(invalid="ignore"):
        gap = np.where(is_same, 0.0, np.abs(actual - expected))
    largest = float(np.max(gap)) if np.isfinite(gap).all() else np.inf
    return largest / size if size else largest
