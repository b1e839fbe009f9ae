"""Products of bfloat16 matrices: which sums are computed as such, and their values."""

import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.optim._muon import _zeropower_via_newtonschulz

from closedform import optimizers
from closedform.compiler import compile_step
from closedform.exporters import torch_module
from closedform.exporters.torch_module import GraphProgram, to_module
from closedform.exporters.torch_products import Bf16Sum, bf16_sums, open_factors
from closedform.exporters.torch_rule import RuleModule
from closedform.ir.graph import Builder, Graph, Role, Value
from closedform.ir.ops import Op
from closedform.ir.types import DType, Shape, TensorType
from closedform.optimizers.muon import POLAR_EXPRESS
from closedform.options import GraphOptions, ModelSpec

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


class Matrices(Builder):
    """A graph of matrices of bfloat16."""

    def matrix(self, name: str, shape: Shape) -> Value:
        """An input that is rounded to bfloat16."""
        return self.rounded(self.input(name, TensorType(DType.F32, shape), Role.GRAD))

    def rounded(self, value: Value) -> Value:
        """A value rounded to bfloat16, in float32."""
        return self.emit(Op.CAST, self.emit(Op.CAST, value, to=DType.BF16), to=DType.F32)

    def times(self, value: Value, factor: float) -> Value:
        """A multiple of a value."""
        return self.emit(Op.MUL, value, self.const(factor, DType.F32))

    def finished(self, value: Value) -> Graph:
        """The graph whose output is a value, rounded to bfloat16."""
        self.output("value", self.rounded(value))
        return self.build()


def graph_of_sum(shape: Shape, addend_factor: float, factor: float) -> Graph:
    """A sum with a product in several parts, as Muon states it."""
    graph = Matrices("sum")
    left, right = graph.matrix("left", shape), graph.matrix("right", shape)
    product = graph.emit(Op.MATMUL, left, right)
    most = graph.emit(Op.SUB, graph.times(product, 2.0), graph.times(left, 4.0))
    parts = graph.times(left, addend_factor + 4.0), graph.times(product, factor - 2.0)
    return graph.finished(graph.emit(Op.ADD, most, graph.emit(Op.ADD, *parts)))


def random_inputs(*shapes: Shape, seed: int = 3) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn([int(size) for size in shape], generator=generator) for shape in shapes]


@pytest.mark.parametrize("factors", [(-4.775, 2.0315), (0.5, -3.0), (1.0, 1.0)])
@pytest.mark.parametrize("shape", [(5, 5), (2, 4, 4)])
def test_a_sum_with_a_product_is_one_product_of_torch(
    shape: Shape, factors: tuple[float, float]
) -> None:
    graph = graph_of_sum(shape, *factors)
    (bf16_sum,) = bf16_sums(graph).values()
    assert (bf16_sum.addend_factor, bf16_sum.factor) == pytest.approx(factors, rel=1e-6)
    left, right = random_inputs(shape, shape)
    value = GraphProgram(graph, multiplies_bf16=True)(left, right)
    exact_left, exact_right = (part.bfloat16().double() for part in (left, right))
    exact = factors[0] * exact_left + factors[1] * (exact_left @ exact_right)
    # One rounding to bfloat16, by 2**-8; before it roundings of float32, of terms below 100.
    torch.testing.assert_close(value.double(), exact, rtol=2.0**-8, atol=100 * 2.0**-23)


def _unequal_addend(graph: Matrices) -> Value:
    left, right = graph.matrix("left", (3, 4)), graph.matrix("right", (4, 3))
    return graph.emit(Op.ADD, graph.emit(Op.MATMUL, left, right), graph.matrix("row", (1, 3)))


def _float32_operand(graph: Matrices) -> Value:
    wide = graph.input("wide", TensorType(DType.F32, (3, 3)), Role.GRAD)
    return graph.emit(Op.MATMUL, graph.matrix("left", (3, 3)), wide)


def _float32_addend(graph: Matrices) -> Value:
    left = graph.matrix("left", (3, 3))
    wide = graph.input("wide", TensorType(DType.F32, (3, 3)), Role.GRAD)
    return graph.emit(Op.ADD, graph.emit(Op.MATMUL, left, left), wide)


def _two_products(graph: Matrices) -> Value:
    left, right = graph.matrix("left", (3, 3)), graph.matrix("right", (3, 3))
    products = graph.emit(Op.MATMUL, left, right), graph.emit(Op.MATMUL, right, left)
    return graph.emit(Op.ADD, *products)


def _product_of_matrices(graph: Matrices) -> Value:
    left = graph.matrix("left", (3, 3))
    return graph.emit(Op.MUL, left, graph.emit(Op.MATMUL, left, left))


def _multiple(graph: Matrices) -> Value:
    left = graph.matrix("left", (3, 3))
    return graph.times(graph.emit(Op.MATMUL, left, left), 3.0)


def _broadcast_batch(graph: Matrices) -> Value:
    left, right = graph.matrix("left", (1, 3, 3)), graph.matrix("right", (2, 3, 3))
    return graph.emit(Op.ADD, graph.emit(Op.MATMUL, left, right), right)


def _float16(graph: Matrices) -> Value:
    value = graph.input("left", TensorType(DType.F32, (3, 3)), Role.GRAD)
    half = graph.emit(Op.CAST, graph.emit(Op.CAST, value, to=DType.F16), to=DType.F32)
    return graph.emit(Op.MATMUL, half, half)


@pytest.mark.parametrize(
    "write",
    [
        _unequal_addend,
        _float32_operand,
        _float32_addend,
        _two_products,
        _product_of_matrices,
        _multiple,
        _broadcast_batch,
        _float16,
    ],
)
def test_other_sums_stay_in_float32(write: Callable[[Matrices], Value]) -> None:
    matrices = Matrices("other")
    graph = matrices.finished(write(matrices))
    assert bf16_sums(graph) == {}
    program = to_module(graph)
    assert program.on(CUDA) is program


def test_a_product_of_moved_matrices_is_one_of_bfloat16() -> None:
    matrices = Matrices("moved")
    left = matrices.matrix("left", (2, 6))
    narrow = matrices.emit(
        Op.TRANSPOSE, matrices.emit(Op.RESHAPE, left, shape=(3, 4)), permutation=(1, 0)
    )
    graph = matrices.finished(
        matrices.emit(Op.MATMUL, narrow, matrices.emit(Op.RESHAPE, left, shape=(3, 4)))
    )
    assert list(bf16_sums(graph).values()) == [Bf16Sum(narrow.index, narrow.index - 1)]
    (value,) = random_inputs((2, 6))
    native = GraphProgram(graph, multiplies_bf16=True)(value)
    matrix = value.bfloat16().reshape(3, 4)
    assert torch.equal(native, (matrix.T @ matrix).float())


RULES: dict[str, Callable[..., Any]] = {
    "fused": lambda **options: optimizers.muon(precision="bf16_fused", **options),
    "each operation": lambda **options: optimizers.muon(precision="bf16", **options),
    "polar": lambda **options: optimizers.muon(
        precision="bf16_fused", ns_coefficients=POLAR_EXPRESS, **options
    ),
}


@pytest.mark.parametrize("shape", [(6, 9), (9, 6), (2, 5, 5)])
@pytest.mark.parametrize("name", RULES)
def test_all_products_of_muon_are_on_bfloat16(name: str, shape: tuple[int, ...]) -> None:
    rule = RULES[name](lr=1.0, weight_decay=0, ns_steps=2)
    graph = compile_step(ModelSpec(rule, {"w": shape}), GraphOptions())
    products = sum(node.op is Op.MATMUL for node in graph.nodes)
    assert len(bf16_sums(graph)) == products == 6
    program = to_module(graph)
    on_gpu = program.on(CUDA)
    assert not any(
        node.target is torch.matmul and node.args[0].target == "to" for node in on_gpu.graph.nodes
    )
    step, (param, grad, buffer) = torch.tensor(0), random_inputs(shape, shape, shape)
    inputs = {"param.w": param, "grad.w": grad, "state.w.momentum_buffer": buffer, "step": step}
    arguments = [inputs[input_name] for input_name in program.input_names]
    # Each of 6 products may round to the next number of bfloat16; X is at most 1, a at most 8.3.
    pairs = zip(program(*arguments), on_gpu(*arguments), strict=True)
    assert max(float((a - b).abs().max()) for a, b in pairs) < 6 * 8.3 * 2.0**-8


@pytest.mark.parametrize("shape", [(8, 8), (6, 9), (40, 24)])
def test_the_iteration_has_the_bits_of_torch(shape: tuple[int, ...]) -> None:
    rule = optimizers.muon(
        lr=1.0, weight_decay=0, momentum=0, nesterov=False, precision="bf16_fused", scale="original"
    )
    module = RuleModule(ModelSpec(rule, {"w": shape}), GraphOptions())
    module.program = module.program.on(CUDA)
    (grad,) = random_inputs(shape, seed=7)
    states = {"momentum_buffer": {"w": torch.zeros(shape)}}
    after, _ = module({"w": torch.zeros(shape)}, {"w": grad}, states, torch.tensor(0))
    theirs = _zeropower_via_newtonschulz(grad, (3.4445, -4.775, 2.0315), 5, 1e-7)
    scale = max(1.0, shape[0] / shape[1]) ** 0.5
    torch.testing.assert_close(after["w"], -scale * theirs.float(), rtol=1e-6, atol=0)


def test_a_module_on_bfloat16_is_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = optimizers.muon(precision="bf16_fused", ns_steps=1)
    module = RuleModule(ModelSpec(rule, {"w": (4, 4)}), GraphOptions())
    param, grad = random_inputs((4, 4), (4, 4))
    arguments = {"w": param}, {"w": grad}, module.initial_states({"w": param}), torch.tensor(0)
    monkeypatch.setattr(torch_module, "multiplies_bf16", lambda device: True)
    exported = torch.export.export(module, arguments)
    products = [node for node in exported.graph.nodes if "addmm" in str(node.target)]
    assert len(products) == 2
    after, _ = exported.module()(*arguments)
    assert torch.equal(after["w"], module(*arguments)[0]["w"])


def test_programs_of_a_device_are_kept_and_copied() -> None:
    program = to_module(graph_of_sum((3, 3), 0.5, 2.0))
    on_gpu = program.on(CUDA)
    assert program.on(CPU) is program
    assert program.on(CUDA) is on_gpu is on_gpu.on(CUDA)
    assert on_gpu.multiplies_bf16
    assert not program.multiplies_bf16
    assert len(list(program.modules())) == 1
    assert pickle.loads(pickle.dumps(on_gpu)).code == on_gpu.code
    assert pickle.loads(pickle.dumps(program)).code == program.code != on_gpu.code


def test_open_factors_are_the_inputs_of_sums_with_products() -> None:
    rule = optimizers.muon(lr=None, ns_coefficients=(None, None, 2.0), precision="bf16_fused")
    graph = compile_step(ModelSpec(rule, {"w": (4, 4)}), GraphOptions())
    assert open_factors(graph) == {"ns_a", "ns_b"}
    # The product X·Xᵀ has no factor.
    assert len(bf16_sums(graph)) == 5
