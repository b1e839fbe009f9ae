"""fairseq2's schedules at commit 027bdebca4b9 of facebookresearch/fairseq2.

The files are those of src/fairseq2/optim/lr_schedulers.

Example:
    >>> myle(5, rate=0.1, start_lr=0, num_warmup_steps=10)
    0.05
"""

import math

from closedform.frameworks.curves import along_cosine, along_line, to_power


def cosine_annealing(
    count: int,
    rate: float,
    low: float,
    start_lr: float,
    num_warmup_steps: int,
    length: int,
    lr_mul: float,
) -> float:
    """cosine_annealing.py:88: cycles of one length, each of which begins at the peak."""
    if count < num_warmup_steps:
        return along_line(start_lr, rate, count / num_warmup_steps)
    position = count - num_warmup_steps
    if length == 0:
        raise ValueError("division by zero: the cycle has no update")
    if length < 0:  # a warmup beyond the run
        position, length = -position, -length
    value = along_cosine(rate, low, position % length / length)
    return value if lr_mul == 1 else lr_mul ** (position // length) * value


def polynomial_decay(
    count: int,
    rate: float,
    low: float,
    start_lr: float,
    num_warmup_steps: int,
    total: int,
    power: float,
) -> float:
    """The last rate from the end of the run on."""
    if count < num_warmup_steps:
        return along_line(start_lr, rate, count / num_warmup_steps)
    if count >= total:
        return low
    length = total - num_warmup_steps
    return along_line(low, rate, to_power(total - count, power) / to_power(length, power))


def myle(count: int, rate: float, start_lr: float, num_warmup_steps: int) -> float:
    """A line, and the inverse square root, which meet at the rate."""
    if count < num_warmup_steps:
        return along_line(start_lr, rate, count / num_warmup_steps)
    return rate * math.sqrt(num_warmup_steps) / math.sqrt(count)


def noam(count: int, rate: float, num_warmup_steps: int) -> float:
    """noam.py:58: no scale, so that the peak is the rate over the root of the warmup."""
    if count < num_warmup_steps:
        return rate * count / to_power(num_warmup_steps, 1.5)
    return rate / math.sqrt(count) if count >= 1 else rate


def tri_stage(
    count: int, rate: float, first: float, low: float, rise: int, hold: int, fall: int
) -> float:
    """tri_stage.py:68: the stages are cut to whole updates."""
    if count < rise:
        return along_line(first, rate, count / rise)
    if count < rise + hold:
        return rate
    if count >= rise + hold + fall:
        return rate * low
    if low <= 0:
        raise ValueError("final_lr_scale has no logarithm")
    return rate * math.exp(math.log(low) * (count - rise - hold) / fall)
