"""ESPnet's schedulers at version 202511 of espnet/espnet, espnet2/schedulers.

Example:
    >>> warmuplr(25, rate=0.1, warmup_steps=100)
    0.025
"""

import math
from itertools import pairwise

from closedform.frameworks.curves import along_line, to_power


def warmuplr(count: int, rate: float, warmup_steps: float) -> float:
    """A line to the rate, then the inverse square root."""
    return noamlr(count, rate=rate, warmup_steps=warmup_steps, scale=math.sqrt(warmup_steps))


def noamlr(count: int, rate: float, warmup_steps: float, scale: float) -> float:
    """The smaller one of a line and of the inverse square root, which meet at the warmup."""
    if count < warmup_steps:
        return rate * scale * count / to_power(warmup_steps, 1.5)
    return rate * scale / math.sqrt(count)


def warmupsteplr(
    count: int, rate: float, warmup_steps: float, steps_per_epoch: int, step_size: int, gamma: float
) -> float:
    """warmup_step_lr.py:44: epochs since the warmup, each of ``steps_per_epoch`` updates."""
    if count <= warmup_steps:
        return rate * count / warmup_steps
    epoch = count // steps_per_epoch - int(warmup_steps // steps_per_epoch)
    return rate * to_power(gamma, epoch // step_size)


def piecewiselinearwarmuplr(
    count: int, rate: float, warmup_steps_list: tuple[float, ...], warmup_lr_list: tuple[float, ...]
) -> float:
    """piecewise_linear_warmup_lr.py:64: after its list it falls from the optimizer's rate."""
    if count < warmup_steps_list[0]:
        return warmup_lr_list[0]
    points = zip(warmup_steps_list, warmup_lr_list, strict=True)
    for (mark, first), (following, last) in pairwise(points):
        if count < following:
            return along_line(first, last, (count - mark) / (following - mark))
    if count <= warmup_steps_list[-1]:
        return warmup_lr_list[-1]
    return rate * math.sqrt(warmup_steps_list[-1]) / math.sqrt(count)


def tristagelr(
    count: int,
    rate: float,
    warmup: int,
    hold: int,
    total: int,
    init_lr_scale: float,
    final_lr_scale: float,
) -> float:
    """A line, a plateau and an exponential to the last rate, which it keeps."""
    if count < warmup:
        return along_line(init_lr_scale * rate, rate, count / warmup)
    begin = warmup + hold
    if count < begin or total == begin:
        return rate
    return rate * to_power(final_lr_scale, min(count - begin, total - begin) / (total - begin))


def exponentialdecaywarmup(
    count: int,
    rate: float,
    max_lr: float,
    min_lr: float,
    warmup_steps: int,
    total_steps: int,
    warm_from_zero: bool,
) -> float:
    """exponential_decay_warmup.py:60: the warmup has the optimizer's rate, unless from zero."""
    if count == 0:
        return 0 if warm_from_zero else max_lr
    if count < warmup_steps:
        return max_lr * (count + 1) / warmup_steps if warm_from_zero else rate
    return max_lr * to_power(min_lr / max_lr, (count - warmup_steps) / (total_steps - warmup_steps))
