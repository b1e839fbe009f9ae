"""The referee: files of schedules and steps that other tools wrote, against a named source.

Example:
    >>> from closedform import optimizers, to_onnx
    >>> from closedform.referee.judgement import judge_step
    >>> step = to_onnx(optimizers.sgd(0.1), params={"w": (2,)})["step"]
    >>> judge_step(step, optimizers.sgd(0.2)).verdict.status.value
    'REFUTED'
"""
