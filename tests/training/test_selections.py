"""Forms of operators that select, resample or are special functions, beside torch in float64."""

import itertools
import math
from typing import Any

import pytest
import torch

from closedform.training.to_onnx.forms import FORMS
from closedform.training.to_onnx.specials import SPECIALS

_ATEN = torch.ops.aten


def _numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _cases() -> list[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    volume, grid = _numbers(2, 3, 4, 5, 3), 1.5 * _numbers(2, 2, 3, 2, 3, seed=1)
    image, matrix = _numbers(2, 3, 7, 10), _numbers(4, 6)
    mask = _numbers(4, 1) > -0.5
    gaps = torch.where(_numbers(5, 6, seed=2) > 0, _numbers(5, 6), math.nan)
    counts, weights = torch.tensor([1, 2, 0, 3, 1, 1]), _numbers(6).abs()
    found: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
        (_ATEN.grid_sampler_3d.default, (volume, grid, *how), {})
        for how in itertools.product((0, 1), (0, 1, 2), (False, True))
    ]
    for operator in (_ATEN._upsample_bilinear2d_aa.default, _ATEN._upsample_bicubic2d_aa.default):
        for size, aligned in itertools.product(([3, 4], [7, 10], [11, 6], [1, 21]), (False, True)):
            found.append((operator, (image, size, aligned), {}))
        found.append((operator, (image, [3, 5], False, 0.45, 0.53), {}))
    for name, is_included in itertools.product(("prod", "mean", "amax", "amin"), (True, False)):
        given = (matrix, 1, torch.tensor([0, 3, 0]), _numbers(4, 3, seed=3), name)
        found.append((_ATEN.index_reduce.default, given, {"include_self": is_included}))
    source = _numbers(30, seed=4)
    found += [
        (_ATEN.masked_scatter.default, (value, mask, source), {})
        for value in (matrix, mask * matrix)
    ]
    found += [
        (_ATEN.combinations.default, (_numbers(5), size, repeats), {})
        for size in (1, 2, 3)
        for repeats in (False, True)
    ]
    found += [
        (_ATEN.nanmedian.dim, (gaps, axis, keepdim), {})
        for axis in (0, 1, -1)
        for keepdim in (False, True)
    ]
    found += [
        (_ATEN.nanmedian.default, (gaps,), {}),
        (_ATEN.nanmedian.default, (gaps * math.nan,), {}),
    ]
    for correction, frequent, important in itertools.product(
        (0, 1, 2), (None, counts), (None, weights)
    ):
        options = {"correction": correction, "fweights": frequent, "aweights": important}
        found += [(_ATEN.cov.default, (value,), options) for value in (matrix, matrix[0])]
    return found


# torch 2.15 reports it by Python's warnings, 2.13 writes it to stderr.
@pytest.mark.filterwarnings("ignore:index_reduce\\(\\) is in beta:UserWarning")
@pytest.mark.parametrize("name", sorted({str(operator) for operator, *_ in _cases()}))
def test_results_are_those_of_torch(name: str) -> None:
    for operator, arguments, options in _cases():
        if str(operator) != name:
            continue
        wanted = operator(*arguments, **options)
        own = FORMS[operator](*arguments, **options)
        if name == "aten.nanmedian.dim":  # which of two equal entries is not defined
            wanted, own = wanted[0], own[0]
        torch.testing.assert_close(own, wanted, rtol=1e-9, atol=1e-12, equal_nan=True)


PLACES = torch.cat(
    [torch.linspace(-12, 12, 501, dtype=torch.float64), torch.tensor([-25.0, 0, 25, 100])]
)
CHANCES = torch.cat(
    [torch.linspace(-0.1, 1.1, 501, dtype=torch.float64), torch.tensor([0, 1, 1e-10, 1e-30])]
)


@pytest.mark.parametrize(
    "operator", [op for op in SPECIALS if str(op).startswith("aten.")], ids=str
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_special_functions_are_accurate_to_some_roundings(
    operator: Any, dtype: torch.dtype
) -> None:
    values = (CHANCES if "ndtri" in str(operator) else PLACES).to(dtype)
    is_half = dtype is torch.float16
    wanted = operator(values.float() if is_half else values).to(dtype)
    # Sums of 30 terms; in 16 bits two roundings of the result.
    tolerance = (2 if is_half else 16) * torch.finfo(dtype).eps
    torch.testing.assert_close(
        SPECIALS[operator](values), wanted, rtol=tolerance, atol=1e-30, equal_nan=True
    )


@pytest.mark.parametrize("dtype", [torch.bool, torch.int32])
def test_products_of_integers_are_in_int64(dtype: torch.dtype) -> None:
    value = torch.tensor([[1, 0, 1], [1, 1, 1]]).to(dtype)
    for operator, arguments in (
        (_ATEN.prod.dim_int, (value, 1)),
        (_ATEN.prod.dim_int, (value[:, :0], 1)),
        (_ATEN.prod.default, (value,)),
        (_ATEN.cumprod.default, (value, 1)),
    ):
        torch.testing.assert_close(FORMS[operator](*arguments), operator(*arguments))


def test_special_functions_take_integers() -> None:
    numbers = torch.tensor([0, 1, 3])
    torch.testing.assert_close(SPECIALS[_ATEN.i0.default](numbers), torch.i0(numbers))
