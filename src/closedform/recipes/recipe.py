"""A recipe: the optimizer of a training run with its schedules inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import sympy as sp

from closedform.language import Group, Schedule, UpdateRule, from_param_groups
from closedform.recipes.cerebras.param_groups import configure_param_groups


@dataclass(frozen=True, slots=True)
class Recipe:
    """The optimization part of a config.

    Attributes:
        name: The file's name without its ending, or ``recipe`` for a mapping.
        optimizer: The update rule, its schedules inside as hyperparameters.
        schedules: Key of the param group ("lr", "weight_decay") -> schedule.
        max_steps: The number of steps of the run, None if not given.
        adjust_learning_rate: Layer type -> factor of its learning rate; empty for none.
        source: The file, or ``<mapping>``.
    """

    name: str
    optimizer: UpdateRule
    schedules: Mapping[str, Schedule]
    max_steps: int | None = None
    adjust_learning_rate: Mapping[str, sp.Expr] = field(default_factory=dict)
    source: str = "<mapping>"

    def groups(self, params: Sequence[str], norms: Sequence[str] = ()) -> list[Group]:
        """Returns the groups of a model's parameters, as the config's framework makes them.

        Biases and parameters of normalization modules have no weight decay; the learning rate of a
        layer type has its factor.

        Args:
            params: Names of the parameters, in the order of the model.
            norms: Names of its normalization modules.

        Raises:
            ConfigError: A layer type is unknown.

        Example:
            >>> from closedform.recipes import load_recipe
            >>> optimizer = {"AdamW": {"weight_decay": 0.1, "lr": 1e-3}}
            >>> recipe = load_recipe({"trainer": {"init": {"optimizer": optimizer}}})
            >>> [(g.params, g.changes) for g in recipe.groups(["w", "bias"])]
            [(('w',), {'weight_decay': 1/10}), (('bias',), {'weight_decay': 0.0})]
        """
        decay = self.optimizer.hyperparameters.get("weight_decay", 0)
        config = {"weight_decay": decay, "adjust_learning_rate": self.adjust_learning_rate}
        made = configure_param_groups(params, norms, config)
        return from_param_groups(made, self.optimizer)
