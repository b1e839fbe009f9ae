"""Configs of eleven frameworks with a warmup, a cosine and a run, each by the framework's own keys.

``config(framework, run=…, warmup=…, decay_end=…)``: the decay ends at update ``decay_end``, where
the framework states it apart from the length of the run.
"""

from collections.abc import Callable, Mapping
from typing import Any

Config = dict[str, Any]
PEAK = 1e-3
LEAST = 1e-5


def transformers(run: int, warmup: int, decay_end: int) -> Config:
    return {
        "learning_rate": PEAK,
        "lr_scheduler_type": "cosine",
        "warmup_steps": warmup,
        "max_steps": run,
        "weight_decay": 0.1,
    }


def megatron(run: int, warmup: int, decay_end: int) -> Config:
    return {
        "lr": PEAK,
        "min_lr": LEAST,
        "train_iters": run,
        "lr_warmup_iters": warmup,
        "lr_decay_style": "cosine",
        "lr_decay_iters": decay_end,
        "weight_decay": 0.1,
        "global_batch_size": 48,
        "micro_batch_size": 4,
    }


def mlx_lm(run: int, warmup: int, decay_end: int) -> Config:
    arguments = [PEAK, decay_end - warmup, LEAST]
    schedule = {"name": "cosine_decay", "warmup": warmup, "arguments": arguments}
    return {"learning_rate": PEAK, "iters": run, "lr_schedule": schedule}


def torchtitan(run: int, warmup: int, decay_end: int) -> Config:
    return {
        "optimizer": {"name": "AdamW", "lr": PEAK},
        "lr_scheduler": {"warmup_steps": warmup},
        "training": {"steps": run},
    }


def nanotron(run: int, warmup: int, decay_end: int) -> Config:
    scheduler = {
        "learning_rate": PEAK,
        "lr_decay_style": "cosine",
        "lr_decay_steps": decay_end - warmup,
        "lr_warmup_steps": warmup,
        "lr_warmup_style": "linear",
        "min_decay_lr": LEAST,
    }
    factory = {"name": "adamW", "adam_beta1": 0.9, "adam_beta2": 0.95, "adam_eps": 1e-8}
    optimizer = {
        "learning_rate_scheduler": scheduler,
        "optimizer_factory": {**factory, "torch_adam_is_fused": True},
        "weight_decay": 0.1,
        "zero_stage": 0,
        "clip_grad": 1.0,
        "accumulate_grad_in_fp32": True,
    }
    return {"optimizer": optimizer, "tokens": {"train_steps": run}}


def nemo(run: int, warmup: int, decay_end: int) -> Config:
    schedule = {
        "name": "CosineAnnealing",
        "warmup_steps": warmup,
        "min_lr": LEAST,
    }
    optim = {"name": "adamw", "lr": PEAK, "weight_decay": 0.1, "sched": schedule}
    return {"optim": optim, "trainer": {"max_steps": run}}


def cerebras(run: int, warmup: int, decay_end: int) -> Config:
    rise = {"initial_learning_rate": 0.0, "end_learning_rate": PEAK, "total_iters": warmup}
    fall = {
        "initial_learning_rate": PEAK,
        "end_learning_rate": LEAST,
        "total_iters": decay_end - warmup,
    }
    parts = [{"LinearLR": rise}, {"CosineDecayLR": fall}]
    scheduler = {"SequentialLR": {"schedulers": parts, "milestones": [warmup]}}
    init = {
        "optimizer": {"AdamW": {"weight_decay": 0.1}},
        "schedulers": [scheduler],
        "loop": {"max_steps": run},
    }
    return {"trainer": {"init": init}}


def lingua(run: int, warmup: int, decay_end: int) -> Config:
    optim = {"lr": PEAK, "warmup": warmup, "lr_min_ratio": 0.01, "scheduler": "cosine"}
    return {"optim": optim, "steps": run}


def olmo(run: int, warmup: int, decay_end: int) -> Config:
    return {
        "optimizer": {"name": "adamw", "learning_rate": PEAK, "weight_decay": 0.1},
        "scheduler": {
            "name": "cosine_with_warmup",
            "t_warmup": warmup,
            "t_max": decay_end,
            "alpha_f": 0.01,
        },
        "max_duration": run,
    }


def composer(run: int, warmup: int, decay_end: int) -> Config:
    schedule = {"t_warmup": f"{warmup}ba", "t_max": f"{decay_end}ba", "alpha_f": 0.01}
    return {
        "optimizers": {"adamw": {"lr": PEAK}},
        "schedulers": {"cosine_decay_with_warmup": schedule},
        "max_duration": f"{run}ba",
    }


def fairseq(run: int, warmup: int, decay_end: int) -> Config:
    return {
        "optimization": {"lr": [PEAK], "max_update": run},
        "optimizer": {"_name": "adam", "weight_decay": 0.01},
        "lr_scheduler": {
            "_name": "polynomial_decay",
            "warmup_updates": warmup,
            "total_num_update": decay_end,
        },
    }


def lightning(scheduler: str, **arguments: Any) -> Config:
    """A scheduler of torch by epochs of one update, over 1,000 epochs."""
    base = "torch.optim.lr_scheduler"
    return {
        "optimizer": {"class_path": "torch.optim.SGD", "init_args": {"lr": PEAK}},
        "lr_scheduler": {"class_path": f"{base}.{scheduler}", "init_args": arguments},
        "trainer": {"max_epochs": 1000},
    }


Builder = Callable[[int, int, int], Config]
WITH_RUN: Mapping[str, Builder] = {
    "transformers": transformers,
    "torchtitan": torchtitan,
    "lingua": lingua,
    "nemo": nemo,  # it takes the length of the trainer
}
"""Frameworks whose decay ends with the run."""
WITH_DECAY: Mapping[str, Builder] = {
    "megatron": megatron,
    "mlx-lm": mlx_lm,
    "nanotron": nanotron,
    "cerebras": cerebras,
    "olmo": olmo,
    "composer": composer,
    "fairseq": fairseq,
}
"""Frameworks that state the end of the decay."""
