"""Graphs as artefacts for ONNX, torch, C, JAX, Keras and MLX.

Each target has one table, which is total over the ops. This package imports neither onnx nor torch;
its modules do.

Example:
    >>> from closedform import compile, schedules
    >>> from closedform.exporters.onnx_model import to_model
    >>> [node.op_type for node in to_model(compile(schedules.linear(0, 1, 4))).graph.node]
    ['Cast', 'Div', 'Less', 'Where']
"""
