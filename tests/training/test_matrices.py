"""Decompositions of matrices beside LAPACK, in float64: factors, pivots, reports, batches."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from closedform.training.to_onnx.forms import FORMS
from closedform.training.to_onnx.matrices import LARGEST, MATRICES
from closedform.training.to_onnx.trace import trace

_ATEN = torch.ops.aten

Arguments = Callable[[torch.Tensor], tuple[Any, ...]]


def _positive(matrix: torch.Tensor) -> torch.Tensor:
    return matrix @ matrix.mT + torch.eye(matrix.shape[-1], dtype=matrix.dtype)


def _factors(matrix: torch.Tensor) -> tuple[Any, ...]:
    return tuple(torch.linalg.lu_factor(matrix))


def _geqrf(matrix: torch.Tensor) -> tuple[Any, ...]:
    return tuple(torch.geqrf(matrix))


SQUARE: dict[Any, list[tuple[Arguments, dict[str, Any]]]] = {
    _ATEN.linalg_lu_factor_ex.default: [(lambda a: (a,), {}), (lambda a: (a * 0,), {})],
    _ATEN.linalg_lu.default: [(lambda a: (a,), {})],
    _ATEN.lu_unpack.default: [(_factors, {}), (_factors, {"unpack_data": False})],
    _ATEN.linalg_lu_solve.default: [
        (lambda a: (*_factors(a), a.cos()), {"left": left, "adjoint": adjoint})
        for left in (True, False)
        for adjoint in (True, False)
    ],
    _ATEN.linalg_solve_triangular.default: [
        (
            lambda a: (a + 3 * torch.eye(a.shape[-1]), a.cos()),
            {"upper": upper, "left": left, "unitriangular": unit},
        )
        for upper in (True, False)
        for left in (True, False)
        for unit in (True, False)
    ],
    _ATEN._linalg_solve_ex.default: [
        (lambda a: (a, a.cos()), {"left": left}) for left in (True, False)
    ],
    _ATEN.linalg_inv_ex.default: [(lambda a: (a,), {})],
    _ATEN._linalg_det.default: [(lambda a: (a,), {}), (lambda a: (a.mT,), {})],
    _ATEN._linalg_slogdet.default: [(lambda a: (a,), {}), (lambda a: (-a.mT,), {})],
    _ATEN.linalg_cholesky_ex.default: [
        (lambda a: (_positive(a),), {"upper": upper}) for upper in (True, False)
    ],
    _ATEN.cholesky_solve.default: [(lambda a: (a.cos(), torch.linalg.cholesky(_positive(a))), {})],
    _ATEN.cholesky_inverse.default: [
        (lambda a: (torch.linalg.cholesky(_positive(a)),), {}),
        (lambda a: (torch.linalg.cholesky(_positive(a), upper=True), True), {}),
    ],
    _ATEN.linalg_qr.default: [
        (lambda a: (a,), {"mode": mode}) for mode in ("reduced", "complete", "r")
    ],
    _ATEN.linalg_matrix_exp.default: [
        (lambda a: (a,), {}),
        (lambda a: (20 * a / a.norm(),), {}),
        (lambda a: (1e-3 * a,), {}),
    ],
    _ATEN.ormqr.default: [
        (lambda a: (*_geqrf(a), a.cos(), True, False), {}),
        (lambda a: (*_geqrf(a), a.cos(), True, True), {}),
        (lambda a: (*_geqrf(a), a.cos(), False, False), {}),
        (lambda a: (*_geqrf(a), a.cos(), False, True), {}),
    ],
    _ATEN.linalg_householder_product.default: [(_geqrf, {})],
}
"""Operators with arguments that are made of a square matrix."""

OBLONG = _ATEN.linalg_lu_factor_ex, _ATEN.linalg_lu, _ATEN.linalg_qr


@pytest.mark.parametrize("operator", SQUARE, ids=str)
def test_results_are_those_of_lapack(operator: Any) -> None:
    form = {**FORMS, **MATRICES}[operator]
    generator = torch.Generator().manual_seed(0)
    shapes = [(1, 1), (2, 2), (5, 5), (2, 3, 4, 4), (9, 9)]
    if operator.overloadpacket in OBLONG:
        shapes += [(3, 5), (5, 3), (2, 1, 4), (2, 4, 1)]
    for shape in shapes:
        matrix = torch.randn(shape, generator=generator, dtype=torch.float64)
        for made, options in SQUARE[operator]:
            arguments = made(matrix)
            expected = operator(*arguments, **options)
            torch.testing.assert_close(
                form(*arguments, **options), expected, rtol=1e-9, atol=1e-9, check_stride=False
            )


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("function", [torch.det, torch.logdet, torch.linalg.solve])
@pytest.mark.parametrize("is_turned", [False, True])
def test_gradients_are_those_of_torch(function: Any, is_turned: bool) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(1)
            matrix = torch.randn(4, 4) + 3 * torch.eye(4)
            self.matrix = torch.nn.Parameter(matrix if torch.det(matrix) > 0 else -matrix)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            matrix = self.matrix.mT if is_turned else self.matrix
            found = function(matrix, x) if function is torch.linalg.solve else function(matrix)
            total: torch.Tensor = (found * x).sum()
            return total

    trace(Model(), None, (torch.randn(4, 4),), dynamic_axes={})  # which is compared with torch


def test_a_matrix_without_a_factor_is_reported_at_the_entry_of_lapack() -> None:
    matrix = torch.diag(torch.tensor([2.0, 1.0, -1.0, 3.0]))
    for operator, wrong in (
        (_ATEN.linalg_cholesky_ex.default, matrix),
        (_ATEN.linalg_inv_ex.default, matrix.clamp(min=0)),
        (_ATEN._linalg_solve_ex.default, matrix.clamp(min=0)),
    ):
        arguments = (wrong,) if "solve" not in str(operator) else (wrong, wrong)
        assert MATRICES[operator](*arguments)[-1] == operator(*arguments)[-1] == 3


def test_large_matrices_are_refused_by_the_name_of_the_decomposition() -> None:
    with pytest.raises(NotImplementedError, match="the LU decomposition of more than 64 rows"):
        MATRICES[_ATEN.linalg_lu.default](torch.zeros(LARGEST + 1, LARGEST + 1))
