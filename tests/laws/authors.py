"""Schedules and numbers of the authors' code.

data/multi_power_law.json.gz: the loss curves of github.com/thu-yao-01-luo/MultiPowerLaw (MIT
license, Kairong Luo, 2025) for models of 25M, 100M and 400M parameters on 9 schedules, every fourth
logged step, and the losses that ``evaluate_mpl`` of src/evaluation.py predicts there with the
parameters of src/config.py.

``LAST_ITERATE``: ``compute_optimal_base(schedule, G=1, D=1, T=400)`` of
github.com/fabian-sp/lr-scheduling (MIT license, Fabian Schaipp and Alexander Hägele, 2025) for the
schedules of scripts/schedule_comparison.py: the best base rate and the bound with it.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import sympy as sp

from closedform import schedules, t
from closedform.language import Schedule

DATA = Path(__file__).parent / "data" / "multi_power_law.json.gz"
WARMUP, PEAK, END = 2160, 3e-4, 3e-5

LAST_ITERATE = {
    "linear": (0.04956313069166915, 0.10062986543560205),
    "1-sqrt": (0.07379705619416063, 0.10124259693307354),
    "cosine": (0.04824188693065984, 0.10338590568065092),
    "wsd-0.2": (0.02537366141742426, 0.10932301248874231),
    "1/sqrt": (0.2120855816043834, 0.12226427325120945),
    "constant": (0.018175895077525307, 0.1375448080733739),
}
"""The best rate and the bound of each schedule, in the order of the bounds."""


def curves() -> dict[str, Any]:
    """The curves by "size/schedule"."""
    curves: dict[str, Any] = json.loads(gzip.decompress(DATA.read_bytes()))
    return curves


def schedule_of(name: str) -> Schedule:
    """A schedule of src/lr_schedules.py, whose warmup is ``np.linspace(0, peak, 2160)``."""
    kind, *numbers = name.split("_")
    warmup = schedules.linear(0, PEAK, WARMUP - 1)
    if kind == "cosine":
        rest = schedules.cosine(PEAK, END, int(numbers[0]) - WARMUP)
    elif kind == "wsdcon":
        second = sp.Rational(int(numbers[0]), 100_000)
        rest = schedules.piecewise_constant([PEAK, second], [8000 - WARMUP])
    elif kind == "constant":
        rest = schedules.constant(PEAK)
    else:
        shape = "exponential" if kind == "wsd" else "linear"
        rest = schedules.wsd(PEAK, END, 24_000 - WARMUP, 0, 4_000, shape)
    return warmup.then(rest, at=WARMUP)


def last_iterate_schedules() -> dict[str, Schedule]:
    """The schedules of ``LAST_ITERATE`` with a peak of 1."""
    return {
        "linear": schedules.linear(1, 0, 400),
        "1-sqrt": schedules.wsd(1, 0, 400, 0, 400, "sqrt"),
        "cosine": schedules.cosine(1, 0, 400),
        "wsd-0.2": schedules.wsd(1, 0, 400, 0, 80),
        "1/sqrt": Schedule(1 / sp.sqrt(t + 1)),
        "constant": schedules.constant(1),
    }
