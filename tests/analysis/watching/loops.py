"""Training loops with one planted cause each, of accelerate and of transformers' Trainer.

``make_records.py`` runs them in the environment of ``make compare`` and stores the values that each
update used; the tests replay these, and ``compare_watch.py`` runs the loops themselves.
"""

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from closedform.analysis.watching import CauseKind

CONFIG: Mapping[str, Any] = {
    "learning_rate": 1e-3,
    "lr_scheduler_type": "cosine",
    "warmup_steps": 10,
    "max_steps": 60,
    "weight_decay": 0.01,
}
"""The recipe of every loop, as transformers has it."""

ACCUMULATION = 4
RECORDS = Path(__file__).parent / "records.json"

Values = dict[str, float]
Watcher = Callable[[Any], None]
"""Called with the optimizer before training begins."""


@dataclass(frozen=True)
class Loop:
    """A loop with a planted cause.

    Attributes:
        run: Runs it, and calls its argument with the optimizer before the first update.
        first: The first update with a wrong value.
        kinds: The kinds of the cause that name it.
        facts: The numbers of the run.
        start: The update with which it resumes.
        group: The param group that is wrong.
    """

    run: Callable[[Watcher], None]
    first: int
    kinds: tuple[CauseKind, ...]
    facts: Mapping[str, int] = field(default_factory=dict)
    start: int = 0
    group: int = 0


def recorded(values: list[list[Values]]) -> Watcher:
    """A watcher that records the values of each update."""

    def begin(optimizer: Any) -> None:
        def before_step(stepped: Any, args: Any, kwargs: Any) -> None:
            del args, kwargs
            values.append(
                [
                    {"lr": group["lr"], "weight_decay": group["weight_decay"]}
                    for group in stepped.param_groups
                ]
            )

        optimizer.register_step_pre_hook(before_step)

    return begin


# --- torch and accelerate ------------------------------------------------------------------------


def built() -> tuple[Any, Any, Any]:
    """A model, its optimizer with the groups of the recipe, and data."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    groups = [
        {"params": [model.weight], "weight_decay": CONFIG["weight_decay"]},
        {"params": [model.bias], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=CONFIG["learning_rate"])
    data = torch.utils.data.TensorDataset(torch.rand(60 * ACCUMULATION, 2))
    return model, optimizer, torch.utils.data.DataLoader(data, batch_size=1)


def scheduler_of(optimizer: Any, warmup: int = 10, total: int = 60) -> Any:
    from transformers import get_cosine_schedule_with_warmup

    return get_cosine_schedule_with_warmup(optimizer, warmup, total)


def accelerate_loop(
    begin: Watcher,
    *,
    accumulation: int = 1,
    is_scheduler_prepared: bool = True,
    is_scheduler_first: bool = False,
    warmup: int = 10,
    total: int = 60,
    done: int = 0,
    updates: int = 60,
) -> None:
    """A loop of accelerate's documentation, with what was planted in it."""
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, GradientState

    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulation)
    model, optimizer, loader = built()
    scheduler = scheduler_of(optimizer, warmup, total)
    for _ in range(done):
        scheduler.step()
    inner = optimizer
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    if is_scheduler_prepared:
        scheduler = accelerator.prepare(scheduler)
    begin(inner)
    count = 0
    while count < updates:
        for (inputs,) in loader:
            with accelerator.accumulate(model):
                accelerator.backward((model(inputs) ** 2).mean())
                if is_scheduler_first:
                    scheduler.step()
                optimizer.step()
                if not is_scheduler_first:
                    scheduler.step()
                optimizer.zero_grad()
            count += accelerator.sync_gradients
            if count >= updates:
                return


def _in_process(path: str) -> None:
    values: list[list[Values]] = []
    accelerate_loop(recorded(values), updates=30)
    if os.environ.get("RANK", "0") == "0":
        Path(path).write_text(json.dumps(values), encoding="utf-8")


def two_processes(begin: Watcher) -> None:
    """Accelerate in two processes; the values of the first one are replayed to the watcher."""
    import torch
    from accelerate import debug_launcher

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "values.json"
        debug_launcher(_in_process, (str(path),), num_processes=2)
        values = json.loads(path.read_text(encoding="utf-8"))
    weights = [torch.nn.Parameter(torch.zeros(1)) for _ in values[0]]
    for weight in weights:
        weight.grad = torch.zeros(1)
    optimizer = torch.optim.AdamW([{"params": [weight]} for weight in weights], lr=1e-3)
    for group, first in zip(optimizer.param_groups, values[0], strict=True):
        group.update(first)
    begin(optimizer)
    for update in values:
        for group, numbers in zip(optimizer.param_groups, update, strict=True):
            group.update(numbers)
        optimizer.step()


# --- transformers --------------------------------------------------------------------------------


def trainer_loop(
    begin: Watcher,
    *,
    make: Callable[[Any], Any] | None = None,
    callback: Callable[[Any], Any] | None = None,
    **changes: Any,
) -> None:
    """A run of transformers' Trainer, with a scheduler or arguments that are not the recipe's."""
    import torch
    from torch import nn
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Line(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = nn.Linear(2, 1)

        def forward(self, x: Any, labels: Any) -> dict[str, Any]:
            return {"loss": ((self.line(x) - labels) ** 2).mean()}

    class Begin(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            optimizer = given["optimizer"]
            begin(getattr(optimizer, "optimizer", optimizer))

    model = Line()
    examples = [{"x": torch.rand(2), "labels": torch.zeros(1)} for _ in range(64)]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=4,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
            **{**CONFIG, "logging_steps": 1000, **changes},
        )
        optimizers: tuple[Any, Any] = (None, None)
        if make is not None:
            groups = [
                {"params": [model.line.weight], "weight_decay": CONFIG["weight_decay"]},
                {"params": [model.line.bias], "weight_decay": 0.0},
            ]
            optimizer = torch.optim.AdamW(groups, lr=CONFIG["learning_rate"])
            optimizers = optimizer, make(optimizer)
        trainer = Trainer(
            model=model,
            args=arguments,
            train_dataset=examples,
            optimizers=optimizers,
            callbacks=[Begin()],
        )
        if callback is not None:
            trainer.add_callback(callback(trainer))
        trainer.train()


def steps_at_substeps(trainer: Any) -> Any:
    from transformers import TrainerCallback

    class AtSubsteps(TrainerCallback):  # type: ignore[misc]
        def on_substep_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            del args, state, control, given
            trainer.lr_scheduler.step()

    return AtSubsteps()


def one_ahead(optimizer: Any) -> Any:
    scheduler = scheduler_of(optimizer)
    optimizer.step()
    scheduler.step()
    return scheduler


def second_group_is_constant(optimizer: Any) -> Any:
    import torch

    first = scheduler_of(optimizer).lr_lambdas[0]
    return torch.optim.lr_scheduler.LambdaLR(optimizer, [first, lambda step: 1.0])


MICRO_BATCH = (CauseKind.MICRO_BATCH,)
FACTS = {"gradient_accumulation": ACCUMULATION, "world_size": 1}

LOOPS: Mapping[str, Loop] = {
    "accelerate: the scheduler is stepped before the optimizer": Loop(
        lambda begin: accelerate_loop(begin, is_scheduler_first=True),
        first=0,
        kinds=(CauseKind.OFFSET,),
        facts={"gradient_accumulation": 1, "world_size": 1},
    ),
    "accelerate: the scheduler is not prepared, and stepped per micro-batch": Loop(
        lambda begin: accelerate_loop(
            begin, accumulation=ACCUMULATION, is_scheduler_prepared=False, updates=40
        ),
        first=0,
        kinds=MICRO_BATCH,
        facts=FACTS,
    ),
    "accelerate: two processes step the scheduler": Loop(
        two_processes,
        first=1,
        kinds=(CauseKind.PROCESSES,),
        facts={"gradient_accumulation": 1, "world_size": 2},
    ),
    "accelerate: the warmup counts micro-batches": Loop(
        lambda begin: accelerate_loop(begin, accumulation=ACCUMULATION, warmup=40),
        first=1,
        kinds=(CauseKind.WARMUP,),
        facts=FACTS,
    ),
    "accelerate: the horizon counts micro-batches": Loop(
        lambda begin: accelerate_loop(begin, accumulation=ACCUMULATION, total=240),
        first=11,
        kinds=(CauseKind.HORIZON,),
        facts=FACTS,
    ),
    "accelerate: resumed without the state of the scheduler": Loop(
        lambda begin: accelerate_loop(begin, updates=30),
        first=30,
        kinds=(CauseKind.RESUMED,),
        start=30,
        facts={"gradient_accumulation": 1, "world_size": 1},
    ),
    "accelerate: resumed at the epoch": Loop(
        lambda begin: accelerate_loop(begin, done=3, updates=30),
        first=30,
        kinds=(CauseKind.RESUMED,),
        start=30,
        facts={"gradient_accumulation": 1, "world_size": 1, "updates_per_epoch": 10},
    ),
    "transformers: the horizon of another run": Loop(
        lambda begin: trainer_loop(begin, make=lambda optimizer: scheduler_of(optimizer, 10, 137)),
        first=11,
        kinds=(CauseKind.HORIZON,),
        facts={"gradient_accumulation": 1, "world_size": 1},
    ),
    "transformers: a group without schedule": Loop(
        lambda begin: trainer_loop(begin, make=second_group_is_constant),
        first=0,
        kinds=(CauseKind.NOT_SCHEDULED,),
        facts={"gradient_accumulation": 1, "world_size": 1},
        group=1,
    ),
    "transformers: the warmup of the config is another one": Loop(
        lambda begin: trainer_loop(begin, warmup_steps=25),
        first=1,
        kinds=(CauseKind.WARMUP,),
        facts={"gradient_accumulation": 1, "world_size": 1},
    ),
    "transformers: a callback steps the scheduler at each micro-batch": Loop(
        lambda begin: trainer_loop(
            begin,
            callback=steps_at_substeps,
            gradient_accumulation_steps=ACCUMULATION,
            max_steps=60,
        ),
        first=0,
        kinds=MICRO_BATCH,
        facts=FACTS,
    ),
    "transformers: a scheduler that was stepped once before": Loop(
        lambda begin: trainer_loop(begin, make=one_ahead),
        first=0,
        kinds=(CauseKind.OFFSET,),
        facts={"gradient_accumulation": 1, "world_size": 1},
    ),
}
"""Twelve causes by a sentence."""


def records() -> Iterator[tuple[str, Loop, list[list[Values]]]]:
    """Each loop with the values that its updates used."""
    stored = json.loads(RECORDS.read_text(encoding="utf-8"))
    for name, loop in LOOPS.items():
        yield name, loop, stored[name]
