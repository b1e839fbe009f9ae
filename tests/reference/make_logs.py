"""Writes logs.jsonl.xz: logs of real runs of transformers' Trainer and of Lightning.

It runs in the environment of ``make compare``: ``.venv-compare/bin/python -m
tests.reference.make_logs``. Each record has the name of the run, its config, the program, the name
of the log file and its content, in base64 for event files.
"""

import base64
import json
import lzma
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "logs.jsonl.xz"

TRAINER_RUNS: Mapping[str, Mapping[str, Any]] = {
    "cosine": {"learning_rate": 3e-4, "warmup_steps": 20, "max_steps": 200},
    "cosine_sparse": {
        "learning_rate": 2e-5,
        "lr_scheduler_type": "cosine",
        "warmup_steps": 50,
        "max_steps": 1000,
        "logging_steps": 10,
    },
    "cosine_cycles": {
        "learning_rate": 1e-3,
        "lr_scheduler_type": "cosine",
        "warmup_steps": 30,
        "max_steps": 300,
        "logging_steps": 5,
        "lr_scheduler_kwargs": {"num_cycles": 1.5},
    },
    "linear": {"learning_rate": 5e-5, "warmup_steps": 0, "max_steps": 150},
    "linear_warmup": {
        "learning_rate": 3e-4,
        "lr_scheduler_type": "linear",
        "warmup_steps": 20,
        "max_steps": 210,
    },
    "linear_sparse": {
        "learning_rate": 1e-4,
        "lr_scheduler_type": "linear",
        "warmup_steps": 100,
        "max_steps": 800,
        "logging_steps": 10,
        "gradient_accumulation_steps": 2,
    },
    "wsd": {
        "learning_rate": 1e-3,
        "lr_scheduler_type": "warmup_stable_decay",
        "warmup_steps": 25,
        "max_steps": 250,
        "lr_scheduler_kwargs": {"num_decay_steps": 50, "min_lr_ratio": 0.1},
    },
    "wsd_zero": {
        "learning_rate": 6e-4,
        "lr_scheduler_type": "warmup_stable_decay",
        "warmup_steps": 40,
        "max_steps": 400,
        "logging_steps": 5,
        "lr_scheduler_kwargs": {"num_decay_steps": 80},
    },
    "restarts": {
        "learning_rate": 2e-4,
        "lr_scheduler_type": "cosine_with_restarts",
        "warmup_steps": 20,
        "max_steps": 320,
        "lr_scheduler_kwargs": {"num_cycles": 3},
    },
    "restarts_two": {
        "learning_rate": 1e-3,
        "lr_scheduler_type": "cosine_with_restarts",
        "warmup_steps": 10,
        "max_steps": 210,
        "logging_steps": 2,
        "lr_scheduler_kwargs": {"num_cycles": 2},
    },
    "polynomial": {
        "learning_rate": 1e-3,
        "lr_scheduler_type": "polynomial",
        "warmup_steps": 15,
        "max_steps": 165,
        "lr_scheduler_kwargs": {"power": 2.0, "lr_end": 1e-5},
    },
    "inverse_sqrt": {
        "learning_rate": 7e-4,
        "lr_scheduler_type": "inverse_sqrt",
        "warmup_steps": 40,
        "max_steps": 200,
    },
    "constant_warmup": {
        "learning_rate": 2e-4,
        "lr_scheduler_type": "constant_with_warmup",
        "warmup_steps": 30,
        "max_steps": 120,
    },
    "min_lr": {
        "learning_rate": 4e-4,
        "lr_scheduler_type": "cosine_with_min_lr",
        "warmup_steps": 20,
        "max_steps": 220,
        "lr_scheduler_kwargs": {"min_lr": 4e-5},
    },
}
"""Name of a run -> its arguments; where the kind is not among them, the name is that."""

LIGHTNING_RUNS: Mapping[str, Mapping[str, Any]] = {
    "CosineAnnealingLR": {"lr": 0.1, "arguments": {"T_max": 120, "eta_min": 0.001}},
    "LinearLR": {
        "lr": 0.05,
        "arguments": {"start_factor": 0.1, "end_factor": 1.0, "total_iters": 40},
    },
    "StepLR": {"lr": 0.2, "arguments": {"step_size": 30, "gamma": 0.5}},
    "CosineAnnealingWarmRestarts": {"lr": 0.01, "arguments": {"T_0": 40}},
}
"""Class of torch's scheduler, stepped with each update -> the rate and its arguments."""

LIGHTNING_STEPS = 120


def trainer_arguments(name: str) -> dict[str, Any]:
    """The arguments of a run of the Trainer, as its config has them."""
    given = dict(TRAINER_RUNS[name])
    given.setdefault("lr_scheduler_type", name)
    given.setdefault("logging_steps", 1)
    return {**given, "weight_decay": 0.1}


def trainer_logs(folder: Path) -> Iterator[dict[str, Any]]:
    """The state and the event file of each run of transformers' Trainer."""
    import torch
    import transformers
    from torch import nn
    from transformers import Trainer, TrainingArguments

    class Line(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = nn.Linear(2, 1)
            self.norm = nn.LayerNorm(2)

        def forward(self, x: Any, labels: Any) -> dict[str, Any]:
            return {"loss": ((self.line(self.norm(x)) - labels) ** 2).mean()}

    examples = [
        {"x": torch.tensor([i / 64.0, 1.0]), "labels": torch.tensor([0.5])} for i in range(64)
    ]
    for name in TRAINER_RUNS:
        config = trainer_arguments(name)
        out = folder / name
        arguments = TrainingArguments(
            output_dir=str(out),
            per_device_train_batch_size=4,
            logging_first_step=True,
            save_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
            report_to=["tensorboard"],
            **config,
        )
        trainer = Trainer(model=Line(), args=arguments, train_dataset=examples)
        trainer.train()
        state = out / "trainer_state.json"
        trainer.state.save_to_json(str(state))
        program = f"transformers {transformers.__version__}"
        for path in (state, *sorted(out.rglob("*tfevents*"))):
            yield {"name": name, "program": program, "config": config, **content(path)}


def lightning_logs(folder: Path) -> Iterator[dict[str, Any]]:
    """The CSV and the event file of each run of Lightning, with two param groups."""
    import lightning
    import torch
    from lightning.pytorch.callbacks import LearningRateMonitor
    from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
    from torch import nn

    class Line(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self, kind: str, lr: float, arguments: Mapping[str, Any]) -> None:
            super().__init__()
            self.line = nn.Linear(2, 1)
            self.kind, self.lr, self.arguments = kind, lr, arguments

        def training_step(self, batch: Any, index: int) -> Any:
            del index
            return (self.line(batch[0]) ** 2).mean()

        def configure_optimizers(self) -> Any:
            groups: list[dict[str, Any]] = [
                {"params": [self.line.weight]},
                {"params": [self.line.bias], "lr": self.lr / 10},
            ]
            optimizer = torch.optim.SGD(groups, lr=self.lr, momentum=0.9, weight_decay=1e-4)
            scheduler = getattr(torch.optim.lr_scheduler, self.kind)(optimizer, **self.arguments)
            return {
                "optimizer": optimizer,
                "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
            }

    data = torch.utils.data.TensorDataset(torch.rand(128, 2))
    for kind, given in LIGHTNING_RUNS.items():
        loggers = [CSVLogger(folder / kind / "csv"), TensorBoardLogger(folder / kind / "events")]
        trainer = lightning.Trainer(
            max_steps=LIGHTNING_STEPS,
            logger=loggers,
            log_every_n_steps=1,
            callbacks=[LearningRateMonitor("step", log_momentum=True, log_weight_decay=True)],
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            accelerator="cpu",
        )
        loader = torch.utils.data.DataLoader(data, batch_size=4)
        trainer.fit(Line(kind, given["lr"], given["arguments"]), loader)
        paths = [
            next((folder / kind / "csv").rglob("metrics.csv")),
            *sorted((folder / kind / "events").rglob("*tfevents*")),
        ]
        for path in paths:
            program = f"lightning {lightning.__version__}"
            yield {"name": kind, "program": program, "config": given, **content(path)}


def content(path: Path) -> dict[str, str]:
    """The name and the content of a file, in base64 for an event file."""
    data = path.read_bytes()
    if "tfevents" in path.name:
        return {"file": "events.out.tfevents.0", "base64": base64.b64encode(data).decode()}
    return {"file": path.name, "text": data.decode()}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        records = [*trainer_logs(Path(folder)), *lightning_logs(Path(folder))]
    lines = "".join(json.dumps(record) + "\n" for record in records)
    FILE.write_bytes(lzma.compress(lines.encode(), preset=9 | lzma.PRESET_EXTREME))
    print(f"{len(records)} logs, {FILE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
