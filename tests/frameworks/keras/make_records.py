"""Writes records.jsonl: values that Keras computes in float32, on the backend jax.

Run with the Python of `make compare`: ``KERAS_BACKEND=jax .venv-compare/bin/python
tests/frameworks/keras/make_records.py``. A line is, for example, ``{"id": "keras-CosineDecay-001",
"class": "CosineDecay", "config": {"initial_learning_rate": 0.5, …}, "steps": [0, 1, …], "values":
[0.5, …], …}``.
"""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras

STEPS = [*range(40), 63, 64, 99, 100, 101, 250, 999]
OF_EACH_CLASS = 12


def _decay(random_numbers: random.Random) -> dict[str, Any]:
    return {
        "decay_steps": random_numbers.choice([1, 7, 20, 100]),
        "decay_rate": random_numbers.choice([0.1, 0.5, 0.96, 1.02]),
        "staircase": random_numbers.random() < 0.5,
    }


def _arguments(name: str, random_numbers: random.Random) -> dict[str, Any]:
    """Arguments of a class beside the initial rate."""
    steps = random_numbers.choice([1, 7, 20, 100])
    match name:
        case "ExponentialDecay" | "InverseTimeDecay":
            return _decay(random_numbers)
        case "PolynomialDecay":
            return {
                "decay_steps": steps,
                "end_learning_rate": random_numbers.choice([0, 1e-4, 0.05]),
                "power": random_numbers.choice([1, 2, 0.5]),
                "cycle": random_numbers.random() < 0.5,
            }
        case "CosineDecay":
            warmup = {"warmup_target": 0.7, "warmup_steps": random_numbers.choice([1, 5, 30])}
            is_warmed = random_numbers.random() < 0.5
            alpha = random_numbers.choice([0, 0.1])
            return {"decay_steps": steps, "alpha": alpha, **(warmup if is_warmed else {})}
        case _:
            return {
                "first_decay_steps": steps,
                "t_mul": random_numbers.choice([1, 2]),
                "m_mul": random_numbers.choice([1, 0.5]),
                "alpha": random_numbers.choice([0, 0.1]),
            }


def configs(name: str, random_numbers: random.Random) -> Iterator[dict[str, Any]]:
    for _ in range(OF_EACH_CLASS):
        if name == "PiecewiseConstantDecay":
            boundaries = sorted(random_numbers.sample(range(1, 120), 3))
            yield {"boundaries": boundaries, "values": [0.5, 0.1, 0.02, 0.03]}
            continue
        rate = random_numbers.choice([0.5, 1e-3])
        yield {"initial_learning_rate": rate, **_arguments(name, random_numbers)}


def records() -> Iterator[dict[str, Any]]:
    random_numbers = random.Random(0)
    for name in (
        "ExponentialDecay", "InverseTimeDecay", "PiecewiseConstantDecay", "PolynomialDecay",
        "CosineDecay", "CosineDecayRestarts",
    ):  # fmt: skip
        for number, config in enumerate(configs(name, random_numbers), 1):
            schedule = getattr(keras.optimizers.schedules, name)(**config)
            yield {
                "id": f"keras-{name}-{number:03}",
                "system": "keras",
                "version": None,
                "class": name,
                "key": "lr",
                "config": config,
                "facts": {},
                "clock": "updates done before this one (t = 0 is the first update)",
                "steps": STEPS,
                "values": [float(schedule(step)) for step in STEPS],
                "dtype": "float32",
                "source": f"keras {keras.__version__}",
            }


if __name__ == "__main__":
    lines = [json.dumps(record, separators=(",", ":")) for record in records()]
    Path(__file__).with_name("records.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
