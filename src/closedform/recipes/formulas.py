"""Names of formulas of the library in frameworks whose readers write the formula out.

The readers of cerebras, torch and others call the schedules of the library, and their entries say
which. The schedules of most other configs have a particular warmup, clock and limits; their
readers compose them from expressions. This table names the decay after such a warmup.
"""

from __future__ import annotations

from collections.abc import Mapping


def _trainers(name: str) -> dict[str, tuple[str, ...]]:
    """The scheduler of the Trainer, and of ``get_scheduler`` by the same name."""
    return {"huggingface": (name,), "transformers": (name,)}


FORMULAS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "log_warmup": {"deepspeed": ("WarmupLR",)},
    "linear": {
        "deepspeed": ("WarmupDecayLR",),
        "megatron": ("linear",),
        "olmo": ("linear_with_warmup",),
        "olmo_core": ("LinearWithWarmup",),
        **_trainers("linear"),
    },
    "quadratic_warmup": {"axolotl": ("cosine_quadratic_warmup",)},
    "polynomial": {"fairseq": ("polynomial_decay",), **_trainers("polynomial")},
    "cosine": {
        "deepspeed": ("WarmupCosineLR",),
        "megatron": ("cosine",),
        "olmo": ("cosine_with_warmup",),
        "olmo_core": ("CosWithWarmup",),
        **_trainers("cosine"),
    },
    "half_cosine": {"olmo_core": ("HalfCosWithWarmup",)},
    "cosine_linear_envelope": {"olmo": ("cosine_linear_envelope",)},
    "cosine_linear_tail": {"olmo_core": ("CosWithWarmupAndLinearDecay",)},
    "cosine_constant_tail": {"axolotl": ("cosine_constant_lr",)},
    "cosine_with_min": {**_trainers("cosine_with_min_lr")},
    "cosine_hard_restarts": {**_trainers("cosine_with_restarts")},
    "jagged_restarts": {"axolotl": ("jagged_restart",)},
    "geometric": {"olmo_core": ("ExponentialScheduler",)},
    "range_test": {"deepspeed": ("LRRangeTest",)},
    "step_decay": {"fairseq": ("step",)},
    "cyclic": {"fairseq": ("triangular",)},
    "inverse_square_root": {
        "fairseq": ("inverse_sqrt",),
        "megatron": ("inverse-square-root",),
        "olmo": ("inverse_sqrt_with_warmup",),
        "olmo_core": ("InvSqrtWithWarmup",),
        **_trainers("inverse_sqrt"),
    },
    "inverse_square_root_cooldown": {"big_vision": ("rsqrt",)},
    "noam": {"nemo": ("NoamAnnealing",), "paddle": ("NoamDecay",)},
    "power_with_tail": {"olmo_core": ("PowerLR",)},
    "rex": {"axolotl": ("rex",)},
    "tri_stage": {"fairseq": ("tri_stage",)},
    "wsd": {
        "llm.c": ("wsd",),
        "maxtext": ("wsd-cosine", "wsd-linear"),
        "megatron": ("WSD",),
        "olmo_core": ("WSD",),
        **_trainers("warmup_stable_decay"),
    },
    "wsd_checkpoints": {"olmo_core": ("WSDS",)},
    "stages": {"olmo_core": ("ComposableScheduler",)},
    "product": {"t5x": ("create_learning_rate_scheduler",)},
    "maximum": {"olmo": ("max_scheduler",)},
}
"""Class or schedule names by schedule of the library and framework."""
