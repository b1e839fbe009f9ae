"""diffusers: the training scripts of its examples, from their command lines.

accelerate steps the scheduler once for each process, and most scripts multiply its lengths by the
number of processes, so that they are updates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import sympy as sp

from closedform.frameworks.diffusers.process_steps import CLOCK, piecewise_constant, run_of
from closedform.frameworks.transformers.schedules import schedule_by_name
from closedform.language import Schedule, exact_number
from closedform.recipes import kit
from closedform.schedules import constant
from closedform.schedules.blends import along_line

# The last commit at which an epoch had the batches of all processes (diffusers#8312).
BEFORE = "3511a9623f^"
CURVES = (
    "constant",
    "constant_with_warmup",
    "cosine",
    "cosine_with_restarts",
    "linear",
    "polynomial",
)


class LengthFactor(StrEnum):
    """The number by which a script multiplies the lengths of its scheduler.

    ``SHARDED``: the number of processes, with an epoch of one process. ``WHOLE``: the number of
    processes, with an epoch of all processes. ``ACCUMULATED``: the micro-batches of an update.
    ``MICRO_BATCHES``: the same for the warmup; the decay is counted in micro-batches.
    """

    SHARDED = "sharded"
    WHOLE = "whole"
    ACCUMULATED = "accumulated"
    MICRO_BATCHES = "micro_batches"


@dataclass(frozen=True, slots=True)
class ScriptDefaults:
    """A script by the defaults of its flags.

    Attributes:
        learning_rate: Default of ``--learning_rate``.
        epochs: Default of ``--num_train_epochs``.
        weight_decay: Default of ``--adam_weight_decay``.
        batch: Default of ``--train_batch_size``.
        lengths: The number by which it multiplies lengths.
        lr_scheduler: Default of ``--lr_scheduler``.
        beta1: Default of ``--adam_beta1``.
    """

    learning_rate: float
    epochs: int
    weight_decay: float
    batch: int
    lengths: LengthFactor = LengthFactor.SHARDED
    lr_scheduler: str = "constant"
    beta1: float = 0.9


# SHARDED scripts divide the epoch by the processes since 3511a9623f; WHOLE ones still do not.
# Defaults of the flags of examples/*/*.py at 58eb52c08.
_DREAMBOOTH = ScriptDefaults(5e-6, 1, 0.01, 4)
_LORA = ScriptDefaults(1e-4, 1, 1e-4, 4)
_TEXT_TO_IMAGE = ScriptDefaults(1e-4, 100, 0.01, 16)
_FAMILIES: tuple[tuple[ScriptDefaults, str], ...] = (
    (_DREAMBOOTH, "train_dreambooth train_controlnet train_controlnet_sdxl train_control_flux"),
    (_DREAMBOOTH, "train_control_lora_flux"),
    (
        replace(_DREAMBOOTH, lengths=LengthFactor.WHOLE),
        "train_control_cogview4 train_controlnet_flux train_controlnet_sd3",
    ),
    (replace(_DREAMBOOTH, learning_rate=1e-5), "train_custom_diffusion"),
    (replace(_DREAMBOOTH, learning_rate=5e-4), "train_dreambooth_lora"),
    (_LORA, "train_dreambooth_flux train_dreambooth_lora_flux train_dreambooth_lora_flux2"),
    (_LORA, "train_dreambooth_lora_flux2_img2img train_dreambooth_lora_flux2_klein"),
    (_LORA, "train_dreambooth_lora_flux2_klein_img2img train_dreambooth_lora_flux_advanced"),
    (_LORA, "train_dreambooth_lora_flux_kontext train_dreambooth_lora_ideogram4"),
    (_LORA, "train_dreambooth_lora_sd15_advanced train_dreambooth_lora_sd3"),
    (_LORA, "train_dreambooth_lora_sdxl train_dreambooth_lora_sdxl_advanced"),
    (_LORA, "train_dreambooth_lora_z_image"),
    (
        replace(_LORA, lengths=LengthFactor.WHOLE),
        "train_dreambooth_sd3 train_dreambooth_lora_hidream train_dreambooth_lora_lumina2 "
        "train_dreambooth_lora_qwen_image train_dreambooth_lora_sana",
    ),
    (replace(_LORA, learning_rate=3e-4, lengths=LengthFactor.WHOLE), "train_dreambooth_lora_krea2"),
    (_TEXT_TO_IMAGE, "train_text_to_image train_text_to_image_lora train_instruct_pix2pix"),
    (_TEXT_TO_IMAGE, "textual_inversion_sdxl"),
    (replace(_TEXT_TO_IMAGE, lengths=LengthFactor.WHOLE), "textual_inversion"),
    (
        replace(_TEXT_TO_IMAGE, lengths=LengthFactor.ACCUMULATED),
        "train_text_to_image_sdxl train_text_to_image_lora_sdxl train_instruct_pix2pix_sdxl",
    ),
    (
        ScriptDefaults(1e-4, 100, 0, 1, LengthFactor.ACCUMULATED),
        "train_text_to_image_decoder train_text_to_image_lora_decoder "
        "train_text_to_image_prior train_text_to_image_lora_prior",
    ),
    (
        ScriptDefaults(1e-4, 100, 1e-6, 16, LengthFactor.MICRO_BATCHES, "cosine", 0.95),
        "train_unconditional",
    ),
)
SCRIPTS = {name: script for script, names in _FAMILIES for name in names.split()}
"""The scripts of examples/ by name."""


class Arguments(
    kit.ArgumentSection,
    irrelevant="ddpm_beta_schedule ema_decay ema_max_decay huber_schedule prodigy_beta3 "
    "prodigy_decouple prodigy_safeguard_warmup prodigy_use_bias_correction "
    "validation_scheduler",
):
    lr_scheduler: str | None = kit.choice(*CURVES, "piecewise_constant", default=None)
    learning_rate: kit.Rate | None = None
    # 500 is the default of all scripts, also of those whose default scheduler ignores it.
    lr_warmup_steps: kit.Steps = kit.integer(500, least=0)
    lr_num_cycles: int = 1
    lr_power: kit.Power = 1
    max_train_steps: kit.Steps | None = kit.integer(None, least=1)
    num_train_epochs: kit.Epochs | None = kit.integer(None, least=1)
    num_epochs: kit.Epochs | None = kit.integer(None, least=1)
    gradient_accumulation_steps: kit.Accumulation = kit.integer(1, least=1)
    train_batch_size: kit.BatchSize | None = kit.integer(None, least=1)
    scale_lr: bool = False
    adam_beta1: kit.Momentum | None = None
    adam_beta2: kit.Momentum = 0.999
    adam_epsilon: kit.Epsilon = 1e-8
    adam_weight_decay: kit.WeightDecay | None = None
    adam_weight_decay_text_encoder: kit.WeightDecay = 1e-3
    max_grad_norm: kit.Norm = 1
    optimizer: str = "AdamW"
    text_encoder_lr: kit.Rate | None = None
    train_text_encoder: bool = False
    use_8bit_adam: bool = False


class Rules(kit.Section):
    learning_rate: kit.Rate
    lr_scheduler: str = ""
    step_rules: str


class Linear(kit.Section):
    learning_rate: kit.Rate
    num_warmup_steps: kit.Steps
    num_training_steps: kit.Steps
    f_min: kit.RateRatio = 0
    f_max: kit.RateRatio = 1


@dataclass(frozen=True, slots=True)
class ScriptRun:
    """The numbers of a run, lengths in updates.

    Attributes:
        script: The script.
        kind: The scheduler.
        rate: The rate, scaled where the flags ask for it.
        processes: The processes, 1 where the schedule does not depend on their number.
        updates: The updates of the run.
        warmup: The length of the warmup, in steps of the scheduler.
        total: The number of steps of the scheduler that ends its decay.
    """

    script: ScriptDefaults
    kind: str
    rate: sp.Expr
    processes: int
    updates: int
    warmup: kit.Steps
    total: int


DEFECTS: Mapping[str, kit.Note[[Any, Arguments]]] = {
    "unconditional-accumulation": kit.Defect(
        "train_unconditional counts the decay in micro-batches and multiplies the warmup by the "
        "accumulation, not by the processes, but steps the scheduler at updates: with accumulation "
        "the decay is not finished",
        "examples/unconditional_image_generation/train_unconditional.py:526",
        lambda plan, arguments: (
            plan.script.lengths is LengthFactor.MICRO_BATCHES and _departs(plan, arguments)
        ),
        documented="a warmup of lr_warmup_steps updates, and a decay to the end of the run",
        classes=CURVES[1:],
    ),
    "accumulation-for-processes": kit.Defect(
        "the script multiplies the lengths by the accumulation, not by the processes",
        "examples/text_to_image/train_text_to_image_sdxl.py:953",
        lambda plan, arguments: (
            plan.script.lengths is LengthFactor.ACCUMULATED and _departs(plan, arguments)
        ),
        documented="a warmup of lr_warmup_steps updates, and a decay to the end of the run",
        classes=CURVES[1:],
    ),
    "epochs-of-all-processes": kit.Defect(
        "a run of epochs counts the batches of all processes for each of them: its decay is as "
        "many times too long",
        "examples/text_to_image/train_text_to_image.py:818 (before 3511a9623f; others today)",
        lambda plan, arguments: (
            plan.script.lengths in (LengthFactor.SHARDED, LengthFactor.WHOLE)
            and _departs(plan, arguments)
        ),
        documented="a decay to the end of the run",
        classes=CURVES[1:],
    ),
    "warmup-of-constant": kit.Convention(
        "constant ignores lr_warmup_steps, which are 500 by default",
        "src/diffusers/optimization.py:323",
        lambda plan, arguments: plan.kind == "constant" and arguments.lr_warmup_steps > 0,
        classes=("constant",),
    ),
    "warmup-of-the-run": kit.Convention(
        "a polynomial whose warmup is as long as the run divides by zero after the last update",
        "src/diffusers/optimization.py:277",
        lambda plan, arguments: plan.kind == "polynomial" and plan.warmup == plan.total,
        classes=("polynomial",),
    ),
}


def _departs(plan: ScriptRun, arguments: Arguments) -> bool:
    """Whether the lengths of a schedule differ from the flags or from the run."""
    if plan.warmup != arguments.lr_warmup_steps * plan.processes and plan.kind != "constant":
        return True
    has_end = plan.kind not in ("constant", "constant_with_warmup")
    return has_end and plan.total != plan.updates * plan.processes


def _script(context: kit.Context, arguments: Arguments) -> ScriptDefaults:
    name = context.facts.get("script")
    if name is None and "num_epochs" in arguments:
        name = "train_unconditional"
    if name is None:
        raise kit.missing_facts(
            "script",
            arguments.origin.document.source,
            "give the name of the script, such as train_text_to_image",
        )
    kit.refuse_unless(name in SCRIPTS, f"the script {name!r:.60} is not known", context.where)
    return SCRIPTS[name]


def _plan(context: kit.Context, arguments: Arguments) -> ScriptRun:
    script, where = _script(context, arguments), context.where
    if context.version == BEFORE and script.lengths is LengthFactor.SHARDED:
        script = replace(script, lengths=LengthFactor.WHOLE)
    is_unconditional = script.lengths is LengthFactor.MICRO_BATCHES
    absent = ("num_train_epochs", "max_train_steps") if is_unconditional else ("num_epochs",)
    # train_unconditional has --num_epochs, the others --num_train_epochs and --max_train_steps.
    for name in absent:
        kit.refuse_unless(name not in arguments, f"the script has no flag --{name}", where)
    epochs = arguments.num_train_epochs or arguments.num_epochs or script.epochs
    facts, accumulation = context.numbers, arguments.gradient_accumulation_steps
    kind, updates = arguments.lr_scheduler or script.lr_scheduler, arguments.max_train_steps
    if (
        updates is None
        and script.lengths is LengthFactor.SHARDED
        and not facts.micro_batches_per_epoch
    ):
        # The decay of these scripts ends with the run, so total_updates determines both lengths.
        updates = facts.total_updates
    end, batches = updates, 0
    # Where the processes multiply all lengths, the schedule in updates does not depend on them.
    is_free = script.lengths is not LengthFactor.ACCUMULATED or kind == "constant"
    if updates is not None and is_free and not arguments.scale_lr and facts.world_size is None:
        facts = replace(facts, world_size=1)
    names = ("world_size", "micro_batches_per_epoch")[: 1 if updates is not None else 2]
    processes, *rest = (int(number) for number in facts.require(*names, where=where))
    if updates is None or end is None:
        (batches,) = rest
        # -(-a // b) is ceil(a / b): a smaller last group of micro-batches makes an update, too.
        updates = epochs * -(-math.ceil(batches / processes) // accumulation)
        is_sharded = script.lengths is LengthFactor.SHARDED
        # The scripts that were not changed count the batches of all processes: the decay is P times
        # too long (diffusers#8312).
        end = updates if is_sharded else epochs * -(-batches // accumulation)
    is_accumulated = script.lengths in (LengthFactor.ACCUMULATED, LengthFactor.MICRO_BATCHES)
    factor = accumulation if is_accumulated else processes
    lengths = (arguments.lr_warmup_steps * factor, end * factor)
    if is_unconditional:
        # train_unconditional.py:526 counts the decay in micro-batches of all processes.
        lengths = (lengths[0], batches * epochs)
    if not context.as_implemented:
        lengths = (arguments.lr_warmup_steps * processes, updates * processes)
    rate = arguments.learning_rate
    rate = exact_number(script.learning_rate) if rate is None else rate
    if arguments.scale_lr:
        # scale_lr multiplies by the samples of an update.
        rate *= accumulation * (arguments.train_batch_size or script.batch) * processes
    return ScriptRun(script, kind, rate, processes, updates, *lengths)


def _rate(context: kit.Context, arguments: Arguments, plan: ScriptRun, rate: sp.Expr) -> Schedule:
    kit.refuse_unless(
        plan.kind in CURVES,
        "piecewise_constant needs step rules, which the scripts do not pass",
        context.where,
    )
    run = run_of(context, rate, plan.warmup, plan.total, plan.processes)
    keywords = {
        "cosine_with_restarts": {"num_cycles": arguments.lr_num_cycles},
        "polynomial": {"power": arguments.lr_power},
    }
    origin = arguments.origin
    return schedule_by_name(
        plan.kind, kit.RawSection(origin.document, keywords.get(plan.kind, {}), origin.path), run
    )


def _of_script(context: kit.Context, arguments: Arguments) -> Schedule:
    plan = _plan(context, arguments)
    message = f"the config must ask for {context.path[-1]!r}, got {plan.kind!r}"
    kit.refuse_unless(plan.kind == context.path[-1], message, context.where)
    return _rate(context, arguments, plan, plan.rate)


def _of_rules(context: kit.Context, arguments: Rules) -> Schedule:
    # Rules need neither a warmup nor a length.
    run = run_of(context, arguments.learning_rate, 0, 1, 1)
    return piecewise_constant(run, arguments.step_rules)


def _linear(context: kit.Context, arguments: Linear) -> Schedule:
    warmup, total = arguments.num_warmup_steps, arguments.num_training_steps
    # The peak of the warmup is f_max times the rate.
    rate = arguments.learning_rate

    def value(n: float) -> Any:
        if n < warmup:
            return arguments.f_max * rate * n / warmup
        part = max(0, (total - n) / max(1, total - warmup))
        return rate * along_line(arguments.f_min, arguments.f_max, part)

    return kit.curve("linear", value)


_KOHYA = ("lr_scheduler_num_cycles", "max_train_epochs", "network_module", "optimizer_type")
_TYPICAL = ("gradient_accumulation_steps", "lr_scheduler", "lr_warmup_steps", "num_train_epochs")


def is_script(document: kit.Document) -> bool:
    """Returns whether a config is a command line of one of the scripts, or like one."""
    content = document.content
    if document.syntax is not kit.Syntax.ARGUMENTS or any(key in content for key in _KOHYA):
        return False
    return document.program in SCRIPTS or (
        not document.program
        and "train_batch_size" in content
        and ("learning_rate" in content or "scale_lr" in content)
        and any(key in content for key in _TYPICAL)
    )


def _read(reading: kit.Reading) -> kit.Recipe:
    arguments = Arguments.read_whole(reading.document)
    context = reading.context
    if "script" not in context.facts and reading.document.program in SCRIPTS:
        context = context.with_facts(script=reading.document.program)
    with arguments.origin.locate_errors():
        plan = _plan(context, arguments)
        rates = {"": plan.rate}
        if arguments.train_text_encoder and arguments.text_encoder_lr is not None:
            rates["text_encoder"] = arguments.text_encoder_lr
        schedules = {part: _rate(context, arguments, plan, rates[part]) for part in rates}
    decay = arguments.adam_weight_decay
    decays = {
        "": exact_number(plan.script.weight_decay) if decay is None else decay,
        "text_encoder": arguments.adam_weight_decay_text_encoder,
    }
    beta1 = arguments.adam_beta1
    betas = (plan.script.beta1 if beta1 is None else beta1, arguments.adam_beta2)
    name = arguments.optimizer
    is_adam = name.lower() == "adamw"
    is_compressed = is_adam and arguments.use_8bit_adam
    optimizer = kit.plan_optimizer(
        "AdamW8bit" if is_compressed else name,
        {"betas": betas, "eps": arguments.adam_epsilon, "weight_decay": decays[""]},
        "adamw" if is_adam and not is_compressed else None,
        arguments.origin.document.place("optimizer"),
        by_name=False,
    )
    groups = [
        # Text encoders have their own rate and weight decay, but the same optimizer.
        kit.ParamGroup(
            {"lr": schedule, "weight_decay": constant(decays[part])},
            optimizer,
            kit.Role.of(part),
            part,
        )
        for part, schedule in schedules.items()
    ]
    return reading.recipe(
        groups,
        horizon=plan.updates,
        clipping=kit.Clipping(arguments.max_grad_norm),
        accumulation=arguments.gradient_accumulation_steps,
        values=(plan, arguments),
    )


FRAMEWORK = kit.Framework(
    "diffusers",
    {
        **kit.section_entries(dict.fromkeys(CURVES, _of_script), {"": Arguments}),
        **kit.section_entries({"piecewise_constant": _of_rules}, {"": Rules}),
        **kit.section_entries({"get_linear_schedule_with_warmup": _linear}, {"": Linear}),
    },
    versions=("58eb52c0803e", BEFORE),
    repository="https://github.com/huggingface/diffusers",
    upstream="src/diffusers/optimization.py, examples/*/*.py",
    clock=CLOCK,
    defects=DEFECTS,
    reader=kit.Reader(_read, is_script),
    facts=("script",),
)
