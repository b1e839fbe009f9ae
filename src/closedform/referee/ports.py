"""The roles of the inputs and outputs of a step: parameter, gradient, state, hyperparameter.

Exporters name ports by position. A mapping says what each is, in the names of this package
(``state.w.mu``), as JAX prints the path of a leaf (``state[0].mu['w']``), or as a mixture of both.
``ports_by_use`` works the roles out from the graph.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from closedform.errors import ArgumentError, VerificationError, nearest
from closedform.files import check_regular
from closedform.ir import Graph, Node, Op, Shape, naming
from closedform.ir.graph import Array

BARE = "param"
"""The name of the parameter of a step that has one, without a name."""


class PortKind(StrEnum):
    """The role of a port of a step."""

    PARAM = "param"
    GRAD = "grad"
    STATE = "state"
    HYPER = "hyper"


@dataclass(frozen=True, slots=True)
class Port:
    """The role of an input or output.

    Attributes:
        kind: What it is.
        param: The parameter that it belongs to; "" for what belongs to the whole model.
        label: The name of a state or hyperparameter.
    """

    kind: PortKind
    param: str = ""
    label: str = ""

    def __str__(self) -> str:
        """The name of the port in the files of a rule."""
        match self.kind:
            case PortKind.STATE if self.param:
                return naming.state(self.param, self.label)
            case PortKind.STATE:
                return naming.shared(self.label)
            case PortKind.HYPER:
                return self.label
            case _:
                return f"{self.kind}.{self.param}"


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of a step.

    Attributes:
        inputs: What each input is, by its name in the file.
        outputs: What each output replaces, by its name in the file.
        initial: The values of states before the first step, where they are stated.
        is_by_use: Whether they were worked out from the graph.
    """

    inputs: Mapping[str, Port]
    outputs: Mapping[str, Port]
    initial: Mapping[Port, Array] = field(default_factory=dict)
    is_by_use: bool = False

    @property
    def params(self) -> list[str]:
        """The names of the parameters."""
        return [port.param for port in self.outputs.values() if port.kind is PortKind.PARAM]

    def __str__(self) -> str:
        entries = [f"{name} = {port}" for name, port in self.inputs.items()]
        return ", ".join(entries)


PortNames = Mapping[str, Any] | str | PathLike[str]
"""A mapping from names of ports to what they are, or the path of a JSON file with one."""

# As jax.tree_util.keystr writes: .mu of a named tuple, ['w'] of a dict, [0] of a tuple.
_TOKEN = re.compile(r"\.?([A-Za-z_][\w/-]*|\d+)|\['([^']*)'\]|\[\"([^\"]*)\"\]|\[(\d+)\]")


def read_ports(source: PortNames, graph: Graph) -> Ports:
    """Returns the ports that a mapping names.

    Args:
        source: What inputs and outputs are, by name; or ``{"inputs": …, "outputs": …,
            "initial_states": …}``, of which the last two may be left out; or the path of a JSON
            file of this.
        graph: The graph of the step.

    Raises:
        ArgumentError: A name is unknown, a text is not understood, or an input has no role.
    """
    content = _load(source)
    inputs = {str(node.attribute("name")): node for node in graph.inputs}
    outputs = {output.name for output in graph.outputs}
    is_nested = isinstance(content.get("inputs"), Mapping)
    input_texts = dict(content["inputs"]) if is_nested else content
    output_texts = dict(content.get("outputs") or {}) if is_nested else content
    for name in {*input_texts, *output_texts} - inputs.keys() - outputs:
        raise ArgumentError(
            f"{name!r} is neither an input nor an output of the file",
            where="ports",
            hint=nearest(name, {*inputs, *outputs}),
        )
    missing = [name for name in inputs if name not in input_texts]
    if missing:
        raise ArgumentError(
            f"the input {missing[0]!r} has no role",
            where="ports",
            hint="say what it is: grad.NAME, param.NAME, state.NAME.LABEL, or a hyperparameter",
        )
    input_tokens = {name: tokens_of(input_texts[name]) for name in inputs}
    output_tokens = {name: tokens_of(output_texts[name]) for name in outputs & output_texts.keys()}
    tokens = [*input_tokens.values(), *output_tokens.values()]
    paths = {tuple(entry[1:]) for entry in tokens if entry[0] in (PortKind.PARAM, PortKind.GRAD)}
    labels = _labels([entry for entry in tokens if entry[0] == PortKind.STATE], paths)
    input_ports = {name: _port(entry, paths, labels) for name, entry in input_tokens.items()}
    output_ports = {name: _port(entry, paths, labels) for name, entry in output_tokens.items()}
    by_output = {output.name: output for output in graph.outputs}
    ordered_outputs = {name: output_ports[name] for name in by_output if name in output_ports}
    initial = {
        _port(tokens_of(text), paths, labels): np.asarray(value)
        for text, value in dict(content.get("initial_states") or {}).items()
        if is_nested
    }
    ports = Ports(input_ports, ordered_outputs, initial)
    _check_twice(ports)
    return ports if ordered_outputs else _with_outputs(ports, graph)


def _load(source: PortNames) -> Mapping[str, Any]:
    if isinstance(source, Mapping):
        return source
    path = Path(source)
    check_regular(path, ArgumentError)
    try:
        content = json.loads(path.read_text())
    except OSError as error:
        raise ArgumentError(f"cannot read it: {error.strerror}", where=f"file {path!r}") from error
    except ValueError as error:
        raise ArgumentError("it is not JSON", where=f"file {str(path)!r}") from error
    if not isinstance(content, dict):
        raise ArgumentError("it is not a JSON object", where=f"file {str(path)!r}")
    return content


def tokens_of(text: object) -> tuple[str, ...]:
    """Returns the parts of the name of a port.

    Raises:
        ArgumentError: The text is not a name.

    Example:
        >>> tokens_of("state[0].mu['w']"), tokens_of("state.w.mu")
        (('state', '0', 'mu', 'w'), ('state', 'w', 'mu'))
    """
    place, tokens = 0, []
    content = text if isinstance(text, str) else ""
    while place < len(content):
        match = _TOKEN.match(content, place)
        if match is None:
            break
        tokens.append(next(group for group in match.groups() if group is not None))
        place = match.end()
    if not tokens or place < len(content):
        raise ArgumentError(
            f"{text!r} does not say what a port is",
            where="ports",
            hint="write grad.w, param.w, state.w.mu, state[0].mu['w'] or a hyperparameter",
        )
    if tokens[0] == naming.SHARED.rstrip("."):
        tokens[0] = str(PortKind.STATE)
    elif tokens[0] == naming.STEP and len(tokens) == 1:
        tokens = [str(PortKind.STATE), naming.STEP]
    elif tokens[0] not in set(PortKind):
        tokens.insert(0, str(PortKind.HYPER))
    return tuple(tokens)


def _split(tokens: Sequence[str], paths: set[tuple[str, ...]]) -> tuple[str, tuple[str, ...]]:
    """The parameter in the path of a state, and the remaining parts."""
    rest = tuple(tokens[1:])
    # The longest parameter first: 'layer.w' before 'w', which is a part of it.
    for path in sorted(paths, key=len, reverse=True):
        # From the end: optax has the path of a parameter behind the fields of its states.
        for place in range(len(rest) - len(path), -1, -1):
            if path and rest[place : place + len(path)] == path:
                return _name(path), rest[:place] + rest[place + len(path) :]
    return "", rest


def _name(path: tuple[str, ...]) -> str:
    return ".".join(path) or BARE


def _labels(
    entries: Iterable[Sequence[str]], paths: set[tuple[str, ...]]
) -> dict[tuple[str, ...], str]:
    """A label for each path of a state: its last word, or all of it where that is not enough."""
    words = list(dict.fromkeys(_split(entry, paths)[1] for entry in entries))
    # An index tells transformations of a chain apart, but names nothing.
    last = [next((part for part in path[::-1] if not part.isdigit()), "state") for path in words]
    return {
        path: word if last.count(word) == 1 else "_".join(path)
        for path, word in zip(words, last, strict=True)
    }


def _port(
    tokens: Sequence[str], paths: set[tuple[str, ...]], labels: Mapping[tuple[str, ...], str]
) -> Port:
    kind = PortKind(tokens[0])
    if kind in (PortKind.PARAM, PortKind.GRAD):
        return Port(kind, _name(tuple(tokens[1:])))
    if kind is PortKind.HYPER:
        return Port(kind, "", ".".join(tokens[1:]))
    param, path = _split(tokens, paths)
    return Port(kind, param, labels.get(path, "_".join(path)))


def _check_twice(ports: Ports) -> None:
    for entries in (ports.inputs, ports.outputs):
        names: dict[Port, str] = {}
        for name, port in entries.items():
            if port in names:
                raise ArgumentError(f"{names[port]!r} and {name!r} are both {port}", where="ports")
            names[port] = name
    for name, port in ports.outputs.items():
        # Gradients and hyperparameters are given anew for each step.
        if port.kind not in (PortKind.PARAM, PortKind.STATE) or port not in set(
            ports.inputs.values()
        ):
            raise ArgumentError(
                f"the output {name!r} is {port}, which is not an input that a step replaces",
                where="ports",
                hint="of an input that is an output, too, say both: {'inputs': …, 'outputs': …}",
            )


# --- by use --------------------------------------------------------------------------------------


def ports_by_use(graph: Graph) -> Ports:
    """Returns the likeliest ports of a step as the graph uses them.

    An output replaces the input that it carries, such as ``s`` in ``0.9 * s + 0.1 * g``: of a
    tensor the one with the coefficient that is nearest to 1. Tensors that are combined element by
    element belong to one parameter. Of its ports, the parameter is the one whose next value takes
    the most inputs, and the gradient is the input that no output replaces. Integers are counters,
    and numbers that nothing replaces hyperparameters.

    Args:
        graph: The graph of the step.

    Raises:
        VerificationError: The graph has no such reading, or several.
    """
    return _Use(graph).ports()


def other_ports(ports: Ports, graph: Graph) -> Iterator[Ports]:
    """Yields readings in which a state changes places with the gradient or with the parameter.

    ``m + g`` is the sum of a state and a gradient, whichever of the two is the state.
    """
    types = {str(node.attribute("name")): node.type for node in graph.inputs}
    places = {port: name for name, port in ports.inputs.items()}
    states: dict[str, list[Port]] = {}
    for port in ports.inputs.values():
        if port.kind is PortKind.STATE and port.param:
            states.setdefault(port.param, []).append(port)
    for kind in (PortKind.GRAD, PortKind.PARAM):
        for place in range(max(map(len, states.values()), default=0)):
            swapped: dict[Port, Port] = {}
            for param, entries in states.items():
                tensor = Port(kind, param)
                for state in entries[place : place + 1]:
                    if types[places[state]] == types[places[tensor]]:
                        swapped |= {state: tensor, tensor: state}
            if swapped:
                inputs = {name: swapped.get(port, port) for name, port in ports.inputs.items()}
                outputs = {
                    name: swapped.get(port, port) if kind is PortKind.PARAM else port
                    for name, port in ports.outputs.items()
                }
                yield replace(ports, inputs=inputs, outputs=outputs)


def _with_outputs(ports: Ports, graph: Graph) -> Ports:
    """The ports with each output as what it replaces, where only the inputs are named."""
    use = _Use(graph)
    replaceable = {
        name for name, port in ports.inputs.items() if port.kind in (PortKind.PARAM, PortKind.STATE)
    }
    pairs = use.pair([output.name for output in graph.outputs], replaceable)
    outputs = {output: ports.inputs[name] for output, name in pairs.items()}
    return Ports(ports.inputs, outputs, ports.initial)


# Each output is scored with each input: quadratic.
_MOST_PORTS = 400
_HINT = "say what its ports are: ports={'in_0': 'grad.w', …}"


class _Use:
    """The inputs that each node of a graph depends on, and those that it carries."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.inputs: dict[str, Node] = {str(node.attribute("name")): node for node in graph.inputs}
        if len(self.inputs) + len(graph.outputs) > _MOST_PORTS:
            raise VerificationError(
                f"it has {len(self.inputs)} inputs; the use of at most {_MOST_PORTS} ports is read",
                hint=_HINT,
            )
        self.output_places = {output.name: output.index for output in graph.outputs}
        self.needs: list[frozenset[str]] = []
        self.near: list[frozenset[str]] = []  # not through a number of the whole model
        self.carried: list[dict[str, float]] = []
        for node in graph.nodes:
            self._add(node)

    def _add(self, node: Node) -> None:
        if node.op is Op.INPUT:
            name = str(node.attribute("name"))
            self.needs.append(frozenset({name}))
            # A global norm depends on all gradients: through it all parameters would be one.
            self.near.append(frozenset({name} if node.type.shape else ()))
            self.carried.append({name: 1.0})
            return
        places = node.operands
        needs = [self.needs[place] for place in places]
        self.needs.append(frozenset().union(*needs))
        near = frozenset().union(*(self.near[place] for place in places))
        self.near.append(near if node.type.shape else frozenset())
        self.carried.append(self._carry(node))

    def _carry(self, node: Node) -> dict[str, float]:
        """The coefficient of each input that a node carries; 1 of one for a choice."""
        parts = [self.carried[place] for place in node.operands]
        match node.op:
            case Op.ADD:
                return {
                    name: parts[0].get(name, 0.0) + parts[1].get(name, 0.0)
                    for name in {**parts[0], **parts[1]}
                }
            case Op.SUB:
                return {
                    name: parts[0].get(name, 0.0) - parts[1].get(name, 0.0)
                    for name in {**parts[0], **parts[1]}
                }
            case Op.MUL | Op.DIV:
                return self._carry_product(node, parts)
            # AMSGrad's maximum and a clipped state carry their operands as they are.
            case Op.MIN | Op.MAX:
                return {**parts[0], **parts[1]}
            case Op.WHERE:
                return {**parts[2], **parts[1]}
            case Op.CAST | Op.RESHAPE | Op.BROADCAST_TO:
                return parts[0]
            case Op.NEG:
                return {name: -factor for name, factor in parts[0].items()}
            case _:
                return {}

    def _carry_product(self, node: Node, parts: Sequence[dict[str, float]]) -> dict[str, float]:
        """A multiple of what one factor carries; the other one depends on no tensor."""
        for place, other in ((0, 1), (1, 0)):
            factor = self.graph.nodes[node.operands[other]]
            is_number = not any(self.inputs[name].type.shape for name in self._needs(node, other))
            if not is_number or (node.op is Op.DIV and place == 1):
                continue
            # A number that is computed or an input: most decays are near 1.
            number = 0.9
            if factor.op is Op.CONST and factor.array().size:
                number = float(factor.array().ravel()[0])
            if node.op is Op.DIV:
                number = 1 / number if number else 0.0
            if parts[place]:
                return {name: value * number for name, value in parts[place].items()}
        return {}

    def _needs(self, node: Node, place: int) -> frozenset[str]:
        return self.needs[node.operands[place]]

    # --- pairs of outputs and inputs --------------------------------------------------------------

    def pair(self, outputs: Sequence[str], names: Iterable[str]) -> dict[str, str]:
        """Returns the input that each output replaces, by the name of the output.

        Raises:
            VerificationError: An output replaces none.
        """
        remaining = list(names)
        passed = {output: self._passed_on(output) for output in outputs}
        scores = [
            (self._score(output, name), place, position, output, name)
            for place, output in enumerate(outputs)
            for position, name in enumerate(remaining)
            if passed[output] is None and name not in passed.values() and self._fits(output, name)
        ]
        pairs: dict[str, str] = {}
        # Greedy, the surest pair first; ties in the order of the file.
        for _, _, _, output, name in sorted(scores, key=lambda entry: (-entry[0], *entry[1:3])):
            if output not in pairs and name not in pairs.values():
                pairs[output] = name
        for output in outputs:
            if output not in pairs:
                free = [name for name in remaining if name not in pairs.values()]
                candidates = self._replaced_whole(output, passed[output], free)
                pairs.update({output: candidates[0]} if candidates else {})
        for output in outputs:
            if output not in pairs:
                raise VerificationError(
                    f"the output {output!r} is not seen to replace an input", hint=_HINT
                )
        return {output: pairs[output] for output in outputs}

    def _passed_on(self, output: str) -> str | None:
        """The input that an output is."""
        node = self.graph.nodes[self.output_places[output]]
        return str(node.attribute("name")) if node.op is Op.INPUT else None

    def _replaced_whole(self, output: str, passed: str | None, free: Sequence[str]) -> list[str]:
        """Inputs that an output may replace without taking them, such as the last gradient.

        An input that is passed on is a state that stays as it is, unless an input after it of the
        same parameter is left: gradients come before states.
        """
        type_ = self.graph.nodes[self.output_places[output]].type
        near = self.near[self.output_places[output]]
        group = next((group for group in self._components() if near & {*group}), [])
        fitting = [name for name in free if self.inputs[name].type == type_]
        fitting = [name for name in fitting if not near or name in group]
        if passed is None:
            # The first one is likely the gradient, which exporters have before the states.
            return fitting[1:] if type_.shape else fitting
        order = list(self.inputs)
        later = [name for name in fitting if order.index(name) > order.index(passed)]
        return (later or [passed]) if passed in fitting else []

    def _fits(self, output: str, name: str) -> bool:
        place = self.output_places[output]
        return self.graph.nodes[place].type == self.inputs[name].type and name in self.needs[place]

    def _score(self, output: str, name: str) -> float:
        """How likely an output replaces an input: most where it is a decayed copy."""
        place = self.output_places[output]
        coefficient = self.carried[place].get(name)
        # It is taken only by a function, such as a square root, but still likelier than one with a
        # negative sign.
        if coefficient is None:
            return 0.1
        if coefficient <= 0:  # 0 where an update is the difference to the next value
            return 0.2 if coefficient == 0 else 0.05
        # An input that only one output takes is a state rather than a gradient.
        readers = sum(name in self.needs[index] for index in self.output_places.values())
        # By the logarithm, 0.9 and 1/0.9 are equally near to 1.
        nearness = 1 / (1 + abs(math.log(coefficient)))
        return 1 + nearness + 1 / (1 + readers)

    # --- parameters -------------------------------------------------------------------------------

    def ports(self) -> Ports:
        """Returns the ports."""
        outputs = list(self.output_places)
        pairs = self.pair(outputs, self.inputs)
        inputs: dict[str, Port] = {}
        output_ports: dict[str, Port] = {}
        owners: dict[str, str] = {}
        for tensors in self._components():
            members = [output for output in outputs if pairs[output] in tensors]
            gradient_names = [name for name in tensors if name not in pairs.values()]
            output, gradient = self._param(members, tensors, gradient_names)
            param = pairs[output]
            owners.update(dict.fromkeys(tensors, param))
            inputs[gradient] = Port(PortKind.GRAD, param)
            inputs[param] = output_ports[output] = Port(PortKind.PARAM, param)
        for output, name in pairs.items():
            if name not in inputs:
                inputs[name] = Port(
                    PortKind.STATE, owners.get(name) or self._owner(output, owners), name
                )
            output_ports[output] = inputs[name]
        for name in self.inputs:
            inputs.setdefault(name, Port(PortKind.HYPER, "", name))
        ordered = {name: inputs[name] for name in self.inputs}
        return Ports(ordered, {name: output_ports[name] for name in outputs}, is_by_use=True)

    def _components(self) -> list[list[str]]:
        """The tensors that are combined with each other, in the order of the inputs."""
        groups: dict[str, set[str]] = {
            name: {name} for name, node in self.inputs.items() if node.type.shape
        }
        for names in self.near:
            # Union of sets that share one object: all members see the merged group.
            merged = set().union(*(groups[name] for name in names)) if names else set()
            for name in merged:
                groups[name] = merged
        components = {id(group): group for group in groups.values()}
        return [[name for name in self.inputs if name in group] for group in components.values()]

    def _param(
        self, members: Sequence[str], tensors: Sequence[str], gradient_names: Sequence[str]
    ) -> tuple[str, str]:
        """The output that is the parameter, and the gradient."""
        shapes: dict[str, Shape] = {name: self.inputs[name].type.shape for name in tensors}
        sizes = {name: math.prod(map(int, shape)) for name, shape in shapes.items()}
        if len(gradient_names) != 1 or not members:
            raise VerificationError(
                f"of the tensors {', '.join(tensors)} one must be a gradient, which no output "
                f"replaces; got {', '.join(gradient_names) or 'none'}",
                hint=_HINT,
            )
        (gradient,) = gradient_names
        candidates = [
            output
            for output in members
            if self.graph.nodes[self.output_places[output]].type.shape == shapes[gradient]
            and gradient in self.needs[self.output_places[output]]
        ]
        if not candidates or sizes[gradient] < max(sizes.values()):
            raise VerificationError(f"no output replaces the parameter of {gradient!r}", hint=_HINT)
        # The next parameter takes the states, the states do not take the parameter.
        return max(candidates, key=lambda name: len(self.needs[self.output_places[name]])), gradient

    def _owner(self, output: str, owners: Mapping[str, str]) -> str:
        """The parameter of a number: the only one whose tensors it depends on."""
        names = self.needs[self.output_places[output]]
        params = {owners[name] for name in names if name in owners}
        return next(iter(params)) if len(params) == 1 and len(set(owners.values())) > 1 else ""
