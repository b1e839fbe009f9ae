"""A second stage whose rates come with the param groups of the checkpoint, not from its flags."""

import math
from pathlib import Path

import torch

FIRST = {"max_lr": 3e-4, "min_lr": 3e-5}  # of the first stage; the flags have 3e-5 and 2e-5
weight = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.AdamW([{"params": [weight], "max_lr": 3e-5, "min_lr": 2e-5}], lr=3e-5)
state = optimizer.state_dict()
state["param_groups"][0].update(FIRST)
optimizer.load_state_dict(state)
rows = ["step,lr"]
for update in range(500):
    for group in optimizer.param_groups:
        wave = (1 + math.cos(math.pi * update / 1000)) / 2
        group["lr"] = group["min_lr"] + (group["max_lr"] - group["min_lr"]) * wave
    rows.append(f"{update},{optimizer.param_groups[0]['lr']!r}")
    optimizer.step()
Path("log.csv").write_text("\n".join(rows))
