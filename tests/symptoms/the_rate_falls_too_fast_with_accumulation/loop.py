"""A scheduler that steps for each micro-batch, where the optimizer steps for every fourth."""

import math
from pathlib import Path

import torch

ACCUMULATION, WARMUP, UPDATES = 4, 50, 800


def factor(step: int) -> float:
    progress = (step - WARMUP) / (UPDATES - WARMUP)
    return step / WARMUP if step < WARMUP else (1 + math.cos(math.pi * progress)) / 2


optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(2))], lr=2e-5)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
rows = ["step,lr"]
for batch in range(ACCUMULATION * UPDATES // 2):
    if batch % ACCUMULATION == ACCUMULATION - 1:
        rows.append(f"{batch // ACCUMULATION},{optimizer.param_groups[0]['lr']!r}")
        optimizer.step()
    scheduler.step()
Path("log.csv").write_text("\n".join(rows))
