"""litgpt's learning rates at commit 26857050fe3f of Lightning-AI/litgpt, as functions of a count.

Example:
    >>> finetuning(5, rate=0.1, warmup=10, total=100)
    0.05
"""

from closedform.frameworks.curves import along_cosine


def pretraining(count: int, rate: float, warmup: int, total: int, low: float) -> float:
    """litgpt/pretrain.py:486: a warmup from 0, then a cosine to the minimum; micro-batches."""
    if count < warmup:
        return rate * count / warmup
    if count > total:
        return low
    return along_cosine(rate, low, (count - warmup) / (total - warmup))


def finetuning(count: int, rate: float, warmup: int, total: int) -> float:
    """litgpt/finetune/full.py:418: the cosine of torch goes to 0, and rises after the run."""
    if count < warmup:
        return rate * count / warmup
    return along_cosine(rate, 0, (count - warmup) / (total - warmup))
