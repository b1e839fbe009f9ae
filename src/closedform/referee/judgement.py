"""The verdict on the step of another tool's file against a rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from closedform.effort import Effort, OutOfEffort
from closedform.errors import ArgumentError, ClosedFormError, VerificationError
from closedform.importers.onnx_checks import CheckedModel
from closedform.importers.onnx_graph import OnnxSource, checked_model, read_model
from closedform.language import PARAM
from closedform.referee.float_difference import Box, FloatDifference, bound_difference
from closedform.referee.ports import (
    PortKind,
    PortNames,
    Ports,
    other_ports,
    ports_by_use,
    read_ports,
)
from closedform.referee.proof import (
    check_hyperparameters,
    prove_step,
    unstated_input,
)
from closedform.referee.refutation import Refutation, StepDifference, refute
from closedform.referee.runs import Runs, propose
from closedform.referee.simulation import Renaming, Simulation
from closedform.referee.step import ForeignStep, Rules, model_of_rules
from closedform.verify.terms import build
from closedform.verify.terms.evaluate import value as value_of
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.sympy_io import term
from closedform.verify.terms.verdict import Status, Verdict
from closedform.verify.translation.constants import rounding_interval
from closedform.verify.translation.file_floats import check_floats

MOST_PROOFS = 8
"""Renamings for which a proof is tried."""

WORK = 10 * LIMITS.validation_work
"""Work for one comparison."""

OUT_OF_REACH = "a run need not reach this state"
HIDDEN = "which the floats of the file do not show"


@dataclass(frozen=True, slots=True)
class Judgement:
    """The result of a comparison of a file with a rule.

    Attributes:
        verdict: Whether the file makes the steps of the rule.
        beginning: Whether its states begin as those of the rule; None where it does not say how
            they begin.
        step: The step with its ports.
        renaming: What each state of the file is in the rule.
        difference: Of a refutation, the run.
        is_out_of_reach: Whether the verdict is UNKNOWN with a counterexample in which a step
            differs at a state that a run need not reach.
    """

    verdict: Verdict
    beginning: Verdict | None
    step: ForeignStep
    renaming: Renaming = field(default_factory=dict)
    difference: StepDifference | None = None
    is_out_of_reach: bool = False

    @property
    def renamed(self) -> list[tuple[str, str]]:
        """The states of the file that have another name in the rule, with what they are there."""
        suffixes = dict.fromkeys(self.step.host_values, ", given by the host")
        pairs = (
            (str(port), f"{meaning}{suffixes.get(port, '')}")
            for port, meaning in self.renaming.items()
        )
        return [(port, meaning) for port, meaning in pairs if port != meaning]


def read_step(source: OnnxSource, ports: PortNames | Ports | None = None) -> ForeignStep:
    """Returns the step of a file.

    Args:
        source: The file.
        ports: What its inputs and outputs are; None for what their use says.

    Raises:
        VerificationError: The file cannot be read, or the use of its ports does not say what they
            are.
        ArgumentError: The ports do not fit the file.
    """
    model = checked_model(source)
    graph = read_model(model)
    if any(not isinstance(size, int) for node in graph.inputs for size in node.type.shape):
        raise VerificationError(
            "its tensors have sizes that are not numbers",
            where=f"graph {graph.name!r}",
            hint="export it for the shapes of a model",
        )
    if isinstance(ports, Ports):
        roles = ports
    else:
        roles = ports_by_use(graph) if ports is None else read_ports(ports, graph)
    for port in roles.inputs.values():
        if port.kind is PortKind.PARAM and port not in roles.outputs.values():
            raise ArgumentError(
                f"no output replaces the parameter {port.param!r}",
                where="ports",
                hint="name the output that is its next value",
            )
    return ForeignStep(graph, roles, model)


def judge_step(
    source: OnnxSource | CheckedModel,
    rules: Rules,
    *,
    ports: PortNames | Ports | None = None,
    effort: Effort | None = None,
) -> Judgement:
    """Returns the verdict on a file of a step.

    Args:
        source: The file.
        rules: The rule, or one for each parameter.
        ports: What its inputs and outputs are; None for what their use says.
        effort: The work that may be done.

    Raises:
        VerificationError: The file cannot be read, or a parameter has no rule.
        ArgumentError: The ports do not fit the file.
    """
    step = read_step(source, ports)
    budget = Effort.of(WORK) if effort is None else effort
    judgement = _judge(step, rules, budget)
    # A proof under one reading is enough: the file makes these steps if its ports are so.
    if judgement.verdict.proved:
        return _with_floats(judgement, rules)
    if not step.ports.is_by_use:
        return judgement
    is_refuted = judgement.verdict.refuted
    for reading in other_ports(step.ports, step.graph):
        entry = _judge(replace(step, ports=reading), rules, budget)
        if entry.verdict.proved:
            return _with_floats(entry, rules)
        is_refuted = is_refuted and entry.verdict.refuted
    # A refutation needs all readings to be refuted, since the file does not name its ports.
    if judgement.verdict.refuted and not is_refuted:
        reason = (
            f"read by the use of its ports, {judgement.verdict.reason}; its ports may be others: "
            "say what they are"
        )
        return replace(judgement, verdict=Verdict(Status.UNKNOWN, reason=reason), difference=None)
    return judgement


def _with_floats(judgement: Judgement, rules: Rules) -> Judgement:
    """A judgement that is PROVED over the real numbers; UNKNOWN where its floats may differ."""
    model = model_of_rules(rules, judgement.step)
    graph = Simulation(judgement.step, judgement.renaming).graph()
    verdict = check_floats(judgement.verdict, graph, model, is_own=False)
    return replace(judgement, verdict=verdict)


def bound_floats(judgement: Judgement, rules: Rules, box: Box | None = None) -> FloatDifference:
    """Returns a bound of the distance in floats of a proved file from the exported rule.

    Args:
        judgement: The judgement, PROVED.
        rules: The rule, or one for each parameter.
        box: The inputs for which it holds; ``Box()`` if None.

    Raises:
        VerificationError: A graph has an operation or an input for which there is no bound.
    """
    model = model_of_rules(rules, judgement.step)
    return bound_difference(judgement.step, model, judgement.renaming, box)


def _judge(step: ForeignStep, rules: Rules, budget: Effort) -> Judgement:
    """The verdict on a step whose ports are known."""
    model = model_of_rules(rules, step)
    check_hyperparameters(step, model)
    unstated = unstated_input(step, model)
    if unstated:
        return Judgement(Verdict(Status.UNKNOWN, reason=unstated), None, step)
    runs = Runs(step, model, budget)
    verdicts: list[tuple[Verdict, Renaming]] = []
    for renaming in propose(runs):
        verdict = prove_step(Simulation(step, renaming), model, budget)
        if verdict.proved:
            return Judgement(verdict, _beginning(runs, renaming), step, renaming)
        verdicts.append((verdict, renaming))
        if len(verdicts) == MOST_PROOFS:
            break
    by_runs, difference = judge_by_runs(runs, refute)
    if by_runs.refuted or (difference is not None) or not verdicts:
        return Judgement(by_runs, None, step, {}, difference)
    return _open(verdicts[0], step)


def judge_by_runs(
    runs: Runs, search: Callable[[Runs], Refutation]
) -> tuple[Verdict, StepDifference | None]:
    """Returns REFUTED with a run that an engine shows, else UNKNOWN.

    Args:
        runs: The runs.
        search: Looks for a run.
    """
    refutation = _search_within(runs, search)
    difference = refutation.difference
    if difference is None:
        return Verdict(Status.UNKNOWN, reason=refutation.reason), None
    if refutation.is_shown:
        return Verdict(Status.REFUTED, ("exact runs",), reason=str(difference)), difference
    return Verdict(Status.UNKNOWN, reason=f"{difference}, {HIDDEN}"), difference


def _open(entry: tuple[Verdict, Renaming], step: ForeignStep) -> Judgement:
    """The judgement where neither a proof nor a run was seen."""
    verdict, renaming = entry
    if not verdict.refuted:
        return Judgement(verdict, None, step, renaming)
    # No exact run from first states has shown it: a counterexample with states that are out of
    # reach, or that is reached by another run than those that were tried.
    reason = f"{verdict.reason}: {OUT_OF_REACH}"
    unknown = replace(verdict, status=Status.UNKNOWN, reason=reason)
    return Judgement(unknown, None, step, renaming, is_out_of_reach=True)


def _search_within(runs: Runs, search: Callable[[Runs], Refutation]) -> Refutation:
    """A run that refutes, or the reason why there is none."""
    unmatched = "no state of the rule, count of steps or constant is seen to be each of its states"
    try:
        refutation = search(runs)
    except OutOfEffort:
        return Refutation(reason=runs.effort.why())
    except (ClosedFormError, ArithmeticError) as error:
        if runs.is_uniform:
            return Refutation(reason=f"{unmatched}: {error}")
        # A function of tensors that has no exact values may have one for equal elements.
        again = Runs(runs.step, runs.model, runs.effort, is_uniform=True)
        return _search_within(again, search)
    return refutation if refutation.reason else replace(refutation, reason=unmatched)


def _beginning(runs: Runs, renaming: Renaming) -> Verdict | None:
    """Whether the stated first values of states are those of the rule, but for their rounding."""
    stated = runs.step.ports.initial
    if not stated:
        return None
    initial = {state.name: state.initial for state in runs.states}
    for port, meaning in renaming.items():
        if port not in stated:
            return None
        if meaning.name and initial[meaning.name] != PARAM:
            number = value_of(term(initial[meaning.name]), {})
        elif meaning.offset is not None:
            number = value_of(term(meaning.offset), {})
        else:
            continue
        dtype = runs.step.types[port].dtype
        for entry in set(np.ravel(stated[port]).tolist()):
            exact = build.exact(entry)
            # 0.001 in a file is the float32 next to it: any number that rounds to the entry agrees.
            low, high = rounding_interval(entry, dtype) if dtype.is_float else (exact, exact)
            if not low <= number <= high:
                reason = f"{port} begins with {entry}, and that of the rule with {number}"
                return Verdict(Status.REFUTED, reason=reason)
    return Verdict(Status.PROVED, ("rounding",))
