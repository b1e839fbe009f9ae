"""Draws docs/laws.svg: the schedule that the Multi-Power Law designs, and bounds during runs."""

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt

from closedform import schedules
from closedform.laws import NonIncreasing, design, predict
from tools.sections import DOCS

PEAK, END, STEPS, WARMUP = 3e-4, 3e-5, 24_000, 2_160
BASE_RATES = {"constant": 0.018175895, "WSD": 0.025373661, "cosine": 0.048241887}


def main() -> None:
    """Writes the figure; its file is the same in each run."""
    mpl.rcParams["svg.hashsalt"] = "closedform"
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    steps = np.arange(0, STEPS, 40)
    warmup = schedules.linear(0, PEAK, WARMUP)
    table = NonIncreasing(PEAK, 0, STEPS, WARMUP, knots=64)
    designed = design("multi_power", STEPS, table, "400M", warmup=WARMUP).schedule
    curves = {
        "designed": designed,
        "WSD": warmup.then(schedules.wsd(PEAK, END, STEPS - WARMUP, 0, 4_000), at=WARMUP),
        "cosine": warmup.then(schedules.cosine(PEAK, END, STEPS - WARMUP), at=WARMUP),
    }
    for name, curve in curves.items():
        loss = predict(curve, "multi_power", "400M", STEPS, warmup=WARMUP)
        left.plot(steps, curve(steps), label=f"{name}: {loss:.4f}")
    left.set(title="Multi-Power Law, 400M", xlabel="update", ylabel="learning rate")
    updates = range(20, 401, 5)
    forms = {
        "constant": schedules.constant(1),
        "WSD": schedules.wsd(1, 0, 400, 0, 80),
        "cosine": schedules.cosine(1, 0, 400),
    }
    for name, form in forms.items():
        bounds = predict(form * BASE_RATES[name], "last_iterate", "unit", horizon=updates)
        right.plot(updates, bounds, label=f"{name}: {bounds[-1]:.4f}")
    right.set(title="Bound of the last iterate, best rates", xlabel="update", ylabel="bound")
    right.set_ylim(0.08, 0.4)
    for axes in (left, right):
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(DOCS / "laws.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
