"""fairseq's schedules at commit 3d262bb25690 of facebookresearch/fairseq.

The files are those of fairseq/optim/lr_scheduler.

Example:
    >>> inverse_sqrt(5, peak=0.1, first=0, warmup_updates=10)
    0.05
"""

import math

from closedform.frameworks.curves import along_cosine, along_line, to_power


def inverse_sqrt(count: int, peak: float, first: float, warmup_updates: int) -> float:
    """A line to the peak, then the inverse square root."""
    if count < warmup_updates:
        return along_line(first, peak, count / warmup_updates)
    return peak * math.sqrt(warmup_updates) / math.sqrt(count)


def repeated_cosine(
    count: int,
    peak: float,
    first: float,
    low: float,
    warmup_updates: int,
    period: float,
    lr_shrink: float,
) -> float:
    """Cosines of one period; each shrinks the peak and the minimum, also after the run."""
    if count < warmup_updates:
        return along_line(first, peak, count / warmup_updates)
    done = count - warmup_updates
    index = done // period
    return to_power(lr_shrink, index) * along_cosine(peak, low, done / period - index)


def tri_stage(
    count: int, peak: float, first: float, scale: float, warmup: int, hold: int, decay: int
) -> float:
    """A line, a plateau, and an exponential to a part of the peak, which it keeps."""
    if count < warmup:
        return along_line(first, peak, count / warmup)
    position = count - warmup - hold
    if position < 0:
        return peak
    # One update more than the decay: there the exponential equals the last rate already.
    if position > decay:
        return peak * scale
    return peak * to_power(peak * scale / peak, position / decay)


def step(
    count: int,
    peak: float,
    first: float,
    min_lr: float,
    warmup_updates: int,
    lr_decay: float,
    lr_deacy_period: float,
) -> float:
    """Stairs after the warmup, not below the minimum."""
    if count < warmup_updates:
        return along_line(first, peak, count / warmup_updates)
    return max(peak * to_power(lr_decay, (count - warmup_updates) // lr_deacy_period), min_lr)


def triangular(
    count: int, low: float, max_lr: float, half: int, lr_shrink: float, shrink_min: bool
) -> float:
    """Triangles, whose peaks shrink; a cycle of 5 updates takes 4."""
    cycle = count // (2 * half)
    factor = to_power(lr_shrink, cycle)
    least = low * factor if shrink_min else low
    return least + (max_lr * factor - least) * max(0, 1 - abs(count / half - 2 * cycle - 1))
