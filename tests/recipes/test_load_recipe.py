"""Configs: the 35 real ones, the forms that are read, and what is refused."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import sympy as sp
import yaml

from closedform import frameworks, schedules
from closedform.errors import ConfigError, UnknownNameError
from closedform.frameworks.cerebras.reader import LayerGrouping
from closedform.language import Schedule
from closedform.language.exact import to_float
from closedform.recipes import load_recipe, load_schedules, read_document
from closedform.recipes.documents.values import Unresolved
from tests.reference.records import CONFIGS

LINEAR = {"LinearLR": {"initial_learning_rate": 0.0, "end_learning_rate": 1.0, "total_iters": 4}}
POLYNOMIAL = {
    "PolynomialLR": {"initial_learning_rate": 3.0, "end_learning_rate": 0.0, "total_iters": 4}
}
HALF = sp.Rational(1, 2)


def config(
    optimizer: Any = None, schedulers: Any = None, loop: Any = None, **more: Any
) -> dict[str, Any]:
    init: dict[str, Any] = {"optimizer": {"AdamW": {}} if optimizer is None else optimizer}
    if schedulers is not None:
        init["schedulers"] = schedulers
    if loop is not None:
        init["loop"] = loop
    return {"trainer": {"init": {**init, **more}}}


def raw_init(path: Path) -> Mapping[str, Any]:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    init: Mapping[str, Any] = content["trainer"]["init"]
    return init


def leaves(section: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """The leaf schedulers of a one-key mapping, in their order."""
    ((name, given),) = section.items()
    if "scheduler" in given:
        return leaves(given["scheduler"])
    if "schedulers" in given:
        return [leaf for member in given["schedulers"] for leaf in leaves(member)]
    return [(name, given)]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_real_config_is_read(path: Path) -> None:
    init = raw_init(path)
    built, max_steps = load_schedules(path)
    assert list(built) == ["lr"]
    assert max_steps == init["loop"]["max_steps"]
    begin = 0
    for name, given in leaves(init["schedulers"][0]):
        alone = frameworks.schedule("cerebras", name, given)
        steps = given.get("total_iters", 1000)
        for step in {0, 1, steps // 2, steps - 1}:
            exact = built["lr"].exact(begin + step)
            assert exact == alone.exact(step)
            # float64: a few roundings of 1.1e-16, relative to the largest rate of the segment
            scale = max([value for key, value in given.items() if "rate" in key], default=1)
            assert float(built["lr"](begin + step)) == pytest.approx(
                to_float(exact), rel=0, abs=1e-15 * scale
            )
        begin += steps


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_real_config_makes_a_recipe(path: Path) -> None:
    ((name, given),) = raw_init(path)["optimizer"].items()
    recipe = load_recipe(path)
    assert recipe.name == path.stem
    assert recipe.source == str(path)
    assert recipe.optimizer().name == name.lower()
    assert recipe.optimizer().hyperparameters["lr"] is recipe.schedules["lr"]
    if name != "AdaFactor":
        beta2 = given.get("betas", [0.9, 0.999])[1]
        assert recipe.optimizer().hyperparameters["beta2"] == sp.Rational(str(beta2))
        assert recipe.optimizer().hyperparameters["eps"] == sp.Rational(
            repr(given.get("eps", 1e-6))
        )
    assert isinstance(recipe.grouping, LayerGrouping)
    assert list(recipe.grouping.adjust_learning_rate) == list(given.get("adjust_learning_rate", {}))


def test_mapping_is_not_changed() -> None:
    given = config({"AdamW": {"learning_rate": 0.1, "adjust_learning_rate": {"a": 2}}}, [LINEAR])
    before = copy.deepcopy(given)
    recipe = load_recipe(given)
    assert given == before
    assert (recipe.name, recipe.source, recipe.horizon) == ("recipe", "<mapping>", None)
    assert recipe.grouping == LayerGrouping({"a": 2})


SCHEDULERS: dict[str, tuple[Any, Schedule]] = {
    "lower case": ([{"linearlr": LINEAR["LinearLR"]}], schedules.linear(0, 1, 4)),
    "no suffix": ([{"Linear": LINEAR["LinearLR"]}], schedules.linear(0, 1, 4)),
    "not in a list": (LINEAR, schedules.linear(0, 1, 4)),
    "scaled": ([{"ScalePerParamLR": {"scheduler": LINEAR}}], schedules.linear(0, 1, 4)),
    "one after the other": (
        [{"SequentialLR": {"schedulers": [LINEAR, {"ConstantLR": {"learning_rate": 2}}]}}],
        schedules.linear(0, 1, 4).then(schedules.constant(2)),
    ),
    "a member over no steps": (
        [
            {
                "SequentialLR": {
                    "schedulers": [
                        LINEAR,
                        {"CosineDecayLR": {**LINEAR["LinearLR"], "total_iters": 0}},
                        {"ConstantLR": {"learning_rate": 2}},
                    ]
                }
            }
        ],
        schedules.linear(0, 1, 4).then(schedules.constant(2)),
    ),
    "over no steps": (
        [{"LinearLR": {**LINEAR["LinearLR"], "total_iters": 0}}],
        schedules.constant(1),
    ),
    "a product": (
        [{"ChainedLR": {"schedulers": [{"ConstantLR": {"learning_rate": 2}}, POLYNOMIAL]}}],
        schedules.linear(2, 0, 4),
    ),
    "with its milestones": (
        [{"SequentialLR": {"schedulers": [LINEAR, LINEAR], "milestones": [4]}}],
        schedules.linear(0, 1, 4).then(schedules.linear(0, 1, 4)),
    ),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_scheduler_form(name: str) -> None:
    given, wanted = SCHEDULERS[name]
    built = load_recipe(config(schedulers=given)).schedules["lr"]
    assert [built.exact(step) for step in range(12)] == [wanted.exact(step) for step in range(12)]


def test_weight_decay_has_its_own_schedule() -> None:
    decay = {"ConstantWD": {"val": 0.5}}
    recipe = load_recipe(config({"adamw": {"weight_decay": 0.1}}, [LINEAR, decay]))
    assert list(recipe.schedules) == ["lr", "weight_decay"]
    assert recipe.optimizer().hyperparameters["weight_decay"] is recipe.schedules["weight_decay"]


def test_learning_rate_without_scheduler_is_constant() -> None:
    recipe = load_recipe(config({"SGD": {"learning_rate": 0.5, "momentum": 0.9}}))
    assert recipe.schedules["lr"].exact(100) == HALF
    assert load_recipe(config()).schedules["lr"].exact(0) == sp.Rational(1, 1000)


TEXTS = {
    "1e-3 is a number": ("{AdamW: {eps: 1e-3}}", sp.Rational(1, 1000)),
    "1.5e-3": ("{AdamW: {eps: 1.5e-3}}", sp.Rational(3, 2000)),
    "an integer": ("{AdamW: {eps: 1}}", sp.Integer(1)),
    "0.1": ("{AdamW: {eps: 0.1}}", sp.Rational(1, 10)),
}


@pytest.mark.parametrize("name", TEXTS)
def test_numbers_in_yaml(name: str, tmp_path: Path) -> None:
    text, wanted = TEXTS[name]
    path = tmp_path / "c.yaml"
    path.write_text(f"trainer: {{init: {{optimizer: {text}}}}}", encoding="utf-8")
    assert load_recipe(path).optimizer().hyperparameters["eps"] == wanted
    assert load_recipe(str(path)).name == "c"


LIMITS = "a config must have at most 100000 values, nested at most 64 deep"
TAG_HINT = ": only plain mappings, lists, numbers, texts and booleans are"
# Each alias is twice the one before: 2^17 values when written in full.
DOUBLING = "a0: &a0 [0, 0]\n" + "".join(f"a{i + 1}: &a{i + 1} [*a{i}, *a{i}]\n" for i in range(17))
FILE_ERRORS = {
    "a: 1\na: 2": "the key 'a' occurs twice (c.yaml)",
    "a: {b: [{c: 1, c: 2}]}": "the key 'c' occurs twice (c.yaml: a.b[0])",
    "a: 1\nb: *x": "this is not YAML: found undefined alias 'x'\n  in \"<unicode string>\", "
    "line 2, column 4:\n    b: *x\n       ^ (c.yaml)",
    "a: &x [*x]": f"{LIMITS} (c.yaml)",
    'a: !!python/object/apply:os.system ["ls"]': "the tag "
    "'tag:yaml.org,2002:python/object/apply:os.system' is not read (c.yaml: a)" + TAG_HINT,
    "a: !!set {b}": "the tag 'tag:yaml.org,2002:set' is not read (c.yaml: a)" + TAG_HINT,
    "<<: 1": "a merge key << must have a mapping or a list of them (c.yaml)",
    DOUBLING: f"{LIMITS} (c.yaml)",
    "? [a]\n: 1": "a key must be a scalar (c.yaml)",
    "a: 010": "the number '010' is not read (c.yaml: a): write it in decimals",
    "a: 1:30": "the number '1:30' is not read (c.yaml: a): write it in decimals",
    "a: " + "1" * 5000: f"the number {'1' * 40!r} is not read (c.yaml: a): write it in decimals",
    "- 1": "a config must be a mapping, got list (c.yaml)",
    "": "the file is empty, expected a config (c.yaml)",
    "[" * 100 + "]" * 100: f"{LIMITS} (c.yaml, line 1)",
    "x" * 1_000_001: "a config must have at most 1000000 bytes, got more (c.yaml)",
}


@pytest.mark.parametrize("text", FILE_ERRORS, ids=lambda text: text[:20])
def test_file_is_refused(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_recipe("c.yaml")
    assert str(caught.value) == FILE_ERRORS[text]


def test_tag_of_an_application_leaves_the_value_open(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("a: !include other.yaml\nb: 1", encoding="utf-8")
    assert read_document(path).content == {"a": Unresolved("!include …"), "b": 1}


def test_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        load_recipe(tmp_path / "missing.yaml")
    with pytest.raises(ConfigError, match="there is no such file"):
        load_recipe(tmp_path)
    broken = tmp_path / "broken.yaml"
    broken.write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(ConfigError, match="cannot read the file: 'utf-8' codec"):
        load_recipe(broken)
    broken.write_text("a: [", encoding="utf-8")
    with pytest.raises(ConfigError, match="this is not YAML: while parsing"):
        load_recipe(broken)
    with pytest.raises(ConfigError, match="must be a path, a mapping, "):
        load_recipe(3)  # type: ignore[arg-type]


def cyclic() -> dict[str, Any]:
    loop: dict[str, Any] = {}
    loop["a"] = loop
    return loop


MEMBER = {"ConstantLR": {"learning_rate": 1.0}}
SCHEDULERS_AT = "<mapping>: trainer.init.schedulers"
OPTIMIZER_AT = "<mapping>: trainer.init.optimizer"
MAPPING_ERRORS: dict[str, tuple[Any, str]] = {
    "no section": (
        {"trainer": {}},
        "a config must have the section 'trainer.init', got none (<mapping>: trainer.init): "
        "the form is trainer: init: {optimizer, schedulers, loop}",
    ),
    "section of another form": (
        {"trainer": {"init": [1]}},
        "init must be a mapping, got list (<mapping>: trainer.init)",
    ),
    "cycle": (cyclic(), f"{LIMITS} (<mapping>: {'a.' * 40})"),
    "object": (
        config({"AdamW": {"eps": object}}),
        "a value must be a mapping, list, number, text or boolean, got type "
        f"({OPTIMIZER_AT}.AdamW.eps)",
    ),
    "two optimizers": (
        config({"Adam": {}, "SGD": {}}),
        f"optimizer must be a mapping of one name to its arguments, got ['Adam', 'SGD'] "
        f"({OPTIMIZER_AT})",
    ),
    "mistyped argument": (
        config({"adamw": {"weight_decy": 0.1}}),
        f"unknown argument 'weight_decy' ({OPTIMIZER_AT}.adamw; cerebras > AdamW): "
        "did you mean 'weight_decay'?",
    ),
    "argument out of its range": (
        config({"AdamW": {"betas": [0.9, 1.5]}}),
        f"betas[1] must be in [0, 1), got 1.5 ({OPTIMIZER_AT}.AdamW; adamw)",
    ),
    "argument without a value": (
        config({"AdamW": {"eps": None}}),
        f"eps must have a value, got none ({OPTIMIZER_AT}.AdamW)",
    ),
    "learning rate twice": (
        config({"Adam": {"lr": 1, "learning_rate": 2}}),
        f"the learning rate is given twice, as lr and learning_rate ({OPTIMIZER_AT}.Adam)",
    ),
    "no learning rate": (
        config({"SGD": {"momentum": 0.9}}),
        f"SGD needs a learning rate, got none ({OPTIMIZER_AT}.SGD): "
        "give a scheduler or learning_rate",
    ),
    "uncorrected Adam": (
        config({"Adam": {"correct_bias": False}}),
        f"Adam always corrects its bias, got correct_bias False ({OPTIMIZER_AT}.Adam): "
        "AdamW has a correct_bias",
    ),
    "decay of Adam": (
        config({"Adam": {}}, [{"ConstantWD": {"val": 1}}]),
        "a weight decay scheduler of Adam would add a decoupled decay to its L2 penalty "
        f"({OPTIMIZER_AT}.Adam): use AdamW, or take the scheduler out",
    ),
    "factors in a list": (
        config({"Adam": {"adjust_learning_rate": [2]}}),
        "adjust_learning_rate must be a mapping, got list "
        f"({OPTIMIZER_AT}.Adam.adjust_learning_rate)",
    ),
    "factor in text": (
        config({"Adam": {"adjust_learning_rate": {"embedding": "two"}}}),
        "factor of 'embedding' must be a number, got str 'two' "
        f"({OPTIMIZER_AT}.Adam.adjust_learning_rate): give an int, a float, a Fraction or a SymPy "
        "number",
    ),
    "no steps": (
        config(loop={"max_steps": 0}),
        "max_steps must be at least 1, got 0 (<mapping>: trainer.init.loop.max_steps)",
    ),
    "schedulers in text": (
        config(schedulers="linear"),
        f"schedulers must be a list of one-key mappings, got str ({SCHEDULERS_AT})",
    ),
    "mistyped scheduler": (
        config(schedulers=[LINEAR, {"ConstnatWD": {}}]),
        f"there is no scheduler 'ConstnatWD' ({SCHEDULERS_AT}[1]): did you mean 'ConstantWD'?",
    ),
    "mistyped argument of a member": (
        config(schedulers=[{"SequentialLR": {"schedulers": [LINEAR, {"ConstantLR": {"val": 1}}]}}]),
        f"unknown argument 'val' ({SCHEDULERS_AT}[0].SequentialLR.schedulers[1].ConstantLR; "
        "cerebras > ConstantLR): known are learning_rate, param_group_tags, total_iters",
    ),
    "member without a length": (
        config(schedulers=[{"SequentialLR": {"schedulers": [MEMBER, MEMBER]}}]),
        "total_iters must be an integer >= 0 where another one follows, got None "
        f"({SCHEDULERS_AT}[0].SequentialLR.schedulers[0].ConstantLR)",
    ),
    "no members": (
        config(schedulers=[{"SequentialLR": {}}]),
        "schedulers must be a list of one-key mappings, got NoneType "
        f"({SCHEDULERS_AT}[0].SequentialLR.schedulers)",
    ),
    "other milestones": (
        config(schedulers=[{"SequentialLR": {"schedulers": [LINEAR, MEMBER], "milestones": [3]}}]),
        "milestones must be the running sum of total_iters, [4], got [3] "
        f"({SCHEDULERS_AT}[0].SequentialLR): leave milestones out",
    ),
    "tags of a member": (
        config(
            schedulers=[
                {
                    "SequentialLR": {
                        "schedulers": [{"ConstantLR": {"param_group_tags": "a"}}, MEMBER],
                        "param_group_tags": "b",
                    }
                }
            ]
        ),
        "a member has tags of its own: 'a' "
        f"({SCHEDULERS_AT}[0].SequentialLR.schedulers[0].ConstantLR): "
        "give them only to the composite",
    ),
    "tags in common": (
        config(
            schedulers=[
                {"ConstantLR": {"learning_rate": 1, "param_group_tags": ["a", "b"]}},
                {"ConstantLR": {"learning_rate": 2, "param_group_tags": "b"}},
            ]
        ),
        f"two schedulers drive 'lr' ({SCHEDULERS_AT}[1]): join them in one SequentialLR or "
        "SequentialWD, or give them param_group_tags with no tag in common",
    ),
    "no tags": (
        config(schedulers=[{"ConstantLR": {"learning_rate": 1, "param_group_tags": []}}]),
        f"param_group_tags must name at least one tag, got [] ({SCHEDULERS_AT}[0].ConstantLR; "
        "cerebras > ConstantLR): leave it out for all groups",
    ),
    "two of a key": (
        config(schedulers=[LINEAR, MEMBER]),
        f"two schedulers drive 'lr' ({SCHEDULERS_AT}[1]): "
        "join them in one SequentialLR or SequentialWD, or give them param_group_tags with no tag "
        "in common",
    ),
    "generic class": (
        config(schedulers=[{"ConstantScheduler": {"val": 1}}]),
        f"ConstantScheduler does not say what it schedules ({SCHEDULERS_AT}[0]): "
        "use the class of that name that ends with LR or WD",
    ),
    "value that is not a number": (
        config(schedulers=[{"ConstantLR": {"learning_rate": float("nan")}}]),
        "learning_rate of cerebras > ConstantLR must be finite, got nan "
        f"({SCHEDULERS_AT}[0].ConstantLR)",
    ),
}


@pytest.mark.parametrize("name", MAPPING_ERRORS)
def test_config_is_refused(name: str) -> None:
    given, message = MAPPING_ERRORS[name]
    with pytest.raises(ConfigError) as caught:
        load_recipe(given, framework="cerebras")
    assert str(caught.value) == message


def test_a_class_of_the_learning_rate_without_the_suffix_is_read() -> None:
    given = {"initial_learning_rate": 0.5, "T_0": 4, "eta_min": 0.1}
    name = "CosineAnnealingWarmRestarts"
    recipe = load_recipe(config(schedulers=[{name: given}]), framework="cerebras")
    alone = frameworks.schedule("cerebras", name, given)
    assert [recipe.schedule("lr").exact(step) for step in range(4)] == [
        alone.exact(step) for step in range(4)
    ]


def test_optimizer_is_refused_when_it_is_asked_for() -> None:
    recipe = load_recipe({"trainer": {"init": {"schedulers": [LINEAR]}}})
    assert recipe.schedule().exact(2) == HALF
    with pytest.raises(
        ConfigError, match=r"^a config must have an optimizer, got none \(<mapping>"
    ):
        recipe.optimizer()
    recipe = load_recipe(config({"AdaFactory": None}, [LINEAR]))
    assert recipe.schedule().exact(2) == HALF
    with pytest.raises(
        UnknownNameError, match=r"^there is no optimizer 'AdaFactory'; there are SGD, Adam, .*init"
    ):
        recipe.optimizer()


def test_framework_is_recognized_or_named() -> None:
    with pytest.raises(ConfigError, match=r"is not recognized.*: name it, as in framework='cereb"):
        load_recipe({"trainer": {}})
    with pytest.raises(UnknownNameError, match="no framework 'cerebra': did you mean 'cerebras'"):
        load_recipe(config(), framework="cerebra")
    with pytest.raises(
        UnknownNameError, match=r"configs of keras are not read: there are readers for .*cerebra"
    ):
        load_recipe(config(), framework="keras")
    with pytest.raises(UnknownNameError, match="semantics of cerebras 9 are not known"):
        load_recipe(config(), version="9")


def test_facts_must_agree_with_the_config() -> None:
    given = config(schedulers=[LINEAR], loop={"max_steps": 10})
    assert load_recipe(given, facts={"total_steps": 10}).horizon == 10
    with pytest.raises(
        ConfigError,
        match=r"fact total_updates must agree .* gives 10, got 11 .*: leave the fact out",
    ):
        load_recipe(given, facts={"total_steps": 11})


def test_groups_of_a_recipe_are_those_of_its_system() -> None:
    optimizer = {"AdamW": {"weight_decay": 0.1, "adjust_learning_rate": {"embedding": 0.25}}}
    schedule = {"ConstantLR": {"learning_rate": 0.5}}
    init = {"optimizer": optimizer, "schedulers": [schedule]}
    recipe = load_recipe({"trainer": {"init": init}})
    names = ["embedding.weight", "linear.weight", "linear.bias", "norm.weight"]
    groups = recipe.groups(names, ["norm"])
    found = {}
    for group in groups:
        values = group.bound(recipe.optimizer()).hyperparameters
        for name in group.globs:
            found[name] = (float(values["lr"](7)), float(values["weight_decay"]))
    assert found == {
        "embedding.weight": (0.125, 0.1),
        "linear.weight": (0.5, 0.1),
        "linear.bias": (0.5, 0),
        "norm.weight": (0.5, 0),
    }


def test_tags_make_groups() -> None:
    params = [{"params": "head*", "tag": "head"}]
    given = config(
        {"AdamW": {"learning_rate": 0.25, "weight_decay": 0.1, "params": params}},
        [
            {"ConstantLR": {"learning_rate": 0.5, "param_group_tags": [None]}},
            {"SequentialLR": {"schedulers": [LINEAR, MEMBER], "param_group_tags": "head"}},
            {"ConstantWD": {"val": 0.75, "param_group_tags": "head"}},
            {"ConstantLR": {"learning_rate": 4.0, "param_group_tags": "unused"}},
        ],
    )
    recipe = load_recipe(given)
    assert [group.name for group in recipe.param_groups] == ["", "head", "unused"]
    wanted = {"": (HALF, sp.Rational(1, 10)), "head": (HALF, sp.Rational(3, 4))}
    for name, (rate, decay) in wanted.items():
        assert recipe.schedule("lr", name).exact(2) == rate
        assert recipe.schedule("weight_decay", name).exact(2) == decay
        assert recipe.optimizer(name).hyperparameters["lr"] is recipe.schedule("lr", name)
    assert recipe.schedule("lr", "unused").exact(0) == 4
    found = {}
    for group in recipe.groups(["head.weight", "head.bias", "linear.weight"]):
        values = group.bound(recipe.optimizer()).hyperparameters
        for name in group.globs:
            decay = values["weight_decay"]
            found[name] = (
                float(values["lr"](1)),
                float(decay(1) if isinstance(decay, Schedule) else decay),
            )
    assert found == {
        "head.weight": (0.25, 0.75),
        "head.bias": (0.25, 0.0),
        "linear.weight": (0.5, 0.1),
    }
