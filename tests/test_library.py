"""The whole library: every schedule and optimizer is one graph in every back end.

For each: `parse(print(g)) == g`, no control flow, opsets 13 to 23, the same bytes twice, and
all back ends agree with the evaluator within what the ops of the graph may differ in.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, cast

import numpy as np
import onnx
import pytest
import sympy as sp

from closedform import optimizers, schedules
from closedform.api.onnx import to_onnx
from closedform.compiler import compile_init, compile_schedule, compile_step
from closedform.exporters.onnx_model import serialize, to_model
from closedform.ir.graph import Graph
from closedform.ir.ops import Op
from closedform.ir.scalar import scalar_function
from closedform.ir.text import parse_graph, print_graph
from closedform.ir.types import DType, Shape
from closedform.language import Schedule, UpdateRule
from closedform.optimizers.muon import POLAR_EXPRESS
from closedform.options import GraphOptions, ModelSpec
from closedform.schedules.examples import EXAMPLES
from tests.support.backends import INSTALLED, differences

LINE = schedules.linear(0, 3e-4, 20)
WAVE = schedules.cosine(3e-4, 3e-5, 80)

SCHEDULES: dict[str, Callable[[], Schedule]] = {
    "constant": lambda: schedules.constant(0.1),
    "linear": lambda: LINE,
    "polynomial": lambda: schedules.polynomial(1e-3, 1e-5, 50, power=0.9),
    "cosine": lambda: WAVE,
    "cosine_annealing": lambda: schedules.cosine_annealing(0.1, 1e-3, 30),
    "inverse_square_root": lambda: schedules.inverse_square_root(1, 1, 40),
    "multi_step": lambda: schedules.multi_step(0.1, 0.5, [10, 20, 30, 40, 50, 60]),
    "piecewise_constant": lambda: schedules.piecewise_constant([1, 0.5, 0.1], [20, 60]),
    "exponential": lambda: schedules.exponential(0.1, 0.5, 30),
    "multiplicative": lambda: schedules.multiplicative(0.1, 0.99),
    "step_decay": lambda: schedules.step_decay(0.1, 0.5, 30),
    "inverse_time": lambda: schedules.inverse_time(0.1, 0.5, 10, staircase=True),
    "cyclic": lambda: schedules.cyclic(0.1, 1, 10, 15, mode="triangular2"),
    "one_cycle": lambda: schedules.one_cycle(0.04, 1, 4e-6, 100),
    "one_cycle_momentum": lambda: schedules.one_cycle_momentum(0.95, 0.85, 100, three_phase=True),
    "cosine_hard_restarts": lambda: schedules.cosine_hard_restarts(1, 0.1, 100, cycles=4),
    "warm_restarts": lambda: schedules.warm_restarts(1, 0.1, 10, multiplier=2),
    "trapezoidal": lambda: schedules.trapezoidal(1, 0.1, 100, 10, 20),
    "wsd": lambda: schedules.wsd(1, 0, 100, 10, 20, "sqrt"),
    "wsd_checkpoints": lambda: schedules.wsd_checkpoints(1, 0.1, 100, 10, 0.2, 3, "cosine"),
    "cosine_k_decay": lambda: schedules.cosine_k_decay(1, 0.1, 100, 1.5, 10, 0, 20),
    "cosine_with_min": lambda: schedules.cosine_with_min(1, 0.1, 100, cycles=1.5),
    "flat_cosine": lambda: schedules.flat_cosine(1, 0.1, 100, 70),
    "function": lambda: schedules.function(lambda t: sp.Rational(95, 100) ** t),
    "hyperbolic": lambda: schedules.hyperbolic(1, 0.1, 100, 150),
    "noam": lambda: schedules.noam(512, 40),
    "power": lambda: schedules.power(1, -0.51, 30),
    "rex": lambda: schedules.rex(1, 0.1, 100),
    "slanted_triangular": lambda: schedules.slanted_triangular(1, 100),
    "table": lambda: schedules.table([0.1, 0.5, 0.25, 0.3, 0.4, 0.4, 0.7]),
    "tanh_decay": lambda: schedules.tanh_decay(1, 0.1, 100),
    "repeat": lambda: schedules.repeat(LINE.then(WAVE), 60),
    "splice": lambda: schedules.splice(WAVE, 40, schedules.cosine(3e-4, 3e-5, 120)),
    "sequential": lambda: schedules.sequential([LINE, WAVE]),
    "chained": lambda: schedules.chained([WAVE, schedules.cosine_annealing(2, 1, 7)]),
    "scale": lambda: schedules.scale(LINE, 0.5),
}
# A schedule without a row of its own runs with its example of the gallery.
# In this order: all workers must collect the same tests.
for new, example in EXAMPLES.items():
    if new not in SCHEDULES and new != "reduce_on_plateau":
        SCHEDULES[new] = cast("Callable[[], Schedule]", example.make)

OPTIMIZERS: dict[str, Callable[[], UpdateRule]] = {
    "sgd": lambda: optimizers.sgd(LINE, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adamc": lambda: optimizers.adamc(LINE, max_lr=3e-4),
    "adam_mini": lambda: optimizers.adam_mini(LINE),
    "adam_mini_row": lambda: optimizers.adam_mini(LINE, block="row"),
    "adabound": lambda: optimizers.adabound(LINE, initial_lr=3e-4),
    "adamp": lambda: optimizers.adamp(LINE, weight_decay=0.01, delta=2),
    "adams": lambda: optimizers.adams(LINE),
    "aggmo": lambda: optimizers.aggmo(LINE, weight_decay=0.01),
    "decoupled_adamw": lambda: optimizers.decoupled_adamw(LINE, initial_lr=3e-4),
    "decoupled_lionw": lambda: optimizers.decoupled_lionw(0.01, weight_decay=0.01),
    "decoupled_sgdw": lambda: optimizers.decoupled_sgdw(
        LINE, 0.9, 0.1, weight_decay=0.01, initial_lr=3e-4
    ),
    "fromage": lambda: optimizers.fromage(LINE),
    "ftrl": lambda: optimizers.ftrl(0.1, 1, 0.5, 0.1),
    "grams": lambda: optimizers.grams(LINE, weight_decay=0.01),
    "madgrad": lambda: optimizers.madgrad(LINE, weight_decay=0.01),
    "pid": lambda: optimizers.pid(LINE, weight_decay=0.01),
    "qhadam": lambda: optimizers.qhadam(LINE, weight_decay=0.01),
    "sgdp": lambda: optimizers.sgdp(LINE, weight_decay=0.01, delta=2),
    "spam": lambda: optimizers.spam(LINE, weight_decay=0.01, reset=10, warmup=8, wait=3),
    "sgd_dampened": lambda: optimizers.sgd(0.1, momentum=0.9, dampening=0.5, maximize=True),
    "adam": lambda: optimizers.adam(lr=LINE.then(WAVE), weight_decay=0.01, amsgrad=True),
    "adamw": lambda: optimizers.adamw(lr=LINE.then(WAVE), weight_decay=0.1),
    "adamw_cerebras": lambda: optimizers.adamw(
        lr=1e-3, weight_decay=0.1, eps_added="before_correction", correct_bias=False
    ),
    "rmsprop": lambda: optimizers.rmsprop(LINE, momentum=0.9, weight_decay=0.01),
    # The sum that is drawn may be below 0: the large penalty keeps the next one above.
    "adagrad": lambda: optimizers.adagrad(LINE, lr_decay=0.1, weight_decay=100),
    "lion": lambda: optimizers.lion(LINE.then(WAVE), weight_decay=0.1),
    "adamax": lambda: optimizers.adamax(LINE, weight_decay=0.01, maximize=True),
    "nadam": lambda: optimizers.nadam(LINE, weight_decay=0.01, decoupled_weight_decay=True),
    "radam": lambda: optimizers.radam(LINE, weight_decay=0.01),
    # The mean of squares that is drawn may be below 0: eps keeps it above.
    "adadelta": lambda: optimizers.adadelta(LINE, eps=10),
    "lamb": lambda: optimizers.lamb(LINE, weight_decay=0.01),
    "rprop": lambda: optimizers.rprop(0.1),
    "asgd": lambda: optimizers.asgd(0.1, t0=3, weight_decay=0.01),
    "signum": lambda: optimizers.signum(LINE, weight_decay=0.01),
    "tiger": lambda: optimizers.tiger(LINE),
    "adabelief": lambda: optimizers.adabelief(LINE, weight_decay=0.01),
    "acprop": lambda: optimizers.acprop(LINE, weight_decay=0.01),
    # The second moment that is drawn may leave one below 0 after the step: one near 1 does not.
    "yogi": lambda: optimizers.yogi(LINE, (0.9, 0.99999)),
    "laprop": lambda: optimizers.laprop(LINE, weight_decay=0.01),
    "ademamix": lambda: optimizers.ademamix(LINE, alpha_steps=30, beta3_steps=20),
    "adopt": lambda: optimizers.adopt(LINE, weight_decay=0.01),
    "adan": lambda: optimizers.adan(LINE, weight_decay=0.01),
    "mars": lambda: optimizers.mars(LINE, weight_decay=0.01),
    "sophia": lambda: optimizers.sophia(LINE, gamma=1, update_period=5),
    "schedule_free_sgd": lambda: optimizers.schedule_free_sgd(LINE, weight_decay=0.01),
    "schedule_free_adamw": lambda: optimizers.schedule_free_adamw(LINE, warmup_steps=30),
    "schedule_free_radam": lambda: optimizers.schedule_free_radam(LINE, weight_exponent=1),
    "prodigy": lambda: optimizers.prodigy(LINE, weight_decay=0.01),
    "adafactor": lambda: optimizers.adafactor(LINE, weight_decay=0.01, beta1=0.9),
    "adafactor_clamped": lambda: optimizers.adafactor(
        LINE, (None, 1e-3), floor="clamped", decay="plain", weight_decay=0.01
    ),
    "came": lambda: optimizers.came(LINE, weight_decay=0.01),
    "lars": lambda: optimizers.lars(LINE, weight_decay=0.01),
    "muon": lambda: optimizers.muon(LINE),
    "muon_bf16": lambda: optimizers.muon(0.1, precision="bf16", floor="added", ns_steps=1),
    "muon_polar": lambda: optimizers.muon(LINE, ns_coefficients=POLAR_EXPRESS, ns_steps=2),
    "normuon": lambda: optimizers.normuon(LINE, 0.01, ns_steps=2, decay="cautious"),
    "scion_spectral": lambda: optimizers.scion(LINE, ns_steps=2, weight_decay=0.01),
    "scion": lambda: optimizers.scion(LINE, norm="rms", constrained=True),
    "adamuon": lambda: optimizers.adamuon(LINE, weight_decay=0.01, ns_steps=2),
    "soap": lambda: optimizers.soap(LINE, max_precondition_dim=3),
    "soap_fixed": lambda: optimizers.soap(LINE, precondition_frequency=None),
    "shampoo": lambda: optimizers.shampoo(LINE, 0.9, 0.01, 10, root_steps=12),
    "kron": lambda: optimizers.kron(LINE, weight_decay=0.01, max_size_triangular=3),
    "novograd": lambda: optimizers.novograd(LINE, weight_decay=0.01),
    "sm3": lambda: optimizers.sm3(LINE),
    "sm3_first": lambda: optimizers.sm3(0.1, (0, 0.9), 0, form="I", maximize=True),
    "stable_adamw": lambda: optimizers.stable_adamw(LINE, weight_decay=0.01),
    "d_adapt_adam": lambda: optimizers.d_adapt_adam(LINE, growth_rate=1.02),
    "d_adapt_sgd": lambda: optimizers.d_adapt_sgd(LINE, momentum=0.9, weight_decay=0.01),
    "dion": lambda: optimizers.dion(LINE, rank=2),
    "dog": lambda: optimizers.dog(LINE, weight_decay=0.01),
    "dowg": lambda: optimizers.dowg(LINE, weight_decay=0.01),
    "momo": lambda: optimizers.momo(LINE, weight_decay=0.01, loss=2, adapt_lower_bound=True),
}

# A schedule or a rule does not change: each is made once for all tests of a process.
SCHEDULES = {entry: cache(make) for entry, make in SCHEDULES.items()}
OPTIMIZERS = {entry: cache(make) for entry, make in OPTIMIZERS.items()}

STEPS = np.array([*range(130), 10**6, 2**31 + 1])
# States that are means or sums of squares.
POSITIVE = re.compile(r"sq|var|_res_|accumulator|v_mean|second_mom|\.n$|\.v$")
FORBIDDEN = {"If", "Loop", "Scan"}


def test_every_entry_of_the_library_is_here() -> None:
    driven_by_a_metric = {"reduce_on_plateau"}  # tests/schedules/test_plateau.py
    assert set(SCHEDULES) == set(schedules.__all__) - driven_by_a_metric
    assert {make().name for make in OPTIMIZERS.values()} == set(optimizers.__all__)


PARAMS: Mapping[str, Shape] = {"w": (3, 4), "b": (), "empty": (0, 2)}


def fitting(rule: UpdateRule, shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """Returns those of the shapes that a rule is for."""
    smallest = 2 if rule.requires != sp.true else 0
    return {key: shape for key, shape in shapes.items() if len(shape) >= smallest}


def drawn_inputs(graph: Graph) -> dict[str, Any]:
    """Returns random inputs of one step of a rule at t = 25."""
    rng = np.random.default_rng(0)
    inputs: dict[str, Any] = {"step": np.array(25, graph.inputs[0].type.dtype.numpy)}
    for node in graph.inputs[1:]:
        key = node.attribute("name")
        shape = tuple(int(dim) for dim in node.type.shape)
        drawn = rng.normal(size=shape).astype(node.type.dtype.numpy)
        inputs[key] = np.abs(drawn) if POSITIVE.search(key) else drawn
    return inputs


def check_artefacts(graph: Graph) -> None:
    assert parse_graph(print_graph(graph)) == graph
    # ONNX has reshapes to a size of 0 from opset 14 on.
    is_new = any(node.op is Op.RESHAPE and 0 in node.type.shape for node in graph.nodes)
    for opset in (14 if is_new else 13, 17, 21, 23):
        model = to_model(graph, opset=opset)
        onnx.checker.check_model(model, full_check=True)
        assert not FORBIDDEN & {node.op_type for node in model.graph.node}
        assert serialize(model) == serialize(to_model(graph, opset=opset))


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("dtype", [DType.F64, DType.F32])
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedule_in_every_back_end(name: str, dtype: DType) -> None:
    graph = compile_schedule(SCHEDULES[name](), GraphOptions(step_shape=("n",), dtype=dtype))
    check_artefacts(graph)
    assert not differences(graph, {"step": STEPS}, dtype, INSTALLED)


@pytest.mark.sample(every=5)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_in_every_back_end(name: str) -> None:
    rule = OPTIMIZERS[name]()
    spec = ModelSpec(rule, fitting(rule, PARAMS))
    graph = compile_step(spec)
    check_artefacts(graph)
    check_artefacts(compile_init(spec))
    # States of the model are float64; those that follow from sums of float32 err as those.
    ours = {key: one for key, one in INSTALLED.items() if not (one.params or one.options)}
    assert not differences(graph, drawn_inputs(graph), DType.F32, ours)


@pytest.mark.sample(every=6)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_in_back_ends_of_other_shapes_or_dtypes(name: str) -> None:
    rule = OPTIMIZERS[name]()
    for key, backend in INSTALLED.items():
        is_other = backend.params or backend.options
        if is_other and (shapes := fitting(rule, backend.params or PARAMS)):
            graph = compile_step(ModelSpec(rule, shapes), GraphOptions(**backend.options))
            assert not differences(graph, drawn_inputs(graph), DType.F32, {key: backend})


def test_metadata_says_what_the_file_is(tmp_path: Any) -> None:
    model = to_onnx(SCHEDULES["sequential"](), tmp_path / "lr.onnx")
    assert isinstance(model, onnx.ModelProto)
    facts = {entry.key: entry.value for entry in model.metadata_props}
    assert "Piecewise" in facts["closedform.expression"]
    assert "first step runs with t = 0" in facts["closedform.clock"]
    assert "3/10000" in facts["closedform.hyperparameters"]
    assert Op.WHERE in {node.op for node in compile_schedule(SCHEDULES["sequential"]()).nodes}


ONE_BY_ONE = [*range(130), 1000, 10**6, 2**31, 2**50]


@pytest.mark.parametrize("name", SCHEDULES)
def test_one_step_is_a_step_of_an_array(name: str) -> None:
    schedule = SCHEDULES[name]()
    last = schedule.last_step
    steps = [step for step in ONE_BY_ONE if last is None or step <= last]
    graph = compile_schedule(schedule, GraphOptions(step_shape=("n",)))
    assert scalar_function(graph) is not None
    together = np.asarray(schedule(np.array(steps)))
    for step, value in zip(steps, together, strict=True):
        for given in (step, np.int64(step)):
            single = schedule(given)
            assert type(single) is float
            assert np.float64(single).tobytes() == value.tobytes(), given
