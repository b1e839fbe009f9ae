"""A schedule as a torch module: it takes steps of any shape, and can be moved and saved."""

import torch

import closedform as cf


def main() -> None:
    lr = cf.schedules.linear(0, 6e-4, 1525).then(cf.schedules.linear(6e-4, 6e-5, 7512))
    module = cf.to_torch(lr)
    steps = torch.tensor([[0, 1, 1524], [1525, 9036, 9037]])
    values = module(steps)
    print(module.__class__.__name__, "values in", values.dtype)
    print(values)

    parameter = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    for step in range(3):
        optimizer.param_groups[0]["lr"] = float(module(torch.tensor(step)))
        parameter.grad = torch.ones(4)
        optimizer.step()
    print("after three steps:", parameter.tolist())


if __name__ == "__main__":
    main()
