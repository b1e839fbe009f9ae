"""Configs of 38 programs that have no reader, by the names of their keys.

Each config holds the keys that decide the schedule, and others in whose place a reader could look,
of a public file; the numbers are facts of it. A config is read rightly, judged by the program's own
formula, or refused with the key that is missing or ambiguous; or it is read by an assumption that a
note names. ``paths`` is what the message asks for, after which the config is read.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from closedform.errors import ClosedFormError
from closedform.recipes.load import load_recipe

Rate = Callable[[int], float]
"""From the update to the rate."""


@dataclass(frozen=True)
class Case:
    """A config.

    Attributes:
        config: Its keys.
        rate: The rate of the program, None where the config is only refused or assumed.
        refused: The error without ``paths``; empty for none.
        assumed: The notes that name where the reading departs from the program.
        paths: The correction after which the rate is the program's.
        facts: The facts of the run.
        last: The last update that is compared.
    """

    config: Mapping[str, Any]
    rate: Rate | None = None
    refused: str = ""
    assumed: tuple[str, ...] = ()
    paths: Mapping[str, str] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    last: int = 0


EPOCH = {"updates_per_epoch": 10}
DECAY = r"the key of decay is missing .*"


def half_cosine(base: float, done: float) -> float:
    return base * 0.5 * (1 + math.cos(math.pi * done))


def warm_cosine(step: int, base: float, warmup: int, total: int) -> float:
    """``get_cosine_schedule_with_warmup`` of transformers."""
    if step < warmup:
        return base * step / warmup
    return half_cosine(base, (step - warmup) / (total - warmup))


CASES = {
    # XPixelGroup/BasicSR options/train/EDSR/train_EDSR_Lx2.yml
    "BasicSR": Case(
        {
            "network_g": {"type": "EDSR", "num_feat": 256},
            "train": {
                "optim_g": {"type": "Adam", "lr": 1e-4, "weight_decay": 0, "betas": [0.9, 0.99]},
                "scheduler": {"type": "MultiStepLR", "milestones": [200000], "gamma": 0.5},
                "total_iter": 300000,
                "warmup_iter": -1,
            },
            "val": {"val_freq": 5000},
        },
        lambda t: 1e-4 if t < 200000 else 5e-5,
        last=299999,
    ),
    # rampasek/GraphGPS configs/GPS/zinc-GPS+RWSE.yaml; its warmup begins at 1e-6 of the rate
    "GraphGPS": Case(
        {
            "train": {"batch_size": 32, "eval_period": 1},
            "optim": {
                "clip_grad_norm": True,
                "optimizer": "adamW",
                "weight_decay": 1e-5,
                "base_lr": 0.001,
                "max_epoch": 2000,
                "scheduler": "cosine_with_warmup",
                "num_warmup_epochs": 50,
            },
        },
        lambda t: warm_cosine(t // 10, 1e-3, 50, 2000),
        facts=EPOCH,
        last=19999,
    ),
    # victoresque/pytorch-template config.json
    "pytorch-template": Case(
        {
            "lr_scheduler_type": "ExponentialLR",
            "lr_scheduler_freq": 1,
            "lr_scheduler": {"gamma": 0.8685113737513527},
            "optimizer_type": "Adam",
            "optimizer": {"lr": 0.001, "weight_decay": 0},
            "trainer": {"epochs": 1000, "save_freq": 1},
        },
        lambda t: 1e-3 * 0.8685113737513527 ** (t // 10),
        facts=EPOCH,
        last=990,
    ),
    # yxlllc/DDSP-SVC configs/diffusion.yaml: StepLR, stepped after every update
    "DDSP-SVC": Case(
        {
            "train": {
                "epochs": 100000,
                "interval_log": 10,
                "lr": 0.0002,
                "decay_step": 100000,
                "gamma": 0.5,
                "weight_decay": 0,
            },
            "infer": {"method": "dpm-solver"},
        },
        lambda t: 2e-4 * 0.5 ** (t // 100000),
        last=500000,
    ),
    # state-spaces/s4 configs/scheduler/cosine_warmup.yaml, configs/optimizer/adamw.yaml
    "s4": Case(
        {
            "train": {"interval": "step"},
            "scheduler": {
                "_name_": "cosine_warmup",
                "num_warmup_steps": 1000,
                "num_training_steps": 40000,
            },
            "optimizer": {"_name_": "adamw", "lr": 0.001, "weight_decay": 0.0},
        },
        lambda t: warm_cosine(t, 1e-3, 1000, 40000),
        last=40000,
    ),
    # kan-bayashi/ParallelWaveGAN egs/ljspeech/voc1/conf/parallel_wavegan.v1.yaml
    "ParallelWaveGAN": Case(
        {
            "batch_max_steps": 25600,
            "generator_optimizer_params": {"lr": 0.0001, "eps": 1e-6, "weight_decay": 0.0},
            "generator_scheduler_params": {"step_size": 200000, "gamma": 0.5},
            "discriminator_optimizer_params": {"lr": 0.00005, "eps": 1e-6, "weight_decay": 0.0},
            "discriminator_scheduler_params": {"step_size": 200000, "gamma": 0.5},
            "train_max_steps": 400000,
        },
        lambda t: 5e-5 * 0.5 ** (t // 200000),
        r"2 keys can be the rate .*: generator_optimizer_params.lr = 0.0001, discr",
        paths={"lr": "discriminator_optimizer_params.lr"},
        last=399999,
    ),
    # lyuwenyu/RT-DETR rtdetr_pytorch/configs/rtdetr/include/optimizer.yml
    "RT-DETR": Case(
        {
            "ema": {"type": "ModelEMA", "decay": 0.9999, "warmups": 2000},
            "epoches": 72,
            "optimizer": {
                "type": "AdamW",
                "params": [{"params": "backbone", "lr": 0.00005}, {"weight_decay": 0.0}],
                "lr": 0.0001,
                "betas": [0.9, 0.999],
                "weight_decay": 0.0001,
            },
            "lr_scheduler": {"type": "MultiStepLR", "milestones": [60], "gamma": 0.1},
        },
        lambda t: 1e-4 if t < 600 else 1e-5,
        r"2 keys can be the rate .*optimizer.params\[0\].lr = 5e-05, optimizer.lr = 0.0001",
        paths={"lr": "optimizer.lr"},
        facts=EPOCH,
        last=719,
    ),
    # svc-develop-team/so-vits-svc configs_template/config_template.json
    "so-vits-svc": Case(
        {
            "train": {
                "epochs": 10000,
                "learning_rate": 0.0001,
                "betas": [0.8, 0.99],
                "eps": 1e-9,
                "lr_decay": 0.999875,
                "init_lr_ratio": 1,
                "warmup_epochs": 0,
            }
        },
        lambda t: 1e-4 * 0.999875 ** (t // 10),
        f"{DECAY}train.lr_decay speak of one",
        paths={"decay": "exponential"},
        facts=EPOCH,
        last=990,
    ),
    # Project-MONAI/model-zoo models/spleen_ct_segmentation/configs/train.json
    "MONAI": Case(
        {
            "optimizer": {"_target_": "torch.optim.Adam", "params": "$@network", "lr": 0.0001},
            "network_def": {"_target_": "UNet", "strides": [2, 2, 2, 2]},
            "train": {"trainer": {"_target_": "SupervisedTrainer", "max_epochs": 300}},
        },
        lambda t: 1e-4,
        f"{DECAY}no key names its decay",
        paths={"decay": "constant"},
        last=100,
    ),
    # NVlabs/SegFormer local_configs/segformer/B0/segformer.b0.512x512.ade.160k.py
    "SegFormer": Case(
        {
            "optimizer": {"type": "AdamW", "lr": 0.00006, "betas": [0.9, 0.999]},
            "lr_config": {
                "policy": "poly",
                "warmup": "linear",
                "warmup_iters": 1500,
                "warmup_ratio": 1e-6,
                "power": 1.0,
                "min_lr": 0.0,
                "by_epoch": False,
            },
        },
        refused=r"2 keys can be the length of the warmup: .*warmup_iters = 1500, .*ratio",
    ),
    # wenet-e2e/wenet examples/aishell/s0/conf/train_conformer.yaml
    "wenet": Case(
        {
            "max_epoch": 240,
            "optim": "adam",
            "optim_conf": {"lr": 0.001},
            "scheduler": "warmuplr",
            "scheduler_conf": {"warmup_steps": 25000},
        },
        refused="there is no family of schedules 'warmuplr' by name .*: scheduler",
    ),
    # PaddlePaddle/PaddleSpeech examples/aishell/asr1/conf/conformer.yaml
    "PaddleSpeech": Case(
        {
            "training": {
                "n_epoch": 240,
                "accum_grad": 2,
                "optim": "adam",
                "optim_conf": {"lr": 0.002, "weight_decay": 1e-6},
                "scheduler": "warmuplr",
                "scheduler_conf": {"warmup_steps": 25000, "lr_decay": 1.0},
            }
        },
        refused="there is no family of schedules 'warmuplr' by name .*: training.scheduler",
    ),
    # open-mmlab/OpenPCDet tools/cfgs/kitti_models/pointpillar.yaml
    "OpenPCDet": Case(
        {
            "OPTIMIZATION": {
                "NUM_EPOCHS": 80,
                "OPTIMIZER": "adam_onecycle",
                "LR": 0.003,
                "WEIGHT_DECAY": 0.01,
                "MOMS": [0.95, 0.85],
                "PCT_START": 0.4,
                "DIV_FACTOR": 10,
                "DECAY_STEP_LIST": [35, 45],
                "LR_DECAY": 0.1,
                "LR_WARMUP": False,
                "WARMUP_EPOCH": 1,
            }
        },
        refused=f"{DECAY}PCT_START, OPTIMIZATION.DIV_FACTOR speak of one",
    ),
    # facebookresearch/SlowFast configs/Kinetics/SLOWFAST_8x8_R50.yaml: every update has a rate, and
    # the cosine begins with the warmup
    "SlowFast": Case(
        {
            "BN": {"MOMENTUM": 0.1, "WEIGHT_DECAY": 0.0},
            "SOLVER": {
                "BASE_LR": 0.1,
                "LR_POLICY": "cosine",
                "MAX_EPOCH": 196,
                "MOMENTUM": 0.9,
                "WEIGHT_DECAY": 1e-4,
                "WARMUP_EPOCHS": 34,
                "WARMUP_START_LR": 0.01,
                "OPTIMIZING_METHOD": "sgd",
            },
        },
        assumed=("unit", "decay-place", "warmup-place"),
        facts=EPOCH,
    ),
    # microsoft/Swin-Transformer config.py
    "Swin": Case(
        {
            "TRAIN": {
                "EPOCHS": 300,
                "WARMUP_EPOCHS": 20,
                "WEIGHT_DECAY": 0.05,
                "BASE_LR": 5e-4,
                "WARMUP_LR": 5e-7,
                "MIN_LR": 5e-6,
                "LR_SCHEDULER": {"NAME": "cosine", "DECAY_EPOCHS": 30, "DECAY_RATE": 0.1},
                "OPTIMIZER": {"NAME": "adamw", "EPS": 1e-8, "MOMENTUM": 0.9},
            }
        },
        assumed=("lr", "unit", "decay-place"),
        facts=EPOCH,
    ),
    # HRNet/HRNet-Semantic-Segmentation experiments/cityscapes/seg_hrnet_w48_….yaml
    "HRNet": Case(
        {"TRAIN": {"END_EPOCH": 484, "OPTIMIZER": "sgd", "LR": 0.01, "WD": 0.0005}}, refused=DECAY
    ),
    # ming024/FastSpeech2 config/LJSpeech/train.yaml
    "FastSpeech2": Case(
        {
            "optimizer": {
                "betas": [0.9, 0.98],
                "warm_up_step": 4000,
                "anneal_steps": [300000, 400000],
                "anneal_rate": 0.3,
            },
            "step": {"total_step": 900000},
        },
        refused="the key of lr is missing",
    ),
    # TensorSpeech/TensorFlowTTS examples/fastspeech2/conf/fastspeech2.v1.yaml
    "TensorFlowTTS": Case(
        {
            "optimizer_params": {
                "initial_learning_rate": 0.001,
                "end_learning_rate": 0.00005,
                "decay_steps": 150000,
                "warmup_proportion": 0.02,
                "weight_decay": 0.001,
            },
            "train_max_steps": 200000,
        },
        refused=f"{DECAY}end_learning_rate speak of one",
    ),
    # JaidedAI/EasyOCR trainer/config_files/en_filtered_config.yaml
    "EasyOCR": Case(
        {"num_iter": 300000, "optim": False, "lr": 1.0, "beta1": 0.9, "rho": 0.95}, refused=DECAY
    ),
    # CompVis/latent-diffusion configs/latent-diffusion/ffhq-ldm-vq-4.yaml: the rate is multiplied
    # by the batch size and the number of devices
    "latent-diffusion": Case(
        {
            "model": {
                "base_learning_rate": 2e-6,
                "target": "ldm.models.diffusion.ddpm.LatentDiffusion",
                "params": {"linear_start": 0.0015, "linear_end": 0.0195, "timesteps": 1000},
            }
        },
        assumed=("lr", "decay"),
    ),
    # OpenNMT/OpenNMT-py config/config-transformer-base-4GPU.yml
    "OpenNMT-py": Case(
        {
            "train_steps": 200000,
            "warmup_steps": 8000,
            "optim": "adam",
            "adam_beta1": 0.9,
            "adam_beta2": 0.998,
            "decay_method": "noam",
            "learning_rate": 2.0,
        },
        refused="there is no family of schedules 'noam' by name",
    ),
    # joeynmt/joeynmt configs/transformer_small.yaml
    "joeynmt": Case(
        {
            "training": {
                "optimizer": "adam",
                "learning_rate": 0.001,
                "learning_rate_min": 1e-6,
                "learning_rate_warmup": 1000,
                "scheduling": "noam",
                "epochs": 1,
            }
        },
        refused="there is no family of schedules 'noam' by name",
    ),
    # wolny/pytorch-3dunet resources/3DUnet_confocal_boundary/train_config.yml
    "pytorch-3dunet": Case(
        {
            "optimizer": {"learning_rate": 0.0002, "weight_decay": 0.00001},
            "lr_scheduler": {"name": "ReduceLROnPlateau", "factor": 0.5, "patience": 30},
            "trainer": {"iters": 150000},
        },
        refused="ReduceLROnPlateau is driven by a metric",
    ),
    # ZFTurbo/Music-Source-Separation-Training configs/config_vocals_mel_band_roformer.yaml
    "Music-Source-Separation": Case(
        {
            "training": {
                "lr": 5e-5,
                "patience": 2,
                "reduce_factor": 0.95,
                "num_epochs": 1000,
                "num_steps": 1000,
                "optimizer": "adam",
            }
        },
        refused="2 keys can be the length of the run: training.num_epochs = 1000, train",
    ),
    # yl4579/StyleTTS2 Configs/config.yml
    "StyleTTS2": Case(
        {
            "epochs_1st": 200,
            "epochs_2nd": 100,
            "optimizer_params": {"lr": 0.0001, "bert_lr": 0.00001, "ft_lr": 0.00001},
        },
        refused=DECAY,
    ),
    # Stability-AI/stable-audio-tools …/txt2audio/stable_audio_2_0.json
    "stable-audio-tools": Case(
        {
            "training": {
                "optimizer_configs": {
                    "diffusion": {
                        "optimizer": {"type": "AdamW", "config": {"lr": 5e-5}},
                        "scheduler": {
                            "type": "InverseLR",
                            "config": {"inv_gamma": 1000000, "power": 0.5, "warmup": 0.99},
                        },
                    }
                }
            }
        },
        refused="there is no family of schedules 'InverseLR' by name",
    ),
    # clovaai/donut config/train_cord.yaml
    "donut": Case(
        {"lr": 3e-5, "warmup_steps": 300, "max_epochs": 30, "max_steps": None}, refused=DECAY
    ),
    # salesforce/LAVIS lavis/projects/blip2/train/caption_coco_ft.yaml: the cosine is by epochs
    "LAVIS": Case(
        {
            "run": {
                "lr_sched": "linear_warmup_cosine_lr",
                "init_lr": 1e-5,
                "min_lr": 0,
                "warmup_lr": 1e-8,
                "warmup_steps": 10,
                "weight_decay": 0.05,
                "max_epoch": 5,
            }
        },
        assumed=("unit", "decay-place"),
        facts=EPOCH,
    ),
    # facebookresearch/ijepa configs/in1k_vith14_ep300.yaml
    "ijepa": Case(
        {
            "optimization": {
                "ema": [0.996, 1.0],
                "epochs": 300,
                "final_lr": 1e-6,
                "final_weight_decay": 0.4,
                "lr": 0.001,
                "start_lr": 0.0002,
                "warmup": 40,
            }
        },
        refused=f"{DECAY}optimization.final_lr speak of one",
    ),
    # facebookresearch/maskrcnn-benchmark configs/e2e_mask_rcnn_R_50_FPN_1x.yaml
    "maskrcnn-benchmark": Case(
        {"SOLVER": {"BASE_LR": 0.01, "STEPS": "(120000, 160000)", "MAX_ITER": 180000}},
        refused=DECAY,
    ),
    # damo-cv/TransReID configs/Market/vit_base.yml
    "TransReID": Case(
        {
            "SOLVER": {
                "OPTIMIZER_NAME": "SGD",
                "MAX_EPOCHS": 120,
                "BASE_LR": 0.008,
                "WARMUP_METHOD": "linear",
                "BIAS_LR_FACTOR": 2,
            }
        },
        refused=DECAY,
    ),
    # fishaudio/fish-speech fish_speech/configs/text2semantic_finetune.yaml
    "fish-speech": Case(
        {
            "trainer": {"max_steps": 1000},
            "model": {
                "optimizer": {"_target_": "torch.optim.AdamW", "_partial_": True, "lr": 1e-5},
                "lr_scheduler": {
                    "_target_": "torch.optim.lr_scheduler.LambdaLR",
                    "lr_lambda": {"_target_": "fish_speech.scheduler.get_lr_lambda"},
                },
            },
        },
        refused="there is no scheduler 'get_lr_lambda' .*lr_scheduler.lr_lambda",
    ),
    # openai/guided-diffusion README.md: TRAIN_FLAGS of the classifier
    "guided-diffusion": Case(
        {"iterations": 300000, "anneal_lr": True, "lr": 3e-4, "weight_decay": 0.05}, refused=DECAY
    ),
    # autonomousvision/unimatch scripts/gmflow_scale1_train.sh
    "unimatch": Case({"stage": "chairs", "lr": 4e-4, "num_steps": 100000}, refused=DECAY),
    # DepthAnything/Depth-Anything-V2 metric_depth/dist_train.sh
    "Depth-Anything": Case({"epoch": 120, "lr": 5e-6, "max-depth": 20}, refused=DECAY),
    # catalyst-team/catalyst examples/mnist_stages/config.yml
    "catalyst": Case(
        {
            "stages": {
                name: {
                    "num_epochs": 4,
                    "optimizer": {"_target_": optimizer},
                    "scheduler": {"_target_": "MultiStepLR", "milestones": [2], "gamma": 0.3},
                }
                for name, optimizer in (("train", "Adam"), ("tune", "Ralamb"))
            }
        },
        refused="2 keys can be the family of the decay, .*: stages.train.scheduler",
    ),
    # allenai/allennlp-models training_config/classification/boolq_roberta.jsonnet
    "allennlp": Case(
        {
            "trainer": {
                "num_epochs": 10,
                "learning_rate_scheduler": {"type": "slanted_triangular", "cut_frac": 0.06},
                "optimizer": {"type": "huggingface_adamw", "lr": 1e-5},
            }
        },
        refused="there is no family of schedules 'slanted_triangular' by name",
    ),
    # PaddlePaddle/PaddleOCR configs/det/det_mv3_db.yml
    "PaddleOCR": Case(
        {
            "Global": {"epoch_num": 1200},
            "Optimizer": {"name": "Adam", "beta1": 0.9, "lr": {"learning_rate": 0.001}},
        },
        refused=DECAY,
    ),
}


def read(case: Case, paths: Mapping[str, str] | None = None) -> Any:
    return load_recipe(case.config, framework="generic", facts=case.facts, paths=paths)


@pytest.mark.parametrize("name", CASES)
def test_a_config_is_read_rightly_or_refused(name: str) -> None:
    case = CASES[name]
    if case.refused:
        with pytest.raises(ClosedFormError, match=case.refused) as raised:
            read(case)
        assert "paths={" in str(raised.value) or "metric_rule" in str(raised.value) or (
            "did you mean" in str(raised.value) or "known are" in str(raised.value)
        )  # fmt: skip
    if case.assumed:
        assert set(case.assumed) <= set(read(case).notes)
    if case.rate is not None:
        recipe = read(case, case.paths)
        steps = sorted({case.last * part // 97 for part in range(98)})
        rates = [float(recipe.schedule().exact(step)) for step in steps]
        expected = [case.rate(step) for step in steps]
        # The formulas here are float64: some roundings, and 1e-12 of the rate where they cancel.
        assert rates == pytest.approx(expected, rel=1e-12, abs=1e-12 * max(expected))


def test_at_least_four_of_five_are_read_or_refused() -> None:
    assert len(CASES) >= 30
    right = [name for name, case in CASES.items() if case.rate or case.refused]
    assert len(right) >= 0.8 * len(CASES)
