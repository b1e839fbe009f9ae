"""The last op of a step on all parameters at once: ``param + number·tensor``."""

import numpy as np
import pytest

import closedform as cf
from closedform.compiler import compile_step
from closedform.ir.evaluate import evaluate
from closedform.ir.graph import Graph, input_names
from closedform.ir.program import hoist
from closedform.language import UpdateRule
from closedform.options import ModelSpec
from closedform.torch.engine.moves import separate

RATE = cf.schedules.linear(0, 0.1, 20)
SEPARATED = {
    "a state": cf.optimizers.sgd(RATE, momentum=0.9),
    "the gradient": cf.optimizers.sgd(RATE),
}
OTHERS = {
    "a state and the gradient": cf.optimizers.sgd(RATE, momentum=0.9, nesterov=True),
    "a quotient": cf.optimizers.adam(RATE),
    "the gradient has the parameter": cf.optimizers.sgd(RATE, weight_decay=0.1),
    "the parameter is scaled": cf.optimizers.adamw(RATE),
}


def tensors_of(rule: UpdateRule) -> Graph:
    """The part of a step that has tensors."""
    return hoist(compile_step(ModelSpec(rule, {"w": (4,)})))[1]


@pytest.mark.parametrize("name", SEPARATED)
def test_the_move_of_what_is_left_is_the_step(name: str) -> None:
    whole = tensors_of(SEPARATED[name])
    separated = separate(whole, "param.w")
    assert separated is not None
    rest, move = separated
    rng = np.random.default_rng(0)
    # Positive numbers: a second moment is under a root.
    given = {
        str(node.attribute("name")): rng.random(4 if node.type.shape else ()).astype(np.float32)
        for node in whole.inputs
    }
    wanted = evaluate(whole, given)
    got = {} if rest is None else evaluate(rest, {one: given[one] for one in input_names(rest)})
    tensor = given["grad.w"] if move.tensor is None else got[move.tensor]
    number = np.float32(1) if move.number is None else given[move.number]
    assert np.array_equal(given["param.w"] + move.sign * (number * tensor), wanted["next.param.w"])
    for state in set(wanted) - {"next.param.w"}:
        assert np.array_equal(got[state], wanted[state])


@pytest.mark.parametrize("name", OTHERS)
def test_another_form_is_left_whole(name: str) -> None:
    assert separate(tensors_of(OTHERS[name]), "param.w") is None
