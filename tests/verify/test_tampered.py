"""Files that were tampered with: a few of each; ``make compare`` has more than 10,000."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from closedform.verify.terms.verdict import Status
from tests.verify.tampered import BORDERS, Subject, is_changed, subjects, sweep
from tests.verify.tampered_values import VALUES, edit_of

FEW = ("linear", "annealing in 32 bits", "steps", "table", "sgd in one graph", "clipped")
OF_EACH = 12


@pytest.mark.parametrize("name", FEW)
def test_what_is_proved_has_its_meaning(name: str) -> None:
    found = sweep(subjects()[name](), OF_EACH, seed=1)
    assert found.wrong == []
    assert found.files == OF_EACH
    assert found.by_status.get(str(Status.REFUTED), 0) > 0


@pytest.mark.parametrize("name", FEW)
def test_what_is_proved_is_what_the_engine_runs(name: str) -> None:
    """Files that an engine reads in another way than the standard, or not at all."""
    result = sweep(subjects()[name](), OF_EACH, seed=2, edits=BORDERS)
    assert result.wrong == []
    assert result.files == OF_EACH
    assert result.by_status.get("refused", 0) > 0


SMALL = ("linear", "steps in 32 bits", "sgd in one graph")


@pytest.fixture(scope="module")
def small_subjects() -> list[Subject]:
    return [subjects()[name]() for name in SMALL]


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("value", VALUES)
def test_a_value_that_is_not_the_operand_is_not_proved_to_be(
    value: str, small_subjects: list[Subject]
) -> None:
    """Values that only NaN, types and constants of engines distinguish from an operand."""
    for seed, subject in enumerate(small_subjects):
        result = sweep(subject, 2, seed=seed, edits=[edit_of(value)])
        assert result.wrong == []
        assert result.files == 2


def test_the_judge_finds_a_narrow_step() -> None:
    """The step in 32 bits, which no rounding explains."""
    subject = subjects()["roots"]()
    model = type(subject.model)()
    model.CopyFrom(subject.model)
    assert is_changed(subject, model) is None
    place = next(i for i, node in enumerate(model.graph.node) if "step" in node.input)
    used = model.graph.node[place]
    used.input[:] = ["wide" if name == "step" else name for name in used.input]
    for count, (one, other, kind) in enumerate(
        (("step", "narrow", TensorProto.INT32), ("narrow", "wide", TensorProto.INT64))
    ):
        cast = helper.make_node("Cast", [one], [other], to=kind)
        model.graph.node.insert(place + count, cast)
    found = is_changed(subject, model)
    assert found is not None
    assert f"at step {2**31}" in found
    assert not subject.check(model).proved
    assert np.isfinite(subject.values[0]["value"])
