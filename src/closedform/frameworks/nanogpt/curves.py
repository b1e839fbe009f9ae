"""nanoGPT's learning rate at commit 3adf61e154c3 of karpathy/nanoGPT, train.py.

Example:
    >>> get_lr(4, learning_rate=0.1, warmup_iters=9, lr_decay_iters=100, min_lr=0.0)
    0.05
"""

from closedform.frameworks.curves import along_cosine


def get_lr(
    count: int, learning_rate: float, warmup_iters: float, lr_decay_iters: float, min_lr: float
) -> float:
    """Line 239: a warmup, the first update of which is above 0, and a cosine to the minimum."""
    if count < warmup_iters:
        return learning_rate * (count + 1) / (warmup_iters + 1)
    if count > lr_decay_iters:
        return min_lr
    progress = (count - warmup_iters) / (lr_decay_iters - warmup_iters)
    return along_cosine(learning_rate, min_lr, progress)
