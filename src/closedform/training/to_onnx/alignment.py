"""Connectionist temporal classification: the sum over alignments, one frame after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

Tensor = torch.Tensor

_NEVER = -1e30
"""The logarithm of a probability of 0, without the NaN of differences of infinities."""


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int],
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> Tensor:
    """Returns −log of the probability of the targets, with a static number of frames.

    α of a state is the sum over the states that lead to it: itself, the one before it, and the one
    before a blank between different labels. States past the target, and frames past the input, have
    no part in the result.

    Source: Graves et al., Connectionist temporal classification (2006), section 4.1.
    """
    is_single = log_probs.dim() == 2
    if is_single:
        log_probs, targets = log_probs.unsqueeze(1), targets.unsqueeze(0)
    frames, counts = (
        torch.as_tensor(lengths, dtype=torch.int64).reshape(-1)
        for lengths in (input_lengths, target_lengths)
    )
    if targets.dim() == 1:
        targets = _rows(targets, counts, target_lengths)
    targets = targets.to(torch.int64).clamp(min=0)  # padding may be negative
    # A blank before, between and after labels: 2·n + 1 states.
    labels = torch.stack([torch.full_like(targets, blank), targets], -1).flatten(1)
    labels = torch.nn.functional.pad(labels, [0, 1], value=blank)
    states = int(labels.shape[1])
    places = torch.arange(states)
    is_skipped = torch.zeros_like(labels, dtype=torch.bool)
    if states > 2:
        # A blank may be skipped only between different labels: equal ones would merge.
        differs = (labels[:, 2:] != labels[:, :-2]) & (labels[:, 2:] != blank)
        is_skipped = torch.nn.functional.pad(differs, [2, 0], value=False)
    length = int(log_probs.shape[0])
    emissions = log_probs.gather(2, labels.unsqueeze(0).expand(length, *labels.shape))
    # A path begins with the first blank or the first label.
    total = torch.where(places < 2, emissions[0], _NEVER)
    for frame in range(1, length):
        ways = [total]
        for distance, is_way in ((1, None), (2, is_skipped)):
            if distance >= states:
                continue
            earlier = torch.nn.functional.pad(total, [distance, 0], value=_NEVER)[:, :-distance]
            ways.append(earlier if is_way is None else torch.where(is_way, earlier, _NEVER))
        following = torch.logsumexp(torch.stack(ways), 0) + emissions[frame]
        total = torch.where((frames > frame).unsqueeze(1), following, total)
    # A path ends with the last blank or the last label.
    last = 2 * counts.unsqueeze(1)
    ends = [total.gather(1, last)]
    before = total.gather(1, (last - 1).clamp(min=0))
    ends.append(torch.where(last > 0, before, _NEVER))
    loss = -torch.logsumexp(torch.cat(ends, 1), 1)
    is_possible = loss < -_NEVER / 2
    loss = torch.where(is_possible, loss, 0.0 if zero_infinity else float("inf"))
    # torch's gradient assumes normalised probabilities: it has an additional term exp(log p).
    in_use = (torch.arange(length).unsqueeze(1) < frames) & is_possible
    sums = torch.where(in_use, log_probs.exp().sum(2), 0.0).sum(0)
    # A value of 0 with the gradient of the sums.
    loss = loss + (sums - sums.detach())
    if reduction == 1:
        return (loss / counts.clamp(min=1)).mean()
    if reduction == 2:
        return loss.sum()
    return loss.squeeze(0) if is_single else loss


def _rows(targets: Tensor, counts: Tensor, lengths: Any) -> Tensor:
    """Targets that are one behind the other as rows, with others in place of a padding."""
    size = int(targets.shape[0])
    width = size if isinstance(lengths, torch.Tensor) else max(lengths, default=0)
    starts = counts.cumsum(0) - counts
    places = (starts.unsqueeze(1) + torch.arange(width)).clamp(max=size - 1)
    return targets[places]
