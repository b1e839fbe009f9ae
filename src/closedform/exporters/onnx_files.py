"""The ONNX models of schedules and rules, with their metadata and doc strings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypedDict

import numpy as np
import sympy as sp
from onnx import ModelProto, ValueInfoProto, helper

from closedform.errors import ExportError
from closedform.exporters.onnx_model import to_model
from closedform.exporters.onnx_program import to_program_model
from closedform.exporters.onnx_targets import OnnxFormat
from closedform.exporters.onnx_training_info import with_training_info
from closedform.ir import naming
from closedform.ir.evaluate import evaluate
from closedform.ir.graph import Graph, Role, input_names
from closedform.ir.program import Program, SumStage, flatten
from closedform.language.exact import to_float
from closedform.language.printing import latex
from closedform.language.schedule import Schedule
from closedform.language.update_rule import UpdateRule
from closedform.options import CLOCK, ModelSpec
from closedform.version import __version__

DEFAULT_FORMAT = OnnxFormat()

TRAINING = "training"
"""The name of the model with training information."""

CALLS_FILE = "calls.json"
"""The file that says which parameter takes which graph of a split step."""


class ModelTexts(TypedDict):
    """The metadata of a model, and doc strings by the name of its inputs and outputs."""

    metadata: dict[str, str]
    docs: dict[str, str]


class CallEntry(TypedDict):
    """One entry of ``calls.json``: a parameter, its graph and the scalars that the graph takes."""

    param: str
    graph: str
    scalars: list[str]


class Calls(TypedDict):
    """The content of ``calls.json``: the calls of each stage of sums and of the step."""

    stages: list[list[CallEntry]]
    apply: list[CallEntry]


def schedule_model(
    schedule: Schedule,
    graph: Graph,
    *,
    form: OnnxFormat = DEFAULT_FORMAT,
    claims: str | None = None,
) -> ModelProto:
    """Returns the checked model of a schedule.

    Args:
        schedule: The schedule.
        graph: What it was compiled to. An input that has a value keeps it as its default.
        form: How the graph is written.
        claims: A report of claims in JSON, for the metadata.

    Raises:
        ExportError: The opset does not have an op, or the target does not have a dtype.
    """
    values = {name: str(value) for name, value in schedule.hyperparameters.items()}
    claims_entry = {} if claims is None else {"closedform.claims": claims}
    return to_model(
        graph,
        opset=form.opset,
        dtypes=form.dtypes,
        metadata={**claims_entry, **_metadata(schedule.expr, values)},
        defaults=input_defaults(schedule, graph),
        docs={"step": CLOCK, "value": f"value of schedule {schedule.name}"},
    )


def input_defaults(schedule: Schedule, graph: Graph) -> dict[str, float]:
    """Returns the known values of the hyperparameters that are inputs of the graph.

    That of an integer input is an int.
    """
    numbers = schedule.hyperparameters
    inputs = [node for node in graph.inputs if node.attribute("role") == Role.HYPER]
    types = {node.attribute("name"): node.type.dtype for node in inputs}
    return {
        name: int(numbers[name]) if dtype.is_integer else to_float(numbers[name])
        for name, dtype in types.items()
        if name in numbers
    }


def rule_models(
    spec: ModelSpec,
    program: Program,
    init: Graph,
    evaluation: Graph | None = None,
    form: OnnxFormat = DEFAULT_FORMAT,
) -> dict[str, ModelProto]:
    """Returns the models of a rule by name.

    They are ``init`` and ``step``, and ``evaluation`` where a model is evaluated at a point of its
    own, such as an average.

    Args:
        spec: The parameters and their rules.
        program: One step.
        init: The states before the first one.
        evaluation: The point of evaluation, if there is one.
        form: How the graphs are written: ``step`` as one flat graph, or the step of a kind of
            tensor as a local function that each of them calls.

    Raises:
        ExportError: The opset does not have an op, or the target does not have a dtype.
    """
    facts = rule_facts(spec)

    def write_graph(graph: Graph) -> ModelProto:
        return to_model(graph, opset=form.opset, dtypes=form.dtypes, **facts)

    models = {
        "init": write_graph(init),
        "step": write_graph(flatten(program))
        if form.inline
        else to_program_model(program, opset=form.opset, dtypes=form.dtypes, **facts),
    }
    if evaluation is not None:
        models["evaluation"] = write_graph(evaluation)
    return models


def training_model(spec: ModelSpec, init: Graph, models: Mapping[str, ModelProto]) -> ModelProto:
    """Returns the step of a rule as ONNX's training information of its parameters, which are zeros.

    Args:
        spec: The parameters and their rules.
        init: The states before the first step.
        models: The models of the rule by name.

    Raises:
        ExportError: A size is not a number, or the states are too large for one file.
    """
    step = models["step"]
    for name, shape in spec.params.items():
        if not all(isinstance(size, int) for size in shape):
            raise ExportError(
                f"training_info needs sizes that are numbers, got {tuple(shape)} for {name!r}",
                where=f"rule {spec.rule.name!r}",
                hint="give the shapes of the parameters in params",
            )
    params = {
        value.name: np.zeros(
            [dim.dim_value for dim in value.type.tensor_type.shape.dim],
            helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type),
        )
        for value in step.graph.input
        if value.name.startswith(naming.PARAM)
    }
    values = {**params, **evaluate(init, {name: params[name] for name in input_names(init)})}
    inference = models["evaluation"] if "evaluation" in models else _identity_model(step, spec)
    return with_training_info(inference, step, models["init"], values)


def _identity_model(step: ModelProto, spec: ModelSpec) -> ModelProto:
    """The point of evaluation of a rule that has none of its own: the parameters."""
    inputs = {value.name: value for value in step.graph.input}
    nodes, params, points = [], [], []
    for name in spec.params:
        param, point = inputs[naming.param(name)], ValueInfoProto()
        point.CopyFrom(param)
        point.name = naming.evaluation(name)
        nodes.append(helper.make_node("Identity", [param.name], [point.name]))
        params.append(param)
        points.append(point)
    graph = helper.make_graph(nodes, "evaluation", params, points)
    return helper.make_model(graph, opset_imports=step.opset_import, ir_version=step.ir_version)


def split_models(
    spec: ModelSpec, program: Program, form: OnnxFormat = DEFAULT_FORMAT
) -> tuple[dict[str, ModelProto], Calls]:
    """Returns the step of a rule as models of single tensors by file name, and their calls."""
    graphs, calls = split_files(program)
    metadata = rule_facts(spec)["metadata"]
    models = {
        name: to_model(graph, opset=form.opset, dtypes=form.dtypes, metadata=metadata)
        for name, graph in graphs.items()
    }
    return models, calls


def split_files(program: Program) -> tuple[dict[str, Graph], Calls]:
    """Returns the graphs of a step by file name, and which parameter takes which of them.

    - ``partial_<k>_<i>``: from one tensor, or one shard of it, to its term of some sums, ``sum.…``;
      the sums of stage k are the terms of all tensors added. ``partial_<k>_scalars``
      computes their inputs ``scalar.…``, where they have any.
    - ``scalars``: from step, hyperparameters, shared states and sums to the next step, the next
      shared states and the scalars.
    - ``apply_<i>``: the step of one tensor or shard.

    The calls say for each parameter which graph it takes, and which outputs of the graph of scalars
    are the ``scalar.0``, ``scalar.1``, … of it.
    """

    def call_entries(part: SumStage | Program, body: str, scalars: str) -> list[CallEntry]:
        if part.scalars.outputs:
            graphs[scalars] = part.scalars
        graphs.update({f"{body}{place}": graph for place, graph in enumerate(part.bodies)})
        return [
            {"param": call.param, "graph": f"{body}{call.body}", "scalars": list(call.scalars)}
            for call in part.calls
        ]

    graphs: dict[str, Graph] = {}
    stages = [
        call_entries(stage, f"partial_{place}_", f"partial_{place}_scalars")
        for place, stage in enumerate(program.stages)
    ]
    return graphs, {"stages": stages, "apply": call_entries(program, "apply_", "scalars")}


def rule_facts(spec: ModelSpec) -> ModelTexts:
    """Returns the metadata and doc strings of a rule's files."""
    rule = spec.rule
    metadata = _metadata(rule.param, _values(rule))
    if rule.definitions:
        metadata["closedform.definitions"] = _as_json(rule.definitions)
    if rule.shared:
        following = {name: spec.next for name, spec in rule.shared.items()}
        metadata["closedform.shared"] = _as_json(following)
    if rule.advances != sp.true:
        metadata["closedform.advances"] = sp.srepr(rule.advances)
    if rule.evaluation is not None:
        metadata["closedform.evaluation"] = sp.srepr(rule.evaluation)
    if spec.groups:
        metadata["closedform.groups"] = json.dumps(
            [
                {
                    "rule": assignment.rule.name,
                    "hyperparameters": _values(assignment.rule),
                    "params": list(assignment.params),
                }
                for assignment in spec.assignments
            ]
        )
    return {"metadata": metadata, "docs": {"step": CLOCK}}


def _metadata(expr: sp.Expr, hyperparameters: Mapping[str, str]) -> dict[str, str]:
    return {
        "closedform.version": __version__,
        "closedform.clock": CLOCK,
        "closedform.expression": sp.srepr(expr),
        "closedform.latex": latex(expr),
        "closedform.hyperparameters": json.dumps(hyperparameters, sort_keys=True),
    }


def _as_json(expressions: Mapping[str, sp.Basic]) -> str:
    return json.dumps({name: sp.srepr(expr) for name, expr in expressions.items()})


def _values(rule: UpdateRule) -> dict[str, str]:
    return {
        name: str(value.bound) if isinstance(value, Schedule) else str(value)
        for name, value in rule.hyperparameters.items()
    }
