"""Update rules as transformations of optax: updates to be added, and a state of arrays.

The states have the structure of the parameters; where a parameter does not have a state, its place
is ``optax.MaskedNode()``. The step of a model is traced as one graph of scalars and one graph for
each kind of tensor, so ``jax.jit`` fuses it as it does the transformations of optax.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from closedform.compiler import compile_program
from closedform.errors import SessionError
from closedform.exporters.jax_ops import is_x64, run_graph
from closedform.ir import naming
from closedform.ir.graph import Graph, Role
from closedform.ir.program import Call, Program, flatten
from closedform.ir.types import DType, Shape
from closedform.language.symbols import PARAM
from closedform.language.update_rule import UpdateRule
from closedform.options import GraphOptions, ModelSpec


class RuleState(NamedTuple):
    """The state of a rule.

    Attributes:
        count: The number of updates done, of int32.
        states: The states by name, each of the structure of the parameters.
        shared: The states of the whole model by name.
    """

    count: Any
    states: dict[str, Any]
    shared: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A parameter: its name in graphs, its shape there, and the rule for it."""

    name: str
    shape: Shape
    rule: UpdateRule


def jax_rule(
    rule: UpdateRule, check: Callable[[Graph], None] | None = None
) -> optax.GradientTransformationExtraArgs:
    """Returns a rule as a transformation of optax.

    ``update(grads, state, params, **values)`` returns the differences of the parameters and the
    next state. Values are given by name for hyperparameters without one, and pytrees of the further
    tensors that the rule takes.

    Parameters of float64 are computed in float64, all others in float32. Differences of parameters
    that the rule stores in 16 bits are of float32, and each operation on them is rounded by itself;
    ``optax.apply_updates`` adds them exactly if the magnitudes before and after a step are within a
    factor of 2**15. Scalars such as bias corrections are computed in float64 where JAX computes in
    64 bits, else in float32.

    Args:
        rule: The rule.
        check: Is called with the step of a model that has one parameter of each kind, with scalars
            of float64, when the first update of parameters of some shapes and dtypes is traced.
    """
    # By shapes and dtypes: jit traces update anew for each of them.
    programs: dict[tuple[object, ...], Program] = {}

    def program(leaves: Sequence[_Leaf], dtype: DType) -> Program:
        # jax_enable_x64 is global and may be switched between calls.
        key = is_x64(), dtype, *((leaf.name, leaf.shape) for leaf in leaves)
        if key not in programs:
            wide = DType.F64 if is_x64() else DType.F32
            options = GraphOptions(dtype=dtype, scalar_dtype=wide, step_dtype=DType.I32)
            shapes = {leaf.name: leaf.shape for leaf in leaves}
            programs[key] = compile_program(ModelSpec(rule, shapes), options)
            if check is not None:
                # Reversed: of parameters with one body, the first one stays.
                kinds = {call.body: call.param for call in reversed(programs[key].calls)}
                of_each = {name: shapes[name] for name in shapes if name in kinds.values()}
                # Scalars of float32 are computed in pairs, which say nothing over the real numbers.
                options = replace(options, scalar_dtype=DType.F64)
                check(flatten(compile_program(ModelSpec(rule, of_each), options)))
        return programs[key]

    def init(params: Any) -> RuleState:
        leaves = _leaves(rule, params)
        arrays, structure = jax.tree.flatten(params)
        states = {}
        for label, spec in rule.states.items():
            leaf_states: list[Any] = []
            for leaf, array in zip(leaves, arrays, strict=True):
                if label not in leaf.rule.states:
                    leaf_states.append(optax.MaskedNode())
                    continue
                compute_dtype = _dtype([array])
                dtype = (compute_dtype if spec.stored is None else DType(spec.stored)).numpy
                if spec.initial == PARAM:
                    # A state in the parameter's buffer could not be donated together with it.
                    leaf_states.append(jnp.array(array, dtype, copy=True))
                    continue
                shape = leaf.rule.state_shape(label, jnp.shape(array))
                sizes = tuple(int(size) for size in shape)
                leaf_states.append(jnp.full(sizes, float(spec.initial), dtype))
            states[label] = jax.tree.unflatten(structure, leaf_states)
        shared_states = {
            label: jnp.asarray(int(spec.initial), jnp.int32)
            # int32 also with 64 bits: optax counts in int32.
            if spec.is_counter
            else jnp.asarray(float(spec.initial), jnp.float64 if is_x64() else jnp.float32)
            for label, spec in rule.shared.items()
        }
        return RuleState(jnp.zeros((), jnp.int32), states, shared_states)

    def update(
        updates: Any, state: RuleState, params: Any = None, **values: Any
    ) -> tuple[Any, RuleState]:
        if params is None:
            raise SessionError(
                "the current parameters are needed, got none",
                where=f"rule {rule.name!r}",
                hint="update(grads, state, params)",
            )
        leaves = _leaves(rule, params)
        arrays, structure = jax.tree.flatten(params)
        dtype = _dtype(arrays)
        compiled_program = program(leaves, dtype)
        feeds = _step_feeds(
            rule, compiled_program, leaves, structure, dtype, (arrays, updates, state, values)
        )
        results = _run(compiled_program, feeds, keeps_roundings=not rule.is_in_one_dtype)
        differences = []
        for leaf, array in zip(leaves, arrays, strict=True):
            after = results[naming.following(naming.param(leaf.name))].reshape(jnp.shape(array))
            before = jnp.asarray(array)
            if rule.stored is None:
                differences.append((after - before.astype(after.dtype)).astype(before.dtype))
                continue
            # A difference of two floats of 16 bits is exact in float32; it need not be one of them.
            wide = dtype.numpy
            differences.append(after.astype(wide) - before.astype(wide))
        states = {}
        for label in rule.states:
            old = structure.flatten_up_to(state.states[label])
            states[label] = jax.tree.unflatten(
                structure,
                [
                    jnp.reshape(
                        results[naming.following(naming.state(leaf.name, label))], jnp.shape(before)
                    )
                    if label in leaf.rule.states
                    else before
                    for leaf, before in zip(leaves, old, strict=True)
                ],
            )
        shared_states = {
            label: results[naming.following(naming.shared(label))] for label in rule.shared
        }
        count = results[naming.following(naming.STEP)]
        return jax.tree.unflatten(structure, differences), RuleState(count, states, shared_states)

    return optax.GradientTransformationExtraArgs(init, update)


def _leaves(rule: UpdateRule, params: Any) -> list[_Leaf]:
    """The parameters of a pytree; an elementwise rule takes them flat and shares a graph."""
    leaves = []
    for path, array in jax.tree_util.tree_leaves_with_path(params):
        # A pytree that is one array has an empty path.
        name = jax.tree_util.keystr(path, simple=True, separator=".") or "param"
        shape = tuple(jnp.shape(array))
        leaf_rule = rule if rule.is_elementwise else rule.for_shape(shape, name)
        leaves.append(_Leaf(name, ("n",) if rule.is_elementwise else shape, leaf_rule))
    names = [leaf.name for leaf in leaves]
    if not names:
        raise SessionError("there are no parameters", where=f"rule {rule.name!r}")
    if len(set(names)) == len(names):
        return leaves
    # Paths such as ("a.b",) and ("a", "b") have one name.
    return [_Leaf(f"{place}", leaf.shape, leaf.rule) for place, leaf in enumerate(leaves)]


def _dtype(arrays: Sequence[Any]) -> DType:
    """The dtype that parameters are computed in."""
    is_wide = any(jnp.result_type(array) == jnp.float64 for array in arrays)
    return DType.F64 if is_wide else DType.F32


def _step_feeds(
    rule: UpdateRule,
    program: Program,
    leaves: Sequence[_Leaf],
    structure: Any,
    dtype: DType,
    arguments: tuple[Sequence[Any], Any, RuleState, Mapping[str, Any]],
) -> dict[str, Array]:
    """The inputs of the step by name."""
    arrays, updates, state, values = arguments
    feeds: dict[str, Any] = {naming.STEP: state.count}
    feeds |= {naming.shared(label): value for label, value in state.shared.items()}
    feeds |= _hypers(rule, program, values)

    def add(port: str, leaf: _Leaf, array: Any) -> None:
        cast = jnp.asarray(array).astype(dtype.numpy)
        feeds[port] = cast.reshape(-1) if rule.is_elementwise else cast

    grads = structure.flatten_up_to(updates)
    for leaf, array, grad in zip(leaves, arrays, grads, strict=True):
        add(naming.param(leaf.name), leaf, array)
        add(naming.grad(leaf.name), leaf, grad)
    for label in rule.states:
        for leaf, array in zip(leaves, structure.flatten_up_to(state.states[label]), strict=True):
            if label in leaf.rule.states:
                add(naming.state(leaf.name, label), leaf, array)
    for label in rule.inputs:
        tensors = structure.flatten_up_to(values[label])
        for leaf, array in zip(leaves, tensors, strict=True):
            add(naming.tensor_input(leaf.name, label), leaf, array)
    return feeds


def _hypers(rule: UpdateRule, program: Program, values: Mapping[str, Any]) -> dict[str, Array]:
    """The hyperparameters without a value, of the dtypes that the graphs take."""
    where = f"rule {rule.name!r}"
    hyper_names = {name for name, value in rule.hyperparameters.items() if value is None}
    argument_names = sorted({*hyper_names, *rule.inputs})
    for name in argument_names:
        if name not in values:
            kind = "tensors" if name in rule.inputs else "hyperparameter"
            raise SessionError(
                f"{kind} {name!r} missing", where=where, hint=f"update(…, params, {name}=…)"
            )
    nodes = [
        node
        for graph in (program.scalars, *(stage.scalars for stage in program.stages))
        for node in graph.inputs
        if node.attribute("role") == Role.HYPER and node.attribute("name") in hyper_names
    ]
    # Other values belong to other transformations of a chain, which all get them.
    return {
        str(node.attribute("name")): jnp.asarray(
            values[node.attribute("name")], node.type.dtype.numpy
        )
        for node in nodes
    }


def _run(
    program: Program, feeds: Mapping[str, Array], *, keeps_roundings: bool
) -> dict[str, Array]:
    """The outputs of a whole step by name."""
    values = dict(feeds)
    outputs_of = partial(_call_outputs, keeps_roundings=keeps_roundings)
    for stage in program.stages:
        scalars = _outputs(stage.scalars, values)
        totals: dict[str, Array] = {}
        for call in stage.calls:
            for name, part in outputs_of(stage.bodies, call, scalars, values).items():
                # In the order of the parameters, so that the sum has the same rounding in each
                # trace.
                totals[name] = part if name not in totals else totals[name] + part
        values |= totals
    # After the sums, which bias corrections or a clipping may depend on.
    scalars = _outputs(program.scalars, values)
    results = {name: value for name, value in scalars.items() if not name.startswith(naming.SCALAR)}
    for call in program.calls:
        for name, value in outputs_of(program.bodies, call, scalars, values).items():
            results[naming.outer_name(name, call.param)] = value
    return results


def _outputs(graph: Graph, values: Mapping[str, Array]) -> dict[str, Array]:
    return run_graph(graph, values) if graph.outputs else {}


def _call_outputs(
    bodies: Sequence[Graph],
    call: Call,
    scalars: Mapping[str, Array],
    values: Mapping[str, Array],
    *,
    keeps_roundings: bool,
) -> dict[str, Array]:
    """The outputs of the graph of one parameter."""
    body = bodies[call.body]
    feeds = {naming.scalar(place): scalars[name] for place, name in enumerate(call.scalars)}
    for node in body.inputs:
        name = str(node.attribute("name"))
        if not name.startswith(naming.SCALAR):
            feeds[name] = values[naming.outer_name(name, call.param)]
    return run_graph(body, feeds, keeps_roundings=keeps_roundings)
