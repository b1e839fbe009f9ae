"""Models and losses that reach their weights in unusual ways, beside torch's own loop.

A case is a function that returns a model and a loss, such as a linear layer with
``lambda o, y: cross_entropy(o, y) + model.weight.pow(2).sum()``. Its export has the losses and the
weights of torch, or is refused with a message; it never trains another loss.
"""

import functools
import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, vmap
from torch.nn.functional import cross_entropy, linear
from torch.nn.utils import parametrizations, parametrize

from closedform import optimizers
from closedform.errors import TrainingExportError
from closedform.training import TrainSession, export

Case = tuple[nn.Module, Any]

STEPS = 4
DRAWS = torch.randn(8, 6, generator=torch.Generator().manual_seed(3))


class Layered(nn.Module):
    """Two linear layers, a scale and a running centre, with a forward that is given."""

    def __init__(self, call: Callable[[Any, torch.Tensor], Any] | None = None) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 5), nn.Linear(5, 3)
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.register_buffer("centre", torch.full((3,), 0.1))
        self.centre: torch.Tensor
        self.call = call

    def forward(self, x: torch.Tensor) -> Any:
        return self.call(self, x) if self.call else self.plain(x)

    def plain(self, x: torch.Tensor) -> Any:
        return self.b(self.a(x).tanh()) * self.scale

    def update(self, output: torch.Tensor) -> torch.Tensor:
        """Moves the centre, and returns the output."""
        with torch.no_grad():
            self.centre.mul_(0.5).add_(output.mean(0), alpha=0.5)
        return output


def _with_loss(make: Callable[[Any], Any], call: Any = None) -> Callable[[], Case]:
    def case() -> Case:
        model = Layered(call)
        return model, make(model)

    return case


def _penalised(penalty: Callable[[Any], Any]) -> Callable[[], Case]:
    return _with_loss(lambda m: lambda o, y: cross_entropy(o, y) + 0.3 * penalty(m))


def _forward(call: Callable[[Any, Any], Any]) -> Callable[[], Case]:
    return lambda: (Layered(call), cross_entropy)


def _given(build: Callable[[Layered], Callable[[torch.Tensor], Any]]) -> Callable[[], Case]:
    """A forward that is built once, from a model, such as a closure over its weights."""

    def case() -> Case:
        model = Layered()
        call = build(model)
        model.call = lambda _, x: call(x)
        return model, cross_entropy

    return case


def _hooked(hook: Callable[[torch.Tensor], Any], *names: str) -> Callable[[], Case]:
    def case() -> Case:
        model = Layered()
        for name in names or ("a.weight",):
            model.get_parameter(name).register_hook(hook)
        return model, cross_entropy

    return case


class Wraps(nn.Module):
    """A loss that holds the model."""

    def __init__(self, model: Layered) -> None:
        super().__init__()
        self.model = model

    def forward(self, output: torch.Tensor, target: torch.Tensor) -> Any:
        return cross_entropy(output, target) + 0.1 * self.model(DRAWS).square().mean()


class Tempered(nn.Module):
    """A loss that shares a parameter with the model, and has one more."""

    def __init__(self, model: Layered) -> None:
        super().__init__()
        self.t, self.u = model.scale, nn.Parameter(torch.tensor(0.5))

    def forward(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return cross_entropy(output * self.t, target) + (self.u - self.t).square()


class Product(torch.autograd.Function):
    """A product whose gradient is written out."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, w)
        return x @ w.t()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        x, w = ctx.saved_tensors
        return grads[0] @ w, grads[0].t() @ x


product: Any = Product.apply


class Doubled(nn.Module):
    """A parametrization."""

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight * 2 - weight.mean()


def _parametrized(register: Callable[[nn.Module], Any]) -> Callable[[], Case]:
    def case() -> Case:
        model = Layered()
        register(model.a)
        return model, lambda o, y: cross_entropy(o, y) + 0.1 * model.a.weight.square().sum()

    return case


def _weight_of_a_hook(layer: nn.Module) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        nn.utils.weight_norm(layer)


def _tied(tie: Callable[[Layered], Any], call: Any) -> Callable[[], Case]:
    def case() -> Case:
        model = Layered(call)
        tie(model)
        return model, cross_entropy

    return case


def _set(holder: Any, **attributes: Any) -> Any:
    for name, value in attributes.items():
        setattr(holder, name, value)
    return holder


def _sets_hidden(m: Any, x: torch.Tensor) -> Any:
    m.hidden = m.a(x)
    return m.b(m.hidden.tanh())


def _two_layers(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return linear(linear(x, a).tanh(), b)


def _of_dict(m: Layered) -> Callable[[torch.Tensor], Any]:
    stored = {"first": m.a.weight, "more": [m.b.weight, {"deep": m.scale}]}
    first: Any = stored["first"]
    more: Any = stored["more"]
    return lambda x: _two_layers(x, first, more[0]) * more[1]["deep"]


def _of_generator(m: Layered) -> Callable[[torch.Tensor], Any]:
    parameters = list(m.parameters())
    return lambda x: _two_layers(x, *(p for p in parameters if p.dim() == 2))


def _gradient_penalty(o: torch.Tensor, y: torch.Tensor, m: Layered) -> torch.Tensor:
    loss = cross_entropy(o, y)
    grads = torch.autograd.grad(loss, [m.a.weight, m.b.bias], create_graph=True)
    return loss + 0.1 * sum((g.square().sum() for g in grads), torch.zeros(()))


def _penalty_of_list(m: Layered) -> Any:
    weights = [m.a.weight, m.b.weight]

    def loss(o: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        value = cross_entropy(o, y)
        grads = torch.autograd.grad(value, weights, create_graph=True)
        return value + 0.1 * torch.stack([g.norm() for g in grads]).sum()

    return loss


def _module_beside(m: Layered) -> Any:
    head = nn.Linear(5, 3)
    head.weight = m.b.weight
    return lambda o, y: cross_entropy(o + head(torch.ones(5)), y)


def _assigned(m: Any, x: torch.Tensor) -> torch.Tensor:
    output: torch.Tensor = m.plain(x)
    m.centre = 0.5 * m.centre + 0.5 * output.mean(0).detach()
    return output


EXACT: dict[str, Callable[[], Case]] = {
    "control": _penalised(lambda _: 0.0),
    "L2 of all": _penalised(lambda m: sum(p.square().sum() for p in m.parameters())),
    "L1 of one": _penalised(lambda m: m.a.weight.abs().sum()),
    "tiny L2": _penalised(lambda m: 1e-6 * m.a.weight.square().sum()),
    "named parameters": _penalised(
        lambda m: sum(p.norm() for n, p in m.named_parameters() if n.endswith("weight"))
    ),
    "state dict": _penalised(lambda m: m.state_dict()["a.weight"].sum() * m.scale),
    "get_parameter": _penalised(lambda m: m.get_parameter("b.weight").square().mean()),
    "getattr by path": _penalised(lambda m: functools.reduce(getattr, ["a", "weight"], m).norm()),
    "submodule": _penalised(lambda m: m.a(DRAWS).square().mean()),
    "second call": _penalised(lambda m: m(DRAWS).square().mean()),
    "second call without gradient": _with_loss(
        lambda m: lambda o, y: cross_entropy(o - m(DRAWS).mean(0).detach(), y)
    ),
    "functional_call": _penalised(
        lambda m: functional_call(m, dict(m.named_parameters()), (DRAWS,)).square().mean()
    ),
    "functional_call with changed weights": _penalised(
        lambda m: (
            functional_call(m, {n: p * 0.9 for n, p in m.named_parameters()}, (DRAWS,))
            .square()
            .mean()
        )
    ),
    "functional_call detached": _penalised(
        lambda m: (
            functional_call(m, {n: p.detach() for n, p in m.named_parameters()}, (DRAWS,))
            .square()
            .mean()
            * m.scale
        )
    ),
    "orthogonality": _penalised(lambda m: (m.a.weight @ m.a.weight.T - torch.eye(5)).norm()),
    "gradient penalty": _with_loss(lambda m: lambda o, y: _gradient_penalty(o, y, m)),
    "gradient penalty of a list": _with_loss(_penalty_of_list),
    "partial": _with_loss(
        lambda m: functools.partial(lambda w, o, y: cross_entropy(o, y) + w.norm(), m.b.weight)
    ),
    "closure over a parameter": _with_loss(
        lambda m: (lambda w: lambda o, y: cross_entropy(o * w, y))(m.scale)
    ),
    "default of a parameter": _with_loss(
        lambda m: lambda o, y, *, w=m.a.bias: cross_entropy(o, y) + w.square().sum()
    ),
    "namespace": _with_loss(
        lambda m: (lambda s: lambda o, y: cross_entropy(o, y) + s.w.norm())(
            SimpleNamespace(w=m.b.bias)
        )
    ),
    "module beside": _with_loss(_module_beside),
    "loss that holds the model": _with_loss(Wraps),
    "loss that shares a parameter": _with_loss(Tempered),
    "loss is a method": _with_loss(lambda m: Wraps(m).forward),
    "buffer in the loss": _with_loss(
        lambda m: lambda o, y: cross_entropy(o - m.centre, y), lambda m, x: m.update(m.plain(x))
    ),
    "buffer stored by the loss": _with_loss(
        lambda m: (lambda c: lambda o, y: cross_entropy(o - c, y))(m.centre),
        lambda m, x: m.update(m.plain(x)),
    ),
    "buffer written by the loss": _with_loss(
        lambda m: lambda o, y: cross_entropy(m.update(o) - m.centre, y)
    ),
    "buffer assigned": _with_loss(lambda m: lambda o, y: cross_entropy(o - m.centre, y), _assigned),
    "list": _given(
        lambda m: functools.partial(lambda w, x: _two_layers(x, *w), [*m.parameters()][1::2])
    ),
    "dict": _given(_of_dict),
    "generator": _given(_of_generator),
    "tuple of an attribute": _tied(
        lambda m: _set(m, pair=(m.a.weight, m.b.weight)),
        lambda m, x: _two_layers(x, *m.pair),
    ),
    "bound method of a weight": _given(
        lambda m: (lambda matmul: lambda x: m.b(matmul(x.T).T))(m.a.weight.matmul)
    ),
    "detached in the forward": _forward(lambda m, x: m.plain(x) + x @ m.a.weight.detach().T[:, :3]),
    "data in the forward": _forward(lambda m, x: m.plain(x) + m.b.bias.data),
    "view in the forward": _forward(lambda m, x: linear(x, m.a.weight[:3]) + m.b.weight.T[0]),
    "cat of all": _forward(
        lambda m, x: m.plain(x) * torch.cat([p.flatten() for p in m.parameters()]).mean()
    ),
    "parameters_to_vector": _penalised(
        lambda m: nn.utils.parameters_to_vector(m.parameters()).norm()
    ),
    "vmap": _forward(lambda m, x: vmap(lambda row: m.b((m.a.weight @ row).tanh()))(x)),
    "einsum": _forward(lambda m, x: torch.einsum("bi,hi,oh->bo", x, m.a.weight, m.b.weight)),
    "autograd function": _forward(lambda m, x: m.b(product(x, m.a.weight).tanh())),
    "clamped weight": _forward(lambda m, x: (m.scale.data.clamp_(0.1, 1.4), m.plain(x))[1]),
    "attribute of the forward": _with_loss(
        lambda m: lambda o, y: cross_entropy(o, y) + m.hidden.square().mean(), _sets_hidden
    ),
    "tied": _tied(
        lambda m: _set(m.b, weight=nn.Parameter(torch.ones(5, 5) * 0.2)),
        lambda m, x: linear(linear(m.a(x), m.b.weight).tanh(), m.b.weight.T)[:, :3],
    ),
    "tied in two modules": _tied(
        lambda m: _set(_set(m, c=nn.Linear(6, 5)).c, weight=m.a.weight),
        lambda m, x: m.b((m.a(x) + m.c(x)).tanh()),
    ),
    "one layer twice": _tied(
        lambda m: _set(m, c=m.b), lambda m, x: m.c(m.b(m.a(x))[:, [0, 1, 2, 0, 1]])
    ),
    "tied later": _tied(
        lambda m: _set(m, other=m.a.weight), lambda m, x: m.b(linear(x, m.other).tanh())
    ),
    "parametrized": _parametrized(
        lambda layer: parametrize.register_parametrization(layer, "weight", Doubled())
    ),
    "weight norm": _parametrized(parametrizations.weight_norm),
    "weights of a hook": _parametrized(_weight_of_a_hook),
    "spectral norm": _parametrized(parametrizations.spectral_norm),
    "cached parametrization": _forward(lambda m, x: _in_cache(m, x)),
    "hook: zero": _hooked(lambda grad: grad * 0),
    "hook: mask": _hooked(lambda grad: grad * torch.tensor([1.0, 0, 1, 0, 1])[:, None]),
    "hook: clamp": _hooked(lambda grad: grad.clamp(-0.01, 0.01), "a.weight", "b.weight"),
    "hook: norm": _hooked(lambda grad: grad / (grad.norm() + 1e-3)),
    "hook: decay": lambda: _hook_that_reads(Layered()),
    "hook: nothing": _hooked(lambda grad: None),
    "hook: in place": _hooked(lambda grad: grad.mul_(0.5), "b.bias"),
    "hook of a module": _tied(
        lambda m: m.a.register_forward_hook(lambda _, __, out: out * 0.5), lambda m, x: m.plain(x)
    ),
    "hook of a gradient": _tied(
        lambda m: m.b.register_full_backward_hook(lambda _, grads, __: grads),
        lambda m, x: m.plain(x),
    ),
    "bounds of two kinds": _forward(lambda m, x: m.plain(x).clamp(0, 1.5) + m.scale.clamp(-1, 0.5)),
    "clipped weight": _forward(
        lambda m, x: (m.scale.data.clamp_(0, math.log(4)), torch.clip(m.plain(x), -1, 0.7))[1]
    ),
    "clamped labels": _with_loss(
        lambda m: (
            lambda o, y: (cross_entropy(o, (y - 1).clamp(min=0), reduction="none") * (y > 0)).mean()
        )
    ),
    "clamped labels from both sides": _with_loss(
        lambda m: lambda o, y: cross_entropy(o, (y * 3 - 2).clamp(0, 2))
    ),
    "relu of labels": _with_loss(lambda m: lambda o, y: cross_entropy(o, (y - 1).relu())),
    "loss with an axis": _with_loss(
        lambda m: lambda o, y: cross_entropy(o, y) * torch.ones(1) + m.scale[None]
    ),
    "hook of a tensor": _forward(lambda m, x: m.b(_halved(m.a(x)).tanh())),
}
"""Cases whose export has the step of torch."""


def _in_cache(m: Layered, x: torch.Tensor) -> Any:
    with parametrize.cached():
        return m.plain(x)


def _halved(value: torch.Tensor) -> torch.Tensor:
    if value.requires_grad:
        value.register_hook(lambda grad: grad * 0.5)
    return value


COUNTS: dict[str, Any] = {"n": 0, "first calls": 0}
TOTAL = 0


class ByClass(Layered):
    """A count in the class."""

    n = 0

    def forward(self, x: torch.Tensor) -> Any:
        type(self).n += 1
        return self.plain(x) * min(1.0, type(self).n / 500)


class Remembers(Layered):
    """A state that is a tensor, and no buffer."""

    state: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> Any:
        output = self.plain(x)
        if self.state is not None:
            output = output + 0.5 * self.state
        self.state = output.detach().mean(0)
        return output


class Averages(Layered):
    """A state that two runs of one batch leave as it is."""

    mean: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> Any:
        mean = x.detach().mean()
        self.mean = mean if self.mean is None else 0.5 * self.mean + 0.5 * mean
        return self.plain(x) * self.mean


class Starts(Layered):
    """Weights that the first call chooses by its data; where it is noted that there was one."""

    is_ready = False
    note: Callable[[Any], None]

    def forward(self, x: torch.Tensor) -> Any:
        if not (self.is_ready or COUNTS["first calls"]):
            type(self).note(self)
            self.scale.data.copy_(x.std())
        return self.plain(x)


def _starts(note: Callable[[Any], None]) -> Callable[[], Case]:
    def build() -> Case:
        COUNTS["first calls"] = 0
        # A class of its own: a flag of it is set once for each process.
        return type("Starts", (Starts,), {"note": note})(), cross_entropy

    return build


def _global(o: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    global TOTAL
    TOTAL += 1
    return cross_entropy(o, y) * min(1.0, TOTAL / 500)


def _global_dict(o: torch.Tensor, y: torch.Tensor) -> Any:
    COUNTS["n"] += 1
    return cross_entropy(o, y) * (1 + COUNTS["n"] / 1e6)


def _iterator() -> Any:
    counts = itertools.count(1)
    return lambda o, y: cross_entropy(o, y) * (1 - 0.9 ** next(counts))


def _scheduled(m: Layered) -> Any:
    temperatures: Iterator[float] = iter(np.linspace(1, 2, 100))
    return lambda o, y: cross_entropy(o / next(temperatures), y)


def _alias(build: Callable[[Layered], torch.Tensor]) -> Callable[[], Case]:
    """A tensor in the memory of a weight, taken once."""

    def stored(m: Layered) -> Callable[[torch.Tensor], Any]:
        alias = build(m)
        return lambda x: m.plain(x) * (1 + alias.mean())

    return _given(stored)


def _forked(size: int) -> torch.Tensor:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return torch.randn(size)


def _forward_with(layer: nn.Module) -> Callable[[], Case]:
    def case() -> Case:
        model = Layered(lambda m, x: m.plain(x) + m.c((x[:, 0] > 0).long()))
        model.add_module("c", layer)
        return model, cross_entropy

    return case


def _post_hook() -> Case:
    model = Layered()
    model.a.weight.register_post_accumulate_grad_hook(lambda p: None)
    return model, cross_entropy


def _numpy(m: Layered) -> Callable[[torch.Tensor], Any]:
    array = m.a.weight.detach().numpy()
    return lambda x: m.plain(x) * float(np.abs(array).sum())


def _by_identity(m: Layered) -> Callable[[torch.Tensor], Any]:
    factors = {id(m.a.weight): 2.0}
    return lambda x: m.plain(x) * factors.get(id(m.a.weight), 1.0)


def _two_of_one_memory() -> Case:
    model = Layered()
    model.c = nn.Parameter(model.a.weight.data)
    model.call = lambda m, x: m.plain(x) + linear(x, m.c)[:, :3]
    return model, cross_entropy


def _buffer_of_a_weight() -> Case:
    model = Layered()
    model.register_buffer("shadow", model.a.weight.data[1:])
    model.call = lambda m, x: m.plain(x) + linear(x, m.shadow)[:, :3]
    return model, cross_entropy


def _hook_that_reads(model: Layered) -> Case:
    weight = model.a.weight
    weight.register_hook(lambda grad: grad + 0.1 * weight.data)
    return model, cross_entropy


REFUSED: dict[str, tuple[Callable[[], Case], str]] = {
    "view": (_alias(lambda m: m.a.weight[:2]), "the gradient of 'a.weight' with other tensors"),
    "detach": (_alias(lambda m: m.scale.detach()), "memory of 'scale'.*read it as an attribute"),
    "data": (_alias(lambda m: m.b.bias.data), "memory of 'b.bias'"),
    "transpose": (_alias(lambda m: m.b.weight.detach().T), "memory of 'b.weight'"),
    "from NumPy": (
        _alias(lambda m: torch.from_numpy(m.a.weight.detach().numpy()[1:])),
        "memory of 'a.weight'",
    ),
    "number of a view": (
        _given(lambda m: (lambda w: lambda x: m.plain(x) * float(w[0, 0]))(m.a.weight.detach())),
        "memory of 'a.weight'",
    ),
    "NumPy": (_given(_numpy), "differs from torch .* after an update of the weights.*NumPy"),
    "buffer": (
        _with_loss(
            lambda m: (lambda c: lambda o, y: cross_entropy(o - c, y))(m.centre.detach()),
            lambda m, x: m.update(m.plain(x)),
        ),
        "'centre'|computes the loss, .* with other tensors",
    ),
    "buffer replaced": (
        _with_loss(lambda m: (lambda c: lambda o, y: cross_entropy(o - c, y))(m.centre), _assigned),
        "assigns another tensor to the buffer 'centre', and reads the earlier one",
    ),
    "hook after": (_post_hook, "'a.weight' has a hook .*register_hook"),
    "two parameters": (_two_of_one_memory, "'a.weight' and 'c' are two tensors in the same memory"),
    "buffer of a weight": (_buffer_of_a_weight, "'shadow'.*in the same memory"),
    "identity": (_given(_by_identity), "with other tensors .* or by their identity"),
    "stored by a function": (
        _given(lambda m: (lambda w: lambda x: m.b(product(x, w).tanh()))(m.a.weight)),
        "with other tensors|memory of",
    ),
    "class": (lambda: (ByClass(), cross_entropy), r"changes 'ByClass.n'.* \(at \d+\)"),
    "global": (lambda: (Layered(), _global), "changes 'TOTAL'"),
    "dict": (lambda: (Layered(), _global_dict), r"changes \"COUNTS\['n'\]\""),
    "iterator": (lambda: (Layered(), _iterator()), "differs from run to run, in the loss"),
    "schedule": (_with_loss(_scheduled), "differs from run to run, in the loss"),
    "state": (lambda: (Remembers(), cross_entropy), "run to run.*: it carries 'state'"),
    "seed": (
        _forward(lambda m, x: (torch.manual_seed(0), m.plain(x) + torch.randn(3))[1]),
        "seeds torch's generator",
    ),
    "seed within": (_forward(lambda m, x: m.plain(x) + _forked(3)), "seeds torch's generator"),
    "generator": (
        _forward(
            lambda m, x: (
                m.plain(x) + torch.empty(3).normal_(generator=torch.Generator().manual_seed(0))
            )
        ),
        "aten.normal_.default is not supported .* draw without generator=",
    ),
    "state of a batch": (lambda: (Averages(), cross_entropy), "run to run.*: it carries 'mean'"),
    "sparse": (
        _forward_with(nn.Embedding(3, 3, sparse=True)),
        "the gradient of 'c.weight' is sparse: make its layer with sparse=False",
    ),
    "first call": (
        _starts(lambda model: setattr(model, "is_ready", True)),
        "run the model once before",
    ),
    "first call, by class": (
        _starts(lambda model: setattr(type(model), "is_ready", True)),
        "run the model once before",
    ),
    "first call, by global": (
        _starts(lambda _model: COUNTS.update({"first calls": 1})),
        "run the model once before",
    ),
}
"""Cases that are refused, and the message."""


def _batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(5)
    return [
        (
            torch.randn(8, 6, generator=generator),
            torch.randint(0, 3, (8,), generator=generator),
        )
        for _ in range(STEPS)
    ]


def _built(case: Callable[[], Case]) -> Case:
    torch.manual_seed(0)
    return case()


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", EXACT)
def test_a_step_is_that_of_torch(name: str, tmp_path: Path) -> None:
    model, loss = _built(EXACT[name])
    twin, twin_loss = _built(EXACT[name])
    batches = _batches()
    before = {n: value.clone() for n, value in model.state_dict().items()}
    export(model, loss, batches[0], optimizers.sgd(0.1), tmp_path)
    assert all(torch.equal(before[n], value) for n, value in model.state_dict().items())
    session = TrainSession(tmp_path, threads=1)
    params = dict(twin.named_parameters())
    if isinstance(twin_loss, nn.Module):
        ids = {id(param) for param in params.values()}
        of_loss = twin_loss.named_parameters()
        params |= {f"loss.{n}": param for n, param in of_loss if id(param) not in ids}
    assert session.params.keys() == params.keys()
    optimizer = torch.optim.SGD(params.values(), 0.1)
    for x, y in batches:
        optimizer.zero_grad()
        expected = twin_loss(twin(x), y)
        expected.backward()
        optimizer.step()
        value = session.step((x.numpy(), y.numpy())).loss
        # float32 sums in another order.
        assert value == pytest.approx(float(expected.detach()), rel=2e-5)
    for label, param in params.items():
        close = pytest.approx(param.detach().numpy(), rel=1e-4, abs=2e-6)
        assert session.params[label] == close, label


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", REFUSED)
def test_another_step_is_refused(
    name: str, threads: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(functools.partial(torch.set_num_threads, torch.get_num_threads()))
    torch.set_num_threads(threads)
    case, message = REFUSED[name]
    model, loss = _built(case)
    before = {n: value.clone() for n, value in model.state_dict().items()}
    with pytest.raises(TrainingExportError, match=message):
        export(model, loss, _batches()[0], optimizers.sgd(0.1), tmp_path / "out")
    assert all(torch.equal(before[n], value) for n, value in model.state_dict().items())
    assert not (tmp_path / "out").exists()


class Cancels(nn.Linear):
    """A buffer with the roundings of a large sum, and ordinary gradients."""

    def __init__(self) -> None:
        super().__init__(6, 3)
        self.register_buffer("difference", torch.zeros(()))
        self.difference: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.difference.copy_((x * 1e6).sum() - (x.flip(0) * 1e6).sum())
        return super().forward(x)


def test_roundings_of_a_buffer_alone_are_measured(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    torch.manual_seed(0)
    batch = torch.randn(64, 6), torch.randint(0, 3, (64,))
    with caplog.at_level("INFO", "closedform.training"):
        export(Cancels(), cross_entropy, batch, optimizers.sgd(0.1), tmp_path)
    assert "differs from torch in 'next.buffer.difference'" in caplog.text
