"""The training loops of other packages with our schedulers and optimizers.

Each trains something small, saves, resumes and equals a run without interruption, bit for bit. Not
collected with the tests, since the packages are not development dependencies: ``make compare``.
"""

import copy
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import closedform as cf
from closedform.torch import Optimizer, ParamScheduler, cerebras, pytorch_accelerated
from tests.torch.test_clients import model
from tests.torch.training import largest_difference

# The warnings are what these packages say of each other.
pytestmark = [pytest.mark.packages(), pytest.mark.filterwarnings("ignore")]
RATE = cf.schedules.linear(0, 0.05, 3).then(cf.schedules.cosine(0.05, 0.001, 9))
STEPS, HALF = 12, 6


def dataset() -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(48, 4, generator=generator)
    return TensorDataset(inputs, inputs @ torch.randn(4, 2, generator=generator))


def optimizer_of(parameters: Any) -> Optimizer:
    return cerebras.AdamW(parameters, lr=0.05, weight_decay=0.01)


def assert_same(one: nn.Module, two: nn.Module) -> None:
    assert largest_difference(one.parameters(), two.parameters()) == 0


def test_accelerate(tmp_path: Path) -> None:
    accelerate = pytest.importorskip("accelerate")

    def begin() -> Any:
        accelerator = accelerate.Accelerator(cpu=True)
        built = model()
        optimizer = optimizer_of(built.parameters())
        loader = DataLoader(dataset(), batch_size=4)
        scheduler = ParamScheduler(optimizer, RATE)
        return accelerator, *accelerator.prepare(built, optimizer, loader, scheduler)

    def train(run: Any, first: int, last: int) -> None:
        accelerator, built, optimizer, loader, scheduler = run
        for inputs, targets in list(loader)[first:last]:
            optimizer.zero_grad()
            accelerator.backward(nn.functional.mse_loss(built(inputs), targets))
            optimizer.step()
            scheduler.step()

    whole = begin()
    train(whole, 0, STEPS)
    first = begin()
    train(first, 0, HALF)
    first[0].save_state(str(tmp_path))
    second = begin()
    second[0].load_state(str(tmp_path))
    assert second[4].get_last_lr() == [RATE(HALF)]
    train(second, HALF, STEPS)
    assert_same(whole[1], second[1])
    assert whole[4].get_last_lr() == [RATE(STEPS)]


class Regression(nn.Module):
    """The model as transformers wants one: it returns its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = model()

    def forward(self, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        outputs = self.inner(inputs)
        return {"loss": nn.functional.mse_loss(outputs, labels), "logits": outputs}


class Rows(Dataset[dict[str, Tensor]]):
    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        inputs, labels = dataset()[index]
        return {"inputs": inputs, "labels": labels}


def test_transformers_trainer(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")

    def trainer(folder: Path) -> Any:
        built = Regression()
        optimizer = optimizer_of(built.parameters())
        arguments = transformers.TrainingArguments(
            output_dir=str(folder),
            max_steps=STEPS,
            per_device_train_batch_size=4,
            save_steps=HALF,
            logging_steps=1,
            report_to=[],
            use_cpu=True,
            seed=3,
            disable_tqdm=True,
        )
        return transformers.Trainer(
            model=built,
            args=arguments,
            train_dataset=Rows(),
            optimizers=(optimizer, ParamScheduler(optimizer, RATE)),
        )

    whole = trainer(tmp_path / "whole")
    whole.train()
    second = trainer(tmp_path / "second")
    second.train(resume_from_checkpoint=str(tmp_path / "whole" / f"checkpoint-{HALF}"))
    assert_same(whole.model, second.model)
    logged = [entry["learning_rate"] for entry in whole.state.log_history if "loss" in entry]
    assert logged == [RATE(step) for step in range(STEPS)] or logged == [
        RATE(step) for step in range(1, STEPS + 1)
    ]


def test_lightning(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.inner = model()

        def training_step(self, batch: Any, index: int) -> Tensor:
            inputs, targets = batch
            return nn.functional.mse_loss(self.inner(inputs), targets)

        def configure_optimizers(self) -> Any:
            optimizer = optimizer_of(self.parameters())
            scheduler = ParamScheduler(optimizer, RATE)
            return [optimizer], [{"scheduler": scheduler, "interval": "step"}]

    def fit(folder: Path, checkpoint: Path | None = None) -> Any:
        saving = lightning.pytorch.callbacks.ModelCheckpoint(
            folder, filename="{epoch}", save_top_k=-1, every_n_epochs=1
        )
        trainer = lightning.Trainer(
            max_epochs=2,
            accelerator="cpu",
            logger=False,
            callbacks=[saving],
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        loader = DataLoader(dataset(), batch_size=4)
        trainer.fit(Module(), loader, ckpt_path=None if checkpoint is None else str(checkpoint))
        return trainer

    whole = fit(tmp_path / "whole")
    second = fit(tmp_path / "second", tmp_path / "whole" / "epoch=0.ckpt")
    assert second.global_step == 2 * STEPS
    assert_same(whole.lightning_module, second.lightning_module)
    for trainer in (whole, second):
        (config,) = trainer.lr_scheduler_configs
        assert config.scheduler.last_epoch == 2 * STEPS


def test_pytorch_accelerated(tmp_path: Path) -> None:
    package = pytest.importorskip("pytorch_accelerated")
    callbacks = pytest.importorskip("pytorch_accelerated.callbacks")

    def trainer() -> Any:
        built = model()
        return package.Trainer(
            model=built,
            loss_func=nn.MSELoss(),
            optimizer=optimizer_of(built.parameters()),
            callbacks=(callbacks.MoveModulesToDeviceCallback,),
        )

    make = pytorch_accelerated.CosineLrScheduler.create_scheduler_fn(
        total_num_epochs=4, num_warmup_epochs=1
    )

    def train(given: Any, epochs: int) -> None:
        given.train(
            train_dataset=dataset(),
            num_epochs=epochs,
            per_device_batch_size=4,
            create_scheduler_fn=make,
            train_dataloader_kwargs={"shuffle": False, "num_workers": 0},
        )

    whole = trainer()
    train(whole, 4)
    assert type(whole.scheduler) is pytorch_accelerated.CosineLrScheduler
    assert whole.scheduler.get_current_step() == 4 * STEPS - 1
    first = trainer()
    train(first, 2)
    first.save_checkpoint(tmp_path / "half.pt")
    second = trainer()
    second.create_scheduler_fn = make
    saved = torch.load(tmp_path / "half.pt", weights_only=False)
    second.model.load_state_dict(saved["model_state_dict"])
    second.optimizer.load_state_dict(saved["optimizer_state_dict"])
    scheduler = make(second.optimizer, num_update_steps_per_epoch=STEPS)
    scheduler.load_state_dict(copy.deepcopy(saved["scheduler_state_dict"]))
    for _ in range(2):
        for inputs, targets in DataLoader(dataset(), batch_size=4):
            second.optimizer.zero_grad()
            nn.functional.mse_loss(second.model(inputs), targets).backward()
            second.optimizer.step()
            scheduler.step()
    with warnings.catch_warnings():
        assert_same(whole.model, second.model)
