"""Translation validation of the files of a rule: each output of each file has the rule's value.

Parameters that a file computes in the same way share one proof (``onnx_slices``). A sum over all
parameters is proved to be the sum of the contributions of the parameters, and each contribution to
be that of the rule; then the steps are proved with a symbol for the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from onnx import ModelProto

from closedform.effort import Effort
from closedform.importers.onnx_checks import CheckedModel
from closedform.importers.onnx_slices import Slices, Total
from closedform.ir import naming
from closedform.language import UpdateRule
from closedform.verify.terms import build
from closedform.verify.terms.verdict import Status, Verdict
from closedform.verify.translation.rule_reading import SumKey
from closedform.verify.translation.rule_terms import Model, Wanted
from closedform.verify.translation.translation import time_verdict, validate_outputs

Names = Callable[[str, UpdateRule], Mapping[str, str]]
"""From a parameter and its rule to the roles of its outputs, by name."""


@dataclass(frozen=True, slots=True)
class OutputVerdict:
    """The result for some outputs of a file.

    Attributes:
        name: A parameter, ``"sum"`` and the parameter whose part it is, or "" for the whole model.
        count: How many parameters are computed in the same way, and are in the verdict.
        verdict: The verdict.
    """

    name: str
    count: int
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class _Kind:
    """The required values of a file of a rule.

    Attributes:
        names: The outputs that belong to a parameter.
        of: Their required values.
        common: The required values of what belongs to no parameter.
        has_sums: Whether it may take sums over all parameters.
    """

    names: Names
    of: Callable[[Model, str], Iterable[Wanted]]
    common: Callable[[Model], Iterable[Wanted]]
    has_sums: bool = False


def _states(param: str, rule: UpdateRule) -> dict[str, str]:
    return {naming.state(param, label): f"{naming.STATE}{label}" for label in rule.states}


def _next(param: str, rule: UpdateRule) -> dict[str, str]:
    labels = {naming.param(param): naming.BODY_PARAM, **_states(param, rule)}
    return {naming.following(name): label for name, label in labels.items()}


FILES: Mapping[str, _Kind] = {
    "init": _Kind(_states, Model.start, Model.first),
    "step": _Kind(_next, Model.of, Model.common, has_sums=True),
    "evaluation": _Kind(
        lambda param, _: {naming.evaluation(param): naming.BODY_EVALUATION},
        Model.point,
        lambda _: (),
    ),
}
"""The files of a rule that are validated."""


def validate_file(
    name: str, model: Model, file: CheckedModel | ModelProto, effort: Effort
) -> list[OutputVerdict]:
    """Returns what is shown of one of the ``FILES``.

    Args:
        name: Its name.
        model: The rules and their parameters.
        file: The file.
        effort: The work that it may do.
    """
    return _File(model, file, FILES[name], effort).parts()


def combine_verdicts(parts: Sequence[OutputVerdict]) -> Verdict:
    """Returns the verdict on a file: that of its worst part."""
    for status in (Status.REFUTED, Status.UNKNOWN):
        for part in parts:
            if part.verdict.status is status:
                return part.verdict
    grounds = dict.fromkeys(ground for part in parts for ground in part.verdict.grounds)
    reasons = [part.verdict.reason for part in parts if part.verdict.reason]
    return Verdict(Status.PROVED, tuple(grounds), reason=reasons[0] if reasons else "")


class _File:
    """The outputs of a file by parameters."""

    def __init__(
        self, model: Model, file: CheckedModel | ModelProto, kind: _Kind, effort: Effort
    ) -> None:
        self.model = model
        self.kind = kind
        self.effort = effort
        self.outputs = {value.name for value in file.graph.output}
        self.named = {
            param: {
                name: label
                for name, label in kind.names(param, rule).items()
                if name in self.outputs
            }
            for param, rule in model.rules.items()
        }
        outputs_by_param = {
            name: (param, label)
            for param, rule in model.rules.items()
            for name, label in _input_names(param, rule).items()
        }
        self.slices = Slices(file, outputs_by_param, model.kinds.scalar)
        # A rule that looks at shapes may say another thing of each.
        self.by_shape = not self.slices.is_elementwise or not all(
            rule.is_elementwise for rule, _ in model.members
        )
        self.places = {
            param: place for place, (_, params) in enumerate(model.members) for param in params
        }

    def parts(self) -> list[OutputVerdict]:
        """Returns the findings about each kind of parameter, and about values of none."""
        groups: dict[Hashable, list[str]] = {}
        for param, labels in self.named.items():
            kinds = tuple(
                (label, self.slices.kind_of(name, param)) for name, label in labels.items()
            )
            groups.setdefault((self._place(param), kinds), []).append(param)
        rest = self.outputs.difference(*(labels.keys() for labels in self.named.values()))
        for name in sorted(rest):
            self.slices.kind_of(name, "")
        file_parts = self._sums() if self.kind.has_sums else []
        if not all(part.verdict.proved for part in file_parts):
            return file_parts
        file_parts.append(
            OutputVerdict("", 0, self._verdict(lambda: list(self.kind.common(self.model)), rest))
        )
        for params in groups.values():
            (first, *_) = params

            def list_expected(first: str = first) -> list[Wanted]:
                return list(self.kind.of(self.model, first))

            verdict = self._verdict(list_expected, self.named[first])
            file_parts.append(OutputVerdict(first, len(params), verdict))
        return file_parts

    def _place(self, param: str) -> Hashable:
        return self.places[param], self.model.shapes[param] if self.by_shape else None

    def _verdict(
        self, list_expected: Callable[[], list[Wanted]], outputs: Iterable[str]
    ) -> Verdict:
        def decide() -> Verdict:
            expected_outputs = list_expected()
            if not expected_outputs and not outputs:
                return Verdict(Status.PROVED)
            return validate_outputs(
                expected_outputs, self.slices.graph(sorted(outputs)), self.effort
            )

        return time_verdict(decide, self.effort)

    def _sums(self) -> list[OutputVerdict]:
        """Finds out which sum of the rules each total is, inner ones first."""
        keys_by_total = dict.fromkeys(
            key for rule, _ in self.model.members for key in self.model.sum_keys(rule)
        )
        left = {key: set(self.model.members_of(key)) for key in keys_by_total}
        left = {key: members for key, members in left.items() if len(members) > 1}
        sum_parts = []
        for total in self.slices.totals.values():
            likely = [key for key, members in left.items() if members == set(total.parts)]
            parts: list[OutputVerdict] = []
            for key in likely:
                parts = self._sum_parts(total, key)
                if all(part.verdict.proved for part in parts):
                    self.model.sums[key] = build.symbol(total.symbol)
                    del left[key]
                    break
            if not parts or (len(likely) > 1 and not parts[-1].verdict.proved):
                reason = "it is none of the rule's sums over all parameters, as far as is known"
                parts = [
                    OutputVerdict("sum", len(total.parts), Verdict(Status.UNKNOWN, reason=reason))
                ]
            sum_parts += parts
        if left and not any(part.verdict.refuted for part in sum_parts):
            reason = "a sum over all parameters of the rule was not found"
            sum_parts.append(OutputVerdict("sum", 0, Verdict(Status.UNKNOWN, reason=reason)))
        return sum_parts

    def _sum_parts(self, total: Total, key: SumKey) -> list[OutputVerdict]:
        groups: dict[Hashable, list[str]] = {}
        for param, name in total.parts.items():
            kind = self._place(param), self.slices.kind_of(name, param)
            groups.setdefault((*kind, self.model.shapes[param]), []).append(param)
        parts = []
        for first, *further_names in groups.values():
            name = total.parts[first]

            def list_expected(name: str = name, first: str = first) -> list[Wanted]:
                return [Wanted(name, first, self.model.part(key, first), ())]

            verdict = self._verdict(list_expected, [name])
            parts.append(OutputVerdict(f"sum {first}", 1 + len(further_names), verdict))
            if not verdict.proved:
                break
        return parts


def _input_names(param: str, rule: UpdateRule) -> dict[str, str]:
    inputs = {naming.tensor_input(param, name): f"{naming.INPUT}{name}" for name in rule.inputs}
    labels = {naming.param(param): naming.BODY_PARAM, naming.grad(param): naming.BODY_GRAD}
    return {**labels, **_states(param, rule), **inputs}
