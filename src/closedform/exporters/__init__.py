"""Graphs as artefacts: an ONNX model or a torch module. One table per target, total over the ops.

This package imports neither onnx nor torch; its modules do.
"""
