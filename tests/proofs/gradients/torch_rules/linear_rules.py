"""The linear rules, by the names of torch's own table of operators."""

from collections.abc import Mapping

import torch
from torch.nn import functional

from tests.proofs.gradients.torch_rules.linear import Linear
from tests.proofs.gradients.torch_rules.pullbacks import Sizes

_N: Sizes = {"x": ("n", "m")}
_FIXED: Sizes = {"x": ("n", 4)}
_PAIR: Sizes = {"x": ("n", "m"), "z": ("n", "m")}
_CHOICE: Sizes = {"x": ("n", "m"), "i": ("n", "m")}
# i has the rank of x, and another size only along the axis of the indices.
_PICKS: Sizes = {"x": ("n", "m"), "i": ("n", "k")}
_MATRICES: Sizes = {"x": ("n", "k"), "w": ("k", "m")}
_BATCHES: Sizes = {"x": ("b", "n", "k"), "w": ("b", "k", "m")}
_XW, _XZ, _I = ("x", "w"), ("x", "z"), ("i",)

_VECTORS: Sizes = {"x": ("n",), "z": ("n",)}

LINEAR: Mapping[str, Linear] = {
    "H": Linear(lambda x: x.H, _N),
    "T": Linear(lambda x: x.T, _N),
    "__rmatmul__": Linear(lambda x, w: w.__rmatmul__(x), {"x": ("n", "k"), "w": ("k", "m")}, _XW),
    "_unsafe_masked_index": Linear(
        lambda x, i: torch.ops.aten._unsafe_masked_index(x, i > 0, [i], 0.0),
        {"x": ("n",), "i": ("k",)},
        integers=_I,
    ),
    "__getitem__": Linear(lambda x, i: x[i], {"x": ("n", "m"), "i": ("k",)}, integers=_I),
    "complex": Linear(lambda x, z: torch.view_as_real(torch.complex(x, z)), _PAIR, _XZ),
    "fft.fft": Linear(lambda x: torch.view_as_real(torch.fft.fft(x)), _FIXED),
    "index_put": Linear(
        lambda x, z, i: x.index_put((i,), z, accumulate=True),
        {"x": ("n", "m"), "z": ("k", "m"), "i": ("k",)},
        _XZ,
        integers=_I,
    ),
    "nn.functional.adaptive_avg_pool1d": Linear(
        lambda x: functional.adaptive_avg_pool1d(x, 1), {"x": ("n", 3, "l")}
    ),
    "nn.functional.adaptive_avg_pool2d": Linear(
        lambda x: functional.adaptive_avg_pool2d(x, 1), {"x": ("n", 3, "h", "w")}
    ),
    "nn.functional.adaptive_avg_pool3d": Linear(
        lambda x: functional.adaptive_avg_pool3d(x, 1), {"x": ("n", 3, "h", "w", "l")}
    ),
    "nn.functional.interpolate.linear": Linear(
        lambda x: functional.interpolate(x, scale_factor=2, mode="linear"), {"x": ("n", 3, 4)}
    ),
    "nn.functional.unfold": Linear(lambda x: functional.unfold(x, 2), {"x": ("n", 3, 4, 4)}),
    "view_as_complex": Linear(
        lambda x: torch.view_as_real(torch.view_as_complex(x) * 1), {"x": ("n", 2)}
    ),
    "addbmm": Linear(
        lambda x, v, w: torch.addbmm(x, v, w),
        {"x": ("n", "m"), "v": (2, "n", "k"), "w": (2, "k", "m")},
        ("x", "v", "w"),
    ),
    "addmm": Linear(torch.addmm, {"z": ("n", "m"), **_MATRICES}, ("z", "x", "w")),
    "addmm.decomposed": Linear(
        torch.addmm, {"z": ("n", "m"), "x": ("n", "k"), "w": ("k", "m")}, ("z", "x", "w")
    ),
    "addmv": Linear(torch.addmv, {"z": ("n",), "x": ("n", "m"), "w": ("m",)}, ("z", "x", "w")),
    "addr": Linear(torch.addr, {"z": ("n", "m"), "x": ("n",), "w": ("m",)}, ("z", "x", "w")),
    "alias_copy": Linear(torch.alias_copy, _N),
    "atleast_1d": Linear(torch.atleast_1d, _N),
    "atleast_2d": Linear(torch.atleast_2d, {"x": ("n",)}),
    "atleast_3d": Linear(torch.atleast_3d, _N),
    "baddbmm": Linear(torch.baddbmm, {"z": ("b", "n", "m"), **_BATCHES}, ("z", "x", "w")),
    "block_diag": Linear(
        lambda x, z: torch.block_diag(x, z), {"x": ("n", "m"), "z": ("k", "l")}, _XZ
    ),
    "bmm": Linear(torch.bmm, _BATCHES, _XW),
    "broadcast_tensors": Linear(
        lambda x, z: torch.broadcast_tensors(x, z)[0] + torch.broadcast_tensors(x, z)[1],
        {"x": ("n", "m"), "z": ("m",)},
        _XZ,
    ),
    "broadcast_to": Linear(
        lambda x, z: x.broadcast_to(z.shape[0], x.shape[0]), {"x": ("n",), "z": ("m",)}
    ),
    "cat": Linear(lambda x, z: torch.cat([x, z], 1), {"x": ("n", "m"), "z": ("n", "k")}, _XZ),
    "chunk": Linear(lambda x: x.chunk(2, 1)[1], _FIXED),
    "clone": Linear(torch.clone, _N),
    "column_stack": Linear(lambda x, z: torch.column_stack([x, z]), _VECTORS, _XZ),
    # A fixed size: the number of results, n·(n - 1)/2, is not a free size.
    "combinations": Linear(lambda x: torch.combinations(x), {"x": (4,)}),
    "conj": Linear(torch.conj, _N),
    "conj_physical": Linear(torch.conj_physical, _N),
    "constant_pad_nd": Linear(lambda x: torch.constant_pad_nd(x, (1, 2)), _N),
    "contiguous": Linear(lambda x: x.t().contiguous(), _N),
    "cross": Linear(lambda x, z: torch.cross(x, z, 1), {"x": ("n", 3), "z": ("n", 3)}, _XZ),
    "cumsum": Linear(lambda x: x.cumsum(1), _N),
    "cumulative_trapezoid": Linear(lambda x: torch.cumulative_trapezoid(x, dim=1), _N, smallest=2),
    "diag": Linear(torch.diag, {"x": (4, 4)}),
    "diag_embed": Linear(torch.diag_embed, {"x": ("n", 3)}),
    "diagflat": Linear(torch.diagflat, {"x": (3,)}),
    "diagonal": Linear(torch.diagonal, {"x": (4, 4)}),
    "diagonal_copy": Linear(torch.diagonal_copy, {"x": (4, 4)}),
    "diagonal_scatter": Linear(
        lambda x, z: torch.diagonal_scatter(x, z), {"x": (4, 4), "z": (4,)}, _XZ
    ),
    # smallest: with one element the result is empty.
    "diff": Linear(lambda x: x.diff(dim=1), _N, smallest=2),
    "dot": Linear(torch.dot, {"x": ("n",), "w": ("n",)}, _XW),
    "double": Linear(lambda x: x.double(), _N),
    "dsplit": Linear(lambda x: x.dsplit(2)[1], {"x": ("n", "m", 4)}),
    "dstack": Linear(lambda x, z: torch.dstack([x, z]), _PAIR, _XZ),
    "einsum": Linear(
        lambda x, w: torch.einsum("bij,bkj->bik", x, w),
        {"x": ("b", "n", "k"), "w": ("b", "m", "k")},
        _XW,
    ),
    "expand": Linear(
        lambda x, z: x.unsqueeze(0).expand(z.shape[0], -1), {"x": ("n",), "z": ("m",)}
    ),
    "expand_as": Linear(lambda x, z: x.expand_as(z), {"x": ("m",), "z": ("n", "m")}),
    "expand_copy": Linear(
        lambda x, z: torch.expand_copy(x, z.shape), {"x": ("m",), "z": ("n", "m")}
    ),
    "fft.fftshift": Linear(lambda x: torch.fft.fftshift(x, 1), _N),
    "fft.ifftshift": Linear(lambda x: torch.fft.ifftshift(x, 1), _N),
    "flatten": Linear(torch.flatten, _N),
    "flip": Linear(lambda x: x.flip(1), _N),
    "fliplr": Linear(torch.fliplr, _N),
    "flipud": Linear(torch.flipud, _N),
    "float": Linear(lambda x: x.float(), _N),
    "gather": Linear(lambda x, i: x.gather(1, i), _PICKS, integers=_I),
    # Two one-sided differences at the ends and a central one between need three.
    "gradient": Linear(lambda x: torch.gradient(x, dim=1)[0], _N, smallest=3),
    "hsplit": Linear(lambda x: x.hsplit(2)[1], _FIXED),
    "hstack": Linear(lambda x, z: torch.hstack([x, z]), {"x": ("n", "m"), "z": ("n", "k")}, _XZ),
    "index_add": Linear(
        lambda x, z, i: x.index_add(0, i, z),
        {"x": ("n", "m"), "z": ("k", "m"), "i": ("k",)},
        _XZ,
        integers=_I,
    ),
    # Distinct indices: which of two equal ones is kept is not defined in torch.
    "index_copy": Linear(
        lambda x, z: x.index_copy(0, torch.tensor([0, 2]), z), {"x": (4, "m"), "z": (2, "m")}, _XZ
    ),
    "index_select": Linear(
        lambda x, i: x.index_select(0, i), {"x": ("n", "m"), "i": ("k",)}, integers=_I
    ),
    "inner": Linear(torch.inner, {"x": ("n", "k"), "w": ("m", "k")}, _XW),
    "kron": Linear(torch.kron, {"x": ("n", "m"), "z": (2, 3)}, _XZ),
    "linalg.cross": Linear(
        lambda x, z: torch.linalg.cross(x, z), {"x": ("n", 3), "z": ("n", 3)}, _XZ
    ),
    "linalg.diagonal": Linear(torch.linalg.diagonal, {"x": (4, 4)}),
    "linalg.multi_dot": Linear(
        lambda x, w, v: torch.linalg.multi_dot([x, w, v]),
        {"x": ("n", 2), "w": (2, 3), "v": (3, "m")},
        ("x", "w", "v"),
    ),
    "linalg.vecdot": Linear(torch.linalg.vecdot, {"x": ("n", "m"), "w": ("n", "m")}, _XW),
    "lu_unpack": Linear(
        lambda x: torch.lu_unpack(x, torch.tensor([1, 2, 3], dtype=torch.int32))[1], {"x": (3, 3)}
    ),
    "mH": Linear(lambda x: x.mH, _N),
    "mT": Linear(lambda x: x.mT, _N),
    "masked.cumsum": Linear(
        lambda x, i: torch.masked.cumsum(x, 1, mask=i > 0),
        _CHOICE,
        integers=_I,
    ),
    "masked.mean": Linear(
        lambda x, i: torch.masked.mean(x, 1, mask=i > 0),
        _CHOICE,
        integers=_I,
    ),
    "masked.sum": Linear(
        lambda x, i: torch.masked.sum(x, 1, mask=i > 0),
        _CHOICE,
        integers=_I,
    ),
    "masked_fill": Linear(lambda x, i: x.masked_fill(i > 0, 2.0), _CHOICE, integers=_I),
    "matmul": Linear(torch.matmul, _MATRICES, _XW),
    "mean": Linear(lambda x: x.mean(1), _N),
    "meshgrid.list_of_tensors": Linear(
        lambda x, z: torch.meshgrid([x, z], indexing="ij")[0], {"x": ("n",), "z": ("m",)}
    ),
    "meshgrid.variadic_tensors": Linear(
        lambda x, z: torch.meshgrid(x, z, indexing="ij")[0], {"x": ("n",), "z": ("m",)}
    ),
    "mm": Linear(torch.mm, _MATRICES, _XW),
    "movedim": Linear(lambda x: x.movedim(0, 2), {"x": ("n", "m", "k")}),
    "mv": Linear(torch.mv, {"x": ("n", "m"), "w": ("m",)}, _XW),
    # Linear for a fixed set of NaNs.
    "nansum": Linear(lambda x: x.nansum(1), _N),
    "narrow": Linear(lambda x: x.narrow(1, 1, 2), _FIXED),
    "narrow_copy": Linear(lambda x: torch.narrow_copy(x, 1, 1, 2), _FIXED),
    "native_dropout_backward": Linear(
        lambda x, i: torch.ops.aten.native_dropout_backward(x, i > 0, 2.0), _CHOICE, integers=_I
    ),
    "nn.functional.avg_pool1d": Linear(lambda x: functional.avg_pool1d(x, 2), {"x": ("n", 3, 8)}),
    "nn.functional.avg_pool2d": Linear(
        lambda x: functional.avg_pool2d(x, 2), {"x": ("b", 2, 6, 6)}
    ),
    # Linear in each operand by itself: the rule holds with the other ones fixed.
    "nn.functional.bilinear": Linear(
        functional.bilinear, {"x": ("n", 2), "z": ("n", 3), "w": (4, 2, 3)}, ("x", "z", "w")
    ),
    "nn.functional.channel_shuffle": Linear(
        lambda x: functional.channel_shuffle(x, 2), {"x": ("b", 4, "l")}
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
    "nn.functional.conv3d": Linear(
        lambda x, w: functional.conv3d(x, w),
        {"x": ("b", 2, "d", "h", "l"), "w": (2, 2, 2, 2, 2)},
        _XW,
        smallest=3,
    ),
    "nn.functional.conv_transpose1d": Linear(
        functional.conv_transpose1d, {"x": ("b", 2, "l"), "w": (2, 3, 3)}, _XW
    ),
    "nn.functional.conv_transpose2d": Linear(
        lambda x, w: functional.conv_transpose2d(x, w),
        {"x": ("b", 2, "h", "l"), "w": (2, 3, 3, 3)},
        _XW,
        smallest=3,
    ),
    "nn.functional.conv_transpose3d": Linear(
        lambda x, w: functional.conv_transpose3d(x, w),
        {"x": ("b", 2, "d", "h", "l"), "w": (2, 2, 2, 2, 2)},
        _XW,
        smallest=3,
    ),
    "nn.functional.embedding": Linear(
        lambda w, i: functional.embedding(i, w), {"w": ("v", "d"), "i": ("n",)}, ("w",), integers=_I
    ),
    "nn.functional.linear": Linear(
        functional.linear, {"x": ("n", "k"), "w": ("m", "k"), "z": ("m",)}, ("x", "w", "z")
    ),
    "nn.functional.nll_loss": Linear(
        lambda x, i: functional.nll_loss(x, i, reduction="sum"),
        {"x": ("n", "c"), "i": ("n",)},
        integers=_I,
    ),
    "nn.functional.pad.circular": Linear(
        lambda x: functional.pad(x, (1, 2), mode="circular"), {"x": ("n", 2, "l")}, smallest=3
    ),
    "nn.functional.pad.constant": Linear(lambda x: functional.pad(x, (1, 2)), _N),
    "nn.functional.pad.reflect": Linear(
        lambda x: functional.pad(x, (1, 2), mode="reflect"), {"x": ("n", 2, 6)}
    ),
    "nn.functional.pad.replicate": Linear(
        lambda x: functional.pad(x, (1, 2), mode="replicate"), {"x": ("n", 2, 6)}
    ),
    "nn.functional.pad.replicate_negative": Linear(
        lambda x: functional.pad(x, (-1, 2), mode="replicate"), {"x": ("n", 2, 6)}
    ),
    "nn.functional.pixel_shuffle": Linear(
        lambda x: functional.pixel_shuffle(x, 2), {"x": ("b", 4, 3, 3)}
    ),
    "nn.functional.pixel_unshuffle": Linear(
        lambda x: functional.pixel_unshuffle(x, 2), {"x": ("b", 2, 4, 4)}
    ),
    "outer": Linear(torch.outer, {"x": ("n",), "w": ("m",)}, _XW),
    "permute": Linear(lambda x: x.permute(2, 0, 1), {"x": ("n", "m", "k")}),
    "permute_copy": Linear(lambda x: torch.permute_copy(x, (1, 0)), _N),
    # accumulate=True, as repeated indices overwrite each other otherwise.
    "put": Linear(
        lambda x, z, i: x.put(i, z, accumulate=True),
        {"x": ("n",), "z": ("k",), "i": ("k",)},
        _XZ,
        integers=_I,
    ),
    "ravel": Linear(torch.ravel, _N),
    "real": Linear(torch.real, _N),
    "repeat": Linear(lambda x: x.repeat(2, 1), _N),
    "repeat_interleave": Linear(lambda x: x.repeat_interleave(2, 1), {"x": ("n", 3)}),
    "reshape": Linear(lambda x: x.reshape(-1), _N),
    "reshape_as": Linear(lambda x, z: x.reshape_as(z), {"x": ("n", 4), "z": ("n", 2, 2)}),
    "resolve_conj": Linear(torch.resolve_conj, _N),
    "resolve_neg": Linear(torch.resolve_neg, _N),
    "roll": Linear(lambda x: x.roll(1, 1), _N),
    "rot90": Linear(torch.rot90, _N),
    "scatter": Linear(
        lambda x, z, i: x.scatter(1, i, z),
        {"x": ("n", "m"), "z": ("n", 1), "i": ("n", 1)},
        _XZ,
        integers=_I,
    ),
    "scatter_add": Linear(
        lambda x, z, i: x.scatter_add(1, i, z),
        {"x": ("n", "m"), "z": ("n", "k"), "i": ("n", "k")},
        _XZ,
        integers=_I,
    ),
    "scatter_reduce.sum": Linear(
        lambda x, z, i: x.scatter_reduce(1, i, z, "sum"),
        {"x": ("n", "m"), "z": ("n", "k"), "i": ("n", "k")},
        _XZ,
        integers=_I,
    ),
    "select": Linear(lambda x: x[:, 0], _N),
    "select_scatter": Linear(
        lambda x, z: torch.select_scatter(x, z, 1, 0), {"x": ("n", "m"), "z": ("n",)}, _XZ
    ),
    "slice": Linear(lambda x: x[1:], _N),
    "slice_scatter": Linear(
        lambda x, z: torch.slice_scatter(x, z, 1, 1, 3), {"x": ("n", 4), "z": ("n", 2)}, _XZ
    ),
    "split": Linear(lambda x: x.split(2, 1)[0], _FIXED),
    "split.list_args": Linear(lambda x: x.split([1, 3], 1)[1], _FIXED),
    "split_with_sizes": Linear(lambda x: torch.split_with_sizes(x, [1, 3], 1)[1], _FIXED),
    "split_with_sizes_copy": Linear(
        lambda x: torch.ops.aten.split_with_sizes_copy(x, [1, 3], 1)[1], _FIXED
    ),
    "squeeze": Linear(lambda x: x.squeeze(1), {"x": ("n", 1)}),
    "squeeze.multiple": Linear(lambda x: x.squeeze((1, 2)), {"x": ("n", 1, 1)}),
    "squeeze_copy": Linear(lambda x: torch.squeeze_copy(x, 1), {"x": ("n", 1)}),
    "stack": Linear(lambda x, z: torch.stack([x, z], 1), _PAIR, _XZ),
    "sum": Linear(lambda x: x.sum(1), _N),
    "sum_to_size": Linear(lambda x: x.sum_to_size(1, x.shape[1]), _N),
    "t": Linear(lambda x: x.t(), _N),
    "t_copy": Linear(lambda x: torch.t_copy(x), _N),
    "take": Linear(lambda x, i: x.take(i), {"x": ("n", "m"), "i": ("k",)}, integers=_I),
    "take_along_dim": Linear(
        lambda x, i: x.take_along_dim(i, 1), {"x": ("n", "m"), "i": ("n", "k")}, integers=_I
    ),
    "tensordot": Linear(
        lambda x, w: torch.tensordot(x, w, 1), {"x": ("n", "k"), "w": ("k", "m")}, _XW
    ),
    "tile": Linear(lambda x: x.tile(2, 1), _N),
    # The gradient is converted back to the dtype of x.
    "to": Linear(lambda x: x.to(torch.float32), _N),
    "trace": Linear(torch.trace, {"x": (4, 4)}),
    "transpose": Linear(lambda x: x.transpose(0, 1), _N),
    "transpose_copy": Linear(lambda x: torch.transpose_copy(x, 0, 1), _N),
    "trapezoid": Linear(lambda x: torch.trapezoid(x, dim=1), _N, smallest=2),
    "trapz": Linear(lambda x: torch.trapz(x, dim=1), _N, smallest=2),
    "tril": Linear(torch.tril, _N),
    "triu": Linear(lambda x: x.triu(1), _N),
    "unbind": Linear(lambda x: x.unbind(1)[1], _FIXED),
    "unbind_copy": Linear(lambda x: torch.ops.aten.unbind_copy(x, 1)[1], _FIXED),
    "unflatten": Linear(lambda x: x.unflatten(1, (2, 3)), {"x": ("n", 6)}),
    "unfold": Linear(lambda x: x.unfold(1, 2, 1), {"x": ("n", 5)}),
    "unfold_copy": Linear(lambda x: torch.unfold_copy(x, 1, 2, 1), {"x": ("n", 5)}),
    "unsafe_chunk": Linear(lambda x: torch.unsafe_chunk(x, 2, 1)[1], _FIXED),
    "unsafe_split": Linear(lambda x: torch.unsafe_split(x, 2, 1)[1], _FIXED),
    "unsqueeze": Linear(lambda x: x.unsqueeze(1), _N),
    "unsqueeze_copy": Linear(lambda x: torch.unsqueeze_copy(x, 1), _N),
    "vdot": Linear(torch.vdot, {"x": ("n",), "w": ("n",)}, _XW),
    "view": Linear(lambda x: x.view(-1), _N),
    "view_as": Linear(lambda x, z: x.view_as(z), {"x": ("n", 4), "z": ("n", 2, 2)}),
    "view_copy": Linear(lambda x: torch.view_copy(x, (-1, 2, 2)), _FIXED),
    "vsplit": Linear(lambda x: x.vsplit(2)[1], {"x": (4, "n")}),
    "vstack": Linear(lambda x, z: torch.vstack([x, z]), {"x": ("n", "m"), "z": ("k", "m")}, _XZ),
    "where": Linear(
        lambda x, z, i: torch.where(i > 0, x, z), {**_PAIR, "i": ("n", "m")}, _XZ, integers=_I
    ),
}
"""Rules of linear operators: the adjoint, for all sizes of the ranks that are named here."""
