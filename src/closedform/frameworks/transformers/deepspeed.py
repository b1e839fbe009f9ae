"""A DeepSpeed config next to TrainingArguments, whose sections take the Trainer's place.

``optimizer`` and ``scheduler`` of the file that ``deepspeed`` names replace ``optim`` and
``lr_scheduler_type`` without a warning: ``lr_scheduler_type: cosine`` next to a ``WarmupLR`` is a
warmup and a constant. "auto" stands for the Trainer's value; a number that is not the Trainer's is
refused.
"""

from __future__ import annotations

from dataclasses import replace

from closedform.frameworks.deepspeed.reader import SECTIONS, read_config
from closedform.frameworks.deepspeed.schedules import CLOCK, DEFECTS, HEAD
from closedform.frameworks.transformers.optimizers import Adam
from closedform.recipes import kit

NOTE = "deepspeed-scheduler"
"""The defect whose text names the sections that win, once the file is read."""


def in_place_of_trainer(
    reading: kit.Reading,
    trainer: kit.Recipe,
    document: kit.Document,
    adam: Adam,
    names: tuple[str, str],
) -> kit.Recipe:
    """Returns the recipe of a run whose Trainer hands a config to DeepSpeed.

    transformers 5.23.0, integrations/deepspeed.py: lines 136 to 258 insert and compare the values,
    lines 576 to 608 choose the optimizer and the scheduler. The optimizer has one group with all
    parameters, so that biases decay as well. Clipping is left to DeepSpeed (accelerate 1.15.0,
    accelerator.py:3023), which clips only by ``gradient_clipping``.

    Args:
        reading: The reading of the arguments.
        trainer: The recipe of the Trainer without DeepSpeed.
        document: The config of DeepSpeed.
        adam: The arguments with the betas and epsilon.
        names: The optimizer and the scheduler of the arguments, in the order of ``SECTIONS``.

    Raises:
        ConfigError: A value of the config is not that of the Trainer, or not valid.
    """
    sections = {name: kind for name in SECTIONS if (kind := document.content.get(name)) is not None}
    engine = _engine(reading, trainer, document, adam)
    rate, source = trainer.schedule(), document.source
    groups = engine.param_groups if "optimizer" in sections else trainer.param_groups
    notes = dict(engine.notes if "scheduler" in sections else trainer.notes)
    if [*sections] == ["optimizer"]:
        # LambdaLR of the Trainer is a factor of the rate of each group.
        shape = rate / (trainer.derived["lr"] or 1)
        groups = tuple(
            replace(group, schedules={**group.schedules, "lr": shape * group.schedules["lr"]})
            for group in groups
        )
    elif [*sections] == ["scheduler"]:
        curves = {key: curve for key, curve in engine.schedules.items() if key != "weight_decay"}
        groups = tuple(replace(group, schedules={**group.schedules, **curves}) for group in groups)
    notes.pop(NOTE, None)
    if sections:
        notes[NOTE] = "; ".join(
            f"{name} {sections[name].get('type')} of {source} takes the place of {own_name}"
            for name, own_name in zip(SECTIONS, names, strict=True)
            if name in sections
        )
    if trainer.clipping is not None and engine.clipping is None:
        norm = kit.amount_text(trainer.clipping.threshold)
        notes["deepspeed-clipping"] = (
            f"max_grad_norm {norm} has no effect: {source} has no gradient_clipping"
        )
    return replace(
        trainer,
        param_groups=groups,
        clock=CLOCK if "scheduler" in sections else trainer.clock,
        clipping=engine.clipping,
        notes=notes,
        replaced_schedules={"lr": rate} if "scheduler" in sections else {},
    )


def _engine(
    reading: kit.Reading, trainer: kit.Recipe, document: kit.Document, adam: Adam
) -> kit.Recipe:
    """The recipe that DeepSpeed makes of its config with the values of the Trainer."""
    values = trainer.derived
    clip = 0 if trainer.clipping is None else trainer.clipping.threshold
    arguments = {
        "lr": values["lr"],
        "warmup_max_lr": values["lr"],
        # max(1, ·): DeepSpeed refuses a warmup of 0 updates, and takes 1 for 2.
        "warmup_num_steps": max(1, values["warmup_updates"]),
        "total_num_steps": trainer.horizon,
        "weight_decay": values["weight_decay"],
        "betas": (adam.adam_beta1, adam.adam_beta2),
        "eps": adam.adam_epsilon,
        "gradient_clipping": clip,
        "gradient_accumulation_steps": trainer.accumulation,
    }
    # The Trainer's optimizer, whose rate and betas a scheduler of DeepSpeed changes.
    optimizer = {"type": trainer.param_groups[0].optimizer.name, "params": {"lr": "auto"}}
    content = {"optimizer": optimizer, **document.content}
    engine = replace(reading, framework="deepspeed", version=HEAD, defects=DEFECTS)
    return read_config(replace(engine, document=replace(document, content=content)), arguments)
