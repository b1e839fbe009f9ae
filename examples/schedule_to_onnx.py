"""A schedule in ONNX: one formula, the same values in Python and in onnxruntime."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import closedform as cf

PEAK, FLOOR, WARMUP, DECAY = 3e-4, 3e-5, 2000, 98_000


def main() -> None:
    warmup = cf.schedules.linear(0, PEAK, WARMUP)
    lr = warmup.then(cf.schedules.cosine(PEAK, FLOOR, DECAY))
    print("formula:", lr.expr)
    print("exact value at step 500:", lr.exact(500))

    with TemporaryDirectory() as folder:
        path = Path(folder) / "lr.onnx"
        cf.to_onnx(lr, path, step_shape=("n",))
        print(f"{path.name}: {path.stat().st_size} bytes")
        session = cf.ScheduleSession(path)
        steps = np.array([0, 1, 1999, 2000, 2001, 51_000, 100_000])
        in_onnxruntime = np.asarray(session(steps))

    in_python = np.asarray(lr(steps))
    print(f"{'step':>8} {'Python':>24} {'onnxruntime':>24}")
    for step, here, there in zip(steps, in_python, in_onnxruntime, strict=True):
        print(f"{step:>8} {here!s:>24} {there!s:>24}")
    print("largest difference:", float(np.abs(in_python - in_onnxruntime).max()))


if __name__ == "__main__":
    main()
