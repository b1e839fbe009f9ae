"""Traced rules compared with the transformations that they were traced from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sympy.core.relational import Relational

from closedform.importers.optax.hypers import Variable
from closedform.importers.optax.jaxprs import Tree, in_double
from closedform.importers.optax.leaves import (
    Leaf,
    Path,
    dotted_name,
    element_names,
    leaves_of,
    shapes_of,
    state_leaves,
)
from closedform.importers.optax.schedule import changes
from closedform.importers.optax.subject import Transformation, stepping, weak_number
from closedform.importers.optax.transformation import ParameterTrace
from closedform.importers.tensors.check import (
    STEPS,
    RuleDeviation,
    RunningRule,
    graphs_of,
    relative_gap,
    without_rounding,
)
from closedform.ir import naming
from closedform.language.groups import Group
from closedform.language.update_rule import UpdateRule
from closedform.options import ModelSpec

# One below the count at which optax.safe_increment stops.
_LARGEST_STEP = 2**31 - 2
_MOST_LATER = 24
# -0.0: the sign of a quotient by 0.
_SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan)


class Original:
    """A transformation that is run in float64.

    Args:
        transformation: The transformation.
        params: Its parameters.
        variables: The variables of its closure that are symbols in the trace; where floats of 16
            bits are float64, they are, too.
        is_exact: Whether floats of 16 bits are float64, too.
        like: The parameters' shapes and dtypes as the transformation is traced;
            of ``params`` if not given.

    Attributes:
        params: The parameters after the steps done.
        state: The state after them.
    """

    def __init__(
        self,
        transformation: Transformation,
        params: Tree,
        variables: Sequence[Variable] = (),
        *,
        is_exact: bool = False,
        like: Tree | None = None,
    ) -> None:
        open_variables = variables if is_exact else ()
        step = stepping(transformation, open_variables)
        like = params if like is None else like

        self.params = params
        state = in_double(transformation.init, like, is_exact=is_exact)(params)
        self.state = jax.tree.map(jnp.asarray, state)
        start = jax.eval_shape(transformation.init, like)
        self._numbers = [jnp.asarray(variable.sign * variable.value) for variable in open_variables]
        # In float64: the rounding of float32 would hide the difference of a formula.
        step_in_double = in_double(
            step, [weak_number() for _ in open_variables], like, start, like, is_exact=is_exact
        )
        # XLA multiplies by the reciprocal of a constant, in one rounding with what follows:
        # 1 - 20/20 is negative (JAX 0.10.2), and NaN to the power of 3/2.
        as_written = {"xla_disable_hlo_passes": "algsimp"}
        self._step: Callable[..., Any] = jax.jit(step_in_double, compiler_options=as_written)

    def step(self, gradients: Tree) -> None:
        """Takes one step."""
        self.params, self.state = self._step(self._numbers, gradients, self.state, self.params)

    def set_clock(self, starts: Mapping[Path, int], time: int) -> None:
        """Sets the counters to the number of steps done."""
        self.state = jax.tree_util.tree_map_with_path(
            lambda path, leaf: (
                jnp.asarray(starts[path] + time, dtype=leaf.dtype) if path in starts else leaf
            ),
            self.state,
        )


def difference(
    transformation: Transformation,
    params: Tree,
    rule: UpdateRule,
    groups: Sequence[Group],
    traces: Sequence[ParameterTrace],
    variables: Sequence[Variable] = (),
) -> RuleDeviation:
    """Returns the largest difference, at the first steps and at later ones.

    The gradients are random numbers; then, at the first step and after these, some are 0, infinite
    or NaN. What is infinite or NaN in one result must be so in the other: which of the two it is
    depends on the order of a sum.
    """
    exact = without_rounding(rule)
    shapes = shapes_of(params)
    rng = np.random.default_rng(3)
    start = {path: rng.normal(size=shape) for path, shape in shapes.items()}
    spec = ModelSpec(exact, {dotted_name(path): shape for path, shape in shapes.items()}, groups)
    running = RunningRule(graphs_of(spec), {dotted_name(path): v for path, v in start.items()})
    is_exact = exact is not rule
    original = Original(
        transformation, _fill(params, start), variables, is_exact=is_exact, like=params
    )
    leaves = state_leaves(original.state, list(shapes))
    starts = {path: value for trace in traces for path, value in trace.starts.items()}
    names = {path: name for trace in traces for path, name in trace.names.items()}
    comparison = _Comparison(original, running, leaves, names, list(shapes))
    comparison.step_specially(0)
    for count, time in enumerate([*range(STEPS), *_later(exact, groups)]):
        if time != count:
            original.set_clock(starts, time)
            running.set_clock(time)
        comparison.step({path: rng.normal(size=shape) for path, shape in shapes.items()}, time)
        if count == STEPS - 1:
            comparison.step_specially(STEPS)
    return comparison.worst


@dataclass(eq=False)
class _Comparison:
    """A transformation and its rule, which take the same steps.

    Attributes:
        original: The transformation.
        running: The rule.
        leaves: The leaves of the state.
        names: The names of states by path.
        paths: The paths of the parameters.
        worst: The largest difference so far.
    """

    original: Original
    running: RunningRule
    leaves: Sequence[Leaf]
    names: Mapping[Path, str]
    paths: Sequence[Path]
    worst: RuleDeviation = field(default_factory=RuleDeviation)

    def step(self, gradients: Mapping[Path, Any], time: int) -> None:
        """Takes one step with both."""
        self.original.step(_fill(self.original.params, gradients))
        self.running.step({dotted_name(path): value for path, value in gradients.items()})
        for label, actual, expected in self._pairs():
            gap = relative_gap(*_comparable(actual, expected))
            if gap > self.worst.gap:
                self.worst = RuleDeviation(gap, label, time)

    def _pairs(self) -> Iterator[tuple[str, Any, Any]]:
        """Labels of parameters and states, with the value of the rule and the one of optax."""
        values = self.running.values
        for path, param in leaves_of(self.original.params).items():
            name = dotted_name(path)
            yield f"param {name!r}", values[naming.param(name)], np.asarray(param)
        state = list(leaves_of(self.original.state).values())
        for leaf in self.leaves:
            label, expected = self.names.get(leaf.path, dotted_name(leaf.path)), state[leaf.place]
            if leaf.param is not None:
                keys = {label: naming.state(dotted_name(leaf.param), label)}
            elif leaf.shape and naming.shared(label) not in values:
                keys = {name: naming.shared(name) for name in element_names(label, leaf)}
            else:
                keys = {label: naming.shared(label)}
            parts = [expected] if len(keys) == 1 else np.asarray(expected).flat
            for (name, key), part in zip(keys.items(), parts, strict=True):
                if key in values:
                    yield f"state {name!r}", values[key], np.asarray(part)

    def step_specially(self, time: int) -> None:
        """Takes steps with gradients that have zeros, infinities and NaN, and takes them back."""
        params, state, values = self.original.params, self.original.state, dict(self.running.values)
        rng = np.random.default_rng(5)
        for number in _SPECIAL:
            for path in self.paths[:2]:
                gradients = {
                    leaf_path: rng.normal(size=np.shape(leaf))
                    for leaf_path, leaf in leaves_of(params).items()
                }
                special = gradients[path].reshape(-1)
                # Two or three elements: the others show what a special one does to its neighbours.
                special[:: max(1, special.size // 2)] = number
                gradients[path] = special.reshape(gradients[path].shape)
                self.step(gradients, time)
                self.original.params, self.original.state = params, state
                self.running.values = dict(values)


def _comparable(value: Any, expected: Any) -> tuple[Any, Any]:
    """Two arrays with 0 where both are infinite or NaN."""
    value, expected = np.broadcast_arrays(value, expected)
    # `|`: where only one is finite, both values stay and the gap is infinite.
    is_finite = np.isfinite(value) | np.isfinite(expected)
    return np.where(is_finite, value, 0.0), np.where(is_finite, expected, 0.0)


def _fill(tree: Tree, values: Mapping[Path, Any]) -> Tree:
    return jax.tree_util.tree_map_with_path(lambda path, _: jnp.asarray(values[path]), tree)


def _later(rule: UpdateRule, groups: Sequence[Group]) -> list[int]:
    """Steps after the first ones next to which a formula changes."""
    rules = [rule, *(group.rule for group in groups if group.rule is not None)]
    expressions = [expr for unit_rule in rules for expr in unit_rule.all_expressions()]
    conditions = {condition for expr in expressions for condition in expr.atoms(Relational)}
    times = {time for condition in conditions for time in changes(condition)}
    return sorted(time for time in times if STEPS <= time < _LARGEST_STEP)[:_MOST_LATER]
