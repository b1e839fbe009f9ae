"""The arguments of ``fit`` of sentence-transformers, as a call and as a mapping."""

import pytest

from closedform.errors import ClosedFormError, MissingFactsError
from closedform.recipes import load_recipe
from closedform.recipes.document import document_of

SCRIPT = """
model.fit(
    train_objectives=[(loader, loss)],
    epochs=2,
    scheduler="warmupcosine",
    warmup_steps=4,
    optimizer_params={"lr": 1e-3},
)
"""


def test_a_call_of_fit_is_read_and_its_updates_are_those_of_the_shortest_data_set() -> None:
    document = document_of(SCRIPT, ".py", "train.py")
    recipe = load_recipe(document, facts={"dataset_sizes": [170, 99], "batch_size": 16})
    assert (recipe.framework, recipe.horizon) == ("sentence-transformers", 12)
    assert [recipe.schedule().exact(t) * 4000 for t in (0, 1, 4, 8, 12)] == [0, 1, 4, 2, 0]
    assert [group.role.value for group in recipe.param_groups] == ["default", "no_decay"]
    assert "shortest-data-set" in recipe.notes
    with pytest.raises(MissingFactsError, match="dataset_sizes, batch_size"):
        load_recipe(document)


def test_an_unknown_scheduler_is_refused() -> None:
    config = {"epochs": 1, "warmup_steps": 2, "optimizer_params": {}, "scheduler": "WarmupCubic"}
    with pytest.raises(ClosedFormError, match="there is no scheduler 'WarmupCubic'"):
        load_recipe(config, facts={"total_updates": 10})
