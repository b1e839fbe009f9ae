"""Schedules as published training code writes them, in our own words, one function a schedule.

`PUBLISHED` lists them by the repository or recipe in which the form occurs. A factory returns the
function of the step; names, defaults and idioms are those of its source, the text is ours.
"""

import bisect
import functools
import math
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from closedform.frameworks.gpt_neox import curves as gpt_neox
from closedform.frameworks.litgpt import curves as litgpt
from closedform.frameworks.maxtext import curves as maxtext
from closedform.frameworks.megatron import curves as megatron
from closedform.frameworks.nanochat import curves as nanochat

Schedule = Callable[[int], Any]
PUBLISHED: dict[str, Callable[[], Schedule]] = {}


def published(source: str) -> Callable[[Callable[[], Schedule]], Callable[[], Schedule]]:
    def add(make: Callable[[], Schedule]) -> Callable[[], Schedule]:
        name = f"{source}:{make.__name__}"
        assert name not in PUBLISHED
        PUBLISHED[name] = make
        return make

    return add


# --- curves of frameworks ------------------------------------------------------------------------

_MEGATRON = {"peak": 1.5e-4, "low": 1e-5, "first": 0.0, "tail": 20_000, "tail_style": "exponential"}
_MEGATRON |= {"warmup": 1000, "total": 320_000}
_CURVES: dict[str, tuple[Callable[..., float], dict[str, Any]]] = {
    "karpathy/nanochat:trapezoid_multiplier": (
        nanochat.multiplier,
        {"warmup_steps": 100, "total": 5000, "warmdown": 1000, "final_lr_frac": 0.0},
    ),
    "Lightning-AI/litgpt:cosine_of_iterations": (
        litgpt.pretraining,
        {"rate": 4e-4, "warmup": 2000, "total": 95_000, "low": 4e-5},
    ),
    **{
        f"NVIDIA/Megatron-LM:{style}": (megatron.learning_rate, {**_MEGATRON, "style": style})
        for style in megatron.STYLES
    },
    "NVIDIA/Megatron-LM:minus_sqrt": (
        megatron.learning_rate,
        {**_MEGATRON, "style": "WSD", "tail_style": "minus_sqrt"},
    ),
    "NVIDIA/Megatron-LM:weight_decay": (
        megatron.weight_decay,
        {"style": "cosine", "first": 0.01, "last": 0.1, "total": 50_000},
    ),
    "EleutherAI/gpt-neox:annealing_lr": (
        gpt_neox.rate,
        {"style": "cosine", "peak": 2e-4, "low": 2e-5, "warmup": 3200.0, "end": 320_000},
    ),
    "google/maxtext:cosine": (
        maxtext.rate,
        {"style": "cosine", "peak": 3e-5, "last": 3e-6, "warmup": 150, "length": 1350}
        | {"total": 1500, "end": 1600},
    ),
}
PUBLISHED |= {
    name: functools.partial(functools.partial, function, **numbers)
    for name, (function, numbers) in _CURVES.items()
}


# --- language models -----------------------------------------------------------------------------


@published("karpathy/nanoGPT")
def get_lr() -> Schedule:
    learning_rate, min_lr, warmup_iters, lr_decay_iters = 6e-4, 6e-5, 2000, 600000

    def get_lr(it):
        # 1) linear warmup for warmup_iters steps
        if it < warmup_iters:
            return learning_rate * (it + 1) / (warmup_iters + 1)
        # 2) if it > lr_decay_iters, return min learning rate
        if it > lr_decay_iters:
            return min_lr
        # 3) in between, use cosine decay down to min learning rate
        decay_ratio = (it - warmup_iters) / (lr_decay_iters - warmup_iters)
        assert 0 <= decay_ratio <= 1
        coeff = 0.5 * (1.0 + math.cos(math.pi * decay_ratio))
        return min_lr + coeff * (learning_rate - min_lr)

    return get_lr


max_lr = 6e-4
min_lr_of_build = max_lr * 0.1
warmup_steps = 715
max_steps = 19073


@published("karpathy/build-nanogpt")
def get_lr_of_globals() -> Schedule:
    def get_lr(it):
        if it < warmup_steps:
            return max_lr * (it + 1) / warmup_steps
        if it > max_steps:
            return min_lr_of_build
        decay_ratio = (it - warmup_steps) / (max_steps - warmup_steps)
        assert 0 <= decay_ratio <= 1
        coeff = 0.5 * (1.0 + math.cos(math.pi * decay_ratio))
        return min_lr_of_build + coeff * (max_lr - min_lr_of_build)

    return get_lr


@published("karpathy/minGPT")
def tokens_cosine() -> Schedule:
    config = types.SimpleNamespace(
        learning_rate=6e-4, warmup_tokens=512 * 20, final_tokens=2 * 10**6, block=128, batch=64
    )

    def lr_at(step):
        tokens = step * config.block * config.batch
        if tokens < config.warmup_tokens:
            lr_mult = float(tokens) / float(max(1, config.warmup_tokens))
        else:
            progress = float(tokens - config.warmup_tokens) / float(
                max(1, config.final_tokens - config.warmup_tokens)
            )
            lr_mult = max(0.1, 0.5 * (1.0 + math.cos(math.pi * min(progress, 1.0))))
        return config.learning_rate * lr_mult

    return lr_at


@published("karpathy/llm.c")
def linear_decay_to_fraction() -> Schedule:
    def get_lr(it, learning_rate=1e-4, warmup=256, total=18865, decay_frac=0.1):
        min_lr = learning_rate * decay_frac
        if it < warmup:
            return learning_rate * (it + 1) / warmup
        if it > total:
            return min_lr
        decay_ratio = (it - warmup) / (total - warmup)
        coeff = 0.5 * (1.0 + math.cos(math.pi * decay_ratio))
        return min_lr + coeff * (learning_rate - min_lr)

    return get_lr


@published("karpathy/nanochat")
def muon_momentum() -> Schedule:
    def get_muon_momentum(it):
        frac = min(it / 300, 1)
        momentum = (1 - frac) * 0.85 + frac * 0.95
        return momentum

    return get_muon_momentum


@published("KellerJordan/modded-nanogpt")
def stable_then_decay() -> Schedule:
    args = types.SimpleNamespace(num_iterations=1770, cooldown_frac=0.4)

    def get_lr(step: int):
        x = step / args.num_iterations  # progress in training
        assert 0 <= x < 1
        if x < 1 - args.cooldown_frac:
            return 1.0
        w = (1 - x) / args.cooldown_frac
        return w * 1.0 + (1 - w) * 0.1

    return get_lr


@published("KellerJordan/modded-nanogpt")
def warmdown_from_end() -> Schedule:
    num_iterations, warmup_iters, warmdown_iters = 5100, 0, 1450

    def get_lr(it):
        assert it <= num_iterations
        # 1) linear warmup for warmup_iters steps
        if it < warmup_iters:
            return (it + 1) / warmup_iters
        # 2) constant lr for a while
        if it < num_iterations - warmdown_iters:
            return 1.0
        # 3) linear warmdown
        decay_ratio = (num_iterations - it) / warmdown_iters
        return decay_ratio

    return get_lr


@published("KellerJordan/modded-nanogpt")
def window_size_blocks() -> Schedule:
    num_iterations = 1770

    def next_multiple_of_n(v, *, n):
        return next(x for x in range(n, int(v) + 1 + n, n) if x >= v)

    def window(step):
        x = min(step, num_iterations) / num_iterations
        window_size = next_multiple_of_n(1728 * x, n=128)
        return window_size

    return window


@published("KellerJordan/cifar10-airbench")
def triangle() -> Schedule:
    total_train_steps, peak = 500, 0.23

    def triangle(step):
        frac = min(step, total_train_steps) / total_train_steps
        return np.interp([frac], [0, peak, 1], [0.2, 1.0, 0.07])[0]

    return triangle


@published("KellerJordan/cifar10-airbench")
def whiten_bias() -> Schedule:
    total_train_steps, whiten_bias_train_steps, lr = 200, 75, 0.24

    def at(step):
        return lr * max(0.0, 1 - step / whiten_bias_train_steps)

    return at


@published("davidcpage/cifar10-fast")
def piecewise_linear() -> Schedule:
    class PiecewiseLinear:
        def __init__(self, knots, vals):
            self.knots, self.vals = knots, vals

        def __call__(self, t):
            return np.interp([t], self.knots, self.vals)[0]

    schedule = PiecewiseLinear([0, 5, 24], [0, 0.4, 0])
    batches = 98
    return lambda step: schedule(step / batches) / 512


@published("libffcv/ffcv-imagenet")
def get_step_lr() -> Schedule:
    def get_step_lr(epoch, lr=0.5, step_ratio=0.1, step_length=30, epochs=90):
        if epoch >= epochs:
            return 0
        num_steps = epoch // step_length
        return step_ratio**num_steps * lr

    return get_step_lr


@published("libffcv/ffcv-imagenet")
def get_cyclic_lr() -> Schedule:
    def get_cyclic_lr(epoch, lr=0.5, epochs=16, lr_peak_epoch=2):
        xs = [0, lr_peak_epoch, epochs]
        ys = [1e-4 * lr, lr, 0]
        return np.interp([epoch], xs, ys)[0]

    return get_cyclic_lr


@published("meta-llama/llama-recipes")
def step_lr_per_epoch() -> Schedule:
    gamma, lr = 0.85, 1e-4
    return lambda epoch: lr * gamma**epoch


@published("jzhang38/TinyLlama")
def tiny_llama() -> Schedule:
    return lambda it: (
        4e-4 * it / 2000
        if it < 2000
        else 4e-5
        if it > 715256
        else 4e-5 + 0.5 * (1 + math.cos(math.pi * (it - 2000) / (715256 - 2000))) * (4e-4 - 4e-5)
    )


@published("google-research/bert")
def polynomial_with_warmup() -> Schedule:
    init_lr, num_train_steps, num_warmup_steps = 5e-5, 100_000, 10_000

    def learning_rate(global_step):
        decayed = init_lr * (1.0 - min(global_step, num_train_steps) / num_train_steps)
        is_warmup = float(global_step < num_warmup_steps)
        warmup = init_lr * (global_step / num_warmup_steps)
        return (1.0 - is_warmup) * decayed + is_warmup * warmup

    return learning_rate


@published("huggingface/pytorch-pretrained-BERT")
def warmup_linear() -> Schedule:
    t_total, warmup = 1000, 0.1

    def warmup_linear(x):
        if x < warmup:
            return x / warmup
        return max((x - 1.0) / (warmup - 1.0), 0)

    return lambda step: 5e-5 * warmup_linear(step / t_total)


@published("huggingface/pytorch-pretrained-BERT")
def warmup_cosine() -> Schedule:
    def warmup_cosine(x, warmup=0.002):
        if x < warmup:
            return x / warmup
        return 0.5 * (1.0 + math.cos(math.pi * x))

    return lambda step: warmup_cosine(step / 10_000)


@published("NVIDIA/DeepLearningExamples")
def poly_warmup_bert() -> Schedule:
    warmup, total_steps, degree, base_lr = 0.2843, 7038, 0.5, 6e-3

    def get_lr(step):
        progress = (step + 1) / total_steps
        if progress < warmup:
            return base_lr * progress / warmup
        return base_lr * (max(0.0, 1.0 - progress) ** degree)

    return get_lr


@published("tensorflow/tensor2tensor")
def noam_of_transformer() -> Schedule:
    def rate(step, d_model=512, factor=1.0, warmup=4000):
        if step == 0:
            step = 1
        return factor * (d_model ** (-0.5) * min(step ** (-0.5), step * warmup ** (-1.5)))

    return rate


@published("harvardnlp/annotated-transformer")
def noam_opt() -> Schedule:
    class NoamOpt:
        def __init__(self, model_size, factor, warmup):
            self.model_size = model_size
            self.factor = factor
            self.warmup = warmup

        def rate(self, step):
            return self.factor * (
                self.model_size ** (-0.5) * min(step ** (-0.5), step * self.warmup ** (-1.5))
            )

    return NoamOpt(512, 2, 4000).rate


@published("tensorflow/tensorflow")
def custom_schedule_tutorial() -> Schedule:
    class CustomSchedule:
        def __init__(self, d_model, warmup_steps=4000):
            self.d_model = float(d_model)
            self.warmup_steps = warmup_steps

        def __call__(self, step):
            step = float(step + 1)
            arg1 = 1 / math.sqrt(step)
            arg2 = step * (self.warmup_steps**-1.5)
            return 1 / math.sqrt(self.d_model) * min(arg1, arg2)

    return CustomSchedule(128)


@published("OpenNMT/OpenNMT-py")
def noam_decay() -> Schedule:
    def noam_decay(step, warmup_steps, model_size):
        return model_size ** (-0.5) * min(step ** (-0.5), step * warmup_steps ** (-1.5))

    return lambda step: 2.0 * noam_decay(step + 1, 8000, 512)


@published("OpenNMT/OpenNMT-py")
def noamwd_decay() -> Schedule:
    def noamwd_decay(step, warmup_steps, model_size, rate, decay_steps, start_step=0):
        return (
            model_size ** (-0.5)
            * min(step ** (-0.5), step * warmup_steps ** (-1.5))
            * rate ** (max(step - start_step + decay_steps, 0) // decay_steps)
        )

    return lambda step: noamwd_decay(step + 1, 8000, 512, 0.5, 10000, 50000)


@published("OpenNMT/OpenNMT-py")
def exponential_decay() -> Schedule:
    def exponential_decay(step, rate, decay_steps, start_step=0):
        return rate ** (max(step - start_step + decay_steps, 0) // decay_steps)

    return functools.partial(exponential_decay, rate=0.5, decay_steps=10000, start_step=50000)


@published("OpenNMT/OpenNMT-py")
def rsqrt_decay() -> Schedule:
    def rsqrt_decay(step, warmup_steps):
        return 1.0 / math.sqrt(max(step, warmup_steps))

    return functools.partial(rsqrt_decay, warmup_steps=4000)


@published("facebookresearch/fairseq")
def inverse_sqrt_schedule() -> Schedule:
    class InverseSquareRootSchedule:
        def __init__(self):
            self.warmup_updates, self.lr, self.warmup_init_lr = 4000, 5e-4, 1e-7
            self.lr_step = (self.lr - self.warmup_init_lr) / self.warmup_updates
            self.decay_factor = self.lr * self.warmup_updates**0.5

        def step_update(self, num_updates):
            if num_updates < self.warmup_updates:
                return self.warmup_init_lr + num_updates * self.lr_step
            return self.decay_factor * num_updates**-0.5

    return InverseSquareRootSchedule().step_update


@published("facebookresearch/fairseq")
def tri_stage() -> Schedule:
    init_lr, peak_lr, final_lr = 5e-6, 5e-4, 2.5e-5
    warmup_steps, hold_steps, decay_steps = 8000, 32000, 40000
    warmup_rate = (peak_lr - init_lr) / warmup_steps
    decay_factor = -math.log(0.05) / decay_steps

    def stage_of(update_step):
        if update_step < warmup_steps:
            return 0, update_step
        offset = warmup_steps
        if update_step < offset + hold_steps:
            return 1, update_step - offset
        offset += hold_steps
        if update_step <= offset + decay_steps:
            return 2, update_step - offset
        offset += decay_steps
        return 3, update_step - offset

    def step_update(num_updates):
        stage, steps_in_stage = stage_of(num_updates)
        if stage == 0:
            return init_lr + warmup_rate * steps_in_stage
        if stage == 1:
            return peak_lr
        if stage == 2:
            return peak_lr * math.exp(-decay_factor * steps_in_stage)
        if stage == 3:
            return final_lr
        raise ValueError("undefined stage")

    return step_update


@published("facebookresearch/fairseq")
def cosine_with_period() -> Schedule:
    warmup, period, t_mult, min_lr, max_lr, shrink = 4000, 20000, 1, 1e-7, 1e-3, 0.1
    lr_step = (max_lr - 1e-7) / warmup

    def step_update(num_updates):
        if num_updates < warmup:
            return 1e-7 + num_updates * lr_step
        curr_updates = num_updates - warmup
        i = math.floor(curr_updates / period)
        t_curr = curr_updates - (period * i)
        r = float(t_curr) / period
        lr_shrink = shrink**i
        low, high = min_lr * lr_shrink, max_lr * lr_shrink
        return low + 0.5 * (high - low) * (1 + math.cos(math.pi * r))

    return step_update


@published("facebookresearch/fairseq")
def polynomial_decay_schedule() -> Schedule:
    def step_update(num_updates):
        lr, warmup, total, end, power = 5e-4, 10_000, 125_000, 0.0, 1.0
        if warmup > 0 and num_updates <= warmup:
            return num_updates / float(warmup) * lr
        if num_updates >= total:
            return end
        lr_range = lr - end
        pct_remaining = 1 - (num_updates - warmup) / (total - warmup)
        return lr_range * pct_remaining**power + end

    return step_update


@published("facebookresearch/metaseq")
def opt_175b() -> Schedule:
    def lr(num_updates, peak=1.2e-4, warmup=2000, total=143_000, end=1.2e-5):
        if num_updates <= warmup:
            return peak * num_updates / warmup
        if num_updates >= total:
            return end
        remaining = 1 - (num_updates - warmup) / (total - warmup)
        return (peak - end) * remaining + end

    return lr


@published("microsoft/DeepSpeed")
def warmup_lr_log() -> Schedule:
    warmup_min_lr, warmup_max_lr, warmup_num_steps = 0.0, 1e-3, 1000
    inverse_log_warm_up = 1.0 / math.log(warmup_num_steps)

    def gamma(last_batch_iteration):
        if last_batch_iteration < warmup_num_steps:
            return inverse_log_warm_up * math.log(last_batch_iteration + 1)
        return 1.0

    return lambda i: warmup_min_lr + (warmup_max_lr - warmup_min_lr) * gamma(i)


@published("microsoft/DeepSpeed")
def warmup_cosine_lr() -> Schedule:
    total, warmup, warmup_min_ratio, cos_min_ratio = 10_000, 1000, 0.0, 1e-4

    def ratio(i):
        if i < warmup:
            ratio_delta = 1.0 - warmup_min_ratio
            return warmup_min_ratio + ratio_delta * (i / warmup)
        real_last_step = i - warmup + 1
        real_total_steps = total - warmup
        ratio_delta = 1.0 - cos_min_ratio
        value = (1 + math.cos(math.pi * real_last_step / real_total_steps)) / 2
        return max(0.0, cos_min_ratio + ratio_delta * value)

    return ratio


@published("microsoft/DeepSpeed")
def lr_range_test() -> Schedule:
    def interval(i, step_size=2000, *, staircase=False):
        cycle = float(i + 1) / step_size
        return math.floor(cycle) if staircase else cycle

    PUBLISHED["microsoft/DeepSpeed:lr_range_test_staircase"] = lambda: (
        lambda i: 1e-3 * (1 + 1.0 * interval(i, staircase=True))
    )
    return lambda i: 1e-3 * (1 + 1.0 * interval(i))


@published("microsoft/DeepSpeed")
def one_cycle() -> Schedule:
    first, second, low, high, decay_rate = 1000, 1000, 1e-4, 1e-3, 0.001
    total_size = first + second
    step_ratio = first / total_size

    def get_cycle_lr(i):
        cycle = math.floor(1 + i / total_size)
        x = 1.0 + i / total_size - cycle
        scale_factor = x / step_ratio if x <= step_ratio else (x - 1) / (step_ratio - 1)
        return low + (high - low) * scale_factor

    def get_lr(i):
        if i < total_size:
            return get_cycle_lr(i)
        decay = i - total_size + 1
        return low / (1 + decay * decay_rate)

    return get_lr


@published("mosaicml/llm-foundry")
def inv_sqrt_with_cooldown() -> Schedule:
    t_warmup, t_scale, t_cooldown, t_max, alpha_f = 100, 10, 200, 2000, 0.0

    def linear(current, start, end, a, b):
        if current < start:
            return a
        if current > end:
            return b
        frac = (current - start) / (end - start)
        return a + frac * (b - a)

    def at(t):
        t_shift = t_scale - t_warmup
        t_cooldown_start = t_max - t_cooldown
        if t < t_warmup:
            return linear(t, 0, t_warmup, 0.0, 1.0)
        if t < t_cooldown_start:
            return 1.0 / (((t + t_shift) / t_scale) ** 0.5)
        start = 1.0 / (((t_cooldown_start + t_shift) / t_scale) ** 0.5)
        return linear(t, t_cooldown_start, t_max, start, alpha_f)

    return at


@published("mosaicml/composer")
def cosine_with_warmup() -> Schedule:
    def _cosine_anneal(x, min_y=0.0, max_y=1.0):
        return min_y + (max_y - min_y) * (1 + math.cos(x * math.pi)) / 2

    def at(current_step, t_warmup=100, t_max=4800, alpha_f=0.1):
        if current_step < t_warmup:
            return min(1.0, current_step / t_warmup)
        frac_of_total = min(1.0, (current_step - t_warmup) / (t_max - t_warmup))
        return _cosine_anneal(x=frac_of_total, min_y=alpha_f)

    return at


@published("mosaicml/composer")
def polynomial_scheduler() -> Schedule:
    def at(step, power=2.0, t_max=900, alpha_f=0.01):
        coeff = (1 - min(1.0, step / t_max)) ** power
        return alpha_f + coeff * (1.0 - alpha_f)

    return at


@published("mosaicml/composer")
def cosine_restarts() -> Schedule:
    def at(current_time, t_0=100, t_mult=2.0, alpha_f=0.0):
        current_time = min(current_time, 3000)
        interval_end = 0
        interval_length = t_0
        while True:
            interval_start = interval_end
            interval_end = interval_start + interval_length
            if current_time < interval_end:
                break
            interval_length = t_mult * interval_length
        frac = (current_time - interval_start) / interval_length
        return alpha_f + (1 - alpha_f) * (1 + math.cos(frac * math.pi)) / 2

    return at


@published("allenai/OLMo")
def cosine_with_warmup_olmo() -> Schedule:
    class CosWithWarmup:
        grad_clip_warmup_steps = None

        def __init__(self, warmup_steps, alpha_f, t_max, warmup_min_lr):
            self.warmup_steps = warmup_steps
            self.alpha_f = alpha_f
            self.t_max = t_max
            self.warmup_min_lr = warmup_min_lr

        def _linear_warmup(self, initial_lr, step, warmup_steps=2000):
            warmup_min_lr = (
                self.warmup_min_lr if self.warmup_min_lr is not None else initial_lr * 0.1
            )
            assert 0 <= warmup_min_lr < initial_lr
            return (
                warmup_min_lr
                + (initial_lr - warmup_min_lr) * min(step, warmup_steps) / warmup_steps
            )

        def get_lr(self, initial_lr, step, max_steps):
            max_steps = max_steps if self.t_max is None else self.t_max
            eta_min = initial_lr * self.alpha_f
            if step < self.warmup_steps:
                return self._linear_warmup(initial_lr, step, self.warmup_steps)
            if step >= max_steps:
                return eta_min
            step = step - self.warmup_steps
            max_steps = max_steps - self.warmup_steps
            return eta_min + (initial_lr - eta_min) * (1 + math.cos(math.pi * step / max_steps)) / 2

    scheduler = CosWithWarmup(2000, 0.1, None, None)
    return lambda step: scheduler.get_lr(3e-4, step, 50_000)


@published("allenai/OLMo")
def inv_sqrt_with_warmup_olmo() -> Schedule:
    class Base:
        def __init__(self):
            self.warmup_steps = 500
            self.warmup_min_lr = 0.0

        def _linear_warmup(self, initial_lr, step, warmup_steps):
            low = self.warmup_min_lr
            return low + (initial_lr - low) * min(step, warmup_steps) / warmup_steps

        def get_lr(self, step):
            raise NotImplementedError

    class InvSqrtWithWarmup(Base):
        def __init__(self):
            super().__init__()

        def get_lr(self, step):
            if step < self.warmup_steps:
                return super()._linear_warmup(1e-3, step, self.warmup_steps)
            return 1e-3 * math.sqrt(self.warmup_steps / max(self.warmup_steps, step))

    return InvSqrtWithWarmup().get_lr


@published("allenai/OLMo")
def bolt_on_warmup() -> Schedule:
    def inner(step):
        return 3e-4 * max(0.1, 1 - step / 1000)

    def at(step, start=100, end=200):
        lr = inner(step)
        if step < start:
            return 0.0
        if step > end:
            return lr
        return lr * (step - start) / (end - start)

    return at


@published("pytorch/torchtitan")
def linear_warmup_stable_decay() -> Schedule:
    def linear_warmup_stable_decay(
        current_step, warmup_steps, stable_steps, decay_steps, lr_decay_type, min_lr_factor
    ):
        warmup_stable_steps = warmup_steps + stable_steps
        if current_step < warmup_steps:
            current_step += 1
            curr_adjustment = float(current_step / warmup_steps)
        elif current_step < warmup_stable_steps:
            curr_adjustment = 1.0
        else:
            current_step += 1
            progress = float(current_step - warmup_stable_steps) / decay_steps
            if lr_decay_type == "linear":
                curr_adjustment = 1 - progress
            elif lr_decay_type == "sqrt":
                curr_adjustment = 1 - math.sqrt(progress)
            elif lr_decay_type == "cosine":
                curr_adjustment = 0.5 * (1.0 + math.cos(math.pi * progress))
            curr_adjustment = min_lr_factor + (1 - min_lr_factor) * curr_adjustment
        return curr_adjustment

    def make(kind):
        return functools.partial(
            linear_warmup_stable_decay,
            warmup_steps=200,
            stable_steps=8000,
            decay_steps=1800,
            lr_decay_type=kind,
            min_lr_factor=0.1,
        )

    PUBLISHED["pytorch/torchtitan:cosine"] = lambda: make("cosine")
    PUBLISHED["pytorch/torchtitan:sqrt"] = lambda: make("sqrt")
    return make("linear")


@published("pytorch/torchtune")
def cosine_schedule_with_warmup() -> Schedule:
    def lr_lambda(current_step: int, num_warmup_steps=100, num_training_steps=1000, num_cycles=0.5):
        if current_step < num_warmup_steps:
            return current_step / max(1, num_warmup_steps)
        progress = (current_step - num_warmup_steps) / max(1, num_training_steps - num_warmup_steps)
        cosine_lr_multiple = 0.5 * (1.0 + math.cos(math.pi * num_cycles * 2.0 * progress))
        return max(0.0, cosine_lr_multiple)

    return lr_lambda


@published("facebookresearch/lingua")
def cosine_of_theta() -> Schedule:
    def lr_cosine(step, warmup, n_steps, cycle_length, theta, min_ratio):
        sign = ((step // (n_steps * cycle_length)) % 2) * -2 + 1
        if step < warmup:
            lr = float(step) / warmup
        elif step <= n_steps:
            s = float(step - warmup) / (n_steps - warmup)
            lr = min_ratio + 0.5 * (1 - min_ratio) * (
                sign * math.cos(math.pi * s**theta / cycle_length) + 1
            )
        else:
            lr = min_ratio
        return lr

    return functools.partial(
        lr_cosine, warmup=2000, n_steps=10000, cycle_length=1.0, theta=1.0, min_ratio=0.1
    )


@published("facebookresearch/lingua")
def linear_of_lingua() -> Schedule:
    def lr_linear(step: int, warmup: int, n_steps: int, min_ratio: float) -> float:
        if step < warmup:
            lr = float(step) / warmup
        elif step <= n_steps:
            s = float(step - warmup) / (n_steps - warmup)
            lr = s * min_ratio + (1 - s)
        else:
            lr = min_ratio
        return lr

    return functools.partial(lr_linear, warmup=2000, n_steps=60000, min_ratio=0.01)


@published("facebookresearch/lingua")
def inverse_sqrt_of_lingua() -> Schedule:
    def lr_inv_sqrt(step, warmup, exp_factor, min_ratio):
        if step < warmup:
            lr = float(step) / warmup
        else:
            lr = max((warmup**exp_factor) / (step**exp_factor), min_ratio)
        return lr

    return functools.partial(lr_inv_sqrt, warmup=2000, exp_factor=0.5, min_ratio=0.01)


@published("facebookresearch/lingua")
def wsd_of_lingua() -> Schedule:
    def lr_wsd(step, warmup, n_steps, decay_fraction, cycle_length, min_ratio):
        cycle_num = step // int(n_steps * cycle_length) + 1
        curr_n_steps = int(n_steps * cycle_length) * cycle_num
        decay_length = int(curr_n_steps * decay_fraction)
        if step < warmup:
            lr = float(step) / warmup
        elif step <= curr_n_steps - decay_length:
            lr = 1.0
        elif step > curr_n_steps - decay_length and step <= curr_n_steps:
            slope = -(1.0 - min_ratio) / decay_length
            intercept = min_ratio + ((1.0 - min_ratio) * curr_n_steps) / decay_length
            lr = slope * step + intercept
        else:
            lr = min_ratio
        return lr

    def at(step):
        return lr_wsd(min(step, 9999), 500, 10_000, 0.1, 1.0, 0.1)

    return at


@published("huggingface/nanotron")
def lr_lambda_of_nanotron() -> Schedule:
    scheduler = types.SimpleNamespace(
        learning_rate=3e-4,
        min_decay_lr=3e-5,
        lr_warmup_steps=100,
        lr_warmup_style="linear",
        lr_decay_style="cosine",
        lr_decay_steps=800,
        lr_decay_starting_step=200,
    )

    def lr_lambda(current_step: int, initial_lr: float):
        if current_step <= scheduler.lr_warmup_steps:
            if scheduler.lr_warmup_style == "linear":
                lmbda = initial_lr * current_step / max(scheduler.lr_warmup_steps, 1)
            elif scheduler.lr_warmup_style == "constant":
                lmbda = scheduler.learning_rate
            else:
                raise ValueError(f"Unknown warmup style {scheduler.lr_warmup_style}")
        elif current_step < scheduler.lr_decay_starting_step:
            lmbda = initial_lr
        elif current_step < scheduler.lr_decay_starting_step + scheduler.lr_decay_steps:
            if scheduler.lr_decay_style == "cosine":
                lmbda = (
                    scheduler.min_decay_lr
                    + (initial_lr - scheduler.min_decay_lr)
                    * (
                        1
                        + math.cos(
                            math.pi
                            * (current_step - scheduler.lr_decay_starting_step)
                            / scheduler.lr_decay_steps
                        )
                    )
                    / 2
                )
            elif scheduler.lr_decay_style == "linear":
                lmbda = 0.0
            else:
                raise ValueError(f"Unknown decay style {scheduler.lr_decay_style}")
        else:
            lmbda = scheduler.min_decay_lr
        return lmbda / initial_lr

    return lambda step: lr_lambda(step, 3e-4)


@published("OpenBMB/MiniCPM")
def wsd_of_minicpm() -> Schedule:
    def get_lr(num_iter, start_lr=0.01, warmup_iter=100, drop_iter=500, end_iter=2000):
        if warmup_iter > 0 and num_iter < warmup_iter:
            return start_lr * num_iter / warmup_iter
        if num_iter <= end_iter - drop_iter:
            return start_lr
        progress = num_iter - (end_iter - drop_iter)
        return start_lr * 0.5 ** (progress / drop_iter * 10)

    return get_lr


@published("deepseek-ai/DeepSeek-LLM")
def multi_step_by_fraction() -> Schedule:
    def lr(step, peak=4.2e-4, warmup=2000, total=486_000):
        if step < warmup:
            return peak * step / warmup
        fraction = step / total
        return peak * (1.0 if fraction < 0.8 else 0.316 if fraction < 0.9 else 0.1)

    return lr


@published("google-research/t5x")
def factor_product() -> Schedule:
    def step_fn(step, factors="constant * linear_warmup * rsqrt_decay", base=0.5, warmup=10000):
        ret = 1.0
        for name in [n.strip() for n in factors.split("*")]:
            if name == "constant":
                ret *= base
            elif name == "linear_warmup":
                ret *= min(1.0, step / warmup)
            elif name == "rsqrt_decay":
                ret /= math.sqrt(max(step, warmup))
            elif name == "decay_every":
                ret *= 0.5 ** (step // 20000)
            else:
                raise ValueError(f"Unknown factor {name}.")
        return ret

    PUBLISHED["google-research/t5x:decay_every"] = lambda: functools.partial(
        step_fn, factors="constant * linear_warmup * decay_every"
    )
    return step_fn


@published("google-research/big_vision")
def create_learning_rate_schedule() -> Schedule:
    def step_fn(
        step, total_steps=10_000, base=1e-3, decay_type="cosine", warmup_steps=500, cooldown_steps=0
    ):
        lr = base
        progress = (step - warmup_steps) / float(total_steps - warmup_steps)
        progress = np.clip(progress, 0.0, 1.0)
        if decay_type in ("linear", "polynomial"):
            lr = 0.0 + (lr - 0.0) * (1.0 - progress)
        elif decay_type == "cosine":
            lr = lr * 0.5 * (1.0 + np.cos(np.pi * progress))
        elif decay_type == "rsqrt":
            timescale = 10_000
            shift = timescale - warmup_steps
            lr = np.where(
                warmup_steps < step,
                lr / np.sqrt((np.maximum(step, warmup_steps) + shift) / timescale),
                lr,
            )
        if warmup_steps:
            lr = lr * np.minimum(1.0, step / warmup_steps)
        if cooldown_steps:
            lr = lr * np.minimum(1.0, (total_steps - step) / cooldown_steps)
        return np.asarray(lr, dtype=np.float64)

    for kind in ("linear", "rsqrt"):
        PUBLISHED[f"google-research/big_vision:{kind}"] = functools.partial(
            functools.partial, step_fn, decay_type=kind
        )
    return step_fn


@published("THUDM/GLM")
def annealing_lr_of_glm() -> Schedule:
    def get_lr(num_iters, start_lr=1e-4, warmup_iter=100, end_iter=10000, decay_ratio=0.1):
        if warmup_iter > 0 and num_iters <= warmup_iter:
            return float(start_lr) * num_iters / warmup_iter
        decay_step_ratio = min(1.0, (num_iters - warmup_iter) / end_iter)
        return (
            start_lr
            / decay_ratio
            * ((math.cos(math.pi * decay_step_ratio) + 1) * (decay_ratio - 1) / 2 + 1)
        )

    return get_lr


# --- transformers --------------------------------------------------------------------------------


def _partial(function: Callable[..., Any], **keywords: Any) -> Callable[[], Schedule]:
    return lambda: functools.partial(function, **keywords)


def _linear_lambda(current_step: int, *, num_warmup_steps: int, num_training_steps: int):
    if current_step < num_warmup_steps:
        return float(current_step) / float(max(1, num_warmup_steps))
    return max(
        0.0,
        float(num_training_steps - current_step)
        / float(max(1, num_training_steps - num_warmup_steps)),
    )


def _restarts_lambda(current_step, *, num_warmup_steps, num_training_steps, num_cycles):
    if current_step < num_warmup_steps:
        return float(current_step) / float(max(1, num_warmup_steps))
    progress = float(current_step - num_warmup_steps) / float(
        max(1, num_training_steps - num_warmup_steps)
    )
    if progress >= 1.0:
        return 0.0
    return max(0.0, 0.5 * (1.0 + math.cos(math.pi * ((float(num_cycles) * progress) % 1.0))))


def _polynomial_lambda(
    current_step, *, num_warmup_steps, num_training_steps, lr_end, power, lr_init
):
    if current_step < num_warmup_steps:
        return float(current_step) / float(max(1, num_warmup_steps))
    if current_step > num_training_steps:
        return lr_end / lr_init
    lr_range = lr_init - lr_end
    decay_steps = num_training_steps - num_warmup_steps
    pct_remaining = 1 - (current_step - num_warmup_steps) / decay_steps
    decay = lr_range * pct_remaining**power + lr_end
    return decay / lr_init


def _inverse_sqrt_lambda(current_step, *, num_warmup_steps, timescale=None):
    if current_step < num_warmup_steps:
        return float(current_step) / float(max(1, num_warmup_steps))
    shift = timescale - num_warmup_steps
    decay = 1.0 / math.sqrt((current_step + shift) / timescale)
    return decay


PUBLISHED["huggingface/transformers:linear"] = _partial(
    _linear_lambda, num_warmup_steps=500, num_training_steps=10_000
)
PUBLISHED["huggingface/transformers:restarts"] = _partial(
    _restarts_lambda, num_warmup_steps=500, num_training_steps=10_000, num_cycles=3
)
PUBLISHED["huggingface/transformers:polynomial"] = _partial(
    _polynomial_lambda,
    num_warmup_steps=500,
    num_training_steps=10_000,
    lr_end=1e-7,
    power=1.5,
    lr_init=5e-5,
)
PUBLISHED["huggingface/transformers:inverse_sqrt"] = _partial(
    _inverse_sqrt_lambda, num_warmup_steps=500, timescale=10_000
)


# --- vision --------------------------------------------------------------------------------------


@published("facebookresearch/mae")
def adjust_learning_rate() -> Schedule:
    args = types.SimpleNamespace(lr=1.5e-4, min_lr=0.0, warmup_epochs=40, epochs=800)
    steps_per_epoch = 625

    def adjust_learning_rate(epoch):
        """Decay the learning rate with half-cycle cosine after warmup."""
        if epoch < args.warmup_epochs:
            lr = args.lr * epoch / args.warmup_epochs
        else:
            lr = args.min_lr + (args.lr - args.min_lr) * 0.5 * (
                1.0
                + math.cos(
                    math.pi * (epoch - args.warmup_epochs) / (args.epochs - args.warmup_epochs)
                )
            )
        return lr

    return lambda step: adjust_learning_rate(step / steps_per_epoch)


@published("facebookresearch/moco")
def moco_cosine_or_steps() -> Schedule:
    def adjust_learning_rate(epoch, cos, schedule=(120, 160), base=0.03, epochs=200):
        lr = base
        if cos:
            lr *= 0.5 * (1.0 + math.cos(math.pi * epoch / epochs))
        else:
            for milestone in schedule:
                lr *= 0.1 if epoch >= milestone else 1.0
        return lr

    PUBLISHED["facebookresearch/moco:steps"] = lambda: lambda e: adjust_learning_rate(e, False)
    return lambda epoch: adjust_learning_rate(epoch, True)


@published("facebookresearch/moco-v3")
def moco_momentum() -> Schedule:
    def adjust_moco_momentum(epoch, moco_m=0.99, epochs=300):
        m = 1.0 - 0.5 * (1.0 + math.cos(math.pi * epoch / epochs)) * (1.0 - moco_m)
        return m

    return adjust_moco_momentum


def cosine_scheduler(
    base_value, final_value, epochs, niter_per_ep, warmup_epochs=0, start_warmup_value=0
):
    warmup_schedule = np.array([])
    warmup_iters = warmup_epochs * niter_per_ep
    if warmup_epochs > 0:
        warmup_schedule = np.linspace(start_warmup_value, base_value, warmup_iters)
    iters = np.arange(epochs * niter_per_ep - warmup_iters)
    schedule = final_value + 0.5 * (base_value - final_value) * (
        1 + np.cos(np.pi * iters / len(iters))
    )
    schedule = np.concatenate((warmup_schedule, schedule))
    assert len(schedule) == epochs * niter_per_ep
    return schedule


@published("facebookresearch/dino")
def dino_table() -> Schedule:
    schedule = cosine_scheduler(5e-4, 1e-6, 10, 12, warmup_epochs=2)
    return lambda it: schedule[it]


@published("facebookresearch/dinov2")
def cosine_scheduler_class() -> Schedule:
    class CosineScheduler:
        def __init__(self, base_value, final_value, total_iters, warmup_iters=0, freeze_iters=0):
            self.final_value = final_value
            self.total_iters = total_iters
            freeze_schedule = np.zeros(freeze_iters)
            warmup_schedule = np.linspace(0, base_value, warmup_iters)
            iters = np.arange(total_iters - warmup_iters - freeze_iters)
            schedule = final_value + 0.5 * (base_value - final_value) * (
                1 + np.cos(np.pi * iters / len(iters))
            )
            self.schedule = np.concatenate((freeze_schedule, warmup_schedule, schedule))

        def __getitem__(self, it):
            if it >= self.total_iters:
                return self.final_value
            return self.schedule[it]

    schedule = CosineScheduler(1e-3, 1e-6, 80, 10, 5)
    return lambda it: schedule[it]


@published("facebookresearch/dino")
def teacher_temperature() -> Schedule:
    warmup_teacher_temp_epochs, nepochs = 30, 100
    teacher_temp_schedule = np.concatenate(
        (
            np.linspace(0.04, 0.07, warmup_teacher_temp_epochs),
            np.ones(nepochs - warmup_teacher_temp_epochs) * 0.07,
        )
    )
    return lambda epoch: teacher_temp_schedule[min(epoch, nepochs - 1)]


@published("facebookresearch/deit")
def cosine_by_epoch() -> Schedule:
    def lr_at(epoch, base=5e-4, warmup=5, epochs=300, warmup_lr=1e-6, min_lr=1e-5):
        if epoch < warmup:
            return warmup_lr + epoch * (base - warmup_lr) / warmup
        if epoch < epochs:
            return min_lr + 0.5 * (base - min_lr) * (1 + math.cos(math.pi * epoch / epochs))
        return min_lr

    return lr_at


@published("microsoft/unilm")
def beit_cosine() -> Schedule:
    base_value, final_value, total, warmup_iters = 1.5e-3, 1e-5, 1200, 100

    def at(i):
        if i < warmup_iters:
            return base_value * i / (warmup_iters - 1)
        i = min(i, total - 1) - warmup_iters
        return final_value + 0.5 * (base_value - final_value) * (
            1 + math.cos(math.pi * i / (total - warmup_iters))
        )

    return at


@published("facebookresearch/ConvNeXt")
def convnext_epoch_cosine() -> Schedule:
    lrs = [4e-3 * 0.5 * (1 + math.cos(math.pi * i / 30)) for i in range(30)]
    return lambda epoch: lrs[epoch]


@published("facebookresearch/ConvNeXt")
def layer_decay() -> Schedule:
    def at(step, layer_id=3, num_layers=12, decay=0.8):
        scale = decay ** (num_layers + 1 - layer_id)
        return scale * 4e-3 * max(0.0, 1 - step / 1000)

    return at


@published("pytorch/examples")
def imagenet_step() -> Schedule:
    def adjust_learning_rate(epoch, lr=0.1):
        """Sets the learning rate to the initial LR decayed by 10 every 30 epochs"""
        return lr * (0.1 ** (epoch // 30))

    return adjust_learning_rate


@published("kuangliu/pytorch-cifar")
def cifar_branches() -> Schedule:
    def lr_of(epoch):
        optim_factor = 0
        if epoch > 160:
            optim_factor = 3
        elif epoch > 120:
            optim_factor = 2
        elif epoch > 60:
            optim_factor = 1
        return 0.1 * math.pow(0.2, optim_factor)

    return lr_of


@published("keras-team/keras-io")
def resnet_lr_schedule() -> Schedule:
    def lr_schedule(epoch):
        lr = 1e-3
        if epoch > 180:
            lr *= 0.5e-3
        elif epoch > 160:
            lr *= 1e-3
        elif epoch > 120:
            lr *= 1e-2
        elif epoch > 80:
            lr *= 1e-1
        print("Learning rate: ", lr)
        return lr

    return lr_schedule


@published("keras-team/keras-io")
def scheduler_exp() -> Schedule:
    def scheduler(epoch, lr=0.01):
        if epoch < 10:
            return lr
        return lr * math.exp(-0.1 * (epoch - 9))

    return scheduler


@published("machinelearningmastery")
def step_decay_callback() -> Schedule:
    def step_decay(epoch):
        initial_lrate = 0.1
        drop = 0.5
        epochs_drop = 10.0
        lrate = initial_lrate * math.pow(drop, math.floor((1 + epoch) / epochs_drop))
        return lrate

    return step_decay


@published("machinelearningmastery")
def time_based_decay() -> Schedule:
    learning_rate = 0.1
    decay_rate = learning_rate / 50
    return lambda epoch: learning_rate * 1 / (1 + decay_rate * epoch)


@published("pytorch/vision")
def lr_lambda_of_references() -> Schedule:
    warmup_iters, warmup_factor = 1000, 1.0 / 1000

    def f(x):
        if x >= warmup_iters:
            return 1
        alpha = float(x) / warmup_iters
        return warmup_factor * (1 - alpha) + alpha

    return f


@published("pytorch/vision")
def poly_of_segmentation() -> Schedule:
    total = 30 * 100
    return lambda x: (1 - x / total) ** 0.9


@published("open-mmlab/mmcv")
def poly_lr_hook() -> Schedule:
    def get_lr(progress, base_lr=0.01, max_progress=40_000, power=0.9, min_lr=1e-4):
        progress = min(progress, max_progress)
        coeff = (1 - progress / max_progress) ** power
        return (base_lr - min_lr) * coeff + min_lr

    return get_lr


@published("open-mmlab/mmcv")
def step_lr_hook() -> Schedule:
    step, gamma, min_lr = [8, 11], 0.1, 1e-5

    def get_lr(progress, base_lr=0.02):
        exp = len(step)
        for i, s in enumerate(step):
            if progress < s:
                exp = i
                break
        lr = base_lr * (gamma**exp)
        if min_lr is not None:
            lr = max(lr, min_lr)
        return lr

    return get_lr


@published("open-mmlab/mmcv")
def annealing_cos_hook() -> Schedule:
    def annealing_cos(start, end, factor, weight=1):
        cos_out = math.cos(math.pi * factor) + 1
        return end + 0.5 * weight * (start - end) * cos_out

    def flat_cosine(progress, max_progress=300, start_percent=0.75, base_lr=0.01, min_lr=0.0):
        start = round(max_progress * start_percent)
        progress -= start
        max_progress = max_progress - start
        if progress < 0:
            return base_lr
        return annealing_cos(base_lr, min_lr, progress / max_progress)

    return flat_cosine


@published("open-mmlab/mmcv")
def cosine_restart_hook() -> Schedule:
    periods, restart_weights, min_lr_ratio = [50, 100, 150], [1, 0.5, 0.25], 0.05
    cumulative = [sum(periods[: i + 1]) for i in range(len(periods))]

    def get_position_from_periods(iteration, cumulative_periods):
        for i, period in enumerate(cumulative_periods):
            if iteration < period:
                return i
        raise ValueError(f"Current iteration {iteration} exceeds cumulative_periods")

    def get_lr(progress, base_lr=0.1):
        target_lr = base_lr * min_lr_ratio
        idx = get_position_from_periods(progress, cumulative)
        current_weight = restart_weights[idx]
        nearest_restart = 0 if idx == 0 else cumulative[idx - 1]
        current_periods = periods[idx]
        alpha = min((progress - nearest_restart) / current_periods, 1)
        cos_out = math.cos(math.pi * alpha) + 1
        return target_lr + 0.5 * current_weight * (base_lr - target_lr) * cos_out

    return get_lr


@published("facebookresearch/detectron2")
def warmup_factor_multistep() -> Schedule:
    def _get_warmup_factor_at_iter(method, it, warmup_iters, warmup_factor):
        if it >= warmup_iters:
            return 1.0
        if method == "constant":
            return warmup_factor
        if method == "linear":
            alpha = it / warmup_iters
            return warmup_factor * (1 - alpha) + alpha
        raise ValueError(f"Unknown warmup method: {method}")

    milestones = [60000, 80000]

    def get_lr(it):
        warmup = _get_warmup_factor_at_iter("linear", it, 1000, 0.001)
        return 0.02 * warmup * 0.1 ** bisect.bisect_right(milestones, it)

    return get_lr


@published("facebookresearch/SlowFast")
def cosine_with_offset() -> Schedule:
    cfg = types.SimpleNamespace(
        SOLVER=types.SimpleNamespace(
            BASE_LR=0.1,
            COSINE_END_LR=0.0,
            MAX_EPOCH=196,
            WARMUP_EPOCHS=34.0,
            WARMUP_START_LR=0.01,
            COSINE_AFTER_WARMUP=False,
        )
    )

    def lr_func_cosine(cfg, cur_epoch):
        offset = cfg.SOLVER.WARMUP_EPOCHS if cfg.SOLVER.COSINE_AFTER_WARMUP else 0.0
        assert cfg.SOLVER.COSINE_END_LR < cfg.SOLVER.BASE_LR
        return (
            cfg.SOLVER.COSINE_END_LR
            + (cfg.SOLVER.BASE_LR - cfg.SOLVER.COSINE_END_LR)
            * (math.cos(math.pi * (cur_epoch - offset) / (cfg.SOLVER.MAX_EPOCH - offset)) + 1.0)
            * 0.5
        )

    def get_lr_at_epoch(cur_epoch):
        lr = lr_func_cosine(cfg, cur_epoch)
        if cur_epoch < cfg.SOLVER.WARMUP_EPOCHS:
            lr_start = cfg.SOLVER.WARMUP_START_LR
            lr_end = lr_func_cosine(cfg, cfg.SOLVER.WARMUP_EPOCHS)
            alpha = (lr_end - lr_start) / cfg.SOLVER.WARMUP_EPOCHS
            lr = cur_epoch * alpha + lr_start
        return lr

    return get_lr_at_epoch


@published("facebookresearch/SlowFast")
def steps_with_relative_lrs() -> Schedule:
    steps, lrs, max_epoch, base = [0, 44, 88, 118], [1, 0.1, 0.01, 0.001], 118, 0.375

    def get_step_index(cur_epoch):
        for ind, step in enumerate([*steps, max_epoch]):
            if cur_epoch < step:
                break
        return ind - 1

    return lambda cur_epoch: lrs[get_step_index(cur_epoch)] * base


@published("facebookresearch/pycls")
def lr_fun_steps() -> Schedule:
    def lr_fun_steps(cur_epoch, steps=(0, 30, 60, 90), lr_mult=0.1):
        ind = [i for i, s in enumerate(steps) if cur_epoch >= s][-1]
        return lr_mult**ind

    return lambda epoch: 0.1 * lr_fun_steps(epoch)


@published("facebookresearch/pycls")
def lr_fun_exp() -> Schedule:
    min_lr, max_epoch = 0.001, 100
    return lambda cur_epoch: min_lr ** (cur_epoch / max_epoch)


@published("ultralytics/yolov5")
def one_cycle_lambda() -> Schedule:
    def one_cycle(y1=0.0, y2=1.0, steps=100):
        return lambda x: ((1 - math.cos(x * math.pi / steps)) / 2) * (y2 - y1) + y1

    return one_cycle(1, 0.01, 300)


@published("ultralytics/yolov5")
def linear_lambda() -> Schedule:
    epochs, lrf = 300, 0.01
    return lambda x: (1 - x / epochs) * (1.0 - lrf) + lrf


@published("ultralytics/ultralytics")
def warmup_by_interp() -> Schedule:
    nw = 300

    def at(ni):
        if ni <= nw:
            xi = [0, nw]
            return np.interp(ni, xi, [0.1, 0.01 * 1.0])
        return 0.01 * max(1 - ni / 3000, 0) * (1.0 - 0.01) + 0.01 * 0.01

    return at


@published("ultralytics/ultralytics")
def ema_decay() -> Schedule:
    decay, tau = 0.9999, 2000
    return lambda x: decay * (1 - math.exp(-x / tau))


@published("Megvii-BaseDetection/YOLOX")
def yolox_warm_cos() -> Schedule:
    def yolox_warm_cos_lr(
        lr, min_lr_ratio, total_iters, warmup_total_iters, warmup_lr_start, no_aug_iter, iters
    ):
        min_lr = lr * min_lr_ratio
        if iters <= warmup_total_iters:
            lr = (lr - warmup_lr_start) * pow(
                iters / float(warmup_total_iters), 2
            ) + warmup_lr_start
        elif iters >= total_iters - no_aug_iter:
            lr = min_lr
        else:
            lr = min_lr + 0.5 * (lr - min_lr) * (
                1.0
                + math.cos(
                    math.pi
                    * (iters - warmup_total_iters)
                    / (total_iters - warmup_total_iters - no_aug_iter)
                )
            )
        return lr

    return lambda iters: yolox_warm_cos_lr(0.01, 0.05, 30_000, 500, 0, 1500, iters)


@published("WongKinYiu/yolov7")
def ema_ramp() -> Schedule:
    return lambda x: 0.9999 * (1 - math.exp(-x / 2000))


@published("CompVis/latent-diffusion")
def lambda_linear_scheduler() -> Schedule:
    class LambdaWarmUpCosineScheduler2:
        def __init__(self, warm_up_steps, f_min, f_max, f_start, cycle_lengths):
            assert (
                len(warm_up_steps) == len(f_min) == len(f_max) == len(f_start) == len(cycle_lengths)
            )
            self.lr_warm_up_steps = warm_up_steps
            self.f_start = f_start
            self.f_min = f_min
            self.f_max = f_max
            self.cycle_lengths = cycle_lengths
            self.cum_cycles = np.cumsum([0, *list(self.cycle_lengths)])
            self.last_f = 0.0

        def find_in_interval(self, n):
            interval = 0
            for cl in self.cum_cycles[1:]:
                if n <= cl:
                    return interval
                interval += 1

    class LambdaLinearScheduler(LambdaWarmUpCosineScheduler2):
        def schedule(self, n, **kwargs):
            cycle = self.find_in_interval(n)
            n = n - self.cum_cycles[cycle]
            if n < self.lr_warm_up_steps[cycle]:
                f = (self.f_max[cycle] - self.f_start[cycle]) / self.lr_warm_up_steps[
                    cycle
                ] * n + self.f_start[cycle]
                self.last_f = f
                return f
            f = (
                self.f_min[cycle]
                + (self.f_max[cycle] - self.f_min[cycle])
                * (self.cycle_lengths[cycle] - n)
                / (self.cycle_lengths[cycle])
            )
            self.last_f = f
            return f

        def __call__(self, n, **kwargs):
            return self.schedule(n, **kwargs)

    return LambdaLinearScheduler([10000], [1.0], [1.0], [1e-6], [10000000000000])


@published("CompVis/latent-diffusion")
def warm_up_cosine() -> Schedule:
    class LambdaWarmUpCosineScheduler:
        def __init__(self, warm_up_steps, lr_min, lr_max, lr_start, max_decay_steps):
            self.lr_warm_up_steps = warm_up_steps
            self.lr_start = lr_start
            self.lr_min = lr_min
            self.lr_max = lr_max
            self.lr_max_decay_steps = max_decay_steps
            self.last_lr = 0.0

        def schedule(self, n):
            if n < self.lr_warm_up_steps:
                lr = (self.lr_max - self.lr_start) / self.lr_warm_up_steps * n + self.lr_start
                self.last_lr = lr
                return lr
            t = (n - self.lr_warm_up_steps) / (self.lr_max_decay_steps - self.lr_warm_up_steps)
            t = min(t, 1.0)
            lr = self.lr_min + 0.5 * (self.lr_max - self.lr_min) * (1 + np.cos(t * np.pi))
            self.last_lr = lr
            return lr

        def __call__(self, n):
            return self.schedule(n)

    return LambdaWarmUpCosineScheduler(100, 0.01, 1.0, 0.001, 2000)


@published("openai/guided-diffusion")
def anneal_lr() -> Schedule:
    lr, lr_anneal_steps, resume_step = 1e-4, 150_000, 0

    def _anneal_lr(step):
        frac_done = (step + resume_step) / lr_anneal_steps
        return lr * (1 - frac_done)

    return _anneal_lr


@published("NVlabs/edm")
def ramp_up() -> Schedule:
    def lr(cur_nimg, ref=10e-4, rampup_kimg=10_000, batch=512):
        nimg = cur_nimg * batch
        return ref * min(nimg / max(rampup_kimg * 1000, 1e-8), 1)

    return lr


@published("NVlabs/edm2")
def rampup_inverse_sqrt() -> Schedule:
    def learning_rate_schedule(
        cur_nimg, batch_size=2048, ref_lr=100e-4, ref_batches=70e3, rampup_Mimg=10
    ):
        lr = ref_lr
        if ref_batches > 0:
            lr /= np.sqrt(max(cur_nimg / (ref_batches * batch_size), 1))
        if rampup_Mimg > 0:
            lr *= min(cur_nimg / (rampup_Mimg * 1e6), 1)
        return lr

    return lambda step: learning_rate_schedule(step * 2048)


@published("NVlabs/stylegan2-ada-pytorch")
def ema_beta() -> Schedule:
    def beta(cur_nimg, batch_size=32, ema_kimg=10.0, ema_rampup=0.05):
        ema_nimg = ema_kimg * 1000
        if ema_rampup is not None:
            ema_nimg = min(ema_nimg, cur_nimg * ema_rampup)
        return 0.5 ** (batch_size / max(ema_nimg, 1e-8))

    return lambda step: beta((step + 1) * 32)


@published("junyanz/pytorch-CycleGAN-and-pix2pix")
def lambda_rule() -> Schedule:
    opt = types.SimpleNamespace(epoch_count=1, n_epochs=100, n_epochs_decay=100)

    def lambda_rule(epoch):
        lr_l = 1.0 - max(0, epoch + opt.epoch_count - opt.n_epochs) / float(opt.n_epochs_decay + 1)
        return lr_l

    return lambda_rule


@published("eriklindernoren/PyTorch-GAN")
def lambda_lr_step() -> Schedule:
    class LambdaLR:
        def __init__(self, n_epochs, offset, decay_start_epoch):
            assert (n_epochs - decay_start_epoch) > 0, "Decay must start before the training ends!"
            self.n_epochs = n_epochs
            self.offset = offset
            self.decay_start_epoch = decay_start_epoch

        def step(self, epoch):
            return 1.0 - max(0, epoch + self.offset - self.decay_start_epoch) / (
                self.n_epochs - self.decay_start_epoch
            )

    return LambdaLR(200, 0, 100).step


@published("bmild/nerf")
def exponential_of_nerf() -> Schedule:
    lrate, lrate_decay = 5e-4, 250
    decay_rate, decay_steps = 0.1, lrate_decay * 1000
    return lambda global_step: lrate * (decay_rate ** (global_step / decay_steps))


@published("google/mipnerf")
def learning_rate_decay() -> Schedule:
    def learning_rate_decay(
        step,
        lr_init=5e-4,
        lr_final=5e-6,
        max_steps=1_000_000,
        lr_delay_steps=2500,
        lr_delay_mult=0.01,
    ):
        if lr_delay_steps > 0:
            # A kind of reverse cosine decay.
            delay_rate = lr_delay_mult + (1 - lr_delay_mult) * np.sin(
                0.5 * np.pi * np.clip(step / lr_delay_steps, 0, 1)
            )
        else:
            delay_rate = 1.0
        t = np.clip(step / max_steps, 0, 1)
        log_lerp = np.exp(np.log(lr_init) * (1 - t) + np.log(lr_final) * t)
        return delay_rate * log_lerp

    return learning_rate_decay


@published("graphdeco-inria/gaussian-splatting")
def expon_lr_func() -> Schedule:
    def get_expon_lr_func(
        lr_init, lr_final, lr_delay_steps=0, lr_delay_mult=1.0, max_steps=1000000
    ):
        def helper(step):
            if step < 0 or (lr_init == 0.0 and lr_final == 0.0):
                return 0.0
            if lr_delay_steps > 0:
                delay_rate = lr_delay_mult + (1 - lr_delay_mult) * np.sin(
                    0.5 * np.pi * np.clip(step / lr_delay_steps, 0, 1)
                )
            else:
                delay_rate = 1.0
            t = np.clip(step / max_steps, 0, 1)
            log_lerp = np.exp(np.log(lr_init) * (1 - t) + np.log(lr_final) * t)
            return delay_rate * log_lerp

        return helper

    return get_expon_lr_func(1.6e-4, 1.6e-6, lr_delay_mult=0.01, max_steps=30_000)


@published("nerfstudio-project/nerfstudio")
def exponential_decay_with_ramp() -> Schedule:
    def func(
        step, warmup_steps=500, lr_pre_warmup=1e-8, lr_init=1e-2, lr_final=1e-4, max_steps=30000
    ):
        if step < warmup_steps:
            lr = lr_pre_warmup + (lr_init - lr_pre_warmup) * np.sin(
                0.5 * np.pi * np.clip(step / warmup_steps, 0, 1)
            )
        else:
            t = np.clip((step - warmup_steps) / (max_steps - warmup_steps), 0, 1)
            lr = np.exp(np.log(lr_init) * (1 - t) + np.log(lr_final) * t)
        return lr / lr_init

    return func


@published("Totoro97/NeuS")
def neus_cosine() -> Schedule:
    warm_up_end, end_iter, learning_rate_alpha = 5000, 300_000, 0.05

    def update(iter_step):
        if iter_step < warm_up_end:
            learning_factor = iter_step / warm_up_end
        else:
            alpha = learning_rate_alpha
            progress = (iter_step - warm_up_end) / (end_iter - warm_up_end)
            learning_factor = (np.cos(np.pi * progress) + 1.0) * 0.5 * (1 - alpha) + alpha
        return learning_factor

    return update


# --- self-supervised, reinforcement learning, audio, others --------------------------------------


@published("facebookresearch/vicreg")
def warmup_cosine_by_steps() -> Schedule:
    def adjust_learning_rate(step, epochs=100, loader=50, batch_size=2048, base=0.2):
        max_steps = epochs * loader
        warmup_steps = 10 * loader
        base_lr = base * batch_size / 256
        if step < warmup_steps:
            lr = base_lr * step / warmup_steps
        else:
            step -= warmup_steps
            max_steps -= warmup_steps
            q = 0.5 * (1 + math.cos(math.pi * step / max_steps))
            end_lr = base_lr * 0.001
            lr = base_lr * q + end_lr * (1 - q)
        return lr

    return adjust_learning_rate


@published("facebookresearch/barlowtwins")
def barlow_lr() -> Schedule:
    def at(step):
        max_steps, warmup_steps, base_lr = 1000 * 10, 10 * 10, 2048 / 256
        if step < warmup_steps:
            return base_lr * step / warmup_steps * 0.2
        step, max_steps = step - warmup_steps, max_steps - warmup_steps
        q = 0.5 * (1 + math.cos(math.pi * step / max_steps))
        return (base_lr * q + base_lr * 0.001 * (1 - q)) * 0.2

    return at


@published("facebookresearch/ijepa")
def warmup_cosine_schedule_class() -> Schedule:
    class WarmupCosineSchedule:
        def __init__(self, warmup_steps, start_lr, ref_lr, T_max, final_lr=0.0):
            self.start_lr = start_lr
            self.ref_lr = ref_lr
            self.final_lr = final_lr
            self.warmup_steps = warmup_steps
            self.T_max = T_max - warmup_steps

        def step(self, step):
            if step < self.warmup_steps:
                progress = float(step) / float(max(1, self.warmup_steps))
                new_lr = self.start_lr + progress * (self.ref_lr - self.start_lr)
            else:
                progress = float(step - self.warmup_steps) / float(max(1, self.T_max))
                new_lr = max(
                    self.final_lr,
                    self.final_lr
                    + (self.ref_lr - self.final_lr) * 0.5 * (1.0 + math.cos(math.pi * progress)),
                )
            return new_lr

    return WarmupCosineSchedule(200, 1e-4, 1e-3, 5000, 1e-6).step


@published("google-research/simclr")
def simclr_warmup_cosine() -> Schedule:
    warmup, total, scaled = 195, 1950, 0.3 * 512 / 256

    def __call__(step):
        learning_rate = step / int(warmup) * scaled if warmup else scaled
        cosine = 0.5 * scaled * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))
        return learning_rate if step < warmup else cosine

    return __call__


@published("deepmind/byol")
def target_ema() -> Schedule:
    def target_ema(global_step, base_ema=0.996, max_steps=1000):
        decay = 0.5 * (1 + np.cos(np.pi * np.minimum(global_step, max_steps) / max_steps))
        return 1.0 - (1.0 - base_ema) * decay

    return target_ema


@published("openai/baselines")
def linear_schedule_class() -> Schedule:
    class LinearSchedule:
        def __init__(self, schedule_timesteps, final_p, initial_p=1.0):
            self.schedule_timesteps = schedule_timesteps
            self.final_p = final_p
            self.initial_p = initial_p

        def value(self, t):
            fraction = min(float(t) / self.schedule_timesteps, 1.0)
            return self.initial_p + fraction * (self.final_p - self.initial_p)

    return LinearSchedule(100_000, 0.02).value


@published("openai/baselines")
def piecewise_schedule_class() -> Schedule:
    def linear_interpolation(left, right, alpha):
        return left + alpha * (right - left)

    class PiecewiseSchedule:
        def __init__(self, endpoints, interpolation=linear_interpolation, outside_value=None):
            idxes = [e[0] for e in endpoints]
            assert idxes == sorted(idxes)
            self._interpolation = interpolation
            self._outside_value = outside_value
            self._endpoints = endpoints

        def value(self, t):
            for (l_t, l), (r_t, r) in zip(self._endpoints[:-1], self._endpoints[1:]):
                if l_t <= t and t < r_t:
                    alpha = float(t - l_t) / (r_t - l_t)
                    return self._interpolation(l, r, alpha)
            assert self._outside_value is not None
            return self._outside_value

    return PiecewiseSchedule([(0, 1.0), (1000, 0.1), (5000, 0.01)], outside_value=0.01).value


@published("DLR-RM/stable-baselines3")
def linear_schedule_of_progress() -> Schedule:
    def linear_schedule(initial_value: float):
        def func(progress_remaining: float) -> float:
            return progress_remaining * initial_value

        return func

    schedule, total = linear_schedule(2.5e-4), 1_000_000
    return lambda num_timesteps: schedule(1.0 - float(num_timesteps) / float(total))


@published("DLR-RM/stable-baselines3")
def get_linear_fn() -> Schedule:
    def get_linear_fn(start, end, end_fraction):
        def func(progress_remaining):
            if (1 - progress_remaining) > end_fraction:
                return end
            return start + (1 - progress_remaining) * (end - start) / end_fraction

        return func

    epsilon = get_linear_fn(1.0, 0.05, 0.1)
    return lambda step: epsilon(1.0 - step / 50_000)


@published("pytorch/tutorials")
def epsilon_greedy() -> Schedule:
    EPS_START, EPS_END, EPS_DECAY = 0.9, 0.05, 1000
    return lambda steps_done: (
        EPS_END + (EPS_START - EPS_END) * math.exp(-1.0 * steps_done / EPS_DECAY)
    )


@published("vwxyzjn/cleanrl")
def annealed_fraction() -> Schedule:
    num_iterations, learning_rate = 488, 2.5e-4

    def at(iteration):
        frac = 1.0 - (iteration) / num_iterations
        return frac * learning_rate

    return at


@published("vwxyzjn/cleanrl")
def linear_schedule() -> Schedule:
    def linear_schedule(start_e: float, end_e: float, duration: int, t: int):
        slope = (end_e - start_e) / duration
        return max(slope * t + start_e, end_e)

    return lambda t: linear_schedule(1, 0.01, 250_000, t)


@published("openai/whisper fine-tuning")
def warmup_linear_class() -> Schedule:
    def at(step, warmup=500, max_steps=4000):
        if step < warmup:
            return 1e-5 * step / warmup
        return 1e-5 * max(0, (max_steps - step) / (max_steps - warmup))

    return at


@published("espnet/espnet")
def warmup_lr() -> Schedule:
    def get_lr(last_epoch, lr=0.002, warmup_steps=25000):
        step_num = last_epoch + 1
        return lr * warmup_steps**0.5 * min(step_num**-0.5, step_num * warmup_steps**-1.5)

    return get_lr


@published("speechbrain/speechbrain")
def noam_scheduler() -> Schedule:
    class NoamScheduler:
        def __init__(self, lr_initial, n_warmup_steps, model_size=None):
            self.lr_initial = lr_initial
            self.n_warmup_steps = n_warmup_steps
            self.normalize = n_warmup_steps**0.5
            if model_size is not None:
                self.normalize = model_size ** (-0.5)

        def _get_lr_scale(self, n_steps):
            return self.normalize * min(n_steps ** (-0.5), n_steps * self.n_warmup_steps ** (-1.5))

        def __call__(self, step):
            return self.lr_initial * self._get_lr_scale(step + 1)

    return NoamScheduler(1e-3, 25000)


@published("coqui-ai/TTS")
def exponential_each_step() -> Schedule:
    return lambda step: max(1e-3 * 0.999875**step, 1e-5)


@published("mozilla/DeepSpeech")
def bnn_lambda() -> Schedule:
    def at(epoch):
        return 1e-4 / (1 << (epoch // 10)) if False else 1e-4 * 2.0 ** -(epoch // 10)

    return at


@published("jettify/pytorch-optimizer")
def linear_by_lambda() -> Schedule:
    total = 5000
    return lambda s: 1 - s / total if s < total else 0


@published("fastai/fastai")
def sched_cos_combined() -> Schedule:
    def sched_cos(start, end, pos):
        return start + (1 + math.cos(math.pi * (1 - pos))) * (end - start) / 2

    pcts, total = [0.0, 0.25, 1.0], 1000

    def combined(step):
        p = min(step / total, 1.0)
        if p == 1.0:
            return sched_cos(1e-3, 1e-8, 1.0)
        idx = max(i for i, start in enumerate(pcts) if p >= start)
        actual_pos = (p - pcts[idx]) / (pcts[idx + 1] - pcts[idx])
        phases = [(1e-3 / 25, 1e-3), (1e-3, 1e-8)]
        return sched_cos(*phases[idx], actual_pos)

    return combined


@published("bckenstler/CLR")
def triangular2() -> Schedule:
    def clr(iterations, base_lr=0.001, max_lr=0.006, step_size=2000.0, mode="triangular2"):
        scale = {
            "triangular": lambda x: 1.0,
            "triangular2": lambda x: 1 / (2.0 ** (x - 1)),
        }[mode]
        cycle = np.floor(1 + iterations / (2 * step_size))
        x = np.abs(iterations / step_size - 2 * cycle + 1)
        return base_lr + (max_lr - base_lr) * np.maximum(0, (1 - x)) * scale(cycle)

    PUBLISHED["bckenstler/CLR:triangular"] = _partial(clr, mode="triangular")
    return clr


@published("titu1994/Snapshot-Ensembles")
def cosine_anneal_schedule() -> Schedule:
    def _cosine_anneal_schedule(t, T=200, M=5, alpha_zero=0.1):
        cos_inner = np.pi * (t % (T // M))
        cos_inner /= T // M
        cos_out = np.cos(cos_inner) + 1
        return float(alpha_zero / 2 * cos_out)

    return _cosine_anneal_schedule


@published("timgaripov/swa")
def swa_schedule() -> Schedule:
    def schedule(epoch, swa=True, swa_start=161, epochs=300, lr_init=0.1, swa_lr=0.05):
        t = (epoch) / (swa_start if swa else epochs)
        lr_ratio = swa_lr / lr_init if swa else 0.01
        if t <= 0.5:
            factor = 1.0
        elif t <= 0.9:
            factor = 1.0 - (1.0 - lr_ratio) * (t - 0.5) / 0.4
        else:
            factor = lr_ratio
        return lr_init * factor

    return schedule


@published("timgaripov/fge")
def cyclic_learning_rate() -> Schedule:
    def schedule(iter, cycle=100, alpha_1=0.05, alpha_2=0.01):
        t = ((iter % cycle) + 1) / cycle
        if t < 0.5:
            return alpha_1 * (1.0 - 2.0 * t) + alpha_2 * 2.0 * t
        return alpha_1 * (2.0 * t - 1.0) + alpha_2 * (2.0 - 2.0 * t)

    return schedule


@published("IBM/power-scheduler")
def power_lr() -> Schedule:
    def power(
        step, a=4.6, b=-0.51, max_lr=0.02, batch=128, warmup=500, decay_start=9000, end=10000
    ):
        if step < warmup:
            return max_lr * step / warmup * 0.1
        tokens = batch * 4096 * step
        lr = min(max_lr, a * batch * tokens**b)
        if step >= decay_start:
            lr = lr * max(0.0, (end - step) / (end - decay_start))
        return lr

    return power


@published("Nvlabs/VILA")
def torch_scalars() -> Schedule:
    def at(step, warmup=100, total=1000):
        if step < warmup:
            return step / warmup
        progress = torch.tensor((step - warmup) / (total - warmup))
        return (0.5 * (1 + torch.cos(torch.pi * torch.clamp(progress, max=1.0)))).item()

    return at


@published("tatsu-lab/stanford_alpaca")
def by_ratio() -> Schedule:
    max_steps, warmup_ratio = 1218, 0.03
    warmup = math.ceil(max_steps * warmup_ratio)

    def f(step):
        return (
            step / max(1, warmup)
            if step < warmup
            else max(0.0, 0.5 * (1 + math.cos(math.pi * (step - warmup) / (max_steps - warmup))))
        )

    return f


@published("FAIR-Chem/fairchem")
def warmup_lr_lambda() -> Schedule:
    optim_config = {
        "lr_milestones": [52083, 104166, 156250],
        "warmup_steps": 31250,
        "warmup_factor": 0.2,
        "lr_gamma": 0.1,
    }

    def warmup_lr_lambda(current_step, optim_config):
        if any(x < 100 for x in optim_config["lr_milestones"]) or "warmup_epochs" in optim_config:
            raise Exception("ConfigError: please define lr_milestones in steps not epochs")
        if current_step <= optim_config["warmup_steps"]:
            alpha = current_step / float(optim_config["warmup_steps"])
            return optim_config["warmup_factor"] * (1.0 - alpha) + alpha
        else:
            idx = bisect.bisect(optim_config["lr_milestones"], current_step)
            return pow(optim_config["lr_gamma"], idx)

    return lambda step: warmup_lr_lambda(step, optim_config)


@published("huggingface/lerobot")
def cosine_with_scaled_warmup() -> Schedule:
    actual_warmup_steps, actual_decay_steps, peak_lr, decay_lr = 1000, 30000, 2.5e-5, 2.5e-6

    def lr_lambda(current_step):
        def linear_warmup_schedule(current_step):
            if current_step <= 0:
                return 1 / (actual_warmup_steps + 1)
            frac = 1 - current_step / actual_warmup_steps
            return (1 / (actual_warmup_steps + 1) - 1) * frac + 1

        def cosine_decay_schedule(current_step):
            step = min(current_step, actual_decay_steps)
            cosine_decay = 0.5 * (1 + math.cos(math.pi * step / actual_decay_steps))
            alpha = decay_lr / peak_lr
            return (1 - alpha) * cosine_decay + alpha

        if current_step < actual_warmup_steps:
            return linear_warmup_schedule(current_step)
        return cosine_decay_schedule(current_step)

    return lr_lambda


@published("world models")
def lambda_return_schedule() -> Schedule:
    def lambda_return_schedule(epoch, last_epoch=100, start_lambda=0.95, last_lambda=0.99):
        start_pow = np.log(1 - start_lambda)
        last_pow = np.log(1 - last_lambda)
        if epoch < last_epoch:
            return 1 - np.exp(start_pow + (last_pow - start_pow) * epoch / last_epoch)
        return last_lambda

    return lambda_return_schedule


@published("semantic segmentation")
def lr_power() -> Schedule:
    def lr_power(base_lr, iter, power, interval):
        return base_lr * pow(power, int(iter / interval))

    return lambda i_iter: lr_power(2.5e-4, i_iter, 0.9, 1000)


@published("federated learning")
def square_root_or_one() -> Schedule:
    return lambda x: 1 / np.sqrt(x) if x > 0 else 1


@published("federated learning")
def inverse_or_one() -> Schedule:
    return lambda x: 1 / x if x > 0 else 1


@published("power decay")
def shifted_power() -> Schedule:
    config = types.SimpleNamespace(lr_decay=0.35)
    return lambda epoch: (epoch + 1) ** -config.lr_decay


@published("tensorflow callbacks")
def table_of_starts() -> Schedule:
    LR_SCHEDULE = [(0, 0.01), (20, 0.001), (40, 0.0001)]

    def lr_schedule(epoch):
        for start, rate in reversed(LR_SCHEDULE):
            if epoch >= start:
                return rate
        raise ValueError(epoch)

    return lr_schedule


@published("lists of rates")
def list_built_by_loops() -> Schedule:
    learning_rates = []
    for _ in range(30):
        learning_rates.append(1e-3)
    for i in range(40):
        learning_rates.append(1e-3 * 0.9**i)
    return lambda epoch: float(learning_rates[min(epoch, len(learning_rates) - 1)])


@published("late warmup")
def flat_then_linear_warmup() -> Schedule:
    warmup_steps, default_lr = 1024, 3e-4

    def warmup_lr_lambda(current_step):
        scale = 1e-1 / default_lr
        if current_step < warmup_steps * 0.8:
            return 0.1 * scale
        elif current_step < warmup_steps:
            progress = (current_step - warmup_steps * 0.8) / (warmup_steps * 0.2)
            return (0.1 + progress * (1.0 - 0.1)) * scale
        else:
            return 1.0

    return warmup_lr_lambda


@published("MIC-DKFZ/nnUNet")
def poly_lr_of_trainer() -> Schedule:
    class PolyLRScheduler:
        def __init__(self, initial_lr, max_steps, exponent=0.9):
            self.initial_lr = initial_lr
            self.max_steps = max_steps
            self.exponent = exponent
            self.ctr = 0

        def step(self, current_step=None):
            if current_step is None or current_step == -1:
                current_step = self.ctr
                self.ctr += 1
            return self.initial_lr * (1 - current_step / self.max_steps) ** self.exponent

    return PolyLRScheduler(1e-2, 1000).step


@published("seed:stack overflow")
def linear_decay_of_lambda_lr() -> Schedule:
    decay_steps = 50

    def lr_lambda(epoch):
        if epoch < decay_steps:
            return 1.0 - (epoch / decay_steps)
        return 0.0

    return lr_lambda


@published("seed:stack overflow")
def cosine_annealing_with_warmup() -> Schedule:
    epochs, warmup_epochs = 100, 10

    def lr_lambda(epoch):
        if epoch < warmup_epochs:
            return epoch / warmup_epochs
        return 0.5 * (1 + math.cos(math.pi * (epoch - warmup_epochs) / (epochs - warmup_epochs)))

    return lr_lambda


@published("seed:stack overflow")
def step_decay_with_momentum() -> Schedule:
    initial_lr, initial_momentum, decay_epochs, decay_factor = 0.001, 0.9, [50, 100], 0.1

    def lr_lambda(epoch):
        lr = initial_lr
        momentum = initial_momentum
        for decay_epoch in decay_epochs:
            if epoch >= decay_epoch:
                lr *= decay_factor
                momentum -= 0.05
        return lr

    return lr_lambda
