"""Static pages that run graphs in the browser: onnxruntime-web, and nothing from the network."""
