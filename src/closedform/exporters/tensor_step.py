"""The step of one tensor, with a learning rate from outside: what optimizer classes compute."""

from __future__ import annotations

from dataclasses import replace

import sympy as sp

from closedform.compiler import compile_parts
from closedform.errors import DomainError, ExportError
from closedform.ir.graph import Graph
from closedform.ir.types import Shape
from closedform.language.symbols import PARAM
from closedform.language.update_rule import UpdateRule
from closedform.options import GraphOptions

RATE = "lr"
"""The hyperparameter that is the learning rate of the framework, and its input of the graph."""

TENSOR = "all"
"""The name that the graph has for the parameter."""


def tensor_step(rule: UpdateRule, shape: Shape, options: GraphOptions, framework: str) -> Graph:
    """Returns one step of a parameter of a shape as a graph, whose input ``lr`` has no value.

    Args:
        rule: The rule, of this shape where it looks at shapes.
        shape: The shape of the parameter.
        options: How it is compiled.
        framework: The name of the framework, for messages.

    Raises:
        ExportError: The rule takes sums over all parameters, has states of the whole model, takes
            or returns further tensors, has no learning rate ``lr``, or is defined for some learning
            rates only.
    """
    check_rule(rule, framework)
    unbound = replace(rule, hyperparameters={**rule.hyperparameters, RATE: None})
    try:
        (((*stages, step),),) = compile_parts(rule.name, [(unbound, [shape])], options)
    except DomainError as error:
        raise ExportError(
            f"{framework} allows any learning rate, but this rule does not: {error.what}",
            where=f"rule {rule.name!r}",
        ) from None
    if stages or step is None:
        raise tensor_step_error(rule, framework, "takes sums over all parameters")
    return step


def first_states(rule: UpdateRule) -> dict[str, float | str]:
    """Returns the first value of each state, or "param" for that of the parameter."""
    return {
        label: "param" if spec.initial == PARAM else float(spec.initial)
        for label, spec in rule.states.items()
    }


def tensor_step_error(rule: UpdateRule, framework: str, reason: str) -> ExportError:
    """Returns the error of a rule that is not the step of one tensor."""
    return ExportError(
        f"an optimizer of {framework} updates each tensor by itself, and this one {reason}",
        where=f"rule {rule.name!r}",
    )


def check_rule(rule: UpdateRule, framework: str) -> None:
    """Raises ExportError for a rule that is not the step of one tensor, or has no ``lr``."""
    if rule.shared or rule.advances != sp.true:
        raise tensor_step_error(rule, framework, "has states of the whole model")
    if rule.inputs or not rule.is_in_one_dtype or rule.evaluation is not None:
        reason = (
            "takes or returns other tensors than the gradient and the parameter, or stores them in "
            "16 bits"
        )
        raise tensor_step_error(rule, framework, reason)
    if RATE not in rule.hyperparameters:
        raise ExportError(
            f"an optimizer of {framework} has a learning rate, and the rule has no hyperparameter "
            "lr",
            where=f"rule {rule.name!r}",
        )
