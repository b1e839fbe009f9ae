"""Steps of torch optimizers with decompositions, transposed gradients and tensors in float64."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import closedform as cf
from closedform.errors import TraceError
from closedform.importers import torch_optimizer
from closedform.importers.tensors.check import RuleDeviation, relative_gap
from closedform.importers.torch_optimizer.check import _gaps_with_signs
from closedform.language.functions import RightSingularVectors
from tests.importers.test_torch_optimizer import Traced, parameters

CASES: dict[str, Callable[[torch.Tensor], Any]] = {
    "qr": lambda g: torch.linalg.qr(g)[0] + torch.linalg.qr(g * 2 + 1)[1].sum(),
    "svd": lambda g: g @ _root(g.T @ g + torch.eye(g.shape[1], dtype=g.dtype), -0.5),
    "eigh": lambda g: g @ _of_eigenvalues(g.T @ g, lambda v: 1 / (1 + v)),
    "diagonal": lambda g: g @ torch.diag(g.square().sum(0)) + torch.diag_embed(g.sum(1)) @ g,
    "wide qr": lambda g: torch.linalg.qr(g)[1],
    "transposed in place": lambda g: g.clone().transpose_(0, 1).contiguous().exp_().T,
}


def _root(x: torch.Tensor, exponent: float) -> Any:
    left, values, right = torch.linalg.svd(x, full_matrices=False)
    return (left * values.pow(exponent).unsqueeze(-2)) @ right


def _of_eigenvalues(x: torch.Tensor, function: Callable[[Any], Any]) -> Any:
    values, vectors = torch.linalg.eigh(x)
    return (vectors * function(values)) @ vectors.T


class Applies(Traced):
    """A step by a function of the gradient; the trace itself compares it with the rule."""

    def update(self, p: Any, g: Any, own: Any, group: Any) -> None:
        p.sub_(CASES[group["name"]](g), alpha=group["lr"])


class Projected(Traced):
    """A step along the first singular vector, or along its sizes, where its sign has no part."""

    def update(self, p: Any, g: Any, own: Any, group: Any) -> None:
        _, _, right = torch.linalg.svd(g, full_matrices=False)
        own["basis"] = right
        vector = right[:1] if group["has_sign"] else (g @ right.T).square() @ right.square()
        p.sub_(vector.expand_as(g) if group["has_sign"] else vector, alpha=group["lr"])


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Traces of few columns: a decomposition of 13 of them has thousands of operations."""
    monkeypatch.setitem(torch_optimizer._PRIMES, 2, ((2, 3), (5, 7)))


def traced(kind: type[Traced], **options: Any) -> cf.UpdateRule:
    rule = cf.from_torch(kind(parameters((4, 3)), **options))
    assert isinstance(rule, cf.UpdateRule)
    return rule


@pytest.mark.sample(every=2)
@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("name", ["qr", "svd", "eigh", "diagonal", "transposed in place"])
def test_a_decomposition_is_traced(name: str) -> None:
    rule = traced(Applies, name=name)
    kinds = [type(expr) for expr in rule.definitions.values()]
    assert (RightSingularVectors in kinds) == (name in ("svd", "eigh"))


@pytest.mark.usefixtures("_small")
def test_a_step_to_which_the_signs_of_vectors_matter_is_refused() -> None:
    assert "basis" in traced(Projected, has_sign=False).states
    with pytest.raises(TraceError, match="a slice 0:1 of an axis of a tensor has no expression"):
        traced(Projected, has_sign=True)


class Signed(Traced):
    def update(self, p: Any, g: Any, own: Any, group: Any) -> None:
        _, _, right = torch.linalg.svd(g, full_matrices=False)
        p.sub_(g @ right.T, alpha=group["lr"])


@pytest.mark.usefixtures("_small")
def test_a_step_along_singular_vectors_differs_from_its_rule() -> None:
    with pytest.raises(TraceError, match=r"differs from the optimizer by .* of param.*LAPACK"):
        traced(Signed)


@pytest.mark.usefixtures("_small")
def test_a_wide_matrix_has_no_qr_decomposition_here() -> None:
    with pytest.raises(TraceError, match=r"a QR decomposition of 2 rows and 3 columns with mode="):
        cf.from_torch(Applies(parameters((3, 4)), name="wide qr"))


class Widened(Traced):
    """Computes in float64, and asks for the dtype of parameters and of results."""

    def update(self, p: Any, g: Any, own: Any, group: Any) -> None:
        wide = p.double()
        wide.sub_(g.to(torch.float64), alpha=group["lr"])
        assert (wide * g).dtype is torch.float64
        assert wide is not p or p.dtype is torch.float64
        scale = 1.0 if p.dtype is torch.float32 else 2.0
        p.copy_(wide * scale)


def test_tensors_in_float64_are_distinguished_from_parameters() -> None:
    rule = traced(Widened)
    for dtype, factor in ((np.float32, 1.0), (np.float64, 2.0)):
        session = cf.OptimizerSession(rule, {"w": np.ones((2, 2), dtype)})
        session.step({"w": np.full((2, 2), 5, dtype)})
        np.testing.assert_allclose(session.params["w"], factor * (1 - 0.5), rtol=1e-6)


@pytest.mark.parametrize("gap", [1e-3, math.inf, math.nan])
def test_a_deviation_is_refused_with_its_tensor_and_its_cause(gap: float) -> None:
    deviation = RuleDeviation(gap, "state 'v'", 7)
    assert not deviation.is_small
    message = rf"differs from the optimizer by {gap:.3g} of the .* element of state 'v' at step 7"
    with pytest.raises(TraceError, match=rf"{message} \(Seven\): it rounds"):
        deviation.check("Seven", "optimizer", "it rounds")
    RuleDeviation(1e-11).check("Seven", "optimizer", "it rounds")


def test_states_are_equal_up_to_the_signs_of_vectors() -> None:
    basis = np.linalg.qr(np.random.default_rng(1).normal(size=(4, 3)))[0]
    flipped = basis * np.array([1.0, -1, -1])
    assert relative_gap(flipped, basis) > 1
    assert min(_gaps_with_signs(flipped, basis)) == 0
    assert min(_gaps_with_signs(flipped.T, basis.T)) == 0
    assert min(_gaps_with_signs(flipped * 1.001, basis)) > 1e-4
