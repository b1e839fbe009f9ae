"""The names that configs have for the numbers of a schedule: one table, with concept and unit.

The reader of unknown configs finds numbers by it, and an unknown argument of a schedule is answered
with the name that the argument has here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from closedform.errors import nearest


class KeyUnit(StrEnum):
    """The unit of a value, by the name of its key."""

    VALUE = "value"
    RATIO = "ratio of the rate"
    UPDATES = "updates"
    EPOCHS = "epochs"
    RUN = "part of the run"
    OPEN = "of no stated unit"


CONCEPTS: Mapping[str, str] = {
    "lr": "the rate that the schedule falls from",
    "min_lr": "the rate that it falls to",
    "warmup": "the length of the warmup",
    "warmup_start": "the rate that the warmup begins with",
    "total": "the length of the run",
    "decay": "the family of the decay, or a block with its class",
    "decay_length": "the length of the decay, where it is not the rest of the run",
    "hold": "the length of the flat stretch between the warmup and the decay",
    "table": "the steps and the rates that the schedule has there",
    "between": "how it goes between the rows of a table: linear or step",
    "gamma": "the factor of a step, or of every unit of an exponential decay",
    "milestones": "the places of the steps",
    "step_size": "the distance between the steps",
    "power": "the power of a polynomial decay",
    "unit": "what the scheduler counts: update or epoch",
    "weight_decay": "the weight decay of the optimizer",
    "optimizer": "the name of the optimizer",
    "betas": "its two decay rates",
    "beta1": "its first decay rate",
    "beta2": "its second decay rate",
    "eps": "its term of the denominator",
    "momentum": "its momentum",
}
"""The concepts, by the names that ``paths`` has for them."""

OF_SCHEDULE = ("decay_length", "gamma", "milestones", "min_lr", "power", "step_size")
"""Concepts that only a decay has."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """The concept of a name.

    Attributes:
        concept: One of ``CONCEPTS``.
        kind: The unit.
        is_weak: Whether it counts only where no stronger name is.
    """

    concept: str
    kind: KeyUnit = KeyUnit.VALUE
    is_weak: bool = False


_ROWS: Mapping[str, str] = {
    "lr": "lr learning_rate base_lr base_learning_rate max_lr max_learning_rate lr_max peak_lr "
    "peak_learning_rate lr_peak lr0 learningrate lrate lr_base optimizer_lr",
    "lr weak": "init_lr initial_lr lr_init initial_learning_rate init_learning_rate "
    "start_learning_rate start_lr lr_start learning_rate_init",
    "min_lr": "min_lr lr_min eta_min end_lr lr_end final_lr lr_final min_learning_rate lr_floor "
    "minimum_learning_rate end_learning_rate final_learning_rate minimum_lr learning_rate_min "
    "learning_rate_end",
    "min_lr ratio": "min_lr_ratio min_lr_rate lr_min_ratio min_lr_factor final_lr_ratio "
    "end_lr_ratio min_ratio lr_final_ratio final_lr_factor final_lr_fraction final_lr_frac "
    "min_learning_rate_ratio",
    "warmup updates": "warmup_steps warmup_step warmup_iters warmup_iter warmup_updates "
    "warmup_iterations num_warmup_steps lr_warmup_steps n_warmup_steps lr_warmup_iters "
    "num_warmup_iters warmup_num_steps warm_up_step warm_up_steps n_warmup lr_warmup_step "
    "warmup_batches warm_up_iters warmup_num_iters n_warm_steps lr_warmup_iterations "
    "learning_rate_warmup_steps learning_rate_warmup",
    "warmup epochs": "warmup_epochs warmup_epoch num_warmup_epochs warm_up_epochs "
    "lr_warmup_epochs n_warmup_epochs warm_up_epoch warm_epochs",
    "warmup run": "warmup_ratio warmup_fraction warmup_proportion warmup_prop warmup_frac "
    "lr_warmup_fraction warmup_steps_ratio warmup_steps_proportion warmup_percentage",
    "warmup open weak": "warmup warm_up lr_warmup warmup_length",
    "warmup_start": "warmup_start_lr warmup_init_lr warmup_lr warmup_lr_init lr_warmup_init "
    "warmup_min_lr warmup_initial_lr warmup_initial_learning_rate warmup_learning_rate warmup_init",
    "warmup_start ratio": "warmup_factor warmup_start_factor warmup_lr_factor",
    "total updates": "total_steps total_step max_steps max_step num_steps num_step train_steps "
    "training_steps num_training_steps num_train_steps n_steps total_training_steps "
    "max_train_steps max_training_steps train_max_steps train_num_steps total_iters total_iter "
    "max_iters max_iter num_iters num_iter n_iters n_iter niter train_iters iterations "
    "num_iterations max_iterations max_num_iterations train_iterations total_iterations "
    "max_updates max_update total_updates num_updates max_num_steps total_num_steps train_step",
    "total updates weak": "steps iters iter",
    "total epochs": "epochs num_epochs num_epoch max_epochs max_epoch n_epochs n_epoch "
    "total_epochs total_epoch num_train_epochs train_epochs training_epochs nepochs end_epoch "
    "epoch_num epoches max_num_epochs number_of_epochs epochs_num nb_epochs",
    "total epochs weak": "epoch",
    "decay": "lr_scheduler scheduler lr_scheduler_type lr_schedule lr_schedule_type lr_policy "
    "sched schedule lr_decay_style lr_decay_type decay_method scheduler_type scheduler_name "
    "lr_mode schedule_type decay_type learning_rate_schedule learning_rate_scheduler lr_sched "
    "lr_scheduler_name scheduler_class scheduler_fn lr_decay_mode lr_decay_method "
    "learning_rate_decay_type lr_scheduler_class schedulers scheduling lr_scheduling",
    "decay weak": "policy decay lr_decay annealing lr_anneal",
    "decay_length open": "t_max lr_decay_iters decay_iters cosine_steps lr_decay_length",
    "decay_length updates": "decay_steps lr_decay_steps num_decay_steps n_decay_steps "
    "num_lr_decay_steps",
    "hold updates": "num_constant_steps constant_steps hold_steps lr_hold_steps stable_steps "
    "num_stable_steps n_hold_steps hold_iters lr_hold_iters num_hold_steps",
    "hold epochs": "hold_epochs constant_epochs stable_epochs",
    "table open": "lr_schedule learning_rate_schedule schedule lr_table lr_values lr_points "
    "lr_knots",
    "gamma": "gamma lr_gamma decay_rate lr_decay_rate lr_decay_factor decay_factor lr_decay_gamma "
    "lr_decay lr_decay_ratio anneal_rate learning_rate_decay learning_rate_decay_rate "
    "lr_step_gamma step_gamma learning_rate_decay_factor lr_decay_mult",
    "milestones open": "milestones lr_milestones decay_milestones decay_step_list anneal_steps "
    "lr_step_milestones lr_steps",
    "milestones epochs": "lr_decay_epochs decay_epochs lr_drop_epochs lr_epochs",
    "milestones updates": "lr_decay_iterations lr_decay_iters decay_iters",
    "milestones open weak": "steps step lr_step decay_steps lr_decay_steps lr_decay_step",
    "step_size open": "step_size lr_step_size lr_step lr_drop decay_every lr_decay_every "
    "decay_interval lr_decay_interval lr_decay_period step_lr stepsize",
    "step_size updates": "decay_step lr_decay_step",
    "step_size epochs": "lr_decay_epochs decay_epochs lr_drop_epochs lr_decay_epoch "
    "lr_step_epochs epochs_per_decay",
    "power": "power lr_power poly_power poly_exp lr_decay_power",
    "unit": "interval scheduler_interval lr_scheduler_interval by_epoch t_in_epochs step_unit "
    "scheduler_unit schedule_unit lr_by_epoch scheduler_by_epoch",
    "weight_decay": "weight_decay wd weightdecay l2_weight_decay",
    "optimizer": "optimizer optim opt optimizer_name optimizer_type optim_name optim_type "
    "optimizing_method optimizer_class",
    "betas": "betas adam_betas optimizer_betas",
    "beta1": "beta1 adam_beta1 beta_1 b1",
    "beta2": "beta2 adam_beta2 beta_2 b2",
    "eps": "eps adam_eps adam_epsilon epsilon",
    "momentum": "momentum",
}
"""Concept, the unit where it is not a value, and whether it is weak -> the names of its keys."""


def _table() -> dict[str, tuple[Meaning, ...]]:
    table: dict[str, tuple[Meaning, ...]] = {}
    for label, names in _ROWS.items():
        concept, *words = label.split()
        unit = next((word for word in words if word != "weak"), "value")
        meaning = Meaning(concept, KeyUnit[unit.upper()], "weak" in words)
        for name in names.split():
            table[name] = (*table.get(name, ()), meaning)
    return table


NAMES: Mapping[str, tuple[Meaning, ...]] = _table()
"""The concepts of a name, in snake case; a list is the milestones, a text the family."""

TEXTS = frozenset({"between", "decay", "optimizer", "unit"})
"""Concepts whose values are texts."""
UNITS: Mapping[str, bool] = {
    **dict.fromkeys(("epoch", "epochs"), True),
    **dict.fromkeys(("step", "steps", "update", "updates", "iter", "iteration", "batch"), False),
}
"""The texts of a unit, and whether it is the epoch."""
LISTS = frozenset({"betas", "milestones"})
"""Concepts whose values are lists."""

CLASS_KEYS = (
    "name",
    "_name_",
    "type",
    "kind",
    "_target_",
    "class_path",
    "class",
    "class_name",
    "target",
)
"""Keys of a block whose text names the class or the family that the block configures."""
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def plain(name: str) -> str:
    """Returns the name of a key in snake case, without a path before it.

    Example:
        >>> plain("maxLr"), plain("solver.BASE_LR"), plain("warmup-steps"), plain("T_max")
        ('max_lr', 'base_lr', 'warmup_steps', 't_max')
    """
    last = name.rpartition(".")[2].strip("-_").replace("-", "_").replace(" ", "_")
    return (last if last.isupper() else _HUMP.sub("_", last)).lower().replace("__", "_")


def fits(concept: str, value: Any) -> bool:
    """Returns whether a value can be of a concept, by its type."""
    if concept == "unit":
        return isinstance(value, bool) or (isinstance(value, str) and value.lower() in UNITS)
    if concept in TEXTS:
        return isinstance(value, str) and not _is_number(value)
    if concept == "table":
        rows = value if isinstance(value, list | tuple) else ()
        pairs = [row for row in rows if isinstance(row, list | tuple) and len(row) == 2]
        return len(pairs) == len(rows) > 1 and all(
            fits("lr", part) for row in pairs for part in row
        )
    if concept in LISTS:
        return isinstance(value, list | tuple)
    if concept == "warmup" and value is False:
        return True
    return not isinstance(value, bool | list | tuple) and (
        not isinstance(value, str) or _is_number(value)
    )


def _is_number(text: str) -> bool:
    return re.fullmatch(r"\s*[-+]?(\d[\d_]*\.?\d*|\.\d+)([eE][-+]?\d+)?\s*", text) is not None


_WORDS = {
    "cosine": "cos cosine cosinewarmup halfcyclecosine warmupcosine linearwarmupcosine "
    "linearwarmupcosineannealing",
    "linear": "warmuplinear linear linearwarmuplinear",
    "constant": "constant const none fixed flat warmupconstant",
    "exponential": "exp exponential",
    "multistep": "multistep piecewise",
    "polynomial": "poly polynomial warmuppoly",
    "step": "step",
    "inverse_sqrt": "inversesqrt inversesquareroot invsqrt rsqrt",
}
FAMILIES: Mapping[str, str] = {
    word: name for name, words in _WORDS.items() for word in words.split()
}
"""The families that a text can name, without its dashes, and without the words of ``_IGNORED``."""
_IGNORED = re.compile(
    r"(annealing|annealed|anneal|decay|learningrate|schedule|scheduler|withwarmup)"
)


def family(text: str) -> str | None:
    """Returns the family that a text names; None for one that is not in the table.

    Example:
        >>> family("linear_with_warmup"), family("CosineAnnealing"), family("noam")
        ('linear', 'cosine', None)
    """
    letters = re.sub(r"[^a-z]", "", text.lower())
    for word in (letters, re.sub(r"^lr|lr$", "", letters)):
        stem = _IGNORED.sub("", word)
        for candidate in (word, stem, stem.removesuffix("r")):
            if candidate in FAMILIES:
                return FAMILIES[candidate]
    return None


ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "lr": ("lr", "peak", "start", "value", "high"),
    "min_lr": ("end", "floor", "minimum", "low"),
    "warmup": ("warmup",),
    "warmup_start": ("warmup_start",),
    "total": ("steps",),
    "decay_length": ("decay", "steps"),
    "gamma": ("gamma", "rate", "factor"),
    "milestones": ("milestones",),
    "step_size": ("steps",),
    "power": ("power", "exponent"),
    "weight_decay": ("weight_decay",),
    "betas": ("betas",),
    "beta1": ("beta1", "betas", "beta"),
    "beta2": ("beta2", "betas", "alpha", "decay"),
    "eps": ("eps",),
    "momentum": ("momentum", "beta", "betas"),
}
"""The arguments of this library for a concept, the likeliest first."""


def suggest_argument(name: str, parameters: Collection[str]) -> str:
    """Returns a hint for an unknown keyword argument: the same concept, else the nearest name.

    Args:
        name: The keyword that was used, such as the name that another framework has for it.
        parameters: The names that the function takes.

    Example:
        >>> suggest_argument("num_training_steps", ["start", "end", "steps"])
        "its name here is 'steps'"
        >>> suggest_argument("stpes", ["start", "end", "steps"])
        "did you mean 'steps'?"
    """
    for meaning in NAMES.get(plain(name), ()):
        for argument in ARGUMENTS.get(meaning.concept, ()):
            if argument in parameters:
                return f"its name here is {argument!r}"
    return nearest(name, parameters)
