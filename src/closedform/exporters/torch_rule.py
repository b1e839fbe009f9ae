"""Update rules as functional torch modules: (params, grads, states, step) to (params, states)."""

from __future__ import annotations

from collections.abc import Mapping

import sympy as sp
import torch
from torch import Tensor, nn

from closedform.errors import ExportError, SessionError
from closedform.exporters.torch_module import outside_domain, to_module
from closedform.ir import naming
from closedform.ir.graph import Graph
from closedform.language.update_rule import UpdateRule
from closedform.options import ModelSpec

SHARED = "shared"
"""The key of the states of the whole model among the states."""

States = Mapping[str, Mapping[str, Tensor]]


class RuleModule(nn.Module):
    """One optimizer step as a pure function, without parameters, buffers or control flow.

    It may be compiled (``torch.compile``) and exported (``torch.export``).
    Tensors have exactly the shapes and dtypes that it was made for; no result shares memory with an
    argument.

    Args:
        spec: The parameters and their rules.
        step: Their step.
        init: The states before the first one.
    """

    def __init__(self, spec: ModelSpec, step: Graph, init: Graph) -> None:
        super().__init__()
        self.name = spec.rule.name
        self.program = to_module(step)
        self.initial = to_module(init)
        self.param_names = tuple(spec.params)
        prefixes = (naming.STATE, naming.SHARED)
        self.carried = tuple(n for n in self.initial.output_names if n.startswith(prefixes))
        port_names = {naming.STEP, *self.carried}
        port_names |= {
            port_name(name) for name in spec.params for port_name in (naming.param, naming.grad)
        }
        self.hyper_names = tuple(
            name for name in self.program.input_names if name not in port_names
        )

    def initial_states(self, params: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
        """Returns the states before the first step, by state name, then by parameter name.

        States of the whole model are at ``"shared"``.
        """
        feeds = {naming.param(name): value for name, value in params.items()}
        results = self.initial(*(feeds[name] for name in self.initial.input_names))
        values = results if isinstance(results, tuple) else (results,)
        results_by_name = dict(zip(self.initial.output_names, values, strict=True))
        return self._nest_states({name: results_by_name[name] for name in self.carried})

    def forward(
        self,
        params: Mapping[str, Tensor],
        grads: Mapping[str, Tensor],
        states: States,
        step: Tensor,
        **hyper: Tensor | float,
    ) -> tuple[dict[str, Tensor], dict[str, dict[str, Tensor]]]:
        """Returns the parameters and states after a step.

        Args:
            params: The parameters by name.
            grads: Their gradients by name.
            states: The states by state name, then by parameter name, as ``initial_states`` returns
                them.
            step: The number of steps done, an int64 of rank 0.
            **hyper: Hyperparameters without a value.

        Raises:
            SessionError: A hyperparameter, parameter, gradient or state is missing, or the step is
                outside of 0 to ``2**50``.
        """
        # A step on a device is not waited for: the parameters after it follow the formula.
        outside_domain(step, torch.int64, f"rule {self.name!r}")
        feeds: dict[str, Tensor] = {naming.STEP: step}
        feeds |= {naming.param(name): value for name, value in params.items()}
        feeds |= {naming.grad(name): value for name, value in grads.items()}
        for label, by_name in states.items():
            for name, value in by_name.items():
                is_shared = label == SHARED
                feeds[naming.shared(name) if is_shared else naming.state(name, label)] = value
        dtypes = dict(zip(self.program.input_names, self.program.input_dtypes, strict=True))
        for name, number in hyper.items():
            feeds[name] = torch.as_tensor(number, dtype=dtypes.get(name), device=step.device)
        missing = [name for name in self.program.input_names if name not in feeds]
        if missing:
            raise SessionError(f"{missing[0]!r} is missing", where=f"rule {self.name!r}")
        results = self.program(*(feeds[name] for name in self.program.input_names))
        results_by_name = dict(zip(self.program.output_names, results, strict=True))
        after = {
            name: results_by_name[naming.following(naming.param(name))] for name in self.param_names
        }
        return after, self._nest_states(
            {name: results_by_name[naming.following(name)] for name in self.carried}
        )

    def _nest_states(self, states: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
        nested_states: dict[str, dict[str, Tensor]] = {}
        for name, value in states.items():
            if name.startswith(naming.SHARED):
                nested_states.setdefault(SHARED, {})[name.removeprefix(naming.SHARED)] = value
                continue
            param, _, label = name.removeprefix(naming.STATE).rpartition(".")
            nested_states.setdefault(label, {})[param] = value
        return nested_states


def check_functional(rule: UpdateRule) -> None:
    """Raises ExportError if a step of a rule is not a function of its gradients and states."""
    where = f"rule {rule.name!r}"
    if rule.advances != sp.true:
        raise ExportError(
            "a functional module counts every step, and this rule decides whether a step counts",
            where=where,
            hint="use closedform.torch.Optimizer",
        )
    if rule.inputs:
        raise ExportError(
            f"a functional module takes only gradients, and this rule takes {rule.inputs[0]!r}",
            where=where,
            hint="use closedform.torch.Optimizer",
        )
