"""Translation validation of the files of a rule: each output of each file has the rule's value.

Parameters that a file computes in the same way share one proof (``onnx_slices``). A sum over all
parameters is proved to be the sum of the contributions of the parameters, and each contribution to
be that of the rule; then the steps are proved with a symbol for the sum.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from onnx import ModelProto

from closedform.errors import ClosedFormError
from closedform.importers.onnx_slices import Slices, Total
from closedform.ir import naming
from closedform.language import UpdateRule
from closedform.verify import terms
from closedform.verify.terms.verdict import Status, Verdict
from closedform.verify.translation.rule_reading import SumKey
from closedform.verify.translation.rule_terms import Model, Wanted
from closedform.verify.translation.translation import validate_outputs

Names = Callable[[str, UpdateRule], Mapping[str, str]]
"""From a parameter and its rule to what its outputs are to it, by their names."""


@dataclass(frozen=True, slots=True)
class Part:
    """What was shown of some outputs of a file.

    Attributes:
        name: A parameter, ``"sum"`` and the parameter whose part it is, or "" for the whole model.
        count: How many parameters are computed in the same way, and are in the verdict.
        verdict: The verdict.
    """

    name: str
    count: int
    verdict: Verdict


def step_names(param: str, rule: UpdateRule) -> dict[str, str]:
    """Returns the outputs of a step that belong to a parameter."""
    states = {
        naming.following(naming.state(param, label)): f"{naming.STATE}{label}"
        for label in rule.states
    }
    return {naming.following(naming.param(param)): naming.BODY_PARAM, **states}


def init_names(param: str, rule: UpdateRule) -> dict[str, str]:
    """Returns the outputs of the first states that belong to a parameter."""
    return {naming.state(param, label): f"{naming.STATE}{label}" for label in rule.states}


def evaluation_names(param: str, rule: UpdateRule) -> dict[str, str]:
    """Returns the outputs of the point of evaluation that belong to a parameter."""
    return {naming.evaluation(param): naming.BODY_EVALUATION}


def validate_step(model: Model, file: ModelProto, deadline: float) -> list[Part]:
    """Returns what is shown of the file of a step.

    Args:
        model: The rules and their parameters.
        file: The file.
        deadline: The moment, by the monotonic clock, at which it ends.
    """
    return _File(model, file, step_names, deadline).parts(model.of, model.common, has_sums=True)


def validate_init(model: Model, file: ModelProto, deadline: float) -> list[Part]:
    """Returns what is shown of the file of the first states; arguments as ``validate_step``."""
    return _File(model, file, init_names, deadline).parts(model.start, model.first)


def validate_evaluation(model: Model, file: ModelProto, deadline: float) -> list[Part]:
    """Returns what is shown of the point of evaluation; arguments as ``validate_step``."""
    return _File(model, file, evaluation_names, deadline).parts(model.point, tuple)


def combined(parts: Sequence[Part]) -> Verdict:
    """Returns the verdict on a file: that of its worst part."""
    for status in (Status.REFUTED, Status.UNKNOWN):
        for part in parts:
            if part.verdict.status is status:
                return part.verdict
    tactics = dict.fromkeys(tactic for part in parts for tactic in part.verdict.tactics)
    reasons = [part.verdict.reason for part in parts if part.verdict.reason]
    return Verdict(Status.PROVED, tuple(tactics), reason=reasons[0] if reasons else "")


class _File:
    """The outputs of a file by parameters."""

    def __init__(self, model: Model, file: ModelProto, names: Names, deadline: float) -> None:
        self.model = model
        self.deadline = deadline
        self.outputs = {value.name for value in file.graph.output}
        self.named = {
            param: {
                name: label for name, label in names(param, rule).items() if name in self.outputs
            }
            for param, rule in model.rules.items()
        }
        owned = {
            name: (param, label)
            for param, rule in model.rules.items()
            for name, label in _input_names(param, rule).items()
        }
        self.slices = Slices(file, owned, model.kinds.scalar)
        # A rule that looks at shapes may say another thing of each.
        self.by_shape = not self.slices.is_elementwise or not all(
            rule.is_elementwise for rule, _ in model.members
        )
        self.places = {
            param: place for place, (_, params) in enumerate(model.members) for param in params
        }

    def parts(
        self,
        of: Callable[[str], Iterable[Wanted]],
        common: Callable[[], Iterable[Wanted]],
        *,
        has_sums: bool = False,
    ) -> list[Part]:
        """Returns what is shown of each kind of parameter, and of what belongs to none."""
        groups: dict[Hashable, list[str]] = {}
        for param, named in self.named.items():
            kinds = tuple(
                (label, self.slices.kind_of(name, param)) for name, label in named.items()
            )
            groups.setdefault((self._place(param), kinds), []).append(param)
        rest = self.outputs.difference(*(named.keys() for named in self.named.values()))
        for name in sorted(rest):
            self.slices.kind_of(name, "")
        found = self._sums() if has_sums else []
        if not all(part.verdict.proved for part in found):
            return found
        found.append(Part("", 0, self._verdict(lambda: list(common()), rest)))
        for params in groups.values():
            (first, *_) = params
            verdict = self._verdict(lambda first=first: list(of(first)), self.named[first])  # type: ignore[misc]
            found.append(Part(first, len(params), verdict))
        return found

    def _place(self, param: str) -> Hashable:
        return self.places[param], self.model.shapes[param] if self.by_shape else None

    def _verdict(self, wanted: Callable[[], list[Wanted]], outputs: Iterable[str]) -> Verdict:
        begun = time.monotonic()
        try:
            needed = wanted()
            verdict = Verdict(Status.PROVED)
            if needed or outputs:
                graph = self.slices.graph(sorted(outputs))
                verdict = validate_outputs(needed, graph, self.deadline)
        except (ClosedFormError, ArithmeticError) as error:
            verdict = Verdict(Status.UNKNOWN, reason=str(error))
        except RecursionError:
            verdict = Verdict(Status.UNKNOWN, reason="the terms are nested too deeply")
        return verdict.after(time.monotonic() - begun)

    # --- sums over all parameters ----------------------------------------------------------------

    def _sums(self) -> list[Part]:
        """Finds out which sum of the rules each total is, inner ones first."""
        wanted = dict.fromkeys(
            key for rule, _ in self.model.members for key in self.model.sum_keys(rule)
        )
        left = {key: set(self.model.members_of(key)) for key in wanted}
        left = {key: members for key, members in left.items() if len(members) > 1}
        found = []
        for total in self.slices.totals.values():
            likely = [key for key, members in left.items() if members == set(total.parts)]
            parts: list[Part] = []
            for key in likely:
                parts = self._sum_parts(total, key)
                if all(part.verdict.proved for part in parts):
                    self.model.sums[key] = terms.symbol(total.symbol)
                    del left[key]
                    break
            if not parts or (len(likely) > 1 and not parts[-1].verdict.proved):
                reason = "it is none of the rule's sums over all parameters, as far as is known"
                parts = [Part("sum", len(total.parts), Verdict(Status.UNKNOWN, reason=reason))]
            found += parts
        if left and not any(part.verdict.refuted for part in found):
            reason = "a sum over all parameters of the rule was not found"
            found.append(Part("sum", 0, Verdict(Status.UNKNOWN, reason=reason)))
        return found

    def _sum_parts(self, total: Total, key: SumKey) -> list[Part]:
        groups: dict[Hashable, list[str]] = {}
        for param, name in total.parts.items():
            kind = self._place(param), self.slices.kind_of(name, param)
            groups.setdefault((*kind, self.model.shapes[param]), []).append(param)
        found = []
        for first, *others in groups.values():
            name = total.parts[first]

            def wanted(name: str = name, first: str = first) -> list[Wanted]:
                return [Wanted(name, first, self.model.part(key, first), ())]

            verdict = self._verdict(wanted, [name])
            found.append(Part(f"sum {first}", 1 + len(others), verdict))
            if not verdict.proved:
                break
        return found


def _input_names(param: str, rule: UpdateRule) -> dict[str, str]:
    states = {naming.state(param, label): f"{naming.STATE}{label}" for label in rule.states}
    inputs = {naming.tensor_input(param, name): f"{naming.INPUT}{name}" for name in rule.inputs}
    own = {naming.param(param): naming.BODY_PARAM, naming.grad(param): naming.BODY_GRAD}
    return {**own, **states, **inputs}
