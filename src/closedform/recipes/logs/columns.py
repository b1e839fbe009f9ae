"""The columns of a log by their names: the count of updates, keys of param groups, metrics."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from closedform.errors import ConfigError

STEPS = (
    *("step", "global_step", "_step", "iteration", "iter", "update", "num_updates", "steps"),
    "trainer/global_step",
)
"""Names of the column of updates, of which the first counts; ``train/`` before it is left out."""

EPOCHS = ("epoch", "epochs")
"""Names of the column of epochs, which counts where there is no column of updates."""

KEYS: Mapping[str, tuple[str, ...]] = {
    "lr": ("lr", "learning_rate", "learning-rate"),
    "weight_decay": ("weight_decay", "wd", "weight-decay"),
    "momentum": ("momentum",),
}
"""Key of the param group -> the names of its column, without the prefix up to the last ``/``."""

MULTIPLIERS = ("lrm", "lr_mult", "lr_multiplier")
"""Names of the rate in units of the largest rate."""

_LONGEST_NAME = 200

_LIGHTNING = re.compile(
    r"lr-(?P<optimizer>[a-z_][a-z0-9_]*?)(?:-(?P<copy>\d+))?"
    r"(?:/pg(?P<group>\d+))?(?:-(?P<key>momentum|weight_decay))?"
)
"""``lr-AdamW/pg1-momentum``: the columns of Lightning's LearningRateMonitor, groups from 1 on."""

_NUMBERED = re.compile(r"(?P<name>[a-z_-]+?)[/_-]?(?:(?:param_)?group[/_-]?|pg)?(?P<group>\d+)")
"""``lr/0``, ``lr_1``, ``learning_rate/group_2``: groups from 0 on."""

_METRIC = re.compile(r"loss|metric|acc|score|perplexity|ppl|f1|map|monitor")

MOST_METRICS = 16
"""Columns of metrics of a log that are read."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column with the values of a key.

    Attributes:
        name: Its name in the log.
        key: The key of the param group.
        group: The position of the param group.
        is_multiplier: Whether the values are in units of the largest one.
        rank: The columns of one key and group in the order in which they are preferred.
    """

    name: str
    key: str
    group: int = 0
    is_multiplier: bool = False
    rank: int = 0

    @property
    def is_of_floats(self) -> bool:
        """Whether its program writes floats in full: Lightning's monitor, and W&B's exports."""
        return " - " in self.name or self.name.startswith("lr-")


def step_column(names: Iterable[str]) -> str | None:
    """Returns the name of the column of updates; None if there is none."""
    return _first(names, STEPS)


def epoch_column(names: Iterable[str]) -> str | None:
    """Returns the name of the column of epochs; None if there is none."""
    return _first(names, EPOCHS)


def metric_columns(names: Iterable[str]) -> list[str]:
    """Returns the names of columns that hold a loss or a score."""
    metrics = [name for name in names if _METRIC.search(name.lower()[:_LONGEST_NAME])]
    return metrics[:MOST_METRICS]


def key_columns(names: Iterable[str], where: str) -> list[Column]:
    """Returns the columns of keys, at most one for each key and group, sorted by group.

    Raises:
        ConfigError: Several runs of one export have values of a key.

    Example:
        >>> names = ("step", "lr-AdamW/pg1", "lr-AdamW/pg2", "run 7 - train/weight_decay")
        >>> [(column.key, column.group) for column in key_columns(names, "log.csv")]
        [('lr', 0), ('weight_decay', 0), ('lr', 1)]
    """
    candidates = [column for name in names for column in _columns(name)]
    best: dict[tuple[str, int], Column] = {}
    for column in sorted(candidates, key=lambda column: column.rank):
        first = best.setdefault((column.key, column.group), column)
        runs = [_run(candidate.name) for candidate in (first, column)]
        # Columns of several runs cannot be told apart by key and group.
        if runs[0] != runs[1] and None not in runs:
            raise ConfigError(
                f"the log has several runs: {first.name!r} and {column.name!r}",
                where=where,
                hint=f"name the column, such as column={first.name!r}, --column in a terminal",
            )
    return sorted(best.values(), key=lambda column: (column.group, column.key))


def _columns(name: str) -> Iterator[Column]:
    # W&B's exports have the extremes of each column in two more columns.
    if len(name) > _LONGEST_NAME or name.endswith(("__MIN", "__MAX")):
        return
    whole = name.rpartition(" - ")[2].strip().lower()
    lightning = _LIGHTNING.fullmatch(whole)
    if lightning is not None and f"lr-{lightning['optimizer']}" not in ("lr-group", "lr-pg"):
        group = int(lightning["group"] or 1) - 1
        yield Column(name, lightning["key"] or "lr", group, rank=4 + int(lightning["copy"] or 0))
        return
    last = whole.rpartition("/")[2]
    # lr and train/lr rank before columns such as optimizer/lr.
    depth = 0 if last == whole or whole == f"train/{last}" else 10
    for key, column_names in KEYS.items():
        if last in column_names:
            yield Column(name, key, rank=depth + column_names.index(last))
            return
    if last in MULTIPLIERS:
        yield Column(name, "lr", is_multiplier=True, rank=30)
        return
    match = _NUMBERED.fullmatch(whole.removeprefix("train/"))
    if match is not None:
        for key, column_names in KEYS.items():
            if match["name"] in column_names:
                yield Column(name, key, int(match["group"]), rank=5 + column_names.index(match[1]))


def _run(name: str) -> str | None:
    """The run of a column of a W&B export, ``run - key``."""
    run, dash, _ = name.rpartition(" - ")
    return run if dash else None


def _first(names: Iterable[str], preference: Iterable[str]) -> str | None:
    plain: dict[str, str] = {}
    for name in names:
        plain.setdefault(name.rpartition(" - ")[2].strip().lower().removeprefix("train/"), name)
    return next((plain[name] for name in preference if name in plain), None)
