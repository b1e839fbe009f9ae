"""Ultralytics: the schedules of its trainer, and its training arguments.

The arguments are YAML, or ``key=value`` words of a command line. Warmup, accumulation and epochs
count micro-batches; an update is made when enough of them have been accumulated, which are fewer
during the warmup. The facts are ``updates_per_epoch``, the micro-batches of an epoch here as the
trainer counts them, and ``dataset_size``, the images, where the optimizer is ``auto``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import sympy as sp

from closedform.errors import DefinitionError, nearest
from closedform.language import Schedule, exact_number, floor_div, t
from closedform.recipes import kit
from closedform.schedules.blends import along_cosine, along_line

CLOCK = kit.Clock(kit.Unit.MICRO_BATCH)


_OTHERS = (
    "task mode model data patience save save_period cache device workers project name exist_ok "
    "pretrained verbose seed deterministic single_cls rect close_mosaic resume amp fraction "
    "profile freeze multi_scale compile imgsz overlap_mask mask_ratio dropout val split save_json "
    "save_hybrid conf iou max_det half dnn plots source vid_stride stream_buffer visualize augment "
    "agnostic_nms classes retina_masks embed show save_frames save_txt save_conf save_crop "
    "show_labels show_conf show_boxes line_width format keras optimize int8 dynamic simplify opset "
    "workspace nms box cls cls_pw dfl pose kobj rle angle label_smoothing hsv_h hsv_s hsv_v "
    "degrees translate scale shear perspective flipud fliplr bgr mosaic mixup cutmix copy_paste "
    "copy_paste_mode auto_augment erasing crop_fraction cfg tracker save_dir"
)
"""The keys of ``default.yaml`` on data, losses, validation, prediction and export."""


class Arguments(kit.OpenSection, irrelevant=_OTHERS):
    """The keys that decide on schedules, with the defaults of ``default.yaml``."""

    epochs: kit.Epochs = 100
    batch: kit.BatchSize = 16
    nbs: kit.BatchSize = 64
    optimizer: str = "auto"
    cos_lr: bool = False
    lr0: kit.Rate = 0.01
    lrf: kit.RateRatio = 0.01
    momentum: kit.Momentum = 0.937
    weight_decay: kit.WeightDecay = 0.0005
    warmup_epochs: kit.RealEpochs = 3.0
    warmup_momentum: kit.Momentum = 0.8
    warmup_bias_lr: kit.StartRate = 0.1
    nc: int | None = None


_WITH_BETAS = ("Adam", "Adamax", "AdamW", "NAdam", "RAdam")
_WITH_MOMENTUM = ("RMSprop", "SGD", "MuSGD")
_OPTIMIZERS = (*_WITH_BETAS, *_WITH_MOMENTUM, "auto")
_GROUPS = ("weight", "bn", "bias", "muon")
_MAX_WARMUP = 100_000
"""The most updates of a warmup that are written out one by one."""
_AUTO_MANY = 10_000
"""The number of updates above which ``optimizer=auto`` takes MuSGD."""


@dataclass(frozen=True, slots=True)
class UltralyticsRun:
    """The numbers of a run.

    Attributes:
        values: The arguments.
        optimizer: The name of the optimizer, after ``auto``.
        rate: The rate before the schedule.
        momentum: The momentum that the optimizer is built with.
        bias_rate: The rate of biases at the start of the warmup.
        batches: The micro-batches of an epoch.
        warmup: The micro-batches of the warmup.
        accumulate: The micro-batches of an update, after the warmup.
        group: The param group.
    """

    values: Arguments
    optimizer: str
    rate: sp.Expr
    momentum: sp.Expr
    bias_rate: sp.Expr
    batches: int
    warmup: kit.Steps
    accumulate: int
    group: str


def _run(context: kit.Context, values: Arguments) -> UltralyticsRun:
    for key in ("epochs", "batch", "nbs"):
        length = getattr(values, key)
        if length <= 0:
            more = ": AutoBatch is not read" if key == "batch" else ""
            raise values.error(f"{key} must be above 0, got {length}{more}", key)
    batches = int(context.fact("batches_per_epoch"))
    if batches <= 0:
        raise values.error(f"batches_per_epoch must be above 0, got {batches}")
    group = context.facts.get("param_group", _GROUPS[0])
    if group not in _GROUPS:
        raise values.error(f"param_group must be one of {', '.join(_GROUPS)}, got {group!r}")
    name = _optimizer(values)
    rate, momentum, bias = values.lr0, values.momentum, values.warmup_bias_lr
    if name == "auto":
        name, rate = _auto(context, values)
        momentum, bias = sp.Rational(9, 10), sp.S.Zero
    # min(·, epochs - 1): a warmup never takes the whole run.
    warm = min(values.warmup_epochs, values.epochs - 1)
    return UltralyticsRun(
        values,
        name,
        rate,
        momentum,
        bias,
        batches,
        # round() of Python takes halves to even.
        round(float(warm) * batches) if warm > 0 else 0,
        min(_nominal_accumulation(values), batches * values.epochs),
        group,
    )


def _nominal_accumulation(values: Arguments) -> int:
    """The micro-batches of an update that have the nominal batch size together."""
    steps: int = round(values.nbs / values.batch)
    return max(steps, 1)


def _optimizer(values: Arguments) -> str:
    """The optimizer under its own name; case does not matter."""
    names = {name.lower(): name for name in _OPTIMIZERS}
    name = values.optimizer
    if name.lower() not in names:
        hint = nearest(name, _OPTIMIZERS)
        raise values.error(f"there is no optimizer {name!r}", "optimizer", hint)
    return names[name.lower()]


def _auto(context: kit.Context, values: Arguments) -> tuple[str, sp.Expr]:
    """The choice of ``optimizer=auto``: by the number of updates and of classes."""
    images = context.facts.get("images")
    images = context.fact("dataset_size") if images is None else images
    updates = math.ceil(int(images) / max(values.batch, values.nbs)) * values.epochs
    if updates > _AUTO_MANY:
        return "MuSGD", sp.Rational(1, 100)
    # engine/trainer.py@8.4.190, build_optimizer: data.get("nc", 10); check_det_dataset and
    # check_cls_dataset set it to the number of classes of the data, so that 10 is never used.
    classes = values.nc or context.fact("nc")
    return "AdamW", exact_number(round(0.002 * 5 / (4 + int(classes)), 6))


@dataclass(frozen=True, slots=True)
class _Warmup:
    """The updates of the warmup: their micro-batches, and the micro-batch of the first after it."""

    batches: tuple[int, ...]
    next_batch: int


def _accumulated(run: UltralyticsRun, batch: int) -> int:
    """The number of micro-batches that make an update at micro-batch ``batch``."""
    if not run.warmup or batch > run.warmup:
        return run.accumulate
    if batch == run.warmup:
        return run.accumulate
    # In the order of np.interp, which decides on ties.
    return max(1, round((run.accumulate - 1) / run.warmup * batch + 1))


def _warmup(run: UltralyticsRun) -> _Warmup:
    last, batch, batches = -1, 0, []
    while run.warmup and batch <= run.warmup:
        # An update happens when `accumulate` micro-batches have passed since the last one, a number
        # that grows meanwhile.
        if batch - last >= _accumulated(run, batch):
            batches.append(batch)
            last = batch
            if len(batches) > _MAX_WARMUP:
                raise run.values.error(f"a warmup must have at most {_MAX_WARMUP} updates")
        batch += 1
    return _Warmup(tuple(batches), max(batch, last + run.accumulate))


FactorFunction = Callable[[sp.Expr], sp.Expr]
"""A function of the number of the micro-batch."""


def _by_updates(run: UltralyticsRun, rise: FactorFunction, rest: FactorFunction) -> Schedule:
    """The schedule of the updates: one curve during the warmup, another one after it."""
    name, warmup = _name(run.values), _warmup(run)
    length = len(warmup.batches)
    if run.accumulate == 1:
        # With one micro-batch an update, update t is micro-batch t, and the line needs no table.
        return kit.by_intervals(name, (lambda: rise(t), length), (rest(t), None))
    stages = [(rise(sp.Integer(batch)), end) for end, batch in enumerate(warmup.batches, 1)]
    after = warmup.next_batch + run.accumulate * (t - length)
    return kit.by_intervals(name, *stages, (rest(after), None))


def _name(values: Arguments) -> str:
    return "cos_lr" if values.cos_lr else "linear"


def _rate(run: UltralyticsRun) -> Schedule:
    start = run.bias_rate if run.group == "bias" else sp.S.Zero
    last, total = run.values.lrf, sp.Integer(run.values.epochs)

    def decayed(batch: sp.Expr) -> sp.Expr:
        # floor_div: the factor changes once in an epoch.
        progress = floor_div(batch, run.batches) / total
        if run.values.cos_lr:
            return run.rate * along_cosine(sp.S.One, last, progress)
        return run.rate * along_line(sp.S.One, last, sp.Min(1, progress))

    def rise(batch: sp.Expr) -> sp.Expr:
        # From the rate of the current epoch, which falls meanwhile: not monotone.
        return along_line(start, decayed(batch), batch / sp.Integer(run.warmup))

    return _by_updates(run, rise, decayed)


def _momentum(run: UltralyticsRun) -> Schedule:
    if run.optimizer not in _WITH_MOMENTUM:
        raise run.values.error(f"{run.optimizer} has betas, not a momentum")
    first, last = run.values.warmup_momentum, run.values.momentum
    # The warmup ends at the momentum of the config, even if the optimizer was built with another.
    after = last if run.warmup else run.momentum
    return _by_updates(
        run,
        lambda batch: along_line(first, last, batch / sp.Integer(run.warmup)),
        lambda batch: after,
    )


def _first_beta(run: UltralyticsRun) -> Schedule:
    if run.optimizer not in _WITH_BETAS:
        raise run.values.error(f"{run.optimizer} has a momentum, no betas")
    return Schedule(run.momentum, name=_name(run.values))


def _accumulation(run: UltralyticsRun) -> Schedule:
    def needed(batch: sp.Expr) -> sp.Expr:
        return sp.Integer(_accumulated(run, int(batch))) if run.accumulate > 1 else sp.S.One

    return _by_updates(run, needed, lambda batch: sp.Integer(run.accumulate))


def _weight_decay(run: UltralyticsRun) -> Schedule:
    values = run.values
    # Before the accumulation is cut to the length of the run.
    scaled = values.weight_decay * values.batch * _nominal_accumulation(values) / values.nbs
    decay = scaled if run.group in ("weight", "muon") else sp.S.Zero
    return Schedule(decay, name=_name(values))


_KEYS: Mapping[str, Callable[[UltralyticsRun], Schedule]] = {
    "lr": _rate,
    "momentum": _momentum,
    "beta1": _first_beta,
    "accumulate": _accumulation,
    "weight_decay": _weight_decay,
}


def _schedule(context: kit.Context, values: Arguments) -> Schedule:
    """The schedule of the key and the param group of a context."""
    if context.key not in _KEYS:
        raise DefinitionError(
            f"the trainer has no {context.key!r}",
            where=context.where,
            hint=f"it has {', '.join(_KEYS)}",
        )
    return _KEYS[context.key](_run(context, values))


DEFECTS: Mapping[str, kit.Note[[UltralyticsRun]]] = {
    "warmup-to-current-epoch": kit.Convention(
        "the warmup rises to the rate of the current epoch, so it is not monotone",
        "ultralytics/engine/trainer.py:528",
        lambda run: run.warmup > 0,
    ),
    "betas-without-warmup": kit.Convention(
        "the warmup does not change the betas of an optimizer that has them",
        "ultralytics/engine/trainer.py:537",
        lambda run: run.warmup > 0 and run.optimizer in _WITH_BETAS,
    ),
    "auto-ignores-lr0": kit.Convention(
        "optimizer=auto ignores lr0, momentum and warmup_bias_lr",
        "ultralytics/engine/trainer.py:1180",
        lambda run: run.values.optimizer.lower() == "auto",
    ),
    "decay-scaled": kit.Convention(
        "the weight decay is scaled by batch * accumulate / nbs",
        "ultralytics/engine/trainer.py:322",
        lambda run: True,
    ),
}
_ROLES = (
    ("weight", kit.Role.DEFAULT, ""),
    ("bn", kit.Role.NORM, "bn"),
    ("bias", kit.Role.BIAS, "bias"),
)
"""The groups of the trainer, their roles, and their names here."""


def _matches(document: kit.Document) -> bool:
    keys = ("lr0", "lrf", "warmup_epochs", "warmup_bias_lr", "nbs")
    return sum(key in document.content for key in keys) >= 2


def _read(reading: kit.Reading) -> kit.Recipe:
    values = Arguments.read_whole(reading.document)
    context = reading.context.with_facts(**_facts(reading.facts, values, reading.document.source))
    with values.origin.locate_errors():
        run = _run(context, values)
        keys = ["lr", "weight_decay", *(["momentum"] if run.optimizer in _WITH_MOMENTUM else [])]
        plan = _plan(run)
        groups = []
        for group, role, name in _ROLES:
            place = context.with_facts(param_group=group)
            schedules = {key: _schedule(replace(place, key=key), values) for key in keys}
            groups.append(kit.ParamGroup(schedules, plan, role, name))
        needed = _accumulation(run)
    return reading.recipe(
        groups,
        horizon=_updates(needed, run.batches * values.epochs),
        clipping=kit.Clipping(10.0),
        accumulation=run.accumulate,
        values=(run,),
    )


def _facts(facts: kit.Facts, values: Arguments, where: str) -> dict[str, int]:
    """The numbers of the run: the micro-batches of an epoch, and the images."""
    batches = facts.framework_facts.get("batches_per_epoch", facts.updates_per_epoch)
    images = facts.dataset_size
    if images is None and (batches is None or _optimizer(values) == "auto"):
        if _optimizer(values) == "auto" and values.nc is None and "nc" not in facts.framework_facts:
            raise kit.missing_facts(
                "dataset_size, nc",
                where,
                "optimizer=auto chooses by the images and, in a short run, by the classes",
            )
        facts.require("dataset_size", where=where)
    if values.batch <= 0:
        raise values.error(
            f"batch must be above 0, got {values.batch}: AutoBatch is not read", "batch"
        )
    if batches is None:
        batches = math.ceil((images or 0) / values.batch)
    numbers = {"images": images, "nc": facts.framework_facts.get("nc")}
    return {"batches_per_epoch": batches} | {
        name: number for name, number in numbers.items() if number is not None
    }


def _updates(needed: Schedule, batches: int) -> int:
    """The updates of the run: each takes as many micro-batches as are accumulated at that time.

    After the warmup the number does not change, so that only updates of the warmup are counted.
    """
    last = int(needed.exact(10**9))
    batch_count, updates = 0, 0
    while batch_count < batches:
        size = int(needed.exact(updates))
        if size == last:
            return updates + (batches - batch_count) // size
        batch_count += size
        updates += 1
    return updates


def _plan(run: UltralyticsRun) -> kit.OptimizerPlan:
    name, momentum, origin = run.optimizer, run.momentum, run.values.origin
    place = origin.document.place(origin.at("optimizer"))
    if name in ("SGD", "MuSGD"):
        rule = "sgd" if name == "SGD" else name
        return kit.plan_optimizer(rule, {"momentum": momentum, "nesterov": True}, where=place)
    if name == "RMSprop":
        return kit.plan_optimizer("rmsprop", {"momentum": momentum}, where=place)
    return kit.plan_optimizer(name, {"betas": (momentum, 0.999)}, where=place)


FRAMEWORK = kit.Framework(
    "ultralytics",
    kit.section_entries(
        dict.fromkeys(("linear", "cos_lr"), _schedule), {"": Arguments}, style=_name
    ),
    versions=("8.4.190",),
    repository="https://github.com/ultralytics/ultralytics",
    upstream="ultralytics/engine/trainer.py, ultralytics/cfg/default.yaml",
    clock=CLOCK,
    defects=DEFECTS,
    facts=("batches_per_epoch", "nc"),
    reader=kit.Reader(_read, _matches),
)
