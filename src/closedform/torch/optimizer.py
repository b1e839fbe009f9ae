"""Optimizer: an update rule as a torch optimizer, run by torch or torch.compile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any, ClassVar, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.autograd import profiler
from torch.nn.parameter import is_lazy
from torch.optim import optimizer
from torch.optim.optimizer import ParamsT

from closedform.errors import ArgumentError, ClosedFormError, StateError, nearest
from closedform.ir.naming import GRAD, PARAM, SHARED
from closedform.language import Schedule, UpdateRule
from closedform.torch.distributed.partial_sums import shard_rules
from closedform.torch.distributed.shard_steps import (
    ShardCompiler,
    ShardKernel,
    ShardTensors,
    graph_runners,
    run_shards,
)
from closedform.torch.engine.batching import pack_scalars
from closedform.torch.engine.compiled import compiling_batcher
from closedform.torch.engine.flat import FlatKernel, FlatStep, is_flat, pack_states
from closedform.torch.engine.foreach import foreach
from closedform.torch.engine.kernels import (
    BACKENDS,
    COMPUTE_DTYPES,
    ParamTensors,
    TorchKernel,
    is_joint,
    real_view,
    state_names,
)
from closedform.torch.engine.programs import (
    BoundProgram,
    at_trace_time,
    outside_traces,
    run_in_trace,
)
from closedform.torch.engine.replay import CapturedStep, capture
from closedform.torch.engine.specialize import (
    CompiledGroup,
    HyperSource,
    Layout,
    RuleSource,
    entries_of,
    input_tensors,
)
from closedform.torch.evaluation import TrainEvalOptimizer
from closedform.torch.group_sources import (
    RULE,
    GroupSource,
    check_rule_type,
    defaults_of,
    group_source,
    with_rules,
)
from closedform.torch.param_groups import place
from closedform.torch.parameter_checks import (
    check_all,
    check_captured,
    check_complex,
    check_parameter,
    check_stored,
    check_whole,
    is_usual,
    with_gradients,
)
from closedform.torch.shards import gradient_of, is_dtensor, is_sharded, local, steps_by_shards
from closedform.torch.states import (
    STEP,
    adapted_states,
    check_shapes,
    check_state_shapes,
    completed_states,
    in_order_of_names,
    is_timeless,
    packed_zero_states,
    saved_states,
)
from closedform.torch.zero_rate import rests_at_zero_rate

Work = tuple[Any, Mapping[str, Tensor], Sequence[Tensor]]
"""A kernel, the hyperparameters and the parameters that it steps."""

P = ParamSpec("P")
R = TypeVar("R")


class Optimizer(TrainEvalOptimizer):
    """An update rule as a torch optimizer.

    A group has the rule's hyperparameters as entries, and may set its own values; any scheduler may
    write numbers there, or fill tensors. A hyperparameter that is a Schedule is part of the graph,
    evaluated at the parameter's own step, and is not an entry of the group. The first step of a
    parameter creates its states, and the int64 count ``step``, on its device; a later one creates
    none, and no step reads a tensor of a device. A parameter without a gradient is not changed, nor
    is its step. A state dict has the counts as torch writes them.

    A group may have its own update rule as the entry ``"rule"``, which it then loses. A
    hyperparameter that is 0 in a rule, so that the rule has no term for it, may have a value in a
    group. Other entries stay there unread, as in torch; the misspelled name of a hyperparameter is
    an error.

    Args:
        params: Parameters, named parameters, or param groups; all on one device.
        rule: The update rule; or one for each group, as ``closedform.from_torch`` returns them.
        backend: ``"eager"`` for torch, ``"compile"`` for torch.compile.

    Raises:
        ArgumentError: ``rule`` is not an UpdateRule, the backend is unknown, or a parameter is
            not of a floating-point or complex dtype, or on another device than the first one.
        DefinitionError: A hyperparameter is out of its range.
        UnknownNameError: A group has no value for a hyperparameter that needs one, or an entry
            that is a misspelled hyperparameter.

    Example:
        >>> import closedform as cf
        >>> weight = torch.nn.Parameter(torch.ones(2))
        >>> optimizer = Optimizer([weight], cf.optimizers.adamw(lr=0.5, weight_decay=0))
        >>> weight.sum().backward()
        >>> optimizer.step()
        >>> weight.data, sorted(optimizer.state[weight])
        (tensor([0.5000, 0.5000]), ['exp_avg', 'exp_avg_sq', 'step'])
    """

    _saves_no_step: ClassVar[bool] = False
    """Whether state dicts have no ``step`` if all steps after the first are alike."""

    def __init__(
        self,
        params: ParamsT,
        rule: UpdateRule | Sequence[UpdateRule],
        backend: str = "eager",
    ) -> None:
        if isinstance(rule, Sequence) and not isinstance(rule, str):
            self._begin(with_rules(params, rule), None, {}, backend)
            return
        check_rule_type(rule)
        self._begin(params, HyperSource(rule), defaults_of(rule), backend)

    def _begin(
        self,
        params: ParamsT,
        source: RuleSource | None,
        defaults: dict[str, Any],
        backend: str,
    ) -> None:
        if backend not in BACKENDS:
            raise ArgumentError(
                f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}",
                where=type(self).__name__ if source is None else source.name,
                hint=f"{nearest(str(backend), BACKENDS)}; OptimizerSession steps in onnxruntime",
            )
        self._source = source
        self._backend = backend
        self._group_sources: list[GroupSource] = []
        self._reset()
        super().__init__(params, defaults)

    def _reset(self) -> None:
        """Drops everything compiled; the next step compiles it again."""
        self._compiled: dict[int, CompiledGroup] = {}
        self._evaluations = {}
        self._captured: CapturedStep | None = None
        self._is_traced = False  # whether a torch.compile of the user traces the step
        self._batch = compiling_batcher() if self._backend == "compile" else foreach()

    # --- groups and states ---------------------------------------------------------------------

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group, after checking all of its parameters.

        Raises:
            ArgumentError: A parameter is not supported; see the constructor.
            DefinitionError: A hyperparameter is out of its range.
            UnknownNameError: A hyperparameter has no value.
        """
        index = len(self.param_groups)
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        entries, source = group_source(param_group, self._source, self._place(index))
        # As in torch, the dict that is given is the group, where it needs no other entries.
        group = param_group if entries.keys() == param_group.keys() else entries
        foreign = self.defaults.keys() - entries.keys() - set(source.keys)
        super().add_param_group(group)
        if RULE in param_group:  # torch fills in the values of the optimizer's rule
            for key in foreign:
                del group[key]
        self._group_sources.append(GroupSource(source))
        try:
            self._accept(group, index)
        # A group that is refused leaves the optimizer as it was.
        except Exception:
            del self.param_groups[index:], self._group_sources[index:]
            for parameter in group["params"]:
                self.state.pop(parameter, None)
            raise

    def _accept(self, group: dict[str, Any], index: int) -> None:
        first = next(
            (param for group_before in self.param_groups for param in group_before["params"]), None
        )
        for number, parameter in enumerate(group["params"]):
            if first is not None and not is_usual(parameter, first):
                spot = f"{type(self).__name__}, {place(group, index, number)}"
                check_parameter(parameter, first, spot)
        where = self._place(index)
        if group.get("differentiable"):
            raise ArgumentError(
                "differentiable=True is not supported: a step is not recorded by autograd",
                where=where,
                hint="use torch's own optimizer to differentiate through a step",
            )
        source, values = self._group_sources[index], self._values_of(index)
        entries = [(entry.key, value) for entry, value in entries_of(values)]
        scheduled_keys = dict.fromkeys(key for key, value in entries if isinstance(value, Schedule))
        # The rule is built once here, so that a wrong value is an error of the constructor.
        rule = self._rule_of(index)
        self._check_rule(rule, group, where)
        if any(parameter.is_complex() for parameter in group["params"]):
            check_complex(rule, where)
        check_shapes(rule, group, index, type(self).__name__)
        check_whole(rule, group, index, type(self).__name__)
        source.scheduled.update({key: group.pop(key) for key in scheduled_keys})
        # Tags are saved in state dicts, where a set has no order.
        if "tags" in group and isinstance(group["tags"], set | frozenset | tuple):
            group["tags"] = sorted(group["tags"])
        self._begin_states(index)
        is_tensor = any(isinstance(value, Tensor) for value in values.values())
        self._is_traced |= is_tensor  # the first step may be traced as a whole
        if is_tensor and len(_initialized_params(group)) == len(group["params"]):
            self._compile(index)  # whether a tensor can be an input

    def _saves_first_states(self, index: int) -> bool:
        """Whether a state dict has the states that the first step of a parameter would make.

        It has them if the step by which torch.distributed.checkpoint makes states may move the
        parameters.
        """
        return not rests_at_zero_rate(self._rule_of(index))

    def _begin_states(self, index: int) -> None:
        """Makes an empty entry for parameters without states, if state dicts have first ones.

        torch.distributed.checkpoint makes no step if there are entries.
        """
        if self._saves_first_states(index):
            for param in self.param_groups[index]["params"]:
                self.state.setdefault(param, {})

    def _check_rule(self, rule: UpdateRule, group: Mapping[str, Any], where: str) -> None:
        if rule.inputs:
            raise ArgumentError(
                f"the rule {rule.name!r} has inputs other than the gradient: {list(rule.inputs)}",
                where=where,
                hint="use closedform.OptimizerSession",
            )
        dtypes = {param.dtype for param in group["params"]}
        check_stored(rule, dtypes, where)
        # If there are others already, the first group does not step all parameters together.
        rules = (rule, self._rule_of(0)) if len(self.param_groups) == 2 else (rule,)
        joint_rule = next(filter(is_joint, rules), None)
        if joint_rule is not None and (len(self.param_groups) > 1 or len(dtypes) > 1):
            raise ArgumentError(
                f"the rule {joint_rule.name!r} steps all parameters together: they must have one "
                f"param group and one dtype, got {len(self.param_groups)} groups, {len(dtypes)} "
                "dtypes",
                where=where,
            )

    def _place(self, index: int) -> str:
        return f"{type(self).__name__}, param group {index}"

    def _rule_of(self, index: int) -> UpdateRule:
        return self._group_sources[index].rule(self.param_groups[index], self._place(index))

    def _values_of(self, index: int) -> dict[str, Any]:
        source, group = self._group_sources[index], self.param_groups[index]
        where = self._place(index)
        source.check_unread(group, where)
        return source.values(group, where)

    # --- the step ------------------------------------------------------------------------------

    @staticmethod
    def profile_hook_step(func: Callable[P, R]) -> Callable[P, R]:
        """Returns the step with hooks and a record for the profiler, where there are any.

        torch's wrapper opens a record at each step, which takes longer than the step of a small
        model.
        """
        with_hooks: Callable[P, R] = torch.optim.Optimizer.profile_hook_step(func)

        @wraps(func)
        def step(*args: P.args, **kwargs: P.kwargs) -> R:
            if profiler._is_profiler_enabled or torch.compiler.is_compiling() or _has_hooks(args):
                return with_hooks(*args, **kwargs)
            return func(*args, **kwargs)

        return step

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Steps every parameter that has a gradient.

        Args:
            closure: Re-evaluates the model and returns the loss; it runs with gradients enabled.

        Returns:
            The loss that the closure returned; None without a closure.

        Raises:
            ArgumentError: A gradient is sparse; no parameter is changed.
            StateError: The parameters are at the point of evaluation.
        """
        self._check_training()
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if torch.compiler.is_compiling():
            self._step_in_trace()
            return loss
        if _is_capturing():
            self._check_captured()
        # Groups, hyperparameters or states were replaced: the captured step is invalid.
        if self._captured is None or not self._captured.update(self.param_groups, self.state):
            self._captured = None
            self._captured = self._step_and_capture()
        else:
            self._captured.replay()
        return loss

    def host_numbers(self) -> dict[str, str]:
        """Returns how the host gives numbers of the step that change, by key and param group.

        A CUDA graph that captures the step would keep them as they are: a step during a capture
        refuses them. ``closedform.claims.capturable`` of the optimizer is the claim that there are
        none. A Schedule is in the graph, and a tensor on the device of the parameters is read by
        each replay.

        Example:
            >>> import closedform as cf
            >>> weight = torch.nn.Parameter(torch.ones(2))
            >>> optimizer = Optimizer([weight], cf.optimizers.lion(lr=1e-3))
            >>> _ = torch.optim.lr_scheduler.LinearLR(optimizer)
            >>> optimizer.host_numbers()
            {'lr of param group 0': 'a number that a scheduler writes'}
        """
        return {
            f"{key} of param group {index}": way
            for index, source in enumerate(self._group_sources)
            for key, way in source.host_numbers(self.param_groups[index]).items()
        }

    def _check_captured(self) -> None:
        """Raises StateError for what a CUDA graph that captures this step would freeze."""
        for index, group in enumerate(self.param_groups):
            check_captured(group, index, type(self).__name__)
        for name, way in self.host_numbers().items():
            raise StateError(
                f"a captured step would keep {name}, {way}, as it is in all replays",
                where=type(self).__name__,
                hint="give the optimizer a Schedule for it, which is computed in the graph, or a "
                "tensor on the device of the parameters, which is filled between replays",
            )

    def _step_in_trace(self) -> None:
        """Steps within a torch.compile of the user, once the groups are compiled."""
        if not self._is_traced or len(self._compiled) < len(self.param_groups):
            self._step_outside()
        else:
            self._make_states_of_trace()
            run_in_trace(self._programs(self._work()))

    @at_trace_time
    def _make_states_of_trace(self) -> None:
        """Makes the states that the step lacks, before it is traced."""
        for index, group in enumerate(self.param_groups):
            numbered_params = with_gradients(group, index, type(self).__name__, may_be_sparse=True)
            self._ready(index, numbered_params)

    @outside_traces  # the first step compiles
    def _step_outside(self) -> None:
        self._is_traced = True
        self._captured = self._step_and_capture()
        self._make_programs()

    def _make_programs(self) -> None:
        """Makes the programs of all kernels, and what else a trace cannot make."""
        for index, group in self._compiled.items():
            _ = group.specialization.nonzero.entries
            params = self.param_groups[index]["params"]
            for kernel, param in zip(group.kernels, params, strict=False):  # one if all are joint
                if isinstance(kernel, TorchKernel) and not is_lazy(param):
                    _ = kernel.program
                    kernel.sizes_of(real_view(local(param.detach())))

    def _programs(self, work: Iterable[Work]) -> list[BoundProgram]:
        """Steps the parameters of other kernels, and returns the programs of torch kernels."""
        work_items = list(work)
        # Parameters that are sharded step first, since their sums wait for other processes.
        kernels = [kernel for group in self._compiled.values() for kernel in group.kernels]
        if any(isinstance(kernel, ShardKernel) for kernel in kernels):
            self._step_shards(work_items)
        programs = []
        for kernel, hypers, params in work_items:
            if isinstance(kernel, TorchKernel):
                programs.append(kernel.bind(hypers, [self._tensors(param) for param in params]))
        return programs

    @outside_traces  # collectives are not traced
    def _step_shards(self, work: Sequence[Work], *, has_failed: bool = False) -> None:
        """Steps sharded parameters, with all others of them in the sums over processes."""
        hypers_of = {params[0]: hypers for _, hypers, params in work}

        def tensors_of(param: Tensor) -> ShardTensors:
            grad = gradient_of(param) if param in hypers_of else None
            states, hypers = self.state.get(param, {}), hypers_of.get(param, {})
            return ShardTensors(param.detach(), grad, states, hypers)

        pairs = [
            pair
            for index, group in sorted(self._compiled.items())
            for pair in zip(group.kernels, self.param_groups[index]["params"], strict=False)
        ]
        shards = [(kernel, tensors_of(p)) for kernel, p in pairs if isinstance(kernel, ShardKernel)]
        if shards:
            run_shards(shards, has_failed=has_failed)

    def _work(self) -> list[Work]:
        """The kernels of all parameters with a gradient; nothing is changed."""
        return [step for index in range(len(self.param_groups)) for step in self._work_of(index)]

    def _tell_failure(self) -> None:
        """Takes part in the first sum over processes, so that none waits for this one."""
        with suppress(ClosedFormError):  # the error of this process is raised
            for index in range(len(self.param_groups)):
                if index not in self._compiled:
                    self._compile(index)
            self._step_shards([], has_failed=True)

    def _step_and_capture(self) -> CapturedStep | None:
        """Performs a step, and returns it for replay if possible."""
        try:
            work = self._work()
        except Exception:
            self._tell_failure()
            raise
        flat = self._flat_steps()
        flat_params = {param for steps in flat.values() for step in steps for param in step.params}
        programs = self._programs(item for item in work if item[2][0] not in flat_params)
        batched_steps = self._batch(programs) if programs else []
        for batched_step in batched_steps:
            batched_step.run()
        for steps in flat.values():
            for step in steps:
                step.run()
        sources = [
            (self._compiled[index], source.scheduled, source.keys)
            for index, source in enumerate(self._group_sources)
        ]
        return capture(sources, self.param_groups, self.state, batched_steps, flat)

    def _flat_steps(self) -> dict[int, list[FlatStep]]:
        """The steps of parameters as vectors, by group."""
        flat_steps: dict[int, list[FlatStep]] = {}
        for index, group in enumerate(self.param_groups):
            compiled_group = self._compiled.get(index)
            if compiled_group is None or compiled_group.is_joint:
                continue
            # A rule that stores states in other dtypes is not one vector.
            if not compiled_group.specialization.rule.is_in_one_dtype:
                continue
            rows: dict[int, tuple[FlatKernel, list[Tensor]]] = {}
            for kernel, param in zip(compiled_group.kernels, group["params"], strict=True):
                if isinstance(kernel, TorchKernel) and self._has_states(param) and is_flat(param):
                    programs = kernel.compiled_flat if self._backend == "compile" else kernel.flat
                    if programs is not None:
                        rows.setdefault(id(kernel), (programs, []))[1].append(param)
            flat_steps[index] = [
                FlatStep(kernel, compiled_group, params, [self.state[param] for param in params])
                for kernel, params in rows.values()
            ]
            for step in flat_steps[index]:
                step.grads[:] = [
                    None if param.grad is None else local(gradient_of(param))
                    for param in step.params
                ]
        return flat_steps

    def _work_of(self, index: int) -> list[Work]:
        """The kernel of each parameter of a group with a gradient, or one for all parameters."""
        group = self.param_groups[index]
        sparse = self._group_sources[index].source.takes_sparse
        numbered_params = with_gradients(group, index, type(self).__name__, may_be_sparse=sparse)
        compiled_group, values = self._ready(index, numbered_params)
        hypers = compiled_group.write_inputs(values)
        if compiled_group.is_joint and numbered_params:
            check_all(numbered_params, group, index, type(self).__name__)
            if not isinstance(compiled_group.kernels[0], ShardKernel):
                return [(compiled_group.kernels[0], hypers, group["params"])]
        return [
            (compiled_group.kernels[number], hypers, [param]) for number, param in numbered_params
        ]

    def _ready(
        self, index: int, numbered_params: Sequence[tuple[int, Tensor]]
    ) -> tuple[CompiledGroup, dict[str, Any]]:
        """The kernels of a group for its present values, with states for these parameters."""
        values = self._values_of(index)
        compiled_group = self._compiled.get(index)
        if compiled_group is None or not compiled_group.specialization.matches(values):
            compiled_group = self._compile(index)
        if self._lacks_states(compiled_group, numbered_params):
            # Parameters may have new data since: lazy ones, and those that were moved or replaced.
            if compiled_group.layouts != _layouts(self.param_groups[index]):
                compiled_group = self._compile(index)
            self._make_states(index, numbered_params)
        return compiled_group, values

    def _has_states(self, param: Tensor) -> bool:
        return STEP in self.state.get(param, ())

    def _lacks_states(
        self, compiled_group: CompiledGroup, numbered_params: Sequence[tuple[int, Tensor]]
    ) -> bool:
        """Whether a parameter is at its first step, its states were removed or its rule changed."""
        names = compiled_group.state_names
        return any(
            not self.state.get(param, {}).keys() >= {STEP, *names[number]}
            for number, param in numbered_params
        )

    @outside_traces  # tracing would trace SymPy
    def _make_states(self, index: int, numbered_params: Sequence[tuple[int, Tensor]]) -> None:
        """Makes the states that parameters lack; present ones may be those that were loaded."""
        if _is_capturing():
            raise StateError(
                "a parameter is at its first step, which makes its states",
                where=self._place(index),
                hint="step once before the step that a CUDA graph captures",
            )
        group, rule = self.param_groups[index], self._rule_of(index)
        params = [param for _, param in numbered_params]
        is_new = not any(self.state.get(param) for param in group["params"])
        may_be_packed = is_new and not is_joint(rule)
        zeros = packed_zero_states(rule, params) if may_be_packed else None
        states = self._completed_states(index, numbered_params) if zeros is None else zeros
        self.state.update(zip(params, states, strict=True))
        if zeros is None:
            self._pack_states(index)

    def _pack_states(self, index: int) -> None:
        """Makes the states of parameters that are stepped as one vector parts of one vector."""
        if not is_joint(self._rule_of(index)):
            params = list(filter(self._has_states, self.param_groups[index]["params"]))
            states = [self.state[param] for param in params]
            pack_scalars(states)
            pack_states(params, states)

    def _completed_states(
        self, index: int, numbered_params: Sequence[tuple[int, Tensor]]
    ) -> list[dict[str, Tensor]]:
        """The states of parameters of a group, with first ones for those that they lack."""
        return completed_states(
            self._rule_of(index),
            self.param_groups[index],
            index,
            type(self).__name__,
            {number: self.state.get(param, {}) for number, param in numbered_params},
            may_restart=not self._group_sources[index].scheduled,
        )

    @outside_traces  # tracing would trace SymPy
    def _compile(self, index: int) -> CompiledGroup:
        """Compiles the kernels of a group, or reuses the kernels of an equal specialization."""
        param_group = self.param_groups[index]
        parameters, layouts = param_group["params"], _layouts(param_group)
        where = self._place(index)
        shape = next((tuple(param.shape) for param in _initialized_params(param_group)), ())
        values, source = self._values_of(index), self._group_sources[index]
        source.first_values = source.first_values or values
        specialization = source.specializer.specialize(values, shape, where)
        rule = specialization.rule
        group = CompiledGroup(
            specialization,
            input_tensors(specialization, parameters),
            layouts=layouts,
            is_joint=is_joint(rule),
        )
        names_of, shared_names = state_names(rule), tuple(f"{SHARED}{name}" for name in rule.shared)
        group.state_names[:] = [
            () if layout is None else (*names_of(layout.shape), *shared_names) for layout in layouts
        ]
        every_number = range(len(parameters))
        check_state_shapes(rule, param_group, self.state, index, type(self).__name__)
        together = [every_number] if group.is_joint else [[number] for number in every_number]
        for numbers in together:
            params = [parameters[number] for number in numbers]
            if any(map(is_lazy, params)):
                group.kernels.append(None)
                continue
            if any(map(is_sharded, params)) and (group.is_joint or not steps_by_shards(rule)):
                make_runner = graph_runners(self._backend)
                # Optimizers share specializations; the runner of a graph is that of a back end.
                key = self._backend, params[0].device
                cache = specialization.kernels.setdefault(key, {})
                rules = shard_rules(rule, params, cache)
                group.kernels += ShardCompiler(make_runner, cache).kernels(rule.name, rules, params)
                continue
            group.kernels.append(self._kernel(group, index, numbers))
        self._compiled[index] = group
        if self._is_traced:
            self._make_programs()
        return group

    def _tensors(self, param: Tensor) -> ParamTensors:
        """The local tensors of a parameter; a step calls this for each parameter."""
        grad = param.grad
        if is_dtensor(param) or grad is None or grad.requires_grad or grad.is_sparse:
            grad = gradient_of(param)
        tensors = {PARAM: param, GRAD: grad, **self.state[param]}
        if param.is_complex():
            return {name: real_view(value.detach()) for name, value in tensors.items()}
        if is_dtensor(param):
            return {name: local(value) for name, value in tensors.items()}
        return tensors

    def _kernel(self, group: CompiledGroup, index: int, numbers: Sequence[int]) -> TorchKernel:
        """The kernel of a parameter, or of several; all optimizers share torch's kernels."""
        params = [self.param_groups[index]["params"][number] for number in numbers]
        parts = [real_view(local(param.detach())) for param in params]
        shapes = tuple(tuple(part.shape) for part in parts)
        names = [(PARAM, GRAD, STEP, *group.state_names[number]) for number in numbers]
        return group.specialization.torch_kernel(shapes, COMPUTE_DTYPES[parts[0].dtype], names)

    # --- saving and copying --------------------------------------------------------------------

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Loads a state dict of this optimizer, or of torch's optimizer with the same states.

        Nothing is changed unless all of it is valid. A group that an older version of torch saved
        may lack switches, which are then off. ``step`` may be a number or a tensor of any dtype; it
        may be missing if no step after the first depends on it.

        Raises:
            StateError: A group or state is missing, unknown, or of another shape.
        """
        loaded_states: list[tuple[Tensor, dict[str, Tensor]]] = []

        def adapt(_: Any, state_dict: dict[str, Any]) -> dict[str, Any]:
            groups = state_dict.get("param_groups") if isinstance(state_dict, Mapping) else None
            if isinstance(groups, Sequence):
                state_dict = {**state_dict, "param_groups": self._groups_to_load(groups)}
            loaded_states.extend(
                adapted_states(
                    state_dict, self._groups_for_load(), self._rule_for_load, self._states_for_load
                )
            )
            return {**state_dict, "state": {}}

        handle = self.register_load_state_dict_pre_hook(adapt)
        # The hook is for this call only: torch would run it at each later load.
        try:
            super().load_state_dict(dict(state_dict))
        finally:
            handle.remove()
        self.state.update(loaded_states)  # torch's loader would cast them to the parameter's dtype.
        for index in range(len(self.param_groups)):
            self._begin_states(index)
            self._group_sources[index].first_values = self._values_of(index)
            self._pack_states(index)

    def state_dict(self) -> dict[str, Any]:
        """Returns the state dict, which torch's optimizer with the same states loads.

        A parameter that has had no step has no states there, or those that its first step would
        make now, where a step at a rate of 0 may move it. ``step`` is a float32 tensor as torch
        writes it; from 2**24 on, float64, which counts exactly.
        """
        handle = self.register_state_dict_post_hook(
            lambda _, state_dict: self._state_dict_to_save(state_dict), prepend=True
        )
        # The hook is for this call only: it runs before the hooks of the user.
        try:
            return super().state_dict()
        finally:
            handle.remove()

    def _state_dict_to_save(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """A state dict of torch in the form that is saved."""
        states = dict(state_dict["state"])
        timeless: set[Any] = set()
        for index, group in enumerate(state_dict["param_groups"]):
            if self._saves_no_step and is_timeless(self._rule_of(index)):
                timeless |= set(group["params"])
            if self._saves_first_states(index):
                numbered_params = [
                    (number, param)
                    for number, param in enumerate(self.param_groups[index]["params"])
                    if not self._has_states(param) and _is_initialized(param)
                ]
                keys = [group["params"][number] for number, _ in numbered_params]
                states_of_params = self._completed_states(index, numbered_params)
                states |= zip(keys, states_of_params, strict=True)
        return saved_states({**state_dict, "state": states}, timeless)

    def _groups_for_load(self) -> list[tuple[str, dict[str, Any], tuple[str, ...]]]:
        """The name, the group, and the entries that its saved group must have, of each group."""
        return [
            (
                self._place(index),
                self.param_groups[index],
                tuple(key for key in source.keys if key not in source.scheduled),
            )
            for index, source in enumerate(self._group_sources)
        ]

    def _rule_for_load(self, index: int, saved_group: Mapping[str, Any]) -> UpdateRule:
        return self._group_sources[index].rule(saved_group, self._place(index))

    def _groups_to_load(self, saved_groups: Sequence[Any]) -> list[Any]:
        """Saved groups in the order of these parameters, with the entries that they may lack."""
        groups = in_order_of_names(saved_groups, self.param_groups, type(self).__name__)
        for index, (source, group) in enumerate(zip(self._group_sources, groups, strict=False)):
            if isinstance(group, Mapping):  # another group is an error later
                groups[index] = {**source.source.optional, **group}
        return groups

    def _states_for_load(self, index: int, saved_group: Mapping[str, Any]) -> frozenset[str]:
        return self._group_sources[index].states_of_variants(saved_group, self._place(index))

    def __getstate__(self) -> dict[str, Any]:
        names = ("_source", "_backend", "_group_sources")
        return super().__getstate__() | {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "_source" in state:  # torch's load_state_dict gives only groups and states.
            self._reset()


def _is_initialized(param: Tensor) -> bool:
    """Whether a parameter has its shape, and memory on a device."""
    return not (is_lazy(param) or param.is_meta)


def _initialized_params(group: Mapping[str, Any]) -> list[Tensor]:
    return list(filter(_is_initialized, group["params"]))


def _layouts(group: Mapping[str, Any]) -> list[Layout | None]:
    """The layouts in which the parameters of a group are stepped; None for one without shape."""
    return [
        None
        if is_lazy(param)
        else Layout(tuple(real_view(param.detach()).shape), param.dtype, param.device)
        for param in group["params"]
    ]


def _is_capturing() -> bool:
    """Whether a CUDA graph captures what is called."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def _has_hooks(args: Sequence[Any]) -> bool:
    """Whether a step, whose first argument is its optimizer, has hooks."""
    if optimizer._global_optimizer_pre_hooks or optimizer._global_optimizer_post_hooks:
        return True
    return bool(args[0]._optimizer_step_pre_hooks or args[0]._optimizer_step_post_hooks)
