"""axolotl's schedules at commit 067b021c8b87 of axolotl-ai-cloud/axolotl.

The file is src/axolotl/utils/schedulers.py; warmups and totals are updates.

Example:
    >>> cosine_min_lr(55, rate=1.0, warmup=10, total=100, low=0.1)
    0.55
"""

from closedform.frameworks.curves import along_cosine, along_line, to_power


def rex(count: int, rate: float, warmup: int, total: int, low: float) -> float:
    """Line 45: the reflected exponential, from the end of the warmup to the minimum."""
    if count <= warmup and warmup > 0:
        return rate * count / warmup
    if count >= total:
        return rate * low
    share_left = (total - count) / (total - warmup)
    return rate * along_line(low, 1, share_left / (0.1 + 0.9 * share_left))


def cosine_quadratic_warmup(count: int, rate: float, warmup: int, total: int, low: float) -> float:
    """Line 141: the square of a line, and a cosine that rises again after the run."""
    if count < warmup:
        return rate * (count / max(1, warmup)) ** 2
    return rate * along_cosine(1, low, (count - warmup) / max(1, total - warmup))


def cosine_min_lr(count: int, rate: float, warmup: int, total: int, low: float) -> float:
    """Line 198: a cosine that rises again after the run."""
    if count < warmup:
        return rate * count / max(1, warmup)
    return rate * along_cosine(1, low, (count - warmup) / max(1, total - warmup))


def cosine_constant_lr(count: int, rate: float, warmup: int, end: int, low: float) -> float:
    """A cosine to the minimum, which it keeps."""
    if count < warmup:
        return rate * count / max(1, warmup)
    return rate * along_cosine(1, low, (min(count, end) - warmup) / max(1, end - warmup))


def interpolation(count: int, min_lr: float, max_lr: float, num_steps: float) -> float:
    """Line 114: the geometric interpolation; the first two values are equal."""
    if count < 0:
        return min_lr
    if count > num_steps - 2:
        return max_lr
    return min_lr * to_power(max_lr / min_lr, count / (num_steps - 1))
