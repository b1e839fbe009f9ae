"""ONNX inference models as modules of torch.

The weights are parameters and buffers with the names in the file. Nothing in the file is run: each
node is a row of a table of functions of torch.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from onnx import ModelProto, NodeProto
from torch._subclasses.fake_tensor import FakeTensorMode

from closedform.errors import ClosedFormError, TrainingExportError
from closedform.exporters.onnx_scopes import names_read, needed_nodes
from closedform.importers.onnx_checks import CheckedModel, check_model
from closedform.importers.onnx_structure import MOST_ENTRIES
from closedform.training.file_names import python_name
from closedform.training.from_onnx.control_flow import (
    BRANCH,
    LOOP,
    guard_operands,
    select_branch,
    unroll_loop,
)
from closedform.training.from_onnx.input_shapes import InputShapes
from closedform.training.from_onnx.known import known_results
from closedform.training.from_onnx.operators import (
    NEWEST,
    OLDEST,
    ROWS,
    attributes_of,
    check_operator,
    is_training_form,
    needed_names,
    running_statistics,
)
from closedform.training.from_onnx.scopes import distinct_names
from closedform.training.from_onnx.values import (
    ANOTHER_SOURCE,
    INVALID_FILE,
    FixedSizeError,
    Items,
    Known,
    NodeCall,
    OnnxValue,
    as_tensor,
)
from closedform.training.from_onnx.weights import (
    FLOATS,
    check_bytes,
    load_model,
    read_weights,
    tensor_of,
    trainable_names,
    weight_names,
    without_weights,
)

MOST_KNOWN = 16
"""Entries of floats that may be sizes, such as factors of a Resize."""

# 4 GiB in float32: a file of a few bytes may Expand to any size, so sizes are counted on tensors
# without data first.
MOST_NUMBERS = 2**30
"""Entries of one tensor while the model runs."""


class OnnxModule(torch.nn.Module):
    """An ONNX model that torch runs, and trains.

    Made by ``read_module``. In training mode, a batch normalisation uses the statistics of the
    batch, and moves the running ones, if its scale or its bias is trained or the file has it in
    training form; a dropout drops if the file has it in training form.

    Attributes:
        input_names: Names of the inputs, with ``_`` for each character that no identifier has.
        output_names: Names of the outputs.
        input_shapes: The declared shapes of the inputs.
        file_inputs: Names of the inputs in the file.
        skeleton: The model of the file without the weights that are parameters or buffers.
        version: The opset of the file.
        is_chosen: Whether ``trainable`` named the weights that are parameters.
    """

    def __init__(
        self, model: CheckedModel, trainable: Sequence[str] | None, version: int, where: str
    ) -> None:
        super().__init__()
        inlined_graph = model.inline_functions()
        graph = distinct_names(inlined_graph)
        self._where = where
        self._limit: int | None = None
        self.version, self.is_chosen = version, trainable is not None
        weights = dict(read_weights(graph, where))
        graph_inputs = [value for value in graph.input if value.name not in weights]
        self.file_inputs = tuple(value.name for value in graph_inputs)
        self.input_names = tuple(map(python_name, self.file_inputs))
        if len(set(self.input_names)) < len(self.input_names):
            raise TrainingExportError(
                f"inputs have one name: {list(self.input_names)}",
                where=where,
                hint="rename them in the file: each character that no identifier has becomes _",
            )
        self.output_names = tuple(value.name for value in graph.output)
        self.input_shapes = InputShapes.read(
            dict(zip(self.input_names, graph_inputs, strict=True)), where
        )
        nodes = needed_nodes(graph.node, self.output_names)
        statistics = running_statistics(nodes)
        # A weight from which a shape is computed has to be a number while torch traces.
        untrainable = statistics | needed_names(nodes)
        self._trained = frozenset(trainable_names(weights, trainable, untrainable, where))
        self._nodes = self._body(nodes, self.output_names)
        _check_order(self._nodes, {"", *weights, *self.file_inputs}, self.output_names, where)
        self._known: dict[str, Known] = {}
        self._owners: dict[str, tuple[torch.nn.Module, str]] = {}
        read = names_read(nodes) | {*self.output_names}
        for name, array in weights.items():
            if name in read:
                self._add(name, array, is_written=name in statistics)
        # After the weights were added: constants are the weights that are not trained and small.
        self._nodes = self._fold_constants(self._nodes)
        # A weight within a function is a constant of each of its calls: they are written out.
        has_calls = graph is inlined_graph and self._owners.keys() <= weight_names(model.graph)
        self.skeleton = without_weights(
            model.model, model.graph if has_calls else graph, self._owners
        )

    def freeze(self, names: Collection[str]) -> None:
        """Makes parameters frozen ones, by name."""
        for name, parameter in self.named_parameters():
            if name in names:
                parameter.requires_grad_(False)

    def forward(self, *positional: torch.Tensor, **keywords: torch.Tensor) -> Any:
        """Returns the output, or a tuple of the outputs."""
        arguments = dict(zip(self.input_names, positional, strict=False)) | keywords
        if arguments.keys() != set(self.input_names) or len(positional) > len(self.input_names):
            raise TrainingExportError(
                f"the model takes {', '.join(self.input_names)}, got {len(positional)} inputs and "
                f"{', '.join(keywords) or 'none by name'}",
                where=self._where,
                hint="the batch has the inputs of the file first, then the targets of the loss",
            )
        # "" is the name of an operand that is left out.
        values: dict[str, OnnxValue | None] = {"": None, **self._known}
        values |= {name: getattr(owner, key) for name, (owner, key) in self._owners.items()}
        values |= {
            name: arguments[key]
            for name, key in zip(self.file_inputs, self.input_names, strict=True)
        }
        try:
            self._run(self._nodes, values, set())
        except _TorchRefusalError as refusal:
            self.input_shapes.check_sizes(arguments, refusal)
            # The class of an error that users see is public.
            raise TrainingExportError(
                refusal.what, where=refusal.where, hint=ANOTHER_SOURCE
            ) from refusal
        outputs = tuple(as_tensor(_present(values[name])) for name in self.output_names)
        return outputs if len(outputs) > 1 else outputs[0]

    def _run(
        self, nodes: Sequence[_Node], values: dict[str, OnnxValue | None], of_sizes: set[str]
    ) -> None:
        """Adds the results of nodes; ``of_sizes`` has the tensors that sizes determine."""
        for node in nodes:
            operands = [values[name] for name in node.inputs]
            if node.operator == LOOP:
                self._run_loop(node, operands, values, of_sizes)
                continue
            if node.branches and not isinstance(operands[0], np.ndarray):
                self._run_both(node, as_tensor(_present(operands[0])), values, of_sizes)
                continue
            if node.branches:
                branch = node.branches[_is_true(operands[0])]
                self._run(branch.nodes, values, of_sizes)
                results = [values[name] for name in branch.outputs]
                of_sizes |= {
                    name
                    for name, inner in zip(node.outputs, branch.outputs, strict=True)
                    if inner in of_sizes
                }
                values |= dict(zip(node.outputs, results, strict=True))
                continue
            # A value that only constants and sizes determine may be known during a trace.
            is_of_sizes = [
                isinstance(value, np.ndarray) or value is None or name in of_sizes
                for name, value in zip(node.inputs, operands, strict=True)
            ]
            places = frozenset(place for place, of in enumerate(is_of_sizes) if of)
            results = list(self._results(node, operands, places))
            values |= dict(zip(node.outputs, results, strict=False))
            if all(is_of_sizes):
                of_sizes |= set(node.outputs)

    def _run_both(
        self,
        node: _Node,
        condition: torch.Tensor,
        values: dict[str, OnnxValue | None],
        of_sizes: set[str],
    ) -> None:
        """Adds the results of the branch that a condition in the data selects: both are run."""
        results: list[list[OnnxValue | None]] = []
        # ~condition first: node.branches holds else before then.
        for is_taken, branch in zip((~condition, condition), node.branches, strict=True):
            written = next(filter(self._writes_statistics, _nodes_within(branch.nodes)), None)
            if written is not None:
                raise TrainingExportError(
                    f"its condition {node.inputs[0]!r} depends on data, and {written.where} moves "
                    "its running statistics in one branch only",
                    where=node.where,
                    hint="leave its scale and bias out of trainable, or make the condition a "
                    "constant",
                )
            inner = guard_operands(values, is_taken.reshape(()))
            try:
                self._run(branch.nodes, inner, set(of_sizes))
            except TrainingExportError as error:
                raise TrainingExportError(
                    f"its condition {node.inputs[0]!r} depends on data, so that both branches run, "
                    f"and {error.where or 'one'} fails: {error.what}",
                    where=node.where,
                    hint="fix an input that decides it, in the file: append "
                    "onnx.numpy_helper.from_array(value, name) to model.graph.initializer, and "
                    "remove it from model.graph.input",
                ) from error
            results.append([inner[name] for name in branch.outputs])
        with _errors_of(node):
            selected = select_branch(condition, results[1], results[0])
        values |= dict(zip(node.outputs, selected, strict=True))

    def _writes_statistics(self, node: _Node) -> bool:
        return node.operator == "BatchNormalization" and node.is_trained and self.training

    def _run_loop(
        self,
        node: _Node,
        operands: Sequence[OnnxValue | None],
        values: dict[str, OnnxValue | None],
        of_sizes: set[str],
    ) -> None:
        """Adds the results of a loop, whose iterations are run one after the other."""
        (body,) = node.branches
        sources = list(node.inputs)

        def iterate(inner: Sequence[OnnxValue | None]) -> list[OnnxValue | None]:
            values.update(zip(body.inputs, inner, strict=True))
            is_of_sizes = [name in of_sizes for name in sources]
            for name, is_known in zip(body.inputs, is_of_sizes, strict=True):
                of_sizes.add(name) if is_known else of_sizes.discard(name)
            self._run(body.nodes, values, of_sizes)
            # The number of the iteration is known; the condition and the others are carried on.
            # The iteration number (place 0) comes from outside each time; the results begin with
            # the condition (place 1).
            sources[1:] = body.outputs[: len(sources) - 1]
            return [values[name] for name in body.outputs]

        # max_trip_count and cond are optional and may be left out at the end of the operands.
        padded = [*operands, *[None] * (2 - len(operands))]
        with _errors_of(node):
            results = unroll_loop(iterate, padded)
        values |= dict(zip(node.outputs, results, strict=False))

    def _fold_constants(self, nodes: Sequence[_Node]) -> tuple[_Node, ...]:
        """The nodes that do not compute constants; the results of the others are constants."""
        left: list[_Node] = []
        for node in nodes:
            is_constant = all(name in self._known or not name for name in node.inputs)
            # A loop is unrolled at each call, since the body may read values that are not
            # constants.
            if not is_constant or node.operator == LOOP:
                left.append(node)
                continue
            operands = [self._known.get(name) for name in node.inputs]
            if node.branches:
                branch = node.branches[_is_true(operands[0])]
                left += self._fold_constants(branch.nodes)
                # The results of the branch get the names of the node; torch's Identity does not
                # copy.
                left += [
                    _identity(inner, outer, node.where)
                    for inner, outer in zip(branch.outputs, node.outputs, strict=True)
                ]
                continue
            results = self._known_results(node, self._call(node, operands, frozenset()))
            if results is None:
                left.append(node)
                continue
            self._known |= dict(zip(node.outputs, results, strict=False))
        return tuple(left)

    def check_memory(self, *positional: torch.Tensor, **keywords: torch.Tensor) -> None:
        """Raises ExportError if a tensor has too many entries for inputs of these sizes."""
        self._limit = MOST_NUMBERS
        try:
            # Fake tensors have sizes and no data, so the check takes no memory.
            with FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad():
                fake = {name: mode.from_tensor(value) for name, value in keywords.items()}
                self(*map(mode.from_tensor, positional), **fake)
        finally:
            self._limit = None

    def _call(
        self, node: _Node, operands: Sequence[OnnxValue | None], of_sizes: frozenset[int]
    ) -> NodeCall:
        is_training = self.training and node.is_trained
        count = len(node.outputs)
        return NodeCall(operands, node.attributes, is_training, count, self.version, of_sizes)

    def _known_results(self, node: _Node, call: NodeCall) -> Sequence[Known] | None:
        with _errors_of(node):
            return known_results(node.operator, ROWS[node.operator][0], call)

    def _results(
        self, node: _Node, operands: list[OnnxValue | None], of_sizes: frozenset[int]
    ) -> Sequence[OnnxValue]:
        call = self._call(node, operands, of_sizes)
        constants = self._known_results(node, call)
        if constants is not None:
            return constants
        with _errors_of(node):
            result = ROWS[node.operator][0](call)
        results = result if isinstance(result, tuple | list) else [result]
        for place in range(len(results), len(node.outputs)):
            if node.is_used[place]:
                raise TrainingExportError(
                    f"its result {place} is not supported", where=node.where, hint=ANOTHER_SOURCE
                )
        # Counted only in check_memory; a real run would have failed in torch by then.
        for value in results if self._limit is not None else ():
            if isinstance(value, Items):
                continue  # parts of a tensor
            if (count := math.prod(value.shape)) > (self._limit or 0):
                raise TrainingExportError(
                    f"its result has {count} entries; at most {self._limit} are computed",
                    where=node.where,
                    hint="give a smaller example",
                )
        return results

    def _body(self, nodes: Sequence[NodeProto], outputs: Sequence[str]) -> tuple[_Node, ...]:
        """Nodes that have been checked, without constants."""
        names_used = names_read(nodes) | {*outputs}
        return tuple(
            self._node(node, names_used)
            for node in nodes
            if node.op_type != "Constant" or node.domain
        )

    def _node(self, node: NodeProto, names_used: set[str]) -> _Node:
        where = f"{self._where}, node {node.name or node.output[0]!r}, operator {node.op_type}"
        outputs = tuple(node.output)
        is_used = tuple(name in names_used for name in outputs)
        if node.op_type in (BRANCH, LOOP):
            graphs = {attribute.name: attribute.g for attribute in node.attribute}
            kinds = ("else_branch", "then_branch") if node.op_type == BRANCH else ("body",)
            branches = tuple(
                _Branch(
                    self._body(graph.node, names), tuple(value.name for value in graph.input), names
                )
                for graph in map(graphs.__getitem__, kinds)
                for names in [tuple(value.name for value in graph.output)]
            )
            return _Node(
                node.op_type, tuple(node.input), outputs, {}, True, where, is_used, branches
            )
        attributes = attributes_of(node, where)
        is_trained = True
        if node.op_type == "BatchNormalization":
            is_trained = is_training_form(node, self.version) or not self._trained.isdisjoint(
                node.input[1:3]
            )
        return _Node(
            node.op_type, tuple(node.input), outputs, attributes, is_trained, where, is_used
        )

    def _add(self, name: str, array: Known, *, is_written: bool) -> None:
        """Adds a weight: a parameter if it is trained, else a buffer, or a constant."""
        kind = array.dtype.name
        is_small = array.size <= (MOST_KNOWN if kind in FLOATS else MOST_ENTRIES)
        # A constant has to be small, since folding computes in NumPy at the time of reading.
        # NumPy has no bfloat16 to fold with; running statistics are written to.
        if name not in self._trained and is_small and not is_written and kind != "bfloat16":
            self._known[name] = array
            return
        # torch.nn.Module takes no dots in names: a.b.weight becomes a weight in modules a and b, as
        # in the state_dict that it came from.
        *path, last = name.split(".")
        owner: torch.nn.Module = self
        try:
            for part in path:
                if part not in owner._modules:
                    owner.add_module(part, torch.nn.Module())
                owner = owner.get_submodule(part)
            if name in self._trained:
                owner.register_parameter(last, torch.nn.Parameter(tensor_of(array)))
            else:
                owner.register_buffer(last, tensor_of(array))
        except (KeyError, AttributeError) as error:
            raise TrainingExportError(
                f"the weight {name!r} cannot have its name in torch: {error}",
                where=self._where,
                hint="rename it in the file",
            ) from error
        self._owners[name] = owner, last


@dataclass(frozen=True, slots=True)
class _Node:
    """A node that has been checked.

    Attributes:
        operator: The operator.
        inputs: Names of the operands.
        outputs: Names of the results.
        attributes: The attributes over their defaults.
        is_trained: Whether it is in training form when the module is in training mode.
        where: The node, named in errors.
        is_used: Whether a node or the graph reads each result.
        branches: The graphs of an ``If``, for a false and for a true condition, or that of a
            ``Loop``.
    """

    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    is_trained: bool
    where: str
    is_used: tuple[bool, ...]
    branches: tuple[_Branch, ...] = ()


@dataclass(frozen=True, slots=True)
class _Branch:
    """A graph within a node; it reads names of the graph around it.

    Attributes:
        nodes: Its nodes.
        inputs: Names of its arguments: the number of the iteration, the condition and the carried
            values of a loop.
        outputs: Names of its results.
    """

    nodes: tuple[_Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def _nodes_within(nodes: Iterable[_Node]) -> Iterator[_Node]:
    """Yields nodes, and the nodes of their branches."""
    for node in nodes:
        yield node
        for branch in node.branches:
            yield from _nodes_within(branch.nodes)


def _is_true(condition: OnnxValue | None) -> bool:
    return isinstance(condition, np.ndarray) and bool(condition.reshape(-1)[0])


def _identity(inner: str, outer: str, where: str) -> _Node:
    return _Node("Identity", (inner,), (outer,), {}, True, where, (True,))


@contextlib.contextmanager
def _errors_of(node: _Node) -> Iterator[None]:
    """Has errors name a node."""
    try:
        yield
    except FixedSizeError:
        raise
    except ClosedFormError as error:
        hint = error.hint or ANOTHER_SOURCE
        raise TrainingExportError(error.what, where=node.where, hint=hint) from error
    except Exception as error:  # of any kind: torch's own have no base
        kind, text = type(error).__name__, str(error).strip().splitlines() or [""]
        raise _TorchRefusalError(
            f"{kind}: {text[0]}", where=node.where, hint=ANOTHER_SOURCE
        ) from error


class _TorchRefusalError(TrainingExportError):
    """torch does not compute a node, in its words."""


def read_module(
    source: ModelProto | str | PathLike[str], trainable: Sequence[str] | None = None
) -> OnnxModule:
    """Returns an ONNX inference model as a module of torch, in training mode.

    Args:
        source: A model, or the path of its file; external data has to be in its folder.
        trainable: Weights that are parameters, as names or globs such as ``"*.weight"``; a glob
            matches floats with more than one entry; None for all that ``"*"`` matches. All other
            weights are buffers or constants.

    Raises:
        ExportError: The file cannot be read, is too large, or has an operator, an attribute, a type
            or an opset that is not supported; or a name in ``trainable`` is not that of a weight.
    """
    where = "the ONNX model" if isinstance(source, ModelProto) else f"file {str(source)!r}"
    model = source if isinstance(source, ModelProto) else load_model(Path(source), where)
    model = _without_false_sizes(model, is_shared=isinstance(source, ModelProto))
    check_bytes(list(model.graph.initializer), where)
    try:
        checked_model = check_model(model, check_operator)
    except ClosedFormError as error:
        is_node = error.where is not None and error.where.startswith("node")
        place = f"{where}, {error.where}" if is_node else where
        hint = error.hint or INVALID_FILE
        raise TrainingExportError(error.what, where=place, hint=hint) from error
    (version,) = (entry.version for entry in checked_model.model.opset_import if not entry.domain)
    if not OLDEST <= version <= NEWEST:
        raise TrainingExportError(
            f"its opset must be in {OLDEST}..{NEWEST}, got {version}",
            where=where,
            hint="convert it with onnx.version_converter.convert_version",
        )
    return OnnxModule(checked_model, trainable, version, where)


def _without_false_sizes(model: ModelProto, *, is_shared: bool) -> ModelProto:
    """The model without declared sizes that no engine holds a file to.

    Paddle writes -1 for a free size, and outputs of any shape as scalars; onnxruntime reads both.
    A model that is the caller's is copied.
    """
    graph = model.graph
    tensor_types = [v.type.tensor_type for v in (*graph.input, *graph.output, *graph.value_info)]
    is_false = any(dim.dim_value < 0 for kind in tensor_types for dim in kind.shape.dim) or any(
        value.type.tensor_type.HasField("shape") and not value.type.tensor_type.shape.dim
        for value in graph.output
    )
    if not is_false:
        return model
    if is_shared:
        copy = ModelProto()
        copy.CopyFrom(model)
        return _without_false_sizes(copy, is_shared=False)
    for kind in tensor_types:
        # A proto field of 0 and one that is absent are different: an absent size is free.
        for dim in kind.shape.dim:
            if dim.dim_value < 0:
                dim.ClearField("dim_value")
    for value in graph.output:
        if not value.type.tensor_type.shape.dim:
            value.type.tensor_type.ClearField("shape")
    return model


def _check_order(
    nodes: Sequence[_Node], defined_names: set[str], outputs: Sequence[str], where: str
) -> None:
    """Raises ExportError if a name is used before it is computed."""
    for node in nodes:
        missing = [name for name in node.inputs if name not in defined_names]
        if missing:
            raise TrainingExportError(
                f"its operand {missing[0]!r} is not computed by any node before it",
                where=node.where,
                hint=INVALID_FILE,
            )
        for branch in node.branches:
            inner_names = {*defined_names, *branch.inputs}
            _check_order(branch.nodes, inner_names, branch.outputs, node.where)
        defined_names |= set(node.outputs)
    missing = [name for name in outputs if name not in defined_names]
    if missing:
        raise TrainingExportError(
            f"the output {missing[0]!r} is not computed by any node",
            where=where,
            hint=INVALID_FILE,
        )


def _present(value: OnnxValue | None) -> OnnxValue:
    if value is None:
        raise TrainingExportError("an output has no value", hint=INVALID_FILE)
    return value
