"""Rates of param groups that stay related: by layers, and of Muon next to AdamW."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from closedform.errors import DefinitionError
from closedform.language import Group, Schedule, UpdateRule, exact_number
from closedform.language.aliases import Number
from closedform.language.groups import literal_glob
from closedform.language.partitions import Partition
from closedform.optimizers import adamw, muon
from closedform.scaling.layers import (
    BLOCKS,
    EMBEDDINGS,
    Model,
    Shapes,
    block_of,
    matches,
    shapes_of,
)
from closedform.scaling.partitions import partition_of


def layerwise_decay(
    model_or_shapes: Model | Shapes,
    decay: Number,
    *,
    first: Sequence[str] = (*EMBEDDINGS, "*cls_token*", "*pos_*"),
    blocks: str = BLOCKS,
) -> list[Group]:
    r"""Returns a group for each layer, whose rate falls from the output to the input.

    .. math:: \eta_i = \eta \, d^{\,n + 1 - i}

    with i = 0 for the parameters of the input, k + 1 for block k of n, and n + 1 for all others.

    Args:
        model_or_shapes: The model, or its shapes by name.
        decay: The factor d in (0, 1] from each layer to the one before it.
        first: Globs on the names of the parameters of the input.
        blocks: The pattern of the index of a block in a name.

    Raises:
        DefinitionError: ``decay`` is not in (0, 1], or no name has an index of a block.

    Example:
        >>> shapes = {"embed": (10, 8), "h.0.w": (8, 8), "h.1.w": (8, 8), "head": (10, 8)}
        >>> [(group.params, group.factors["lr"]) for group in layerwise_decay(shapes, 0.5)]
        [(('embed',), 1/8), (('h.0.w',), 1/4), (('h.1.w',), 1/2)]

    Source: Clark et al., ELECTRA (2020), table 6; Bao et al., BEiT (2021); ``util/lr_decay.py`` of
    MAE.
    """
    factor = exact_number(decay, "decay")
    if not 0 < factor <= 1:
        raise DefinitionError(f"decay must be in (0, 1], got {decay!r}")
    names = list(shapes_of(model_or_shapes))
    indices = {index for name in names if (index := block_of(name, blocks)) is not None}
    if not indices:
        raise DefinitionError(
            "no parameter has the index of a block in its name",
            where=f"the parameters {names[:3]}",
            hint='name the pattern: blocks=r"layer(\\d+)"',
        )
    # The input is layer 0, block k is layer k + 1, all others one behind the last block.
    last = max(indices) + 2
    members: dict[int, list[str]] = {}
    for name in names:
        index = block_of(name, blocks)
        layer = last if index is None else index + 1
        if index is None and matches(name, first):
            layer = 0
        members.setdefault(layer, []).append(literal_glob(name))
    return [
        Group(tuple(members[layer]), factors={"lr": factor ** (last - layer)})
        for layer in sorted(members)
        # The last layer has the rate itself: no group.
        if factor != 1 and layer != last
    ]


@dataclass(frozen=True, slots=True)
class Pair:
    """The rules of Muon and AdamW for a model.

    Attributes:
        rule: AdamW, for all other parameters.
        groups: The groups of the hidden matrices, with Muon: one for each partition.
    """

    rule: UpdateRule
    groups: list[Group]


def muon_and_adamw(
    model_or_shapes: Model | Shapes,
    lr: Schedule | Number = 1e-3,
    weight_decay: Number = 0.1,
    *,
    ratio: Number = 1,
    betas: tuple[Number, Number] = (0.9, 0.95),
    momentum: Number = 0.95,
    scale: str = "match_rms_adamw",
    others: Sequence[str] = (*EMBEDDINGS, "*head*", "*output*", "*bias*"),
    heads: int | None = None,
) -> Pair:
    """Returns Muon for the hidden matrices and AdamW for the rest, with rates of one schedule.

    Muon has the rate ``ratio * lr`` at every update, AdamW ``lr``. With ``match_rms_adamw`` an
    update of Muon has the root mean square of one of AdamW, so that a ratio of 1 fits all shapes.
    Fused matrices are stepped by their blocks, which :func:`partition_of` finds by their names.

    Args:
        model_or_shapes: The model, or its shapes by name.
        lr: The learning rate of AdamW, a number or a schedule.
        weight_decay: The weight decay of both.
        ratio: The rate of Muon in that of AdamW, above 0.
        betas: The decay rates of AdamW.
        momentum: The momentum of Muon.
        scale: How the update of Muon scales with the shape: ``match_rms_adamw`` or ``original``.
        others: Globs on the names of matrices that AdamW steps: embeddings, output weights and
            biases of stacks.
        heads: The number of attention heads, for ``query_key_value``; None for that of the model's
            ``config``.

    Raises:
        DefinitionError: ``ratio`` is not above 0, no parameter is a hidden matrix, or the blocks of
            a fused matrix are not known.

    Example:
        >>> from closedform.schedules import linear
        >>> shapes = {"embed": (10, 8), "h.0.w": (8, 8), "h.0.b": (8,), "head": (10, 8)}
        >>> pair = muon_and_adamw(shapes, linear(1, 0, 10), ratio=20)
        >>> muon_lr = pair.groups[0].rule.hyperparameters["lr"]
        >>> pair.groups[0].params, muon_lr.exact(5), pair.rule.hyperparameters["lr"].exact(5)
        (('h.0.w',), 10, 1/2)

    Source: Jordan et al., Muon (2024); Liu et al., Muon is scalable (2025), arXiv:2502.16982.
    """
    number = exact_number(ratio, "ratio")
    if not number > 0:
        raise DefinitionError(f"ratio must be above 0, got {ratio!r}")
    shapes = shapes_of(model_or_shapes)
    heads = heads or getattr(getattr(model_or_shapes, "config", None), "num_attention_heads", None)
    hidden: dict[Partition | None, list[str]] = {}
    for name, shape in shapes.items():
        if len(shape) >= 2 and not matches(name, others):
            hidden.setdefault(partition_of(name, shapes, heads), []).append(literal_glob(name))
    if not hidden:
        raise DefinitionError(
            "no parameter is a hidden matrix: of two dimensions or more, and not one of others",
            where=f"the parameters {list(shapes)[:3]}",
        )
    rate = lr.scale(number) if isinstance(lr, Schedule) else exact_number(lr, "lr") * number
    groups = [
        Group(
            tuple(globs),
            rule=muon(rate, weight_decay, momentum, scale=scale, partitions=partition),
        )
        for partition, globs in hidden.items()
    ]
    if len(groups) == 1 and len(groups[0].params) == len(shapes) and groups[0].rule is not None:
        return Pair(groups[0].rule, [])
    return Pair(adamw(lr, betas, weight_decay=weight_decay), groups)
