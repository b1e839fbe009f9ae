"""A horizon in training batches, each of which has four updates."""

import math
from pathlib import Path

import torch

BATCHES, UPDATES_OF_A_BATCH, WARMUP = 100, 4, 10


def factor(step: int) -> float:
    progress = min(1.0, (step - WARMUP) / (BATCHES - WARMUP))
    return step / WARMUP if step < WARMUP else (1 + math.cos(math.pi * progress)) / 2


optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(2))], lr=1e-6)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
rows = ["step,lr"]
for update in range(BATCHES * UPDATES_OF_A_BATCH):
    rows.append(f"{update},{optimizer.param_groups[0]['lr']!r}")
    optimizer.step()
    scheduler.step()
Path("log.csv").write_text("\n".join(rows))
