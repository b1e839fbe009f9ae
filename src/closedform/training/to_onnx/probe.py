"""One step of a model in torch itself, with given random numbers."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from closedform.errors import TrainingExportError
from closedform.training.to_onnx.arrays import view_of
from closedform.training.to_onnx.forward import Forward, Outcome, trained_params
from closedform.training.to_onnx.isolation import no_other_randomness, restore_on_exit
from closedform.training.to_onnx.onnx_program import Tensors
from closedform.training.to_onnx.random_operators import Distribution, Drawn, Sizes
from closedform.training.to_onnx.tensor_accesses import Writes, rare_write_error

_SEED = 0x5EED_C105
"""The seed of torch's generator in a run, which a forward has no reason to set."""


@dataclass(frozen=True, slots=True)
class EagerRun:
    """The results of a forward in torch.

    Attributes:
        loss: The loss.
        metrics: Further results of the loss.
        buffers: The buffers afterwards.
        params: The trained parameters that the forward has written to, afterwards.
        draws: The random numbers, in the order of the draws.
    """

    loss: torch.Tensor
    metrics: Tensors
    buffers: Tensors
    params: Tensors
    draws: list[torch.Tensor]


@dataclass(frozen=True, slots=True)
class Pending:
    """A step in torch after its forward.

    Attributes:
        run: Its results.
        loss: The loss with its graph.
        leaves: The parameters that it depends on.
        written_params: Names of the parameters that the forward has written to, trained or not.
    """

    run: EagerRun
    loss: torch.Tensor
    leaves: Tensors
    written_params: frozenset[str] = frozenset()

    def unreached_params(self) -> list[str]:
        """Returns the parameters that the loss does not depend on."""
        reached_ids: set[int] = set()
        visited: set[Any] = {None}
        left: list[Any] = [self.loss.grad_fn]
        while left:
            node = left.pop()
            if node in visited:
                continue
            visited.add(node)
            reached_ids.add(id(getattr(node, "variable", None)))
            # The node of a leaf is AccumulateGrad, whose ``variable`` is the leaf.
            left.extend(above for above, _ in node.next_functions)
        return [name for name, leaf in self.leaves.items() if id(leaf) not in reached_ids]

    def gradients(
        self, take: Callable[[str, torch.Tensor], None], names: Sequence[str] | None = None
    ) -> None:
        """Computes gradients once, and hands over each one as soon as it is complete.

        All of them take as much memory as the parameters.

        Args:
            take: Called with the name of a parameter and its gradient.
            names: The parameters; None for all.
        """
        rest = {name: self.leaves[name] for name in (self.leaves if names is None else names)}
        leaves = list(rest.values())
        if not leaves:
            return  # backward refuses an empty list

        def hand_over(name: str, leaf: torch.Tensor) -> None:
            # autograd calls the hook once the gradient is complete; taking it frees its memory.
            gradient, leaf.grad = leaf.grad, None
            del rest[name]
            if gradient is not None:
                take(name, gradient)

        hooks = [
            leaf.register_post_accumulate_grad_hook(partial(hand_over, name))
            for name, leaf in rest.items()
        ]
        try:
            self.loss.backward(inputs=leaves)
        finally:
            for hook in hooks:
                hook.remove()
        for name, leaf in rest.items():
            take(name, torch.zeros_like(leaf))

    def digests(self, frozen: Collection[str]) -> dict[str, str]:
        """Returns the bits of all results by name, as hashes: gradients are freed one by one.

        Args:
            frozen: Names of buffers that no run changes.
        """
        run = self.run
        digests = {"the loss": _digest(run.loss)}
        digests |= {f"the metric {name!r}": _digest(value) for name, value in run.metrics.items()}
        for kind, tensors in (("buffer", run.buffers), ("parameter", run.params)):
            for name, value in tensors.items():
                if name not in frozen:
                    digests[f"the {kind} {name!r}"] = _digest(value)

        def take(name: str, gradient: torch.Tensor) -> None:
            if gradient.is_sparse:
                raise TrainingExportError(
                    f"the gradient of {name!r} is sparse",
                    hint="make its layer with sparse=False, whose step of SGD is the same",
                )
            digests[f"the gradient of {name!r}"] = _digest(gradient)

        self.gradients(take)
        return digests


def _digest(value: torch.Tensor) -> str:
    flat = value.detach().resolve_conj().contiguous().reshape(-1)
    return hashlib.sha1(view_of(flat.view(torch.uint8)).data, usedforsecurity=False).hexdigest()


def run_eagerly(
    of: Forward,
    params: Tensors,
    buffers: Tensors,
    tensors: Tensors,
    draws: list[torch.Tensor] | None = None,
) -> Pending:
    """Returns the loss of a batch; the tensors given are not changed.

    Args:
        of: The model and its loss.
        params: The parameters to train.
        buffers: Buffers and frozen parameters.
        tensors: The batch.
        draws: The random numbers, in the order of the draws; drawn if None.

    Raises:
        ExportError: The forward draws numbers apart from torch, or writes to other tensors.
    """
    generator = torch.Generator().manual_seed(0)
    recorded_draws = iter(draws) if draws is not None else None
    new_draws: list[torch.Tensor] = []

    def check_seed() -> None:
        if torch.initial_seed() != _SEED:
            raise TrainingExportError(
                "the forward seeds torch's generator, so that it draws the same numbers in each "
                "step",
                where=of.where,
                hint="leave torch.manual_seed out, or hold the numbers in a buffer",
            )

    def draw(distribution: Distribution, shape: Sizes, dtype: torch.dtype) -> torch.Tensor:
        check_seed()
        if recorded_draws is not None:
            return next(recorded_draws).reshape(shape)
        numbers = torch.empty(shape, dtype=dtype)
        match distribution:
            case Distribution.UNIFORM:
                numbers.uniform_(generator=generator)
            case Distribution.NORMAL:
                numbers.normal_(generator=generator)
            case Distribution.EXPONENTIAL:
                numbers.exponential_(generator=generator)
        new_draws.append(numbers)
        return numbers

    leaves = of.leaves(params)
    caller_tensors = of.uncopied_tensors(params, buffers)
    batch = {name: value.detach().clone() for name, value in tensors.items()}
    copies = {name: leaf for name, leaf in leaves.items() if name not in caller_tensors}
    torch.default_generator.manual_seed(_SEED)
    with (
        no_other_randomness(of.where),
        Writes(of.places, {**copies, **batch}, caller_tensors, of.where) as writes,
        Drawn(draw, of.places, of.where),
    ):
        outcome = of.outcome(leaves, buffers, batch)
    if new_draws:
        check_seed()
    written_params = writes.names_of_written(of.only_params({**outcome.params, **outcome.buffers}))
    # The copy in float32 of a parameter in 16 bits is memory of the forward: it is seen here only.
    for name in sorted(written_params - of.copied_params):
        raise rare_write_error(name, of.where)
    return Pending(_run(outcome, written_params, new_draws), outcome.loss, leaves, written_params)


def _run(outcome: Outcome, written_params: Collection[str], draws: list[torch.Tensor]) -> EagerRun:
    params = {n: value.detach() for n, value in outcome.params.items() if n in written_params}
    return EagerRun(outcome.loss.detach(), outcome.metrics, outcome.buffers, params, draws)


@contextlib.contextmanager
def own_step(of: Forward, tensors: Tensors, draws: list[torch.Tensor]) -> Iterator[Pending]:
    """Has the model itself do a step, with its own tensors, which are as before on exit.

    Args:
        of: The model and its loss, which a step of ``run_eagerly`` has not been refused.
        tensors: The batch.
        draws: The random numbers, in the order of the draws.
    """
    originals = of.originals()
    params = trained_params(of.model, of.loss)
    uncopied_tensors = of.uncopied_tensors(originals)
    contents = {
        name: value.clone() for name, value in originals.items() if name not in uncopied_tensors
    }
    memory = {name: value.detach() for name, value in originals.items()}
    grads = {name: param.grad for name, param in params.items()}
    for param in params.values():
        param.grad = None
    recorded_draws = iter(draws)

    def draw(_: Distribution, shape: Sizes, __: torch.dtype) -> torch.Tensor:
        return next(recorded_draws).reshape(shape)

    batch = {name: value.detach().clone() for name, value in tensors.items()}
    try:
        with restore_on_exit(*of.modules()):
            writes = Writes(of.places, None, uncopied_tensors, of.where)
            with writes, Drawn(draw, of.places, of.where):
                outcome = of.own_outcome(batch)
            yield Pending(_run(outcome, of.copied_params, draws), outcome.loss, params)
    finally:
        with torch.no_grad():
            for name, value in originals.items():
                value.data = memory[name]
                if name in contents:
                    value.copy_(contents[name])
        for name, param in params.items():
            param.grad = grads[name]
