"""Torch modules: values, devices and dtypes, compile and export, copies, and schedules."""

import copy
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from closedform.errors import ExportError, SessionError
from closedform.exporters.torch_module import ScheduleModule, to_module
from closedform.ir.graph import Builder, Graph, Role, scalar
from closedform.ir.ops import Op
from closedform.ir.types import DType, TensorType
from tests.exporters.graphs import (
    cosine_graph,
    cycle_graph,
    milestones_graph,
    momentum_init,
    momentum_step,
)
from tests.support.engines import run_evaluator, run_torch, steps_apart

N = ("n",)
STEPS = np.array([0, 9, 10, 29, 30, 59, 60, 99, 100, 10**9])
SCHEDULES = (cosine_graph(N), milestones_graph(N), cycle_graph(N))
SHAPES = {"w": (2, 3), "layer.0.bias": (3,), "s": ()}


def expected_values(graph: Graph) -> torch.Tensor:
    return torch.from_numpy(run_evaluator(graph, {"step": STEPS})["value"])


def momentum_inputs() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(30)
    graph = momentum_step(SHAPES)
    return {
        node.attribute("name"): np.array(
            3
            if node.attribute("role") is Role.STEP
            else generator.normal(size=tuple(int(dim) for dim in node.type.shape)),
            node.type.dtype.numpy,
        )
        for node in graph.inputs
    }


@pytest.mark.parametrize("graph", SCHEDULES, ids=lambda graph: graph.name)
def test_schedules_agree_with_the_evaluator(graph: Graph) -> None:
    torch.testing.assert_close(
        ScheduleModule(graph)(torch.from_numpy(STEPS)),
        expected_values(graph),
        rtol=1e-14,
        atol=1e-17,
    )


def test_a_step_agrees_with_the_evaluator_and_keeps_the_order_of_outputs() -> None:
    graph = momentum_step(SHAPES)
    inputs = momentum_inputs()
    actual, expected = run_torch(graph, inputs), run_evaluator(graph, inputs)
    assert list(actual) == [output.name for output in graph.outputs]
    for name, value in expected.items():
        assert steps_apart(actual[name], value) <= 8, name


def test_names_of_inputs_become_parameters_of_forward() -> None:
    b = Builder("names")
    names = ("a.b", "a_b", "lambda", "self", "torch", "2nd", "x")
    total = b.const(0.0, DType.F64)
    for name in names:
        total = b.emit(Op.ADD, total, b.input(name, scalar(DType.F64), Role.HYPER))
    b.output("total", total)
    module = to_module(b.build())
    assert module.input_names == names
    assert module.output_names == ("total",)
    ones = [torch.ones((), dtype=torch.float64) for _ in names]
    assert module(*ones) == 7
    assert module(*ones[:-1], x=ones[-1]) == 7


@pytest.mark.parametrize("value", [0.1, np.inf, -np.inf, np.nan, -0.0, 5e-324, 2.0**60 + 2.0**10])
@pytest.mark.parametrize("op", [Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.LT, Op.MIN])
@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
def test_constants_are_exact(op: Op, value: float, is_first: bool, dtype: DType) -> None:
    b = Builder("constants")
    x = b.input("x", TensorType(dtype, N), Role.PARAM)
    operands = (b.const(value, dtype), x)
    b.output("y", b.emit(op, *(operands if is_first else operands[::-1])))
    graph = b.build()
    inputs = {"x": np.array([0.3, -0.0, 1e-30, 7.0], dtype.numpy)}
    assert steps_apart(run_torch(graph, inputs)["y"], run_evaluator(graph, inputs)["y"]) == 0


def test_integer_constants_keep_all_bits() -> None:
    b = Builder("integers")
    x = b.input("x", scalar(DType.I64), Role.STEP)
    b.output("y", b.emit(Op.SUB, x, b.const(2**53 + 1, DType.I64)))
    assert run_torch(b.build(), {"x": np.array(2**53 + 2)})["y"] == 1


def test_a_constant_of_both_zeros_keeps_their_signs() -> None:
    b = Builder("zeros")
    x = b.input("x", TensorType(DType.F64, (2,)), Role.PARAM)
    zeros = b.const(np.array([0.0, -0.0]), DType.F64)
    b.output("y", b.emit(Op.DIV, x, zeros))
    result = run_torch(b.build(), {"x": np.ones(2)})["y"]
    assert result.tolist() == [np.inf, -np.inf]


def test_a_module_has_no_state_and_rounds_once_to_the_dtype_that_it_is_moved_to() -> None:
    module = ScheduleModule(cosine_graph(N))
    assert module.state_dict() == {}
    assert list(module.parameters()) == []
    assert list(module.buffers()) == []
    whole = nn.Sequential(module)
    for move, dtype in (
        (whole.half, torch.float16),
        (module.float, torch.float32),
        (lambda: whole.to(torch.bfloat16), torch.bfloat16),
        (lambda: module.to(torch.float64), torch.float64),
    ):
        move()
        value = module(torch.tensor(37))
        assert value.dtype is dtype
        assert value == torch.tensor(expected_at(37), dtype=torch.float64).to(dtype)
        assert copy.deepcopy(module)(torch.tensor(37)).dtype is dtype


def expected_at(step: int) -> float:
    return float(run_evaluator(cosine_graph(), {"step": np.array(step)})["value"])


def test_constants_are_made_on_the_device_of_the_first_input() -> None:
    module = ScheduleModule(milestones_graph(N))
    value = module(torch.zeros((2, 3), dtype=torch.int64, device="meta"))
    assert value.device.type == "meta"
    assert value.shape == (2, 3)


def test_outputs_share_no_memory() -> None:
    b = Builder("outputs")
    x = b.input("x", TensorType(DType.F32, (2, 3)), Role.PARAM)
    b.output("same", x)
    b.output("turned", b.emit(Op.TRANSPOSE, x, permutation=(1, 0)))
    b.output("cast", b.emit(Op.CAST, x, to=DType.F32))
    b.output("sum", b.emit(Op.REDUCE_SUM, x, axes=(), keepdims=False))
    zero = b.emit(Op.BROADCAST_TO, b.const(0.0, DType.F32), shape=(4,))
    b.output("first", zero)
    b.output("second", zero)
    doubled = b.emit(Op.ADD, x, x)
    b.output("doubled", doubled)
    b.output("again", doubled)
    given = torch.ones(2, 3)
    results = to_module(b.build())(given)
    places = {result.untyped_storage().data_ptr() for result in (given, *results)}
    assert len(places) == 9
    assert all(result.is_contiguous() for result in results)


def test_copies_and_pickles_compute_the_same(tmp_path: Path) -> None:
    module = ScheduleModule(cosine_graph(N), {})
    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    again = torch.load(buffer, weights_only=False)
    for other in (copy.copy(module), copy.deepcopy(module), again):
        assert isinstance(other, ScheduleModule)
        assert other(torch.tensor(37)) == expected_at(37)
    program = copy.deepcopy(to_module(momentum_step(SHAPES)))
    assert program.source == momentum_step(SHAPES)
    assert program.input_names[0] == "step"


def test_a_module_without_inputs_makes_its_constants() -> None:
    graph = momentum_init(SHAPES)
    results = dict(zip((o.name for o in graph.outputs), to_module(graph)(), strict=True))
    assert results["step"] == 0
    assert results["step"].dtype is torch.int64
    assert results["state.w.velocity"].shape == (2, 3)


def test_modules_compile_as_one_graph() -> None:
    module = ScheduleModule(cosine_graph(N))
    torch._dynamo.reset()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    steps = torch.from_numpy(STEPS)
    assert torch.equal(compiled(steps), module(steps))
    assert torch.equal(compiled(steps[:4].reshape(2, 2)), module(steps[:4].reshape(2, 2)))
    program = to_module(milestones_graph(N))
    assert torch.equal(
        torch.compile(program, fullgraph=True, backend="aot_eager")(steps), program(steps)
    )


def test_a_step_compiles_as_one_graph() -> None:
    module = to_module(momentum_step({"w": (2, 3)}))
    inputs = momentum_inputs()
    given = [torch.from_numpy(inputs[name]) for name in module.input_names]
    torch._dynamo.reset()
    results = torch.compile(module, fullgraph=True, backend="aot_eager")(*given)
    for actual, expected in zip(results, module(*given), strict=True):
        assert torch.equal(actual, expected)


def test_torch_export_with_a_free_size() -> None:
    size = torch.export.Dim("n", min=2)
    for graph in SCHEDULES:
        exported = torch.export.export(
            to_module(graph), (torch.arange(5),), dynamic_shapes=({0: size},)
        )
        torch.testing.assert_close(
            exported.module()(torch.from_numpy(STEPS)),
            expected_values(graph),
            rtol=1e-14,
            atol=1e-17,
        )


def test_vmap_and_grad() -> None:
    module = to_module(cosine_graph(has_peak_input=True))
    peak = torch.tensor(0.2, dtype=torch.float64, requires_grad=True)
    values = torch.vmap(module, in_dims=(0, None))(torch.arange(120), peak)
    values.sum().backward()
    at_one = run_evaluator(
        cosine_graph(N, has_peak_input=True), {"step": np.arange(120), "peak": np.array(1.0)}
    )
    assert peak.grad is not None
    assert float(peak.grad) == pytest.approx(at_one["value"].sum(), rel=1e-12)


@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint32]
)
def test_schedule_module_takes_integer_steps_of_any_dtype_and_shape(dtype: torch.dtype) -> None:
    module = ScheduleModule(milestones_graph(N))
    assert module(torch.tensor(37, dtype=dtype)) == 0.01
    steps = torch.tensor([[0, 30], [60, 80]], dtype=dtype)
    expected = torch.tensor([[0.1, 0.01], [0.001, 0.0001]], dtype=torch.float64)
    assert torch.equal(module(steps), expected)
    assert module(torch.zeros((2, 0), dtype=dtype)).shape == (2, 0)


def test_a_constant_schedule_has_the_shape_of_the_step() -> None:
    b = Builder("flat")
    b.input("step", TensorType(DType.I64, N), Role.STEP)
    b.output("value", b.const(0.5, DType.F64))
    assert torch.equal(
        ScheduleModule(b.build())(torch.arange(6).reshape(2, 3)),
        torch.full((2, 3), 0.5, dtype=torch.float64),
    )


def test_schedule_module_takes_hyper_inputs() -> None:
    module = ScheduleModule(cosine_graph(N, has_peak_input=True), {"peak": 0.1})
    assert module(torch.tensor(5)) == 0.05
    assert module(torch.tensor(5), peak=0.2) == 0.1
    assert module(torch.tensor(5), peak=torch.tensor(0.5)) == 0.25


COSINE = ScheduleModule(cosine_graph(N))
OPEN = ScheduleModule(cosine_graph(N, has_peak_input=True))

OUTSIDE = torch.tensor([-1, 0, 5, 2**50 + 1])


@pytest.mark.parametrize(
    "trace",
    [
        lambda: torch.compile(COSINE, backend="eager", fullgraph=True),
        lambda: torch.vmap(COSINE),
        lambda: torch.jit.trace(COSINE, torch.arange(4)),
        lambda: torch.export.export(COSINE, (torch.arange(4),)).module(),
        lambda: make_fx(COSINE)(torch.arange(4)),
    ],
    ids=["compile", "vmap", "jit", "export", "make_fx"],
)
@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_a_traced_step_outside_of_the_domain_is_nan(trace: Callable[[], Any]) -> None:
    values = trace()(OUTSIDE)
    assert values.isnan().tolist() == [True, False, False, True]
    assert torch.equal(values[1:3], COSINE(OUTSIDE[1:3]))


INVALID_CALLS = (
    (
        lambda: COSINE(torch.tensor(3.0)),
        "step must be an integer tensor, got torch.float32 (schedule 'cosine'): "
        "pass torch.tensor(step) or step.long()",
    ),
    (
        lambda: COSINE(torch.tensor([True])),
        "step must be an integer tensor, got torch.bool (schedule 'cosine'): "
        "pass torch.tensor(step) or step.long()",
    ),
    (
        lambda: COSINE(7),
        "step must be an integer tensor, got int (schedule 'cosine'): "
        "pass torch.tensor(step) or step.long()",
    ),
    (
        lambda: COSINE(torch.tensor(7), peak=1.0),
        "unknown hyper input 'peak' (schedule 'cosine'): it has none",
    ),
    (
        lambda: OPEN(torch.tensor(7), peek=1.0),
        "unknown hyper input 'peek' (schedule 'cosine'): did you mean 'peak'?",
    ),
    (lambda: OPEN(torch.tensor(7)), "hyper input 'peak' is missing (schedule 'cosine')"),
    (
        lambda: COSINE(torch.tensor([3, -1])),
        f"the step must be in 0..{2**50}, got -1 (schedule 'cosine'): "
        "pass the number of optimizer steps performed so far, starting at 0",
    ),
    (
        lambda: COSINE(torch.tensor(2**50 + 1)),
        f"the step must be in 0..{2**50}, got {2**50 + 1} (schedule 'cosine'): "
        "pass the number of optimizer steps performed so far, starting at 0",
    ),
)


@pytest.mark.parametrize(
    ("action", "message"), INVALID_CALLS, ids=[m[:32] for _, m in INVALID_CALLS]
)
def test_invalid_calls(action: object, message: str) -> None:
    assert callable(action)
    with pytest.raises(SessionError) as caught:
        action()
    assert str(caught.value) == message


def without_outputs() -> Graph:
    return Graph("mute", cosine_graph().nodes, ())


def with_wrong_value() -> Graph:
    b = Builder("grid")
    b.input("step", TensorType(DType.I64, N), Role.STEP)
    b.output("value", b.const([0.5, 0.25], DType.F64))
    return b.build()


def with_two_outputs() -> Graph:
    b = Builder("pair")
    step = b.input("step", TensorType(DType.I64, N), Role.STEP)
    b.output("value", step)
    b.output("next", step)
    return b.build()


INVALID_GRAPHS = (
    (
        lambda: to_module(without_outputs()),
        "the graph has no output (graph 'mute'): name a value as one",
    ),
    (
        lambda: ScheduleModule(cosine_graph()),
        "the step input must be a vector of a named size, got i64[] (graph 'cosine'): "
        "compile the schedule with step_shape=('n',)",
    ),
    (
        lambda: ScheduleModule(momentum_step({"w": (2,)})),
        "a schedule has one step input and else only hyper inputs, got roles "
        "step, param, grad, state, state (graph 'momentum')",
    ),
    (
        lambda: ScheduleModule(with_two_outputs()),
        "a schedule has one output, got 2 (graph 'pair')",
    ),
    (
        lambda: ScheduleModule(with_wrong_value()),
        "the output must have shape [n], got f64[2] (graph 'grid')",
    ),
)


@pytest.mark.parametrize(
    ("action", "message"), INVALID_GRAPHS, ids=[m[:32] for _, m in INVALID_GRAPHS]
)
def test_invalid_graphs(action: object, message: str) -> None:
    assert callable(action)
    with pytest.raises(ExportError) as caught:
        action()
    assert str(caught.value) == message


def test_a_module_can_be_part_of_a_module() -> None:
    model = nn.Sequential(to_module(cosine_graph(N)))
    assert model(torch.tensor([37])) == expected_at(37)
