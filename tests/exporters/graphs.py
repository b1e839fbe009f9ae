"""Hand-built graphs of several ops, as the compiler would give them."""

from collections.abc import Mapping

from closedform.ir.graph import Builder, Graph, Role, scalar
from closedform.ir.ops import Op
from closedform.ir.types import DType, Shape, TensorType


def cosine_graph(step_shape: Shape = (), *, has_peak_input: bool = False) -> Graph:
    """Linear warmup over 10 steps, then a cosine to 0 at step 100, 0 from there on, in f64."""
    b = Builder("cosine")
    step = b.input("step", TensorType(DType.I64, step_shape), Role.STEP)
    peak = b.const(0.1, DType.F64)
    if has_peak_input:
        peak = b.input("peak", scalar(DType.F64), Role.HYPER)
    time = b.emit(Op.CAST, step, to=DType.F64)
    warm = b.emit(Op.DIV, b.emit(Op.MUL, time, peak), b.const(10.0, DType.F64))
    past = b.emit(Op.SUB, time, b.const(10.0, DType.F64))
    angle = b.emit(Op.MUL, past, b.const(3.141592653589793 / 90, DType.F64))
    wave = b.emit(Op.ADD, b.emit(Op.COS, angle), b.const(1.0, DType.F64))
    half = b.emit(Op.MUL, peak, b.const(0.5, DType.F64))
    decay = b.emit(Op.MUL, wave, half)
    is_warm = b.emit(Op.LT, step, b.const(10, DType.I64))
    is_running = b.emit(Op.LT, step, b.const(100, DType.I64))
    tail = b.emit(Op.WHERE, is_running, decay, b.const(0.0, DType.F64))
    b.output("value", b.emit(Op.WHERE, is_warm, warm, tail))
    return b.build()


def milestones_graph(step_shape: Shape = ()) -> Graph:
    """0.1 by a factor of 10 less from steps 30, 60 and 80 on: a comparison, a sum, a lookup."""
    b = Builder("milestones")
    step = b.input("step", TensorType(DType.I64, step_shape), Role.STEP)
    column = b.emit(Op.RESHAPE, step, shape=(*step_shape, 1))
    milestones = b.const([30, 60, 80], DType.I64)
    passed = b.emit(Op.CAST, b.emit(Op.LE, milestones, column), to=DType.I64)
    axis = len(step_shape)
    count = b.emit(Op.REDUCE_SUM, passed, axes=(axis,), keepdims=False)
    table = b.const([0.1, 0.01, 0.001, 0.0001], DType.F64)
    b.output("value", b.emit(Op.LOOKUP, table, count))
    return b.build()


def cycle_graph(step_shape: Shape = ()) -> Graph:
    """A sawtooth with period 7 that halves every cycle: integer division and remainder."""
    b = Builder("cycle")
    step = b.input("step", TensorType(DType.I64, step_shape), Role.STEP)
    period = b.const(7, DType.I64)
    phase = b.emit(Op.CAST, b.emit(Op.FLOOR_MOD, step, period), to=DType.F64)
    cycle = b.emit(Op.CAST, b.emit(Op.FLOOR_DIV, step, period), to=DType.F64)
    height = b.emit(Op.POW, b.const(0.5, DType.F64), cycle)
    b.output("value", b.emit(Op.MUL, phase, height))
    return b.build()


def momentum_step(shapes: Mapping[str, Shape], dtype: DType = DType.F32) -> Graph:
    """SGD with momentum 0.9, a learning rate of 0.1 / (1 + step), and a norm in a scalar state."""
    b = Builder("momentum")
    step = b.input("step", scalar(DType.I64), Role.STEP)
    params = {n: b.input(f"param.{n}", TensorType(dtype, s), Role.PARAM) for n, s in shapes.items()}
    grads = {n: b.input(f"grad.{n}", TensorType(dtype, s), Role.GRAD) for n, s in shapes.items()}
    velocities = {
        n: b.input(f"state.{n}.velocity", TensorType(dtype, s), Role.STATE)
        for n, s in shapes.items()
    }
    for name in shapes:
        b.input(f"state.{name}.norm", scalar(dtype), Role.STATE)
    after = b.emit(Op.ADD, step, b.const(1, DType.I64))
    rate = b.emit(Op.DIV, b.const(0.1, DType.F64), b.emit(Op.CAST, after, to=DType.F64))
    rounded = b.emit(Op.CAST, rate, to=dtype)
    b.output("next.step", after)
    for name, shape in shapes.items():
        grown = b.emit(Op.MUL, velocities[name], b.const(0.9, dtype))
        velocity = b.emit(Op.ADD, grown, grads[name])
        square = b.emit(Op.MUL, velocity, velocity)
        axes = tuple(range(len(shape)))
        norm = b.emit(Op.SQRT, b.emit(Op.REDUCE_SUM, square, axes=axes, keepdims=False))
        moved = b.emit(Op.SUB, params[name], b.emit(Op.MUL, velocity, rounded))
        b.output(f"next.param.{name}", moved)
        b.output(f"next.state.{name}.velocity", velocity)
        b.output(f"next.state.{name}.norm", norm)
    return b.build()


def momentum_init(shapes: Mapping[str, Shape], dtype: DType = DType.F32) -> Graph:
    """The states before the first step: zeros, and the step."""
    b = Builder("momentum_init")
    b.output("step", b.const(0, DType.I64))
    zero = b.const(0.0, dtype)
    for name, shape in shapes.items():
        velocity = b.emit(Op.BROADCAST_TO, zero, shape=shape) if shape else zero
        b.output(f"state.{name}.velocity", velocity)
        b.output(f"state.{name}.norm", zero)
    return b.build()
