"""Functions of torch between two linear layers, over a free batch: each is trained as in torch.

Each takes 8 columns; the result has the rows of the batch and a fixed number of entries in each.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

FUNCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "gradient": lambda h: torch.gradient(h, dim=1)[0],
    "gradient rows": lambda h: torch.gradient(h, dim=0)[0],
    "diff": lambda h: torch.diff(h, n=2, dim=1),
    "diff prepend": lambda h: torch.diff(h, prepend=h[:, :1], dim=1),
    "cross": lambda h: torch.linalg.cross(h[:, :3], h[:, 3:6]),
    "cross bc": lambda h: torch.cross(h[:, :3], torch.tensor([[1.0, 2, 3]]), dim=1),
    "trapezoid": lambda h: torch.trapezoid(h, dx=0.5, dim=1)[:, None],
    "cumtrapz": lambda h: torch.cumulative_trapezoid(h, dim=1),
    "trapz x": lambda h: torch.trapezoid(h, torch.arange(8.0) ** 1.2, dim=1)[:, None],
    "cov": lambda h: torch.cov(h.T)[None].expand(h.shape[0], -1, -1),
    "corrcoef": lambda h: torch.corrcoef(h.T)[None].expand(h.shape[0], -1, -1),
    "unfold method": lambda h: h.unfold(1, 3, 2),
    "chunks": lambda h: torch.stack(h.chunk(4, 1), 1),
    "tensor_split": lambda h: h.tensor_split((2, 5), 1)[1],
    "hsplit": lambda h: torch.hsplit(h, 2)[0],
    "rot90": lambda h: torch.rot90(h.view(-1, 2, 4), 1, [1, 2]),
    "movedim swapaxes": lambda h: h.view(-1, 2, 4).movedim(1, 2).swapaxes(1, 2),
    "block_diag": lambda h: torch.block_diag(h[0:1], h[1:2])[:1].expand(h.shape[0], -1),
    "polar": lambda h: torch.polar(h.abs(), h).real,
    "renorm": lambda h: torch.renorm(h, 2, 0, 1.0),
    "cdist p1": lambda h: torch.cdist(h, torch.eye(8)[:3], p=1),
    "cdist cosine": lambda h: functional.cosine_similarity(
        h[:, None], torch.eye(8)[None, :3], dim=-1
    ),
    "pdist": lambda h: functional.pdist(h.view(-1, 2, 4)[0])[None].expand(h.shape[0], -1),
    "logcumsumexp": lambda h: torch.logcumsumexp(h, 1),
    "cummax": lambda h: torch.cummax(h, 1).values,
    "nansum": lambda h: torch.nansum(h, 1, keepdim=True),
    "nanmean": lambda h: torch.nanmean(h, 1, keepdim=True),
    "aminmax": lambda h: torch.stack(torch.aminmax(h, dim=1), 1),
    "std_mean": lambda h: torch.cat(torch.std_mean(h, dim=1, keepdim=True), 1),
    "var correction": lambda h: torch.var(h, dim=(0, 1), correction=2).expand(h.shape[0], 1),
    "count_nonzero": lambda h: h * torch.count_nonzero(h > 0, dim=1)[:, None],
    "bincount": lambda h: h * torch.bincount(torch.tensor([0, 1, 1]), minlength=8),
    "isin": lambda h: torch.where(
        torch.isin(h.detach().round().long(), torch.tensor([0, 1])), h, -h
    ),
    "unique constants": lambda h: h * torch.unique(torch.tensor([1, 2, 2, 3])).sum(),
    "searchsorted": lambda h: h * torch.searchsorted(torch.linspace(-1, 1, 5), h.detach()),
    "repeat_interleave": lambda h: h.repeat_interleave(2, 1),
    "repeat_interleave t": lambda h: h.repeat_interleave(torch.tensor([1, 2, 1, 0, 1, 1, 1, 1]), 1),
    "tile": lambda h: h.tile(2),
    "cartesian": lambda h: (
        torch.cartesian_prod(torch.arange(2.0), torch.arange(4.0)).flatten()[None] * h.tile(2)
    ),
    "addbmm": lambda h: (
        torch.addbmm(h[:2, :2], h.view(-1, 2, 4), h.view(-1, 4, 2))
        .expand(2, 2)[None, 0]
        .expand(h.shape[0], -1)
    ),
    "baddbmm": lambda h: torch.baddbmm(
        h.view(-1, 2, 4), h.view(-1, 2, 4)[:, :, :2], h.view(-1, 2, 4)
    ),
    "chain_matmul": lambda h: torch.linalg.multi_dot([h, torch.ones(8, 3), torch.ones(3, 2)]),
    "norms of matrices": lambda h: torch.linalg.norm(h.view(-1, 2, 4), ord="fro", dim=(1, 2))[
        :, None
    ],
    "matrix_power": lambda h: torch.matrix_power(h[:, :4].view(-1, 2, 2), 3),
    "det2": lambda h: torch.det(h[:, :4].view(-1, 2, 2))[:, None],
    "inv": lambda h: torch.inverse(h[:, :4].view(-1, 2, 2) + 3 * torch.eye(2)),
    "solve_tri": lambda h: torch.linalg.solve_triangular(
        h[:, :4].view(-1, 2, 2).tril() + 3 * torch.eye(2), h[:, 4:].view(-1, 2, 2), upper=False
    ),
    "cholesky": lambda h: torch.linalg.cholesky(
        h.view(-1, 2, 4) @ h.view(-1, 2, 4).mT + torch.eye(2)
    ),
    "upper factors": lambda h: torch.linalg.qr(h.view(-1, 4, 2))[1],
    "lu_factor": lambda h: torch.linalg.lu_factor(h[:, :4].view(-1, 2, 2) + 3 * torch.eye(2))[0],
    "expm": lambda h: torch.matrix_exp(h[:, :4].view(-1, 2, 2)),
    "sinc": torch.sinc,
    "i0": torch.special.i0,
    "xlogy": lambda h: torch.xlogy(h, h.abs() + 0.1),
    "entr": lambda h: torch.special.entr(h.abs() + 0.1),
    "ndtri": lambda h: torch.special.ndtri(h.sigmoid()),
    "log_ndtr": torch.special.log_ndtr,
    "erfcx": torch.special.erfcx,
    "logit": lambda h: torch.logit(h.sigmoid(), eps=1e-3),
    "multigammaln": lambda h: torch.special.multigammaln(h.abs() + 2, 2),
    "trigamma": lambda h: torch.polygamma(1, h.abs() + 1),
    "ldexp frexp": lambda h: torch.ldexp(h, torch.tensor(2)),
    "float_power": lambda h: torch.float_power(h.abs() + 0.1, 1.5).float(),
    "copysign": lambda h: torch.copysign(h, torch.tensor(-1.0)),
    "heaviside": lambda h: h * torch.heaviside(h.detach(), torch.tensor(0.5)),
    "frac trunc": lambda h: torch.frac(h) + torch.trunc(h),
    "fmod t": lambda h: torch.fmod(h, h.detach().abs() + 0.5),
    "logaddexp2": lambda h: torch.logaddexp2(h, torch.zeros(8)),
    "signs": lambda h: h * torch.sgn(h),
    "clip t": lambda h: torch.clamp(h, min=torch.zeros(8), max=torch.full((8,), 0.5)),
    "dist": lambda h: h * torch.dist(h, torch.zeros(8), p=1.5),
    "einsum diag": lambda h: torch.einsum("bii->bi", h[:, :4].view(-1, 2, 2)),
    "einsum ell": lambda h: torch.einsum("...i,ij->...j", h, torch.ones(8, 3)),
    "inner": lambda h: torch.inner(h, torch.ones(3, 8)),
    "softmax f64": lambda h: h.softmax(1, dtype=torch.float64).float(),
    "tempered softmax": lambda h: functional.softmax(h / 0.5, -1),
    "normalize p1": lambda h: functional.normalize(h, p=1, dim=1),
    "local norm": lambda h: functional.local_response_norm(h[:, None], 1)[:, 0],
    "rrelu eval": lambda h: functional.rrelu(h, training=False),
    "glu": lambda h: functional.glu(h),
    "hardshrink": lambda h: functional.hardshrink(h, 0.3) + functional.softshrink(h, 0.2),
    "logsigmoid": functional.logsigmoid,
    "pixel": lambda h: functional.pixel_shuffle(h.view(-1, 8, 1, 1), 2),
    "channel_shuffle": lambda h: functional.channel_shuffle(h.view(-1, 8, 1, 1), 2),
    "affine": lambda h: functional.affine_grid(
        h[:, :6].view(-1, 2, 3), [h.shape[0], 1, 2, 2], align_corners=True
    ),
    "lp_pool": lambda h: functional.lp_pool1d(h[:, None].abs() + 0.1, 3, 2),
    "interp1d": lambda h: functional.interpolate(h[:, None], scale_factor=1.5, mode="linear"),
    "interp size": lambda h: functional.interpolate(h[:, None], size=5, mode="nearest"),
    "adaptive max1d": lambda h: functional.adaptive_max_pool1d(h[:, None], 3),
    "conv circ": lambda h: functional.conv1d(
        functional.pad(h[:, None], (1, 1), mode="circular"), torch.ones(2, 1, 3)
    ),
    "index_add neg": lambda h: h.index_add(-1, torch.tensor([0, 0]), h[:, :2], alpha=2.0),
    "scatter reduce mean": lambda h: torch.scatter_reduce(
        h,
        1,
        torch.tensor([[0, 0, 1, 1, 2, 2, 3, 3]]).expand(h.shape[0], -1),
        h,
        "mean",
        include_self=False,
    ),
    "index_reduce": lambda h: h.index_reduce(1, torch.tensor([0, 0]), h[:, :2], "prod"),
    "select_scatter": lambda h: torch.select_scatter(h, h[:, 0], 1, 3),
    "slice_scatter": lambda h: torch.slice_scatter(h, h[:, :2], 1, 4, 6),
    "diagonal_scatter": lambda h: torch.diagonal_scatter(
        h[:, :4].view(-1, 2, 2), h[:, :2], dim1=1, dim2=2
    ),
    "narrow": lambda h: h.narrow(1, 2, 3),
    "put_along": lambda h: h.scatter(1, h.detach().argmax(1, keepdim=True), 0.0),
    "argsort stable": lambda h: h.gather(
        1, h.detach().argsort(dim=1, descending=True, stable=True)
    ),
    "msort": lambda h: torch.msort(h.T).T,
    "topk sorted False": lambda h: h.topk(3, largest=False)[0],
    "nanquantile": lambda h: torch.nanquantile(h, 0.4, dim=1, keepdim=True),
    "quantile many": lambda h: torch.quantile(h, torch.tensor([0.1, 0.9]), dim=1).T,
    "istft": lambda h: torch.istft(
        torch.stft(h.repeat(1, 4), 8, 2, window=torch.hann_window(8), return_complex=True),
        8,
        2,
        window=torch.hann_window(8),
        length=32,
    ),
    "fft2": lambda h: torch.fft.fft2(h.view(-1, 2, 4)).abs(),
    "fftshift": lambda h: torch.fft.fftshift(torch.fft.fft(h), dim=1).real,
    "hfft": lambda h: torch.fft.hfft(torch.complex(h, h * 0), n=8),
    "view_as_real": lambda h: torch.view_as_real(torch.complex(h, h)),
    "angle": lambda h: torch.angle(torch.complex(h, h * 0 + 1)),
    "vmap": lambda h: torch.vmap(lambda r: (r**2).sum())(h)[:, None],
    "derivative in a direction": lambda h: torch.func.jvp(torch.sin, (h,), (torch.ones_like(h),))[
        1
    ],
    "branches of a sum": lambda h: torch.where(h.sum() > 0, h, -h),
    "autocast": lambda h: h.to(torch.float64).float(),
    "bitwise": lambda h: h * ((torch.arange(8) & 3) | 1),
    "shift": lambda h: h * (torch.arange(8) << 1),
    "bool sum": lambda h: h * (h > 0).sum(1, keepdim=True),
    "any all": lambda h: h * ((h > 0).any(1, keepdim=True) & (h > -9).all(1, keepdim=True)),
    "gradient 2": lambda h: torch.cat(torch.gradient(h, spacing=[0.5], dim=[1], edge_order=2), 1),
    "gradient all": lambda h: torch.gradient(h, spacing=2.0)[1],
    "gradient two": lambda h: sum(torch.gradient(h.view(-1, 2, 4), spacing=[0.5, 2.0], dim=[1, 2])),
    "linalg.vander": lambda h: torch.linalg.vander(torch.tanh(h), N=3),
    "searchsorted nd": lambda h: (
        h * torch.searchsorted(h.detach().sort(1)[0], h.detach() * 0.5, right=True)
    ),
    "searchsorted scalar": lambda h: h * torch.searchsorted(torch.linspace(-1, 1, 5), 0.3),
    "search side": lambda h: (
        h
        * torch.searchsorted(
            torch.tensor([0.5, -1.0, 0.2]), h.detach(), side="right", sorter=torch.tensor([1, 2, 0])
        )
    ),
    "cov weights": lambda h: torch.cov(h.T, correction=0, fweights=None)[None].expand(
        h.shape[0], -1, -1
    ),
    "cov aw": lambda h: torch.cov(h.view(-1, 2, 4)[0], aweights=torch.tensor([0.1, 0.2, 0.3, 0.4]))[
        None
    ].expand(h.shape[0], -1, -1),
    "sgn c": lambda h: torch.sgn(torch.complex(h, h + 1)).imag,
}
"""By name."""
