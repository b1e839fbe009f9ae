"""A real recipe, exported to ONNX and used for training, compared with the optimizer of torch.

The recipe is that of a Llama 3.2 1B run of 700 steps. Three runs of a small network on handwritten
digits use the same initial values and the same batches, with gradients from torch:

    recipe        every update by the exported graph of the config, in onnxruntime
    torch form    the same, with AdamW as torch defines it: ε is added after the bias correction
    torch         torch.optim.AdamW and LambdaLR

The config's own AdamW (cerebras) adds ε before the bias correction, so the first run may differ
from the last by more than rounding; the second may not.
"""

import copy
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.datasets import load_digits
from torch import Tensor, nn

import closedform as cf
from closedform.plotting import plot_schedule

CONFIG = Path(__file__).parent / "configs" / "llama3p2_1b_msl_8k.yaml"
BUILD = Path("build")
BATCH = 64
TEST_IMAGES = 360

Arrays = dict[str, NDArray[np.float32]]
Update = Callable[[Arrays], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run: loss and accuracy on the test images, parameters, seconds per step."""

    name: str
    loss: float
    accuracy: float
    params: Arrays
    seconds: float


@dataclass(frozen=True, slots=True)
class Digits:
    """Images, labels, and the batches, in the same order for every run."""

    images: Tensor
    labels: Tensor
    batches: Tensor


def read_digits(steps: int) -> Digits:
    bunch = load_digits()
    generator = torch.Generator().manual_seed(1)
    order = torch.randperm(len(bunch.target), generator=generator)
    images = torch.tensor(bunch.data / 16.0, dtype=torch.float32)[order]
    labels = torch.tensor(bunch.target)[order]
    batches = torch.randint(len(images) - TEST_IMAGES, (steps, BATCH), generator=generator)
    return Digits(images, labels, batches)


def new_model() -> nn.Sequential:
    # Smooth: at the kink of a ReLU, a rounding difference can select the other branch.
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 10))


def arrays(model: nn.Module) -> Arrays:
    return {name: value.detach().numpy().copy() for name, value in model.named_parameters()}


def train(name: str, model: nn.Module, digits: Digits, update: Update) -> Outcome:
    """Trains a model; ``update`` updates the parameters in place, given the gradients."""
    loss_of = nn.CrossEntropyLoss()
    seconds = []
    for batch in track(digits.batches, name, transient=True, disable=not sys.stdout.isatty()):
        model.zero_grad()
        loss_of(model(digits.images[batch]), digits.labels[batch]).backward()
        gradients = {
            key: p.grad.numpy() for key, p in model.named_parameters() if p.grad is not None
        }
        start = time.perf_counter()
        update(gradients)
        seconds.append(time.perf_counter() - start)
    with torch.no_grad():
        scores = model(digits.images[-TEST_IMAGES:])
        labels = digits.labels[-TEST_IMAGES:]
        loss = float(loss_of(scores, labels))
        accuracy = float((scores.argmax(dim=1) == labels).float().mean())
    return Outcome(name, loss, accuracy, arrays(model), float(np.median(seconds)))


def in_onnxruntime(model: nn.Module, session: cf.OptimizerSession) -> Update:
    """Updates by an exported graph, copied into the model after each step."""

    def update(gradients: Arrays) -> None:
        session.step(gradients)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(torch.tensor(session.params[name]))

    return update


def in_torch(model: nn.Module, rule: cf.UpdateRule, rates: list[float]) -> Update:
    """Updates by torch's AdamW, with LambdaLR on a table of the schedule."""
    values = {name: float(rule.hyperparameters[name]) for name in ("beta1", "beta2", "eps")}
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=1.0,
        betas=(values["beta1"], values["beta2"]),
        eps=values["eps"],
        weight_decay=float(rule.hyperparameters["weight_decay"]),
    )
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, rates.__getitem__)

    def update(_: Arrays) -> None:
        optimizer.step()
        scheduler.step()

    return update


def difference(first: Outcome, second: Outcome) -> float:
    return max(float(np.abs(first.params[k] - second.params[k]).max()) for k in first.params)


def report(console: Console, outcomes: list[Outcome], steps: int) -> None:
    table = Table(title=f"{steps} steps on the digits of scikit-learn", title_justify="left")
    for column in ("update by", "test loss", "accuracy", "largest Δ to torch", "a step"):
        table.add_column(column, justify="left" if column == "update by" else "right")
    for outcome in outcomes:
        table.add_row(
            outcome.name,
            f"{outcome.loss:.6f}",
            f"{outcome.accuracy:.2%}",
            f"{difference(outcome, outcomes[-1]):.1e}",
            f"{outcome.seconds * 1e6:.0f} µs",
        )
    console.print(table)


def main() -> None:
    console = Console()
    torch.set_num_threads(1)
    recipe = cf.load_recipe(CONFIG)
    lr = recipe.schedules["lr"]
    initial = new_model()
    shapes = {name: tuple(value.shape) for name, value in arrays(initial).items()}

    values = recipe.optimizer().hyperparameters
    torch_form = cf.optimizers.adamw(
        lr=lr,
        betas=(values["beta1"], values["beta2"]),
        eps=values["eps"],
        weight_decay=values["weight_decay"],
    )
    for folder, rule in ((BUILD, recipe.optimizer()), (BUILD / "torch_form", torch_form)):
        folder.mkdir(parents=True, exist_ok=True)
        cf.to_onnx(rule, folder, params=shapes)
    cf.to_onnx(lr, BUILD / "schedule.onnx")
    plot_schedule(lr, BUILD / "schedule.png", title="Learning rate of Llama 3.2 1B, 8k context")

    steps = recipe.horizon or 700
    digits = read_digits(steps)
    rates = np.asarray(lr(np.arange(steps + 1))).tolist()
    outcomes = []
    for name, folder in (
        ("recipe, onnxruntime", BUILD),
        ("torch form, onnxruntime", BUILD / "torch_form"),
    ):
        model = copy.deepcopy(initial)
        session = cf.OptimizerSession.from_files(folder, params=arrays(model))
        outcomes.append(train(name, model, digits, in_onnxruntime(model, session)))
    model = copy.deepcopy(initial)
    outcomes.append(
        train("torch AdamW + LambdaLR", model, digits, in_torch(model, torch_form, rates))
    )
    report(console, outcomes, steps)
    for verified in (lr.verify(), recipe.optimizer().verify()):
        console.print(f"\n{verified}", highlight=False, soft_wrap=True)
    for path in sorted(BUILD.glob("*.*")) + sorted(BUILD.glob("torch_form/*")):
        if path.suffix in (".onnx", ".png"):
            console.print(f"{path}  {path.stat().st_size:,} bytes", highlight=False)


if __name__ == "__main__":
    main()
