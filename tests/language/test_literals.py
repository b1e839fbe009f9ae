"""Literals: the numbers that floats of a dtype stand for, beside the digits that NumPy prints."""

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import sympy as sp

from closedform.errors import DefinitionError
from closedform.language.literals import LARGEST_DENOMINATOR, LARGEST_NUMERATOR, literal
from tests.support.literals import drawn_floats


def expected_decimal(number: np.floating[Any]) -> Fraction:
    """The shortest decimal by NumPy's algorithm; whole numbers up to 2**31 themselves."""
    is_count = abs(float(number)) <= 2**31 and float(number).is_integer()
    return Fraction(int(number)) if is_count else Fraction(str(number))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_floats_are_their_shortest_decimals(dtype: str) -> None:
    for number in drawn_floats(dtype, 2000, seed=7):
        exact = literal(float(number), dtype)
        if exact.has(sp.pi):
            factor = exact / sp.pi
            assert abs(factor.p) <= LARGEST_NUMERATOR
            assert factor.q <= LARGEST_DENOMINATOR
            assert type(number)(float(exact)) == number
            continue
        assert Fraction(int(exact.p), int(exact.q)) == expected_decimal(number), number


def test_bfloat16_has_no_printer_but_rounds() -> None:
    for bits in range(1, 0x7F80, 5):
        number = float(np.uint16(bits).view(ml_dtypes.bfloat16))
        exact = literal(number, "bfloat16")
        assert float(ml_dtypes.bfloat16(float(exact))) == number
        if not float(number).is_integer():
            digits = str(int(exact.p) * 10**60 // int(exact.q)).strip("0")
            # 3 digits are enough for 8 bits, save near powers of ten.
            assert len(digits) <= 4, (number, exact)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_multiples_of_pi(dtype: str) -> None:
    kind = np.dtype(dtype).type
    for numerator in range(1, LARGEST_NUMERATOR + 1):
        for denominator in range(1, LARGEST_DENOMINATOR + 1):
            exact = sp.Rational(numerator, denominator) * sp.pi
            number = kind(sp.N(exact, 40))
            assert literal(float(number), dtype) == exact
            assert literal(-float(number), dtype) == -exact
            # One float further it is none, and neither is a larger numerator or denominator.
            assert not literal(float(np.nextafter(number, kind(math.inf))), dtype).has(sp.pi)
    assert not literal(float(kind(math.pi * 17)), dtype).has(sp.pi)
    assert not literal(float(kind(math.pi / 65)), dtype).has(sp.pi)


@pytest.mark.parametrize(
    "number",
    [0.0, -0.0, 1048576.0, 8388607.5, 4168544.0, 16777216.0, 2147483648.0, -2147483648.0],
)
def test_numbers_that_a_float32_has_exactly(number: float) -> None:
    assert literal(number, "float32") == sp.Rational(number)


def test_a_number_that_the_dtype_does_not_have() -> None:
    with pytest.raises(DefinitionError, match=r"0\.1 has more than 24 bits"):
        literal(0.1, "float32")
