"""Static pages that run graphs in the browser with onnxruntime-web, without network access."""
