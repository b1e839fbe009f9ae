"""LightningCLI: optimizer and scheduler blocks of its configs, and schedulers of ModelGenerator."""

from __future__ import annotations

from closedform.recipes.framework import Framework
from closedform.recipes.lightning_cli.reader import CLOCKS, DEFECTS, READER
from closedform.recipes.lightning_cli.schedules import SCHEDULES
from closedform.recipes.lightning_cli.writer import WRITER

FRAMEWORK = Framework(
    "lightning-cli",
    SCHEDULES,
    versions=("c4d012163c7f",),
    upstream="src/lightning/pytorch/cli.py, modelgenerator/lr_schedulers",
    clock=CLOCKS["epoch"],
    defects=DEFECTS,
    reader=READER,
    writer=WRITER,
)
