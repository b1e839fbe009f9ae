"""A resume whose scheduler is moved on twice: by its state, and by the count of the checkpoint."""

from pathlib import Path

import torch

import closedform as cf

rate = cf.load_recipe("run.sh", framework="megatron").schedule()
optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(2))], lr=1.0)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: float(rate(step)))
rows = ["step,lr"]
for update in range(600):
    if update == 300:
        state = scheduler.state_dict()
        scheduler.load_state_dict(state)
        for _ in range(300):  # the state has these steps already
            scheduler.step()
    rows.append(f"{update},{optimizer.param_groups[0]['lr']!r}")
    optimizer.step()
    scheduler.step()
Path("log.csv").write_text("\n".join(rows))
