"""Front ends: schedules, update rules and graphs from Python functions, torch, optax and ONNX.

ONNX models are read and never run. Functions and objects of Python, torch and optax are traced:
their code runs, with symbols as arguments.
"""
