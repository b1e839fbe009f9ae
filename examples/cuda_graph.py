"""A training step in a CUDA graph: the schedules are computed in it, so that no replay is behind.

Without a GPU each step runs eagerly, and says what a capture would refuse.
"""

import torch
from torch import nn

import closedform as cf
from closedform.torch import Optimizer

STEPS = 40
RATE = cf.schedules.linear(0, 1e-2, 10).then(cf.schedules.cosine(1e-2, 1e-4, 30))
DECAY = cf.schedules.linear(0.1, 0, STEPS)


def train(device: str, *, is_captured: bool) -> list[float]:
    torch.manual_seed(0)
    model = nn.Linear(8, 3).to(device)
    inputs, targets = torch.randn(32, 8).to(device), torch.randn(32, 3).to(device)
    optimizer = Optimizer(model.named_parameters(), cf.optimizers.adamw(RATE, weight_decay=DECAY))
    print(cf.claims.capturable(optimizer).verify())

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)  # the graph writes to these gradients
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()

    if is_captured:
        stream = torch.cuda.Stream()  # as torch asks for before a backward pass is captured
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            step()  # makes the gradients and the states
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        run = graph.replay
    else:
        step()
        run = step
    for _ in range(STEPS - 1):
        run()
    return model.bias.tolist()


def main() -> None:
    has_gpu = torch.cuda.is_available()
    print("eager:   ", train("cuda" if has_gpu else "cpu", is_captured=False))
    if has_gpu:
        print("captured:", train("cuda", is_captured=True))

    scheduled = Optimizer([nn.Parameter(torch.ones(2))], cf.optimizers.adamw(1e-2))
    torch.optim.lr_scheduler.LinearLR(scheduled)
    print(cf.claims.capturable(scheduled).verify())


if __name__ == "__main__":
    main()
