"""The files of a model's optimizer: ``init.onnx`` and ``step.onnx``, with rules by group.

What stands in a file beside the graph: the clock's convention, the rule as mathematics, its
hyperparameters and, where there are groups, who takes what.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sympy as sp

from closedform.compiler import CLOCK, check_options, check_shapes, compile_program, tensor_dtype
from closedform.errors import ExportError
from closedform.ir.graph import Graph
from closedform.ir.passes import DEFAULT
from closedform.ir.program import Program, Stage, flatten, split
from closedform.ir.types import DType, Shape
from closedform.language.groups import Group, assigned
from closedform.language.printing import latex
from closedform.language.schedule import Schedule
from closedform.language.update_rule import UpdateRule
from closedform.lowering.model import RuleFor, lower_evaluation, lower_init
from closedform.version import __version__

if TYPE_CHECKING:
    import onnx

CALLS_FILE = "calls.json"

Members = Sequence[tuple[UpdateRule, Mapping[str, Shape]]]


def model_program(
    rule: UpdateRule,
    params: Mapping[str, Shape],
    groups: Sequence[Group] = (),
    *,
    dtype: DType | str = DType.F32,
    scalar_dtype: DType | str = DType.F64,
    step_dtype: DType | str = DType.I64,
) -> Program:
    """Returns one step of a model, its calls in the order of ``params``.

    Args:
        rule: The rule of the parameters that no group means.
        params: Shapes by parameter name.
        groups: Parameters with a rule of their own.
        dtype: Dtype of parameters, gradients and states, f32 or f64.
        scalar_dtype: Dtype that scalars are computed in, f64 or f32.
        step_dtype: Dtype of the step, i64 or i32.

    Raises:
        DefinitionError: A group means no parameter, or a rule is not for a parameter's shape.
        LoweringError: An expression cannot be expressed in a graph.
    """
    members = [RuleFor(*member) for member in assigned(rule, params, groups)]
    program = compile_program(
        rule.name, members, dtype=dtype, scalar_dtype=scalar_dtype, step_dtype=step_dtype
    )
    place = {name: index for index, name in enumerate(params)}
    calls = tuple(sorted(program.calls, key=lambda call: place[call.param]))
    return replace(program, calls=calls)


def model_step(
    rule: UpdateRule,
    params: Mapping[str, Shape],
    groups: Sequence[Group] = (),
    **options: Any,
) -> Graph:
    """Returns one step of a model as one flat graph; arguments are those of ``model_program``."""
    return flatten(model_program(rule, params, groups, **options))


def part_graphs(
    name: str,
    members: Sequence[tuple[UpdateRule, Sequence[Shape]]],
    *,
    dtype: DType | str = DType.F32,
) -> list[list[tuple[Graph | None, ...]]]:
    """Returns, for each rule and each of its shapes, the graphs of one parameter called ``all``.

    These are its part in each stage of the sums over all parameters, None where it has none, and
    its step: see ``closedform.ir.program.split``.
    """
    named = [
        RuleFor(rule, {f"p{i}_{j}": shape for j, shape in enumerate(shapes)})
        for i, (rule, shapes) in enumerate(members)
    ]
    program = compile_program(name, named, dtype=dtype)
    return [[split(program, param, "all") for param in member.params] for member in named]


def model_init(
    rule: UpdateRule,
    params: Mapping[str, Shape],
    groups: Sequence[Group] = (),
    *,
    dtype: DType | str = DType.F32,
    scalar_dtype: DType | str = DType.F64,
    step_dtype: DType | str = DType.I64,
) -> Graph:
    """Returns the graph of the states of a model before the first step; as ``model_program``."""
    members = [RuleFor(*member) for member in assigned(rule, params, groups)]
    return DEFAULT(
        lower_init(
            rule.name,
            members,
            dtype=tensor_dtype(dtype, "dtype"),
            scalar_dtype=tensor_dtype(scalar_dtype, "scalar_dtype"),
            step_dtype=tensor_dtype(step_dtype, "step_dtype"),
        )
    )


def model_evaluation(
    rule: UpdateRule,
    params: Mapping[str, Shape],
    groups: Sequence[Group] = (),
    *,
    dtype: DType | str = DType.F32,
    scalar_dtype: DType | str = DType.F64,
    step_dtype: DType | str = DType.I64,
) -> Graph | None:
    """Returns the graph of the point of evaluation of a model; None if it is the parameters."""
    members = [RuleFor(*member) for member in assigned(rule, params, groups)]
    if all(member.rule.evaluation is None for member in members):
        return None
    program = lower_evaluation(
        rule.name,
        members,
        dtype=tensor_dtype(dtype, "dtype"),
        scalar_dtype=tensor_dtype(scalar_dtype, "scalar_dtype"),
        step_dtype=tensor_dtype(step_dtype, "step_dtype"),
    )
    return flatten(program.map(DEFAULT))


def write_rule(
    rule: UpdateRule,
    path: str | PathLike[str],
    params: Mapping[str, Shape] | None,
    *,
    groups: Sequence[Group] = (),
    inline: bool = False,
    parts: bool = False,
    opset: int = 21,
    validate: bool = True,
    **options: Any,
) -> dict[str, onnx.ModelProto]:
    """Writes ``init.onnx`` and ``step.onnx`` into a folder, and returns the models by name.

    onnxruntime's own optimisation finds nothing in these graphs, and its time grows faster than
    their nodes: with it off, a step of 1,000 tensors is loaded in 2 s of CPU time, with it in 8.

    A model that is evaluated at a point of its own, such as an average, gets ``evaluation.onnx``.

    Args:
        rule: The rule of the parameters that no group means.
        path: The folder; it is made if it does not exist.
        params: Shapes by parameter name.
        groups: Parameters with a rule of their own.
        inline: Whether ``step.onnx`` is one flat graph; else the step of a kind of tensor is a
            local function that each of them calls.
        parts: Whether to write the parts of ``step.onnx`` too, for tensors that lie in shards or on
            several devices: see ``program_files``.
        opset: ONNX opset.
        validate: Whether to show that the files are the rule; metadata tell the verdicts.
        **options: ``dtype``, ``scalar_dtype`` and ``step_dtype`` of ``model_program``.

    Raises:
        VerificationError: A file is not the rule.
        ExportError: There are no parameters, an option is unknown, the folder cannot be made, or
            the opset does not have an op.
    """
    from closedform.exporters.onnx_model import to_model, write_models
    from closedform.exporters.onnx_program import to_program_model

    where = f"rule {rule.name!r}"
    if not params:
        raise ExportError(
            "a rule is compiled for parameters, got none",
            where=where,
            hint='give params={"w": (3, 4), …}',
        )
    check_shapes(params, where)
    check_options(options, model_program, where)
    program = model_program(rule, params, groups, **options)
    init = model_init(rule, params, groups, **options)
    facts = rule_facts(rule, assigned(rule, params, groups) if groups else ())
    step = (
        to_model(flatten(program), opset=opset, **facts)
        if inline
        else to_program_model(program, opset=opset, **facts)
    )
    models = {"init": to_model(init, opset=opset, **facts), "step": step}
    point = model_evaluation(rule, params, groups, **options)
    if point is not None:
        models["evaluation"] = to_model(point, opset=opset, **facts)
    if validate:
        from closedform.verify.translation.artefact import validate_rule

        dtypes = {key: value for key, value in options.items() if key != "step_dtype"}
        validate_rule(assigned(rule, params, groups), models, **dtypes)
    graphs, calls = program_files(program) if parts else ({}, None)
    models |= {
        name: to_model(graph, opset=opset, metadata=facts["metadata"])
        for name, graph in graphs.items()
    }
    folder = Path(path)
    files = {f"{name}.onnx": model for name, model in models.items()}
    write_models(files, folder, "a rule is written as two files: name a folder for them")
    if calls is not None:
        text = json.dumps(calls, indent=1)
        (folder / CALLS_FILE).write_text(text + "\n", encoding="utf-8")
    return models


def program_files(program: Program) -> tuple[dict[str, Graph], dict[str, Any]]:
    """Returns the graphs of a step by file name, and who takes which.

    - ``partial_<k>_<i>``: from one tensor, or one shard of it, to its part of some sums, ``sum.…``;
      the sums of stage k are the parts of all, added. ``partial_<k>_scalars`` gives what these
      graphs take as ``scalar.…``, where they take any.
    - ``scalars``: from step, hyperparameters, shared states and sums to the next step, the next
      shared states and the scalars.
    - ``apply_<i>``: the step of one tensor or shard.

    The calls say for each parameter which graph it takes, and which outputs of the graph of scalars
    are the ``scalar.0``, ``scalar.1``, … of it.
    """

    def made(part: Stage | Program, body: str, scalars: str) -> list[dict[str, Any]]:
        if part.scalars.outputs:
            graphs[scalars] = part.scalars
        graphs.update({f"{body}{place}": graph for place, graph in enumerate(part.bodies)})
        return [
            {"param": call.param, "graph": f"{body}{call.body}", "scalars": list(call.scalars)}
            for call in part.calls
        ]

    graphs: dict[str, Graph] = {}
    stages = [
        made(stage, f"partial_{place}_", f"partial_{place}_scalars")
        for place, stage in enumerate(program.stages)
    ]
    return graphs, {"stages": stages, "apply": made(program, "apply_", "scalars")}


def rule_facts(rule: UpdateRule, members: Members = ()) -> dict[str, Any]:
    """Returns the metadata and doc strings of a rule's files."""
    metadata = {
        "closedform.version": __version__,
        "closedform.clock": CLOCK,
        "closedform.expression": sp.srepr(rule.param),
        "closedform.latex": latex(rule.param),
        "closedform.hyperparameters": json.dumps(_values(rule), sort_keys=True),
    }
    if rule.definitions:
        named = {name: sp.srepr(expr) for name, expr in rule.definitions.items()}
        metadata["closedform.definitions"] = json.dumps(named)
    if rule.shared:
        following = {name: sp.srepr(spec.next) for name, spec in rule.shared.items()}
        metadata["closedform.shared"] = json.dumps(following)
    if rule.advances != sp.true:
        metadata["closedform.advances"] = sp.srepr(rule.advances)
    if rule.evaluation is not None:
        metadata["closedform.evaluation"] = sp.srepr(rule.evaluation)
    if members:
        metadata["closedform.groups"] = json.dumps(
            [
                {"rule": own.name, "hyperparameters": _values(own), "params": list(params)}
                for own, params in members
            ]
        )
    return {"metadata": metadata, "docs": {"step": CLOCK}}


def _values(rule: UpdateRule) -> dict[str, str]:
    return {
        name: str(value.bound) if isinstance(value, Schedule) else str(value)
        for name, value in rule.hyperparameters.items()
    }
