"""The rules whose backward is proved, by the names of torch's own table of operators.

A rule that is added to the table of backwards in :mod:`closedform.training.to_onnx.decompositions`
has to say in ``BACKWARDS`` which rules prove it, or why it is only compared with torch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from closedform.training.tables import union
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
from tests.proofs.gradients.elements import ALPHA, SCALE
from tests.proofs.gradients.torch_rules.composed_rules import COMPOSED
from tests.proofs.gradients.torch_rules.elementwise import Elementwise, Kink, X, Z
from tests.proofs.gradients.torch_rules.linear import Composed, Linear
from tests.proofs.gradients.torch_rules.linear_rules import LINEAR

Rule = Elementwise | Linear


# torch.__version__ is a TorchVersion, which compares by PEP 440: 2.9 is below 2.14.
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
# Huber's loss has edges where |x − z| = 1, its default delta, and at 0.
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
    "__radd__": Elementwise(lambda x: 2.0 + x),
    "__rdiv__": Elementwise(lambda x: 3.0 / x),
    "__rmul__": Elementwise(lambda x: 3.0 * x),
    "__rpow__": Elementwise(lambda x: 2.0**x),
    "__rsub__": Elementwise(lambda x: 3.0 - x),
    "clamp_max": Elementwise(lambda x: x.clamp_max(1), edges=(_to(1),), kinks=(_at(1, ONE),)),
    "clamp_min": Elementwise(lambda x: x.clamp_min(1), edges=(_to(1),), kinks=(_at(1, ONE),)),
    "copysign": Elementwise(torch.copysign, _TWO, edges=_TWO),
    "float_power": Elementwise(lambda x: torch.float_power(x, 2.0)),
    "frac": Elementwise(torch.frac),
    "ldexp": Elementwise(torch.ldexp, _TWO),
    "masked.logaddexp": Elementwise(torch.masked.logaddexp, _TWO, edges=_TIES),
    # At a tie torch halves the gradient of max and min, and gives all of it to the first operand of
    # fmax and fmin.
    "max.binary": Elementwise(torch.max, _TWO, edges=_TIES, kinks=_both(HALF, HALF)),
    "min.binary": Elementwise(torch.min, _TWO, edges=_TIES, kinks=_both(HALF, HALF)),
    "nan_to_num": Elementwise(torch.nan_to_num),
    "nn.functional.rrelu": Elementwise(lambda x: functional.rrelu(x, training=False), edges=(X,)),
    "sgn": Elementwise(torch.sgn, edges=(X,), kinks=(_at(0, ZERO),)),
    "special.entr": Elementwise(torch.special.entr, domain=_POSITIVE),
    "special.ndtr": Elementwise(torch.special.ndtr),
    "special.xlog1py": Elementwise(
        torch.special.xlog1py, _TWO, domain=(less(ZERO, X), less(ZERO, Z))
    ),
    "remainder": Elementwise(torch.remainder, _TWO),
    "true_divide": Elementwise(torch.true_divide, _TWO),
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
        # The limits from both sides differ at ±3; torch takes 0 at −3 and 1 at 3.
        functional.hardswish,
        edges=(_to(-3), _to(3)),
        kinks=(_at(-3, ZERO), _at(3, ONE)),
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
        # 0.01 is the default slope, which torch also takes at 0.
        functional.leaky_relu,
        edges=(X,),
        kinks=(_at(0, rational(1, 100)),),
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
    # Above its threshold of 20, softplus is x itself.
    "nn.functional.softplus": Elementwise(functional.softplus, edges=(_to(20),)),
    "nn.functional.softshrink": Elementwise(functional.softshrink, **_with_halves()),
    "nn.functional.softsign": Elementwise(functional.softsign, edges=(X,), kinks=_smooth(ONE)),
    "nn.functional.tanhshrink": Elementwise(functional.tanhshrink),
    # The derivative of xᶻ in z has the case z = 0.
    "pow": Elementwise(torch.pow, _TWO, domain=_POSITIVE, edges=(Z,)),
    "rsqrt": Elementwise(torch.rsqrt, domain=_POSITIVE),
    "rsub": Elementwise(torch.rsub, _TWO),
    "sign": Elementwise(torch.sign, edges=(X,), kinks=(_at(0, ZERO),)),
    # sin(πx)/(πx), 1 at 0.
    "sinc": Elementwise(torch.sinc, edges=(X,), kinks=_smooth(ZERO)),
    "sqrt": Elementwise(torch.sqrt, domain=_POSITIVE),
    "sub": Elementwise(torch.sub, _TWO),
    "xlogy": Elementwise(torch.xlogy, _TWO, domain=(less(ZERO, X), less(ZERO, Z))),
}
"""Rules of elementwise operators: the derivative, with the convention of torch at kinks."""

RULES: Mapping[str, Rule] = union(ELEMENTWISE, LINEAR, COMPOSED)

PROVED, PROVED_OFF_KINKS, COMPARED = "proved", "proved except at kinks", "compared with torch only"


def kind_of(rule: Rule) -> str:
    """Returns the claim of a rule that is proved: at kinks there is a convention, no derivative."""
    is_kinked = (
        not all(kink.is_smooth for kink in rule.kinks)
        if isinstance(rule, Elementwise)
        else isinstance(rule, Composed) and rule.has_kinks
    )
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
        ("nn.functional.max_pool1d", "nn.functional.max_pool2d")
    ),
    "aten::mse_loss_backward": Backward(("nn.functional.mse_loss",)),
    "aten::native_batch_norm_backward": Backward(("nn.functional.batch_norm",)),
    "aten::native_layer_norm_backward": Backward(("nn.functional.layer_norm",)),
    "aten::soft_margin_loss_backward": Backward(("nn.functional.soft_margin_loss",)),
    "scaled_dot_product_attention": Backward(
        ("nn.functional.scaled_dot_product_attention",),
        "masks that are not trained, where weights below e⁻⁶⁰ are "
        "raised to it, and dropout are only compared",
    ),
}
"""The backwards in the tables of :mod:`closedform.training.to_onnx`."""
