"""From a torch model and its loss to ONNX: the graphs that ``closedform.training.export`` joins."""
