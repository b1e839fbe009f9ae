"""Transforms around rules of every kind: factored, with scalars, sums and inputs of their own."""

from typing import Any

import numpy as np
import pytest

from closedform import transforms
from closedform.compiler import compile_init, compile_step
from closedform.ir.evaluate import evaluate
from closedform.options import ModelSpec
from tests.test_library import OPTIMIZERS

# Factored states, matrix products, norms, a scalar state, sums over the model (so that these are
# sums of clipped gradients), another input, a point of evaluation, signs, definitions.
KINDS = (
    "adafactor",
    "came",
    "lamb",
    "muon",
    "nadam",
    "prodigy",
    "rprop",
    "schedule_free_sgd",
    "sophia",
)
SHAPES = {"w": (3, 4), "v": (2, 2)}
BAD_STEPS = (1, 4)


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", KINDS)
def test_scaled_accumulated_and_clipped(name: str) -> None:
    inner = OPTIMIZERS[name]()
    clipped = transforms.clip_by_global_norm(inner, 1)
    rule = transforms.dynamic_loss_scaling(transforms.accumulate(clipped, 2), 4)
    graph, init = compile_step(ModelSpec(rule, SHAPES)), compile_init(ModelSpec(rule, SHAPES))
    rng = np.random.default_rng(0)
    feed: dict[str, Any] = {
        f"param.{key}": rng.normal(size=shape).astype(np.float32) for key, shape in SHAPES.items()
    }
    feed |= evaluate(
        init, {node.attribute("name"): feed[node.attribute("name")] for node in init.inputs}
    )
    for label in inner.inputs:
        feed |= {f"input.{key}.{label}": np.ones(s, np.float32) for key, s in SHAPES.items()}
    for step in range(5):
        gradients = {
            f"grad.{key}": rng.normal(size=shape).astype(np.float32)
            for key, shape in SHAPES.items()
        }
        if step in BAD_STEPS:
            gradients["grad.v"][0, 0] = np.nan
        known = {**feed, **gradients}
        with np.errstate(all="ignore"):
            outputs = evaluate(
                graph, {n: known[n] for n in (i.attribute("name") for i in graph.inputs)}
            )
        after = {key.removeprefix("next."): value for key, value in outputs.items()}
        if step in BAD_STEPS:
            assert after["shared.loss_scale"] == feed["shared.loss_scale"] / 2
            for key, value in after.items():
                if not key.startswith("shared."):
                    np.testing.assert_array_equal(value, feed[key], err_msg=key)
        feed |= after
    assert feed["step"] == 1
    assert feed["shared.skipped_steps"] == 2
    for key in SHAPES:
        assert np.isfinite(feed[f"param.{key}"]).all()
