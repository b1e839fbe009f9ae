"""DINOv3's tables at commit 6876159a11b4 of facebookresearch/dinov3.

The file is dinov3/train/cosine_lr_scheduler.py.

Example:
    >>> table(5, low=0.0, peak=1.0, end=0.0, size=100, warmup=10, decay=90, frozen=0)
    0.5
"""

from closedform.frameworks.curves import along_cosine, along_line


def table(
    count: int, low: float, peak: float, end: float, size: int, warmup: int, decay: int, frozen: int
) -> float:
    """Line 92: a line without its end, a cosine with both ends, and no value past the table."""
    if count >= size:
        raise IndexError(f"the table has {size} entries")
    if count < frozen:
        return 0
    if count < warmup:
        return along_line(low, peak, count / warmup)
    if count < warmup + decay:
        # n entries have n - 1 steps; a single one has none.
        return along_cosine(peak, end, (count - warmup) / max(decay - 1, 1))
    return end
