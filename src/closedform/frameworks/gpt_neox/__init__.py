"""gpt-neox: warmup and annealing of ``AnnealingLR``, and its YAML configs.

The keys of a config may have dashes or underscores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import sympy as sp

from closedform.errors import nearest
from closedform.frameworks.gpt_neox import curves
from closedform.language import Schedule, UpdateRule, exact_number, t
from closedform.recipes import kit

CLOCK = kit.Clock(kit.Unit.UPDATE)
STYLES = ("linear", "cosine", "exponential", "constant")
_CLASSES: Mapping[str, str] = MappingProxyType(
    {
        "adam": "Adam",
        "cpu_adam": "CPUAdam",
        "cpu_torch_adam": "CPUAdam",
        "lion": "Lion",
        "madgrad_wd": "MADGRAD",
        "onebitadam": "OneBitAdam",
        "sgd": "SGD",
        "sm3": "SM3",
    }
)
"""The optimizers of gpt-neox; its Adam is apex' FusedAdam, which is AdamW."""
_RULES: Mapping[str, Callable[..., UpdateRule]] = MappingProxyType(
    {"Adam": kit.fused_adam, "CPUAdam": kit.fused_adam}
)
_RATE = 1e-3


class Optimizer(kit.Section):
    type: str = "adam"
    params: kit.RawSection


class Config(
    kit.OpenSection,
    irrelevant="lr mmap_warmup no_load_optim no_save_optim optimizer_type "
    "override_lr_scheduler scheduler use_checkpoint_lr_scheduler "
    "zero_allow_untested_optimizer",
):
    optimizer: Optimizer
    train_iters: kit.Steps | None = None
    lr_decay_style: str = kit.choice(*STYLES, default="linear")
    lr_decay_iters: kit.Steps | None = None
    lr_decay_fraction: kit.RunRatio | None = None
    warmup: kit.Number = 0.01
    min_lr: kit.EndRate = 0
    use_mup: bool = False
    use_bnb_optimizer: bool = False
    weight_decay: kit.WeightDecay = 0.1
    gradient_clipping: kit.Norm | None = None
    clip_grad: kit.Norm = 1.0
    gradient_accumulation_steps: kit.Accumulation | None = None


DEFECTS: Mapping[str, kit.Note[[Config]]] = {
    "first-updates-equal": kit.Convention(
        "updates 0 and 1 have the same rate",
        "megatron/learning_rates.py:70",
        lambda config: config.warmup > 0,
    ),
    "warmup-not-rounded": kit.Convention(
        "the warmup is not rounded to whole updates: below one update, update 0 is above the peak",
        "megatron/training.py:1126",
        lambda config: config.warmup > 0,
    ),
    "minimum-above-peak": kit.Convention(
        "a minimum above the peak raises the rate after the warmup",
        "megatron/learning_rates.py:89",
        lambda config: config.min_lr > _peak(config),
    ),
    "cosine-climbs": kit.Convention(
        "the cosine rises again after the decay",
        "megatron/learning_rates.py:78",
        lambda config: config.lr_decay_style == "cosine",
        classes=("cosine",),
    ),
    "fraction-ignored": kit.Defect(
        "lr_decay_iters overrides lr_decay_fraction",
        "megatron/training.py:1118",
        lambda config: "lr_decay_iters" in config and "lr_decay_fraction" in config,
        documented="lr_decay_fraction overrides lr_decay_iters",
    ),
    "l2-is-decoupled": kit.Convention(
        "Adam is the FusedAdam of apex or of DeepSpeed: its weight decay is decoupled",
        "megatron/training.py:1071",
        lambda config: config.optimizer.type.lower() == "adam" and not config.use_mup,
        classes=(),
    ),
    "widths-of-mup": kit.Convention(
        "with use_mup, the rate of a matrix is divided by its width multiplier, and its weight "
        "decay multiplied by it; the rates here are those of the width multiplier 1",
        "megatron/learning_rates.py:98",
        lambda config: config.use_mup,
        classes=(),
    ),
    "bnb-ignored": kit.Convention(
        "use_mup takes the place of use_bnb_optimizer",
        "megatron/training.py:1049",
        lambda config: config.use_mup and config.use_bnb_optimizer,
        classes=(),
    ),
}


def _peak(config: Config) -> sp.Expr:
    return exact_number(config.optimizer.params.number("lr", _RATE))


def _updates(context: kit.Context, config: Config) -> int:
    """The updates of the run; epochs become iterations by the size of the data set."""
    if config.train_iters is not None:
        return int(config.train_iters)
    source = config.origin.document.source
    return int(context.numbers.require("total_updates", where=source)[0])


def _length(context: kit.Context, config: Config) -> sp.Integer:
    """The updates of the warmup and the decay."""
    length, part = config.lr_decay_iters, config.lr_decay_fraction
    if part is not None and (length is None or not context.as_implemented):
        length = int(_updates(context, config) * float(part))
    return sp.Integer(max(1, _updates(context, config) if length is None else length))


def _rate(context: kit.Context, config: Config) -> Schedule:
    style, end = config.lr_decay_style, _length(context, config)
    # The warmup is not rounded to whole updates. Its product in floats may end just before an
    # update where this one ends at it: the rate is that of the peak in both.
    numbers = {"peak": _peak(config), "low": config.min_lr, "warmup": config.warmup * end}
    rate = kit.curve(style, curves.rate, t, style=style, end=end, **numbers)
    if not config.use_mup:
        return rate
    width = context.facts.get("param_group", {}).get("width_mult", 1)
    return rate.scale(1 / exact_number(width, "width_mult"))


def _normal(document: kit.Document) -> dict[str, Any]:
    return {str(key).replace("-", "_"): value for key, value in document.content.items()}


def _matches(document: kit.Document) -> bool:
    content = _normal(document)
    optimizer = content.get("optimizer")
    return (
        isinstance(optimizer, dict)
        and "params" in optimizer
        and ("train_iters" in content or "lr_decay_style" in content)
    )


def _read(reading: kit.Reading) -> kit.Recipe:
    document = reading.document
    config = Config.read_whole(replace(document, content=_normal(document)))
    optimizer, total = _optimizer(config), _updates(reading.context, config)
    with config.origin.locate_errors():
        rate = None if optimizer.plan.name == "OneBitAdam" else _rate(reading.context, config)
    group = optimizer.group(rate)
    threshold = config.clip_grad if config.gradient_clipping is None else config.gradient_clipping
    return reading.recipe(
        [group, group.without_decay(("norm", "bias"))],
        horizon=total,
        clipping=kit.Clipping(threshold) if threshold > 0 else None,
        accumulation=config.gradient_accumulation_steps,
        values=(config,),
        derived={"total_updates": total},
    )


def _optimizer(config: Config) -> kit.ClassOptimizer:
    name, params = config.optimizer.type.lower(), config.optimizer.params
    if name not in _CLASSES:
        hint = nearest(name, _CLASSES)
        raise config.optimizer.error(f"there is no optimizer {name!r}", "type", hint)
    if config.use_mup and name not in ("adam", "sgd"):
        raise config.error(
            f"gpt-neox has use_mup for adam and sgd only, and raises AssertionError for {name}",
            "use_mup",
        )
    if "weight_decay" in params:
        raise params.error(
            "gpt-neox passes weight_decay itself, and raises TypeError for a second one",
            "weight_decay",
            "give the weight_decay of the whole config",
        )
    defaults = {"lr": _RATE}
    if name != "sm3":
        defaults["weight_decay"] = config.weight_decay
    if name == "adam" and config.use_mup:
        # MuAdam is the Adam of torch, with a weight decay in the gradient.
        return kit.class_optimizer(params, _CLASSES[name], (), defaults)
    path = "Adam8bit" if name == "adam" and config.use_bnb_optimizer else _CLASSES[name]
    return kit.class_optimizer(params, path, (), defaults, _RULES)


_STYLES = {
    kit.CurveName.LINEAR: "linear",
    kit.CurveName.COSINE: "cosine",
    kit.CurveName.CONSTANT: "constant",
}
_TYPES = {"adamw": "Adam", "lion": "Lion", "sgd": "SGD"}


def _configs(form: kit.WarmupDecayForm, optimizer: kit.Optimizer) -> Iterator[kit.Config]:
    if form.curve not in _STYLES:
        return
    params = {"lr": kit.native(form.peak), **optimizer.hyperparameters()}
    end = form.total if form.curve is kit.CurveName.CONSTANT else kit.nearest_integer(form.end)
    warmup = form.warmup()
    low, is_line = form.low, form.curve is kit.CurveName.LINEAR
    if is_line and form.low != 0:
        # The line goes to 0, and is cut off at the minimum.
        end = kit.nearest_integer(
            form.begin + (form.end - form.begin) * form.peak / (form.peak - form.low)
        )
    yield {
        "optimizer": {"type": _TYPES.get(optimizer.name, "Adam"), "params": params},
        "train_iters": form.total,
        "lr_decay_iters": end,
        "lr_decay_style": _STYLES[form.curve],
        "warmup": kit.native(warmup / end) if warmup else 0.0,
        "min_lr": 0.0 if form.curve is kit.CurveName.CONSTANT else kit.native(low),
        "weight_decay": kit.native(optimizer.weight_decay or 0),
        "gradient_clipping": kit.native(optimizer.clipping or 0),
    }


FRAMEWORK = kit.Framework(
    "gpt-neox",
    kit.section_entries(
        dict.fromkeys(STYLES, _rate), {"": Config}, style=lambda config: str(config.lr_decay_style)
    ),
    versions=("ea7aefd8f8e1",),
    repository="https://github.com/EleutherAI/gpt-neox",
    upstream="megatron/learning_rates.py, megatron/training.py",
    clock=CLOCK,
    defects=DEFECTS,
    reader=kit.Reader(_read, _matches),
    writer=kit.Writer(".yaml", _configs, {}, ("adamw", "lion", "sgd")),
)
