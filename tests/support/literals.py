"""Floats of a dtype to read as literals: of all sizes, whole, subnormal, powers of two."""

from typing import Any

import numpy as np


def drawn_floats(dtype: str, count: int, seed: int) -> list[np.floating[Any]]:
    """Returns finite floats that are not 0: five families in equal parts, with both signs.

    Args:
        dtype: "float64", "float32" or "float16".
        count: About how many.
        seed: The seed.
    """
    kind = np.dtype(dtype).type
    rng = np.random.default_rng(seed)
    info = np.finfo(kind)
    part = count // 5
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        families = [
            np.frombuffer(rng.bytes(part * np.dtype(dtype).itemsize), dtype),
            rng.integers(2**20, 2**31, part).astype(dtype),
            (10.0 ** rng.uniform(-8, 9, part)).astype(dtype),
            rng.integers(1, 2**20, part).astype(dtype) * info.smallest_subnormal,
            kind(2) ** rng.integers(info.minexp, info.maxexp, part).astype(dtype),
        ]
    signs = rng.choice([-1, 1], 5 * part).astype(dtype)
    numbers = np.copysign(np.concatenate(families), signs)
    return [number for number in numbers if np.isfinite(number) and number != 0]
