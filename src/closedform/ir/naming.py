"""Names of the inputs and outputs of graphs and files, in one place.

A whole step has ``step``, ``param.<param>``, ``grad.<param>``, ``state.<param>.<state>``,
``input.<param>.<input>`` and ``shared.<state>`` as inputs and ``next.…`` of them as outputs; a
training step also has ``buffer.…``, ``batch.…`` and ``random.…``, ``metric.…`` for further results
of its loss and ``written.…`` for parameters that it writes to. A body, the step of one tensor, has
the same names without the parameter: ``param``, ``grad``, ``state.<state>``, ``input.<input>``;
it takes ``scalar.<place>`` from the graph of scalars and adds to ``sum.<place>``.
"""

from __future__ import annotations

STEP = "step"
PARAM, GRAD, STATE, INPUT, SHARED = "param.", "grad.", "state.", "input.", "shared."
NEXT, EVALUATION = "next.", "evaluation."
BUFFER, BATCH, RANDOM = "buffer.", "batch.", "random."
METRIC, WRITTEN = "metric.", "written."
SCALAR, TOTAL, SIZE = "scalar.", "sum.", "size."
"""Prefixes."""

BODY_PARAM, BODY_GRAD, BODY_EVALUATION = "param", "grad", "evaluation"
"""Names of a body without a prefix."""


def param(name: str) -> str:
    """Returns the name of a parameter."""
    return f"{PARAM}{name}"


def grad(name: str) -> str:
    """Returns the name of a parameter's gradient."""
    return f"{GRAD}{name}"


def state(name: str, label: str) -> str:
    """Returns the name of a state of a parameter."""
    return f"{STATE}{name}.{label}"


def tensor_input(name: str, label: str) -> str:
    """Returns the name of a further tensor that a rule takes for a parameter."""
    return f"{INPUT}{name}.{label}"


def evaluation(name: str) -> str:
    """Returns the name of a parameter at the point of evaluation."""
    return f"{EVALUATION}{name}"


def shared(label: str) -> str:
    """Returns the name of a state of the whole model."""
    return f"{SHARED}{label}"


def buffer(name: str) -> str:
    """Returns the name of a buffer of a model."""
    return f"{BUFFER}{name}"


def following(name: str) -> str:
    """Returns the name of the output that replaces an input in the next step.

    Example:
        >>> following(state("w", "exp_avg"))
        'next.state.w.exp_avg'
    """
    return f"{NEXT}{name}"


def scalar(place: int) -> str:
    """Returns the name of a scalar that a body takes."""
    return f"{SCALAR}{place}"


def total(place: int) -> str:
    """Returns the name of a sum over all parameters."""
    return f"{TOTAL}{place}"


def size(name: str) -> str:
    """Returns the name of the input of a named size."""
    return f"{SIZE}{name}"


def outer_name(name: str, param: str) -> str:
    """Returns the name in the whole step of an input or output of a body.

    Example:
        >>> outer_name("next.state.exp_avg", "w"), outer_name("grad", "w")
        ('next.state.w.exp_avg', 'grad.w')
    """
    bare = name.removeprefix(NEXT)
    prefix = name[: len(name) - len(bare)]
    for kind in (STATE, INPUT):
        if bare.startswith(kind):
            return f"{prefix}{kind}{param}.{bare.removeprefix(kind)}"
    return f"{prefix}{bare}.{param}"
