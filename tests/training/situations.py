"""Situations that people have: losses over a part, distributions, linear algebra, alignments."""

from collections.abc import Callable
from typing import Any

import torch
from torch import distributions, nn
from torch.nn import functional

from tests.training.zoo import Entry, Of, after, mlp, shaped, vectors

Batch = Callable[[int], Any]


def _speech() -> nn.Module:
    return Of(lambda m, x: m.layer(x).log_softmax(-1).transpose(0, 1), layer=nn.Linear(5, 6))


def _utterances(rows: int) -> Any:
    return (
        torch.randn(rows, 9, 5),
        torch.randint(1, 6, (rows, 4)),
        torch.randint(6, 10, (rows,)),
        torch.randint(1, 5, (rows,)),
    )


def _aligned(reduction: str) -> Callable[..., Any]:
    def loss(output: Any, target: Any, frames: Any, labels: Any) -> Any:
        return functional.ctc_loss(output, target, frames, labels, reduction=reduction).mean()

    return loss


def _whole(output: torch.Tensor, target: torch.Tensor) -> Any:
    rows = target.shape[0]
    return functional.ctc_loss(
        output, target, torch.full((rows,), 9), torch.full((rows,), 4), blank=5
    )


def _masked(rows: int) -> Any:
    return torch.randn(rows, 6), torch.randn(rows, 3), torch.rand(rows, 3) > 0.4


def _weighted(function: Callable[[torch.Tensor, torch.Tensor], Any]) -> Callable[[], nn.Module]:
    """A product with a matrix that is computed from a square weight."""
    return lambda: Of(lambda m, x: function(m.layer.weight, x), layer=nn.Linear(6, 6))


def _between(function: Callable[[torch.Tensor], Any]) -> Callable[[], nn.Module]:
    return lambda: Of(
        lambda m, x: m.last(function(m.first(x))), first=nn.Linear(6, 8), last=nn.Linear(8, 3)
    )


def _in_double(batch: Batch) -> Batch:
    return lambda rows: tuple(value.double() for value in batch(rows))


def _positive(weight: torch.Tensor) -> torch.Tensor:
    return weight @ weight.T + torch.eye(6)


class Scaled(nn.Module):
    """Numbers that float32 does not have."""

    def forward(self, x: torch.Tensor) -> Any:
        return torch.where(x > 0.1, x * 0.3, 0.7) + torch.erf(x)


class Masked(nn.Module):
    """A language model whose head runs at the masked places alone."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.head = nn.Embedding(9, 4), nn.Linear(4, 9)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> Any:
        is_masked = labels != -100
        return functional.cross_entropy(self.head(self.rows(x)[is_masked]), labels[is_masked])


def _masked_tokens(rows: int) -> Any:
    labels = torch.where(torch.rand(rows, 5) > 0.5, torch.randint(0, 9, (rows, 5)), -100)
    labels[0, 0] = 3
    return {"x": torch.randint(0, 9, (rows, 5)), "labels": labels}


class Writes(nn.Module):
    """Writes numbers and rows into a part of a tensor, as the shift of tokens of a decoder."""

    def forward(self, x: torch.Tensor) -> Any:
        shifted = torch.zeros_like(x)
        shifted[:, 1:] = self.layer(x)[:, :-1]
        shifted[:, 0] = torch.tensor(2.0)
        shifted[1:, 2:4] = self.layer.bias[:2]
        return shifted[:, :3]

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)


class Mean(nn.Module):
    """The mean of an image, by channel."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return image.mean((2, 3))


class Packed(nn.Module):
    """A recurrent layer over sequences of several lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.LSTM(4, 6, batch_first=True), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> Any:
        packed = nn.utils.rnn.pack_padded_sequence(
            x, lengths, batch_first=True, enforce_sorted=False
        )
        return self.head(self.layer(packed)[1][0][-1])


def _contrast(output: torch.Tensor, target: torch.Tensor) -> Any:
    """A contrastive loss, whose labels are the rows."""
    return functional.cross_entropy(output @ target.T, torch.arange(len(output)))


class Experts(nn.Module):
    """A mixture of experts whose rows are sorted by expert."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 8, 8) * 0.3)
        self.router = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> Any:
        shares = self.router(x).softmax(-1)
        expert = shares.argmax(-1)
        order = expert.argsort(stable=True)
        ends = functional.one_hot(expert, 3).sum(0).cumsum(0).int()
        result = functional.grouped_mm(x[order], self.weight, offs=ends)
        result = torch.zeros_like(result).index_copy(0, order, result)
        return result * shares.gather(1, expert[:, None])


def _policy(rows: int) -> Any:
    return torch.randn(rows, 6), torch.randint(0, 4, (rows,)), torch.randn(rows)


def _clipped(output: torch.Tensor, action: torch.Tensor, advantage: torch.Tensor) -> Any:
    policy = distributions.Categorical(logits=output)
    ratio = (policy.log_prob(action) - policy.log_prob(action).detach()).exp()
    gain = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
    return -gain.mean() - 0.01 * policy.entropy().mean()


def _tanh_policy(output: torch.Tensor, target: torch.Tensor) -> Any:
    base = distributions.Normal(output[:, :3], output[:, 3:].clamp(-2, 2).exp())
    policy = distributions.TransformedDistribution(
        base, [distributions.TanhTransform(cache_size=1)]
    )
    action = policy.rsample()
    return 0.1 * policy.log_prob(action).mean() + functional.mse_loss(action, target)


def _beta(output: torch.Tensor, action: torch.Tensor) -> Any:
    first, second = (functional.softplus(value) + 1 for value in output.unbind(1))
    policy = distributions.Beta(first, second)
    return -policy.log_prob(action).mean() - 0.01 * policy.entropy().mean()


def _mixture(output: torch.Tensor, target: torch.Tensor) -> Any:
    parts = distributions.Normal(output[:, 3:6], functional.softplus(output[:, 6:]) + 0.1)
    weights = distributions.Categorical(logits=output[:, :3])
    return -distributions.MixtureSameFamily(weights, parts).log_prob(target[:, 0]).mean()


def _divergence(output: torch.Tensor, target: torch.Tensor) -> Any:
    code = distributions.Normal(output[:, :3], (output[:, 3:] / 2).exp())
    prior = distributions.Normal(torch.zeros(3), torch.ones(3))
    kl = distributions.kl_divergence(code, prior).mean()
    return kl + functional.mse_loss(code.rsample(), target)


def _likelihood(family: Callable[[torch.Tensor], Any], target: Batch) -> tuple[Batch, Any]:
    """A batch and the negative log likelihood of a family of distributions."""
    return (
        lambda rows: (torch.randn(rows, 6), target(rows)),
        lambda output, value: -family(output).log_prob(value).mean(),
    )


def _gradient_in_forward(model: Any, x: torch.Tensor) -> Any:
    x = x.detach().requires_grad_(True)
    value = model.second(torch.tanh(model.first(x)))
    return torch.autograd.grad(value.sum(), x, create_graph=True)[0][:, :3]


def _spectrum(value: torch.Tensor) -> Any:
    window = torch.hann_window(8)
    return torch.stft(value, 8, 4, window=window, return_complex=True)


def _spectral(output: torch.Tensor, target: torch.Tensor) -> Any:
    first, second = _spectrum(output).abs(), _spectrum(target).abs()
    apart = torch.linalg.norm(second - first) / torch.linalg.norm(second)
    return apart + functional.l1_loss((first + 1e-2).log(), (second + 1e-2).log())


class Filter(nn.Module):
    """A learned filter of the spectrum of images."""

    def __init__(self) -> None:
        super().__init__()
        self.filter = nn.Parameter(torch.randn(4, 8, 5, 2) * 0.1)
        self.first, self.last = nn.Linear(2, 4), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> Any:
        spectrum = torch.fft.rfft2(self.first(x), dim=(1, 2), norm="ortho")
        spectrum = spectrum * torch.view_as_complex(self.filter).permute(1, 2, 0)
        image = torch.fft.irfft2(spectrum, s=(8, 8), dim=(1, 2), norm="ortho")
        return self.last(image.mean((1, 2)))


class Rotary(nn.Module):
    """Rotary embeddings with a complex buffer, as those of the first LLaMA."""

    turns: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        angles = torch.outer(torch.arange(5.0), 10 ** -torch.arange(0.0, 1.0, 0.25))
        self.register_buffer("turns", torch.polar(torch.ones(5, 4), angles), persistent=False)

    def forward(self, x: torch.Tensor) -> Any:
        pairs = torch.view_as_complex(self.layer(x).reshape(x.shape[0], 5, 4, 2))
        return torch.view_as_real(pairs * self.turns).flatten(2)


class ComplexWeight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3, dtype=torch.complex64))
        self.layer = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> Any:
        return (torch.fft.rfft(self.layer(x)) @ self.weight).real


_TARGET: Batch = lambda rows: torch.randn(rows, 3)  # noqa: E731
_COVARIANCE = torch.eye(3) + 0.3

SITUATIONS: dict[str, Entry] = {
    "ctc, lengths of the batch": Entry(_speech, _utterances, _aligned("mean")),
    "ctc, a loss for each row": Entry(_speech, _utterances, _aligned("none")),
    "ctc, sum": Entry(_speech, _utterances, _aligned("sum")),
    "ctc, module": Entry(_speech, _utterances, nn.CTCLoss(zero_infinity=True)),
    "ctc, whole targets": Entry(
        _speech, lambda rows: (torch.randn(rows, 9, 5), torch.randint(0, 5, (rows, 4))), _whole
    ),
    "masked mean": Entry(mlp(nn.ReLU()), _masked, lambda o, t, m: ((o - t) ** 2)[m].mean()),
    "masked loss": Entry(mlp(nn.ReLU()), _masked, lambda o, t, m: functional.mse_loss(o[m], t[m])),
    "masked select": Entry(
        mlp(nn.ReLU()), _masked, lambda o, t, m: torch.masked_select((o - t).abs(), m).mean()
    ),
    "masks by values": Entry(
        mlp(nn.ReLU()),
        vectors(),
        lambda o, t: (
            functional.mse_loss(o[t > 0], t[t > 0]) + functional.l1_loss(o[t <= 0], t[t <= 0])
        ),
    ),
    "labelled rows": Entry(
        mlp(nn.ReLU()),
        lambda rows: (torch.randn(rows, 6), torch.arange(rows) % 4 - 1),
        lambda o, t: functional.cross_entropy(o[t >= 0], t[t >= 0]),
    ),
    **{
        f"lists of labels, {reduction}": Entry(
            mlp(nn.ReLU()),
            # Labels behind the first −1 do not count.
            lambda rows: (
                torch.randn(rows, 6),
                torch.tensor([[2, -1, 0], [1, 0, -1]] * rows)[:rows],
            ),
            lambda o, t, r=reduction: functional.multilabel_margin_loss(o, t, reduction=r).sum(),
        )
        for reduction in ("none", "mean", "sum")
    },
    **{
        f"a free batch, {name}": Entry(after(function), vectors())
        for name, function in {
            "entries along an axis": lambda h: torch.take_along_dim(h, h.argsort(1)[:1], -1),
            "a written diagonal": lambda h: (h @ h.T).fill_diagonal_(-9.0).logsumexp(1, True),
            "scaled noise": lambda h: h + torch.randn_like(h).mul_(0.1) + torch.rand(8).add_(1),
            "signs": lambda h: h * torch.sgn(h),
            "directions": lambda h: torch.sgn(torch.complex(h, h + 1)).imag,
            "product of matrices": lambda h: torch.linalg.multi_dot(
                [h, torch.ones(8, 3) / 8, torch.ones(3, 2) / 3]
            ),
            "powers": lambda h: torch.linalg.vander(torch.tanh(h), N=3),
            "slopes": lambda h: torch.gradient(h, dim=1)[0],
            "slopes of rows": lambda h: torch.gradient(h, dim=0)[0],
            "slopes of two axes": lambda h: sum(
                torch.gradient(h.view(-1, 2, 4), spacing=[0.5, 2.0], dim=[1, 2])
            ),
            "slopes, order 2": lambda h: torch.gradient(h, spacing=0.5, dim=1, edge_order=2)[0],
            "covariances of columns": lambda h: torch.cov(h.T).expand(h.shape[0], -1, -1),
            "correlations of columns": lambda h: torch.corrcoef(h.T).expand(h.shape[0], -1, -1),
            "places in order": lambda h: h * torch.searchsorted(torch.linspace(-1, 1, 5), h),
            "places in sorted rows": lambda h: (
                h * torch.searchsorted(h.detach().sort(1)[0], h / 2, right=True)
            ),
        }.items()
    },
    **{
        f"free height and width, {name}": Entry(
            lambda layers=layers: nn.Sequential(*layers(), Mean()),  # type: ignore[misc]
            lambda rows: (torch.randn(rows, 2, 5 + rows % 8, 11 - rows % 8), torch.randn(rows, 2)),
            options={
                "dynamic_axes": {
                    "input": {0: "batch", 2: "height", 3: "width"},
                    "target": {0: "batch"},
                }
            },
        )
        for name, layers in {
            "reflected border": lambda: [nn.Conv2d(2, 2, 3, padding=1, padding_mode="reflect")],
            "repeated border": lambda: [nn.Conv2d(2, 2, 3, padding=1, padding_mode="replicate")],
            "strides": lambda: [nn.Conv2d(2, 3, 2, stride=3), nn.Conv2d(3, 2, 1)],
            "transposed strides": lambda: [
                nn.Conv2d(2, 3, 3, 2, 1),
                nn.ConvTranspose2d(3, 2, 2, 2),
                nn.GELU(),
                nn.ConvTranspose2d(2, 2, 3, 3),
            ],
        }.items()
    },
    "a written diagonal of a cube": Entry(
        after(lambda h: h + (h.mean(0).view(2, 2, 2) * 1).fill_diagonal_(0.5).flatten()), vectors()
    ),
    "a written diagonal that begins again": Entry(
        after(
            lambda h: (
                h * 0.1
                + (h.mean(0).view(8, 1) * torch.ones(2)).fill_diagonal_(0.5, wrap=True)[:, 0]
            )
        ),
        vectors(),
    ),
    "both results of a condition": Entry(
        after(lambda h: torch.cond(h.sum() > 0, torch.sin, torch.cos, (h,))),
        vectors(),
        refused=r"torch.cond has no form without control flow, .*torch\.where",
    ),
    "places of a mask": Entry(
        mlp(nn.ReLU()),
        _masked,
        lambda o, t, m: ((o - t) ** 2)[m.nonzero(as_tuple=True)].sum() / m.sum(),
    ),
    "masked language model": Entry(Masked, _masked_tokens, None),
    "hard examples": Entry(
        mlp(nn.ReLU()), vectors(), lambda o, t: ((o - t) ** 2).mean(1).topk(2)[0].mean()
    ),
    "branch on a mask": Entry(
        mlp(nn.ReLU()),
        _masked,
        lambda o, t, m: functional.mse_loss(o[m], t[m]) if m.any() else o.sum() * 0,
        refused="control flow that depends on data",
    ),
    "spectral loss": Entry(lambda: nn.Linear(32, 32), vectors(32, 32), _spectral),
    "magnitudes of a spectrum": Entry(after(lambda h: torch.fft.rfft(h).abs()), vectors()),
    "phases of a spectrum": Entry(
        after(lambda h: torch.fft.fft(h, norm="ortho").angle()[:, :3] * h[:, :3]), vectors()
    ),
    "convolution by a spectrum": Entry(
        after(lambda h: torch.fft.irfft(torch.fft.rfft(h, 16) * torch.fft.rfft(h.flip(1), 16), 16)),
        vectors(),
    ),
    "mixing by a transform": Entry(
        after(lambda h: torch.fft.fft2(h.view(-1, 2, 4)).real), vectors()
    ),
    "complex exponential": Entry(
        after(lambda h: (torch.exp(1j * h) * (1 + 2j)).real + (h + 1j * h).conj().imag), vectors()
    ),
    "filter of a spectrum": Entry(Filter, shaped(8, 8, 2)),
    "complex buffer": Entry(Rotary, shaped(5, 8, target=(5, 8))),
    "complex parameter": Entry(ComplexWeight, vectors(), refused="'weight' is complex.*last axis"),
    "slogdet": Entry(
        after(
            lambda h: (
                torch.linalg.slogdet(h[:, :4].view(-1, 2, 2) + 2 * torch.eye(2))[1][:, None] * h
            )
        ),
        vectors(),
    ),
    "det": Entry(_weighted(lambda w, x: x @ w + torch.linalg.det(w)), vectors(6, 6)),
    "inverse": Entry(
        _weighted(lambda w, x: x @ torch.linalg.inv(w + 2 * torch.eye(6))), vectors(6, 6)
    ),
    "solve": Entry(
        _weighted(lambda w, x: torch.linalg.solve(w + 2 * torch.eye(6), x.T).T), vectors(6, 6)
    ),
    "cholesky": Entry(
        _weighted(lambda w, x: x @ torch.linalg.cholesky(_positive(w))), vectors(6, 6)
    ),
    "matrix exponential": Entry(_weighted(lambda w, x: x @ torch.matrix_exp(w)), vectors(6, 6)),
    **{
        f"orthogonal, {kind}": Entry(
            lambda kind=kind: nn.utils.parametrizations.orthogonal(  # type: ignore[misc]
                nn.Linear(6, 6), orthogonal_map=kind
            ),
            vectors(6, 6),
        )
        for kind in ("matrix_exp", "cayley", "householder")
    },
    "packed sequence": Entry(
        Packed,
        lambda rows: (
            torch.randn(rows, 5, 4),
            torch.randint(1, 6, (rows,)),
            torch.randn(rows, 3),
        ),
    ),
    "written column": Entry(Writes, vectors()),
    "written view": Entry(
        after(lambda h: h.view(-1, 2, 4).transpose(1, 2).div_(3.0).transpose(0, 1).sum(0)),
        vectors(),
    ),
    "written view of a parameter": Entry(
        lambda: Of(
            lambda m, x: (
                x
                @ (
                    m.layer(m.layer.weight)
                    .view(1, 6, 2, 3)
                    .permute(0, 2, 1, 3)
                    .div_(3.0)
                    .reshape(6, 6)
                )
            ),
            layer=nn.Linear(6, 6),
        ),
        vectors(6, 6),
    ),
    "length of a tensor": Entry(mlp(nn.ReLU(), outputs=8), vectors(6, 8), _contrast),
    "deviation over the rows": Entry(
        mlp(nn.ReLU()),
        vectors(),
        lambda o, t: (o.std(0) - t.var(0)).square().mean() + o.mean() / len(t),
    ),
    "product of three operands": Entry(
        lambda: Of(
            lambda m, x: torch.einsum("bi,ij,jk->bk", x, m.first.weight.T, m.second.weight.T),
            first=nn.Linear(6, 8),
            second=nn.Linear(8, 3),
        ),
        vectors(),
    ),
    "fake quantisation": Entry(
        _weighted(
            lambda w, x: torch.fake_quantize_per_tensor_affine(
                x @ torch.fake_quantize_per_tensor_affine(w, 0.07, 3, -8, 7).T, 0.3, 0, -128, 127
            )
        ),
        vectors(6, 6),
    ),
    "fake quantisation of channels": Entry(
        _weighted(
            lambda w, x: (
                x
                @ torch.fake_quantize_per_channel_affine(
                    w, torch.linspace(0.01, 0.1, 6), torch.arange(6, dtype=torch.int32), 0, -8, 7
                ).T
            )
        ),
        vectors(6, 6),
    ),
    "batch norm without averages": Entry(
        mlp(nn.BatchNorm1d(8, track_running_stats=False)), vectors()
    ),
    "batch norm, mean of all batches": Entry(
        mlp(nn.BatchNorm1d(8, momentum=None), nn.ReLU()), vectors()
    ),
    "experts, grouped products": Entry(Experts, vectors(8, 8)),
    "multinomial": Entry(after(lambda h: h + 0.1 * torch.multinomial(torch.ones(8), 8)), vectors()),
    "multinomial, replacement": Entry(
        after(lambda h: h + 0.1 * torch.multinomial(h.detach().softmax(-1), 8, replacement=True)),
        vectors(),
    ),
    "gradient in the forward": Entry(
        lambda: Of(_gradient_in_forward, first=nn.Linear(6, 8), second=nn.Linear(8, 1)), vectors()
    ),
    "float64, GELU": Entry(
        lambda: mlp(nn.GELU(), nn.LayerNorm(8), Scaled())().double(),
        lambda rows: (torch.randn(rows, 6).double(), torch.randn(rows, 3).double()),
    ),
    **{
        f"float64, {name}": Entry(model, _in_double(vectors()), loss, prepare=nn.Module.double)
        for name, model, loss in (
            ("Huber", mlp(nn.LeakyReLU(0.1), nn.Hardtanh(-0.3, 0.7)), nn.HuberLoss(delta=0.3)),
            ("smooth L1", mlp(nn.Hardsigmoid(), nn.ELU(0.3)), nn.SmoothL1Loss(beta=0.7)),
            ("shrinking", mlp(nn.Softshrink(0.1), nn.Hardswish()), nn.MSELoss()),
            ("SELU", mlp(nn.SELU(), nn.Softplus(0.7), nn.Threshold(0.1, 0.3)), nn.L1Loss()),
            (
                "limits",
                _between(lambda h: h.clamp(-0.3, 0.7) + h.clamp_min(0.1) ** 0.3),
                nn.MSELoss(),
            ),
            (
                "ranges",
                _between(lambda h: h * torch.arange(0.1, 0.85, 0.1, dtype=h.dtype)),
                nn.MSELoss(),
            ),
            (
                "linspace",
                _between(lambda h: h * torch.linspace(0.1, 0.7, 8, dtype=h.dtype)),
                nn.MSELoss(),
            ),
            (
                "scaled product",
                lambda: Of(
                    lambda m, x: torch.addmm(
                        m.layer.bias, x, m.layer.weight.t(), alpha=0.3, beta=0.7
                    ),
                    layer=nn.Linear(6, 3),
                ),
                nn.MSELoss(),
            ),
        )
    },
    "clipped policy": Entry(mlp(nn.Tanh(), outputs=4), _policy, _clipped),
    "policy through tanh": Entry(mlp(nn.Tanh(), outputs=6), vectors(), _tanh_policy),
    "beta policy": Entry(
        mlp(nn.Tanh(), outputs=2),
        lambda rows: (torch.randn(rows, 6), torch.rand(rows) * 0.8 + 0.1),
        _beta,
    ),
    "divergence and a sample": Entry(mlp(nn.Tanh(), outputs=6), vectors(), _divergence),
    "mixture density": Entry(mlp(nn.Tanh(), outputs=9), vectors(), _mixture),
    "sampled action": Entry(
        mlp(nn.Tanh(), outputs=4),
        vectors(6, 1),
        lambda o, w: (
            -(
                distributions.Categorical(logits=o).log_prob(
                    distributions.Categorical(logits=o).sample()
                )
                * w[:, 0]
            ).mean()
        ),
    ),
    "straight-through sample": Entry(
        mlp(nn.Tanh()),
        vectors(),
        lambda o, t: functional.mse_loss(
            distributions.OneHotCategoricalStraightThrough(logits=o).rsample(), t
        ),
    ),
    "sample by rejection": Entry(
        mlp(nn.Tanh(), outputs=3),
        vectors(),
        lambda o, t: functional.mse_loss(distributions.Gamma(o.exp(), o.exp()).rsample(), t),
        refused="aten._standard_gamma.default is not supported",
    ),
    **{
        f"likelihood, {name}": Entry(mlp(nn.Tanh()), *_likelihood(family, target))
        for name, family, target in (
            ("normal", lambda o: distributions.Normal(o, 1.5), _TARGET),
            ("Laplace", lambda o: distributions.Laplace(o, torch.ones(3)), _TARGET),
            ("Student", lambda o: distributions.StudentT(4.0, o), _TARGET),
            ("Gumbel", lambda o: distributions.Gumbel(o, torch.ones(3)), _TARGET),
            (
                "Gauss, covariance",
                lambda o: distributions.MultivariateNormal(o, _COVARIANCE),
                _TARGET,
            ),
            (
                "independent",
                lambda o: distributions.Independent(distributions.Normal(o, 2.0), 1),
                _TARGET,
            ),
            (
                "Bernoulli",
                lambda o: distributions.Bernoulli(logits=o),
                lambda rows: torch.randint(0, 2, (rows, 3)).float(),
            ),
            (
                "Poisson",
                lambda o: distributions.Poisson(o.exp()),
                lambda rows: torch.randint(0, 5, (rows, 3)).float(),
            ),
            (
                "negative binomial",
                lambda o: distributions.NegativeBinomial(5.0, logits=o),
                lambda rows: torch.randint(0, 5, (rows, 3)).float(),
            ),
            (
                "gamma",
                lambda o: distributions.Gamma(o.exp(), torch.ones(3)),
                lambda rows: torch.rand(rows, 3) + 0.1,
            ),
            (
                "Dirichlet",
                lambda o: distributions.Dirichlet(o.exp() + 0.5),
                lambda rows: torch.rand(rows, 3).softmax(-1),
            ),
            (
                "log-normal",
                lambda o: distributions.LogNormal(o, torch.ones(3)),
                lambda rows: torch.rand(rows, 3) + 0.1,
            ),
        )
    },
}
