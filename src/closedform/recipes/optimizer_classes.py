"""Optimizers that a config names by the dotted path of their class, with torch's defaults."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from closedform.errors import nearest
from closedform.language import Schedule, UpdateRule
from closedform.optimizers import adam, adamw
from closedform.recipes.raw_section import RawSection
from closedform.recipes.recipe import OptimizerPlan, ParamGroup, Role
from closedform.recipes.rules import plan_optimizer, rule_of_class
from closedform.schedules import constant

EXECUTION = frozenset(
    {"capturable", "compress_state_dict", "differentiable", "exp_avg_dtype", "exp_avg_sq_dtype"}
    | {"foreach", "fused", "is_paged", "master_weight_dtype", "master_weights", "set_grad_none"}
    | {"store_param_remainders", "use_decoupled_grad"}
)
"""Arguments that choose how the same step runs, or in which precision its states are kept."""


def fused_adam(
    lr: Any = 1e-3,
    betas: Any = (0.9, 0.999),
    eps: Any = 1e-8,
    weight_decay: Any = 0,
    amsgrad: bool = False,
    adam_w_mode: bool = True,
    bias_correction: bool = True,
) -> UpdateRule:
    """Returns the rule of ``FusedAdam`` of apex, DeepSpeed and Transformer Engine, usually AdamW.

    Args:
        lr: As in :func:`~closedform.optimizers.adam`, as are the arguments up to ``amsgrad``.
        betas: The decay rates.
        eps: The term of the denominator.
        weight_decay: The weight decay, 0 by default, decoupled in the mode of AdamW.
        amsgrad: Whether to use the largest second moment.
        adam_w_mode: Whether the weight decay is decoupled.
        bias_correction: Whether the moments are corrected.

    Raises:
        DefinitionError: A number is out of its range.

    Example:
        >>> fused_adam(lr=0.1).name, fused_adam(lr=0.1, adam_w_mode=False).name
        ('adamw', 'adam')
    """
    make = adamw if adam_w_mode else adam
    return make(lr, betas, eps, weight_decay, amsgrad, correct_bias=bias_correction)


_OWN: Mapping[str, Callable[..., UpdateRule] | None] = MappingProxyType(
    {
        "FusedAdam": fused_adam,
        "PagedAdam": adam,
        "PagedAdam32bit": adam,
        "PagedAdamW": adamw,
        "PagedAdamW32bit": adamw,
    }
)
"""Classes of other packages than torch whose rule is one of the library."""

_STATES_OF_8_BITS: Mapping[str, Callable[..., UpdateRule]] = MappingProxyType(
    {
        "Adam8bit": adam,
        "AdamW8bit": adamw,
        "FlashAdamW": adamw,
        "PagedAdam8bit": adam,
        "PagedAdamW8bit": adamw,
    }
)
"""Classes that compress their states, so that their rule is not in the library, with defaults."""

_OTHERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "FlashAdamW": ("master_weight_bits", "check_numerics", "quantize"),
        "PagedAdamW": ("optim_bits", "min_8bit_size", "percentile_clipping", "block_wise"),
    }
)
"""Further arguments of some classes, which no rule of the library has."""


_FOREIGN = ("dion", "flashoptim")
"""Packages whose classes have the names of others, but not their rules."""


@dataclass(frozen=True, slots=True)
class ClassOptimizer:
    """An optimizer of a config.

    Attributes:
        plan: Its rule, built when it is asked for.
        lr: Its rate, that of the class by default.
        weight_decay: Its weight decay, None where the class has none.
    """

    plan: OptimizerPlan
    lr: Any
    weight_decay: Any

    def group(
        self,
        lr: Schedule | None = None,
        weight_decay: Schedule | None = None,
        name: str = "",
        patterns: tuple[str, ...] = (),
    ) -> ParamGroup:
        """Returns a param group with this optimizer; what is not scheduled is constant."""
        schedules = {"lr": constant(self.lr) if lr is None else lr}
        if weight_decay is not None or self.weight_decay is not None:
            schedules["weight_decay"] = (
                constant(self.weight_decay) if weight_decay is None else weight_decay
            )
        return ParamGroup(schedules, self.plan, Role.of(name), name, patterns)


def class_optimizer(
    section: RawSection,
    path: str,
    leave_out: Collection[str] = (),
    defaults: Mapping[str, Any] = MappingProxyType({}),
    rules: Mapping[str, Callable[..., UpdateRule]] = MappingProxyType({}),
) -> ClassOptimizer:
    """Returns the optimizer of a section whose other keys are the arguments of a class.

    Args:
        section: The section.
        path: The dotted path of the class; its last part decides.
        leave_out: Keys of the section that are not arguments.
        defaults: Arguments that the framework passes where the section does not.
        rules: The rules of the framework's own classes, by their names.

    Raises:
        ConfigError: An argument is unknown to a class of the library, or not a number.
    """
    # torch.optim.AdamW and torch.optim.adamw.AdamW are one class.
    name = path.rpartition(".")[2]
    rule = None
    # dion.Muon, for example, is another rule than torch.optim.Muon.
    if path.partition(".")[0] not in _FOREIGN:
        rule = rules.get(name) or _OWN.get(name) or rule_of_class(name)
    like = rule or _STATES_OF_8_BITS.get(name)
    settings = {key: section.value(key) for key in section.content if key not in leave_out}
    # A null stands for the default of the class; switches of the execution do not change the rule.
    arguments = {
        **defaults,
        **{
            key: value
            for key, value in settings.items()
            if key not in EXECUTION and value is not None
        },
    }
    parameters = dict(inspect.signature(like).parameters) if like is not None else {}
    if rule is not None:
        further = _OTHERS.get(name, ())
        arguments = {key: value for key, value in arguments.items() if key not in further}
        for key in arguments:
            if key not in parameters:
                raise section.error(
                    f"{name} has no argument {key!r}",
                    hint=nearest(str(key), {*parameters, *EXECUTION}),
                )
    values: dict[str, Any] = {
        key: parameters[key].default for key in ("lr", "weight_decay") if key in parameters
    }
    values |= {key: value for key, value in defaults.items() if key in ("lr", "weight_decay")}
    for key in ("lr", "weight_decay"):
        if key in section:
            values[key] = section.number(key)
    # SGD of older torch versions and many custom classes have no default rate.
    if values.get("lr") is None:
        raise section.error(f"{name} needs a learning rate, got none", hint="give lr")
    numbers = {**arguments, **{key: values[key] for key in values if key in arguments}}
    if "betas" in section:
        numbers["betas"] = section.numbers("betas")
    if "eps" in section:
        eps = section.numbers("eps")
        numbers["eps"] = eps[0] if len(eps) == 1 else eps
    plan = plan_optimizer(name, numbers, rule, section.document.place(section.at(None)))
    return ClassOptimizer(plan, values["lr"], values.get("weight_decay"))
