"""Parameters of 16 bits, stepped in full precision."""

from __future__ import annotations

from dataclasses import replace

from closedform.errors import DefinitionError
from closedform.language import PARAM, State, UpdateRule, state
from closedform.transforms.substitution import check_rule, substituted, with_states

STORED = ("bf16", "f16")


def master_weights(rule: UpdateRule, stored: str = "bf16") -> UpdateRule:
    r"""Returns a rule for parameters and gradients of 16 bits, with masters of full precision.

    .. math:: w' = p'(w, g), \quad p' = \operatorname{round}(w')

    The rule runs on the masters w in the dtype that the graph is compiled for, float32 by default,
    and so do its states; the gradient is widened, the next parameter is the next master, rounded.
    Without masters, changes below 2**-9 of a bf16 parameter would be lost.

    State: ``master`` w, shape of the parameter, initially the parameter.

    Args:
        rule: The rule. Transforms of it that come later see the widened gradient.
        stored: The dtype of the parameters and gradients, ``"bf16"`` or ``"f16"``.

    Raises:
        DefinitionError: It is not such a dtype, or the rule has masters already.

    Example:
        >>> from closedform import optimizers
        >>> rule = master_weights(optimizers.sgd(0.5))
        >>> rule.param, rule.stored
        (-grad*lr + state.master, 'bf16')

    Source: Micikevicius et al. (2018), section 3.1; the bf16 optimizers of apex and of
    cerebras.pytorch.
    """
    check_rule(rule, "master_weights")
    if stored not in STORED:
        raise DefinitionError(
            f"stored must be 'bf16' or 'f16', got {stored!r}", where="master_weights"
        )
    master = state("master")
    # States that begin as the parameter begin as its widened value.
    named = with_states(rule, "master_weights", master=State(master, PARAM))
    moved = substituted(named, {PARAM: master})
    states = {**moved.states, "master": State(moved.param, PARAM)}
    return replace(moved, states=states, stored=stored)
