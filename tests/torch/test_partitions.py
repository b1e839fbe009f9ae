"""Rules by blocks in every engine, beside separate parameters: the same bits, files, checkpoints.

The expressions are compared in ``tests/language/test_partitions.py``.
"""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import closedform as cf
from closedform import optimizers
from closedform.errors import ClosedFormError
from closedform.language.partitions import Partition
from closedform.runtime import OptimizerSession
from closedform.torch import Optimizer
from tests.language.test_partitions import CASES, LAYOUTS, RULES
from tests.support.extras import skip_for_module
from tests.torch.training import COMPILING
from tests.verify.translation.test_rule_files import content_of

Array = NDArray[Any]


def _drawn(shape: tuple[int, ...]) -> tuple[Array, Array]:
    rng = np.random.default_rng(3)
    start, gradients = rng.normal(size=shape), rng.normal(size=(3, *shape))
    return start.astype(np.float32), gradients.astype(np.float32)


@pytest.mark.sample(every=6)
@pytest.mark.parametrize(("name", "layout"), CASES)
def test_sessions_have_the_bits_of_separate_parameters(name: str, layout: str) -> None:
    blocks, shape, indices = LAYOUTS[layout]
    start, gradients = _drawn(shape)
    joint = OptimizerSession(RULES[name](partitions=blocks), {"w": start.copy()})
    parts = {f"w{place}": start[index].copy() for place, index in enumerate(indices)}
    separate = OptimizerSession(RULES[name](), parts)
    for gradient in gradients:
        joint.step({"w": gradient})
        grads = [np.ascontiguousarray(gradient[index]) for index in indices]
        separate.step({f"w{place}": grad for place, grad in enumerate(grads)})
    for place, index in enumerate(indices):
        np.testing.assert_array_equal(joint.params["w"][index], separate.params[f"w{place}"])


@pytest.mark.sample(every=6)
@pytest.mark.parametrize(("name", "layout"), CASES)
def test_torch_has_the_bits_of_separate_parameters(name: str, layout: str) -> None:
    _compare_in_torch(name, layout, "eager")


@pytest.mark.filterwarnings(COMPILING)
@pytest.mark.exhaustive  # a compiler runs
def test_compiled_steps_are_those_of_separate_parameters() -> None:
    # Three steps of three iterations, whose sums the compiler contracts by shape: a few 6e-8.
    _compare_in_torch("muon", "heads of GPT-NeoX", "compile", 1e-6)


def _compare_in_torch(name: str, layout: str, backend: str, tolerance: float = 0) -> None:
    blocks, shape, indices = LAYOUTS[layout]
    start, gradients = _drawn(shape)
    param = torch.nn.Parameter(torch.tensor(start))
    parts = [torch.nn.Parameter(torch.tensor(start[index])) for index in indices]
    joint = Optimizer([param], RULES[name](partitions=blocks), backend=backend)
    separate = Optimizer(parts, RULES[name](), backend=backend)
    for gradient in gradients:
        param.grad = torch.tensor(gradient)
        for part, index in zip(parts, indices, strict=True):
            part.grad = torch.tensor(gradient[index])
        joint.step()
        separate.step()
    for part, index in zip(parts, indices, strict=True):
        torch.testing.assert_close(param.detach()[index], part.detach(), rtol=0, atol=tolerance)


@pytest.mark.parametrize("layout", ["q, k, v of Llama", "heads of GPT-NeoX", "experts"])
def test_jax_steps_as_the_session(layout: str) -> None:
    skip_for_module("jax")
    blocks, shape, _ = LAYOUTS[layout]
    start, gradients = _drawn(shape)
    rule = RULES["muon"](partitions=blocks)
    session = OptimizerSession(rule, {"w": start.copy()})
    transformation = cf.to_jax(rule)
    params: Any = {"w": start}
    state = transformation.init(params)
    for gradient in gradients:
        session.step({"w": gradient})
        updates, state = transformation.update({"w": gradient}, state, params)
        params = {"w": params["w"] + updates["w"]}
    # Three steps of three iterations on float32 numbers near 1, added in other orders.
    np.testing.assert_allclose(params["w"], session.params["w"], rtol=1e-5, atol=1e-6)


# SOAP and Dion unroll decompositions: 40 s and 10 s of proof.
FILES = [("muon", "q, k, v of Llama"), ("normuon", "heads of GPT-NeoX"), ("adamuon", "experts")]
FILES += [("scion", "columns of GPT-2's Conv1D"), ("shampoo", "groups of Megatron")]
SLOW_FILES = [("dion", "gate and up"), ("soap", "q, k, v of Llama")]


@pytest.mark.parametrize(
    ("name", "layout"),
    [*FILES, *(pytest.param(*case, marks=pytest.mark.exhaustive) for case in SLOW_FILES)],
)
def test_files_are_proved(name: str, layout: str, tmp_path: Path) -> None:
    blocks, shape, _ = LAYOUTS[layout]
    models = cf.to_onnx(RULES[name](partitions=blocks), tmp_path, params={"w": shape})
    assert isinstance(models, dict)
    for model in models.values():
        assert content_of(model)["status"] == "PROVED"


def test_checkpoints_have_the_shape_of_the_parameter_and_of_its_blocks() -> None:
    blocks, shape, _ = LAYOUTS["q, k, v of Llama"]
    start, gradients = _drawn(shape)
    results = []
    for is_resumed in (False, True):
        param = torch.nn.Parameter(torch.tensor(start))
        optimizer = Optimizer([param], RULES["dion"](partitions=blocks))
        for step, gradient in enumerate(gradients):
            if is_resumed and step == 2:
                saved = copy.deepcopy(optimizer.state_dict())
                optimizer = Optimizer([param], RULES["dion"](partitions=blocks))
                optimizer.load_state_dict(saved)
            param.grad = torch.tensor(gradient)
            optimizer.step()
        shapes = {name: tuple(value.shape) for name, value in optimizer.state[param].items()}
        del shapes["step"]
        assert shapes == {"momentum": shape, **{f"block_{i}_Q": (4, 2) for i in range(3)}}
        results.append(param.detach())
    torch.testing.assert_close(*results, rtol=0, atol=0)


def test_a_checkpoint_of_muon_is_continued_by_blocks() -> None:
    """The momentum has the shape of the parameter with and without blocks."""
    param = torch.nn.Parameter(torch.ones(10, 4))
    param.grad = torch.full((10, 4), 0.5)
    optimizer = Optimizer([param], optimizers.muon(0.1))
    optimizer.step()
    by_blocks = Optimizer([param], optimizers.muon(0.1, partitions=(6, 2, 2)))
    by_blocks.load_state_dict(optimizer.state_dict())
    buffers = [each.state[param]["momentum_buffer"] for each in (optimizer, by_blocks)]
    torch.testing.assert_close(*buffers, rtol=0, atol=0)


def test_a_header_in_c_is_refused_as_that_of_the_rule() -> None:
    for partitions in (None, Partition(2)):
        with pytest.raises(ClosedFormError, match="this rule looks at shapes"):
            cf.to_c(optimizers.muon(partitions=partitions))
