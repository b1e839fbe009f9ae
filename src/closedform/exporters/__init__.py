"""Graphs as artefacts for ONNX, torch, C, JAX, Keras and MLX.

Each target has one table, which is total over the ops.

This package imports neither onnx nor torch; its modules do.
"""
