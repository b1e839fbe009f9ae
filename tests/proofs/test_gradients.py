"""The backward of exported operators is proved to be the derivative or adjoint of the forward."""

import json
from collections.abc import Callable
from pathlib import Path

import mpmath
import numpy as np
import pytest
from onnx import helper

from closedform.errors import VerificationError
from closedform.training.to_onnx.decompositions import _BACKWARD
from closedform.training.to_onnx.elementary import ELEMENTARY
from closedform.training.to_onnx.normalisation import NORMALISATION
from closedform.verify.terms.build import opaque, symbol
from closedform.verify.terms.sympy_io import to_sympy
from tests.proofs.gradient_faults import planted_faults
from tests.proofs.gradients.derivatives import FUNCTIONS, derivative
from tests.proofs.gradients.layouts import LAYOUTS
from tests.proofs.gradients.multilinear import read_tensors
from tests.proofs.gradients.tensors import Tensor, constant_tensor, input_tensor
from tests.proofs.gradients.torch_rules.composed_rules import COMPOSED
from tests.proofs.gradients.torch_rules.linear_rules import LINEAR
from tests.proofs.gradients.torch_rules.rules import (
    BACKWARDS,
    ELEMENTWISE,
    PROVED_OFF_KINKS,
    RULES,
    kind_of,
)
from tests.support.sampling import marking_slow

ROOT = Path(__file__).parents[2]

WITH_GRADIENTS = [name for name in RULES if name not in ("sign", "sgn")]
"""Rules whose gradient is not 0: another sign of a 0 does not count as a fault."""


@pytest.mark.sample(every=30)
# Its proof takes 4 s.
@pytest.mark.parametrize("name", marking_slow(RULES, ("native_group_norm",)))
def test_the_backward_is_proved(name: str) -> None:
    rule = RULES[name]
    verdict = rule.judge(rule.export())
    assert verdict.proved, verdict.reason


@pytest.mark.sample(every=40)
@pytest.mark.parametrize("name", marking_slow(WITH_GRADIENTS, ("cumprod",)))  # 8 s
def test_no_fault_is_proved(name: str) -> None:
    assert planted_faults(RULES[name], most=12) >= 2


def test_labels_that_are_compared_as_numbers_take_both_values() -> None:
    # A fault that shows at labels of 1 only.
    assert planted_faults(RULES["nn.functional.hinge_embedding_loss"]) >= 2


def test_each_backward_says_how_it_is_shown_to_be_right() -> None:
    tables = (_BACKWARD, ELEMENTARY, NORMALISATION)
    names = {operator.name().partition(".")[0] for table in tables for operator in table}
    backwards = {name for name in names if name.endswith("_backward")}
    assert backwards | {"scaled_dot_product_attention"} == set(BACKWARDS)
    for backward in BACKWARDS.values():
        assert backward.rules or backward.reason
        assert set(backward.rules) <= set(RULES)


def test_the_page_has_each_rule() -> None:
    results = json.loads(
        (ROOT / "tools" / "results" / "training_operators.json").read_text(encoding="utf-8")
    )
    assert results["gradients"] == {name: kind_of(rule) for name, rule in sorted(RULES.items())}
    assert {results["entries"][name][0] for name in RULES} == {"matched"}
    assert len(RULES) == len(ELEMENTWISE) + len(LINEAR) + len(COMPOSED)


@pytest.mark.sample(every=20)
@pytest.mark.parametrize("name", [*LINEAR, *COMPOSED])
def test_a_rule_says_whether_it_compares_numbers(name: str) -> None:
    rule = RULES[name]
    _, reader = read_tensors(rule.export(), "Sin")
    assert reader.has_ties == (kind_of(rule) == PROVED_OFF_KINKS)


FUNCTIONS_OF_MPMATH: dict[str, Callable[[mpmath.mpf], mpmath.mpf]] = {
    "erf": mpmath.erf,
    "atan": mpmath.atan,
    "asin": mpmath.asin,
    "acos": mpmath.acos,
}


def test_derivatives_of_named_functions_are_those_of_mpmath() -> None:
    assert FUNCTIONS_OF_MPMATH.keys() == FUNCTIONS.keys()
    x = symbol("x")
    with mpmath.workdps(40):
        for name, function in FUNCTIONS_OF_MPMATH.items():
            slope = to_sympy(derivative(opaque(name, x), x))
            (free,) = slope.free_symbols
            for point in ("-0.7", "0.1", "0.6"):
                expected = mpmath.diff(function, mpmath.mpf(point))
                value = slope.xreplace({free: mpmath.mpf(point)})
                assert mpmath.almosteq(mpmath.mpmathify(value.evalf(30)), expected, 1e-20)


def test_a_pad_by_a_number_is_not_read() -> None:
    value = input_tensor("x", (3,), is_real=True)
    widths = constant_tensor(np.array([1, 1]))
    node = helper.make_node("Pad", ["x", "widths", "number"], ["y"])
    for number, is_read in ((0.0, True), (1.0, False)):
        operands = [value, widths, constant_tensor(np.array(number, np.float32))]
        if is_read:
            padded = LAYOUTS["Pad"](node, operands, {})
            assert isinstance(padded, Tensor)
            assert padded.shape == (5,)
        else:
            with pytest.raises(VerificationError, match="this Pad is not read"):
                LAYOUTS["Pad"](node, operands, {})
