"""Noise on a schedule as a pure function of the step: the same in every engine, at any resume.

timm draws its noise from torch's generator, seeded anew at every step. That generator is not a
formula here; ours is a hash of the step in integers below 2^48, which are exact in every graph.
"""

from __future__ import annotations

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import floor_mod, t

KINDS = ("normal", "uniform")

_PRIME = sp.Integer(2**24 - 3)
# The multipliers of Park and Miller's generators (1988, 1993), taken as two mixing constants.
_FIRST, _SECOND = sp.Integer(48271), sp.Integer(16807)
# A logistic of scale 1/1.702 is within 0.0095 of the standard normal distribution everywhere.
_LOGISTIC = sp.Rational(1702, 1000)


def uniform(seed: int) -> sp.Expr:
    r"""Returns a number in (0, 1) for every step t.

    .. math:: u = \frac{x_3 + 1/2}{M}, \quad x_0 = (t + \text{seed} + 1) \bmod M, \quad
        x_{i+1} = (a\, (x_i^2 \bmod M) + b\, x_i) \bmod M

    with M = 2^24 - 3, a prime, a = 48271 and b = 16807; it repeats after M steps.

    Example:
        >>> [round(float(uniform(42).xreplace({t: sp.Integer(n)})), 3) for n in (0, 1, 2)]
        [0.089, 0.361, 0.017]
    """
    x = floor_mod(t + seed + 1, _PRIME)
    for _ in range(3):
        x = floor_mod(_FIRST * floor_mod(x**2, _PRIME) + _SECOND * x, _PRIME)
    return (x + sp.Rational(1, 2)) / _PRIME


def noise(kind: str, limit: sp.Expr, deviation: sp.Expr, seed: int) -> sp.Expr:
    r"""Returns the noise at every step, between -p and p.

    .. math:: \text{uniform: } p (2u - 1) \qquad \text{normal: } \frac{\sigma}{1.702}
        \ln \frac{v}{1 - v}, \quad v = q + (1 - 2q)\, u, \quad q = \frac{1}{1 + e^{1.702 p/\sigma}}

    The latter is the logistic distribution in place of the normal one, cut at -p and p.

    Args:
        kind: ``normal`` or ``uniform``.
        limit: The bound p above 0.
        deviation: The standard deviation σ above 0 of the normal one, before it is cut.
        seed: What the draws are of, an integer of at least 0.
    """
    u = uniform(seed)
    if kind == "uniform":
        return limit * (2 * u - 1)
    least = 1 / (1 + sp.exp(_LOGISTIC * limit / deviation))
    place = least + (1 - 2 * least) * u
    return deviation / _LOGISTIC * sp.log(place / (1 - place))


def noise_range(value: object, name: str, where: str) -> tuple[int, int | None]:
    """Returns the steps with noise: from the first one on, to before the second if there is one.

    Raises:
        DefinitionError: It is neither an int of at least 0 nor two that increase.
    """
    bounds = tuple(value) if isinstance(value, list | tuple) else (value, None)
    is_whole = all(type(bound) is int and bound >= 0 for bound in bounds if bound is not None)
    if len(bounds) != 2 or bounds[0] is None or not is_whole:
        raise DefinitionError(
            f"{name} must be an int >= 0 or two of them, got {value!r}", where=where
        )
    if bounds[1] is not None and bounds[1] <= bounds[0]:
        raise DefinitionError(f"{name} must increase, got {value!r}", where=where)
    return bounds[0], bounds[1]


def noisy(value: sp.Expr, amount: sp.Expr, steps: tuple[int, int | None]) -> sp.Expr:
    """Returns a value that is changed by a part of itself within a range of steps."""
    first, stop = steps
    changed = value * (1 + amount)
    branches = [(value, t < first)] if first else []
    if stop is None:
        return sp.Piecewise(*branches, (changed, True))
    return sp.Piecewise(*branches, (changed, t < stop), (value, True))
