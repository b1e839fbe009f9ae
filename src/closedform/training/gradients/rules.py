"""The rules whose backward is proved, by the names of torch's own table of operators.

A rule that is added to the table of backwards in :mod:`closedform.training.tracing.decompositions`
has to say in ``BACKWARDS`` which rules prove it, or why it is only compared with torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from closedform.training.gradients.elementwise import Elementwise, Kink, X, Z
from closedform.training.gradients.linear import Linear
from closedform.training.gradients.pullbacks import Sizes
from closedform.verify.gradients.elements import ALPHA, SCALE
from closedform.verify.terms.build import (
    HALF,
    MINUS_ONE,
    ONE,
    ZERO,
    add,
    less,
    negative,
    rational,
    subtract,
)
from closedform.verify.terms.tree import Term

Rule = Elementwise | Linear


_CLAMP_SLOPE = ZERO if torch.__version__ >= "2.14" else ONE
"""The slope of clamp at a bound, which torch 2.14 took from 1 to 0."""


def _at(number: int, slope: Term) -> Kink:
    return Kink({X: rational(number)}, (slope,))


def _smooth(slope: Term) -> tuple[Kink, ...]:
    """The derivative at 0."""
    return (Kink({X: ZERO}, (slope,), is_smooth=True),)


def _to(number: int) -> Term:
    return subtract(X, rational(number))


def _both(slope: Term, other_slope: Term) -> tuple[Kink, ...]:
    return (Kink({X: Z}, (slope, other_slope)),)


def _with_halves() -> dict[str, tuple[Any, ...]]:
    edges = subtract(X, HALF), add(X, HALF)
    return {
        "edges": edges,
        "kinks": (Kink({X: HALF}, (ZERO,)), Kink({X: negative(HALF)}, (ZERO,))),
    }


def _loss(function: Callable[..., Any], **options: Any) -> Callable[..., torch.Tensor]:
    return lambda x, z: function(x, z, reduction="none", **options)


_DISTANCE = subtract(X, Z)
_POSITIVE = (less(ZERO, X),)
_UNIT = (less(ZERO, X), less(X, ONE))
_BETWEEN = (less(MINUS_ONE, X), less(X, ONE))
_TWO = (X, Z)
_TIES = (_DISTANCE,)
_STEPS = (subtract(_DISTANCE, ONE), add(_DISTANCE, ONE), _DISTANCE)

_PLAIN: tuple[Callable[..., torch.Tensor], ...] = (
    torch.atan,
    torch.asinh,
    torch.cos,
    torch.cosh,
    torch.deg2rad,
    torch.erf,
    torch.erfc,
    torch.exp,
    torch.exp2,
    torch.expm1,
    torch.neg,
    torch.positive,
    torch.rad2deg,
    torch.reciprocal,
    torch.sigmoid,
    torch.sin,
    torch.sinh,
    torch.square,
    torch.tan,
    torch.tanh,
)
"""Functions of one number that are smooth where they are defined."""

ELEMENTWISE: Mapping[str, Elementwise] = {
    **{function.__name__: Elementwise(function) for function in _PLAIN},
    "abs": Elementwise(torch.abs, edges=(X,), kinks=(_at(0, ZERO),)),
    "acos": Elementwise(torch.acos, domain=_BETWEEN),
    "acosh": Elementwise(torch.acosh, domain=(less(ONE, X),)),
    "add": Elementwise(torch.add, _TWO),
    "addcmul": Elementwise(lambda x, z: torch.addcmul(x, x, z, value=2), _TWO),
    "asin": Elementwise(torch.asin, domain=_BETWEEN),
    "atan2": Elementwise(torch.atan2, _TWO, edges=_TWO),
    "atanh": Elementwise(torch.atanh, domain=_BETWEEN),
    "clamp": Elementwise(
        lambda x: x.clamp(-1, 2),
        edges=(_to(-1), _to(2)),
        kinks=(_at(-1, _CLAMP_SLOPE), _at(2, _CLAMP_SLOPE)),
    ),
    "div.no_rounding_mode": Elementwise(torch.div, _TWO),
    "fmax": Elementwise(torch.fmax, _TWO, edges=_TIES, kinks=_both(ONE, ZERO)),
    "fmin": Elementwise(torch.fmin, _TWO, edges=_TIES, kinks=_both(ONE, ZERO)),
    "lerp": Elementwise(lambda x, z: torch.lerp(x, z, 0.25), _TWO),
    "log": Elementwise(torch.log, domain=_POSITIVE),
    "log10": Elementwise(torch.log10, domain=_POSITIVE),
    "log1p": Elementwise(torch.log1p, domain=(less(MINUS_ONE, X),)),
    "log2": Elementwise(torch.log2, domain=_POSITIVE),
    "logaddexp": Elementwise(torch.logaddexp, _TWO, edges=_TIES),
    "logit": Elementwise(torch.logit, domain=_UNIT),
    "maximum": Elementwise(torch.maximum, _TWO, edges=_TIES, kinks=_both(HALF, HALF)),
    "minimum": Elementwise(torch.minimum, _TWO, edges=_TIES, kinks=_both(HALF, HALF)),
    "mul": Elementwise(torch.mul, _TWO),
    "nn.functional.binary_cross_entropy_with_logits": Elementwise(
        _loss(functional.binary_cross_entropy_with_logits), _TWO, edges=(X,)
    ),
    "nn.functional.celu": Elementwise(functional.celu, edges=(X,), kinks=_smooth(ONE)),
    "nn.functional.elu": Elementwise(functional.elu, edges=(X,), kinks=_smooth(ONE)),
    "nn.functional.gelu": Elementwise(functional.gelu),
    "nn.functional.hardshrink": Elementwise(functional.hardshrink, **_with_halves()),
    "nn.functional.hardsigmoid": Elementwise(
        functional.hardsigmoid, edges=(_to(-3), _to(3)), kinks=(_at(-3, ZERO), _at(3, ZERO))
    ),
    "nn.functional.hardswish": Elementwise(
        functional.hardswish, edges=(_to(-3), _to(3)), kinks=(_at(-3, ZERO), _at(3, ONE))
    ),
    "nn.functional.hardtanh": Elementwise(
        functional.hardtanh, edges=(_to(-1), _to(1)), kinks=(_at(-1, ZERO), _at(1, ZERO))
    ),
    "nn.functional.huber_loss": Elementwise(_loss(functional.huber_loss), _TWO, edges=_STEPS),
    "nn.functional.kl_div": Elementwise(_loss(functional.kl_div), _TWO, domain=(less(ZERO, Z),)),
    "nn.functional.l1_loss": Elementwise(
        _loss(functional.l1_loss), _TWO, edges=_TIES, kinks=_both(ZERO, ZERO)
    ),
    "nn.functional.leaky_relu": Elementwise(
        functional.leaky_relu, edges=(X,), kinks=(_at(0, rational(1, 100)),)
    ),
    "nn.functional.logsigmoid": Elementwise(functional.logsigmoid, edges=(X,), kinks=_smooth(HALF)),
    # Above 20, torch's forward is x·tanh x, and its backward that of x·tanh(log(1 + exp x)).
    "nn.functional.mish": Elementwise(functional.mish, domain=(less(X, rational(20)),)),
    "nn.functional.mse_loss": Elementwise(_loss(functional.mse_loss), _TWO),
    "nn.functional.poisson_nll_loss": Elementwise(_loss(functional.poisson_nll_loss), _TWO),
    "nn.functional.relu": Elementwise(functional.relu, edges=(X,), kinks=(_at(0, ZERO),)),
    "nn.functional.relu6": Elementwise(
        functional.relu6, edges=(X, _to(6)), kinks=(_at(0, ZERO), _at(6, ZERO))
    ),
    "nn.functional.selu": Elementwise(
        functional.selu, edges=(X,), kinks=(Kink({X: ZERO}, (rational(ALPHA * SCALE),)),)
    ),
    "nn.functional.silu": Elementwise(functional.silu),
    "nn.functional.smooth_l1_loss": Elementwise(
        _loss(functional.smooth_l1_loss), _TWO, edges=_STEPS
    ),
    "nn.functional.soft_margin_loss": Elementwise(
        lambda x: functional.soft_margin_loss(x, torch.ones_like(x), reduction="none")
    ),
    "nn.functional.softplus": Elementwise(functional.softplus, edges=(_to(20),)),
    "nn.functional.softshrink": Elementwise(functional.softshrink, **_with_halves()),
    "nn.functional.softsign": Elementwise(functional.softsign, edges=(X,), kinks=_smooth(ONE)),
    "nn.functional.tanhshrink": Elementwise(functional.tanhshrink),
    "pow": Elementwise(torch.pow, _TWO, domain=_POSITIVE, edges=(Z,)),
    "rsqrt": Elementwise(torch.rsqrt, domain=_POSITIVE),
    "rsub": Elementwise(torch.rsub, _TWO),
    "sign": Elementwise(torch.sign, edges=(X,), kinks=(_at(0, ZERO),)),
    "sinc": Elementwise(torch.sinc, edges=(X,), kinks=_smooth(ZERO)),
    "sqrt": Elementwise(torch.sqrt, domain=_POSITIVE),
    "sub": Elementwise(torch.sub, _TWO),
    "xlogy": Elementwise(torch.xlogy, _TWO, domain=(less(ZERO, X), less(ZERO, Z))),
}
"""Rules of elementwise operators: the derivative, with the convention of torch at kinks."""

_N: Sizes = {"x": ("n", "m")}
_FIXED: Sizes = {"x": ("n", 4)}
_PAIR: Sizes = {"x": ("n", "m"), "z": ("n", "m")}
_CHOICE: Sizes = {"x": ("n", "m"), "i": ("n", "m")}
_PICKS: Sizes = {"x": ("n", "m"), "i": ("n", "k")}
_MATRICES: Sizes = {"x": ("n", "k"), "w": ("k", "m")}
_BATCHES: Sizes = {"x": ("b", "n", "k"), "w": ("b", "k", "m")}
_XW, _XZ, _I = ("x", "w"), ("x", "z"), ("i",)

LINEAR: Mapping[str, Linear] = {
    "addbmm": Linear(
        lambda x, v, w: torch.addbmm(x, v, w),
        {"x": ("n", "m"), "v": (2, "n", "k"), "w": (2, "k", "m")},
        ("x", "v", "w"),
    ),
    "addmm": Linear(torch.addmm, {"z": ("n", "m"), **_MATRICES}, ("z", "x", "w")),
    "addmv": Linear(torch.addmv, {"z": ("n",), "x": ("n", "m"), "w": ("m",)}, ("z", "x", "w")),
    "baddbmm": Linear(torch.baddbmm, {"z": ("b", "n", "m"), **_BATCHES}, ("z", "x", "w")),
    "bmm": Linear(torch.bmm, _BATCHES, _XW),
    "broadcast_to": Linear(
        lambda x, z: x.broadcast_to(z.shape[0], x.shape[0]), {"x": ("n",), "z": ("m",)}
    ),
    "cat": Linear(lambda x, z: torch.cat([x, z], 1), {"x": ("n", "m"), "z": ("n", "k")}, _XZ),
    "chunk": Linear(lambda x: x.chunk(2, 1)[1], _FIXED),
    "cumsum": Linear(lambda x: x.cumsum(1), _N),
    "diag_embed": Linear(torch.diag_embed, {"x": ("n", 3)}),
    "diagonal": Linear(torch.diagonal, {"x": (4, 4)}),
    "diff": Linear(lambda x: x.diff(dim=1), _N, smallest=2),
    "dot": Linear(torch.dot, {"x": ("n",), "w": ("n",)}, _XW),
    "einsum": Linear(
        lambda x, w: torch.einsum("bij,bkj->bik", x, w),
        {"x": ("b", "n", "k"), "w": ("b", "m", "k")},
        _XW,
    ),
    "expand": Linear(
        lambda x, z: x.unsqueeze(0).expand(z.shape[0], -1), {"x": ("n",), "z": ("m",)}
    ),
    "flatten": Linear(torch.flatten, _N),
    "flip": Linear(lambda x: x.flip(1), _N),
    "gather": Linear(lambda x, i: x.gather(1, i), _PICKS, integers=_I),
    "index_select": Linear(
        lambda x, i: x.index_select(0, i), {"x": ("n", "m"), "i": ("k",)}, integers=_I
    ),
    "masked_fill": Linear(lambda x, i: x.masked_fill(i > 0, 2.0), _CHOICE, integers=_I),
    "matmul": Linear(torch.matmul, _MATRICES, _XW),
    "mean": Linear(lambda x: x.mean(1), _N),
    "mm": Linear(torch.mm, _MATRICES, _XW),
    "movedim": Linear(lambda x: x.movedim(0, 2), {"x": ("n", "m", "k")}),
    "mv": Linear(torch.mv, {"x": ("n", "m"), "w": ("m",)}, _XW),
    "narrow": Linear(lambda x: x.narrow(1, 1, 2), _FIXED),
    "nn.functional.avg_pool2d": Linear(
        lambda x: functional.avg_pool2d(x, 2), {"x": ("b", 2, 6, 6)}
    ),
    "nn.functional.bilinear": Linear(
        functional.bilinear, {"x": ("n", 2), "z": ("n", 3), "w": (4, 2, 3)}, ("x", "z", "w")
    ),
    "nn.functional.conv1d": Linear(
        lambda x, w: functional.conv1d(x, w, padding=1), {"x": ("b", 2, "l"), "w": (4, 2, 3)}, _XW
    ),
    "nn.functional.conv2d": Linear(
        lambda x, w: functional.conv2d(x, w, padding=1),
        {"x": ("b", 2, "h", "l"), "w": (3, 2, 3, 3)},
        _XW,
        smallest=3,
    ),
    "nn.functional.conv_transpose1d": Linear(
        functional.conv_transpose1d, {"x": ("b", 2, "l"), "w": (2, 3, 3)}, _XW
    ),
    "nn.functional.embedding": Linear(
        lambda w, i: functional.embedding(i, w),
        {"w": ("v", "d"), "i": ("n",)},
        ("w",),
        integers=_I,
    ),
    "nn.functional.linear": Linear(
        functional.linear, {"x": ("n", "k"), "w": ("m", "k"), "z": ("m",)}, ("x", "w", "z")
    ),
    "nn.functional.nll_loss": Linear(
        lambda x, i: functional.nll_loss(x, i, reduction="sum"),
        {"x": ("n", "c"), "i": ("n",)},
        integers=_I,
    ),
    "nn.functional.pad.constant": Linear(lambda x: functional.pad(x, (1, 2)), _N),
    "nn.functional.pixel_shuffle": Linear(
        lambda x: functional.pixel_shuffle(x, 2), {"x": ("b", 4, 3, 3)}
    ),
    "outer": Linear(torch.outer, {"x": ("n",), "w": ("m",)}, _XW),
    "permute": Linear(lambda x: x.permute(2, 0, 1), {"x": ("n", "m", "k")}),
    "repeat": Linear(lambda x: x.repeat(2, 1), _N),
    "repeat_interleave": Linear(lambda x: x.repeat_interleave(2, 1), {"x": ("n", 3)}),
    "reshape": Linear(lambda x: x.reshape(-1), _N),
    "roll": Linear(lambda x: x.roll(1, 1), _N),
    "scatter_add": Linear(
        lambda x, z, i: x.scatter_add(1, i, z),
        {"x": ("n", "m"), "z": ("n", "k"), "i": ("n", "k")},
        _XZ,
        integers=_I,
    ),
    "select": Linear(lambda x: x[:, 0], _N),
    "slice": Linear(lambda x: x[1:], _N),
    "split": Linear(lambda x: x.split(2, 1)[0], _FIXED),
    "squeeze": Linear(lambda x: x.squeeze(1), {"x": ("n", 1)}),
    "stack": Linear(lambda x, z: torch.stack([x, z], 1), _PAIR, _XZ),
    "sum": Linear(lambda x: x.sum(1), _N),
    "trace": Linear(torch.trace, {"x": (4, 4)}),
    "transpose": Linear(lambda x: x.transpose(0, 1), _N),
    "tril": Linear(torch.tril, _N),
    "triu": Linear(lambda x: x.triu(1), _N),
    "unflatten": Linear(lambda x: x.unflatten(1, (2, 3)), {"x": ("n", 6)}),
    "unfold": Linear(lambda x: x.unfold(1, 2, 1), {"x": ("n", 5)}),
    "unsqueeze": Linear(lambda x: x.unsqueeze(1), _N),
    "where": Linear(
        lambda x, z, i: torch.where(i > 0, x, z), {**_PAIR, "i": ("n", "m")}, _XZ, integers=_I
    ),
}
"""Rules of linear operators: the adjoint, for all sizes of the ranks that are named here."""

RULES: Mapping[str, Rule] = {**ELEMENTWISE, **LINEAR}

PROVED, PROVED_OFF_KINKS, COMPARED = "proved", "proved except at kinks", "compared with torch only"


def kind_of(rule: Rule) -> str:
    """Returns the claim of a rule that is proved: at kinks there is a convention, no derivative."""
    is_kinked = isinstance(rule, Elementwise) and not all(k.is_smooth for k in rule.kinks)
    return PROVED_OFF_KINKS if is_kinked else PROVED


@dataclass(frozen=True, slots=True)
class Backward:
    """How a backward that closedform writes instead of torch's is shown to be right.

    Attributes:
        rules: Names of rules whose exported graph has it.
        reason: Why it, or the part that the rules leave out, is only compared with torch.
    """

    rules: tuple[str, ...] = ()
    reason: str = ""


_RATIO = "a quotient of sums over an axis, which index sums have no form for"

BACKWARDS: Mapping[str, Backward] = {
    "aten::avg_pool2d_backward": Backward(("nn.functional.avg_pool2d",)),
    "aten::convolution_backward": Backward(
        ("nn.functional.conv1d", "nn.functional.conv2d", "nn.functional.conv_transpose1d"),
        "forms of the weight's gradient for measured shapes are only compared",
    ),
    "aten::gelu_backward": Backward(("nn.functional.gelu",)),
    "aten::hardsigmoid_backward": Backward(("nn.functional.hardsigmoid",)),
    "aten::hardtanh_backward": Backward(("nn.functional.hardtanh", "nn.functional.relu6")),
    "aten::max_pool2d_with_indices_backward": Backward(
        reason="the places of maxima are results of an operator of ONNX"
    ),
    "aten::mse_loss_backward": Backward(("nn.functional.mse_loss",)),
    "aten::native_batch_norm_backward": Backward(reason=_RATIO),
    "aten::native_layer_norm_backward": Backward(reason=_RATIO),
    "aten::soft_margin_loss_backward": Backward(("nn.functional.soft_margin_loss",)),
    "scaled_dot_product_attention": Backward(reason=_RATIO),
}
"""The backwards in the tables of :mod:`closedform.training.tracing`."""
