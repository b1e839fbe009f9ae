"""gpt-neox's learning rate at commit ea7aefd8f8e1 of EleutherAI/gpt-neox.

The file is megatron/learning_rates.py.

Example:
    >>> rate(10, style="linear", peak=0.1, low=0.0, warmup=20.0, end=100)
    0.05
"""

import math

from closedform.frameworks.curves import along_cosine


def rate(count: int, style: str, peak: float, low: float, warmup: float, end: int) -> float:
    """Lines 70 to 89: updates 0 and 1 have one rate; a minimum above the peak raises it."""
    if 0 < warmup and count <= warmup:
        return peak * max(1, count) / warmup
    value = peak
    if style == "linear":
        value = peak * ((end - count) / (end - warmup))
    if style == "cosine":
        value = along_cosine(peak, low, (count - warmup) / (end - warmup))
    if style == "exponential":
        value = peak * math.exp(-0.693 * ((count - warmup) / (end - warmup)))
    return max(value, low)
