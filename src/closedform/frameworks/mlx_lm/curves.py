"""mlx-lm's learning rate at commit d78bf58e217c of ml-explore/mlx-lm, mlx_lm/tuner/utils.py.

Example:
    >>> rate(3, name="exponential_decay", arguments=(0.1, 0.5), warmup=2, warmup_init=0.0)
    0.1
"""

from closedform.frameworks.curves import along_cosine, along_line, to_power


def rate(
    count: int, name: str, arguments: tuple[float, ...], warmup: float, warmup_init: float
) -> float:
    """Line 33: the warmup has one update more, so that two updates have the peak."""
    first, *others = arguments
    if warmup and count < warmup + 1:
        return along_line(warmup_init, first, min(count, warmup) / warmup)
    position = count - warmup - 1 if warmup else count
    if name == "exponential_decay":
        return first * to_power(others[0], position)
    if name == "step_decay":
        return first * to_power(others[0], position // others[1])
    if name == "linear_schedule":
        last, steps = others
        return along_line(first, last, position / steps) if position < steps else last
    steps, last = (*others, 0)[:2]
    return along_cosine(first, last, position / steps) if position < steps else last
