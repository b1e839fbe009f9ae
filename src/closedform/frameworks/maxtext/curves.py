"""MaxText's learning rate at commit e591f30cbbf2 of AI-Hypercomputer/maxtext, maxtext_utils.py.

Example:
    >>> rate(5, style="cosine", peak=0.1, last=0.0, warmup=10, length=90, total=100, end=100)
    0.05
"""

from closedform.frameworks.curves import along_cosine, along_line


def rate(
    count: int, style: str, peak: float, last: float, warmup: int, length: int, total: int, end: int
) -> float:
    """Lines 2302 to 2346: the last update of the decay has the last rate, and later ones 0."""
    if count < warmup:
        return peak * count / warmup
    if end > total and count >= total:
        return 0
    position = count - (total - length)
    if not length or position < 0:
        return peak
    if length == 1:
        return last
    if style == "wsd-linear":
        return along_line(peak, last, min(1, position / (length - 1)))
    return along_cosine(peak, last, position / (length - 1))
