"""The files of a training step on WebGPU: its tensors for the GPU, its scalars for the CPU."""

from __future__ import annotations

import onnx
from onnx import GraphProto, ModelProto, TensorProto, helper

from closedform.errors import TrainingExportError
from closedform.exporters.onnx_metadata import set_metadata
from closedform.exporters.onnx_scopes import part_of
from closedform.training.dtypes import IN_FLOAT32
from closedform.training.webgpu.kernels import check_kernels, element_types
from closedform.training.webgpu.replacements import REPLACEMENTS
from closedform.training.webgpu.scalars import split_scalars
from closedform.training.webgpu.translation import Translation, infer

WEBGPU_FILE, SCALARS_FILE = "webgpu.onnx", "scalars.onnx"

# Verdicts stay with train.onnx: they are about its nodes.
_FACTS = ("closedform.version", "closedform.clock", "closedform.rule", "closedform.model")


def webgpu_models(train: ModelProto, where: str) -> dict[str, ModelProto]:
    """Returns a training step for WebGPU by file name: ``webgpu.onnx`` and ``scalars.onnx``.

    ``scalars.onnx`` is ``(step, hyperparameters, numbers that are carried on) -> (scalar.*,
    learning_rate, next.step, …)``, in float64 and int64 on a CPU. ``webgpu.onnx`` has the rest,
    with ``scalar.*`` as inputs: float32, int32 and bool, in operators that have a kernel. Its
    inputs and outputs have the names of ``train.onnx``.

    Args:
        train: The exported training step.
        where: The model, named in errors.

    Raises:
        ExportError: The provider has no kernel for an operator or a type.
    """
    graph = infer(train)
    _check_model_types(graph, where)
    rest, scalars = split_scalars(graph)
    step = Translation(infer(_model(rest, train)), where).run(REPLACEMENTS)
    models = {
        WEBGPU_FILE: _without_unused(_model(step, train)),
        SCALARS_FILE: _model(scalars, train),
    }
    check_kernels(models[WEBGPU_FILE], where)
    for model in models.values():
        onnx.checker.check_model(model, full_check=True)
    return models


def _check_model_types(graph: GraphProto, where: str) -> None:
    """Raises ExportError where the model, not the rule, computes in float64."""
    for name, element in element_types(graph).items():
        if element == TensorProto.DOUBLE and name.startswith("model/"):
            node = next((n for n in graph.node if name in (*n.input, *n.output)), None)
            raise TrainingExportError(
                f"the WebGPU provider has no kernel for {node.op_type if node else 'a constant'} "
                "of double",
                where=f"{where}, value {name!r}",
                hint=f"{IN_FLOAT32}; its constants in float32, too",
            )


def _without_unused(model: ModelProto) -> ModelProto:
    """A model without nodes, inputs and constants that no output follows from."""
    part = part_of(model, (value.name for value in model.graph.output))
    # Types of values between were inferred for the translation.
    del part.graph.value_info[:]
    return part


def _model(graph: GraphProto, like: ModelProto) -> ModelProto:
    model = helper.make_model(graph, opset_imports=like.opset_import, ir_version=like.ir_version)
    facts = {entry.key: entry.value for entry in like.metadata_props if entry.key in _FACTS}
    set_metadata(model, facts)
    return model
