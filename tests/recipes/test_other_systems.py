"""The frameworks of Hugging Face, timm and optax beside values of these packages.

The records are values of transformers 5.23, timm 1.0.31 and optax 0.2.8 (with
float64) at every step of a run and past its end; ``compare_packages.py`` runs the packages.
"""

from typing import Any

import numpy as np
import pytest

from closedform import frameworks
from closedform.errors import ClosedFormError
from closedform.language.exact import to_float
from tests.reference.records import other_system_records

RECORDS = {row["id"]: row for row in other_system_records()}
# The largest value of a record times this: a few roundings of float64.
TOLERANCE = 1e-12


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("key", RECORDS)
def test_record_is_reproduced(key: str) -> None:
    row = RECORDS[key]
    schedule = frameworks.schedule(row["system"], row["class"], row["kwargs"], base=row["base"])
    reference = np.array(row["values"])
    bound = TOLERANCE * np.abs(reference).max()
    computed = schedule(np.arange(len(reference)))
    np.testing.assert_allclose(computed, reference, rtol=0, atol=bound)
    exact = [to_float(schedule.exact(step)) for step in range(len(reference))]
    np.testing.assert_allclose(exact, reference, rtol=0, atol=bound)


WITHOUT_RECORD = {"reduce_lr_on_plateau", "PlateauLRScheduler", "join_schedules", "schedule_free"}
"""Classes that a metric drives or that hold others; the records of schedule_free are elsewhere."""


def test_every_class_has_a_record() -> None:
    for system in ("huggingface", "timm", "optax"):
        seen = {row["class"] for row in RECORDS.values() if row["system"] == system}
        assert seen | WITHOUT_RECORD >= set(frameworks.names(system).schedules), system


def test_joined_schedules() -> None:
    line = {"init_value": 0, "end_value": 1, "transition_steps": 10}
    part = {"class": "linear_schedule", "kwargs": line}
    kwargs = {"schedules": [part, part], "boundaries": [8]}
    joined = frameworks.schedule("optax", "join_schedules", kwargs)
    assert [to_float(joined.exact(step)) for step in (7, 8, 13, 18)] == [0.7, 0.0, 0.5, 1.0]


BAD: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "no steps after the warmup": (
        "huggingface",
        "linear",
        {"num_warmup_steps": 9, "num_training_steps": 8},
        "num_training_steps must be above num_warmup_steps, got 8 and 9 (huggingface > linear)",
    ),
    "end above the base": (
        "huggingface",
        "polynomial",
        {"num_warmup_steps": 3, "num_training_steps": 8, "lr_end": 2},
        "lr_end must be below the rate 1, got 2 (huggingface > polynomial)",
    ),
    "no minimum": (
        "huggingface",
        "cosine_with_min_lr",
        {"num_warmup_steps": 3, "num_training_steps": 8},
        "exactly one of min_lr and min_lr_rate must be given (huggingface > cosine_with_min_lr)",
    ),
    "no length": (
        "huggingface",
        "warmup_stable_decay",
        {"num_warmup_steps": 3, "num_decay_steps": 8},
        "the length is missing (huggingface > warmup_stable_decay): give num_training_steps or "
        "num_stable_steps",
    ),
    "too short": (
        "huggingface",
        "warmup_stable_decay",
        {"num_warmup_steps": 3, "num_decay_steps": 8, "num_training_steps": 5},
        "warmup and decay must fit into num_training_steps, they are 6 steps too long "
        "(huggingface > warmup_stable_decay)",
    ),
    "a metric": (
        "timm",
        "PlateauLRScheduler",
        {},
        "PlateauLRScheduler is driven by a metric: its value is not a function of the step "
        "(timm > PlateauLRScheduler): build its update rule with "
        "closedform.frameworks.metric_rule",
    ),
    "steps of noise": (
        "timm",
        "StepLRScheduler",
        {"decay_t": 3, "noise_range_t": [5]},
        "noise_range_t must be an int >= 0 or two of them, got [5] (timm > StepLRScheduler)",
    ),
    "steps of noise out of order": (
        "timm",
        "StepLRScheduler",
        {"decay_t": 3, "noise_range_t": [5, 2]},
        "noise_range_t must increase, got [5, 2] (timm > StepLRScheduler)",
    ),
    "noise of no kind": (
        "timm",
        "StepLRScheduler",
        {"decay_t": 3, "noise_range_t": 5, "noise_type": "norm"},
        "noise_type must be one of normal, uniform, got 'norm' (timm > StepLRScheduler): "
        "did you mean 'normal'?",
    ),
    "noise of no size": (
        "timm",
        "StepLRScheduler",
        {"decay_t": 3, "noise_range_t": 5, "noise_pct": 0},
        "noise_pct must be above 0, got 0 (timm > StepLRScheduler)",
    ),
    "decay beyond the run": (
        "timm",
        "WSDLRScheduler",
        {"t_initial": 6, "decay_t": 7},
        "decay_t must be at most t_initial 6, got 7 (timm > WSDLRScheduler)",
    ),
    "no scale": (
        "timm",
        "WSDLRScheduler",
        {"t_initial": 6, "decay_t": 2, "stable_fn": "rsqrt"},
        "stable_timescale must be above 0, got 0 (timm > WSDLRScheduler): it is warmup_t where it "
        "is not given",
    ),
    "cycles that are too many": (
        "timm",
        "CosineLRScheduler",
        {"t_initial": 6, "cycle_mul": 1.001, "cycle_limit": 500},
        "there are more than 400 cycles of growing length (timm > CosineLRScheduler)",
    ),
    "cosine within the warmup": (
        "optax",
        "warmup_cosine_decay_schedule",
        {"init_value": 0, "peak_value": 1, "warmup_steps": 9, "decay_steps": 8},
        "decay_steps must be above warmup_steps, got 8 and 9 "
        "(optax > warmup_cosine_decay_schedule): decay_steps counts the warmup, too",
    ),
    "boundaries of another form": (
        "optax",
        "piecewise_constant_schedule",
        {"init_value": 0, "boundaries_and_scales": [3]},
        "boundaries_and_scales must be a mapping, got [3] (optax > piecewise_constant_schedule)",
    ),
    "phases without steps": (
        "optax",
        "linear_onecycle_schedule",
        {"peak_value": 1, "transition_steps": 1},
        "the phases must have steps, got boundaries 0 and 0 (optax > linear_onecycle_schedule)",
    ),
    "number of values": (
        "keras",
        "PiecewiseConstantDecay",
        {"boundaries": [3], "values": [1]},
        "values must be one more than boundaries: expected 2, got 1 "
        "(keras > PiecewiseConstantDecay)",
    ),
    "order of boundaries": (
        "keras",
        "PiecewiseConstantDecay",
        {"boundaries": [5, 3], "values": [1, 2, 3]},
        "boundaries must increase from 0 on, got 3 after 5 (keras > PiecewiseConstantDecay)",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_argument_is_refused(name: str) -> None:
    system, class_name, kwargs, message = BAD[name]
    with pytest.raises(ClosedFormError) as caught:
        frameworks.schedule(system, class_name, kwargs, base=1)
    assert str(caught.value) == message
