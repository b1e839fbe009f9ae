"""The public functions that join compiler, exporters, importers and verification.

One file for each target (``onnx``, ``c``, ``jax``, ``torch``, ``keras``, ``mlx``), one for the
front ends, one for verdicts. :mod:`closedform` loads each function from its file when it is first
used.

Example:
    >>> from closedform import schedules
    >>> from closedform.api.c import to_c
    >>> "double rate(int64_t t)" in to_c(schedules.linear(1, 0, 10), name="rate")
    True
"""
