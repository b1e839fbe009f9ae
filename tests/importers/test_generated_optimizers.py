"""Generated classes of torch optimizers: traced and equal to the original, or refused."""

from pathlib import Path

import pytest
import torch

from tests.importers.generated_optimizers import (
    GUARDS,
    TEXTS,
    Parts,
    differences,
    generated,
    refusal,
)

CLASSES = generated(2 * 186)


# Every class in both dtypes in make compare: tests/importers/compare_generated_optimizers.py.
@pytest.mark.sample(every=31)
@pytest.mark.parametrize("place", range(len(CLASSES)), ids=lambda place: str(CLASSES[place]))
def test_a_generated_class_is_followed_or_refused(place: int, tmp_path: Path) -> None:
    parts = CLASSES[place]
    dtype = torch.float32 if place % 2 else torch.float64
    why, rule = refusal(parts, dtype)
    if rule is not None:
        assert not list(differences(parts, rule, dtype, tmp_path, place))
    else:
        assert why


TRACED = (
    "norm item",
    "norm tensor",
    "any",
    "ufunc of item",
    "isfinite",
    "math.isnan",
    "not itself",
    "item is infinity",
    "int step modulo",
    "int step in range",
    "int step by numpy",
    "numpy step",
    "tensor step float",
    "norm of all",
    "any bad",
    "dtype",
    "epsilon",
    "element size",
)
"""Guards that a rule can express; each stands for a way of reading."""

REFUSED = {
    "numpy": "numpy gives Python a value of the type ndarray",
    "tolist": "tolist gives Python a value of the type list",
    "text": "a text of the number",
    "hash": "the step uses hash",
    "int step in set": "the key of a dict or set is t + 1",
    "int step as text": "a text of the number t",
    "array step": "numpy.ndarray",
    "third": "the place of a parameter is used in a comparison",
    "place by hand": "the traced rule differs from the optimizer",
    "number by hand": "the traced rule differs from the optimizer",
    "number of parameters": "the number of parameters is used in a comparison",
    "contiguous": "is_contiguous gives Python a value of the type bool",
    "data pointer": "data_ptr gives Python a value of the type int",
    "random": "the step uses random.Random.random",
    "random instance": "random.Random",
    "numpy random": "numpy.random",
    "torch random": "random numbers of the shape [] have no expression",
    "time": "the step uses time.time",
    "address": "the step uses id",
    "global count": "the step changes a dict that exists outside of the optimizer",
    "class count": "the step changes the attribute 'seen' of the class 'Tracker'",
    "closure count": "the step assigns 'count', a variable outside of the optimizer",
    "count on the parameter": "as an attribute of a parameter",
    "stored function": "the step uses time.time",
    "iterator": "range_iterator",
}
"""Guards that a rule cannot express, and what the refusal says."""


def parts_of(name: str, catch: str = "plain") -> Parts:
    return Parts(name, "guard", "scale", "before", "none", "add_", catch)


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("name", TRACED)
def test_a_guard_is_traced(name: str, tmp_path: Path) -> None:
    assert name in GUARDS
    why, rule = refusal(parts_of(name), torch.float64)
    assert why is None
    assert not list(differences(parts_of(name), rule, torch.float64, tmp_path, 1))


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("name", list(REFUSED))
def test_a_guard_is_refused_by_name(name: str) -> None:
    why, _ = refusal(parts_of(name), torch.float64)
    assert why is not None
    assert REFUSED[name] in why


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("name", [name for name in REFUSED if name != "count on the parameter"])
def test_a_refusal_cannot_be_caught(name: str) -> None:
    why, _ = refusal(parts_of(name, "except BaseException"), torch.float64)
    assert why is not None
    assert REFUSED[name] in why


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", list(TEXTS))
def test_a_number_that_becomes_a_text_is_refused(name: str) -> None:
    for catch in ("plain", "except BaseException"):
        why, _ = refusal(parts_of(name, catch), torch.float64)
        assert why is not None, catch
        assert "differs from the optimizer" not in why  # by the front end, not by a sample
