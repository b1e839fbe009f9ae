"""The verdict on a file of a schedule, or that has the names of a rule of this package.

The file of a rule is proved to be the rule output by output (``rule_files``), at all states. What
is not proved so is run as the step of any other tool: only a run from the first states refutes.
What is proved is PROVED if its floats do not hide that they overflow (``file_floats``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from onnx import ModelProto

from closedform.effort import Effort
from closedform.errors import VerificationError
from closedform.importers.onnx_checks import CheckedModel
from closedform.importers.onnx_graph import defaults_of, read_model, type_of
from closedform.ir import Graph, Shape, naming
from closedform.ir.graph import with_outputs
from closedform.language import Schedule, UpdateRule
from closedform.language.model import GlobalSum
from closedform.options import GraphOptions
from closedform.referee.judgement import OUT_OF_REACH, judge_by_runs
from closedform.referee.proof import check_hyperparameters, unstated_input
from closedform.referee.refutation import refute, refute_evaluation
from closedform.referee.runs import Runs
from closedform.referee.step import (
    ForeignStep,
    model_of_rules,
    ports_by_name,
)
from closedform.verify.terms.verdict import Status, Verdict
from closedform.verify.translation.file_floats import check_floats, check_schedule_floats
from closedform.verify.translation.rule_files import OutputVerdict, combine_verdicts, validate_file
from closedform.verify.translation.rule_reading import Kinds
from closedform.verify.translation.rule_terms import Model
from closedform.verify.translation.translation import validate

RUN_SHARE = 10
"""Work for runs, as a multiple of that for a proof: each of some twenty runs evaluates balls."""


@dataclass(frozen=True, slots=True)
class FileVerdict:
    """The verdict on a file of a rule.

    Attributes:
        verdict: The verdict.
        tensors: Of a refutation by a run, its inputs as text.
        is_out_of_reach: Whether the verdict is UNKNOWN with a counterexample at a state that a run
            need not reach.
    """

    verdict: Verdict
    tensors: Mapping[str, str] = field(default_factory=dict)
    is_out_of_reach: bool = False


def judge_file(kind: str, model: CheckedModel, rule: UpdateRule, effort: Effort) -> FileVerdict:
    """Returns the verdict on a file, with the parameters and dtypes that it has.

    Args:
        kind: Which file of a rule it is: ``"init"``, ``"step"`` or ``"evaluation"``.
        model: The file.
        rule: The rule.
        effort: The work of the proof; runs may take ``RUN_SHARE`` times as much.

    Raises:
        VerificationError: It has no parameter.
    """
    units = RUN_SHARE * effort.left
    shapes = _shapes(model, rule)
    if not shapes:
        raise VerificationError("it has no parameter", hint="inputs are named such as param.w")
    states = [value for value in model.graph.input if value.name.startswith(naming.STATE)]
    types = [type_of(value).dtype for value in states]
    tensor = next((dtype for dtype in types if dtype.is_float), GraphOptions().tensor_dtype)
    outcomes: list[list[OutputVerdict]] = []
    open_floats: Verdict | None = None
    for scalar in ("f64", "f32"):
        options = GraphOptions(dtype=tensor, scalar_dtype=scalar)
        kinds = Kinds(options.tensor_dtype, options.scalar_dtype)
        verdict, parts = prove_file(kind, model, Model([(rule, shapes)], kinds), effort)
        if verdict.proved:
            return FileVerdict(verdict)
        outcomes.append(parts)
        if combine_verdicts(parts).proved:
            open_floats = verdict
    if open_floats is not None:
        return FileVerdict(open_floats)
    verdict = combine_verdicts(outcomes[0])
    # Parameters begin with any values, so that each point of the first states is reached.
    if kind == "init":
        return FileVerdict(verdict)
    budget = Effort.of(units, effort.seconds)
    return _judge_by_runs(kind, model, rule, outcomes[0], budget)


def judge_schedule(model: CheckedModel | ModelProto, source: Schedule, effort: Effort) -> Verdict:
    """Returns the verdict on a file of a schedule, for all values of its optional inputs.

    Args:
        model: The file.
        source: The schedule.
        effort: The work of the proof; as much again for the defaults of the inputs, if it has any.
    """
    units = effort.left
    graph = read_model(model)
    verdict = validate(source, graph, effort=effort)
    verdict = check_schedule_floats(verdict, graph, source)
    if not verdict.proved or not defaults_of(model):
        return verdict
    again = Effort.of(units, effort.seconds)
    bound = validate(source, read_model(model, has_optional=False), effort=again)
    return verdict if bound.proved else bound


def prove_file(
    kind: str, file: CheckedModel | ModelProto, model: Model, effort: Effort
) -> tuple[Verdict, list[OutputVerdict]]:
    """Returns whether a file is proved, floats included, and the results over the real numbers.

    Args:
        kind: Which file of the rules it is: ``"init"``, ``"step"`` or ``"evaluation"``.
        file: The file.
        model: The rules and their parameters.
        effort: The work that it may do.
    """
    parts = validate_file(kind, model, file, effort)
    verdict = combine_verdicts(parts)
    if verdict.proved:
        # Parameters that are computed in the same way have the same floats.
        graph = _of_params(read_model(file), {part.name for part in parts})
        verdict = check_floats(verdict, graph, model, kind, is_own=True)
    return verdict, parts


def _judge_by_runs(
    kind: str,
    model: CheckedModel,
    rule: UpdateRule,
    parts: Sequence[OutputVerdict],
    effort: Effort,
) -> FileVerdict:
    """The verdict on a file that is not proved to be the rule at all states."""
    graph = _open_part(read_model(model), rule, parts)
    step = ForeignStep(graph, ports_by_name(graph), model)
    rules = model_of_rules(rule, step)
    check_hyperparameters(step, rules)
    unstated = unstated_input(step, rules)
    if unstated:
        return FileVerdict(Verdict(Status.UNKNOWN, reason=unstated))
    search = refute_evaluation if kind == "evaluation" else refute
    by_runs, difference = judge_by_runs(Runs(step, rules, effort), search)
    if difference is not None:
        return FileVerdict(by_runs, difference.tensors)
    verdict = combine_verdicts(parts)
    if not verdict.refuted:
        return FileVerdict(verdict)
    # A missing output or another dtype is not at a point.
    has_point = verdict.counterexample is not None
    reason = f"{verdict.reason}: {OUT_OF_REACH}" if has_point else verdict.reason
    return FileVerdict(
        replace(verdict, status=Status.UNKNOWN, reason=reason), is_out_of_reach=has_point
    )


def _open_part(graph: Graph, rule: UpdateRule, parts: Sequence[OutputVerdict]) -> Graph:
    """The graph of the parameters that are not proved; of all where a sum joins them."""
    names = {part.name for part in parts if not part.verdict.proved}
    params = [
        str(node.attribute("name")).removeprefix(naming.PARAM)
        for node in graph.inputs
        if str(node.attribute("name")).startswith(naming.PARAM)
    ]
    has_sums = any(expr.has(GlobalSum) for expr in rule.all_expressions())
    if has_sums or not names <= {*params}:
        return graph
    return _of_params(graph, names)


def _of_params(graph: Graph, params: Set[str]) -> Graph:
    """The graph with the outputs of some parameters and of the whole model; of all if none is."""
    ports = ports_by_name(graph)
    outputs = {
        output.name
        for output in graph.outputs
        if output.name in ports.outputs and ports.outputs[output.name].param in ("", *params)
    }
    return with_outputs(graph, outputs or {output.name for output in graph.outputs})


def _shapes(model: CheckedModel, rule: UpdateRule) -> dict[str, Shape]:
    """The shapes of the parameters of a file, from its parameters or else its first states."""
    values = [*model.graph.input, *model.graph.output]
    types = {value.name: type_of(value) for value in values if "." in value.name}
    params = {
        name.removeprefix(naming.PARAM): type_.shape
        for name, type_ in types.items()
        if name.startswith(naming.PARAM)
    }
    if params or not rule.is_elementwise:
        return params
    return {
        name.removeprefix(naming.STATE).removesuffix(f".{label}"): type_.shape
        for name, type_ in types.items()
        for label in rule.states
        if name.startswith(naming.STATE) and name.endswith(f".{label}")
    }
