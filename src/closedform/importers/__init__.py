"""Graphs from files that others wrote: ONNX models. Nothing that is read is run."""
