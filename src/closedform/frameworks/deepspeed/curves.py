"""DeepSpeed's schedules at commit edaa72212672 of deepspeedai/DeepSpeed.

The file is deepspeed/runtime/lr_schedules.py. A count is a step of the scheduler: -1 is the value
that its constructor leaves in the optimizer, which update 0 has.

Example:
    >>> warmup_lr(5, start=0.0, ends=(0.0, 0.1), warmup=10, warmup_type="linear", total=None)
    0.05
"""

import math

from closedform.frameworks.curves import along_cosine, along_line

Pair = tuple[float, float]
"""Both ends, or the first and the second half of a cycle."""


def _risen(count: int, warmup: float, warmup_type: str) -> float:
    """Line 705: the part of the warmup that is done; an unknown type is taken as log."""
    return count / warmup if warmup_type == "linear" else math.log(count + 1) / math.log(warmup)


def warmup_lr(
    count: int, start: float, ends: Pair, warmup: float, warmup_type: str, total: float | None
) -> float:
    """WarmupLR, and WarmupDecayLR, whose line ends at a total and stays at the least rate."""
    low, peak = ends
    if count < 0:
        return start
    if count < warmup:
        return along_line(low, peak, _risen(count, warmup, warmup_type))
    if total is None:
        return peak
    return along_line(low, peak, max(0, (total - count) / max(1, total - warmup)))


def warmup_cosine_lr(
    count: int,
    start: float,
    rate: float,
    low: float,
    end: float,
    warmup: float,
    warmup_type: str,
    total: float,
    ahead: int,
    is_known: bool,
    is_bounded: bool,
) -> float:
    """Lines 850 to 914: a cosine one step ahead, which older versions do not bound."""
    if count < 0:
        return start
    if count < warmup:
        if not is_known:
            raise ValueError(f"UnboundLocalError: warmup_type {warmup_type!r} is unknown")
        return along_line(low, 1, _risen(count, warmup, warmup_type)) * rate
    if is_bounded:
        progress = min(1, (count - warmup + ahead) / max(1, total - warmup))
    elif total == warmup:
        raise ValueError("division by zero: total_num_steps is warmup_num_steps")
    else:
        progress = (count - warmup + ahead) / (total - warmup)
    return max(0, along_cosine(1, end, progress)) * rate


def one_cycle(
    count: int, ends: Pair, sizes: Pair, stairs: Pair, decay: float, is_rate: bool
) -> float:
    """OneCycle: up and down, and then a decay; beta1 moves down and up, and then grows."""
    low, top = ends
    if count < 0:
        return low
    after = count + 1 - sizes[0] - sizes[1]
    if after > 0:
        return low / (1 + decay * after) if is_rate else top * (1 + decay * after)
    part = _part_of_cycle(count + 1, sizes, stairs)
    return along_line(low, top, part) if is_rate else along_line(top, low, part)


def _part_of_cycle(position: float, sizes: Pair, stairs: Pair) -> float:
    """The place between the ends of a cycle; counts of stairs are 0 for none."""
    first, second = sizes
    if position == first + second:
        position = 0
    is_first = position <= first or not second
    part = position / first if is_first else (first + second - position) / second
    count = stairs[0 if is_first else 1]
    return math.floor(part * count) / count if count else part
