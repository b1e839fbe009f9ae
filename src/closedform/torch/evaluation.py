"""The point of evaluation, for rules that evaluate a model elsewhere than they train it.

Schedule-Free, weight averages and Lookahead train at one point and are evaluated at another.
``eval`` writes the second one to the parameters and saves the first as a state, so that ``train``
restores it bit for bit.
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
from closedform.torch.distributed.partial_sums import shard_rules
from closedform.torch.distributed.shard_steps import (
    ShardCompiler,
    ShardKernel,
    ShardTensors,
    graph_runners,
    graph_shape,
    run_shards,
)
from closedform.torch.engine.kernels import COMPUTE_DTYPES, GRAPH_DTYPES, LABEL
from closedform.torch.param_groups import TRAIN_MODE, is_training
from closedform.torch.shards import local
from closedform.torch.states import STEP, TRAINING_POINT


class TrainEvalOptimizer(torch.optim.Optimizer):
    """An optimizer whose parameters move between the points of training and of evaluation."""

    _backend: str

    _evaluations: dict[int, tuple[UpdateRule, dict[Any, Any]]]
    """For each group, the rule of its point of evaluation, and its compiled form."""

    @abstractmethod
    def _rule_of(self, index: int) -> UpdateRule:
        """The rule of a group with its current values."""

    @torch.no_grad()
    def eval(self) -> None:
        """Writes the point of evaluation to the parameters, which cannot be stepped afterwards.

        The point of training becomes the state ``training_point``, which state dicts contain.
        Nothing happens if the rule is evaluated at its parameters, or at a second call.

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
        work = [work_item for index in groups for work_item in self._evaluation_work(index)]
        for _, tensors in work:
            self.state[tensors.param][TRAINING_POINT] = tensors.param.detach().clone()
        if work:
            run_shards(work)
        for index in groups:
            group = self.param_groups[index]
            if any(TRAINING_POINT in self.state.get(param, ()) for param in group["params"]):
                group[TRAIN_MODE] = False

    @torch.no_grad()
    def train(self) -> None:
        """Restores the parameters to the point of training, as they were before ``eval``."""
        for group in self.param_groups:
            for param in group["params"]:
                training_point = self.state.get(param, {}).pop(TRAINING_POINT, None)
                if training_point is not None:
                    param.copy_(training_point)
            group.pop(TRAIN_MODE, None)

    def _check_training(self) -> None:
        """Raises StateError if a group is at the point of evaluation."""
        for index, group in enumerate(self.param_groups):
            if not is_training(group):
                raise StateError(
                    "the parameters are at the point of evaluation",
                    where=f"{type(self).__name__}, param group {index}",
                    hint="call train() before step()",
                )

    def _evaluation_work(self, index: int) -> list[tuple[ShardKernel, ShardTensors]]:
        """The kernels that write the point of evaluation of a group, if it has one."""
        rule = self._rule_of(index)
        params = [p for p in self.param_groups[index]["params"] if STEP in self.state.get(p, ())]
        # A parameter that has had no step is at both points.
        if rule.evaluation is None or not params:
            return []
        # This rule does not depend on values that the point does not use, such as a learning rate.
        current = evaluation_rule(rule)
        if index not in self._evaluations or self._evaluations[index][0] != current:
            self._evaluations[index] = current, {}
        cache = self._evaluations[index][1]
        compiler = ShardCompiler(graph_runners(self._backend), cache)
        work = []
        for param, shard_rule in zip(params, shard_rules(rule, params, cache), strict=True):
            part = tuple(local(param).shape)
            key = ("evaluation", shard_rule, part, param.dtype)
            if key not in cache:
                dtype = GRAPH_DTYPES[COMPUTE_DTYPES[param.dtype]]
                spec = ModelSpec(shard_rule.rule, {f"{LABEL}0": graph_shape(shard_rule, part)})
                graph = compile_evaluation(spec, GraphOptions(dtype=dtype))
                cache[key] = compiler.kernel([], graph, shard_rule, part)
            work.append((cache[key], ShardTensors(param, param, self.state[param], {})))
        return work
