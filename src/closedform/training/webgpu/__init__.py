"""A training step for the WebGPU provider of onnxruntime-web."""
