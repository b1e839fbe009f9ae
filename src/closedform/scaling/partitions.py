"""Fused matrices of public models: which blocks a weight has, by its name.

Example:
    >>> shapes = {"h.0.attn.c_attn.weight": (768, 2304), "h.0.attn.c_proj.weight": (768, 768)}
    >>> partition_of("h.0.attn.c_attn.weight", shapes)
    Partition(blocks=(768, 768, 768), axis=1, groups=1)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from closedform.errors import DefinitionError
from closedform.language.partitions import Partition
from closedform.scaling.layers import Shape


@dataclass(frozen=True, slots=True)
class _Fused:
    """A layer that is fused of several.

    Attributes:
        following: The name of the layer behind it, whose input is as large as the first block.
        others: The number of the other blocks, which have one size.
        is_by_heads: Whether each head, or group of heads, has its part of every block.
    """

    following: str
    others: int = 2
    is_by_heads: bool = False


FUSED: Mapping[str, _Fused] = {
    # Llama, Qwen, Mixtral and Phi-3, where query, key and value are one matrix, as in vLLM.
    "qkv_proj": _Fused("o_proj"),
    # GPT-2, whose Conv1D has its outputs in the columns, and nanoGPT, which has them in the rows.
    "c_attn": _Fused("c_proj"),
    # GPT-NeoX, BLOOM and Falcon: the outputs are viewed as [head, query and key and value]
    # (transformers, models/gpt_neox/modeling_gpt_neox.py, GPTNeoXAttention); Megatron likewise.
    "query_key_value": _Fused("dense", is_by_heads=True),
    "linear_qkv": _Fused("linear_proj", is_by_heads=True),
    # Also stacks of experts: [expert, output, input] in Mixtral and Qwen3-MoE of transformers 5,
    # [expert, input, output] in Llama 4 and gpt-oss.
    "gate_up_proj": _Fused("down_proj", 1),
    "linear_fc1": _Fused("linear_fc2", 1),
}
"""Layers by their names."""


def partition_of(
    name: str, shapes: Mapping[str, Shape], heads: int | None = None
) -> Partition | None:
    """Returns the blocks of a weight by the name of its layer, None for one that is not fused.

    Args:
        name: The name of the weight.
        shapes: The shapes of all weights by name.
        heads: The number of attention heads, for the layers whose heads each have a part of query,
            key and value.

    Raises:
        DefinitionError: The blocks do not follow from the shapes of the layer and the next one, or
            the number of heads is needed and not known.
    """
    path = re.sub(r"\.weight\d*$", "", name)  # the experts of Megatron are weight0, weight1, …
    prefix, dot, layer = path.rpartition(".")
    layer_form = FUSED.get(layer)
    if layer_form is None:
        return None
    shape = shapes[name]
    after = shapes.get(f"{prefix}{dot}{layer_form.following}{name.removeprefix(path)}", ())
    for axis in (-2, -1) if len(after) == len(shape) else ():
        # The next layer goes back to the width of the model.
        first, width = after[-3 - axis], shape[-3 - axis]
        size, remainder = divmod(shape[axis] - first, layer_form.others)
        if after[axis] != width or remainder or size < 0:
            continue
        if size == 0 and layer_form.others == 1:
            return None  # an MLP without a gate
        if size == 0 or f"{prefix}{dot}q_attn.weight" in shapes:
            continue  # keys and values of another sequence, whose queries are apart
        sizes = (first, *(size,) * layer_form.others)
        if layer_form.is_by_heads:
            return Partition(sizes, axis + len(shape), _groups(sizes, heads, name))
        # gpt-oss: gates are the even columns (models/gpt_oss/modeling_gpt_oss.py, GptOssExperts).
        groups = size if f"{path}_bias" in shapes else 1
        return Partition(sizes, axis + len(shape), groups)
    raise DefinitionError(
        f"the blocks of {layer} do not follow from its shape {list(shape)} and that of "
        f"{layer_form.following}, {list(after)}",
        where=f"parameter {name!r}",
        hint="give it a group with muon(…, partitions=…)",
    )


def _groups(sizes: tuple[int, ...], heads: int | None, name: str) -> int:
    """The number of groups of heads that share a key and a value."""
    if heads is None or sizes[0] % heads or sizes[1] % (sizes[0] // heads):
        raise DefinitionError(
            f"each head has its part of query, key and value of the sizes {sizes}, got {heads} "
            "heads",
            where=f"parameter {name!r}",
            hint="give the number of attention heads: heads=…",
        )
    return sizes[1] // (sizes[0] // heads)
