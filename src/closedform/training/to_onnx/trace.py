"""A model and its loss as ONNX: forward and loss with all gradients, and only the forward.

torch traces both with symbols for the free sizes. Parameters and buffers become inputs with their
names, buffers that the forward changes (running statistics) also become outputs, and every random
draw becomes an input of numbers with a distribution.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
import torch
from numpy.typing import NDArray

from closedform.errors import ExportError, TrainingExportError
from closedform.exporters.torch_ops import TORCH_DTYPES
from closedform.ir import naming
from closedform.ir.types import DType
from closedform.training.dtypes import LOSS_SCALE
from closedform.training.file_names import mark_names, output_names
from closedform.training.from_onnx import OnnxModule
from closedform.training.from_onnx.values import FixedSizeError
from closedform.training.progress import phase
from closedform.training.to_onnx.arrays import view_of
from closedform.training.to_onnx.batch import DynamicAxes, Loss, read_batch
from closedform.training.to_onnx.comparison import check_step
from closedform.training.to_onnx.forward import Forward
from closedform.training.to_onnx.given_file import forward_of_file, names_of_file
from closedform.training.to_onnx.isolation import PythonNumbers, one_thread, restore_on_exit
from closedform.training.to_onnx.onnx_program import Tensors, explain_error, write_onnx
from closedform.training.to_onnx.probe import EagerRun, own_step, run_eagerly
from closedform.training.to_onnx.symbolic import Symbols, drop_unchanged, traced_operators

_LOGGER = logging.getLogger("closedform.training")


@dataclass(frozen=True, slots=True)
class Trace:
    """A traced model.

    Attributes:
        step: Inputs ``param.*``, ``buffer.*``, ``batch.*``, ``random.*`` and, on request,
            ``shared.loss_scale``; outputs ``loss``, ``metric.*``, ``grad.*``, ``next.buffer.*``
            and, for parameters that the forward writes to, ``written.*``.
        forward: Inputs ``param.*``, ``buffer.*`` and the entries of the batch that the model takes,
            in evaluation mode; outputs ``output`` or ``output.0``, ``output.1``, ….
        params: The parameters that are trained, by name, in the memory of the model.
        buffers: Buffers and frozen parameters by name, in the memory of the model.
        changed_buffers: Names of the buffers that a step changes.
        written_params: Names of the parameters that the forward writes to.
        metrics: Names of the further results of the loss.
        evaluation_loss: Inputs ``param.*``, ``buffer.*`` and ``batch.*``; outputs ``loss`` and
            ``metric.*`` in evaluation mode, on request.
        is_of_file: Whether the forward is the graph of a given file, in its opset.
    """

    step: onnx.ModelProto
    forward: onnx.ModelProto
    params: dict[str, NDArray[Any]]
    buffers: dict[str, NDArray[Any]]
    changed_buffers: tuple[str, ...]
    written_params: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    evaluation_loss: onnx.ModelProto | None = None
    is_of_file: bool = False

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Returns parameters and buffers by the names of inputs."""
        return {
            **{naming.param(name): array for name, array in self.params.items()},
            **{naming.buffer(name): array for name, array in self.buffers.items()},
        }


def trace(
    model: torch.nn.Module,
    loss: Loss | None,
    example_inputs: object,
    *,
    opset: int = 21,
    is_widened: bool = False,
    scale_dtype: DType | None = None,
    dynamic_axes: DynamicAxes | None = None,
    targets: Sequence[str] = (),
    check: bool = True,
    evaluation_loss: bool = False,
    keeps_file: bool = False,
) -> Trace:
    """Returns the graphs of a model and its loss.

    Modules run in the mode that each is in, and are as before afterwards.

    Args:
        model: Called with the first entries of the batch, or with the entries that have the names
            of its arguments.
        loss: Called with the model's output and the other entries of the batch; returns a scalar,
            or a scalar and further results. None if the model computes its loss.
        example_inputs: A batch: a sequence or a mapping of tensors, or of containers of tensors.
        opset: ONNX opset.
        is_widened: Whether tensors of 16 bits are cast to float32 for the model.
        scale_dtype: The dtype of an input ``shared.loss_scale``, by which the loss is multiplied
            before its gradients are computed; None for no such input.
        dynamic_axes: Names of free sizes by tensor and axis; None for the first of each tensor.
        targets: Names of arguments of the model that only its loss depends on.
        evaluation_loss: Whether to trace the loss in evaluation mode, too.
        check: Whether to compare the step with torch, for the example and for other sizes.
        keeps_file: Whether the forward of an ONNX model is the graph of its file.

    Raises:
        ExportError: The batch does not match, the model has control flow that depends on data, the
            loss is not a scalar, a size is not free, or an operator has no ONNX form.
    """
    where = f"model {type(model).__name__}"
    batch = read_batch(
        model, loss, example_inputs, where, dynamic_axes=dynamic_axes, targets=targets
    )
    of = Forward(model, loss, batch, is_widened, where)
    params, buffers = of.tensors()
    if not params:
        raise TrainingExportError(
            "no parameter of the model is trained", where=where, hint="set requires_grad"
        )
    shared_inputs = (
        {} if scale_dtype is None else {LOSS_SCALE: torch.ones((), dtype=TORCH_DTYPES[scale_dtype])}
    )
    symbols = Symbols(batch)
    with restore_on_exit(*of.modules()):
        try:
            # Without a choice of weights, those that the loss does not reach are frozen: a gradient
            # of 0 would still decay them.
            if isinstance(model, OnnxModule) and not model.is_chosen:
                model.freeze(run_eagerly(of, params, buffers, batch.tensors).unreached_params())
                params, buffers = of.tensors()
                _list_weights(params, where)
            with one_thread():  # equal runs have equal bits
                run = _checked_run(of, params, buffers)
            step, names_by_kind = _step(of, symbols, params, buffers, shared_inputs, run, opset)
            changing = {*params, *names_by_kind["next.buffer."]}
            _check_reads(of, changing)
            if check:
                with phase("validate"):
                    check_step(step, of, params, buffers, shared_inputs)
            # eval() reaches the modules of the trace only until restore_on_exit gives them back.
            for module in of.modules():
                module.eval()
            file_forward = (
                _forward_of_file(model, params, buffers) if keeps_file and not targets else None
            )
            forward = file_forward or _forward(of, symbols, params, buffers, targets, opset)
            loss_only = (
                _evaluation_loss(of, symbols, params, buffers, tuple(run.metrics), opset)
                if evaluation_loss
                else None
            )
            _check_reads(of, changing)
            symbols.check_free(where)
        # A size that the file computes with is reported by its name, if the trace has fixed one.
        except FixedSizeError:
            symbols.check_free(where)
            raise
        except ExportError:
            raise
        except Exception as error:
            _check_reads(of, params)
            raise explain_error(error, where, of.places.here()) from error
    return Trace(
        step,
        forward,
        {name: view_of(value) for name, value in params.items()},
        {name: view_of(value) for name, value in buffers.items()},
        changed_buffers=names_by_kind["next.buffer."],
        written_params=names_by_kind["written."],
        metrics=tuple(run.metrics),
        evaluation_loss=loss_only,
        is_of_file=file_forward is not None,
    )


def _checked_run(of: Forward, params: Tensors, buffers: Tensors) -> EagerRun:
    """Returns a step in torch, with the results of the model itself and of each repetition.

    Raises:
        ExportError: The forward differs from run to run, counts in Python and computes with the
            count, or computes with a tensor that is not replaced.
    """
    numbers = PythonNumbers(of.modules(), of.loss)
    before = numbers.values()
    pending = run_eagerly(of, params, buffers, of.batch.tensors)
    of.copied_params.intersection_update(pending.written_params)
    frozen = of.uncopied_tensors(buffers)
    run, digests, after = pending.run, pending.digests(frozen), numbers.values()
    del pending  # it holds copies of all parameters
    changed_names = [name for name, value in after.items() if before.get(name) != value]

    def repeat() -> dict[str, str]:
        return run_eagerly(of, params, buffers, of.batch.tensors, draws=run.draws).digests(frozen)

    # Another batch in between: a state may be the same after two equal ones.
    first_rows = {n: v[:1].expand_as(v) if v.dim() else v for n, v in of.batch.tensors.items()}
    with contextlib.suppress(Exception):  # the model need not take equal rows
        run_eagerly(of, params, buffers, first_rows, draws=run.draws)
    if of.is_widened:  # the model itself computes in 16 bits
        own_digests, following = repeat(), numbers.values()
    else:
        with own_step(of, of.batch.tensors, run.draws) as own:
            own_digests, following = own.digests(frozen), numbers.values()
    different_names = [name for name, bits in digests.items() if own_digests.get(name) != bits]
    is_repeatable = not different_names or repeat() == digests
    if different_names and is_repeatable:
        raise TrainingExportError(
            f"the model computes {', '.join(different_names[:3])} with other tensors than its "
            "parameters and buffers, or by their identity, which a step cannot follow",
            where=of.where,
            hint="read parameters and buffers as attributes of modules in each call, and compare "
            "them by name",
        )
    if is_repeatable:
        changed_names = [name for name in changed_names if following.get(name) != after[name]]
    # Values far away: a count may matter late, or never.
    for amount in (100, 10**6) if changed_names and is_repeatable else ():
        numbers.add(changed_names, amount)
        is_repeatable = is_repeatable and repeat() == digests
    if is_repeatable:
        return run
    state_text = ", ".join(map(repr, (changed_names or numbers.tensor_names())[:3]))
    raise TrainingExportError(
        f"the forward changes {state_text} in Python and computes with it, which a graph would "
        f"freeze (at {after[changed_names[0]]!r})"
        if changed_names
        else f"the forward differs from run to run, in {', '.join(different_names[:3])}"
        + (f": it carries {state_text}" if state_text else ""),
        where=of.where,
        hint="make it a buffer, such as self.register_buffer('count', torch.zeros(())), and "
        "compute with it in torch: a step carries buffers; if only the first run differs, run the "
        "model once before the export",
    )


def _check_reads(of: Forward, changing: Collection[str]) -> None:
    """Raises ExportError where a trace has read the memory of a tensor that a step changes."""
    for name, place in of.outside_reads.items():
        if name in changing:
            raise TrainingExportError(
                f"the memory of {name!r} is read by another tensor, in {place}, which a graph "
                "would freeze",
                where=of.where,
                hint="read it as an attribute of its module in each call: a view, .data, "
                ".detach() or NumPy array of it that was taken earlier is a constant",
            )


def _step(
    of: Forward,
    symbols: Symbols,
    params: Tensors,
    buffers: Tensors,
    shared_inputs: Tensors,
    run: EagerRun,
    opset: int,
) -> tuple[onnx.ModelProto, dict[str, tuple[str, ...]]]:
    def step(
        params: Tensors, buffers: Tensors, batch: Tensors, shared_inputs: Tensors
    ) -> list[torch.Tensor]:
        leaves = of.leaves(params)
        outcome = of.outcome(leaves, buffers, _copies(batch))
        # The scale is the gradient of the scaled loss in the loss: the loss itself stays unscaled.
        scale = shared_inputs[LOSS_SCALE].to(outcome.loss.dtype) if shared_inputs else None
        grads = torch.autograd.grad(
            outcome.loss, list(leaves.values()), scale, materialize_grads=True
        )
        following = [outcome.buffers[name].to(value.dtype) for name, value in buffers.items()]
        # Parameters that the forward writes to, such as clamped weights, are outputs;
        # drop_unchanged removes the others.
        new_params = [
            (outcome.params[name].to(leaf.dtype) if name in of.copied_params else leaf).detach()
            for name, leaf in leaves.items()
        ]
        return [outcome.loss.detach(), *outcome.metrics.values(), *grads, *following, *new_params]

    kinds = {
        naming.PARAM: params,
        naming.BUFFER: buffers,
        naming.BATCH: of.batch.tensors,
        naming.SHARED: shared_inputs,
    }
    names = [
        "loss",
        *(f"{naming.METRIC}{name}" for name in run.metrics),
        *(naming.grad(name) for name in params),
        *(naming.following(naming.buffer(name)) for name in buffers),
        *(f"{naming.WRITTEN}{name}" for name in params),
    ]

    def loss(params: Tensors, buffers: Tensors, batch: Tensors, _: Tensors) -> list[torch.Tensor]:
        leaves = of.leaves(params)
        return [of.outcome(leaves, buffers, _copies(batch)).loss]

    graph_module, inputs, properties = traced_operators(
        step, kinds, symbols, of, opset, drawing=loss, has_draws=bool(run.draws)
    )
    symbols.check_free(of.where)
    sources = {
        **{naming.following(naming.buffer(name)): naming.buffer(name) for name in buffers},
        **{f"{naming.WRITTEN}{name}": naming.param(name) for name in params},
    }
    outputs = drop_unchanged(graph_module, inputs, names, sources)
    names_by_kind = {
        kind: tuple(n.removeprefix(kind) for n in outputs if n.startswith(kind))
        for kind in ("next.buffer.", naming.WRITTEN)
    }
    return write_onnx(
        graph_module, inputs, outputs, symbols.names, opset, of.where, properties
    ), names_by_kind


def _list_weights(params: Tensors, where: str) -> None:
    """Logs the weights of a file that are trained where nobody named them."""
    weights_text = ", ".join(f"{name} {list(value.shape)}" for name, value in params.items())
    _LOGGER.info(
        "%s trains the %d weights that reach the loss: %s", where, len(params), weights_text
    )


def _forward_of_file(
    model: torch.nn.Module, params: Tensors, buffers: Tensors
) -> onnx.ModelProto | None:
    return forward_of_file(model, params, buffers) if isinstance(model, OnnxModule) else None


def _forward(
    of: Forward,
    symbols: Symbols,
    params: Tensors,
    buffers: Tensors,
    targets: Sequence[str],
    opset: int,
) -> onnx.ModelProto:
    tensors = of.batch.tensors
    inputs = {name: tensors[name] for name in of.batch.inputs}
    count = 0

    def forward(
        params: Tensors, buffers: Tensors, batch: Tensors, _: Tensors
    ) -> list[torch.Tensor]:
        nonlocal count
        output = of.output(of.writable(params), of.copies(buffers), _copies(batch))
        leaves = [
            leaf
            for leaf in torch.utils._pytree.tree_leaves(output)
            if isinstance(leaf, torch.Tensor)
        ]
        count = len(leaves)
        return leaves

    kinds = {naming.PARAM: params, naming.BUFFER: buffers, naming.BATCH: inputs, naming.SHARED: {}}
    graph_module, names, properties = traced_operators(forward, kinds, symbols, of, opset)
    outputs = output_names(count)
    model = write_onnx(graph_module, names, outputs, symbols.names, opset, of.where, properties)
    if isinstance(of.model, OnnxModule):
        mark_names(model, names_of_file(of.model))
    return model


def _evaluation_loss(
    of: Forward,
    symbols: Symbols,
    params: Tensors,
    buffers: Tensors,
    metrics: tuple[str, ...],
    opset: int,
) -> onnx.ModelProto:
    def loss(params: Tensors, buffers: Tensors, batch: Tensors, _: Tensors) -> list[torch.Tensor]:
        outcome = of.outcome(of.writable(params), buffers, _copies(batch), is_trained=False)
        return [outcome.loss, *(outcome.metrics[name] for name in metrics)]

    kinds = {
        naming.PARAM: params,
        naming.BUFFER: buffers,
        naming.BATCH: of.batch.tensors,
        naming.SHARED: {},
    }
    graph_module, names, properties = traced_operators(loss, kinds, symbols, of, opset)
    outputs = ["loss", *(f"{naming.METRIC}{name}" for name in metrics)]
    return write_onnx(graph_module, names, outputs, symbols.names, opset, of.where, properties)


def _copies(tensors: Tensors) -> Tensors:
    """Tensors that a forward may write to."""
    return {name: value.clone() for name, value in tensors.items()}
