"""OLMo's schedulers at commit 59a53e3f68e5 of allenai/OLMo, olmo/optim.py.

A count is of updates or of tokens, as the lengths.

Example:
    >>> rate(55, style="linear_with_warmup", peak=1.0, low=0.1, first=0.0, warmup=10, total=100)
    0.55
"""

import math
from collections.abc import Mapping
from typing import Any

from closedform.frameworks.curves import along_cosine, along_line

STYLES = (
    "cosine_with_warmup",
    "linear_with_warmup",
    "inverse_sqrt_with_warmup",
    "max_scheduler",
    "constant",
    "cosine_linear_envelope",
    "constant_with_warmup",
)


def rate(
    count: int, style: str, peak: float, low: float, first: float, warmup: int, total: int
) -> float:
    """A warmup, which a longer one continues past the run, and a decay to the last rate."""
    if style == "constant":
        return peak
    if count < warmup:
        # Asserted in the branch of the warmup, in its first update.
        if not 0 <= first < peak:
            raise AssertionError("AssertionError: warmup_min_lr must be in [0, learning_rate)")
        return along_line(first, peak, count / warmup)
    if style == "constant_with_warmup":
        return peak
    root = peak * math.sqrt(warmup) / math.sqrt(count)  # 0 for ever without a warmup
    if style == "inverse_sqrt_with_warmup":
        return root
    value = _fall(style, peak, low, (count - warmup) / (total - warmup)) if count < total else low
    return max(value, root) if style == "max_scheduler" else value


def _fall(style: str, peak: float, low: float, progress: float) -> float:
    if style == "linear_with_warmup":
        return along_line(peak, low, progress)
    if style == "cosine_linear_envelope":
        return low + (1 - progress) * along_cosine(peak - low, 0, progress)
    return along_cosine(peak, low, progress)


def bolt_on_warmup(count: int, begin: int, end: int, numbers: Mapping[str, Any]) -> float:
    """0, and a warmup from 0 to where the schedule is at its end."""
    if count < begin:
        return 0
    if count < end:
        return rate(end, **numbers) * (count - begin) / (end - begin)
    return rate(count, **numbers)
