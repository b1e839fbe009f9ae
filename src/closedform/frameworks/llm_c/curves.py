"""llm.c's learning rates at commit f1e2ace65149 of karpathy/llm.c, llmc/schedulers.h.

Example:
    >>> round(rate(9, style="linear", peak=0.1, warmup=10, total=100, begin=80, low=0.0), 6)
    0.1
"""

import math

from closedform.frameworks.curves import along_cosine, along_line


def rate(
    count: int, style: str, peak: float, warmup: int, total: int, begin: int, low: float
) -> float:
    """Line 34: update W - 1 has the peak, and an update after the run fails an assertion."""
    if style == "constant":
        return peak
    if count < warmup:
        return peak * (count + 1) / warmup
    if style == "wsd" and count < begin:
        return peak
    if count > total:
        raise AssertionError("the assertion that the update is in the run fails")
    if style == "wsd":
        return along_line(peak, low, math.sqrt(count - begin) / math.sqrt(total - begin))
    along = along_line if style == "linear" else along_cosine
    return along(peak, low, (count - warmup) / (total - warmup))
