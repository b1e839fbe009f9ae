"""DINOv2's tables at commit b8931f7bf915 of facebookresearch/dinov2, dinov2/utils/utils.py.

Example:
    >>> table(5, first=1.0, last=0.0, total=110, warmup=11)
    0.5
"""

import math

from closedform.frameworks.curves import along_cosine, along_line


def table(
    count: int,
    first: float,
    last: float,
    total: int,
    warmup: int = 0,
    start: float = 0.0,
    frozen: int = 0,
    points: int = 0,
) -> float:
    """Lines 75 to 78: zeros, a line with both ends, a cosine without its end, the last value.

    Args:
        count: The update.
        first: The value after the warmup.
        last: The value past the end.
        total: The entries of the table.
        warmup: The entries of the warmup, which includes both its ends.
        start: The value of update 0 in a warmup.
        frozen: The entries that are 0.
        points: The points of a longer cosine, of which DINOv3 takes the first ones, rescaled so
            that the last one is the end; 0 for DINOv2's.
    """
    if count < min(frozen, total):
        return 0
    if count < warmup:
        return along_line(start, first, count / max(warmup - 1, 1))
    if count >= total:
        return last
    if not points:
        return along_cosine(first, last, (count - warmup) / (total - warmup))
    step = math.pi / (points - 1)
    lowest = math.cos(step * (total - warmup - 1))
    return last + (first - last) * (math.cos(step * (count - warmup)) - lowest) / (1 - lowest)
