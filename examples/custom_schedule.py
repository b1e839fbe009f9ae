"""A custom schedule: a Piecewise with hyperparameters, one of them an input of the graph."""

from pathlib import Path
from tempfile import TemporaryDirectory

import sympy as sp

import closedform as cf
from closedform import t


def main() -> None:
    # Warmup, a plateau, and a square-root cooldown to zero.
    peak, warmup, total, cooldown = (
        cf.expr.hyper(name, positive=True) for name in ("peak", "warmup", "total", "cooldown")
    )
    left = (total - t) / cooldown
    lr = cf.Schedule(
        sp.Piecewise(
            (peak * (t + 1) / warmup, t < warmup),
            (peak, t < total - cooldown),
            (peak * sp.sqrt(left), t < total),
            (0, True),
        ),
        name="warmup_stable_cooldown",
        peak=1e-3,
        warmup=100,
        total=1000,
        cooldown=200,
    )
    print(lr.latex())
    for step in (0, 99, 100, 799, 850, 999, 1000):
        print(f"step {step:>4}: {lr(step):.8g}")
    print("ten times the peak, at step 500:", lr.bind(peak=1e-2)(500))

    # The peak is an input of the exported graph: one file for any peak.
    with TemporaryDirectory() as folder:
        path = Path(folder) / "lr.onnx"
        cf.to_onnx(lr, path, inputs=["peak"])
        session = cf.ScheduleSession(path)
        print("from the file:", session(500), "and with another peak:", session(500, peak=0.25))


if __name__ == "__main__":
    main()
