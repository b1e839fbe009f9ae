"""How a step runs: specialization, vectors, lists of tensors or compiled functions, and replay."""
