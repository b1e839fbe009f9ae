"""Static pages that run graphs in the browser with onnxruntime-web, without network access.

``closedform gallery -o site`` writes ``site/index.html``: each schedule of the library with sliders
for its arguments, and its curve, which the page computes by the ONNX graph of the schedule.
"""
