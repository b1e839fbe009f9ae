"""The point of evaluation: where a model is evaluated, if that is not where it is trained.

Rules such as Schedule-Free, a weight average or Lookahead train at one point and are evaluated at
another. ``eval`` writes the second one into the parameters and keeps the first as a state, so that
``train`` brings it back to the bit, whatever the rule.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch

from closedform.compiler import compile_evaluation
from closedform.errors import StateError
from closedform.language import UpdateRule
from closedform.lowering.sums import evaluation_rule
from closedform.options import GraphOptions, ModelSpec
from closedform.torch.base import KEPT, MODE, OptimizerBase, is_training
from closedform.torch.distributed.partial_sums import cut
from closedform.torch.distributed.shard_steps import (
    Piece,
    ShardJob,
    ShardKernel,
    engines,
    run_shards,
)
from closedform.torch.distributed.shards import local
from closedform.torch.engine.kernels import COMPUTED, NAME, WORDS


class SwitchingOptimizer(OptimizerBase):
    """An optimizer whose parameters move between the points of training and of evaluation."""

    _backend: str
    _providers: list[str] | None

    _points: dict[int, tuple[UpdateRule, dict[Any, Any]]]
    """What was compiled for the point of each group, and the rule that it was compiled for."""

    @abstractmethod
    def _rule_of(self, index: int) -> UpdateRule:
        """The rule of a group with the numbers that it has now."""

    @torch.no_grad()
    def eval(self) -> None:
        """Writes the point of evaluation into the parameters, which then cannot be stepped.

        The point of training becomes the state ``training_point``, which state dicts hold. Where a
        rule is evaluated at its parameters, and at a second call, nothing happens.

        Example:
            >>> import closedform as cf
            >>> from closedform.torch import Optimizer
            >>> weight = torch.nn.Parameter(torch.zeros(1))
            >>> rule = cf.transforms.weight_average(cf.optimizers.sgd(lr=1), decay=0.5)
            >>> optimizer = Optimizer([weight], rule)
            >>> for _ in range(2):
            ...     weight.grad = -torch.ones(1)
            ...     optimizer.step()
            >>> optimizer.eval()
            >>> weight.item()
            1.5
            >>> optimizer.train()
            >>> weight.item()
            2.0
        """
        groups = [index for index, group in enumerate(self.param_groups) if is_training(group)]
        work = [one for index in groups for one in self._writers(index)]
        for _, job in work:
            self.state[job.param][KEPT] = job.param.detach().clone()
        if work:
            run_shards([(kernel, job) for kernel, job in work])
        for index in groups:
            group = self.param_groups[index]
            if any(KEPT in self.state[param] for param in group["params"]):
                group[MODE] = False

    @torch.no_grad()
    def train(self) -> None:
        """Brings the parameters back to the point of training, where ``eval`` took them from."""
        for group in self.param_groups:
            for param in group["params"]:
                kept = self.state[param].pop(KEPT, None)
                if kept is not None:
                    param.copy_(kept)
            group.pop(MODE, None)

    def _check_training(self) -> None:
        """Raises StateError where a group is at the point of evaluation."""
        for index, group in enumerate(self.param_groups):
            if not is_training(group):
                raise StateError(
                    "the parameters are at the point of evaluation",
                    where=f"{type(self).__name__}, param group {index}",
                    hint="call train() before step()",
                )

    def _writers(self, index: int) -> list[tuple[ShardKernel, ShardJob]]:
        """What writes the point of evaluation of each parameter of a group, if it has one."""
        params, rule = self.param_groups[index]["params"], self._rule_of(index)
        if rule.evaluation is None:
            return []
        # Its equality does not depend on numbers that the point does not, such as a learning rate.
        asked = evaluation_rule(rule)
        if index not in self._points or self._points[index][0] != asked:
            self._points[index] = asked, {}
        known, engine = self._points[index][1], engines(self._backend, self._providers)
        made = []
        for param, one in zip(params, cut(rule, params, known), strict=True):
            shape = one.shape if one.is_gathered else tuple(local(param).shape)
            key = ("evaluation", one.shape, one.is_gathered, shape, param.dtype)
            if key not in known:
                dtype = WORDS[COMPUTED[param.dtype]]
                graph = compile_evaluation(
                    ModelSpec(one.rule, {f"{NAME}0": shape}), GraphOptions(dtype=dtype)
                )
                piece = Piece(graph, engine(graph))
                known[key] = ShardKernel((), piece, frozenset(), one.is_gathered)
            made.append((known[key], ShardJob(param, param, self.state[param], {})))
        return made
