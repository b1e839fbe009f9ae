"""Special functions as polynomials: Bessel functions, scaled error function, normal quantiles."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from closedform.training.to_onnx.arrays import NARROW
from closedform.training.to_onnx.operators import ATEN, PRIMS

Tensor = torch.Tensor

_I0_NEAR = (
    -4.4153416464793395e-18,
    3.3307945188222384e-17,
    -2.431279846547955e-16,
    1.715391285555133e-15,
    -1.1685332877993451e-14,
    7.676185498604936e-14,
    -4.856446783111929e-13,
    2.95505266312964e-12,
    -1.726826291441556e-11,
    9.675809035373237e-11,
    -5.189795601635263e-10,
    2.6598237246823866e-09,
    -1.300025009986248e-08,
    6.046995022541919e-08,
    -2.670793853940612e-07,
    1.1173875391201037e-06,
    -4.4167383584587505e-06,
    1.6448448070728896e-05,
    -5.754195010082104e-05,
    0.00018850288509584165,
    -0.0005763755745385824,
    0.0016394756169413357,
    -0.004324309995050576,
    0.010546460394594998,
    -0.02373741480589947,
    0.04930528423967071,
    -0.09490109704804764,
    0.17162090152220877,
    -0.3046826723431984,
    0.6767952744094761,
)
_I0_FAR = (
    -7.233180487874754e-18,
    -4.830504485944182e-18,
    4.46562142029676e-17,
    3.461222867697461e-17,
    -2.8276239805165836e-16,
    -3.425485619677219e-16,
    1.7725601330565263e-15,
    3.8116806693526224e-15,
    -9.554846698828307e-15,
    -4.150569347287222e-14,
    1.54008621752141e-14,
    3.8527783827421426e-13,
    7.180124451383666e-13,
    -1.7941785315068062e-12,
    -1.3215811840447713e-11,
    -3.1499165279632416e-11,
    1.1889147107846439e-11,
    4.94060238822497e-10,
    3.3962320257083865e-09,
    2.266668990498178e-08,
    2.0489185894690638e-07,
    2.8913705208347567e-06,
    6.889758346916825e-05,
    0.0033691164782556943,
    0.8044904110141088,
)
_I1_NEAR = (
    2.7779141127610464e-18,
    -2.111421214358166e-17,
    1.5536319577362005e-16,
    -1.1055969477353862e-15,
    7.600684294735408e-15,
    -5.042185504727912e-14,
    3.223793365945575e-13,
    -1.9839743977649436e-12,
    1.1736186298890901e-11,
    -6.663489723502027e-11,
    3.625590281552117e-10,
    -1.8872497517228294e-09,
    9.381537386495773e-09,
    -4.445059128796328e-08,
    2.0032947535521353e-07,
    -8.568720264695455e-07,
    3.4702513081376785e-06,
    -1.3273163656039436e-05,
    4.781565107550054e-05,
    -0.00016176081582589674,
    0.0005122859561685758,
    -0.0015135724506312532,
    0.004156422944312888,
    -0.010564084894626197,
    0.024726449030626516,
    -0.05294598120809499,
    0.1026436586898471,
    -0.17641651835783406,
    0.25258718644363365,
)
_I1_FAR = (
    7.517296310842105e-18,
    4.414348323071708e-18,
    -4.6503053684893586e-17,
    -3.209525921993424e-17,
    2.96262899764595e-16,
    3.3082023109209285e-16,
    -1.8803547755107825e-15,
    -3.8144030724370075e-15,
    1.0420276984128802e-14,
    4.272440016711951e-14,
    -2.1015418427726643e-14,
    -4.0835511110921974e-13,
    -7.198551776245908e-13,
    2.0356285441470896e-12,
    1.4125807436613782e-11,
    3.2526035830154884e-11,
    -1.8974958123505413e-11,
    -5.589743462196584e-10,
    -3.835380385964237e-09,
    -2.6314688468895196e-08,
    -2.512236237870209e-07,
    -3.882564808877691e-06,
    -0.00011058893876262371,
    -0.009761097491361469,
    0.7785762350182801,
)
"""Chebyshev coefficients of exp(-x)·I₀(x) and exp(-x)·I₁(x)/x for x/2 − 2 in [−2, 2], and of
√x·exp(-x)·I(x) for 32/x − 2: from Cephes, as in torch; the highest order first."""

_MIDDLE_ABOVE = (
    -59.96335010141079,
    98.00107541859997,
    -56.67628574690703,
    13.931260938727968,
    -1.2391658386738125,
)
_MIDDLE_BELOW = (
    1.0,
    1.9544885833814176,
    4.676279128988815,
    86.36024213908905,
    -225.46268785411937,
    200.26021238006066,
    -82.03722561683334,
    15.90562251262117,
    -1.1833162112133,
)
_TAIL_ABOVE = (
    4.0554489230596245,
    31.525109459989388,
    57.16281922464213,
    44.08050738932008,
    14.684956192885803,
    2.1866330685079025,
    -0.1402560791713545,
    -0.03504246268278482,
    -0.0008574567851546854,
)
_TAIL_BELOW = (
    1.0,
    15.779988325646675,
    45.39076351288792,
    41.3172038254672,
    15.04253856929075,
    2.504649462083094,
    -0.14218292285478779,
    -0.03808064076915783,
    -0.0009332594808954574,
)
_FAR_ABOVE = (
    3.2377489177694603,
    6.915228890689842,
    3.9388102529247444,
    1.3330346081580755,
    0.20148538954917908,
    0.012371663481782003,
    0.00030158155350823543,
    2.6580697468673755e-06,
    6.239745391849833e-09,
)
_FAR_BELOW = (
    1.0,
    6.02427039364742,
    3.6798356385616087,
    1.3770209948908132,
    0.21623699359449663,
    0.013420400608854318,
    0.00032801446468212774,
    2.8924786474538068e-06,
    6.790194080099813e-09,
)
"""Rational functions of the normal quantile: from Cephes; the highest power first."""

_SCALED_ERROR = (
    1.1775789345674017,
    -0.004590054580646478,
    -0.08424913336651792,
    0.05920993999819189,
    -0.026658668435305753,
    0.009074997670705265,
    -0.002413163540417608,
    0.0004907758365258086,
    -6.916973302501207e-05,
    4.13902798607301e-06,
    7.74038306619849e-07,
    -2.1886401049234397e-07,
    1.076499946567091e-08,
    4.521959811218287e-09,
    -7.754400208831351e-10,
    -6.318088340886684e-11,
    2.86879501093067e-11,
    1.9455868545777337e-13,
    -9.65469674843344e-13,
    3.252548148148733e-14,
    3.347811948286806e-14,
    -1.8645628804192365e-15,
    -1.250795053068757e-15,
    7.418235256632697e-17,
    5.0681489047984536e-17,
)
"""Chebyshev coefficients of (1 + 2x)·exp(x²)·erfc(x) for (x − k)/(x + k) with k = 3.75, the
constant first; computed with 40 digits."""


def _clenshaw(place: Tensor, coefficients: Sequence[float]) -> Tensor:
    """A Chebyshev series in place/2 with half of the last coefficient, as Cephes sums it."""
    # Clenshaw's recurrence with 2·(place/2) as factor: chbevl of Cephes, highest coefficient first.
    now: Any = torch.full_like(place, coefficients[0])
    before: Any = 0.0
    last: Any = 0.0
    for number in coefficients[1:]:
        last, before, now = before, now, place * now - before + number
    total: Tensor = 0.5 * (now - last)
    return total


def _scaled_bessel(
    value: Tensor, near: Sequence[float], far: Sequence[float], *, is_odd: bool
) -> Tensor:
    """Returns exp(−|x|)·I(x)."""
    size = value.abs()
    # 8 is the border of i0e.c and i1e.c of Cephes.
    is_near = size <= 8
    # Both branches of a where are computed: each gets a number of its domain, so that no gradient
    # is 0·∞.
    inner = torch.where(is_near, size, 8.0)
    outer = torch.where(is_near, 8.0, size)
    by_near = _clenshaw(inner / 2 - 2, near)
    by_near = by_near * inner if is_odd else by_near
    by_far = _clenshaw(32 / outer - 2, far) / torch.sqrt(outer)
    magnitude = torch.where(is_near, by_near, by_far)
    return torch.where(value < 0, -magnitude, magnitude) if is_odd else magnitude


def _i0e(value: Tensor) -> Tensor:
    return _scaled_bessel(value, _I0_NEAR, _I0_FAR, is_odd=False)


def _i1e(value: Tensor) -> Tensor:
    return _scaled_bessel(value, _I1_NEAR, _I1_FAR, is_odd=True)


def _unscale(scaled_bessel: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def bessel(value: Tensor) -> Tensor:
        return torch.exp(value.abs()) * scaled_bessel(value)

    return bessel


def _scaled_error(value: Tensor) -> Tensor:
    """Returns exp(x²)·erfc(x), by 2·exp(x²) − exp(x²)·erfc(−x) for x < 0.

    Source: Shepherd, Laframboise, Chebyshev approximation of (1 + 2x) exp(x²) erfc x,
    Mathematics of Computation 36 (1981).
    """
    size = value.abs()
    # 1 − 7.5/(x + 3.75) has no quotient of infinities.
    place = 2 - 15 / (size + 3.75)
    now: Any = 0.0
    before: Any = 0.0
    for number in _SCALED_ERROR[:0:-1]:
        now, before = place * now - before + number, now
    result = (0.5 * place * now - before + _SCALED_ERROR[0]) / (1 + 2 * size)
    # exp(x²) overflows float64 from x = −26.6 on, as exp(x²)·erfc(x) itself does.
    # exp(x²) overflows for large x > 0, where it is not used: 0 keeps its gradient finite.
    low = torch.where(value < 0, value, 0.0)
    return torch.where(value < 0, 2 * torch.exp(low * low) - result, result)


def _log_normal(value: Tensor) -> Tensor:
    """Returns log Φ(x): from the scaled error function below −1."""
    # Below −1, log Φ(x) = log(erfcx(−x/√2)/2) − x²/2 has no difference of numbers near 1.
    is_low = value < -1
    erf_argument = value * math.sqrt(0.5)
    low = (
        torch.log(_scaled_error(-torch.where(is_low, erf_argument, -1.0)) / 2)
        - erf_argument * erf_argument
    )
    # Above −1, Φ(x) = 1 − erfc(x/√2)/2 is at least 0.15: log1p keeps the digits of small tails.
    high = torch.log1p(-torch.erfc(torch.where(is_low, 1.0, erf_argument)) / 2)
    return torch.where(is_low, low, high)


def _polynomial(place: Tensor, coefficients: Sequence[float]) -> Tensor:
    total: Any = coefficients[0]
    for number in coefficients[1:]:
        total = total * place + number
    result: Tensor = total
    return result


def _quantile(value: Tensor) -> Tensor:
    """Returns the normal quantile Φ⁻¹(p): ±∞ at 1 and 0, NaN outside."""
    # exp(−2) = 0.135 is the border of the tails in ndtri.c.
    # The branches of ndtri of Cephes: the middle, and two tails by √(−2 log p) below and above 8.
    edge = math.exp(-2)
    is_high = value > 1 - edge
    tail = torch.where(is_high, 1 - value, value)
    is_tail = tail <= edge
    place = torch.where(is_tail, 0.5, tail) - 0.5
    square = place * place
    middle = place + place * square * _polynomial(square, _MIDDLE_ABOVE) / _polynomial(
        square, _MIDDLE_BELOW
    )
    # The root of a number that is in the tail; elsewhere of the border, which is above 0.
    root = torch.sqrt(-2 * torch.log(torch.where(is_tail & (tail > 0), tail, edge)))
    inverse = 1 / root
    ratio = torch.where(
        root < 8,
        _polynomial(inverse, _TAIL_ABOVE) / _polynomial(inverse, _TAIL_BELOW),
        _polynomial(inverse, _FAR_ABOVE) / _polynomial(inverse, _FAR_BELOW),
    )
    # x = √(−2 log p): the quantile is x − log(x)/x less a rational function of 1/x.
    distance = root - torch.log(root) / root - inverse * ratio
    quantile = torch.where(
        is_tail, torch.where(is_high, distance, -distance), middle * math.sqrt(2 * math.pi)
    )
    quantile = torch.where(value == 0, -math.inf, torch.where(value == 1, math.inf, quantile))
    return torch.where((value < 0) | (value > 1), math.nan, quantile)


def _as_float(formula: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A formula for integers, too, and for 16 bits in float32, as torch computes it."""

    def compute(value: Tensor) -> Tensor:
        if not value.is_floating_point():
            return formula(value.to(torch.get_default_dtype()))
        return formula(value.float()).to(value.dtype) if value.dtype in NARROW else formula(value)

    return compute


_FORMULAS: Mapping[Any, Callable[[Tensor], Tensor]] = {
    ATEN.i0.default: _unscale(_i0e),
    ATEN.special_i0e.default: _i0e,
    ATEN.special_i1.default: _unscale(_i1e),
    ATEN.special_i1e.default: _i1e,
    PRIMS.bessel_i0.default: _unscale(_i0e),
    PRIMS.bessel_i0e.default: _i0e,
    PRIMS.bessel_i1.default: _unscale(_i1e),
    PRIMS.bessel_i1e.default: _i1e,
    ATEN.special_erfcx.default: _scaled_error,
    PRIMS.erfcx.default: _scaled_error,
    ATEN.special_log_ndtr.default: _log_normal,
    ATEN.special_ndtri.default: _quantile,
    PRIMS.ndtri.default: _quantile,
}

SPECIALS: Mapping[Any, Callable[..., Any]] = {
    operator: _as_float(formula) for operator, formula in _FORMULAS.items()
}
"""Decompositions by the operator that they replace."""
