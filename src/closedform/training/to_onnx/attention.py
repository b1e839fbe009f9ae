"""Attention with a separate backward: no transposed scores, no safe softmax over all of them."""

from __future__ import annotations

import math
from typing import Any, NewType

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.onnx.ops import symbolic

from closedform.training.to_onnx.arrays import NARROW
from closedform.training.to_onnx.operators import ATEN

Tensor = torch.Tensor

Bias = NewType("Bias", torch.Tensor)
"""A mask of numbers to add to scores: -inf where a query does not see a key.

Only ``_bias`` makes it, of a mask of either kind; nothing that adds a mask takes another type.
"""


_SMALLEST = -60.0
"""The smallest exponent of a weight where there is a mask: e⁻⁶⁰ is lost in any sum with a 1.

onnxruntime's softmax takes e⁻⁸⁸ for smaller ones, which is subnormal: eight times the time.
"""


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Returns softmax(scale·QKᵀ + mask)·V, with zeros for queries whose keys are all masked.

    In 16 bits, with dropout, and for a mask that is trained, torch's own definition is called.
    """
    bias = _bias(attn_mask, query, key, is_causal=is_causal)
    is_trained = bias is not None and bias.requires_grad and torch.is_grad_enabled()
    if query.dtype in NARROW or dropout_p or is_trained:
        return _by_definition(query, key, value, bias, dropout_p, scale, enable_gqa)
    if enable_gqa:
        key = key.repeat_interleave(query.size(-3) // key.size(-3), -3)
        value = value.repeat_interleave(query.size(-3) // value.size(-3), -3)
    batches = [tensor.shape[:-2] for tensor in (query, key, value)]
    if not all(map(_are_equal, batches, batches[1:])):
        shape = torch.broadcast_shapes(*batches)
        # The backward returns gradients in the shapes that autograd saw: expand sums them.
        query, key, value = (t.expand(*shape, *t.shape[-2:]) for t in (query, key, value))
    sees: Tensor | None = None
    if bias is not None and not is_causal:  # where it is causal, each query sees the first key
        sees = (bias != -math.inf).any(-1, keepdim=True)
        bias = Bias(torch.where(sees, bias, torch.zeros((), dtype=bias.dtype)))
    size = query.size(-1)
    factor = 1 / math.sqrt(size) if scale is None else scale
    out: Tensor = _Attention.apply(query * factor, key, value, bias)  # type: ignore[no-untyped-call]
    return out if sees is None else torch.where(sees, out, torch.zeros((), dtype=out.dtype))


def _by_definition(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Bias | None,
    dropout_p: float,
    scale: float | None,
    enable_gqa: bool,
) -> Tensor:
    """Calls torch's definition, which adds a mask of any dtype: a boolean one as 0 and 1.

    torch's public function, which comes before it, makes numbers of a boolean mask.
    """
    result: Tensor = ATEN._scaled_dot_product_attention_math.default(
        query, key, value, bias, dropout_p, scale=scale, enable_gqa=enable_gqa
    )[0]
    return result


def _bias(mask: Tensor | None, query: Tensor, key: Tensor, *, is_causal: bool) -> Bias | None:
    """The mask as numbers to add, in the dtype of the scores; None for no mask."""
    if is_causal:
        if mask is not None:  # as torch has it
            raise ValueError("attn_mask must not be set when is_causal=True")
        mask = torch.ones(query.size(-2), key.size(-2), dtype=torch.bool).tril()
    if mask is None:
        return None
    if mask.dtype is torch.bool:
        zero, minus_infinity = (
            torch.full((), number, dtype=query.dtype) for number in (0.0, -math.inf)
        )
        return Bias(torch.where(mask, zero, minus_infinity))
    # torch adds a mask in float32 to scores in 16 bits in place.
    return Bias(mask.to(query.dtype))


def _are_equal(first: Any, second: Any) -> bool:
    return len(first) == len(second) and all(
        statically_known_true(a == b) for a, b in zip(first, second, strict=True)
    )


def _product(left: Tensor, right: Tensor) -> Tensor:
    """The product of matrices as one operator of ONNX; torch's has three axes, after reshapes."""
    shape = *left.shape[:-1], right.shape[-1]
    result: Tensor = symbolic("MatMul", [left, right], dtype=left.dtype, shape=shape)
    return result


def _masked_softmax(scores: Tensor, bias: Bias) -> Tensor:
    """softmax(scores + bias), with zeros where the bias is -inf, without subnormal numbers."""
    logits = scores + bias
    # A raised logit has a weight of at most e⁻⁶⁰; the factor ``sees`` clears masked ones.
    least = logits.amax(-1, keepdim=True) + _SMALLEST
    sees = (bias != -math.inf).to(scores.dtype)
    return torch.softmax(torch.maximum(logits, least), -1) * sees


class _Attention(torch.autograd.Function):
    """P·V for P = softmax(QKᵀ + bias), with the gradients.

    ∂V = Pᵀ∂O,  ∂S = P∘(∂O·Vᵀ − rowsum(∂O∘O)),  ∂Q = ∂S·K,  ∂K = ∂Sᵀ·Q.

    Pᵀ∂O is computed as (∂OᵀP)ᵀ, and ∂SᵀQ likewise: scores are longer than their vectors.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, bias: Bias | None) -> Tensor:
        scores = _product(query, key.transpose(-1, -2))
        weights = torch.softmax(scores, -1) if bias is None else _masked_softmax(scores, bias)
        out = _product(weights, value)
        ctx.save_for_backward(query, key, value, weights, out)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        (grad,) = grads
        query, key, value, weights, out = ctx.saved_tensors
        in_value = _product(grad.transpose(-1, -2), weights).transpose(-1, -2)
        in_weights = _product(grad, value.transpose(-1, -2))
        # rowsum(P∘∂P) = rowsum(∂O∘O): a sum over a vector's entries, not over all keys.
        in_scores = weights * (in_weights - (grad * out).sum(-1, keepdim=True))
        in_key = _product(query.transpose(-1, -2), in_scores).transpose(-1, -2)
        return _product(in_scores, key), in_key, in_value, None
