"""The dtypes of the parameters of a model, and of the rules that train them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from closedform.errors import TrainingExportError
from closedform.ir.types import DType
from closedform.language import UpdateRule
from closedform.language.functions import STORED
from closedform.language.groups import Group

if TYPE_CHECKING:
    import torch

_WORDS = {f"torch.{DType(word).row.name}": word for word in ("f32", "f64", "f16", "bf16")}

LOSS_SCALE = "loss_scale"
"""The state of transforms.dynamic_loss_scaling, which multiplies the loss."""

IN_FLOAT32 = "convert a module with model.float(); export a file again from a model in float32"
"""The way out where a dtype is not supported, for a torch module and for an ONNX file."""

_LISTED = 3


def rules_by_name(
    params: Mapping[str, torch.Tensor], rule: UpdateRule, groups: Sequence[Group]
) -> dict[str, UpdateRule]:
    """Returns the rule of each parameter: that of the first group that matches it, or ``rule``."""
    rules = {}
    for name, value in params.items():
        shape = tuple(value.shape)
        # The first match, as in update steps without a model.
        group = next((group for group in groups if group.matches(name, shape)), None)
        rules[name] = rule if group is None or group.rule is None else group.rule
    return rules


def update_dtype(
    params: Mapping[str, torch.Tensor],
    rules: Mapping[str, UpdateRule],
    where: str,
    *,
    is_file: bool,
) -> str:
    """Returns the dtype in which the rules of these parameters compute.

    A rule with masters for 16 bits trains parameters of that dtype and computes in float32, so that
    groups may train parameters in 16 bits next to ones in float32.

    Args:
        params: The parameters to train by name.
        rules: Their rules by name.
        where: The model, named in errors.
        is_file: Whether the parameters are weights of an ONNX file.

    Raises:
        ExportError: A rule has no masters for its parameters, or masters for another dtype; the
            others have several dtypes; or only some of the rules scale the loss.
    """
    if not params:
        return "f32"  # the trace raises the error
    words = {name: _WORDS.get(str(value.dtype)) for name, value in params.items()}
    stored_names = [name for name, word in words.items() if word in STORED]
    wide_words = {words[name] for name in params if name not in stored_names}
    has_masters = any(rules[name].stored for name in params)
    is_mixed = len({str(value.dtype) for value in params.values()}) > 1
    # Masters are float32.
    if len(wide_words) > 1 or None in wide_words or (stored_names and wide_words - {"f32"}):
        raise _mixed_error(params, where, is_file=is_file)
    if is_mixed and not has_masters:
        raise _mixed_error(params, where, is_file=is_file)
    for name, value in params.items():
        _check_masters(name if is_mixed else None, str(value.dtype), rules[name], where)
    scaled_names = {name for name in params if LOSS_SCALE in rules[name].shared}
    if scaled_names and len(scaled_names) < len(params):
        unscaled_name = next(name for name in params if name not in scaled_names)
        raise TrainingExportError(
            f"the loss is scaled for {next(iter(scaled_names))!r}, whose rule divides its gradient "
            f"by the scale, and the rule of {unscaled_name!r} does not",
            where=where,
            hint="wrap both rules: transforms.dynamic_loss_scaling(rule)",
        )
    return "f32" if stored_names else str(*wide_words)


def fitting_names(params: Mapping[str, torch.Tensor], rules: Mapping[str, UpdateRule]) -> list[str]:
    """Returns the weights of a file that rules train in their dtypes.

    Those in 16 bits whose rule has masters for them, and of the others those in the dtype of most
    entries, or in float32 next to masters; all in the dtype of most entries if these are none.
    """
    words = {name: _WORDS.get(str(value.dtype)) for name, value in params.items()}
    masters = {name: rules[name].stored for name in params}
    names = [name for name, word in words.items() if word in STORED and masters[name] == word]
    wide_names = [name for name, word in words.items() if word not in STORED and not masters[name]]
    if names:
        wide_names = [name for name in wide_names if words[name] == "f32"]
    names += _of_most_entries(params, wide_names)
    names = names or _of_most_entries(params, list(params))
    return [name for name in params if name in set(names)]


def _of_most_entries(params: Mapping[str, torch.Tensor], names: Sequence[str]) -> list[str]:
    entries: dict[torch.dtype, int] = {}
    for name in names:
        value = params[name]
        entries[value.dtype] = entries.get(value.dtype, 0) + value.numel()
    # Counted in entries: a file in float16 may have more tensors, small ones, in float32.
    dtype = max(entries, key=lambda key: entries[key], default=None)
    return [name for name in names if params[name].dtype is dtype]


def _mixed_error(
    params: Mapping[str, torch.Tensor], where: str, *, is_file: bool
) -> TrainingExportError:
    names: dict[str, list[str]] = {}
    for name, value in params.items():
        names.setdefault(str(value.dtype).removeprefix("torch."), []).append(name)
    supported = ", ".join(word.removeprefix("torch.") for word in _WORDS)
    subject = "weights that are trained" if is_file else "parameters"
    texts = (
        f"{dtype} ({', '.join(map(repr, of[:_LISTED]))}{', …' if len(of) > _LISTED else ''})"
        for dtype, of in sorted(names.items())
    )
    if any("complex" in dtype for dtype in names):
        hint = (
            "hold complex ones as real ones with a last axis of 2, and compute with "
            "torch.view_as_complex of them"
        )
    elif is_file:
        hint = (
            "leave trainable out, which trains weights in the dtype of the rule, or list only "
            "weights of one dtype; "
        )
    else:
        hint = "convert the model with model.float(); "
    if {"float16", "bfloat16"} & names.keys() and not {"float64"} & names.keys():
        hint += (
            "groups train 16 bits next to float32: "
            "Group(names, rule=transforms.master_weights(rule, 'f16'))"
        )
    return TrainingExportError(
        f"the {subject} must be of one dtype of {supported}, got {', '.join(texts)}",
        where=where,
        hint=hint.removesuffix("; "),
    )


def _check_masters(name: str | None, dtype: str, rule: UpdateRule, where: str) -> None:
    """Raises ExportError if a rule has no masters for a dtype, or masters for another one."""
    word, text = _WORDS[dtype], dtype.removeprefix("torch.")
    subject = "a model" if name is None else f"the parameter {name!r}"
    if word in STORED and rule.stored != word:
        raise TrainingExportError(
            f"{subject} in {text} needs a rule with masters for {word}, got {rule.name!r} "
            f"with {'none' if rule.stored is None else f'masters for {rule.stored}'}",
            where=where,
            hint=f"wrap the rule: transforms.master_weights(rule, {word!r})",
        )
    if word not in STORED and rule.stored is not None:
        raise TrainingExportError(
            f"the rule {rule.name!r} is for parameters in {rule.stored}, got {subject} in {text}",
            where=where,
            hint="convert the model with .half() or .bfloat16(), or leave the masters out"
            if name is None
            else f"give it a rule without masters: groups=[Group({name!r}, rule=…)]",
        )
