"""ONNX inference models as modules of torch, by a table of operators."""

from closedform.training.from_onnx.module import OnnxModule, read_module

__all__ = ["OnnxModule", "read_module"]
