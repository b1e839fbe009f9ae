"""``as_implemented=False`` computes the documented formula of a departure, or refuses the config.

A departure with a documented formula has a counterexample in tests/frameworks, under the same name.
Its expected schedule was written by hand from the documentation, and is the judge here.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from closedform.errors import DefinitionError
from closedform.frameworks import FRAMEWORKS
from closedform.language import UpdateRule
from closedform.optimizers import muon, nadam
from closedform.recipes import Recipe, load_recipe
from closedform.recipes.defects import Defect
from closedform.recipes.document import document_of
from tools import defects as counterexamples

Key = tuple[str, str]
EXAMPLES = {(example.framework, example.name): example for example in counterexamples.defects()}
SHOWN = {id(FRAMEWORKS[framework].defects[name]) for framework, name in EXAMPLES if name}
MUON: dict[str, Any] = {
    "weight_decay": 0.01,
    "momentum": 0.95,
    "nesterov": True,
    "lookahead": "sum",
    "scale": "match_rms_adamw",
    "decay": "scaled",
    "floor": "added",
    "matrix_axes": "first",
    "precision": "bf16",
}
"""The choices of cerebras' Muon."""
OF_OPTIMIZERS: dict[str, tuple[str, Callable[..., UpdateRule]]] = {
    "doubled-factor": ("NAdam", nadam),
    "lost-buffer": ("Muon", partial(muon, **MUON)),
}
"""Departures of optimizers of cerebras, and the documented rules."""
DEPARTURES: dict[Key, Defect[Any]] = {
    (framework, name): defect
    for framework, declaration in FRAMEWORKS.items()
    for name, defect in declaration.defects.items()
    if isinstance(defect, Defect) and defect.applies is not None and name not in OF_OPTIMIZERS
    # A framework that takes over the table of another one needs no counterexample of its own.
    if (framework, name) in EXAMPLES or id(defect) not in SHOWN
}
"""The departures that concern configs, by framework and name."""
STEPS = 24
"""The updates that are compared where a counterexample has no length: past the end of each run."""


def read(example: counterexamples.Defect, as_implemented: bool) -> Recipe:
    document = document_of(example.config, example.suffix, f"config{example.suffix}")
    return load_recipe(
        document,
        framework=example.framework,
        version=example.version,
        facts=example.facts,
        as_implemented=as_implemented,
    )


def departures(is_documented: bool) -> list[Key]:
    return [
        key
        for key, defect in DEPARTURES.items()
        if (defect.documented is not None) is is_documented
    ]


@pytest.mark.parametrize("key", departures(True), ids="-".join)
def test_the_documented_formula_is_the_expected_one(key: Key) -> None:
    example = EXAMPLES[key]
    implemented, documented = read(example, True), read(example, False)
    steps = range(example.until or STEPS)
    expected = [example.expected().exact(step) for step in steps]
    assert [documented.schedule().exact(step) for step in steps] == expected
    assert [implemented.schedule().exact(step) for step in steps] != expected
    assert key[1] in implemented.notes
    assert key[1] not in documented.notes


@pytest.mark.parametrize("name", OF_OPTIMIZERS)
def test_the_documented_rule_is_that_of_the_library(name: str) -> None:
    label, rule = OF_OPTIMIZERS[name]
    config = {"trainer": {"init": {"optimizer": {label: {"lr": 0.5}}}}}
    implemented, documented = (
        load_recipe(config, "cerebras", as_implemented=flag) for flag in (True, False)
    )
    assert name in implemented.notes
    assert name not in documented.notes
    expected = rule(0.5)
    assert (documented.optimizer().param, documented.optimizer().states) == (
        expected.param,
        expected.states,
    )
    assert (implemented.optimizer().param, implemented.optimizer().states) != (
        expected.param,
        expected.states,
    )


@pytest.mark.parametrize("key", [key for key in departures(False) if key in EXAMPLES], ids="-".join)
def test_a_departure_without_a_documented_formula_is_refused(key: Key) -> None:
    example = EXAMPLES[key]
    assert key[1] in read(example, True).notes
    with pytest.raises(DefinitionError, match="there is no documented formula for this config"):
        read(example, False)


@pytest.mark.parametrize("key", [key for key in EXAMPLES if key[1]], ids="-".join)
def test_a_named_counterexample_has_its_note(key: Key) -> None:
    framework, name = key
    assert read(EXAMPLES[key], True).notes[name] == FRAMEWORKS[framework].defects[name].text


def test_a_product_of_schedulers_ends_where_one_of_them_raises_an_exception() -> None:
    # The periods have 4, 2 and 1 updates; the next one would have none.
    restarts = {"cosine_warmrestart": {"t_0": "4ba", "t_mult": 0.5}}
    config = {
        "optimizers": {"sgd": {"lr": 1.0}},
        "schedulers": [restarts, {"linear_decay": {}}],
        "max_duration": "10ba",
    }
    product = load_recipe(config, framework="composer", as_implemented=False).schedule()
    assert product.last_step == 6
    assert load_recipe(config, framework="composer").schedule().last_step is None
