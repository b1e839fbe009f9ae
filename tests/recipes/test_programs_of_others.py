"""Configs of programs that are not among the frameworks: read with what was assumed, or refused.

Example: ``lr: 0.001, lr_rampup_kimg: 10000`` (EDM) is refused, since the ramp was not understood.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from closedform.errors import ClosedFormError
from closedform.recipes.load import load_recipe

CONFIGS: Mapping[str, Any] = {
    "detr": {
        "lr": 1e-4,
        "lr_backbone": 1e-5,
        "batch_size": 2,
        "weight_decay": 1e-4,
        "epochs": 300,
        "lr_drop": 200,
        "clip_max_norm": 0.1,
    },
    "dino-detr": {
        "lr": 1e-4,
        "lr_backbone": 1e-5,
        "weight_decay": 1e-4,
        "epochs": 12,
        "lr_drop": 11,
        "onecyclelr": False,
        "multi_step_lr": False,
        "lr_drop_list": [33, 45],
    },
    "coqui-tts": {
        "lr": 1e-3,
        "optimizer": "RAdam",
        "optimizer_params": {"betas": [0.9, 0.998], "weight_decay": 1e-6},
        "lr_scheduler": "NoamLR",
        "lr_scheduler_params": {"warmup_steps": 4000},
        "epochs": 1000,
    },
    "vits": {
        "train": {
            "learning_rate": 2e-4,
            "betas": [0.8, 0.99],
            "eps": 1e-9,
            "lr_decay": 0.999875,
            "epochs": 20000,
            "batch_size": 64,
            "warmup_epochs": 0,
        }
    },
    "hifi-gan": {
        "learning_rate": 2e-4,
        "adam_b1": 0.8,
        "adam_b2": 0.99,
        "lr_decay": 0.999,
        "batch_size": 16,
    },
    "tacotron2": {
        "learning_rate": 1e-3,
        "weight_decay": 1e-6,
        "grad_clip_thresh": 1.0,
        "epochs": 500,
        "iters_per_checkpoint": 1000,
    },
    "waveglow": {
        "train_config": {
            "learning_rate": 1e-4,
            "epochs": 100000,
            "iters_per_checkpoint": 2000,
            "sigma": 1.0,
        }
    },
    "cleanrl": {
        "learning_rate": 2.5e-4,
        "anneal_lr": True,
        "total_timesteps": 500000,
        "num_steps": 128,
        "num_envs": 4,
        "update_epochs": 4,
        "gamma": 0.99,
    },
    "sb3-zoo": {
        "CartPole-v1": {
            "n_timesteps": 1e6,
            "learning_rate": "lin_2.5e-4",
            "n_steps": 128,
            "n_epochs": 4,
            "clip_range": "lin_0.1",
        }
    },
    "ml-agents": {
        "behaviors": {
            "Ball": {
                "trainer_type": "ppo",
                "hyperparameters": {
                    "learning_rate": 3e-4,
                    "learning_rate_schedule": "linear",
                    "beta": 0.001,
                    "num_epoch": 3,
                },
                "max_steps": 500000,
            }
        }
    },
    "rl_games": {
        "params": {
            "config": {
                "learning_rate": 5e-4,
                "lr_schedule": "adaptive",
                "kl_threshold": 0.016,
                "max_epochs": 500,
                "gamma": 0.99,
            }
        }
    },
    "rsl_rl": {
        "algorithm": {
            "learning_rate": 1e-3,
            "schedule": "adaptive",
            "desired_kl": 0.01,
            "num_learning_epochs": 5,
            "gamma": 0.99,
        },
        "runner": {"max_iterations": 1500, "num_steps_per_env": 24},
    },
    "skrl": {
        "agent": {
            "learning_rate": 5e-4,
            "learning_rate_scheduler": "KLAdaptiveLR",
            "learning_rate_scheduler_kwargs": {"kl_threshold": 0.008},
        },
        "trainer": {"timesteps": 16000},
    },
    "dreamerv3": {
        "opt": {
            "lr": 4e-5,
            "eps": 1e-20,
            "warmup": 1000,
            "anneal": 0,
            "schedule": "const",
            "beta1": 0.9,
            "beta2": 0.999,
        },
        "run": {"steps": 1e10},
    },
    "td-mpc2": {"lr": 3e-4, "enc_lr_scale": 0.3, "steps": 10000000, "batch_size": 256},
    "decision-transformer": {
        "learning_rate": 1e-4,
        "weight_decay": 1e-4,
        "warmup_steps": 10000,
        "max_iters": 10,
        "num_steps_per_iter": 10000,
    },
    "diffusion_policy": {
        "optimizer": {
            "_target_": "torch.optim.AdamW",
            "lr": 1e-4,
            "betas": [0.95, 0.999],
            "weight_decay": 1e-6,
        },
        "training": {
            "lr_scheduler": "cosine",
            "lr_warmup_steps": 500,
            "num_epochs": 3050,
            "gradient_accumulate_every": 1,
        },
    },
    "lerobot": {
        "steps": 100000,
        "optimizer": {"type": "adamw", "lr": 2.5e-5, "weight_decay": 1e-10},
        "scheduler": {
            "type": "cosine_decay_with_warmup",
            "num_warmup_steps": 1000,
            "num_decay_steps": 30000,
            "peak_lr": 2.5e-5,
            "decay_lr": 2.5e-6,
        },
    },
    "prismatic": {
        "vla": {
            "epochs": 1000,
            "max_steps": None,
            "learning_rate": 2e-5,
            "weight_decay": 0.0,
            "lr_scheduler_type": "constant",
            "warmup_ratio": 0.0,
        }
    },
    "openpi": {
        "lr_schedule": {
            "warmup_steps": 1000,
            "peak_lr": 2.5e-5,
            "decay_steps": 30000,
            "decay_lr": 2.5e-6,
        },
        "num_train_steps": 30000,
        "ema_decay": 0.99,
    },
    "nerfstudio": {
        "max_num_iterations": 30000,
        "optimizers": {
            "fields": {
                "optimizer": {"lr": 0.01, "eps": 1e-15},
                "scheduler": {"lr_final": 1e-4, "max_steps": 200000},
            }
        },
    },
    "gaussian-splatting": {
        "iterations": 30000,
        "position_lr_init": 1.6e-4,
        "position_lr_final": 1.6e-6,
        "position_lr_delay_mult": 0.01,
        "position_lr_max_steps": 30000,
        "feature_lr": 0.0025,
    },
    "mip-nerf": {
        "Config": {
            "lr_init": 5e-4,
            "lr_final": 5e-6,
            "lr_delay_steps": 2500,
            "lr_delay_mult": 0.01,
            "max_steps": 1000000,
        }
    },
    "edm": {"lr": 1e-3, "lr_rampup_kimg": 10000, "total_kimg": 200000, "ema_halflife_kimg": 500},
    "edm2": {
        "lr": {"ref_lr": 0.01, "ref_batches": 70000, "rampup_Mimg": 10},
        "total_nimg": 2147483648,
    },
    "stylegan3": {
        "G_opt_kwargs": {"class_name": "torch.optim.Adam", "lr": 0.0025, "betas": [0, 0.99]},
        "D_opt_kwargs": {"class_name": "torch.optim.Adam", "lr": 0.002, "betas": [0, 0.99]},
        "total_kimg": 25000,
    },
    "improved-diffusion": {
        "lr": 1e-4,
        "lr_anneal_steps": 200000,
        "weight_decay": 0.0,
        "batch_size": 128,
        "ema_rate": "0.9999",
    },
    "dit": {"lr": 1e-4, "epochs": 1400, "global_batch_size": 256, "weight_decay": 0},
    "mar": {
        "blr": 1e-4,
        "min_lr": 0.0,
        "lr_schedule": "constant",
        "warmup_epochs": 100,
        "epochs": 800,
        "weight_decay": 0.02,
    },
    "convnext": {
        "lr": 4e-3,
        "min_lr": 1e-6,
        "warmup_epochs": 20,
        "warmup_steps": -1,
        "epochs": 300,
        "update_freq": 1,
        "layer_decay": 1.0,
        "weight_decay": 0.05,
        "weight_decay_end": None,
    },
    "beit": {
        "lr": 5e-4,
        "warmup_lr": 1e-6,
        "min_lr": 1e-5,
        "warmup_epochs": 5,
        "epochs": 30,
        "layer_decay": 0.9,
        "opt": "adamw",
    },
    "deit": {
        "sched": "cosine",
        "lr": 5e-4,
        "warmup_lr": 1e-6,
        "min_lr": 1e-5,
        "decay_epochs": 30,
        "warmup_epochs": 5,
        "cooldown_epochs": 10,
        "patience_epochs": 10,
        "decay_rate": 0.1,
        "epochs": 300,
        "opt": "adamw",
    },
    "moco-v3": {
        "lr": 0.6,
        "warmup_epochs": 10,
        "epochs": 300,
        "moco_m": 0.99,
        "moco_m_cos": True,
        "optimizer": "lars",
        "weight_decay": 1e-6,
    },
    "simclr-tf": {
        "learning_rate": 0.3,
        "learning_rate_scaling": "linear",
        "warmup_epochs": 10,
        "train_epochs": 100,
        "train_batch_size": 4096,
        "weight_decay": 1e-6,
        "optimizer": "lars",
    },
    "solo-learn": {
        "optimizer": {"name": "lars", "lr": 0.3, "weight_decay": 1e-4},
        "scheduler": {"name": "warmup_cosine", "warmup_start_lr": 0.003, "interval": "step"},
        "max_epochs": 400,
    },
    "sam2": {
        "num_epochs": 40,
        "optim": {
            "lr": [
                {
                    "scheduler": {
                        "_target_": "fvcore.common.param_scheduler.CosineParamScheduler",
                        "start_value": 5e-6,
                        "end_value": 5e-7,
                    }
                }
            ]
        },
    },
    "openfold": {
        "scheduler": {
            "base_lr": 0.0,
            "max_lr": 1e-3,
            "warmup_no_steps": 1000,
            "start_decay_after_n_steps": 50000,
            "decay_every_n_steps": 50000,
            "decay_factor": 0.95,
        },
        "optimizer": {"lr": 1e-3, "eps": 1e-5},
    },
    "boltz": {
        "training_args": {
            "base_lr": 0.0,
            "max_lr": 0.0018,
            "lr_scheduler": "af3",
            "lr_warmup_no_steps": 1000,
            "lr_start_decay_after_n_steps": 50000,
            "lr_decay_every_n_steps": 50000,
            "lr_decay_factor": 0.95,
        }
    },
    "mace": {
        "lr": 0.01,
        "scheduler": "ReduceLROnPlateau",
        "lr_factor": 0.8,
        "scheduler_patience": 50,
        "lr_scheduler_gamma": 0.9993,
        "max_num_epochs": 500,
        "optimizer": "adam",
    },
    "nequip": {
        "learning_rate": 0.005,
        "max_epochs": 100000,
        "lr_scheduler_name": "ReduceLROnPlateau",
        "lr_scheduler_patience": 50,
        "lr_scheduler_factor": 0.5,
        "optimizer_name": "Adam",
    },
    "deepmd": {
        "learning_rate": {
            "type": "exp",
            "decay_steps": 5000,
            "start_lr": 0.001,
            "stop_lr": 3.51e-8,
        },
        "training": {"numb_steps": 1000000},
    },
    "fairchem": {
        "optim": {
            "lr_initial": 2e-4,
            "optimizer": "AdamW",
            "scheduler": "LambdaLR",
            "scheduler_params": {
                "lambda_type": "cosine",
                "warmup_factor": 0.2,
                "warmup_epochs": 0.1,
                "lr_min_factor": 0.01,
                "epochs": 80,
            },
            "max_epochs": 80,
        }
    },
    "neuraloperator": {
        "opt": {
            "learning_rate": 5e-3,
            "weight_decay": 1e-4,
            "scheduler": "StepLR",
            "step_size": 100,
            "gamma": 0.5,
            "n_epochs": 500,
        }
    },
    "marian": {
        "learn-rate": 3e-4,
        "lr-warmup": 16000,
        "lr-decay-inv-sqrt": 16000,
        "after-epochs": 10,
    },
    "tensor2tensor": {
        "learning_rate_schedule": "constant*linear_warmup*rsqrt_decay",
        "learning_rate_warmup_steps": 8000,
        "learning_rate_constant": 2.0,
        "train_steps": 250000,
    },
    "sockeye": {
        "learning_rate_scheduler_type": "inv-sqrt-decay",
        "learning_rate_warmup": 4000,
        "initial_learning_rate": 0.06325,
        "max_updates": 100000,
    },
    "spacy": {
        "training": {
            "max_steps": 20000,
            "optimizer": {
                "@optimizers": "Adam.v1",
                "learn_rate": {
                    "@schedules": "warmup_linear.v1",
                    "warmup_steps": 250,
                    "total_steps": 20000,
                    "initial_rate": 5e-5,
                },
            },
        }
    },
    "nnunet": {
        "initial_lr": 0.01,
        "weight_decay": 3e-5,
        "num_epochs": 1000,
        "num_iterations_per_epoch": 250,
    },
}
"""Settings in the layout of each program, with numbers as its examples have them."""


def cosine(step: int) -> float:
    """diffusion_policy: diffusers' cosine after 500 of 305,000 updates."""
    if step < 500:
        return 1e-4 * step / 500
    return 5e-5 * (1 + math.cos(math.pi * (step - 500) / 304500))


READ: Mapping[str, tuple[Callable[[int], float], frozenset[str]]] = {
    "diffusion_policy": (cosine, frozenset({"unit", "min_lr", "decay-place", "warmup-place"})),
    "dreamerv3": (lambda t: 4e-5 * min(t / 1000, 1), frozenset({"unit", "warmup-place"})),
    "neuraloperator": (lambda t: 5e-3 * 0.5 ** (t // 10000), frozenset({"unit"})),
    "prismatic": (lambda t: 2e-5, frozenset()),
}
"""The programs whose names say enough: the true curve, and what has to be assumed for it."""

GUESSED = {"deit": "timm"}
"""DeiT has its scheduler from timm."""


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_of_another_program_is_read_rightly_or_refused(name: str) -> None:
    facts = {"updates_per_epoch": 100}
    if name not in READ:
        with pytest.raises(ClosedFormError) as raised:
            load_recipe(CONFIGS[name], "generic", facts=facts)
        assert "'" in str(raised.value), "the way out has the key or the concept that decides"
        return
    curve, assumptions = READ[name]
    recipe = load_recipe(CONFIGS[name], "generic", facts=facts)
    assert {key for key, note in recipe.notes.items() if "assumed" in note} == assumptions
    title = str(recipe).partition("\n")[0]
    assert all(key in title for key in assumptions)
    for step in (0, 1, 499, 500, 10000, 39999):
        assert float(recipe.schedule()(step)) == pytest.approx(curve(step), rel=1e-12)


@pytest.mark.parametrize("name", CONFIGS)
def test_no_framework_takes_such_a_config_without_a_word(name: str) -> None:
    try:
        recipe = load_recipe(CONFIGS[name])
    except ClosedFormError:
        return
    assert recipe.framework == GUESSED[name]
    assert recipe.guessed_by


@pytest.mark.parametrize(
    "key", ["lr_rampup_kimg", "lr_warmup_no_steps", "burn_in", "warm_updates", "lr_ramp_length"]
)
def test_a_warmup_that_is_not_understood_is_not_left_out(key: str) -> None:
    with pytest.raises(ClosedFormError, match=f"a warmup were not understood: opt.{key} = 70"):
        load_recipe({"opt": {"lr": 0.1, key: 70}}, "generic")
    recipe = load_recipe({"opt": {"lr": 0.1, key: 70}}, "generic", paths={f"opt.{key}": "unused"})
    assert "assumed to be constant" in recipe.notes["decay"]


@pytest.mark.parametrize("text", ["warmup_cosine", "linear_with_warmup", "WarmupConstant"])
def test_a_family_with_a_warmup_needs_its_length(text: str) -> None:
    config = {"lr": 0.1, "scheduler": text, "max_steps": 100}
    with pytest.raises(ClosedFormError, match=f"'{text}' has one, of no stated length"):
        load_recipe(config, "generic")
    recipe = load_recipe({**config, "warmup_steps": 10}, "generic")
    assert float(recipe.schedule()(5)) == pytest.approx(0.05)
