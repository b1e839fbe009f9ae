"""Sessions that the tests of this folder share."""

from collections.abc import Mapping

import numpy as np
import sympy as sp

from closedform.exporters.onnx_model import to_model
from closedform.ir.graph import Array, Builder, Graph, Role, scalar
from closedform.ir.ops import Op
from closedform.ir.types import DType, Shape, TensorType
from closedform.language import GRAD, PARAM, State, UpdateRule, hyper, state, t
from closedform.runtime import OptimizerSession
from tests.exporters.graphs import momentum_init, momentum_step

SHAPES: Mapping[str, Shape] = {"w": (2, 3), "layer.0.bias": (3,), "s": (), "none": (0, 2)}

AVERAGED = UpdateRule(
    name="averaged",
    param=PARAM - hyper("lr") * state("mean") / sp.sqrt(t + 1),
    states={
        "mean": State(next=state("mean") * hyper("beta") + GRAD, initial=0),
        "start": State(next=state("start"), initial=PARAM),
    },
    hyperparameters={"lr": 0.1, "beta": 0.5},
)


def draw(
    seed: int, dtype: DType = DType.F32, shapes: Mapping[str, Shape] = SHAPES
) -> dict[str, Array]:
    generator = np.random.default_rng(seed)
    return {
        name: np.asarray(generator.normal(size=tuple(int(d) for d in shape)), dtype.numpy)
        for name, shape in shapes.items()
    }


def momentum(seed: int = 40, dtype: DType = DType.F32) -> OptimizerSession:
    models = momentum_init(SHAPES, dtype), momentum_step(SHAPES, dtype)
    return OptimizerSession.from_models(*models, draw(seed, dtype), threads=1)


def snapshot(session: OptimizerSession) -> list[bytes]:
    content = session.state_dict()
    arrays = [*content["params"].values()]
    arrays += [array for by_name in content["states"].values() for array in by_name.values()]
    return [str(content["step"]).encode(), *(array.tobytes() for array in arrays)]


def phased_graphs() -> tuple[Graph, Graph]:
    """A step by 'lr' (with or without a default), and a division by the input 'period'."""
    b = Builder("phased")
    step = b.input("step", scalar(DType.I64), Role.STEP)
    period = b.input("period", scalar(DType.I64), Role.HYPER)
    rate = b.input("lr", scalar(DType.F32), Role.HYPER)
    param = b.input("param.w", TensorType(DType.F32, (2,)), Role.PARAM)
    grad = b.input("grad.w", TensorType(DType.F32, (2,)), Role.GRAD)
    last = b.input("state.w.phase", scalar(DType.F32), Role.STATE)
    phase = b.emit(Op.CAST, b.emit(Op.FLOOR_MOD, step, period), to=DType.F32)
    b.output("next.step", b.emit(Op.ADD, step, b.const(1, DType.I64)))
    b.output("next.param.w", b.emit(Op.SUB, param, b.emit(Op.MUL, grad, rate)))
    b.output("next.state.w.phase", b.emit(Op.MAX, phase, last))
    start = Builder("phased_init")
    start.output("step", start.const(0, DType.I64))
    start.output("state.w.phase", start.const(0.0, DType.F32))
    return start.build(), b.build()


def phased(*, has_default: bool = False) -> OptimizerSession:
    init, step = phased_graphs()
    defaults = {"lr": 0.5} if has_default else {}
    model = to_model(step, defaults=defaults)
    params = {"w": np.zeros(2, np.float32)}
    return OptimizerSession.from_models(init, model, params, threads=1)


ONES = {"w": np.ones(2, np.float32)}
