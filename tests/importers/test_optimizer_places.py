"""Values that a parameter or a param group takes from another: traced as they are, or refused."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

import closedform as cf
from closedform.errors import TraceError
from closedform.language.model import GlobalSum

Body = Callable[[Any, Any], None]


class Stepped(torch.optim.Optimizer):
    """An optimizer whose step is a function of itself and of each param group."""

    body: Body

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            type(self).body(self, group)


def stepped(body: Body) -> type[Stepped]:
    return type("Stepped", (Stepped,), {"body": staticmethod(body)})


def _update(group: Any, is_slow: Callable[[int, Any], Any] = lambda place, p: False) -> None:
    place = 0
    for p in group["params"]:
        factor = 0.1 if is_slow(place, p) else 1.0
        p.add_(p.grad, alpha=-group["lr"] * factor)
        place += 1  # noqa: SIM113 - enumerate is traced


def _is_large(p: Any) -> Any:
    return p.grad.norm() > 1e3


def _by_previous(optimizer: Any, group: Any) -> None:
    is_large = False
    for p in group["params"]:
        p.add_(p.grad, alpha=-group["lr"] * (0.1 if is_large else 1.0))
        is_large = bool(_is_large(p))


def _by_earlier(optimizer: Any, group: Any) -> None:
    is_large = False
    for p in group["params"]:
        is_large = is_large or bool(_is_large(p))
        p.add_(p.grad, alpha=-group["lr"] * (0.1 if is_large else 1.0))


def _until_large(optimizer: Any, group: Any) -> None:
    for p in group["params"]:
        if _is_large(p):
            break
        p.add_(p.grad, alpha=-group["lr"])


def _if_any(condition: Callable[[Any], Any]) -> Body:
    def body(optimizer: Any, group: Any) -> None:
        is_slow = any(condition(p) for p in group["params"])
        _update(group, lambda place, p: is_slow)

    return body


def _if_all(condition: Callable[[Any], Any]) -> Body:
    def body(optimizer: Any, group: Any) -> None:
        if all(condition(p) for p in group["params"]):
            _update(group)

    return body


def _by_flag(optimizer: Any, group: Any) -> None:
    is_large = False
    for p in group["params"]:
        if _is_large(p):
            is_large = True
    _update(group, lambda place, p: is_large)


def _by_one(place: int) -> Body:
    def body(optimizer: Any, group: Any) -> None:
        is_large = _is_large(group["params"][place])
        _update(group, lambda _, p: is_large)

    return body


def _running_norm(optimizer: Any, group: Any) -> None:
    total = 0.0
    for p in group["params"]:
        total = total + p.grad.norm()
        p.add_(p.grad / (1 + total), alpha=-group["lr"])


def _by_lookup(optimizer: Any, group: Any) -> None:
    factors = dict.fromkeys(group["params"], 1.0)
    factors[group["params"][0]] = 0.5
    _update(group, lambda place, p: factors[p] < 1)


def _by_place(number: int, condition: Callable[[Any], Any] = lambda p: True) -> Body:
    def body(optimizer: Any, group: Any) -> None:
        _update(group, lambda place, p: place == number and condition(p))

    return body


TRACED: dict[str, Body] = {
    "each by its own": lambda _, group: _update(group, lambda place, p: _is_large(p)),
    "any is large": _if_any(_is_large),
    "any is not finite": _if_any(lambda p: not torch.isfinite(p.grad).all()),
    "all are small": _if_all(lambda p: p.grad.norm() < 1e3),
    "all are finite": _if_all(lambda p: torch.isfinite(p.grad).all()),
    "by a flag": _by_flag,
}
REFUSED: dict[str, Body] = {
    "by the first": _by_one(0),
    "by the last": _by_one(-1),
    "by the previous one": _by_previous,
    "by the earlier ones": _by_earlier,
    "until one is large": _until_large,
    "by a running norm": _running_norm,
    "by a table of parameters": _by_lookup,
    "first": lambda _, group: _update(group, lambda place, p: p is group["params"][0]),
    "place in a list": lambda _, group: _update(
        group, lambda place, p: [q is p for q in group["params"]].index(True) >= 4
    ),
    **{f"place {number}": _by_place(number) for number in (1, 2, 5, 20)},
    **{f"place {number} and large": _by_place(number, _is_large) for number in (1, 3, 8)},
}
SHAPES = ((4, 6), (3, 5), (6, 2), (2, 7))


def parameters(shapes: Sequence[tuple[int, ...]]) -> list[torch.nn.Parameter]:
    rng = np.random.default_rng(2)
    return [torch.nn.Parameter(torch.tensor(rng.normal(size=shape))) for shape in shapes]


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("name", list(TRACED))
def test_a_condition_on_each_or_on_all_parameters_is_followed(name: str) -> None:
    kind = stepped(TRACED[name])
    rule = cf.from_torch(kind(parameters(SHAPES[:2])))
    assert isinstance(rule, cf.UpdateRule)
    for large in (0, 3):
        for value in (1e5, np.nan):
            params = parameters(SHAPES)
            optimizer = kind(params)
            start = {f"p{k}": p.detach().numpy().copy() for k, p in enumerate(params)}
            session = cf.OptimizerSession(rule, start)
            rng = np.random.default_rng(1)
            for step in range(3):
                grads = [rng.normal(size=shape) for shape in SHAPES]
                if large is not None and step == 1:
                    grads[large][0, 0] = value
                for p, gradient in zip(params, grads, strict=True):
                    p.grad = torch.tensor(gradient)
                optimizer.step()
                session.step({f"p{k}": gradient for k, gradient in enumerate(grads)})
            for k, p in enumerate(params):
                # Three sums of products, which cancel in one element.
                np.testing.assert_allclose(
                    session.params[f"p{k}"], p.detach().numpy(), rtol=1e-14, atol=1e-15
                )


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("name", list(REFUSED))
def test_a_step_that_depends_on_the_place_is_refused(name: str) -> None:
    with pytest.raises(TraceError, match=r"another (one|formula|step)|differs from"):
        cf.from_torch(stepped(REFUSED[name])(parameters(SHAPES[:2])))


def test_the_number_of_groups_of_lists_of_parameters_is_a_constant() -> None:
    def body(optimizer: Any, group: Any) -> None:
        by_dtype = {torch.float32: ([group["params"]], [0])}
        if len(by_dtype) == 1:
            _update(group)

    optimizer = stepped(body)(parameters(SHAPES[:2]))
    assert cf.from_torch(optimizer) == cf.from_torch(
        stepped(lambda _, group: _update(group))(parameters(SHAPES[:2]))
    )


# --- param groups --------------------------------------------------------------------------------


class Joint(torch.optim.Optimizer):
    """An optimizer whose step is a function of itself."""

    body: Callable[[Any], None]

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        type(self).body(self)


def _with_lr_of(place: int) -> Callable[[Any], None]:
    def body(optimizer: Any) -> None:
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.add_(p.grad, alpha=-optimizer.param_groups[place]["lr"])

    return body


def _by_place_of_group(optimizer: Any) -> None:
    for place, group in enumerate(optimizer.param_groups):
        for p in group["params"]:
            p.add_(p.grad, alpha=-group["lr"] / (place + 1))


def _first_group_only(optimizer: Any) -> None:
    for p in optimizer.param_groups[0]["params"]:
        p.add_(p.grad, alpha=-optimizer.param_groups[0]["lr"])


def _by_norm(optimizer: Any, *, is_of_all: bool) -> None:
    for group in optimizer.param_groups:
        groups = optimizer.param_groups if is_of_all else [group]
        total = sum(p.grad.pow(2).sum() for one in groups for p in one["params"])
        for p in group["params"]:
            p.sub_(p.grad / (1 + total), alpha=group["lr"])


GROUPED: dict[str, Callable[[Any], None]] = {
    "the rate of the first": _with_lr_of(0),
    "the rate of the last": _with_lr_of(-1),
    "by the place": _by_place_of_group,
    "the first alone": _first_group_only,
    "the norm of each": lambda optimizer: _by_norm(optimizer, is_of_all=False),
}


@pytest.mark.parametrize("name", list(GROUPED))
@pytest.mark.parametrize("rates", [(0.1, 0.2), (0.1, 0.1)])
def test_what_one_group_takes_from_another_is_refused(
    name: str, rates: tuple[float, float]
) -> None:
    messages = {"by the place": "the place of a parameter is used in arithmetic"}
    message = messages.get(name, "with the other groups than without them")
    with pytest.raises(TraceError, match=message):
        cf.from_torch(_joint(GROUPED[name], rates))


def test_a_norm_of_all_groups_is_of_the_whole_model() -> None:
    rules = cf.from_torch(_joint(lambda optimizer: _by_norm(optimizer, is_of_all=True), (0.1, 0.2)))
    assert isinstance(rules, list)
    assert all(any(e.has(GlobalSum) for e in rule.all_expressions()) for rule in rules)


def _joint(body: Callable[[Any], None], rates: tuple[float, float]) -> Joint:
    kind = type("Joint", (Joint,), {"body": staticmethod(body)})
    first, second, third = parameters(((4, 3), (3,), (5,)))
    groups = [{"params": [first, second], "lr": rates[0]}, {"params": [third], "lr": rates[1]}]
    optimizer: Joint = kind(groups)
    return optimizer


# --- kinds of parameters -------------------------------------------------------------------------


def _plainly(optimizer: Any, group: Any) -> None:
    for p in group["params"]:
        if p.grad is not None:
            p.sub_(p.grad - p.grad.mean(), alpha=group["lr"])


@pytest.mark.parametrize(
    "param",
    [
        torch.zeros(0, 3),
        torch.zeros(2, 3, dtype=torch.float64),
        torch.zeros(2, 3, dtype=torch.bfloat16),
        torch.zeros(2, 3, device="meta"),
    ],
    ids=["without elements", "float64", "bfloat16", "meta"],
)
def test_parameters_of_a_group_may_differ_in_size_and_dtype(param: torch.Tensor) -> None:
    kind = stepped(_plainly)
    plain = cf.from_torch(kind([torch.nn.Parameter(torch.zeros(2, 3))]))
    mixed = [torch.nn.Parameter(torch.zeros(2, 3)), torch.nn.Parameter(param)]
    assert cf.from_torch(kind(mixed)) == plain


@pytest.mark.parametrize(
    ("param", "what"),
    [
        (torch.zeros(2, 3, dtype=torch.complex64), "complex64"),
        (torch.arange(3), "int64"),
        (torch.eye(3).to_sparse(), "sparse_coo"),
    ],
)
def test_parameters_that_are_not_dense_floats_are_refused(param: torch.Tensor, what: str) -> None:
    mixed = [torch.zeros(2, 3), torch.nn.Parameter(param, requires_grad=False)]
    with pytest.raises(TraceError, match=f"expected dense parameters of floats, got {what}"):
        cf.from_torch(stepped(_plainly)(mixed))
