"""Sums of rows at places that repeat: right with threads, and added to the other part."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, embedding, interpolate

from closedform import optimizers, transforms
from closedform.runtime.onnx_session import open_session, run_on
from closedform.training import TrainSession, export
from closedform.training.to_onnx.scattered_sums import add_at_places
from closedform.training.to_onnx.trace import trace

_ROWS, _WIDTH = 40, 8

# The logits of looked-up rows; how many sums of rows the gradient of the weight has.
USES: dict[str, tuple[Callable[[torch.Tensor, torch.Tensor], torch.Tensor], int]] = {
    "output layer": (lambda w, ids: torch.tanh(embedding(ids, w)) @ w.T, 1),
    "padding": (lambda w, ids: torch.tanh(embedding(ids, w, padding_idx=3)) @ w.T, 1),
    "index": (lambda w, ids: torch.tanh(w[ids]) @ w.T, 1),
    "from the end": (lambda w, ids: torch.tanh(w[ids - _ROWS]) @ w.T, 1),
    "two look-ups": (lambda w, ids: (embedding(ids, w) + embedding(ids + 1, w)) @ w.T, 2),
    "look-ups only": (lambda w, ids: torch.exp(embedding(ids, w) * w[ids + 1]) * 0.1, 2),
    "a norm": (lambda w, ids: embedding(ids, w) * w.square().sum() * 0.01, 1),
}


class _Shared(nn.Module):
    def __init__(self, use: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(_ROWS, _WIDTH))
        self._use = use

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self._use(self.weight, ids)


def _loss(output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return cross_entropy(output.flatten(0, 1), labels.flatten())


@pytest.mark.sample(every=8)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("use", USES)
def test_rows_are_added_to_the_other_part(use: str, dtype: torch.dtype, tmp_path: Path) -> None:
    forward, sums = USES[use]
    model = _Shared(forward).to(dtype)
    ids = torch.tensor([[3, 3, 3, 1], [3, 7, 0, 1], [38, 38, 3, 7]])  # rows of several places
    labels = ids % _WIDTH
    is_narrow = dtype is torch.float16
    rule = transforms.master_weights(optimizers.sgd(1.0), "f16") if is_narrow else None
    compute_dtype = "f32" if is_narrow else None
    rule = rule or optimizers.sgd(1.0)
    export(model, _loss, (ids, labels), rule, tmp_path, compute_dtype=compute_dtype)
    graph = onnx.load(tmp_path / "train.onnx").graph
    adders = [node for node in graph.node if b"add" in (a.s for a in node.attribute)]
    assert [node.op_type for node in adders] == ["ScatterElements"] * sums
    producers = {output: node for node in graph.node for output in node.output}
    shapes = {
        value.name: [size.dim_value for size in value.type.tensor_type.shape.dim]
        for value in onnx.shape_inference.infer_shapes(
            onnx.load(tmp_path / "train.onnx")
        ).graph.value_info
    }
    added = [
        node
        for node in graph.node
        if node.op_type == "Add"
        and any(name in producers and producers[name] in adders for name in node.input)
        and shapes.get(node.output[0]) == [_ROWS, _WIDTH]
    ]
    assert not added
    session = TrainSession(tmp_path, threads=1)
    session.step((ids.numpy(), labels.numpy()))
    wide = _Shared(forward).to(dtype).double()
    _loss(wide(ids), labels).backward()
    gradient = wide.weight.grad
    assert gradient is not None
    expected = (wide.weight - gradient).detach().numpy()
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-12, torch.float16: 2e-3}[dtype]
    scale = np.abs(gradient.numpy()).max() + 1
    assert np.abs(session.params["weight"] - expected).max() <= tolerance * scale


PLACES: dict[str, tuple[tuple[int, ...], list[torch.Tensor | None], tuple[int, ...]]] = {
    "rows": ((7, 3), [torch.tensor([1, 5, 1, 1])], (4, 3)),
    "a matrix of rows": ((7, 3), [torch.tensor([[1, 5], [1, 1]])], (2, 2, 3)),
    "one row": ((7, 3), [torch.tensor(4)], (3,)),
    "int32": ((7, 3), [torch.tensor([1, 1], dtype=torch.int32)], (2, 3)),
    "one source for all": ((7, 3), [torch.tensor([1, 5, 1])], (1,)),
    "columns": ((2, 7, 3), [None, torch.tensor([1, 5, 1])], (2, 3, 3)),
    "the last axis": ((2, 7), [None, torch.tensor([[1, 5], [1, 1]])], (2, 2, 2)),
    "pairs": ((5, 6, 2), [torch.tensor([1, 1, 4]), torch.tensor([2, 2, -1])], (3, 2)),
    "all pairs": ((2, 5, 6), [None, torch.tensor([[1], [1]]), torch.tensor([2, -4])], (2, 2, 2)),
    "separated": ((5, 2, 6), [torch.tensor([1, 1]), None, torch.tensor([-1, 5])], (2, 2)),
    "three axes": ((3, 4, 5), [torch.tensor([1, 1]), torch.tensor(2), torch.tensor([-1, 4])], (2,)),
    "an infinite row": ((7, 3), [torch.tensor([1, 5, 1])], (3, 3)),
    "no rows": ((7, 3), [torch.tensor([], dtype=torch.int64)], (0, 3)),
}


@pytest.mark.parametrize("kind", PLACES)
def test_the_sum_is_that_of_torch(kind: str) -> None:
    shape, indices, of_source = PLACES[kind]
    generator = torch.Generator().manual_seed(0)
    value = torch.randn(shape, generator=generator, dtype=torch.float64)
    source = torch.randn(of_source, generator=generator, dtype=torch.float64)
    if "infinite" in kind:
        source[1] = torch.tensor([torch.inf, -torch.inf, torch.nan])
    wide = [None if index is None else index.long() for index in indices]
    expected = torch.ops.aten.index_put.default(value, wide, source, True)
    total = add_at_places(value, indices, source, True)
    # Of four addends at most, in any order.
    torch.testing.assert_close(total, expected, rtol=1e-14, atol=1e-14, equal_nan=True)


def test_masks_and_replacements_are_left_to_the_exporter() -> None:
    value, rows = torch.zeros(4, 2), torch.ones(2, 2)
    mask = torch.tensor([True, False, True, False])
    assert add_at_places(value, [mask], rows, True) is NotImplemented
    assert add_at_places(value, [torch.tensor([1, 1])], rows, False) is NotImplemented


_COUNT = 65

SIDES = {_COUNT: (13, 5), 8_000: (80, 100), 50_000: (250, 200)}
"""Rows of tables, as a product of two sides."""

Tensor = torch.Tensor
LARGE: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "embedding": lambda table, ids, x: (embedding(ids, table) * x).mean(),
    "index": lambda table, ids, x: (table[ids] * x).mean(),
    "two axes": lambda table, ids, x: (in_two(table)[ids % 13, ids % 5] * x).mean(),
    "index_add": lambda table, ids, x: (
        torch.zeros(3, 64, dtype=x.dtype)
        .index_add(0, ids.flatten() % 3, (table[ids] * x).flatten(0, 1))
        .square()
        .mean()
    ),
    "index_put": lambda table, ids, x: (
        torch.zeros(5, 64, dtype=x.dtype)
        .index_put((ids % 5,), table[ids] * x, accumulate=True)
        .square()
        .mean()
    ),
    "interpolate": lambda table, ids, x: (
        interpolate(table[None, None] * x.mean(), size=(256, 512), mode="bilinear").square().mean()
    ),
}
"""Functions of a table of at least 65 rows, with many numbers for each of the first ones."""


def in_two(table: Tensor) -> Tensor:
    """The rows of a table in two axes."""
    return table.view(*SIDES[len(table)], -1)


class _Table(nn.Module):
    def __init__(self, function: Callable[[Tensor, Tensor, Tensor], Tensor], count: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(count, 64))
        self._function = function

    def forward(self, ids: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return self._function(self.weight, ids, x)


def _batch(rows: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Indices of which the first ones repeat most, as words do, and factors of the rows."""
    torch.manual_seed(1)
    return (torch.rand(rows, 64) ** 4 * count).long(), torch.randn(rows, 64, 64)


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("repetitions", [3, pytest.param(60, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize(
    "count",
    [_COUNT, *(pytest.param(count, marks=pytest.mark.exhaustive) for count in (8_000, 50_000))],
)
@pytest.mark.parametrize("name", LARGE)
def test_gradients_of_large_batches_are_right_with_threads(
    name: str, count: int, repetitions: int
) -> None:
    model, wide = _Table(LARGE[name], count), _Table(LARGE[name], count).double()
    step = trace(model, None, _batch(4, count)).step
    ids, x = _batch(128, count)
    wide(ids, x.double()).backward()
    assert wide.weight.grad is not None
    expected = wide.weight.grad.numpy()
    feeds = {"param.weight": model.weight.detach(), "batch.ids": ids, "batch.x": x}
    arrays = {name: value.numpy() for name, value in feeds.items()}
    for threads in (1, 2, None):
        session = open_session(step, threads=threads)
        for _ in range(repetitions):
            results = dict(zip(session.outputs, run_on(session, arrays), strict=True))
            # Sums of some hundred rows of both signs; a lost row is an error of 1e-2 or more.
            error = np.abs(results["grad.weight"] - expected).max() / np.abs(expected).max()
            assert error <= 2e-6, (threads, error)


def _file_of_sums() -> onnx.ModelProto:
    """A table to which another tool adds rows by ScatterND."""
    element = onnx.TensorProto.FLOAT
    node = onnx.helper.make_node("ScatterND", ["table", "j", "u"], ["y"], reduction="add")
    inputs = [
        onnx.helper.make_tensor_value_info("j", onnx.TensorProto.INT64, ["n", 1]),
        onnx.helper.make_tensor_value_info("u", element, ["n", 4]),
    ]
    output = onnx.helper.make_tensor_value_info("y", element, [_COUNT, 4])
    table = np.random.default_rng(0).normal(size=(_COUNT, 4)).astype(np.float32)
    constants = [onnx.numpy_helper.from_array(table, "table")]
    graph = onnx.helper.make_graph([node], "sums", inputs, [output], constants)
    opsets = [onnx.helper.make_opsetid("", 18)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9)


def test_a_trained_file_has_no_sum_that_depends_on_threads(tmp_path: Path) -> None:
    path = tmp_path / "sums.onnx"
    path.write_bytes(_file_of_sums().SerializeToString())
    j, u = torch.randint(0, _COUNT, (200, 1)), torch.randn(200, 4)
    example = {"j": j, "u": u, "target": torch.zeros(_COUNT, 4)}
    axes = {"j": {0: "n"}, "u": {0: "n"}}
    options: dict[str, Any] = {"trainable": ["table"], "dynamic_axes": axes}
    export(path, "mse", example, optimizers.sgd(0.1), tmp_path / "run", **options)
    # A ThreadsWarning is an error of a test.
    session = TrainSession(tmp_path / "run", threads=2)
    table = torch.from_numpy(session.params["table"].copy())
    expected = table.index_add(0, j[:, 0], u)
    result = session.predict(j.numpy(), u.numpy())
    np.testing.assert_allclose(result, expected.numpy(), rtol=1e-5, atol=1e-5)
    file = session.to_onnx(tmp_path / "trained.onnx")
    assert [value.name for value in file.graph.input] == ["j", "u"]
    assert "ScatterND" not in {node.op_type for node in file.graph.node}
