"""The writer of T5X's gin files: a product of factors, at least a minimum."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import sympy as sp

from closedform.recipes.forms import Config, Curve, Form, Optimizer, Writer, native, whole

_RATE = "utils.create_learning_rate_scheduler"


def _configs(form: Form, made: Optimizer, facts: Mapping[str, Any]) -> Iterator[Config]:
    del made, facts
    for values in _factors(form):
        yield {
            "TRAIN_STEPS": form.total,
            **{
                f"{_RATE}.{key}": native(value) for key, value in values.items() if key != "factors"
            },
            f"{_RATE}.factors": values["factors"],
        }


def _factors(form: Form) -> Iterator[dict[str, Any]]:
    warmup = max(1, whole(form.warmup()))
    least = {"min_learning_rate": form.after or sp.Rational(1, 10**8)}
    match form.curve:
        case Curve.CONSTANT if form.rise is None:
            yield {"factors": "constant", "base_learning_rate": form.peak, **least}
        case Curve.CONSTANT:
            yield {
                "factors": "constant * linear_warmup",
                "base_learning_rate": form.peak,
                "warmup_steps": warmup,
                "min_learning_rate": form.at() or sp.Rational(1, 10**8),
            }
        case Curve.INVERSE_ROOT if form.begin == 0:
            base = form.peak * sp.sqrt(form.end)
            length = form.end
            if form.rise is None:
                factors = {"factors": "constant * rsqrt_decay", "base_learning_rate": base}
                yield {**factors, "warmup_steps": length, **least}
            else:
                names = "constant * linear_warmup * rsqrt_decay"
                for steps in (warmup, form.first):
                    yield {
                        "factors": names,
                        "base_learning_rate": base,
                        "warmup_steps": steps,
                        **least,
                    }
        case Curve.LINEAR if form.rise is not None and form.peak != 0:
            share = (form.peak - form.low) / (form.end - form.begin) / form.peak
            yield {
                "factors": "linear_decay",
                "base_learning_rate": form.peak,
                "warmup_steps": warmup,
                "decay_factor": share,
                **least,
            }
        case _:
            return


WRITER = Writer(".gin", _configs, {}, ())
