"""nanochat's schedules at commit 92d63d4e8bb4 of karpathy/nanochat, scripts/base_train.py.

Example:
    >>> multiplier(4, warmup_steps=10, total=100, warmdown=50, final_lr_frac=0.0)
    0.5
"""

from closedform.frameworks.curves import along_cosine, along_line


def multiplier(
    count: int, warmup_steps: float, total: int, warmdown: int, final_lr_frac: float
) -> float:
    """1 from the end of a warmup to the begin of a line to the last factor."""
    if count < warmup_steps:
        return (count + 1) / warmup_steps
    if count <= total - warmdown:
        return 1
    return along_line(final_lr_frac, 1, (total - count) / warmdown)


def momentum(count: int, total: int, warmdown: int) -> float:
    """Line 375: Muon's momentum rises in 400 updates, and falls in the warmdown."""
    low, high, last = 0.85, 0.97, 0.90
    if count < 400:
        return along_line(low, high, count / 400)
    if count < total - warmdown:
        return high
    return along_line(high, last, (count - total + warmdown) / warmdown)


def weight_decay(count: int, decay: float, total: int) -> float:
    """Half a cosine to 0."""
    return along_cosine(decay, 0, count / total)
