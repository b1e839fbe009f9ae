"""Proofs that the backward of a training step is the derivative of its forward.

A rule is an operator of torch. Its forward and backward are exported as those of a training step
are, and both are read from the ONNX file: torch's own formula, its decompositions, those of
:mod:`closedform.training.tracing` and the ONNX form of each operator are all within the proof.
"""
