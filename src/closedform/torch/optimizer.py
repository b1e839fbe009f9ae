"""Optimizer: an update rule as a torch optimizer, in torch, torch.compile or onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from closedform.errors import ArgumentError, UnknownNameError, nearest
from closedform.ir.naming import GRAD, PARAM
from closedform.language import Schedule, UpdateRule
from closedform.torch.base import OptimizerBase, place
from closedform.torch.distributed.partial_sums import cut
from closedform.torch.distributed.shard_steps import (
    ShardJob,
    ShardKernel,
    engines,
    run_shards,
    shard_kernels,
)
from closedform.torch.distributed.shards import (
    gradient_of,
    is_sharded,
    is_spread,
    local,
    steps_by_shards,
)
from closedform.torch.engine import kernels
from closedform.torch.engine.bound_program import Call, run_traced
from closedform.torch.engine.compiled import compiled
from closedform.torch.engine.eager import listed
from closedform.torch.engine.hyper_inputs import numbers_of
from closedform.torch.engine.kernels import (
    BACKENDS,
    Member,
    OnnxKernel,
    TorchKernel,
    make_job,
)
from closedform.torch.engine.plans import GivenRule, Plan, inputs_for
from closedform.torch.engine.replay import KeptStep, kept_step
from closedform.torch.engine.specialize import RuleSource, Variants
from closedform.torch.engine.tensor_table import line_up
from closedform.torch.evaluation import SwitchingOptimizer
from closedform.torch.param_groups import check_all, check_parameter, with_gradients
from closedform.torch.states import adapted_states, group_states

Work = tuple[Any, Mapping[str, Tensor], Sequence[Tensor]]
"""A kernel, the hyperparameters and the parameters that it steps."""


class Optimizer(SwitchingOptimizer):
    """An update rule as a torch optimizer.

    A group holds the rule's hyperparameters by name, and may give its own; a scheduler of any kind
    may write numbers there, or fill tensors. A hyperparameter that is a Schedule is inside the
    graph, driven by the parameter's own step, and is no entry of the group. The states, and the
    count ``step`` (int64), are made by the constructor on the parameter's device; no step makes
    state or reads a tensor back to the host. A parameter without a gradient is left as it is, its
    step too.

    Args:
        params: Parameters, named parameters, or param groups; all on one device.
        rule: The update rule.
        backend: ``"eager"`` for torch, ``"compile"`` for torch.compile, ``"onnxruntime"``.
        providers: For onnxruntime: its execution providers in order of preference; that of the
            parameters' device if None.

    Raises:
        ArgumentError: ``rule`` is none, the backend is unknown, or a parameter is complex, no
            floating-point number, on another device, or one that onnxruntime cannot read.
        DefinitionError: A hyperparameter is out of its range.
        UnknownNameError: A group has no value for a hyperparameter that needs one.

    Example:
        >>> import closedform as cf
        >>> weight = torch.nn.Parameter(torch.ones(2))
        >>> optimizer = Optimizer([weight], cf.optimizers.adamw(lr=0.5, weight_decay=0))
        >>> weight.sum().backward()
        >>> optimizer.step()
        >>> weight.data, sorted(optimizer.state[weight])
        (tensor([0.5000, 0.5000]), ['exp_avg', 'exp_avg_sq', 'step'])
    """

    def __init__(
        self,
        params: Iterable[Any],
        rule: UpdateRule,
        backend: str = "eager",
        providers: Sequence[str] | None = None,
    ) -> None:
        if not isinstance(rule, UpdateRule):
            raise ArgumentError(
                f"an optimizer runs an UpdateRule, got {type(rule).__name__}",
                hint="make one with closedform.optimizers",
            )
        given = {name: value for name, value in rule.hyperparameters.items() if value is not None}
        defaults = {name: numbers_of(rule).get(name, value) for name, value in given.items()}
        self._begin(params, GivenRule(rule), defaults, backend, providers)

    def _begin(
        self,
        params: Iterable[Any],
        source: RuleSource,
        defaults: dict[str, Any],
        backend: str,
        providers: Sequence[str] | None,
    ) -> None:
        if backend not in BACKENDS:
            raise ArgumentError(
                f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}",
                where=source.name,
                hint=nearest(str(backend), BACKENDS),
            )
        self._source = source
        self._backend = backend
        self._providers = None if providers is None else list(providers)
        self._scheduled: list[dict[str, Any]] = []
        self._forget()
        OptimizerBase.__init__(self, params, defaults, enable_global_step=True)

    def _forget(self) -> None:
        """Drops what is compiled and planned; the next step makes it again."""
        self._variants = Variants(self._source)
        self._plans: dict[int, Plan] = {}
        self._points = {}
        self._kept: KeptStep | None = None
        self._ready = compiled() if self._backend == "compile" else listed()

    # --- groups and states ---------------------------------------------------------------------

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group, and makes the states of its parameters; all is checked before.

        Raises:
            ArgumentError: A parameter is one that the constructor refuses.
            DefinitionError: A hyperparameter is out of its range.
            UnknownNameError: A hyperparameter has no value.
        """
        index = len(self.param_groups)
        super().add_param_group(param_group)
        group = self.param_groups[index]
        try:
            self._accept(group, index)
        except Exception:
            del self.param_groups[index:], self._scheduled[index:]
            for parameter in group["params"]:
                self.state.pop(parameter, None)
            raise

    def _accept(self, group: dict[str, Any], index: int) -> None:
        for number, parameter in enumerate(group["params"]):
            spot = f"{type(self).__name__}, {place(group, index, number)}"
            first = self._parameters()[0]
            check_parameter(parameter, first, self._backend, self._providers, spot)
        where = f"{type(self).__name__}, param group {index}"
        scheduled = {key: group[key] for key in self._source.keys if _is_scheduled(group.get(key))}
        values = self._checked_values({**group, **scheduled}, where)
        rule = self._variants.check(values, where)
        self._check_rule(rule, group, where)
        made = group_states(rule, group, index, type(self).__name__)
        if not kernels.is_joint(rule):
            line_up(made)
        for key in scheduled:
            del group[key]
        if "tags" in group and isinstance(group["tags"], set | frozenset | tuple):
            group["tags"] = sorted(group["tags"])
        self._scheduled.append(scheduled)
        for parameter, states in zip(group["params"], made, strict=True):
            self.state[parameter] = states
        self._prepare(index)

    def _check_rule(self, rule: UpdateRule, group: Mapping[str, Any], where: str) -> None:
        if rule.inputs:
            raise ArgumentError(
                f"the rule {rule.name!r} takes tensors beside the gradient: {list(rule.inputs)}",
                where=where,
                hint="step it with closedform.OptimizerSession",
            )
        dtypes = {param.dtype for param in group["params"]}
        if kernels.is_joint(rule) and (len(self.param_groups) > 1 or len(dtypes) > 1):
            raise ArgumentError(
                f"all parameters step together in the rule {rule.name!r}: they must be one param "
                f"group of one dtype, got {len(self.param_groups)} groups of {len(dtypes)} dtypes",
                where=where,
            )

    def _checked_values(self, group: Mapping[str, Any], where: str) -> dict[str, Any]:
        """The entries that the rule reads."""
        for key in self._source.keys:
            if key not in group:
                raise UnknownNameError(
                    f"the group has no value for {key!r}",
                    where=where,
                    hint=f"{self._source.name} needs {', '.join(self._source.keys)}",
                )
        return {key: group[key] for key in self._source.keys}

    def preinitialize(self) -> None:
        """Makes the state of every parameter that has none: ``add_param_group`` has done so."""

    def state_names_to_sparsify(self) -> list[str]:
        """Returns the names of the states that have the shape of their parameter."""
        names: dict[str, None] = {}
        for index in range(len(self.param_groups)):
            rule = self._rule_of(index)
            names |= {name: None for name, spec in rule.states.items() if spec.shape == "param"}
        return list(names)

    def _rule_of(self, index: int) -> UpdateRule:
        where = f"{type(self).__name__}, param group {index}"
        return self._variants.check(self._values_of(index), where)

    def _values_of(self, index: int) -> dict[str, Any]:
        where = f"{type(self).__name__}, param group {index}"
        return self._checked_values({**self.param_groups[index], **self._scheduled[index]}, where)

    # --- the step ------------------------------------------------------------------------------

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Does one step of every parameter that has a gradient.

        Args:
            closure: Evaluates the model again and returns the loss; it runs with gradients.

        Returns:
            What the closure returned.

        Raises:
            ArgumentError: A gradient is sparse; no parameter has been changed.
            StateError: The parameters are at the point of evaluation.
        """
        self._check_training()
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if torch.compiler.is_compiling():
            run_traced(self._calls())
        elif self._kept is None or not self._kept.is_renewed(self.param_groups, self.state):
            self._kept = None
            self._kept = self._first_step()
        else:
            self._kept.run()
        return loss

    def _calls(self) -> list[Call]:
        """Does what is not done by programs of torch, and returns the calls of these."""
        work = [step for index in range(len(self.param_groups)) for step in self._work_of(index)]
        shards = [
            (kernel, self._shard_job(hypers, param))
            for kernel, hypers, params in work
            if isinstance(kernel, ShardKernel)
            for param in params
        ]
        if shards:
            run_shards(shards)
        calls = []
        for kernel, hypers, params in work:
            if isinstance(kernel, TorchKernel):
                calls.append(kernel.call(hypers, [self._member(param) for param in params]))
            elif isinstance(kernel, OnnxKernel):
                kernel.run(make_job(hypers, [self._member(param) for param in params]))
        return calls

    def _first_step(self) -> KeptStep | None:
        """Does a step, and returns what the next one may do again."""
        calls = self._calls()
        if not calls:
            return None
        prepared = self._ready(calls)
        for one in prepared:
            one.run()
        sources = [(self._plans[index], found) for index, found in enumerate(self._scheduled)]
        return kept_step(sources, self._source.keys, self.param_groups, self.state, prepared)

    def _work_of(self, index: int) -> list[Work]:
        """What each parameter of a group takes that has a gradient, or all of them together."""
        group = self.param_groups[index]
        wanted = with_gradients(group, index, type(self).__name__)
        if not wanted:
            return []
        values = self._values_of(index)
        plan = self._plans.get(index)
        if plan is None or not plan.variant.serves(values):
            plan = self._prepare(index)
        hypers = plan.read(values)
        if plan.is_joint:
            check_all(wanted, group, index, type(self).__name__)
            if not isinstance(plan.kernels[0], ShardKernel):
                return [(plan.kernels[0], hypers, group["params"])]
        return [(plan.kernels[number], hypers, [param]) for number, param in wanted]

    @torch.compiler.disable  # type: ignore[untyped-decorator] # tracing would trace SymPy
    def _prepare(self, index: int) -> Plan:
        """Compiles what a group needs, and keeps it."""
        parameters = self.param_groups[index]["params"]
        where = f"{type(self).__name__}, param group {index}"
        shape = tuple(parameters[0].shape) if parameters else ()
        variant = self._variants.of(self._values_of(index), shape, where)
        is_joint = kernels.is_joint(variant.opened.rule)
        plan = Plan(variant, inputs_for(variant, parameters), is_joint=is_joint)
        rule = variant.opened.rule
        together = [parameters] if plan.is_joint else [[param] for param in parameters]
        for members in together:
            if any(map(is_sharded, members)) and (plan.is_joint or not steps_by_shards(rule)):
                engine = engines(self._backend, self._providers)
                parts = cut(rule, members, variant.kernels)
                plan.kernels += shard_kernels(rule.name, parts, members, engine, variant.kernels)
                continue
            tensors = [local(param.detach()) for param in members]
            key = tuple((tuple(tensor.shape), tensor.dtype) for tensor in tensors)
            if key not in variant.kernels:
                tables = [self._member(param) for param in members]
                variant.kernels[key] = self._kernel(rule, plan.inputs, tables)
            plan.kernels.append(variant.kernels[key])
        self._plans[index] = plan
        return plan

    def _member(self, param: Tensor) -> Member:
        """The tensors of a parameter that lie here; each step asks it of each parameter."""
        grad = param.grad
        if is_spread(param) or grad is None or grad.requires_grad:
            grad = gradient_of(param)
        found = {PARAM: param, GRAD: grad, **self.state[param]}
        return {name: local(value) for name, value in found.items()} if is_spread(param) else found

    def _shard_job(self, hypers: Mapping[str, Tensor], param: Tensor) -> ShardJob:
        return ShardJob(param.detach(), gradient_of(param), self.state[param], hypers)

    def _kernel(
        self, rule: UpdateRule, hypers: Mapping[str, Tensor], members: Sequence[Member]
    ) -> OnnxKernel | TorchKernel:
        if self._backend == "onnxruntime":
            params = [member[PARAM] for member in members]
            return kernels.onnx_kernel(rule, params, make_job(hypers, members), self._providers)
        return kernels.torch_kernel(rule, members)

    # --- saving and copying --------------------------------------------------------------------

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Takes over a state dict of this optimizer, or of torch's with the same states.

        All of it is checked before anything is changed. ``step`` may be a number or a tensor of any
        dtype; it may be missing where no step after the first one depends on it.

        Raises:
            StateError: A group or state is missing, unknown, or of another shape.
        """
        found: list[tuple[Tensor, dict[str, Tensor]]] = []

        def adapt(_: Any, given: dict[str, Any]) -> dict[str, Any]:
            found.extend(adapted_states(given, self._groups_for_load(), self._rule_for_load))
            if not any(plan.is_joint for plan in self._plans.values()):
                line_up(states for _, states in found)
            return {**given, "state": {}}

        handle = self.register_load_state_dict_pre_hook(adapt)
        try:
            super().load_state_dict(dict(state_dict))
        finally:
            handle.remove()
        self.state.update(found)  # torch's own loader would round them to the parameter's dtype.

    def _groups_for_load(self) -> list[tuple[str, dict[str, Any], tuple[str, ...]]]:
        """Name, group and entries that a saved group must have, of each group."""
        return [
            (
                f"{type(self).__name__}, param group {index}",
                group,
                tuple(key for key in self._source.keys if key not in self._scheduled[index]),
            )
            for index, group in enumerate(self.param_groups)
        ]

    def _rule_for_load(self, index: int, saved: Mapping[str, Any]) -> UpdateRule:
        where = f"{type(self).__name__}, param group {index}"
        values = self._checked_values({**saved, **self._scheduled[index]}, where)
        return self._variants.check(values, where)

    def __getstate__(self) -> dict[str, Any]:
        return {
            **super().__getstate__(),
            "_source": self._source,
            "_backend": self._backend,
            "_providers": self._providers,
            "_scheduled": self._scheduled,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "_source" in state:  # torch's load_state_dict gives groups and states alone.
            self._forget()


def _is_scheduled(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return any(isinstance(entry, Schedule) for entry in value)
    return isinstance(value, Schedule)
