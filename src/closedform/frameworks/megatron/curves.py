"""Megatron-LM's schedules at commit d98e8a64ddf3 of NVIDIA/Megatron-LM.

The file is megatron/core/optimizer_param_scheduler.py.

They count in the unit of their lengths, samples or iterations.

Example:
    >>> weight_decay(50, style="linear", first=0.0, last=0.1, total=100)
    0.05
"""

import math

from closedform.frameworks.curves import along_cosine, along_line

STYLES = ("constant", "linear", "cosine", "inverse-square-root", "WSD")
TAILS = ("linear", "cosine", "exponential", "minus_sqrt")


def learning_rate(
    count: int,
    style: str,
    peak: float,
    low: float,
    first: float,
    warmup: float,
    total: float,
    tail: float,
    tail_style: str,
) -> float:
    """Lines 230 to 263: a warmup, whose last update has the peak, and a decay to the minimum."""
    if 0 < warmup and count <= warmup:
        return first + (peak - first) * count / warmup
    if style == "constant":
        return peak
    if count > total:
        return low
    if style == "WSD":
        if count <= total - tail:
            return peak
        return _tail(tail_style, peak, low, count - total + tail, tail)
    if style == "inverse-square-root":
        # The root of 1 at count 0.
        return max(low, peak * (math.sqrt(max(warmup, 1)) / math.sqrt(max(count, 1))))
    if style not in STYLES:
        raise ValueError(f"the style {style!r} is not one of {', '.join(STYLES)}")
    along = along_line if style == "linear" else along_cosine
    return along(peak, low, (count - warmup) / (total - warmup))


def _tail(style: str, peak: float, low: float, position: float, length: float) -> float:
    if style not in TAILS:
        raise ValueError(f"the decay style {style!r} is not one of {', '.join(TAILS)}")
    if style == "minus_sqrt":
        return along_line(peak, low, math.sqrt(position) / math.sqrt(length))
    progress = position / length
    if style == "exponential":
        return along_line(low, peak, 2 * 0.5**progress - 1)
    return (along_line if style == "linear" else along_cosine)(peak, low, progress)


def weight_decay(count: int, style: str, first: float, last: float, total: float) -> float:
    """The weight decay has no warmup, and grows to the length of the run, not of the decay."""
    if style == "constant" or count > total:
        return last
    return (along_line if style == "linear" else along_cosine)(first, last, count / total)
