"""slime: Megatron's schedules, with a run of rollouts, and those of its former FSDP back end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from closedform.frameworks.megatron.reader import MegatronRun, recipe_of
from closedform.frameworks.megatron.schedules import CLOCK, STYLES, Flags, decay, rate
from closedform.language import Schedule
from closedform.recipes import kit

OF_UPDATES = kit.Clock(kit.Unit.UPDATE)
"""The clock of the FSDP back end."""

_ROLLOUTS = ("num_rollout", "rollout_batch_size", "n_samples_per_prompt", "global_batch_size")
"""The flags whose product and quotient is the length of a run; each may be a fact, with dashes."""


class Arguments(Flags):
    lr: kit.Rate = 1e-6
    num_rollout: int | None = kit.integer(None, least=1, may_be_open=True)
    num_epoch: kit.Epochs | None = kit.integer(None, least=1, may_be_open=True)
    rollout_batch_size: kit.BatchSize | None = kit.integer(None, least=1, may_be_open=True)
    n_samples_per_prompt: int | None = kit.integer(None, least=1, may_be_open=True)
    num_steps_per_rollout: int | None = kit.integer(None, least=1, may_be_open=True)
    train_backend: str = kit.choice("megatron", "fsdp", default="megatron")


class FSDP(Arguments):
    lr: kit.Rate = 2e-5
    lr_decay_style: str = kit.choice(*STYLES, default="constant")
    train_backend: str = "fsdp"


DEFECTS: Mapping[str, kit.Note[[Arguments]]] = {
    "fraction-wins": kit.Convention(
        "lr-warmup-fraction silences lr-warmup-iters",
        "slime/backends/megatron_utils/model.py:211",
        lambda flags: flags.lr_warmup_fraction is not None and flags.lr_warmup_iters != 0,
    ),
    "whole-updates": kit.Convention(
        "the samples of a run that do not fill a batch make no update of its schedule",
        "slime/backends/megatron_utils/model.py:203",
        lambda flags: (
            None not in _numbers(flags) and _samples(flags) % (flags.global_batch_size or 1) > 0
        ),
        classes=(),
    ),
    "inverse-square-root-of-samples": kit.Convention(
        "inverse-square-root without a warmup divides by the root of the number of samples",
        "megatron/core/optimizer_param_scheduler.py:245",
        lambda flags: (
            flags.train_backend == "megatron"
            and flags.lr_decay_style == "inverse-square-root"
            and not flags.lr_warmup_iters
            and not flags.lr_warmup_fraction
        ),
        classes=("megatron-inverse-square-root",),
    ),
}


def _numbers(flags: Arguments) -> tuple[int | None, ...]:
    return tuple(getattr(flags, name) for name in _ROLLOUTS)


def _samples(flags: Arguments) -> int:
    samples = (flags.num_rollout or 0) * (flags.rollout_batch_size or 0)
    return samples * (flags.n_samples_per_prompt or 0)


def _of_run(flags: Arguments, context: kit.Context) -> Arguments:
    """The flags with the numbers of the run, which facts complete."""
    facts = context.facts
    known: dict[str, Any] = {
        name: facts.get(f"--{name.replace('_', '-')}") if value is None else value
        for name, value in zip(_ROLLOUTS, _numbers(flags), strict=True)
    }
    if known["n_samples_per_prompt"] is None:
        known["n_samples_per_prompt"] = 1
    if known["global_batch_size"] is None:
        known["global_batch_size"] = context.numbers.global_batch_size
    samples, steps = known["rollout_batch_size"], flags.num_steps_per_rollout
    if steps is not None and samples is not None:
        batch = samples * known["n_samples_per_prompt"] // steps
        if known["global_batch_size"] not in (None, batch):
            raise flags.error(
                f"{steps} steps of a rollout have {batch} samples, got {flags.global_batch_size}",
                "global_batch_size",
            )
        known["global_batch_size"] = batch
    size = context.numbers.dataset_size
    if known["num_rollout"] is None and size and samples and flags.num_epoch:
        known["num_rollout"] = flags.num_epoch * size // samples
    flags = flags.replace(**known)
    missing = [f"--{name.replace('_', '-')}" for name in _ROLLOUTS if known[name] is None]
    total: Any = context.numbers.total_updates
    if not missing:
        total = _samples(flags) // (flags.global_batch_size or 1)
    elif total is None or "--global-batch-size" in missing:
        raise kit.missing_facts(", ".join(missing), context.where)
    iterations = 0 if flags.lr_warmup_fraction is not None else flags.lr_warmup_iters
    return flags.replace(train_iters=int(total), lr_warmup_iters=iterations)


def _rate(context: kit.Context, flags: Arguments) -> Schedule:
    flags = _of_run(flags, context)
    is_fsdp = flags.train_backend == "fsdp"
    curve = decay if context.key == "weight_decay" else rate
    return curve(context, flags.replace(global_batch_size=1) if is_fsdp else flags)


def _matches(document: kit.Document) -> bool:
    return document.python is None and any(
        name in document.content or f"--{name}" in document.content
        for name in ("num-rollout", "rollout-batch-size")
    )


def _read(reading: kit.Reading) -> kit.Recipe:
    content = {str(key).lstrip("-"): value for key, value in reading.document.content.items()}
    section = kit.RawSection(reading.document, content)
    is_fsdp = content.get("train-backend") == "fsdp"
    flags = _of_run((FSDP if is_fsdp else Arguments).read(section), reading.context)
    updates = int(flags.train_iters or 0)
    run = MegatronRun(1 if is_fsdp else int(flags.global_batch_size or 0), (), updates)
    length = {"total_updates": updates}
    clock = OF_UPDATES if is_fsdp else CLOCK
    values = (flags.replace(lr_warmup_iters=flags.origin.integer("lr-warmup-iters", 0)),)
    return recipe_of(
        reading, flags.replace(global_batch_size=run.batch), run, clock, values, length
    )


def _entries(prefix: str, keys: type[Arguments]) -> dict[str, Any]:
    return kit.section_entries(
        {f"{prefix}-{name}": _rate for name in STYLES},
        {"": keys},
        lambda flags: f"{prefix}-{flags.lr_decay_style}",
        DEFECTS,
    )


FRAMEWORK = kit.Framework(
    "slime",
    {**_entries("megatron", Arguments), **_entries("fsdp", FSDP)},
    versions=("624b824a898a", "41b5932b7"),
    repository="https://github.com/THUDM/slime",
    upstream="slime/backends/megatron_utils/model.py",
    clock=CLOCK,
    defects=DEFECTS,
    reader=kit.Reader(_read, _matches),
    facts=tuple(f"--{name.replace('_', '-')}" for name in _ROLLOUTS),
)
