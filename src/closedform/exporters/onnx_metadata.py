"""The metadata of files: its keys, the version of their schema, and how both are written and read.

docs/metadata_of_onnx_files.md is this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onnx import ModelProto, helper

from closedform.errors import SessionError

PREFIX = "closedform."

SCHEMA_KEY = f"{PREFIX}schema"
"""The entry with the version of the schema; files from before it had a version have none."""

SCHEMA = 1
"""The version of the schema: raised where a reader of the former one would misread an entry."""

RULE_SUFFIX = ".rule"
"""The end of the key of a verdict on the update in the file of a training step."""


@dataclass(frozen=True, slots=True)
class MetadataKey:
    """An entry of ``metadata_props``.

    Attributes:
        key: Its key.
        content: Its content: text, or the structure of its JSON.
        files: The files that have it.
    """

    key: str
    content: str
    files: str


_SCHEDULES, _RULES, _STEPS = "schedules", "rules", "training steps"
_FORMULAS = f"{_SCHEDULES}, {_RULES}"
_ALL = f"{_FORMULAS}, {_STEPS}"

KEYS = (
    MetadataKey(SCHEMA_KEY, "the version of this schema", _ALL),
    MetadataKey("closedform.version", "the version of the package", _ALL),
    MetadataKey("closedform.clock", "the meaning of the step", _ALL),
    MetadataKey(
        "closedform.expression",
        "the schedule, or the next value of a parameter, as SymPy's `srepr`",
        _FORMULAS,
    ),
    MetadataKey("closedform.latex", "the expression in LaTeX", _FORMULAS),
    MetadataKey("closedform.hyperparameters", "JSON: `{name: value as text}`", _FORMULAS),
    MetadataKey("closedform.claims", "JSON: a list of claims with their verdicts", _SCHEDULES),
    MetadataKey("closedform.definitions", "JSON: `{name: srepr}` of inner values", _RULES),
    MetadataKey("closedform.shared", "JSON: `{state of the model: srepr of the next}`", _RULES),
    MetadataKey("closedform.advances", "`srepr` of the condition for the step to count", _RULES),
    MetadataKey("closedform.evaluation", "`srepr` of the point of evaluation", _RULES),
    MetadataKey(
        "closedform.groups", "JSON: a list of `{rule, hyperparameters, params: [name]}`", _RULES
    ),
    MetadataKey(
        "closedform.translation",
        "JSON: `{status, reason, grounds, proved_until?, parts?}`, the verdict on the formula",
        _FORMULAS,
    ),
    MetadataKey(
        "closedform.floats", "JSON: `{status, reason, …}`, the verdict on the floats", _FORMULAS
    ),
    MetadataKey(
        f"closedform.translation{RULE_SUFFIX}", "`closedform.translation` of the update", _STEPS
    ),
    MetadataKey("closedform.rule", "the name of the rule", _STEPS),
    MetadataKey("closedform.model", "the class of the model", _STEPS),
    MetadataKey(
        "closedform.indices",
        "JSON: a list of `{input, size, low, is_from_end, free, cuts, steps?}`, ranges of indices",
        _STEPS,
    ),
    MetadataKey("closedform.steps", "the steps after which its schedules end", _STEPS),
    MetadataKey(
        "closedform.sizes",
        "JSON: a list of `{left, relation, right}`, conditions on the free sizes",
        _STEPS,
    ),
    MetadataKey(
        "closedform.names",
        "JSON: `{name here: name in the ONNX file that was trained}`",
        "`eval.onnx` of an ONNX file",
    ),
)


def set_metadata(model: ModelProto, entries: Mapping[str, str]) -> None:
    """Replaces the metadata of a model, in the order of its keys, with the version of the schema.

    A model without an entry of closedform gets no version.
    """
    is_ours = any(key.startswith(PREFIX) for key in entries)
    version = {SCHEMA_KEY: str(SCHEMA)} if is_ours else {}
    helper.set_model_props(model, dict(sorted({**entries, **version}.items())))


def check_schema(metadata: Mapping[str, str], where: str) -> None:
    """Raises SessionError if the metadata of a file has a later schema than this version reads."""
    text = metadata.get(SCHEMA_KEY, "0")
    if text.isdecimal() and int(text) <= SCHEMA:
        return
    raise SessionError(
        f"{SCHEMA_KEY} must be an integer up to {SCHEMA}, got {text[:20]!r}",
        where=where,
        hint="the file is of a later version of closedform: install that one, or export it again",
    )
