"""The arguments of other libraries' classes: their types and descriptions, for signatures and help.

The libraries use a name for one thing, so the table is by name; an argument that is a pair in some
classes has the type of its default there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import sympy as sp

from closedform.language import Schedule
from closedform.recipes.entries import REQUIRED, Parameter

if TYPE_CHECKING:
    from closedform.torch.scheduler import ParamScheduler

    SubScheduler: TypeAlias = ParamScheduler | Mapping[str, object]
    StepFunction: TypeAlias = (
        Callable[[int], float]
        | Schedule
        | sp.Expr
        | Mapping[str, str]
        | Sequence[Callable[[int], float] | Schedule | sp.Expr | Mapping[str, str]]
    )

_NUMBERS = "float | Sequence[float]"
_COUNT = "int"
_FUNCTION = "StepFunction"
_TAGS = "Tags"


@dataclass(frozen=True, slots=True)
class ArgumentText:
    """The type of an argument, as an annotation, and its description."""

    annotation: str
    description: str


def _rows(annotation: str, **descriptions: str) -> dict[str, ArgumentText]:
    return {name: ArgumentText(annotation, text) for name, text in descriptions.items()}


ARGUMENTS: Mapping[str, ArgumentText] = {
    **_rows("ParamsT", params="Parameters or param groups."),
    **_rows("Optimizer", optimizer="The optimizer whose param groups are driven."),
    **_rows(
        "float",
        alpha="Smoothing constant, or the exponent of the average in ASGD.",
        beta2_decay="Exponent of the decay of the second moment's coefficient.",
        clip_threshold="Largest root mean square of an update.",
        coefficient="Factor of the schedule.",
        cycle_decay="Factor of the peak from one cycle to the next.",
        cycle_mul="Factor of the length from one cycle to the next.",
        d="Largest root mean square of an update.",
        dampening="Dampening of the momentum.",
        decay_factor="Factor of the decay.",
        decay_power="Exponent of the decay.",
        decay_rate="Factor of the value at each decay, or the exponent of the second moment.",
        decay_ratio="Part of the run in which the value decays.",
        decay_phase_ratio="Part of the run in which the value decays.",
        div_factor="Peak divided by the first value.",
        end_factor="Factor of the base value at the end.",
        end_learning_rate="Learning rate at the end.",
        end_val="Value at the end.",
        eta_min="Lowest value.",
        factor="Factor of the value.",
        final_div_factor="First value divided by the last one.",
        gamma="Factor of the value at each decay.",
        initial_accumulator_value="First value of the accumulator.",
        initial_learning_rate="Learning rate at the start.",
        initial_val="Value at the start.",
        k_decay="Exponent of the progress.",
        lambd="Decay term.",
        lb="Lower bound of the argument of tanh.",
        learning_rate="Learning rate.",
        lr_decay="Decay of the learning rate by the number of updates.",
        lr_min="Lowest learning rate.",
        momentum="Momentum.",
        momentum_decay="Decay of the momentum.",
        noise_pct="Largest noise as a part of the value.",
        noise_std="Standard deviation of the noise.",
        num_cooldown_epochs="Epochs at the lowest learning rate at the end.",
        num_warmup_epochs="Epochs of the warmup.",
        pct_start="Part of the cycle in which the value rises.",
        power="Exponent of the decay.",
        rho="Coefficient of the running average of squares.",
        scale="Factor of the value.",
        stable_power="Exponent of the decay in the stable phase.",
        start_factor="Factor of the base value at the start.",
        step_exponent="Exponent of the number of steps.",
        t0="Update from which on parameters are averaged.",
        threshold="Smallest change of the metric that counts as an improvement.",
        ub="Upper bound of the argument of tanh.",
        val="Value.",
        warmup_lr_init="Learning rate at the start of the warmup.",
        warmup_starting_lr="Learning rate at the start of the warmup.",
        warmup_steps="Steps of the warmup.",
        weight_decay="Weight decay.",
    ),
    **_rows("float | Tensor", lr="Learning rate."),
    **_rows(
        "float | None",
        beta1="Coefficient of the first moment, None for no first moment.",
        min_lr_ratio="Lowest learning rate as a part of the peak.",
        stable_timescale="Time scale of the decay in the stable phase.",
        warmup_starting_lr_ratio="Learning rate at the start of the warmup, as a part of the peak.",
    ),
    **_rows(
        _NUMBERS,
        base_lr="Lowest learning rate, or one for each group.",
        base_momentum="Lowest momentum, or one for each group.",
        base_val="Lowest value, or one for each group.",
        decay_t="Steps between decays, or the steps at which the value decays.",
        epoch_milestones="Epochs at which the value decays.",
        max_lr="Largest learning rate, or one for each group.",
        max_momentum="Largest momentum, or one for each group.",
        max_val="Largest value, or one for each group.",
        min_lr="Lowest learning rate, or one for each group.",
        noise_range_t="First step with noise, or first and last.",
    ),
    **_rows(
        "Sequence[float]",
        learning_rates="Learning rates, one for each phase.",
        vals="Values, one for each phase.",
    ),
    **_rows("Sequence[int]", milestones="Steps at which the next phase begins, ascending."),
    **_rows(
        "tuple[float, float]",
        betas="Coefficients of the first and second moment.",
        etas="Factors of a step that shrinks and of one that grows.",
        step_sizes="Smallest and largest step.",
    ),
    **_rows("tuple[float, float, float]", ns_coefficients="Coefficients of Newton-Schulz."),
    **_rows("float", eps="Term that keeps quotients finite."),
    **_rows(
        _COUNT,
        T_0="Steps of the first cycle.",
        T_max="Steps from the peak to the lowest value.",
        T_mult="Factor of the length from one cycle to the next.",
        cooldown="Steps after a decay in which bad steps are not counted.",
        cooldown_t="Steps after a decay in which bad steps are not counted.",
        cycle_limit="Number of cycles.",
        last_epoch="The clock to resume from, -1 for a new run.",
        n="Number of steps.",
        ns_steps="Steps of Newton-Schulz.",
        num_checkpoints="Number of checkpoints of the run.",
        num_steps_per_epoch="Updates of an epoch.",
        num_warmup_steps="Steps of the warmup.",
        patience="Steps without improvement that are tolerated.",
        patience_t="Steps without improvement that are tolerated.",
        step_size="Steps between decays.",
        step_size_up="Steps of the rising half of a cycle.",
        t_initial="Steps of the first cycle, without the warmup.",
        total_num_epochs="Epochs of the run.",
        warmup_t="Steps of the warmup.",
    ),
    **_rows(
        "int | None",
        epochs="Epochs of the run.",
        noise_seed="Seed of the noise.",
        num_epochs="Epochs of the run.",
        num_update_steps_per_epoch="Updates of an epoch.",
        step_size_down="Steps of the falling half of a cycle, None for the same.",
        steps_per_epoch="Updates of an epoch.",
        total_iters="Steps of the schedule.",
        total_steps="Steps of the cycle.",
    ),
    **_rows(
        "bool",
        adam="Whether to take the step of Adam.",
        as_implemented="Whether to reproduce the defects of the library.",
        amsgrad="Whether to use the largest second moment so far.",
        capturable="Of torch: without effect here.",
        centered="Whether to subtract the square of the average gradient.",
        correct_bias="Whether to correct the bias of the moments.",
        cycle="Whether to begin again at the end.",
        cycle_momentum="Whether to drive the momentum against the learning rate.",
        decoupled_weight_decay="Whether weight decay is independent of the moments.",
        differentiable="Of torch: must be False.",
        is_continuation_from_checkpoint="Whether the run goes on from a checkpoint.",
        maximize="Whether to maximize the objective.",
        nesterov="Whether to use Nesterov's momentum.",
        relative_step="Whether to compute the learning rate from the number of updates.",
        scale_parameter="Whether to multiply the rate by the root mean square of the parameter.",
        staircase="Whether the decay is by whole periods.",
        t_in_epochs="Whether the clock counts epochs.",
        three_phase="Whether a third phase lowers the value to its end.",
        use_inverse_sqrt_decay="Whether the decay is by 1 - sqrt.",
        warmup_init="Whether relative steps begin with a warmup.",
        warmup_prefix="Whether the cycle begins after the warmup.",
    ),
    **_rows(
        "bool | None",
        continuation="Whether the run goes on from a checkpoint.",
        foreach="Of torch: without effect here.",
        fused="Of torch: without effect here.",
    ),
    **_rows(
        "str",
        anneal_strategy='"cos" or "linear".',
        decay_fn="The shape of the decay.",
        expr="The expression of the value.",
        mode='"min" or "max"; of cyclic schedules, the shape of the peaks.',
        noise_type='"normal" or "uniform".',
        scale_mode='Whether ``scale_fn`` takes the "cycle" or the number of "iterations".',
        stable_fn="The shape of the stable phase.",
        threshold_mode='"rel" or "abs".',
    ),
    **_rows(
        "str | None", adjust_lr_fn='"original" or "match_rms_adamw"; None for the first of them.'
    ),
    **_rows(
        _FUNCTION, lr_lambda="From the step to the factor; one function, or one for each group."
    ),
    **_rows(
        f"{_FUNCTION} | None",
        lambdas="From the step to the factor, one for each group.",
        scale_fn="From the cycle or the iteration to the height of the peak.",
    ),
    **_rows("SubScheduler", scheduler="The scheduler whose value is scaled."),
    **_rows("Sequence[SubScheduler]", schedulers="The schedulers, in order."),
    **_rows(_TAGS, param_group_tags="The tags of the groups that are driven, None for all."),
    **_rows("str", backend='"eager", "compile" or "onnxruntime".'),
    **_rows("Sequence[str] | None", providers="Execution providers of onnxruntime."),
}
"""The arguments by name."""


def annotation_of(parameter: Parameter) -> str:
    """Returns the annotation of an argument; its default may be a pair or None.

    Raises:
        KeyError: The table lacks the argument.
    """
    text = ARGUMENTS[parameter.name].annotation
    default = parameter.default
    if isinstance(default, tuple) and not text.startswith("tuple"):
        # Such as eps=(None, 1e-3) of Adafactor in torch.
        members = ("float | None" if value is None else "float" for value in default)
        return f"tuple[{', '.join(members)}]"
    # Tags is an alias of a union with None.
    if default is None and "None" not in text and text != _TAGS:
        return f"{text} | None"
    if default is REQUIRED and text == "int | None":
        return "int"
    return text


def describe_arguments(parameters: Iterable[Parameter]) -> str:
    """Returns the section of a docstring that describes arguments."""
    rows = (f"    {p.name}: {ARGUMENTS[p.name].description}" for p in parameters)
    return "\n".join(["Args:", *rows])
