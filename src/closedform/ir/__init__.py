"""The graph language: types, ops, graphs, and what reads and rewrites them.

Knows no SymPy, no ONNX, no torch.
"""
