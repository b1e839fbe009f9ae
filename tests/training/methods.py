"""Methods of training that are new to the zoo: losses, games, flows, packed sequences, solvers."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import distributions, nn
from torch.nn import functional
from torch.nn.utils import rnn

from tests.training.zoo import Entry, Of, after, mlp, shaped, vectors

Batch = Callable[[int], Any]


class PackedTagger(nn.Module):
    """A label for each place of sequences of several lengths."""

    def __init__(self, kind: Any, **options: Any) -> None:
        super().__init__()
        self.layer = kind(5, 6, batch_first=True, **options)
        self.head = nn.Linear(12 if options.get("bidirectional") else 6, 4)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> Any:
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        output, _ = self.layer(packed)
        padded, _ = rnn.pad_packed_sequence(output, batch_first=True, total_length=x.shape[1])
        return self.head(padded)


def _tags(rows: int) -> Any:
    lengths = torch.randint(1, 5, (rows,))
    tags = torch.randint(0, 4, (rows, 4))
    return torch.randn(rows, 4, 5), lengths, tags.where(torch.arange(4) < lengths[:, None], -100)


def _tagged(output: torch.Tensor, tags: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(output.flatten(0, 1), tags.flatten())


class Unpadded(PackedTagger):
    """The longest sequence of a batch decides a size."""

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> Any:
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return self.head(rnn.pad_packed_sequence(self.layer(packed)[0], batch_first=True)[0])


class Critic(nn.Module):
    """A critic with a penalty of its gradients between real and generated rows."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, real: torch.Tensor, fake: torch.Tensor) -> Any:
        share = torch.rand(real.shape[0], 1)
        mixed = (share * real + (1 - share) * fake).requires_grad_()
        (slope,) = torch.autograd.grad(self.score(mixed).sum(), mixed, create_graph=True)
        penalty = (slope.norm(dim=1) - 1).square().mean()
        return self.score(fake).mean() - self.score(real).mean() + 10 * penalty


class Quantized(nn.Module):
    """An autoencoder with a codebook, and gradients passed straight through."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(6, 4), nn.Linear(4, 6)
        self.codes = nn.Embedding(8, 4)

    def forward(self, x: torch.Tensor) -> Any:
        z = self.encode(x)
        nearest = self.codes(torch.cdist(z, self.codes.weight).argmin(-1))
        commitment = functional.mse_loss(z, nearest.detach())
        codebook = functional.mse_loss(nearest, z.detach())
        output = self.decode(z + (nearest - z).detach())
        return functional.mse_loss(output, x) + codebook + 0.25 * commitment


class Denoiser(nn.Module):
    """A diffusion model: a time, a noise, and the loss of its prediction."""

    shares: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.times = nn.Embedding(10, 8)
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 6)
        self.register_buffer("shares", torch.linspace(0.99, 0.1, 10))

    def forward(self, x: torch.Tensor) -> Any:
        time = torch.randint(0, 10, (x.shape[0],))
        noise = torch.randn_like(x)
        share = self.shares[time][:, None]
        noisy = share.sqrt() * x + (1 - share).sqrt() * noise
        return functional.mse_loss(
            self.last(functional.silu(self.first(noisy) + self.times(time))), noise
        )


class Coupling(nn.Module):
    """A normalizing flow of two affine couplings."""

    def __init__(self) -> None:
        super().__init__()
        self.nets = nn.ModuleList(
            nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 6)) for _ in range(2)
        )

    def forward(self, x: torch.Tensor) -> Any:
        first, second = x.chunk(2, -1)
        total = x.new_zeros(x.shape[0])
        for net in self.nets:
            scale, shift = net(first).chunk(2, -1)
            scale = torch.tanh(scale)
            first, second = second * scale.exp() + shift, first
            total = total + scale.sum(-1)
        z = torch.cat([first, second], -1)
        return -(distributions.Normal(0.0, 1.0).log_prob(z).sum(-1) + total).mean()


class Momentum(nn.Module):
    """BYOL: a target whose weights follow those of the model."""

    target: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.online, self.predict = nn.Linear(6, 4), nn.Linear(4, 4)
        self.register_buffer("target", self.online.weight.detach().clone())

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> Any:
        if self.training:
            self.target.lerp_(self.online.weight.detach(), 0.01)
        goal = functional.normalize(second @ self.target.T, dim=-1)
        return (
            2 - 2 * (functional.normalize(self.predict(self.online(first))) * goal).sum(-1).mean()
        )


class Centred(nn.Module):
    """DINO: a teacher's output, centred by a running mean."""

    centre: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.student, self.teacher = nn.Linear(6, 5), nn.Linear(6, 5).requires_grad_(False)
        self.register_buffer("centre", torch.zeros(5))

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> Any:
        scores = self.teacher(second)
        goal = ((scores - self.centre) / 0.04).softmax(-1)
        self.centre.mul_(0.9).add_(scores.mean(0), alpha=0.1)
        return -(goal * (self.student(first) / 0.1).log_softmax(-1)).sum(-1).mean()


class Graph(nn.Module):
    """Attention along the edges of a graph, with a sum at each vertex."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.score = nn.Linear(5, 6), nn.Linear(12, 1)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> Any:
        h = self.layer(x)
        start, end = edges.unbind(-1)
        weight = functional.leaky_relu(self.score(torch.cat([h[start], h[end]], -1))).exp()
        total = torch.zeros(x.shape[0], 1).index_add(0, end, weight)
        messages = weight / total[end].clamp(min=1e-6) * h[start]
        return torch.zeros_like(h).index_add(0, end, messages)


def _graph(rows: int) -> dict[str, Any]:
    return {
        "x": torch.randn(7, 5),
        "edges": torch.randint(0, 7, (rows, 2)),
        "target": torch.randn(7, 6),
    }


class InnerStep(nn.Module):
    """MAML: a step of gradient descent within the forward."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        def loss(parameters: dict[str, Any]) -> torch.Tensor:
            return functional.mse_loss(torch.func.functional_call(self.layer, parameters, (x,)), y)

        parameters: dict[str, Any] = dict(self.layer.named_parameters())
        slopes = torch.func.grad(loss)(parameters)
        return loss({name: value - 0.1 * slopes[name] for name, value in parameters.items()})


class Solver(nn.Module):
    """A neural differential equation: four steps of Runge and Kutta."""

    def __init__(self) -> None:
        super().__init__()
        self.rate = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 6))

    def forward(self, x: torch.Tensor) -> Any:
        for _ in range(4):
            first = self.rate(x)
            second = self.rate(x + first / 8)
            third = self.rate(x + second / 8)
            x = x + (first + 2 * second + 2 * third + self.rate(x + third / 4)) / 24
        return x


class Process(nn.Module):
    """A Gaussian process with a kernel whose width is trained: its marginal likelihood."""

    def __init__(self) -> None:
        super().__init__()
        self.width, self.noise = nn.Parameter(torch.zeros(())), nn.Parameter(torch.zeros(()))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        distance = (x[:, :, None] - x[:, None, :]).square()
        kernel = torch.exp(-distance * self.width.exp()) + torch.eye(5) * self.noise.exp()
        factor = torch.linalg.cholesky(kernel)
        solution = torch.cholesky_solve(y[..., None], factor)[..., 0]
        logs = torch.linalg.diagonal(factor).log().sum(-1)
        return (0.5 * (y * solution).sum(-1) + logs).mean()


class Hyper(nn.Module):
    """Weights that another layer computes."""

    def __init__(self) -> None:
        super().__init__()
        self.make = nn.Linear(4, 18)

    def forward(self, x: torch.Tensor, context: torch.Tensor) -> Any:
        return torch.bmm(self.make(context).view(-1, 3, 6), x[..., None])[..., 0]


class Margin(nn.Module):
    """ArcFace: an angle is added at the label."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.centres = nn.Linear(6, 5), nn.Parameter(torch.randn(4, 5))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> Any:
        cosine = functional.linear(
            functional.normalize(self.embed(x)), functional.normalize(self.centres)
        )
        angle = torch.acos(cosine.clamp(-0.99, 0.99))
        shifted = torch.cos(angle + 0.3 * functional.one_hot(labels, 4))
        return functional.cross_entropy(8 * shifted, labels)


class Twin(nn.Module):
    """Q learning with a target network: the value of the next state has no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.value, self.target = nn.Linear(6, 4), nn.Linear(6, 4).requires_grad_(False)

    def forward(
        self,
        state: torch.Tensor,
        action: torch.Tensor,
        reward: torch.Tensor,
        following: torch.Tensor,
        is_done: torch.Tensor,
    ) -> Any:
        value = self.value(state).gather(1, action[:, None])[:, 0]
        goal = reward + 0.99 * self.target(following).amax(-1) * ~is_done
        return functional.smooth_l1_loss(value, goal)


def _transitions(rows: int) -> Any:
    return (
        torch.randn(rows, 6),
        torch.randint(0, 4, (rows,)),
        torch.randn(rows),
        torch.randn(rows, 6),
        torch.rand(rows) > 0.7,
    )


class Preference(nn.Module):
    """DPO: log-probabilities of chosen and rejected answers beside a frozen reference."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = nn.Sequential(nn.Embedding(9, 5), nn.Linear(5, 9))
        self.reference = nn.Sequential(nn.Embedding(9, 5), nn.Linear(5, 9)).requires_grad_(False)

    def forward(self, chosen: torch.Tensor, rejected: torch.Tensor) -> Any:
        def margin(model: nn.Module) -> Any:
            first, second = (
                model(answer[:, :-1]).log_softmax(-1).gather(2, answer[:, 1:, None]).sum((1, 2))
                for answer in (chosen, rejected)
            )
            return first - second

        return -functional.logsigmoid(0.1 * (margin(self.policy) - margin(self.reference))).mean()


def _transport(output: torch.Tensor, target: torch.Tensor) -> Any:
    """The cost of transport by Sinkhorn's iterations, in logarithms."""
    cost = torch.cdist(output.view(-1, 3, 2), target.view(-1, 3, 2))
    first = second = torch.zeros_like(cost[..., 0])
    for _ in range(5):
        first = -torch.logsumexp(second[:, None, :] - cost / 0.5, -1) - math.log(3)
        second = -torch.logsumexp(first[:, :, None] - cost / 0.5, -2) - math.log(3)
    plan = (first[:, :, None] + second[:, None, :] - cost / 0.5).exp()
    return (plan * cost).sum((1, 2)).mean()


def _warped(output: torch.Tensor, target: torch.Tensor) -> Any:
    """A soft alignment in time, by dynamic programming."""
    cost = (output[:, :, None] - target[:, None, :]).square()
    far = torch.full_like(cost[:, 0, 0], 1e3)
    above = [torch.zeros_like(far), *[far] * 4]
    for i in range(4):
        row = [far]
        for j in range(4):
            steps = torch.stack([above[j], above[j + 1], row[j]], -1)
            row.append(cost[:, i, j] - 0.5 * torch.logsumexp(-steps / 0.5, -1))
        above = row
    return above[-1].mean()


def _hazard(output: torch.Tensor, time: torch.Tensor, is_seen: torch.Tensor) -> torch.Tensor:
    """Cox: the partial likelihood, over rows in the order of their times."""
    order = time.argsort(descending=True)
    risk = output[order, 0]
    return -((risk - torch.logcumsumexp(risk, 0)) * is_seen[order]).sum() / is_seen.sum().clamp(
        min=1
    )


def _contrast(output: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """NT-Xent: both views of a row attract, all others repel."""
    both = functional.normalize(torch.cat([output, other]))
    rows = output.shape[0]
    scores = (both @ both.T / 0.5).masked_fill(torch.eye(2 * rows, dtype=torch.bool), -1e4)
    labels = torch.cat([torch.arange(rows) + rows, torch.arange(rows)])
    return functional.cross_entropy(scores, labels)


def _twins(output: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Barlow twins: the cross-correlation of two views is the identity."""
    first, second = ((v - v.mean(0)) / (v.std(0) + 1e-3) for v in (output, other))
    difference = first.T @ second / output.shape[0] - torch.eye(3)
    diagonal = torch.eye(3, dtype=torch.bool)
    return torch.where(diagonal, difference, 0.1 * difference).square().sum()


def _focal(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    loss = functional.binary_cross_entropy_with_logits(output, target, reduction="none")
    chance = torch.exp(-loss)
    return (0.25 * (1 - chance) ** 2 * loss).mean()


def _dice(output: torch.Tensor, target: torch.Tensor) -> Any:
    chance = output.sigmoid()
    return 1 - (2 * (chance * target).sum(1) + 1).div((chance + target).sum(1) + 1).mean()


def _quantiles(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    levels = torch.tensor([0.1, 0.5, 0.9])
    error = target[:, :1] - output
    return torch.maximum(levels * error, (levels - 1) * error).mean()


def _labels(rows: int) -> Any:
    return torch.randn(rows, 6), torch.randint(0, 2, (rows, 3)).float()


def _pairs(rows: int) -> Any:
    return torch.randn(rows, 6), torch.randn(rows, 6)


METHODS: dict[str, Entry] = {
    "packed LSTM": Entry(lambda: PackedTagger(nn.LSTM), _tags, _tagged),
    "packed LSTM, both directions, dropout": Entry(
        lambda: PackedTagger(nn.LSTM, bidirectional=True, num_layers=2, dropout=0.2),
        _tags,
        _tagged,
    ),
    "packed GRU, both directions": Entry(
        lambda: PackedTagger(nn.GRU, bidirectional=True), _tags, _tagged
    ),
    "packed RNN": Entry(lambda: PackedTagger(nn.RNN, num_layers=2), _tags, _tagged),
    "packed, the longest decides": Entry(
        lambda: Unpadded(nn.LSTM), _tags, _tagged, refused=r"no total_length.*total_length=x\.shape"
    ),
    "gradient penalty": Entry(Critic, _pairs, None),
    "codebook": Entry(Quantized, lambda rows: {"x": torch.randn(rows, 6)}, None),
    "denoising": Entry(Denoiser, lambda rows: {"x": torch.randn(rows, 6)}, None),
    "affine couplings": Entry(Coupling, lambda rows: {"x": torch.randn(rows, 6)}, None),
    "momentum target": Entry(Momentum, _pairs, None),
    "centred teacher": Entry(Centred, _pairs, None),
    "graph attention": Entry(Graph, _graph, options={"dynamic_axes": {"edges": {0: "edges"}}}),
    "inner step": Entry(
        InnerStep, lambda rows: {"x": torch.randn(rows, 6), "y": torch.randn(rows, 3)}, None
    ),
    "Runge-Kutta": Entry(Solver, vectors(6, 6)),
    "Gaussian process": Entry(
        Process, lambda rows: {"x": torch.randn(rows, 5), "y": torch.randn(rows, 5)}, None
    ),
    "computed weights": Entry(
        Hyper,
        lambda rows: (torch.randn(rows, 6), torch.randn(rows, 4), torch.randn(rows, 3)),
    ),
    "angular margin": Entry(
        Margin,
        lambda rows: {"x": torch.randn(rows, 6), "labels": torch.randint(0, 4, (rows,))},
        None,
    ),
    "Q learning": Entry(Twin, _transitions, None),
    "preferences": Entry(
        Preference,
        lambda rows: (torch.randint(0, 9, (rows, 4)), torch.randint(0, 9, (rows, 4))),
        None,
    ),
    "transport": Entry(mlp(nn.Tanh(), outputs=6), vectors(6, 6), _transport),
    "warped time": Entry(mlp(nn.Tanh(), outputs=4), vectors(6, 4), _warped),
    "hazard": Entry(
        mlp(nn.Tanh(), outputs=1),
        lambda rows: (torch.randn(rows, 6), torch.rand(rows), torch.rand(rows) > 0.3),
        _hazard,
    ),
    "two views": Entry(mlp(nn.Tanh()), vectors(), _contrast),
    "decorrelated views": Entry(mlp(nn.Tanh()), vectors(), _twins),
    "focal loss": Entry(mlp(nn.Tanh()), _labels, _focal),
    "overlap": Entry(mlp(nn.Tanh()), _labels, _dice),
    "quantiles": Entry(mlp(nn.Tanh()), vectors(), _quantiles),
    "causal convolutions": Entry(
        lambda: Of(
            lambda m, x: m.last(
                functional.pad(torch.tanh(m.gate(functional.pad(x, (2, 0)))), (4, 0))
            ),
            gate=nn.utils.parametrizations.weight_norm(nn.Conv1d(3, 4, 3)),
            last=nn.Conv1d(4, 2, 3, dilation=2),
        ),
        shaped(3, 8, target=(2, 8)),
    ),
    "exponential of a diagonal": Entry(
        after(lambda h: torch.linalg.vector_norm(torch.diag_embed(h), dim=-1)), vectors()
    ),
    "principal axes": Entry(
        after(lambda h: torch.linalg.eigvalsh(h.view(-1, 2, 4) @ h.view(-1, 2, 4).mT)),
        vectors(),
        refused=r"aten\._linalg_eigh\.default of torch\.linalg\.eigvalsh.*write it with",
    ),
    "nuclear norm": Entry(
        mlp(nn.Tanh(), outputs=6),
        vectors(6, 6),
        lambda o, t: torch.linalg.svdvals((o - t).view(-1, 2, 3)).sum(-1).mean(),
        refused=r"aten\._linalg_svd\.default of torch\.linalg\.svdvals.*write it with",
    ),
}
"""Entries by the name of the method."""
