"""The rules of composed operators, by the names of torch's own table of operators."""

from collections.abc import Mapping

import torch
from torch.nn import functional

from tests.proofs.gradients.torch_rules.linear import Composed
from tests.proofs.gradients.torch_rules.pullbacks import Sizes

_N: Sizes = {"x": ("n", "m")}
_FIXED: Sizes = {"x": ("n", 4)}
_PAIR: Sizes = {"x": ("n", "m"), "z": ("n", "m")}
_CHOICE: Sizes = {"x": ("n", "m"), "i": ("n", "m")}
_CHANNELS: Sizes = {"x": ("n", 4, "l"), "w": (4,), "z": (4,)}
_XZ, _XW, _I = ("x", "z"), ("x", "w"), ("i",)


def _attentions(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    """Attention without a mask, and with one that is trained: these have two backwards."""
    attention = functional.scaled_dot_product_attention
    return attention(x, w, v) + attention(x, w, v, attn_mask=z)


COMPOSED: Mapping[str, Composed] = {
    "_native_batch_norm_legit": Composed(
        lambda x, w, z: torch.ops.aten._native_batch_norm_legit.no_stats(x, w, z, True, 0.1, 1e-05)[
            0
        ],
        _CHANNELS,
        ("x", "w", "z"),
    ),
    "_softmax_backward_data": Composed(
        lambda x, z: torch.ops.aten._softmax_backward_data(x, z, 1, torch.float32), _PAIR, _XZ
    ),
    "addcdiv": Composed(
        lambda x, z, w: torch.addcdiv(x, z, w), {**_PAIR, "w": ("n", "m")}, ("x", "z", "w")
    ),
    # has_kinks: at equal maxima torch divides the gradient among them.
    "amax": Composed(lambda x: x.amax(1), _N, has_kinks=True),
    "amin": Composed(lambda x: x.amin(1), _N, has_kinks=True),
    "aminmax": Composed(lambda x: torch.aminmax(x, dim=1)[0], _N, has_kinks=True),
    # A distance has no derivative at 0, where torch has the gradient 0.
    "cdist": Composed(
        lambda x, z: torch.cdist(x, z), {"x": ("n", 4), "z": ("m", 4)}, _XZ, has_kinks=True
    ),
    "cov": Composed(lambda x: x.cov(), _N),
    "dist": Composed(lambda x, z: torch.dist(x, z), _PAIR, _XZ, has_kinks=True),
    "linalg.matrix_norm": Composed(lambda x: torch.linalg.matrix_norm(x), _N, has_kinks=True),
    # Any exponent is a repeated product; 2 shows both places of the factor.
    "linalg.matrix_power": Composed(lambda x: torch.linalg.matrix_power(x, 2), {"x": ("n", "n")}),
    "linalg.norm": Composed(lambda x: torch.linalg.norm(x), _N, has_kinks=True),
    "linalg.vector_norm": Composed(
        lambda x: torch.linalg.vector_norm(x, dim=1), _N, has_kinks=True
    ),
    "log_softmax": Composed(lambda x: x.log_softmax(1), _N),
    "log_softmax.with_dtype": Composed(lambda x: x.log_softmax(1, dtype=torch.float32), _N),
    "logsumexp": Composed(lambda x: x.logsumexp(1), _N),
    "masked.log_softmax": Composed(
        lambda x, i: torch.masked.log_softmax(x, 1, mask=i > 0), _CHOICE, integers=_I
    ),
    "masked.logsumexp": Composed(
        lambda x, i: torch.masked.logsumexp(x, 1, mask=i > 0), _CHOICE, integers=_I
    ),
    "masked.norm": Composed(
        lambda x, i: torch.masked.norm(x, 2, 1, mask=i > 0), _CHOICE, integers=_I, has_kinks=True
    ),
    "masked.normalize": Composed(
        lambda x, i: torch.masked.normalize(x, 2, 1, mask=i > 0),
        _CHOICE,
        integers=_I,
        has_kinks=True,
    ),
    "masked.softmax": Composed(
        lambda x, i: torch.masked.softmax(x, 1, mask=i > 0), _CHOICE, integers=_I
    ),
    "masked.softmin": Composed(
        lambda x, i: torch.masked.softmin(x, 1, mask=i > 0), _CHOICE, integers=_I
    ),
    "max.reduction_no_dim": Composed(lambda x: x.max(), _N, has_kinks=True),
    "min.reduction_no_dim": Composed(lambda x: x.min(), _N, has_kinks=True),
    "native_batch_norm": Composed(
        lambda x, w, z: torch.native_batch_norm(x, w, z, None, None, True, 0.1, 1e-05)[0],
        _CHANNELS,
        ("x", "w", "z"),
    ),
    "native_layer_norm": Composed(
        lambda x, w, z: torch.native_layer_norm(x, (4,), w, z, 1e-05)[0],
        {"x": ("n", 4), "w": (4,), "z": (4,)},
        ("x", "w", "z"),
    ),
    "nn.functional.batch_norm": Composed(
        lambda x, w, z: functional.batch_norm(x, None, None, w, z, training=True),
        _CHANNELS,
        ("x", "w", "z"),
    ),
    "nn.functional.cosine_embedding_loss": Composed(
        lambda x, z, i: functional.cosine_embedding_loss(x, z, i, reduction="none"),
        {**_PAIR, "i": ("n",)},
        _XZ,
        integers=_I,
        has_kinks=True,
    ),
    "nn.functional.cross_entropy": Composed(
        lambda x, i: functional.cross_entropy(x, i), {"x": ("n", "m"), "i": ("n",)}, integers=_I
    ),
    "nn.functional.group_norm": Composed(
        lambda x, w, z: functional.group_norm(x, 2, w, z), _CHANNELS, ("x", "w", "z")
    ),
    "nn.functional.hinge_embedding_loss": Composed(
        lambda x, i: functional.hinge_embedding_loss(x, i.float(), reduction="none"),
        {"x": ("n",), "i": ("n",)},
        integers=_I,
        has_kinks=True,
    ),
    "nn.functional.instance_norm": Composed(
        lambda x, w, z: functional.instance_norm(x, weight=w, bias=z),
        {"x": (2, 4, "l"), "w": (4,), "z": (4,)},
        ("x", "w", "z"),
        smallest=2,
    ),
    "nn.functional.layer_norm": Composed(
        lambda x, w, z: functional.layer_norm(x, (4,), w, z),
        {"x": ("n", 4), "w": (4,), "z": (4,)},
        ("x", "w", "z"),
    ),
    "nn.functional.linear_cross_entropy": Composed(
        lambda x, w, i: functional.linear_cross_entropy(x, w, i),
        {"x": ("n", "k"), "w": ("m", "k"), "i": ("n",)},
        _XW,
        integers=_I,
    ),
    "nn.functional.local_response_norm": Composed(
        lambda x: functional.local_response_norm(x, 2), {"x": ("n", 4, "l")}
    ),
    "nn.functional.margin_ranking_loss": Composed(
        lambda x, z, i: functional.margin_ranking_loss(x, z, i.float(), reduction="none"),
        {"x": ("n",), "z": ("n",), "i": ("n",)},
        _XZ,
        integers=_I,
        has_kinks=True,
    ),
    "nn.functional.multi_margin_loss": Composed(
        lambda x, i: functional.multi_margin_loss(x, i, reduction="none"),
        {"x": ("n", 4), "i": ("n",)},
        integers=_I,
        has_kinks=True,
    ),
    "nn.functional.multilabel_soft_margin_loss": Composed(
        lambda x, i: functional.multilabel_soft_margin_loss(x, i.float(), reduction="none"),
        {"x": ("n", 4), "i": ("n", 4)},
        integers=_I,
        has_kinks=True,
    ),
    "nn.functional.normalize": Composed(
        lambda x: functional.normalize(x, dim=1), _N, has_kinks=True
    ),
    "nn.functional.pairwise_distance": Composed(
        lambda x, z: functional.pairwise_distance(x, z), _PAIR, _XZ, has_kinks=True
    ),
    "nn.functional.prelu": Composed(
        lambda x, w: functional.prelu(x, w), {"x": ("n", 4), "w": (4,)}, _XW, has_kinks=True
    ),
    "nn.functional.rms_norm": Composed(
        lambda x, w: functional.rms_norm(x, (4,), w), {"x": ("n", 4), "w": (4,)}, _XW
    ),
    "nn.functional.scaled_dot_product_attention": Composed(
        _attentions,
        {
            "x": ("b", "h", "n", 4),
            "w": ("b", "h", "m", 4),
            "v": ("b", "h", "m", 4),
            "z": ("n", "m"),
        },
        ("x", "w", "v", "z"),
    ),
    "nn.functional.softmin": Composed(lambda x: functional.softmin(x, 1), _N),
    "nn.functional.softmin.with_dtype": Composed(
        lambda x: functional.softmin(x, 1, dtype=torch.float32), _N
    ),
    "nn.functional.triplet_margin_loss": Composed(
        lambda x, z, w: functional.triplet_margin_loss(x, z, w, reduction="none"),
        {**_PAIR, "w": ("n", "m")},
        ("x", "z", "w"),
        has_kinks=True,
    ),
    "nn.functional.triplet_margin_with_distance_loss": Composed(
        lambda x, z, w: functional.triplet_margin_with_distance_loss(x, z, w, reduction="none"),
        {**_PAIR, "w": ("n", "m")},
        ("x", "z", "w"),
        has_kinks=True,
    ),
    "norm": Composed(lambda x: x.norm(2, 1), _N, has_kinks=True),
    "norm.fro": Composed(lambda x: x.norm("fro"), _N, has_kinks=True),
    # A fixed number of factors: the product of the other ones is written out.
    "prod": Composed(lambda x: x.prod(1), _FIXED),
    "cumprod": Composed(lambda x: x.cumprod(1), _FIXED),
    "kthvalue": Composed(lambda x: x.kthvalue(1, 1)[0], _N, has_kinks=True),
    "linalg.vander": Composed(lambda x: torch.linalg.vander(x, N=4), {"x": ("n",)}),
    "masked.prod": Composed(
        lambda x, i: torch.masked.prod(x, 1, mask=i > 0),
        {"x": ("n", 4), "i": ("n", 4)},
        integers=_I,
    ),
    "max.reduction_with_dim": Composed(lambda x: x.max(1)[0], _N, has_kinks=True),
    "median": Composed(lambda x: x.median(1)[0], _N, has_kinks=True),
    "min.reduction_with_dim": Composed(lambda x: x.min(1)[0], _N, has_kinks=True),
    "msort": Composed(lambda x: x.msort(), _N, has_kinks=True),
    "native_group_norm": Composed(
        lambda x, w, z: torch.native_group_norm(x, w, z, x.shape[0], 4, x.shape[2], 2, 1e-05)[0],
        _CHANNELS,
        ("x", "w", "z"),
    ),
    "nn.functional.glu": Composed(lambda x: functional.glu(x, 1), _FIXED),
    "nn.functional.max_pool1d": Composed(
        lambda x: functional.max_pool1d(x, 2), {"x": ("n", 4, "l")}, smallest=2, has_kinks=True
    ),
    "nn.functional.max_pool2d": Composed(
        lambda x: functional.max_pool2d(x, 2),
        {"x": ("n", 4, "h", 2)},
        smallest=2,
        has_kinks=True,
    ),
    "sort": Composed(lambda x: x.sort(1)[0], _N, has_kinks=True),
    "topk": Composed(lambda x: x.topk(2, 1)[0], _N, smallest=2, has_kinks=True),
    "softmax": Composed(lambda x: x.softmax(1), _N),
    "softmax.with_dtype": Composed(lambda x: x.softmax(1, dtype=torch.float32), _N),
    "std": Composed(lambda x: x.std(1), _N, has_kinks=True),
    "std.unbiased": Composed(lambda x: x.std(unbiased=True), _N, has_kinks=True),
    "std_mean": Composed(lambda x: torch.add(*torch.std_mean(x, 1)), _N, has_kinks=True),
    "std_mean.unbiased": Composed(
        lambda x: torch.add(*torch.std_mean(x, unbiased=True)), _N, has_kinks=True
    ),
    "var": Composed(lambda x: x.var(1), _N),
    "var.unbiased": Composed(lambda x: x.var(unbiased=True), _N),
    "var_mean": Composed(lambda x: torch.add(*torch.var_mean(x, 1)), _N),
    "var_mean.unbiased": Composed(lambda x: torch.add(*torch.var_mean(x, unbiased=True)), _N),
}
"""Rules of functions of sums, norms and maxima: the adjoint of the derivative, for all sizes."""
