"""The evaluator of updates in 60 digits, and how errors are counted."""

from dataclasses import replace
from typing import Any

import mpmath
import numpy as np
import pytest
import torch

from closedform import frameworks, optimizers
from closedform.ir.types import DType
from closedform.language import UpdateRule
from tests.numerics.updates import KINDS, Case, cases, errors, unit
from tests.support.exact_updates import exact_param


def exact(rule: UpdateRule, case: Case) -> Any:
    """Returns the next parameter as the measurement computes it."""
    return exact_param(rule, case.tensors, case.step, case.shared, 2.0**-23)


def test_a_step_of_sgd_is_that_of_rational_arithmetic() -> None:
    rule = optimizers.sgd(0.1, momentum=0.9)
    tensors = {"param": np.array([3.0]), "grad": np.array([0.5]), "momentum_buffer": np.array([2])}
    (value,) = exact_param(rule, tensors, 1, {}, 2.0**-23)
    assert abs(value - mpmath.mpf("2.77")) < mpmath.mpf(10) ** -55


@pytest.mark.parametrize("name", ["Adam", "Adadelta", "RMSprop"])
def test_a_first_step_is_that_of_torch_in_float64(name: str) -> None:
    rule = frameworks.optimizer("torch", name, {"lr": 0.01})
    case = next(iter(cases(rule, (), kinds=("random",))))
    param = torch.nn.Parameter(torch.tensor(case.tensors["param"], dtype=torch.float64))
    param.grad = torch.tensor(case.tensors["grad"], dtype=torch.float64)
    getattr(torch.optim, name)([param], lr=0.01, foreach=False).step()
    # Some ten roundings of a step of at most 0.01, or of the parameter.
    np.testing.assert_allclose(
        exact(rule, case).astype(float), param.detach().numpy(), rtol=1e-15, atol=1e-16
    )


def test_muon_is_its_polynomial_of_the_singular_values() -> None:
    rule = optimizers.muon(0.01)
    case = next(iter(cases(rule, (8, 6), kinds=("random",))))
    param, grad = (case.tensors[name].astype(float) for name in ("param", "grad"))
    buffer = 0.05 * grad
    direction = buffer + 0.05 * (grad - buffer)
    # Five Newton-Schulz steps on the singular values, as numpy's decomposition has them.
    left, values, right = np.linalg.svd(direction / np.linalg.norm(direction), full_matrices=False)
    for _ in range(5):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    step = 0.01 * (8 / 6) ** 0.5 * (left * values) @ right
    expected = param * (1 - 0.01 * 0.1) - step
    np.testing.assert_allclose(exact(rule, case).astype(float), expected, rtol=0, atol=1e-14)


def test_another_rule_is_off_by_many_ulp() -> None:
    rule = optimizers.adamw(1e-3)
    case = list(cases(rule, (), kinds=("random",)))[-1]
    right = exact(rule, case)
    wrong = exact(rule.bind(beta2=0.998), case)
    rounded = np.array(right.astype(float), np.float32)
    near, _ = errors(right, rounded, case.tensors["param"], DType.F32)
    far, _ = errors(wrong, rounded, case.tensors["param"], DType.F32)
    assert near.max() <= 0.5 + 1e-6
    assert np.median(far) > 5


@pytest.mark.parametrize(
    ("value", "dtype", "power"),
    [
        (1, DType.F32, -23),
        (0.75, DType.F32, -24),
        (0, DType.F32, -149),
        (1e-42, DType.F32, -149),
        (1, DType.F16, -10),
        (1, DType.BF16, -7),
        (1, DType.F64, -52),
    ],
)
def test_units_are_those_of_the_format(value: float, dtype: DType, power: int) -> None:
    assert unit(mpmath.mpf(value), dtype) == mpmath.mpf(2) ** power


def test_a_value_that_overflows_is_infinitely_wrong() -> None:
    exact_values = np.array([mpmath.mpf(1), mpmath.inf, mpmath.mpf(1)], object)
    outputs = np.array([np.inf, 1, 1 + 2.0**-23], np.float32)
    of_value, of_scale = errors(exact_values, outputs, np.array([4.0, 1, 4]), DType.F32)
    assert np.isinf(of_value[0])
    assert np.isnan(of_value[1])
    assert (of_value[2], of_scale[2]) == (1, 0.25)


def test_gradients_are_of_their_kinds() -> None:
    rule = replace(optimizers.sgd(0.1), stored=None)
    case = next(iter(cases(rule, ())))
    sizes = {kind: np.abs(case.tensors["grad"][part]) for kind, part in case.kinds.items()}
    assert set(sizes) == set(KINDS)
    assert sizes["zero"].max() == 0
    assert sizes["tiny"].max() < 1e-19
    assert sizes["huge"].min() > 9e5
