"""Train two networks on handwritten digits with one ONNX graph each, without torch after export.

torch traces forward, loss and gradients once; the optimizer step with its schedule is joined behind
them. From then on onnxruntime and NumPy train, here and, with `closedform web`, in a browser.
"""

from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

import closedform as cf
from closedform import training, transforms

STEPS, ROWS, TRAINED = 400, 64, 1500


def mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 10))


def convnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(128, 10),
    )


def recipes() -> dict[str, tuple[nn.Module, cf.UpdateRule]]:
    warmup = cf.schedules.linear(0, 5e-3, STEPS // 10)
    cosine = warmup.then(cf.schedules.cosine(5e-3, 0, STEPS - STEPS // 10))
    adamw = transforms.clip_by_global_norm(cf.optimizers.adamw(cosine, weight_decay=0.05), 1)
    one_cycle = cf.schedules.one_cycle(4e-3, 0.1, 1e-5, STEPS)
    sgd = cf.optimizers.sgd(one_cycle, momentum=0.9)
    return {"mlp": (mlp(), adamw), "convnet": (convnet(), sgd)}


def main() -> None:
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    torch.manual_seed(0)
    for name, (model, rule) in recipes().items():
        folder = Path("build") / "digits" / name
        example = torch.from_numpy(images[:4]), torch.from_numpy(labels[:4])
        training.export(model, cross_entropy, example, rule, folder)

        session = training.TrainSession(folder)
        order = np.random.default_rng(0)
        rows = [order.integers(0, TRAINED, ROWS) for _ in range(STEPS)]
        results = session.fit([(images[i], labels[i]) for i in rows], progress=False)
        guessed = session.predict(images[TRAINED:]).argmax(1)
        accuracy = (guessed == labels[TRAINED:]).mean()
        session.save(folder / "trained.safetensors")
        save_file({"input": images[:TRAINED], "target": labels[:TRAINED]}, folder / "data")
        print(f"{name}: loss {results[0].loss:.3f} -> {results[-1].loss:.3f}, ", end="")
        print(f"{accuracy:.1%} of {len(guessed)} unseen digits right, files in {folder}")
    print("in a browser: closedform web build/digits/mlp/train.onnx -o site", end=" ")
    print("--data build/digits/mlp/data")


if __name__ == "__main__":
    main()
