"""eager == onnxruntime for some rules on every shape, and == compile for two of them.

``compare_backends.py`` has every rule of the library in all backends, 100 steps.
"""

import pytest

import closedform as cf
from tests.torch.engines import distance, is_finite, shapes_of, trained
from tests.torch.training import COMPILING, SHAPES

RULES = {
    "sgd": cf.optimizers.sgd(lr=0.05, momentum=0.9, nesterov=True),
    "adamw": cf.optimizers.adamw(lr=0.01, amsgrad=True),
    "lamb": cf.optimizers.lamb(lr=0.01, weight_decay=0.1),
    "scheduled": cf.optimizers.rmsprop(lr=cf.schedules.linear(0, 0.01, 10), centered=True),
    # Numbers of the whole model are float64 of rank 0: torch.compile loses writes to those.
    "shared": cf.optimizers.schedule_free_sgd(lr=0.05),
}


@pytest.mark.parametrize("name", RULES)
def test_onnxruntime_is_eager(name: str) -> None:
    rule = RULES[name]
    assert shapes_of(rule) == list(SHAPES)
    found, bound = distance(rule, name, "onnxruntime", 20)
    assert found <= bound
    assert is_finite(trained(rule, "eager", 3))


@pytest.mark.sample(every=2)
@pytest.mark.filterwarnings(COMPILING)
@pytest.mark.parametrize("name", ["sgd", "shared"])
def test_compiled_is_eager(name: str) -> None:
    found, bound = distance(RULES[name], name, "compile", 20)
    assert found <= bound
