"""A resume that loads the optimizer, builds the scheduler, and loads the scheduler."""

import math
from pathlib import Path

import torch


def factor(step: int) -> float:
    return (1 + math.cos(math.pi * step / 1000)) / 2


optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(2))], lr=1e-3)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
rows = ["step,lr"]
for update in range(500):
    if update == 400:
        optimizer.load_state_dict(optimizer.state_dict())
        state = scheduler.state_dict()
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
        scheduler.load_state_dict(state)
        print(scheduler.get_last_lr(), optimizer.param_groups[0]["lr"])
    rows.append(f"{update},{optimizer.param_groups[0]['lr']!r}")
    optimizer.step()
    scheduler.step()
Path("log.csv").write_text("\n".join(rows))
