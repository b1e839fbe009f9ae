"""LightningCLI: optimizer and scheduler blocks of its configs, and schedulers of ModelGenerator."""

from __future__ import annotations

from functools import partial

from closedform.frameworks.lightning_cli.reader import CLOCKS, DEFECTS, READER
from closedform.frameworks.lightning_cli.schedules import CURVES, Arguments, rate
from closedform.frameworks.lightning_cli.writer import WRITER
from closedform.recipes import kit

FRAMEWORK = kit.Framework(
    "lightning-cli",
    kit.section_entries({name: partial(rate, name=name) for name in CURVES}, {"": Arguments}),
    versions=("c4d012163c7f",),
    repository="https://github.com/genbio-ai/ModelGenerator",
    upstream="src/lightning/pytorch/cli.py, modelgenerator/lr_schedulers",
    clock=CLOCKS["epoch"],
    defects=DEFECTS,
    reader=READER,
    writer=WRITER,
)
