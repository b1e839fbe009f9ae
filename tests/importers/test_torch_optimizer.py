"""Update rules traced from torch optimizers: beside the originals, and what is refused."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import sympy as sp
import torch

import closedform as cf
from closedform.errors import TraceError
from closedform.importers import torch_optimizer
from closedform.importers.tensors.check import TOLERANCE
from closedform.importers.torch_optimizer import interpreter, operators
from closedform.importers.torch_optimizer.check import difference
from closedform.importers.torch_optimizer.shapes import shape_of
from closedform.importers.torch_optimizer.subject import double_precision, subject_of
from closedform.language import GRAD, PARAM, GlobalSum, axis_size, hyper, state, t
from closedform.verify.tracing import TracingProver
from tests.support.trajectories import trajectory

Optimizer = torch.optim.Optimizer


def parameters(*shapes: tuple[int, ...]) -> list[torch.nn.Parameter]:
    rng = np.random.default_rng(5)
    return [torch.nn.Parameter(torch.tensor(rng.normal(size=shape))) for shape in shapes]


class Traced(Optimizer):
    """An optimizer whose step of one parameter is a method of a subclass."""

    def __init__(self, params: Any, lr: float = 0.1, **options: Any) -> None:
        super().__init__(params, {"lr": lr, **options})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for param in group["params"]:
                self.update(param, param.grad, self.state[param], group)

    def update(self, p: Any, g: Any, own: Any, group: Any) -> None:
        raise NotImplementedError


def trace(optimizer: Optimizer) -> Any:
    return torch_optimizer.trace(optimizer, TracingProver())


def rule_of(kind: type[Traced], *shapes: tuple[int, ...], **options: Any) -> cf.UpdateRule:
    rule = trace(kind(parameters(*(shapes or ((3, 2),))), **options))
    assert isinstance(rule, cf.UpdateRule)
    return rule


OPTIMIZERS: dict[str, Callable[[Any], Optimizer]] = {
    "sgd": lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda ps: torch.optim.Adam(ps, lr=0.01, amsgrad=True, weight_decay=0.1),
    "adam-foreach": lambda ps: torch.optim.Adam(ps, lr=0.01, foreach=True),
    "adamw": lambda ps: torch.optim.AdamW(ps, lr=0.01, betas=(0.8, 0.95)),
    "nadam": lambda ps: torch.optim.NAdam(ps, lr=0.01),
    "radam-foreach": lambda ps: torch.optim.RAdam(ps, lr=0.01, foreach=True),
    "adamax": lambda ps: torch.optim.Adamax(ps, lr=0.01),
    "adagrad": lambda ps: torch.optim.Adagrad(ps, lr=0.1, initial_accumulator_value=0.5),
    "adadelta-foreach": lambda ps: torch.optim.Adadelta(ps, foreach=True),
    "rmsprop": lambda ps: torch.optim.RMSprop(ps, lr=0.01, centered=True, momentum=0.5),
    "rprop": lambda ps: torch.optim.Rprop(ps, lr=0.01),
    "asgd": lambda ps: torch.optim.ASGD(ps, lr=0.01),
    "adafactor": lambda ps: torch.optim.Adafactor(ps, lr=0.01),
    "muon": lambda ps: torch.optim.Muon(ps, lr=0.01),
}


class Reporting(Traced):
    """Keeps a number that no step reads, where the gradient is not 0; as Prodigy does."""

    def update(self, p: Any, g: Any, own: Any, group: Any) -> None:
        if "average" not in own:
            own["average"] = torch.ones_like(p)
        own["average"].mul_(0.5).add_(g)
        size = g.abs().sum()
        if size == 0:
            return
        own["size"] = size
        p.add_(own["average"], alpha=-group["lr"])


class Remembering(Reporting):
    """Reads it where the gradient is not 0."""

    def update(self, p: Any, g: Any, own: Any, group: Any) -> None:
        before = own.get("size", 1.0)
        super().update(p, g, own, group)
        p.mul_(before)


def test_a_state_that_no_step_reads_may_be_unmade() -> None:
    rule = rule_of(Reporting)  # it has been run beside the optimizer, with gradients of 0, too
    assert rule.states["average"].initial == 1
    with pytest.raises(TraceError, match="leaves states unmade in one of its ways"):
        rule_of(Remembering)


# tests/importers/compare_torch_optimizers.py runs all of torch.optim, in both forms.
@pytest.mark.sample(every=7)
@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_a_rule_follows_its_optimizer(name: str) -> None:
    params = parameters((4, 3), (5, 2))
    with double_precision():
        optimizer = OPTIMIZERS[name](params)
        rule = trace(optimizer)
        assert isinstance(rule, cf.UpdateRule)
        start = {"a": params[0].detach().numpy().copy(), "b": params[1].detach().numpy().copy()}
        rng = np.random.default_rng(1)
        gradients = [{k: rng.normal(size=v.shape) for k, v in start.items()} for _ in range(8)]
        for carried, given in zip(trajectory(rule, start, gradients), gradients, strict=True):
            for param, key in zip(params, start, strict=True):
                param.grad = torch.tensor(given[key])
            optimizer.step()
            for param, key in zip(params, start, strict=True):
                # Eight steps of some dozen roundings of 1.1e-16; Muon's matrices are in bf16.
                np.testing.assert_allclose(
                    carried[f"param.{key}"], param.detach().numpy(), rtol=1e-12, atol=1e-13
                )


def test_hyperparameters_stay_symbols_and_steps_are_t() -> None:
    rule = trace(torch.optim.Adam(parameters((3,)), lr=0.01, betas=(0.5, 0.75), eps=0.25))
    assert isinstance(rule, cf.UpdateRule)
    assert rule.hyperparameters == {
        "lr": sp.Rational(1, 100),
        "beta1": sp.Rational(1, 2),
        "beta2": sp.Rational(3, 4),
        "eps": sp.Rational(1, 4),
    }
    means = [expr for expr in rule.definitions.values() if expr.has(state("exp_avg"))]
    expected = state("exp_avg") + (1 - hyper("beta1")) * (GRAD - state("exp_avg"))
    assert sp.expand(means[0] - expected) == 0
    assert any(expr.has(hyper("beta2") ** (t + 1)) for expr in rule.definitions.values())
    assert not any(expr.has(sp.Float) for expr in rule.all_expressions())


def test_a_rule_can_be_bound_to_a_schedule() -> None:
    rule = trace(torch.optim.SGD(parameters((3,)), lr=0.5))
    assert isinstance(rule, cf.UpdateRule)
    bound = rule.bind(lr=cf.schedules.linear(0.5, 0, 5))
    (first, last) = trajectory(bound, {"w": np.ones(3)}, [{"w": np.ones(3)}] * 2)
    assert first["param.w"].tolist() == [0.5] * 3
    assert last["param.w"].tolist() == pytest.approx([0.1] * 3, rel=1e-15)  # 0.5 - 0.4, rounded


def test_each_param_group_has_a_rule() -> None:
    groups: list[dict[str, Any]] = [
        {"params": parameters((3,))},
        {"params": parameters((2, 2)), "weight_decay": 0.5},
    ]
    rules = trace(torch.optim.SGD(groups, lr=0.1))
    assert isinstance(rules, list)
    assert [sorted(rule.hyperparameters) for rule in rules] == [["lr"], ["lr", "weight_decay"]]


def test_the_optimizer_is_not_changed() -> None:
    (param,) = parameters((3, 2))
    before = param.detach().clone()
    optimizer = torch.optim.Adam([param], lr=0.1)
    trace(optimizer)
    assert torch.equal(param.detach(), before)
    assert param.grad is None
    assert not optimizer.state
    assert optimizer.param_groups[0]["lr"] == 0.1
    assert torch.get_default_dtype() is torch.float32


class Branches(Traced):
    """A warmup in Python, and a step that is scaled down where the gradient is large."""

    def update(self, p: Any, g: Any, own: Any, group: Any) -> None:
        own["count"] = own.get("count", 0) + 1
        rate = group["lr"] if own["count"] > 20 else group["lr"] * own["count"] / 20
        if g.norm().item() > group["limit"]:
            g = g * (group["limit"] / g.norm())
        p.sub_(g, alpha=rate)


def test_branches_on_step_and_data_become_piecewise() -> None:
    rule = rule_of(Branches, limit=1.0)
    assert list(rule.hyperparameters) == ["lr", "limit"]
    big, small = np.array([[3.0, 4.0]]), np.array([[0.3, 0.4]])
    early = list(trajectory(rule, {"w": np.zeros((1, 2))}, [{"w": big}, {"w": small}]))
    rate = 0.1 / 20
    # A division and a product, each rounded.
    np.testing.assert_allclose(early[0]["param.w"], -rate * big / 5, rtol=1e-15)
    np.testing.assert_allclose(early[1]["param.w"], -rate * big / 5 - 2 * rate * small, rtol=1e-15)
    assert any(t in part.free_symbols for part in rule.param.atoms(sp.Le, sp.Lt, sp.Gt, sp.Ge))


class DecidesOnMeans(Traced):
    """Stops where the means of all gradients, which divide by sizes, add up to less than 0."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        (group,) = self.param_groups
        total = sum(p.grad.sum() / p.numel() for p in group["params"])
        if total.item() >= 0:
            for p in group["params"]:
                p.sub_(p.grad, alpha=group["lr"])


def test_a_decision_on_data_and_sizes_of_all_parameters_is_one_on_data() -> None:
    rule = rule_of(DecidesOnMeans)
    start = {"a": np.zeros((1, 2)), "b": np.zeros((1, 1))}
    gradients = [
        {"a": np.array([[3.0, 3.0]]), "b": np.array([[-4.0]])},
        {"a": np.array([[3.0, 3.0]]), "b": np.array([[-2.0]])},
    ]
    first, second = trajectory(rule, start, gradients)
    assert first["param.a"].tolist() == [[0.0, 0.0]]
    np.testing.assert_allclose(second["param.a"], [[-0.3, -0.3]], rtol=1e-15)  # one rounding


class GlobalNorm(Traced):
    """Clips by the norm of all gradients, as torch.nn.utils.clip_grad_norm_."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        (group,) = self.param_groups
        total = sum(p.grad.pow(2).sum() for p in group["params"]).sqrt()
        scale = (1 / total).clamp(max=1.0)
        for p in group["params"]:
            p.sub_(p.grad * scale, alpha=group["lr"])


def test_a_sum_over_all_parameters_is_global() -> None:
    rule = rule_of(GlobalNorm)
    assert any(expr.has(GlobalSum) for expr in rule.all_expressions())
    start = {"a": np.zeros(1), "b": np.zeros((1, 1))}
    (after,) = trajectory(rule, start, [{"a": np.array([3.0]), "b": np.array([[4.0]])}])
    # 0.1 * 3 / 5 and 0.1 * 4 / 5, three roundings.
    assert after["param.a"][0] == pytest.approx(-0.06, rel=1e-15)
    assert after["param.b"][0, 0] == pytest.approx(-0.08, rel=1e-15)


class ByShape(Traced):
    """Scaled by the number of rows, and by another rule for vectors."""

    def update(self, p: Any, g: Any, own: Any, group: Any) -> None:
        if p.ndim >= 2:
            g = g / g.shape[0] - g.mean(dim=1, keepdim=True)
        p.sub_(g, alpha=group["lr"])


def test_shapes_are_general_where_the_step_is() -> None:
    rule = rule_of(ByShape, (3, 2), (4,))
    matrix = rule.for_shape((5, 7))
    assert rule.for_shape((5,)).param == PARAM - hyper("lr") * GRAD
    assert any(expr.has(GRAD / 5) for expr in matrix.definitions.values())
    with pytest.raises(cf.errors.DefinitionError, match="the rule is only for shapes with"):
        rule.for_shape((2, 3, 4))


class ByRatio(Traced):
    """An embedding, of many more rows than columns, has another step."""

    def update(self, p: Any, g: Any, own: Any, group: Any) -> None:
        rows, columns = p.shape
        p.sub_(g if rows > 5 * columns else g.sign(), alpha=group["lr"])


@pytest.mark.parametrize("shape", [(1000, 16), (31, 4), (21, 4), (20, 4), (4, 31)])
def test_a_step_may_compare_sizes_with_a_multiple_of_each_other(shape: tuple[int, int]) -> None:
    rule = rule_of(ByRatio, shape)
    is_tall = shape[0] > 5 * shape[1]
    assert rule.param == PARAM - hyper("lr") * (GRAD if is_tall else sp.sign(GRAD))
    assert rule.requires.has(sp.Gt(axis_size(0), 5 * axis_size(1))) == is_tall


# --- operations ----------------------------------------------------------------------------------


class Applies(Traced):
    """A step by a function of the gradient; the trace itself compares it with the rule."""

    def update(self, p: Any, g: Any, own: Any, group: Any) -> None:
        p.sub_(OPERATIONS[group["name"]](g), alpha=group["lr"])


def _selected(g: torch.Tensor) -> torch.Tensor:
    changed = g.clone()
    changed[g > 0.5] = changed[g > 0.5] / 4
    changed[g < -1] = -1.0
    return changed


def _through_a_view(g: torch.Tensor) -> torch.Tensor:
    copy = g.clone()
    copy.view(-1).mul_(2)
    copy.t().add_(1)
    return copy


def _with_damped_diagonal(g: torch.Tensor) -> torch.Tensor:
    gram = g @ g.T
    gram.diagonal().add_(0.5)
    gram.diagonal(dim1=-2, dim2=-1).mul_(gram.diagonal().sqrt())
    return gram @ g


def _into_unmade(g: torch.Tensor) -> torch.Tensor:
    gram = g.new_empty(g.shape[0], g.shape[0])
    torch.addmm(gram, g, g.T, beta=0.0, out=gram)
    return gram @ g


def _unread(product: Callable[..., torch.Tensor], axes: int) -> Callable[[torch.Tensor], Any]:
    """A sum of which beta = 0 leaves out the first term, which is NaN or has no value."""

    def operation(g: torch.Tensor) -> torch.Tensor:
        rows, columns = g.mean(1), g.mean(0)
        factors = {"addmm": (g, g.T), "addmv": (g, columns), "addr": (rows, columns)}
        first, second = factors[product.__name__]
        shape = [first.shape[0], *second.shape[-1:]][:axes]
        nothing = torch.full(shape, torch.nan, dtype=g.dtype)
        result = product(nothing, first, second, beta=0, alpha=0.5)
        return result @ g if product is torch.addmm else result.reshape(result.shape[0], -1) + g

    return operation


OPERATIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "beta of 0": _into_unmade,
    "addmm of nothing": _unread(torch.addmm, 2),
    "addmv of nothing": _unread(torch.addmv, 1),
    "addr of nothing": _unread(torch.addr, 2),
    "addmv": lambda g: g + torch.addmv(g.sum(1), g, g.mean(0), beta=0.5, alpha=2)[:, None],
    "addr": lambda g: torch.addr(g, g.mean(1), g.mean(0), beta=0.25, alpha=3),
    "baddbmm": lambda g: torch.baddbmm(g.new_empty(1, 1, 1), g[None], g.T[None], beta=0)[0] @ g,
    "identity": lambda g: (
        (torch.eye(len(g), dtype=g.dtype) * 2 + g @ g.T) @ g + torch.eye(*g.shape)
    ),
    "diagonal": _with_damped_diagonal,
    "triangles": lambda g: ((g @ g.T).triu(1) - (g @ g.T).tril()) @ g + g.triu(),
    "mean over an axis": lambda g: g.mean(dim=1, keepdim=True) * g.sum(0) - g.amax(dim=0),
    "std": lambda g: g / (g.std() + g.std(dim=1, keepdim=True)) + g.var(dim=0),
    "norms": lambda g: g / g.norm() + g / g.norm(dim=1, keepdim=True) + g / g.norm(p=1),
    "clamp by tensors": lambda g: g.clamp(min=-g.abs().mean(), max=g.abs().mean(1, keepdim=True)),
    "sigmoid": lambda g: torch.sigmoid(g) + torch.tanh(g) + torch.nn.functional.softplus(g),
    "sign": lambda g: g.sign() * g.abs().sqrt(),
    "nan_to_num": lambda g: torch.nan_to_num(torch.log(g), nan=0.25) + g,
    "matmul": lambda g: (g @ g.T) @ g + torch.addmm(g, g, g.T @ g, beta=0.5, alpha=0.25),
    "views": _through_a_view,
    "flat": lambda g: (g.flatten() * g.reshape(-1)).view_as(g) / g.numel() * g.shape[0],
    "masks": _selected,
    "where": lambda g: torch.where((g > 0) & ~(g > 1), g, 0.5) + (g * g > 1).to(g.dtype),
    "softmax": lambda g: g.softmax(dim=-1) + g.mean(1).softmax(0)[:, None],
    "normalize": lambda g: (
        torch.nn.functional.normalize(g, dim=1) + torch.cosine_similarity(g, g * 2 + 1, dim=0)
    ),
    "foreach": lambda g: torch._foreach_add(torch._foreach_mul([g, g], [0.5, 0.25]), 1.0)[0],
    "in bfloat16": lambda g: (g.bfloat16() @ g.bfloat16().T).to(g.dtype) @ g,
    "einsum": lambda g: torch.einsum("ij,kj->ik", g, g) @ g,
    "fewer axes": lambda g: g.unsqueeze(0).expand(1, *g.shape).squeeze(0) - g[None].sum((0, 1)),
}


# One operation of five, and all of them in make compare.
@pytest.mark.sample(every=5)
@pytest.mark.parametrize("name", list(OPERATIONS))
def test_an_operation_is_traced(name: str) -> None:
    rule = rule_of(Applies, (4, 3), name=name)
    assert rule.param != PARAM
    assert not rule.states


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_infinity_becomes_the_largest_number_of_the_dtype(dtype: torch.dtype) -> None:
    rule = rule_of(Applies, (4, 3), name="nan_to_num")
    ours, theirs = (torch.nn.Parameter(torch.zeros(2, 2, dtype=dtype)) for _ in range(2))
    ours.grad = theirs.grad = torch.tensor([[0, 1], [-1, 4]], dtype=dtype)
    cf.torch.Optimizer([ours], rule, backend="eager").step()
    Applies([theirs], name="nan_to_num").step()
    assert theirs[0, 0].item() == pytest.approx(torch.finfo(dtype).max / 10)
    torch.testing.assert_close(ours, theirs)


ROWS, COLUMNS = axis_size(0), axis_size(1)
FACTORS: dict[str, tuple[Callable[[torch.Tensor], Any], sp.Expr]] = {
    "a number over a size": (lambda g: 2.0 / g.shape[0], 2 / ROWS),
    "a number over a sum": (lambda g: 2.0 / (g.shape[0] + g.shape[1]), 2 / (ROWS + COLUMNS)),
    "a number less a size": (lambda g: 0.5 - g.size(-1), sp.Rational(1, 2) - COLUMNS),
    "a power of a number": (lambda g: 0.5 ** g.size(0), sp.Rational(1, 2) ** ROWS),
    "unpacked": (
        lambda g: next(1.5 * a / b for a, b in [g.shape]),
        sp.Rational(3, 2) * ROWS / COLUMNS,
    ),
    "a slice": (lambda g: 3.0 / sum(g.shape[1:] + g.shape[:1]), 3 / (ROWS + COLUMNS)),
    "the largest": (lambda g: 1.5 / max(*g.shape), sp.Rational(3, 2) / sp.Max(ROWS, COLUMNS)),
    "the product": (lambda g: 1.5 / g.shape.numel(), sp.Rational(3, 2) / (ROWS * COLUMNS)),
}


class Scales(Traced):
    """Takes the gradient by a number of its shape."""

    def update(self, p: Any, g: Any, own: Any, group: Any) -> None:
        p.sub_(g * FACTORS[group["name"]][0](p))


@pytest.mark.parametrize("name", FACTORS)
def test_a_number_and_a_size_make_an_expression(name: str) -> None:
    rule = rule_of(Scales, (4, 3), name=name)
    values = dict(zip((ROWS, COLUMNS), (5, 9), strict=True))
    expected = (PARAM - GRAD * FACTORS[name][1]).subs(values)
    assert sp.simplify(rule.for_shape((5, 9)).param - expected) == 0


def test_shapes_compare_as_tuples() -> None:
    shape = shape_of((5, 7, 5))
    assert shape == (5, 7, 5)
    assert shape != (5, 7, 6)
    assert (5, 6, 9) < shape <= shape < (5, 8)
    assert hash(shape) == hash((5, 7, 5))
    assert (shape.count(5), shape.index(7), 7 in shape, 6 in shape) == (2, 1, True, False)
    assert [*shape[1:], *(2, *shape), *(shape * 2)] == [7, 5, 2, 5, 7, 5, 5, 7, 5, 5, 7, 5]
    before: tuple[int, ...] = (1,)
    assert before + shape == (1, 5, 7, 5)
    assert torch.zeros(shape).shape == torch.zeros(*shape).shape == shape


class Counts(Traced):
    """Divides floats by the step, restarts a counter of its own, and skips zero gradients."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        (group,) = self.param_groups
        if sum(p.grad.abs().sum() for p in group["params"]) == 0:
            return
        group["step"] = group.get("step", 0) + 1
        group["phase"] = (group.get("phase", 0) + 1) % 5
        for p in group["params"]:
            p.sub_(p.grad * (1.0 / group["step"]) * group["phase"], alpha=group["lr"])


def test_counters_restart_and_steps_may_not_count() -> None:
    rule = rule_of(Counts)
    assert list(rule.shared) == ["phase"]
    gradients = [{"w": np.array([g])} for g in (1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0)]
    moved = [c["param.w"][0] for c in trajectory(rule, {"w": np.zeros(1)}, gradients)]
    # phase / step is 1/1, none, 2/2, 3/3, 4/4, 0/5, 1/6; each step rounds three times.
    assert moved == pytest.approx(-0.1 * np.cumsum([1, 0, 1, 1, 1, 0, 1 / 6]), rel=1e-15)


# --- what is refused ---------------------------------------------------------------------------


class Noisy(Traced):
    def update(self, p: Any, g: Any, own: Any, group: Any) -> None:
        p.sub_(g * torch.bernoulli(torch.full_like(g, 0.5)), alpha=group["lr"])


class Sorted(Traced):
    def update(self, p: Any, g: Any, own: Any, group: Any) -> None:
        p.sub_(g.sort(dim=-1).values, alpha=group["lr"])


class Strided(Traced):
    def update(self, p: Any, g: Any, own: Any, group: Any) -> None:
        p.sub_(g.flatten()[:7:3].sum() * g, alpha=group["lr"])


class Partial(Traced):
    def update(self, p: Any, g: Any, own: Any, group: Any) -> None:
        p[0].sub_(g[0], alpha=group["lr"])


class Growing(Traced):
    def update(self, p: Any, g: Any, own: Any, group: Any) -> None:
        own.setdefault("all", []).append(g.clone())
        p.sub_(g, alpha=group["lr"])


class Neighbours(Traced):
    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        (group,) = self.param_groups
        for p in group["params"]:
            p.sub_(group["params"][-1].grad.max() * p.grad)


class Switching(Traced):
    def update(self, p: Any, g: Any, own: Any, group: Any) -> None:
        own.setdefault("phase", "slow")
        if g.abs().max() > 100:
            own["phase"] = "fast"
        p.sub_(g if own["phase"] == "slow" else g * 2, alpha=group["lr"])


class Searching(Traced):
    def update(self, p: Any, g: Any, own: Any, group: Any) -> None:
        while g.norm() > 1e-3:
            g = g / 2
        p.sub_(g, alpha=group["lr"])


class Failing(Traced):
    def update(self, p: Any, g: Any, own: Any, group: Any) -> None:
        raise ValueError("no step today")


class Tabled(Traced):
    """A table by parameter on the object: its contents are not part of the message."""

    def update(self, p: Any, g: Any, own: Any, group: Any) -> None:
        table: dict[Any, Any] = self.__dict__.setdefault("table", {})
        table.setdefault(p, []).append(0)
        p.sub_(g, alpha=group["lr"])


class Closing(Traced):
    @torch.no_grad()
    def step(self, closure: Any) -> None:  # type: ignore[override]
        closure()


REFUSALS: dict[type[Traced], str] = {
    Tabled: r"attribute 'table.<Parameter>.0' still changes in step 16",
    Closing: r"step\(\) needs the argument 'closure', and a rule takes one gradient \(Closing\)",
    Noisy: r"random numbers of bernoulli have no expression \(aten.bernoulli.default in .*test_to",
    Sorted: r"has no expression in the language \(aten.sort.default in .*test_torch_optimizer.py",
    Strided: r"a slice 0:7:3 of an axis of a tensor has no expression",
    Partial: r"element 0 along an axis of a tensor (has no expression|is changed in place)",
    Growing: r"state 'all.\d+' still changes in step 16",
    Neighbours: r"takes grad of another one, and is not a sum over all parameters",
    Switching: r"state 'phase' changes from str 'slow' to str 'fast' in one of the ways",
    Searching: r"decides more than 16 times on the step or on data .*test_torch_optimizer.py",
    Failing: r"the step raises ValueError: no step today \(.*test_torch_optimizer.py:\d+\)",
}


@pytest.mark.parametrize("kind", list(REFUSALS), ids=lambda kind: kind.__name__)
def test_what_has_no_expression_is_refused_by_name(kind: type[Traced]) -> None:
    with pytest.raises(TraceError, match=REFUSALS[kind]):
        rule_of(kind)


def test_a_drop_in_of_closedform_has_a_rule_already() -> None:
    optimizer = cf.torch.Optimizer([torch.zeros(3)], cf.optimizers.lion(1e-4))
    with pytest.raises(TraceError, match=r"one of closedform, .*take that rule"):
        cf.from_torch(optimizer)


def test_a_state_of_two_kinds_of_shapes_is_named_with_both() -> None:
    class Rows(Traced):
        def update(self, p: Any, g: Any, own: Any, group: Any) -> None:
            if "row" not in own:
                own["row"] = torch.zeros(*p.shape[:-1], 1, dtype=p.dtype)
            own["row"].add_(g.square().mean(-1, keepdim=True))
            p.sub_(g / (1 + own["row"]), alpha=group["lr"])

    with pytest.raises(TraceError) as error:
        cf.from_torch(Rows([torch.zeros(3, 4), torch.zeros(2, 3, 4)]))
    shapes = "[shape[0], 1] for some parameters, and [shape[0], shape[1], 1] for others"
    assert f"the state 'row' has the shape {shapes}" in str(error.value)
    assert "separate param groups" in str(error.value)


def test_a_rule_that_differs_from_its_optimizer_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong = {**operators.RULES, "sign": operators.RULES["tanh"]}
    monkeypatch.setattr(interpreter, "RULES", wrong)
    with pytest.raises(
        TraceError, match=r"differs from the optimizer by .* of param \d at step \d"
    ):
        rule_of(Applies, (4, 3), name="sign")


def test_only_optimizers_are_traced() -> None:
    with pytest.raises(TraceError) as caught:
        trace("adam")  # type: ignore[arg-type]
    assert str(caught.value) == "expected a torch.optim.Optimizer, got str"


# --- planted faults ----------------------------------------------------------------------------


def faults() -> Iterator[tuple[str, sp.Expr]]:
    moment = state("square_avg")
    good = hyper("alpha") * moment + (1 - hyper("alpha")) * GRAD**2
    yield "decay", hyper("alpha") ** 2 * moment + (1 - hyper("alpha")) * GRAD**2
    yield "tiny", good + sp.Rational(1, 10**8) * GRAD**2
    yield "step", good + sp.Piecewise((1, sp.Eq(t, 3)), (0, True)) * GRAD**2


@pytest.mark.parametrize(("name", "moment"), list(faults()), ids=[name for name, _ in faults()])
def test_a_planted_fault_is_found(name: str, moment: sp.Expr) -> None:
    shapes = ((2, 3), (5, 7))
    with double_precision():
        optimizer = torch.optim.RMSprop(parameters((2, 3)), lr=0.1, alpha=0.9)
        rule = trace(optimizer)
        assert isinstance(rule, cf.UpdateRule)
        subject = subject_of(optimizer, 0, shapes, seed=1)
        gap, _, _ = difference(rule, subject, shapes)
        assert gap <= TOLERANCE
        definitions = {
            key: moment if expr.has(state("square_avg")) and expr.has(GRAD) else expr
            for key, expr in rule.definitions.items()
        }
        assert definitions != rule.definitions
        wrong = cf.UpdateRule(rule.name, rule.param, rule.states, rule.hyperparameters, definitions)
        gap, label, _ = difference(wrong, subject, shapes)
        assert gap > TOLERANCE
        assert label
