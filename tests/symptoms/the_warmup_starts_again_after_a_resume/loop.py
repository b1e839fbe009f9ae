"""A checkpoint with the optimizer, and without the scheduler."""

from pathlib import Path

import torch

WARMUP, UPDATES, POWER = 50, 500, 0.9


def factor(step: int) -> float:
    rest = (UPDATES - step) / (UPDATES - WARMUP)
    return step / WARMUP if step < WARMUP else float(rest**POWER)


optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(2))], lr=1e-4)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
rows = ["step,lr"]
for update in range(UPDATES):
    if update == 200:
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    rows.append(f"{update},{optimizer.param_groups[0]['lr']!r}")
    optimizer.step()
    scheduler.step()
Path("log.csv").write_text("\n".join(rows))
