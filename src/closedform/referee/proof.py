"""The proof that a step of a file keeps its relation to a rule, and what has to be stated for it.

The file has ports (``ports``), and states of other names than the rule. A ``Simulation`` says
what each of its states is: a state of the rule, a count of steps (``t``, or ``t + 1`` where it
begins with 1), a power of a decay, or a constant that no step changes. It is proposed by names and
by the exact values of a few steps, which decide nothing: with it each output of the file is proved
to be what the rule makes of it (``validate_outputs``), for all tensors and all steps. Then the file
makes the steps of the rule from the states on that are the rule's before the first step, as long as
the host gives what it is said to give.
"""

from __future__ import annotations

from closedform.effort import Effort
from closedform.errors import VerificationError
from closedform.ir import DType, naming
from closedform.ir.graph import with_outputs
from closedform.referee.ports import Port, PortKind
from closedform.referee.simulation import Simulation
from closedform.referee.step import ForeignStep
from closedform.verify.terms.tree import symbols
from closedform.verify.terms.verdict import Status, Verdict
from closedform.verify.translation.rule_terms import Model
from closedform.verify.translation.translation import time_verdict, validate_outputs


def prove_step(simulation: Simulation, model: Model, effort: Effort) -> Verdict:
    """Returns whether each output of a file is what the rule makes of it.

    A step that is counted in floats is considered as long as these hold the count.
    """

    def decide(until: int | None) -> Verdict:
        graph = simulation.graph()
        grounds: dict[str, None] = {}
        reasons: list[str] = []
        for entry in simulation.expected_outputs(model):
            part = with_outputs(graph, {entry.name})
            verdict = validate_outputs([entry], part, effort, until=until)
            if not verdict.proved:
                return verdict
            grounds.update(dict.fromkeys(verdict.grounds))
            reasons.append(verdict.reason)
        # The output that takes the clock has the fewest steps.
        return Verdict(Status.PROVED, tuple(grounds), reason=min(reasons, key=len, default=""))

    counts = [
        simulation.step.types[port].dtype
        for port, meaning in simulation.renaming.items()
        if meaning.offset is not None and meaning.number is None
    ]
    limits = [2**dtype.row.precision - 2 for dtype in counts if dtype.is_float]
    verdict = time_verdict(lambda: decide(min(limits, default=None)), effort)
    has_integers = any(dtype.is_integer for dtype in counts)
    if verdict.proved or limits or not has_integers:
        return verdict
    # A count that is converted to a float, where no rounding of a larger one is admitted.
    exact = time_verdict(lambda: decide(2**DType.F32.row.precision - 2), effort)
    return exact if exact.proved else verdict


def unstated_input(step: ForeignStep, model: Model) -> str:
    """Returns why an input of a file has no counterpart in the rules; "" where all have.

    The rules would have to hold for all of its values: a rate that the host computes, or a bias
    correction.
    """
    inputs = [port for port in step.read_inputs if port.kind is PortKind.HYPER]
    outputs = model.outputs() if inputs else ()
    rule_symbols = {name for entry in outputs for name in symbols(entry.term)}
    for port in sorted(inputs, key=str):
        if port.label not in rule_symbols:
            return f"the input {port.label!r} of the file may have any value{_remedy(step, port)}"
    return ""


def _remedy(step: ForeignStep, port: Port) -> str:
    """The ways to state an input that the host gives."""
    name, type_ = port.label, step.types[port]
    bound = f"compare closedform.from_onnx(file, ports=…).bind({name}=…)"
    if type_.dtype.is_integer and all(size == 1 for size in type_.shape):
        clock = f'"{name}": "{naming.STEP}"'
        return f": where it counts the steps, say so in the ports, {clock}; of any other, {bound}"
    return (
        ", and is not a hyperparameter of the rule without one: leave it open in the rule "
        f"({name}=None), or {bound}"
    )


def check_hyperparameters(step: ForeignStep, model: Model) -> None:
    """Raises VerificationError for a hyperparameter of the rule without a value.

    One that is an input of the file by the same name needs none.
    """
    inputs = {port.label for port in step.ports.inputs.values() if port.kind is PortKind.HYPER}
    for rule in {id(rule): rule for rule, _ in model.members}.values():
        for name, value in rule.hyperparameters.items():
            if value is None and name not in inputs:
                raise VerificationError(
                    f"the hyperparameter {name!r} of the rule has no value, and the file has no "
                    "input of this name",
                    where=f"rule {rule.name!r}",
                    hint=f"give it one: --set {name}=0.01",
                )
