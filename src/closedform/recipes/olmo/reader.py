"""The reader of OLMo's YAML configs: ``optimizer``, ``scheduler`` and ``max_duration``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from closedform.errors import nearest
from closedform.language import Schedule, UpdateRule, exact_number
from closedform.optimizers import adamw, lion
from closedform.recipes.build import built
from closedform.recipes.clock import Clock, Unit
from closedform.recipes.document import Document, interpolated
from closedform.recipes.intervals import by_intervals, first_after
from closedform.recipes.olmo.schedules import SCHEDULES, SECTION
from closedform.recipes.olmo_core import reader as olmo_core
from closedform.recipes.optimizer_classes import class_optimizer
from closedform.recipes.reader import Reader, Reading
from closedform.recipes.recipe import Clipping, Recipe
from closedform.recipes.section import Section, whole

_NAMES: Mapping[str, str] = MappingProxyType(
    {"adamw": "AdamW", "lionw": "LionW", "decoupled_lionw": "LionW"}
)
_RULES: Mapping[str, Callable[..., UpdateRule]] = MappingProxyType({"AdamW": adamw, "LionW": lion})
_FLAGS = (
    "no_decay_norm_and_bias",
    "selective_updates",
    "decay_norm_and_bias",
    "decay_embeddings",
    "metrics_log_interval",
    "record_update_metrics",
)
_OPTIMIZER = ("name", "learning_rate", "weight_decay", "betas", "eps", *_FLAGS)
_CLIPPING = ("grad_clip_warmup_steps", "grad_clip_warmup_factor")
_TOP = ("optimizer", "scheduler", "reset_optimizer_state", "save_optimizer_state")
_NOTES = {
    "starts-at-a-tenth": "without warmup_min_lr the warmup begins at a tenth of the rate",
    "warmup-past-the-end": "the warmup is longer than the run: it rises on, and then falls at once",
    "zero-for-ever": "inverse_sqrt_with_warmup without a warmup is 0 for ever",
}


def _matches(document: Document) -> bool:
    optimizer = document.content.get("optimizer")
    scheduler = document.content.get("scheduler")
    if "trainer" in document.content:  # levanter has the same optimizer beside it
        return False
    return (isinstance(optimizer, dict) and "learning_rate" in optimizer) or (
        isinstance(scheduler, dict) and "t_warmup" in scheduler and "units" in scheduler
    )


def _read(reading: Reading) -> Recipe:
    if reading.document.python is not None or "train_module" in reading.document.content:
        return olmo_core.read(reading)
    document = interpolated(reading.document)
    config = whole(document)
    config.check_related(_TOP)
    optimizer, scheduler = config.section("optimizer"), config.section("scheduler")
    optimizer.check(_OPTIMIZER)
    scheduler.check((*SECTION, *_CLIPPING))
    name = optimizer.text("name", "lionw")
    if name not in _NAMES:
        raise optimizer.error(f"there is no optimizer {name!r}", "name", nearest(name, _NAMES))
    rate = optimizer.number("learning_rate", 1e-4)
    content: dict[str, Any] = {
        "lr": rate,
        "weight_decay": optimizer.number("weight_decay", 0.01),
        "betas": list(optimizer.numbers("betas", (0.9, 0.95))),
    }
    if _NAMES[name] == "AdamW":
        content["eps"] = optimizer.number("eps", 1e-5)
    made = class_optimizer(
        Section(document, content, optimizer.path), _NAMES[name], (), rules=_RULES
    )
    run = _Run(config, reading)
    group = made.group(_rate(scheduler, rate, run))
    spared = _spared(optimizer)
    groups = [group]
    if spared:
        groups.append(group.without_decay(spared))
    stop = config.integer("stop_at", None)
    horizon = run.total if stop is None or run.total is None else min(run.total, int(stop))
    return Recipe(
        document.name,
        "olmo",
        tuple(groups),
        horizon=horizon,
        version=reading.version,
        source=document.source,
        facts=reading.facts,
        clock=Clock(Unit.TOKEN if run.in_tokens else Unit.UPDATE, offset=1),
        clipping=_clipping(config, scheduler, run),
        notes=_notes(scheduler, run),
    )


def _spared(optimizer: Section) -> tuple[str, ...]:
    """The parameters without weight decay."""
    names = (("decay_norm_and_bias", "norm and bias"), ("decay_embeddings", "embeddings"))
    return tuple(what for key, what in names if not optimizer.flag(key, False))


class _Run:
    """The length of the run, and what an update adds to the clock.

    Attributes:
        in_tokens: Whether the scheduler counts tokens.
        tokens: Tokens in an update; None if unknown.
        total: The updates of the run; None if unknown.
        horizon: The end of the schedule in the unit of the scheduler.
    """

    def __init__(self, config: Section, reading: Reading) -> None:
        scheduler, facts = config.section("scheduler"), reading.facts
        units = scheduler.text("units", "steps")
        if units not in ("steps", "tokens"):
            raise scheduler.error(f"units must be steps or tokens, got {units!r}", "units")
        self.in_tokens = units == "tokens"
        self.tokens = facts.tokens_per_update
        batch = config.integer("global_train_batch_size", 512)
        length = config.section("model").integer("max_sequence_length", facts.sequence_length)
        if self.tokens is None and length is not None:
            self.tokens = int(batch) * int(length)
        self.total: int | None = facts.total_updates
        self._duration = config.value("max_duration", 10_000)
        self._config, self._reading = config, reading
        kind, amount = self._parsed()
        if self.total is None:
            self.total = self._updates(kind, amount)
        self.horizon: int | None = self.total
        if self.in_tokens and kind == "T":
            self.horizon = amount
        elif self.in_tokens and self.total is not None and self.tokens is not None:
            self.horizon = self.total * int(self.tokens)

    def _parsed(self) -> tuple[str, int]:
        given = self._duration
        text = given.strip() if isinstance(given, str) else str(given)
        kind = "T" if text.endswith("T") else "ep" if text.endswith("ep") else ""
        try:
            value = float(text.removesuffix(kind).replace("_", ""))
            return kind, int(value)
        except (ValueError, OverflowError) as error:
            raise self._config.error(
                f"max_duration must be a number, or one with T or ep, got {given!r:.40}",
                "max_duration",
            ) from error

    def _updates(self, kind: str, amount: int) -> int | None:
        if kind == "":
            return amount
        if kind == "ep":
            length = self._reading.facts.updates_per_epoch
            return None if length is None else amount * int(length)
        # The last update may have more tokens than are left.
        return None if self.tokens is None else math.ceil(exact_number(amount) / self.tokens)

    def needed(self) -> tuple[int, int]:
        """Returns the horizon and the tokens of an update.

        Raises:
            ArgumentError: Facts are missing.
        """
        facts, where = self._reading.facts, self._config.document.source
        missing = ["tokens_per_update"] if self.tokens is None and self.in_tokens else []
        if self.horizon is None or missing:
            facts.require(*(missing or ["updates_per_epoch"]), where=where)
            raise self._config.error("the length of the run is unknown", "max_duration")
        return self.horizon, int(self.tokens or 1)


def _rate(scheduler: Section, rate: Any, run: _Run) -> Schedule:
    name = scheduler.text("name", "cosine_with_warmup")
    if name not in SCHEDULES or name == "bolt_on_warmup":
        known = [one for one in SCHEDULES if one != "bolt_on_warmup"]
        raise scheduler.error(f"there is no scheduler {name!r}", "name", nearest(name, known))
    most = scheduler.number("t_max", None)
    horizon, tokens = (None, run.tokens or 1) if most is not None else run.needed()
    if run.in_tokens and run.tokens is None:
        run.needed()
    section: dict[str, Any] = {
        "name": name,
        "units": "tokens" if run.in_tokens else "steps",
        # Composed as OLMo does: whole numbers of the unit.
        "t_warmup": int(scheduler.number("t_warmup", 100)),
        "t_max": horizon if most is None else int(most),
        "alpha_f": scheduler.number("alpha_f", 0.1),
        "warmup_min_lr": scheduler.number("warmup_min_lr", None),
    }
    arguments = {"optimizer": {"learning_rate": rate}, "scheduler": section, "max_duration": 1}
    with scheduler.located():
        return built("olmo", SCHEDULES, name, arguments, facts={"tokens_per_batch": int(tokens)})


def _clipping(config: Section, scheduler: Section, run: _Run) -> Clipping | None:
    """The clipping, larger by a factor over the first updates."""
    if "max_grad_norm_ratio" in config or "max_grad_norm" not in config:
        return None
    threshold = config.number("max_grad_norm")
    if not all(key in scheduler for key in _CLIPPING):
        return Clipping(threshold)
    steps = int(scheduler.number("grad_clip_warmup_steps"))
    each = int(run.tokens or 1) if run.in_tokens else 1
    first = threshold * scheduler.number("grad_clip_warmup_factor")
    end = first_after(exact_number(steps) / each - 1)
    return Clipping(
        by_intervals(
            "clipping",
            (lambda: exact_number(first), end),
            (lambda: exact_number(threshold), None),
        )
    )


def _notes(scheduler: Section, run: _Run) -> dict[str, str]:
    warmup = scheduler.number("t_warmup", 100)
    name = scheduler.text("name", "cosine_with_warmup")
    concerned = {
        "starts-at-a-tenth": warmup > 0 and "warmup_min_lr" not in scheduler and name != "constant",
        "warmup-past-the-end": run.horizon is not None
        and "t_max" not in scheduler
        and warmup > run.horizon,
        "zero-for-ever": name == "inverse_sqrt_with_warmup" and warmup == 0,
    }
    return {key: _NOTES[key] for key, is_so in concerned.items() if is_so}


READER = Reader(_read, _matches)
