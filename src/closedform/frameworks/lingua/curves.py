"""lingua's rates at commit 437d680e5218 of facebookresearch/lingua, lingua/optim.py.

Example:
    >>> linear(5, lr=0.1, warmup=10, total=100, lr_min_ratio=0)
    0.05
"""

from closedform.frameworks.curves import along_cosine, along_line, to_power


def constant(count: int, lr: float) -> float:
    """Line 113: no warmup."""
    return lr


def documented_constant(count: int, lr: float, warmup: int) -> float:
    """The rate after a warmup from 0."""
    return lr * count / warmup if count < warmup else lr


def linear(count: int, lr: float, warmup: int, total: int, lr_min_ratio: float) -> float:
    """A line from 1 to the minimum, on which the update after the run is still."""
    if count < warmup:
        return lr * count / warmup
    if count > total:
        return lr * lr_min_ratio
    return lr * along_line(1, lr_min_ratio, (count - warmup) / (total - warmup))


def inv_sqrt(count: int, lr: float, warmup: int, lr_min_ratio: float, exp_factor: float) -> float:
    """The quotient of the warmup and the count to a power, of powers: exact at its begin."""
    if count < warmup:
        return lr * count / warmup
    if warmup == 0:
        raise ValueError("0 is divided by 0")
    return lr * max(to_power(warmup, exp_factor) / to_power(count, exp_factor), lr_min_ratio)


def cosine(
    count: int,
    lr: float,
    warmup: int,
    total: int,
    period: float,
    lr_min_ratio: float,
    cycle_length: float,
    cosine_theta: float,
) -> float:
    """Line 61: cosines of a power of the progress; each second cycle is a mirror image."""
    if count < warmup:
        return lr * count / warmup
    if count > total:
        return lr * lr_min_ratio
    first, last, edge = 1.0, lr_min_ratio, period
    while edge <= count:
        first, last, edge = last, first, edge + period
    progress = (count - warmup) ** cosine_theta / (total - warmup) ** cosine_theta / cycle_length
    return lr * along_cosine(first, last, progress)
