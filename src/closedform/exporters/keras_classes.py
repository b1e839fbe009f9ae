"""Schedules and update rules as classes of Keras 3, on its backends JAX and torch.

Graphs are run by the op table of the backend. A config holds them as text, from which the same
object is made again without the sources.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import keras

from closedform.compiler import compile_schedule
from closedform.errors import ExportError, SessionError
from closedform.exporters.tensor_step import (
    RATE,
    TENSOR,
    first_states,
    tensor_step,
    tensor_step_error,
)
from closedform.ir import naming
from closedform.ir.graph import Graph
from closedform.ir.steps import checked_steps, last_step
from closedform.ir.text import parse_graph, print_graph
from closedform.ir.types import DType
from closedform.language.exact import to_float
from closedform.language.schedule import Schedule
from closedform.language.update_rule import UpdateRule
from closedform.options import IN_PAIRS, GraphOptions

PACKAGE = "closedform"
_WIDE = GraphOptions(dtype=DType.F64)
_WIDE_RULE = GraphOptions()

Tensors = Mapping[str, Any]
StepFunction = Callable[[Tensors], dict[str, Any]]


def _is_wide() -> bool:
    """Whether the backend has types of 64 bits."""
    if keras.backend.backend() != "jax":
        return True
    from closedform.exporters.jax_ops import is_x64

    return is_x64()


def _runner(wide: str, narrow: str) -> StepFunction:
    """The function of the graph that the backend has the types for; inputs are cast to them."""
    graph = parse_graph(wide if _is_wide() else narrow)
    kinds = {str(node.attribute("name")): str(node.type.dtype.numpy) for node in graph.inputs}
    run = _backend_runner(graph)

    def runner(values: Tensors) -> dict[str, Any]:
        feeds = {name: keras.ops.cast(values[name], kind) for name, kind in kinds.items()}
        return run(feeds)

    return runner


def _backend_runner(graph: Graph) -> StepFunction:
    match keras.backend.backend():
        case "jax":
            from closedform.exporters.jax_ops import run_graph

            return lambda values: run_graph(graph, values)
        case "torch":
            from closedform.exporters.torch_module import to_module

            module = to_module(graph)

            def run(values: Tensors) -> dict[str, Any]:
                arguments = [values[name] for name in module.input_names]
                results = module.to(arguments[0].device)(*arguments)
                results = results if isinstance(results, tuple) else (results,)
                return dict(zip(module.output_names, results, strict=True))

            return run
        case backend:
            raise ExportError(
                f"schedules and rules run in Keras on JAX and torch, got the backend {backend!r}",
                hint='set KERAS_BACKEND to "jax" or "torch"',
            )


def _read_steps(step: Any, where: str) -> tuple[Any, Any | None]:
    """Returns steps as a tensor of the backend, and where they are outside of the domain.

    Steps that have values are checked, and None is returned in second place.

    Raises:
        SessionError: A step is not an integer, or outside of the domain.
    """
    value = step.value if isinstance(step, keras.Variable) else step
    dtype = DType.I64 if _is_wide() else DType.I32
    if not keras.ops.is_tensor(value):
        steps = checked_steps(value, last_step(dtype.numpy), where)
        return keras.ops.convert_to_tensor(steps.astype(dtype.numpy)), None
    kind = keras.backend.standardize_dtype(value.dtype)
    if "int" not in kind:
        raise SessionError(
            f"the step must be an integer, got {kind}", where=where, hint="count the updates done"
        )
    if keras.backend.backend() == "jax":
        from closedform.exporters.jax_schedule import read_counts

        return read_counts(value, dtype, where)
    from closedform.exporters.torch_module import outside_domain
    from closedform.exporters.torch_ops import TORCH_DTYPES

    return value, outside_domain(value, TORCH_DTYPES[dtype], where)


@keras.saving.register_keras_serializable(package=PACKAGE, name="Schedule")
class KerasSchedule(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]
    """A schedule as the learning rate of an optimizer of Keras.

    It is computed in float64, or in pairs of float32 where JAX computes in 32 bits.

    Args:
        wide: The text of its graph with float64 and int64.
        narrow: The text of its graph with types of 32 bits.
        name: Its name.
    """

    def __init__(self, wide: str, narrow: str, name: str) -> None:
        self.wide = wide
        self.narrow = narrow
        self.name = name
        self._run = _runner(wide, narrow)

    def __call__(self, step: Any) -> Any:
        """Returns the value at a step, the number of updates done, in Keras's float type.

        Raises:
            SessionError: The step is not an integer, or outside of 0 to the last one of the graph.
                Where the backend traces or compiles, and on devices other than the CPU with torch,
                the value outside is NaN instead.
        """
        steps, is_outside = _read_steps(step, f"schedule {self.name!r}")
        result = keras.ops.cast(self._run({naming.STEP: steps})["value"], keras.backend.floatx())
        # The graph of a constant has no step.
        value = keras.ops.broadcast_to(result, keras.ops.shape(steps))
        return value if is_outside is None else keras.ops.where(is_outside, math.nan, value)

    def get_config(self) -> dict[str, str]:
        """Returns the texts of the graphs."""
        return {"wide": self.wide, "narrow": self.narrow, "name": self.name}


@keras.saving.register_keras_serializable(package=PACKAGE, name="Optimizer")
class KerasOptimizer(keras.optimizers.Optimizer):  # type: ignore[misc]
    """An elementwise update rule as an optimizer of Keras.

    Variables of any float type are computed in float32, in which the states are. The scalars of a
    step, such as bias corrections, are computed in float64, or in pairs of float32 where JAX
    computes in 32 bits.

    Args:
        learning_rate: A number or a schedule of Keras.
        wide: The text of the graph of a step whose scalars are float64.
        narrow: The text of the graph of a step with types of 32 bits.
        states: The first value of each state, or "param" for that of the variable.
        **options: Those of ``keras.optimizers.Optimizer``, such as ``clipnorm``.
    """

    def __init__(
        self,
        learning_rate: Any,
        wide: str,
        narrow: str,
        states: Mapping[str, float | str],
        **options: Any,
    ) -> None:
        super().__init__(learning_rate=learning_rate, **options)
        self.wide = wide
        self.narrow = narrow
        self.first = dict(states)
        self._run = _runner(wide, narrow)
        self._slots: dict[str, list[Any]] = {}

    def build(self, variables: list[Any]) -> None:
        """Makes the states of the variables."""
        if self.built:
            return
        super().build(variables)
        slots = {}
        for label, first in self.first.items():
            slots[label] = [self._slot(label, first, variable) for variable in variables]
        self._slots = slots

    def _slot(self, label: str, first: float | str, variable: Any) -> Any:
        number = 0.0 if isinstance(first, str) else first
        start = keras.initializers.Constant(number)
        # add_variable registers the slot, so that saving the model saves it.
        slot = self.add_variable(
            shape=variable.shape, initializer=start, dtype="float32", name=label
        )
        if isinstance(first, str):
            slot.assign(keras.ops.cast(variable, "float32"))
        return slot

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Updates a variable and its states."""
        place = self._get_variable_index(variable)
        slots = {naming.state(TENSOR, label): of[place] for label, of in self._slots.items()}
        tensors = {naming.param(TENSOR): variable, naming.grad(TENSOR): gradient, **slots}
        # The graph is for vectors of any size.
        feeds = {name: keras.ops.reshape(tensor, (-1,)) for name, tensor in tensors.items()}
        # Keras counts iterations after all variables, so it is the number of updates done. On JAX
        # its clock of 32 bits goes on below 0: there a variable is NaN.
        is_outside = keras.ops.convert_to_tensor(self.iterations) < 0
        rate = keras.ops.where(is_outside, math.nan, keras.ops.convert_to_tensor(learning_rate))
        after = self._run({**feeds, naming.STEP: self.iterations, RATE: rate})
        for name, target in {naming.param(TENSOR): variable, **slots}.items():
            value = keras.ops.reshape(after[naming.following(name)], target.shape)
            self.assign(target, keras.ops.cast(value, target.dtype))

    def get_config(self) -> dict[str, Any]:
        """Returns the options of Keras, the texts of the graphs and the first states."""
        config: dict[str, Any] = super().get_config()
        return {**config, "wide": self.wide, "narrow": self.narrow, "states": dict(self.first)}


def keras_schedule(schedule: Schedule) -> KerasSchedule:
    """Returns a schedule as a learning rate of Keras."""
    wide, narrow = (
        print_graph(compile_schedule(schedule, options)) for options in (_WIDE, IN_PAIRS)
    )
    return KerasSchedule(wide, narrow, schedule.name)


def keras_optimizer(rule: UpdateRule, **options: Any) -> KerasOptimizer:
    """Returns a rule as an optimizer of Keras.

    Raises:
        ExportError: The rule looks at shapes or whole tensors, or as
            :func:`closedform.exporters.tensor_step.tensor_step`.
    """
    if not rule.is_elementwise:
        raise tensor_step_error(rule, "Keras", "looks at shapes or at whole tensors")
    wide, narrow = (
        print_graph(tensor_step(rule, ("n",), kind, "Keras")) for kind in (_WIDE_RULE, IN_PAIRS)
    )
    rate = rule.hyperparameters[RATE]
    if isinstance(rate, Schedule):
        options = {"learning_rate": keras_schedule(rate), **options}
    elif rate is not None:
        options = {"learning_rate": to_float(rate), **options}
    if "learning_rate" not in options:
        raise ExportError(
            "the rule has no value of lr", where=f"rule {rule.name!r}", hint="give learning_rate=…"
        )
    return KerasOptimizer(wide=wide, narrow=narrow, states=first_states(rule), **options)
