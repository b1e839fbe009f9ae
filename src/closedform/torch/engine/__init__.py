"""How a step runs: specialization, then foreach, a compiled function or onnxruntime, and replay."""
