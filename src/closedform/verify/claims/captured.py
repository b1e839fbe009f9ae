"""The claim that a step which is captured once, and replayed, takes no number from its host.

A CUDA graph repeats what the step computed, with the numbers that were given to it then. So a rate
that is an input of the step stays as it was, without an error, and one that the step computes from
its clock does not::

    capturable(adamw(lr=None))            REFUTED: lr is an input of the step
    capturable(adamw(lr=cosine(…)))       PROVED: the clock is a state, which the step advances
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Protocol, runtime_checkable

from closedform.effort import Effort
from closedform.errors import VerificationError, describe, nearest
from closedform.language import Schedule, UpdateRule
from closedform.verify.claims.core import Claim
from closedform.verify.terms.verdict import Status, Verdict

TACTIC = "the inputs of the step"
"""The ground of these verdicts."""


@runtime_checkable
class Replayable(Protocol):
    """A step that knows what it takes from its host, such as a torch drop-in."""

    def host_numbers(self) -> Mapping[str, str]:
        """Returns how the host gives each number that the step does not compute, by its name."""


def capturable(step: UpdateRule | Replayable, *, device: Iterable[str] = ()) -> Claim:
    """Claims that replays of a captured step need no number from the host.

    Each input of the step is a parameter, a gradient, a state that the step replaces, its clock
    among them, or a tensor that is computed on the device. A Schedule in a rule is computed from
    the clock. REFUTED names every other input: a rate, a weight decay or a bias correction that is
    passed, a count that the host keeps.

    Args:
        step: An update rule; or an optimizer of ``closedform.torch``, whose numbers come from the
            host where a scheduler writes them or they have changed since the first step.
        device: Inputs that are computed on the device before each step, such as ``"hessian"`` of
            Sophia or a loss.

    Raises:
        VerificationError: The step is neither, or has no input of a name in ``device``.

    Example:
        >>> from closedform import optimizers, schedules
        >>> decay = schedules.linear(0.1, 0, 1000)
        >>> print(capturable(optimizers.adamw(lr=None, weight_decay=decay)).verify())
        REFUTED by the inputs of the step: lr is an input without a value
        >>> print(capturable(optimizers.adamw(lr=1e-3, weight_decay=decay)).verify())
        PROVED by the inputs of the step
    """
    if isinstance(step, UpdateRule):
        # A Schedule with open hyperparameters has no value either.
        is_open = {
            name: bool(value.open) if isinstance(value, Schedule) else value is None
            for name, value in step.hyperparameters.items()
        }
        ways = dict.fromkeys(filter(is_open.get, is_open), "an input without a value")
        ways |= dict.fromkeys(step.inputs, "a tensor that each step is given")
    elif isinstance(step, Replayable):
        ways = dict(step.host_numbers())
    else:
        raise VerificationError(
            f"capturable takes a rule or an optimizer of closedform.torch, got {describe(step)}",
            hint="closedform.verify_file asks it of the file of a step",
        )
    for name in device:
        if ways.pop(name, None) is None:
            raise VerificationError(f"the host gives no {name!r}", hint=nearest(name, ways))
    sentence = "a replay needs no number from the host"
    subject = step if isinstance(step, UpdateRule) else None
    return Claim("capturable", sentence, subject, (), decide=partial(_decide, ways))


def _decide(numbers: Mapping[str, str], _: Effort) -> Verdict:
    reason = "; ".join(f"{name} is {way}" for name, way in numbers.items())
    return Verdict(Status.REFUTED if numbers else Status.PROVED, (TACTIC,), reason=reason)
