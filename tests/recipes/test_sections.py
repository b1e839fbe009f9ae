"""Sections as annotated classes: values, errors with their places, and what mypy refuses."""

import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import pytest
import sympy as sp

from closedform.errors import ConfigError, DefinitionError
from closedform.recipes import kit, quantities, section
from closedform.recipes.quantities import Quantity
from tests.support.pages import ROOT


class Group(section.Section):
    pattern: str
    lr_mult: quantities.RateRatio = 1


class Clipping(section.ClassSection):
    max_norm: quantities.Norm = 1


class Warmup(section.Section):
    warmup_steps: quantities.Steps = kit.integer(0, least=0)


class Decay(section.Section, irrelevant="verbose"):
    decay: Literal["linear", "cosine"] = "linear"
    min_lr: quantities.EndRate = 0.1


class Scheduler(Warmup, Decay, irrelevant="last_epoch"):
    class_: str = "any"
    lr: quantities.RateOrRates
    milestones: tuple[int, ...] = ()
    length: quantities.Steps | None = None
    groups: tuple[Group, ...]
    clipping: Clipping
    optional_clipping: Clipping | None
    epochs: quantities.WhereNeeded[quantities.RealEpochs] = kit.number(3)
    other: Any = None
    raw: kit.RawSection


class LongScheduler(Scheduler):
    min_lr: quantities.EndRate = 0.25


class Config(Decay, section.OpenSection):
    lr: quantities.Rate


class Flags(section.FlagSection):
    lr_decay: quantities.Rate = 1


def raw(content: dict[str, Any]) -> kit.RawSection:
    return kit.document_section(kit.Document(content, "run.yaml"))


def test_values_are_exact_and_defaults_are_filled_in() -> None:
    scheduler = Scheduler.read(
        raw(
            {
                "class": "linear",
                "lr": "1e-3",
                "milestones": [3.0, "4"],
                "groups": [{"pattern": "bias"}],
                "clipping": {"max_norm": 2, "unknown": 1},
                "raw": {"x": 1},
                "verbose": "read by nobody",
            }
        )
    )
    assert scheduler.class_ == "linear"
    assert scheduler.lr == sp.Rational(1, 1000)
    assert scheduler.milestones == (3, 4)
    assert (scheduler.warmup_steps, scheduler.decay, scheduler.length) == (0, "linear", None)
    assert scheduler.min_lr == sp.Rational(1, 10)
    (group,) = scheduler.groups
    assert (group.pattern, group.lr_mult) == ("bias", 1)
    assert scheduler.clipping.max_norm == 2
    assert scheduler.optional_clipping is None
    assert scheduler.epochs() == 3
    assert scheduler.other is None
    assert scheduler.raw.content == {"x": 1}
    assert "class_" in scheduler
    assert "warmup_steps" not in scheduler


def test_a_number_of_each_group_is_a_tuple() -> None:
    assert Scheduler.read(raw({"lr": [0.5, 1]})).lr == (sp.Rational(1, 2), 1)


def test_subclasses_have_the_keys_of_their_bases() -> None:
    assert tuple(Scheduler.keys)[:4] == ("decay", "min_lr", "verbose", "warmup_steps")
    assert tuple(LongScheduler.keys) == tuple(Scheduler.keys)
    assert LongScheduler.read(raw({"lr": 1})).min_lr == sp.Rational(1, 4)
    assert Scheduler.all_spellings() >= {"class", "pattern", "lr_mult", "max_norm", "last_epoch"}


def test_a_default_without_an_annotation_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"^the key min_lr has no annotation \(.*Lower\)$"):

        class Lower(Decay):
            min_lr = 0.01

    with pytest.raises(DefinitionError, match=r"^the key warm has no annotation"):

        class Warm(kit.Section):
            warm = kit.integer(3)


def test_a_key_with_two_meanings_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"^the key lr has two meanings"):

        class Unread(kit.Section, irrelevant="lr"):
            lr: kit.Rate

    with pytest.raises(DefinitionError, match=r"^the key read has two meanings"):

        class Method(kit.Section):
            read: bool = False  # type: ignore[assignment]


def test_of_two_bases_the_first_in_the_order_of_resolution_decides() -> None:
    class First(Decay):
        pass

    class Second(Decay):
        min_lr: kit.Rate = 0.125

    class Both(First, Second):
        pass

    assert Both.read(raw({})).min_lr == sp.Rational(1, 8)


def test_only_a_keyword_has_another_spelling() -> None:
    class Words(kit.Section):
        as_: kit.Steps = 0
        asr: kit.Steps = 0
        form: str = ""

    assert Words.spellings() == ("as", "asr", "form")


def test_replaced_values_leave_the_section_as_it_is() -> None:
    scheduler = Scheduler.read(raw({"lr": 1}))
    longer = scheduler.replace(length=7)
    assert (longer.length, longer.lr, scheduler.length) == (7, 1, None)
    assert isinstance(longer, Scheduler)
    with pytest.raises(AttributeError, match=r"^the section has no key 'lenght'$"):
        scheduler.replace(lenght=7)


def test_a_value_that_must_be_given_is_required_where_it_is_needed() -> None:
    assert Scheduler.read(raw({"lr": 1, "length": 4})).require("length") == 4
    with pytest.raises(ConfigError, match=r"length is missing"):
        Scheduler.read(raw({"lr": 1})).require("length")


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        (Scheduler, {}, "lr is missing (run.yaml): give lr"),
        (Scheduler, {"lr": 1, "min_lr": True}, "min_lr must be a finite number, got True"),
        (Scheduler, {"lr": 1, "min_lr": "nan"}, "min_lr must be a finite number, got 'nan'"),
        (Scheduler, {"lr": 1, "warmup_steps": 1.5}, "warmup_steps must be an integer, got 1.5"),
        (Scheduler, {"lr": 1, "warmup_steps": -1}, "warmup_steps must be at least 0, got -1"),
        (Scheduler, {"lr": 1, "class": 3}, "class must be a string, got 3"),
        (
            Scheduler,
            {"lr": 1, "decay": "cosin"},
            "there is no decay 'cosin' (run.yaml: decay): did you mean 'cosine'?",
        ),
        (
            Scheduler,
            {"lr": 1, "warmup_step": 1},
            "unknown key 'warmup_step' (run.yaml): did you mean 'warmup_steps'?",
        ),
        (
            Scheduler,
            {"lr": 1, "groups": [{}]},
            "pattern is missing (run.yaml: groups[0]): give groups[0].pattern",
        ),
        (Scheduler, {"lr": 1, "clipping": 1}, "clipping must be a mapping, got int"),
        (Config, {"lr": 1, "lr_decay": 1, "data": 2}, "unknown key 'lr_decay'"),
        (Flags, {"lr-decay": "x"}, "lr-decay must be a finite number, got 'x'"),
    ],
)
def test_errors_have_the_place_and_a_hint(
    kind: type[section.Section], content: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        kind.read(raw(content))
    assert message in str(caught.value)


def test_keys_name_their_quantities() -> None:
    table = {name: key.quantity for name, key in Scheduler.keys.items()}
    assert table["warmup_steps"] is table["length"] is Quantity.STEPS
    assert table["lr"] is Quantity.RATE
    assert table["min_lr"] is Quantity.END_RATE
    assert table["epochs"] is Quantity.EPOCHS
    assert table["decay"] is None


CONDITION = "defect: Defect[[Scheduler]] = Defect('', '', lambda scheduler: scheduler"
PLANTED = """
from typing import Literal
from closedform.recipes.defects import Defect
from closedform.recipes.quantities import EndRate, Steps
from closedform.recipes.section import Section

class Scheduler(Section):
    warmup: Steps = 0
    length: Steps | None = None
    min_lr: EndRate = 0.0
    decay: Literal["linear", "cosine"] = "linear"

def use(scheduler: Scheduler) -> None:
    {statement}
"""


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("scheduler.warmpu", '"Scheduler" has no attribute "warmpu"; maybe "warmup"?'),
        ("scheduler.length + 1", "Unsupported operand types for + "),
        ("scheduler.warmup = 1", 'Property "warmup" defined in "Scheduler" is read-only'),
        ("scheduler.decay == 'cosin'", "Non-overlapping equality check"),
        ("scheduler.warmup + scheduler.min_lr", None),
        (f"{CONDITION}.warmpu > 0)", 'has no attribute "warmpu"; maybe "warmup"?'),
        (f"{CONDITION}.warmup > 0)", None),
    ],
)
def test_mypy_refuses_a_misspelled_key(tmp_path: Path, statement: str, error: str | None) -> None:
    path = tmp_path / "planted.py"
    path.write_text(PLANTED.format(statement=statement), encoding="utf-8")
    recipes = ROOT / "src" / "closedform" / "recipes"
    modules = [recipes / f"{name}.py" for name in ("defects", "quantities", "section")]
    options = ["--strict", "--follow-imports=skip", f"--cache-dir={tmp_path}"]
    command = [sys.executable, "-m", "mypy", *options, *map(str, modules), str(path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = [line for line in result.stdout.splitlines() if "error:" in line]
    assert [error in line for line in lines] == [True] if error else not lines, result.stdout
