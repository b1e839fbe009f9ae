"""From the language to graphs: prepare (simplify, guard), lower, check, simplify.

Each function compiles one part of the artefacts that ``closedform.api`` exports: a schedule, one
step of a model, the states before it, the point of evaluation after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from closedform.errors import DefinitionError, LoweringError, describe
from closedform.ir.analysis.step_check import Answer, StepCheck, first_nonfinite
from closedform.ir.evaluate import evaluate
from closedform.ir.graph import Graph
from closedform.ir.program import Program, flatten, split
from closedform.ir.scalar import ScalarFunction, UncommonError, scalar_function
from closedform.ir.simplification import simplify
from closedform.ir.types import LAST_STEP, Shape
from closedform.language.groups import Assignment
from closedform.language.schedule import Schedule
from closedform.language.update_rule import UpdateRule
from closedform.lowering.analysis.domain import MAX_STEP
from closedform.lowering.schedule import lower_schedule
from closedform.magnitude import number_text
from closedform.options import ANY_STEPS, GraphOptions, ModelSpec

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

DEFAULTS = GraphOptions()


def compile_schedule(schedule: Schedule, options: GraphOptions = DEFAULTS) -> Graph:
    """Returns the graph ``step, inputs -> value`` of a schedule."""
    return simplify(lower_schedule(schedule, options))


def find_nonfinite(schedule: Schedule, graph: Graph) -> StepCheck | None:
    """Returns a step at which the value is found to be NaN or infinite; None where none is found.

    It runs the graph at some hundred steps of the domain, and proves nothing of the others.
    """
    if len(graph.inputs) != 1:
        return None
    last = LAST_STEP[graph.inputs[0].type.dtype]
    if schedule.last_step is not None:
        last = min(last, schedule.last_step)
    return first_nonfinite(graph, 0, last)


def refuse_nonfinite(schedule: Schedule, graph: Graph, check: StepCheck | None) -> None:
    """Raises LoweringError if a check of the steps found a value that is NaN or infinite.

    Args:
        schedule: The schedule.
        graph: Its graph.
        check: The result for its steps; None where nothing was found.
    """
    if check is None or check.value is None or check.answer is not Answer.FAILED:
        return
    dtypes = {str(node.type.dtype) for node in graph.nodes if node.type.dtype.is_float}
    cause = ""
    if check.fault is not None:
        node = graph.nodes[check.fault.index]
        cause = f": {node.op} {check.fault.kind} in {node.type.dtype}"
    raise LoweringError(
        f"the value is {check.value} at t = {check.step}, computed in "
        f"{' and '.join(sorted(dtypes))}{cause}",
        where=f"schedule {schedule.name!r}",
        hint=f"if it is not used for so long, declare the last step: Schedule(…, domain=(t < "
        f"{check.step},)); or write it without numbers beyond the largest float",
    )


def compile_program(
    spec: ModelSpec, options: GraphOptions = DEFAULTS, *, takes_sizes: bool = False
) -> Program:
    """Returns one step of a model: its scalars, and a graph for each kind of tensor.

    Each part is checked and simplified, so the cost grows with the number of kinds of tensors. The
    calls are in the order of the parameters of ``spec``.
    """
    program = compile_assignments(
        spec.rule.name, spec.assignments, options, takes_sizes=takes_sizes
    )
    place = {name: index for index, name in enumerate(spec.params)}
    calls = tuple(sorted(program.calls, key=lambda call: place[call.param]))
    return replace(program, calls=calls)


def compile_assignments(
    name: str,
    assignments: Sequence[Assignment],
    options: GraphOptions = DEFAULTS,
    *,
    takes_sizes: bool = False,
) -> Program:
    """Returns one step of parameters whose rules are given, calls in the order of the rules.

    Args:
        name: The name of the graph.
        assignments: The rules, each with its parameters.
        options: The options of the graph.
        takes_sizes: Whether a named size that a mean divides by is an input, ``size.<name>``.
    """
    from closedform.lowering.model import lower_program

    return lower_program(name, assignments, options, takes_sizes=takes_sizes).map(simplify)


def compile_step(
    spec: ModelSpec, options: GraphOptions = DEFAULTS, *, takes_sizes: bool = False
) -> Graph:
    """Returns one step of a model as one flat graph; see :func:`compile_assignments`."""
    return flatten(compile_program(spec, options, takes_sizes=takes_sizes))


def compile_parts(
    name: str,
    rules: Sequence[tuple[UpdateRule, Sequence[Shape]]],
    options: GraphOptions = DEFAULTS,
) -> list[list[tuple[Graph | None, ...]]]:
    """Returns, for each rule and each of its shapes, the graphs of one parameter named ``all``.

    These are its term of the sums over all parameters in each stage, None where it has none, and
    its step; see :func:`closedform.ir.program.split`.
    """
    assignments = [
        Assignment(rule, {f"p{i}_{j}": shape for j, shape in enumerate(shapes)})
        for i, (rule, shapes) in enumerate(rules)
    ]
    program = compile_assignments(name, assignments, options)
    return [
        [split(program, param, "all") for param in assignment.params] for assignment in assignments
    ]


def compile_init(spec: ModelSpec, options: GraphOptions = DEFAULTS) -> Graph:
    """Returns the graph of the states of a model before the first step."""
    return compile_first_states(spec.rule.name, spec.assignments, options)


def compile_first_states(
    name: str, assignments: Sequence[Assignment], options: GraphOptions = DEFAULTS
) -> Graph:
    """Returns the graph of the states before the first step; see :func:`compile_assignments`."""
    from closedform.lowering.model import lower_init

    return simplify(lower_init(name, assignments, options))


def compile_evaluation(spec: ModelSpec, options: GraphOptions = DEFAULTS) -> Graph:
    """Returns the point at which a model is evaluated: parameters and states to parameters.

    Outputs are ``evaluation.<parameter>``; the step is the number of steps done.
    """
    return compile_point(spec.rule.name, spec.assignments, options)


def compile_point(
    name: str, assignments: Sequence[Assignment], options: GraphOptions = DEFAULTS
) -> Graph:
    """Returns the point of evaluation of parameters whose rules are given."""
    from closedform.lowering.model import lower_evaluation

    return flatten(lower_evaluation(name, assignments, options).map(simplify))


def has_evaluation(spec: ModelSpec) -> bool:
    """Returns whether a model is evaluated at another point than its parameters."""
    return any(assignment.rule.evaluation is not None for assignment in spec.assignments)


def evaluate_schedule(schedule: Schedule, step: int | ArrayLike) -> float | NDArray[np.float64]:
    """Returns the float64 value of a schedule at a step or an array of steps, in NumPy.

    Raises:
        DefinitionError: A step is not an integer, negative, or above ``MAX_STEP``.
        DomainError: A step is after the last one that the schedule's domain declares.
    """
    if type(step) is int or (isinstance(step, np.integer) and step.dtype.kind in "iu"):
        value = _value_at_step(schedule, int(step))
        if value is not None:
            return value
    place = f"schedule {schedule.name!r}"
    try:
        steps = np.asarray(step)
    except ValueError:
        raise DefinitionError(
            f"steps must be an integer or an array of one shape, got {_text(step)}", where=place
        ) from None
    if steps.size and not _are_integers(steps):
        raise DefinitionError(
            f"steps must be integers, got {steps.dtype} {_text(step)}", where=place
        )
    if steps.size and (steps.min() < 0 or steps.max() > MAX_STEP):
        wrong = steps.min() if steps.min() < 0 else steps.max()
        raise DefinitionError(
            f"steps must be in 0..{MAX_STEP}, got {number_text(int(wrong))}", where=place
        )
    if steps.size:
        schedule.check_last(int(steps.max()))
    graph = _graph_of(schedule)
    values = evaluate(graph, {"step": steps.astype(np.int64).reshape(-1)})["value"]
    return float(values[0]) if np.isscalar(step) or steps.ndim == 0 else values.reshape(steps.shape)


def _text(step: object) -> str:
    """The text of a step that was given, for errors, without its type."""
    return describe(step).partition(" ")[2]


def _graph_of(schedule: Schedule) -> Graph:
    graph: Graph = schedule.memo("graph", lambda: compile_schedule(schedule, ANY_STEPS))
    return graph


def _value_at_step(schedule: Schedule, step: int) -> float | None:
    """The value at one step by the function of the graph; None where it has to be evaluated."""
    if not 0 <= step <= MAX_STEP:
        return None
    schedule.check_last(step)

    def make() -> ScalarFunction | None:
        return scalar_function(_graph_of(schedule))

    function: ScalarFunction | None = schedule.memo("function", make)
    if function is None:
        return None
    try:
        return function(step)
    except UncommonError:
        return None


def _are_integers(steps: NDArray[Any]) -> bool:
    """Whether all are integers; an array of objects, such as Python's long ints, is looked into."""
    if steps.dtype.kind != "O":
        return steps.dtype.kind in "iu"
    return all(
        isinstance(item, int | np.integer) and not isinstance(item, bool) for item in steps.flat
    )
