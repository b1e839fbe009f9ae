"""The loops of ``loops.py`` run for real, watched: the first wrong update and the cause are named.

Also the callbacks of transformers' Trainer and of Lightning, on a good run and a bad one.
"""

from typing import Any

import pytest

import closedform as cf
from closedform.errors import DepartureError
from closedform.torch import lightning_callback, trainer_callback, watch
from tests.analysis.watching.loops import CONFIG, LOOPS, trainer_loop

# The warnings are of the packages.
pytestmark = [pytest.mark.packages(), pytest.mark.filterwarnings("ignore")]
RECIPE = cf.load_recipe(dict(CONFIG), framework="transformers")


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_stops_at_the_first_wrong_update(name: str) -> None:
    loop = LOOPS[name]
    watchers: list[Any] = []

    def begin(optimizer: Any) -> None:
        facts = dict(loop.facts)
        watchers.append(watch(optimizer, RECIPE, start=loop.start, facts=facts))

    with pytest.raises(DepartureError):
        loop.run(begin)
    departure = watchers[0].departure
    assert (departure.update, departure.group) == (loop.first, loop.group)
    assert departure.cause.kind in loop.kinds, departure


def run_trainer(recipe: Any, **changes: Any) -> None:
    def begin(optimizer: Any) -> None:
        del optimizer

    trainer_loop(begin, callback=lambda trainer: trainer_callback(recipe), **changes)


def test_the_callback_of_the_trainer() -> None:
    run_trainer(RECIPE)
    run_trainer(RECIPE, gradient_accumulation_steps=2)
    with pytest.raises(DepartureError, match=r"update 1: lr .* warmup in other units"):
        run_trainer(RECIPE, warmup_steps=17)


@pytest.mark.parametrize("frequency", [1, 2])
def test_the_callback_of_lightning(frequency: int) -> None:
    import lightning
    import torch

    class Line(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.line = torch.nn.Linear(2, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            del index
            return (self.line(batch[0]) ** 2).mean()

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
            scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 30)
            entry = {"scheduler": scheduler, "interval": "step", "frequency": frequency}
            return {"optimizer": optimizer, "lr_scheduler": entry}

    lr = cf.frameworks.schedule("torch", "CosineAnnealingLR", {"T_max": 30}, base=0.1)
    trainer = lightning.Trainer(
        max_steps=30,
        logger=False,
        callbacks=[lightning_callback(lr, evidence=3)],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
    )
    data = torch.utils.data.TensorDataset(torch.rand(64, 2))
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    if frequency == 1:
        trainer.fit(Line(), loader)
        return
    with pytest.raises(DepartureError, match=r"update 1: lr .* stepped once in 2 updates"):
        trainer.fit(Line(), loader)
