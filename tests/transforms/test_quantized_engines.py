"""States of 8 and of 4 bits have the same bits in every engine that takes rules of whole tensors.

The parameters are stored in 16 bits: steps in float32 differ in the last place between engines
(docs/determinism.md), which decides between two codes now and then.
"""

import importlib
from collections.abc import Callable

import numpy as np
import pytest

from closedform import optimizers, schedules, transforms
from closedform.errors import SessionError
from closedform.language import UpdateRule
from closedform.runtime.c_library import c_compiler
from tests.low_precision.engines import BF16, ENGINES, Arrays

LINE = schedules.linear(0.01, 0.001, 20)
RULES: dict[str, Callable[[UpdateRule], UpdateRule]] = {
    "eight_bit_states": lambda rule: transforms.eight_bit_states(rule, block=64, least_size=64),
    "four_bit_states": lambda rule: transforms.four_bit_states(rule, block=64, least_size=64),
}
SHAPES = {"w": (64, 128), "uneven": (5, 13), "few": (3,), "scalar": ()}
STEPS = 4


def rule_of(name: str) -> UpdateRule:
    return transforms.stochastic_rounding(RULES[name](optimizers.adamw(LINE, weight_decay=0.1)))


def drawn(seed: int) -> Arrays:
    """Arrays whose first rows, some whole blocks, are zero."""
    rng = np.random.default_rng(seed)
    arrays = {name: np.asarray(rng.normal(size=shape)) for name, shape in SHAPES.items()}
    arrays["w"][:2] = 0
    return {name: array.astype(BF16) for name, array in arrays.items()}


# The prover's effort does not suffice for a step of two coded moments.
@pytest.mark.filterwarnings("ignore::closedform.errors.UnprovedWarning")
@pytest.mark.parametrize("engine", ["torch", "jax"])
@pytest.mark.parametrize(
    "name",
    [pytest.param("eight_bit_states", marks=pytest.mark.exhaustive), "four_bit_states"],
)
def test_codes_and_parameters_have_the_same_bits(name: str, engine: str) -> None:
    if engine == "jax":
        importlib.import_module("jax")
    rule = rule_of(name)
    reference, compared = (ENGINES[key](rule, drawn(0)) for key in ("onnxruntime", engine))
    for seed in range(1, STEPS + 1):
        for session in (reference, compared):
            session.step(drawn(seed))
        tables = {"param": (reference.params(), compared.params())}
        states, compared_states = reference.states(), compared.states()
        tables |= {label: (states[label], compared_states[label]) for label in states}
        assert {"exp_avg", "exp_avg_code", "exp_avg_sq_code", "exp_avg_scale"} <= set(tables)
        for label, (expected, actual) in tables.items():
            for key, array in expected.items():
                assert actual[key].dtype == array.dtype, (label, key)
                differing = np.count_nonzero(actual[key] != array)
                assert actual[key].tobytes() == array.tobytes(), (seed, label, key, differing)


@pytest.mark.skipif(c_compiler() is None, reason="there is no C compiler")
@pytest.mark.parametrize("name", RULES)
def test_compiled_c_refuses_blocks(name: str) -> None:
    with pytest.raises(SessionError, match="this rule looks at shapes or at whole tensors"):
        ENGINES["c"](rule_of(name), drawn(0))
