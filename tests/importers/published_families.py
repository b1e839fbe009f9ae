"""Families of published schedules: a form and several of the settings in which it is used.

`PUBLISHED` lists a function for each of the settings, by the form and the number of the setting.
The forms are those of training code, in our own words; the settings are lengths, ratios and floors
that occur in scripts, odd ones among them.
"""

import bisect
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

Schedule = Callable[[int], Any]
PUBLISHED: dict[str, Callable[[], Schedule]] = {}


def family(*settings: tuple[Any, ...]) -> Callable[[Callable[..., Schedule]], object]:
    def add(make: Callable[..., Schedule]) -> object:
        for number, setting in enumerate(settings):
            PUBLISHED[f"{make.__name__}:{number}"] = functools.partial(make, *setting)
        return make

    return add


# --- a half cosine after a warmup -----------------------------------------------------------------

LENGTHS = ((100, 1000), (37, 1234), (0, 777), (2000, 143_000), (1, 97), (715, 19_073))


@family(*LENGTHS)
def hf_cosine(warmup, total):
    def lr_lambda(current_step):
        if current_step < warmup:
            return float(current_step) / float(max(1, warmup))
        progress = float(current_step - warmup) / float(max(1, total - warmup))
        return max(0.0, 0.5 * (1.0 + math.cos(math.pi * 0.5 * 2.0 * progress)))

    return lr_lambda


@family((100, 1000, 1), (37, 1234, 2), (0, 100, 3), (10, 999, 0.75))
def hf_cosine_of_cycles(warmup, total, num_cycles):
    def lr_lambda(step):
        if step < warmup:
            return step / max(1, warmup)
        progress = (step - warmup) / max(1, total - warmup)
        return max(0.0, 0.5 * (1.0 + math.cos(math.pi * num_cycles * 2.0 * progress)))

    return lr_lambda


@family((100, 1000, 1), (37, 1234, 2), (500, 10_000, 3), (0, 777, 4), (13, 1000, 5))
def hf_hard_restarts(warmup, total, num_cycles):
    def lr_lambda(current_step):
        if current_step < warmup:
            return float(current_step) / float(max(1, warmup))
        progress = float(current_step - warmup) / float(max(1, total - warmup))
        if progress >= 1.0:
            return 0.0
        return max(0.0, 0.5 * (1.0 + math.cos(math.pi * ((float(num_cycles) * progress) % 1.0))))

    return lr_lambda


@family((100, 1000, 0.1), (37, 1234, 0.05), (0, 777, 0.0), (2000, 143_000, 0.01))
def hf_cosine_with_min_lr(warmup, total, min_lr_rate):
    def lr_lambda(current_step):
        if current_step < warmup:
            return float(current_step) / float(max(1, warmup))
        progress = float(current_step - warmup) / float(max(1, total - warmup))
        factor = 0.5 * (1.0 + math.cos(math.pi * 0.5 * 2.0 * progress))
        factor = factor * (1 - min_lr_rate) + min_lr_rate
        return max(0, factor)

    return lr_lambda


@family((100, 1000, 0.1, 0.01), (37, 1234, 0.05, 0.2))
def hf_cosine_warmup_with_min_lr(warmup, total, min_lr_rate, warmup_lr_rate):
    def lr_lambda(current_step):
        current_step = float(current_step)
        num_warmup_steps = float(warmup)
        num_training_steps = float(total)
        if current_step < num_warmup_steps:
            if warmup_lr_rate is None:
                return (current_step + 1.0) / max(1.0, num_warmup_steps)
            return warmup_lr_rate + (1.0 - warmup_lr_rate) * (current_step) / (
                max(1, num_warmup_steps - 1)
            )
        progress = (current_step - num_warmup_steps + 1.0) / (
            max(1.0, num_training_steps - num_warmup_steps)
        )
        factor = 0.5 * (1.0 + math.cos(math.pi * 0.5 * 2.0 * progress))
        factor = factor * (1 - min_lr_rate) + min_lr_rate
        return max(0, factor)

    return lr_lambda


@family((100, 200, 1000, 0.1), (37, 101, 1234, 0.0))
def hf_wsd_cosine(warmup, decay, total, min_lr_ratio):
    stable = total - warmup - decay

    def lr_lambda(current_step):
        if current_step < warmup:
            progress = float(current_step) / float(max(1, warmup))
            factor = 0.5 * (1.0 - math.cos(math.pi * progress))
            factor = factor * (1.0 - min_lr_ratio) + min_lr_ratio
            return max(0.0, factor)
        if current_step < warmup + stable:
            return 1.0
        if current_step < warmup + stable + decay:
            progress = float(current_step - warmup - stable) / float(max(1, decay))
            factor = 0.5 * (1.0 + math.cos(math.pi * 0.5 * 2.0 * progress))
            factor = factor * (1.0 - min_lr_ratio) + min_lr_ratio
            return max(0.0, factor)
        return min_lr_ratio

    return lr_lambda


@family((100, 1000, 0.0), (37, 1234, 0.1), (0, 777, 0.25))
def verl_cosine(warmup, total, min_lr_ratio):
    assert 0.0 <= min_lr_ratio <= 1.0
    coef = (1 - min_lr_ratio) * 0.5
    intercept = (1 + min_lr_ratio) * 0.5

    def lr_lambda(current_step):
        if current_step < warmup:
            return min_lr_ratio + (1.0 - min_lr_ratio) * (
                float(current_step) / float(max(1, warmup))
            )
        progress = float(current_step - warmup) / float(max(1, total - warmup))
        x = math.cos(math.pi * 0.5 * 2.0 * progress)
        return max(min_lr_ratio, x * coef + intercept)

    return lr_lambda


@family((1000, 60_000, 1.0, 0.1), (5, 1213, 1.5, 0.01), (100, 2000, 1.0, 1e-6))
def lingua_cosine(warmup, n_steps, theta, min_ratio):
    def lr_lambda(step):
        if step < warmup:
            return float(step) / warmup
        if step <= n_steps:
            s = float(step - warmup) / (n_steps - warmup)
            return min_ratio + 0.5 * (1 - min_ratio) * (math.cos(math.pi * s**theta / 1) + 1)
        return min_ratio

    return lr_lambda


@family((6e-4, 6e-5, 2000, 600_000), (1e-3, 1e-4, 100, 5000), (3e-4, 0.0, 37, 1234))
def nanogpt(learning_rate, min_lr, warmup, decay_iters):
    def get_lr(it):
        if it < warmup:
            return learning_rate * it / warmup
        if it > decay_iters:
            return min_lr
        decay_ratio = (it - warmup) / (decay_iters - warmup)
        assert 0 <= decay_ratio <= 1
        return min_lr + 0.5 * (1.0 + math.cos(math.pi * decay_ratio)) * (learning_rate - min_lr)

    return get_lr


@family((1.6, 5, 90, 0.0, 500), (0.256, 8, 250, 1e-5, 1), (2.0, 16, 50, 1e-3, 313))
def resnet_cosine(base_lr, warmup_epochs, epochs, end_lr, per_epoch):
    def lr_policy(iteration):
        epoch = iteration // per_epoch
        if epoch < warmup_epochs:
            return base_lr * (epoch + 1) / warmup_epochs
        e = epoch - warmup_epochs
        es = epochs - warmup_epochs
        lr = end_lr + 0.5 * (1 + np.cos(np.pi * e / es)) * (base_lr - end_lr)
        return max(lr, end_lr)

    return lr_policy


@family((0.1, 5, 90, 500), (0.256, 8, 50, 313))
def resnet_linear(base_lr, warmup_epochs, epochs, per_epoch):
    def lr_policy(iteration):
        epoch = iteration // per_epoch
        if epoch < warmup_epochs:
            return base_lr * (epoch + 1) / warmup_epochs
        e = epoch - warmup_epochs
        es = epochs - warmup_epochs
        return base_lr * (1 - (e / es))

    return lr_policy


@family((0.1, (30, 60, 80), 5, 100), (0.4, (8, 16, 22), 1, 1))
def resnet_steps(base_lr, steps, warmup_epochs, per_epoch):
    def lr_policy(iteration):
        epoch = iteration // per_epoch
        if epoch < warmup_epochs:
            return base_lr * (epoch + 1) / warmup_epochs
        lr = base_lr
        for s in steps:
            if epoch >= s:
                lr *= 0.1
        return lr

    return lr_policy


@family((1e-4, 1e-5, 1000, 50_000), (3e-4, 3e-5, 37, 1213))
def megatron_cosine(max_lr, min_lr, warmup, decay):
    def get_lr(num_steps):
        if warmup > 0 and num_steps <= warmup:
            return max_lr * num_steps / warmup
        if num_steps > decay:
            return min_lr
        num_steps_ = num_steps - warmup
        decay_steps_ = decay - warmup
        decay_ratio = float(num_steps_) / float(decay_steps_)
        assert decay_ratio >= 0.0
        assert decay_ratio <= 1.0
        coeff = 0.5 * (math.cos(math.pi * decay_ratio) + 1.0)
        return min_lr + coeff * (max_lr - min_lr)

    return get_lr


@family((1e-4, 1e-5, 1000, 50_000), (3e-4, 0.0, 37, 1213))
def clamped_progress(max_lr, min_lr, warmup, total):
    def get_lr(step):
        ratio = min(max((step - warmup) / (total - warmup), 0.0), 1.0)
        lr = min_lr + (max_lr - min_lr) * 0.5 * (1 + math.cos(math.pi * ratio))
        return lr * min(1.0, (step + 1) / warmup)

    return get_lr


@family((1e-3, 100, 1000), (5e-4, 37, 1213))
def cosine_of_np_clip(peak, warmup, total):
    def at(step):
        progress = np.clip((step - warmup) / (total - warmup), 0.0, 1.0)
        return peak * np.minimum(1.0, step / warmup) * 0.5 * (1.0 + np.cos(np.pi * progress))

    return at


@family((1e-3, 1e-6, 100), (0.05, 0.001, 37), (0.1, 0.0, 200))
def cosine_annealing_formula(eta_max, eta_min, t_max):
    return lambda t: eta_min + (eta_max - eta_min) * (1 + math.cos(math.pi * t / t_max)) / 2


@family((1e-3, 1e-5, 1000), (3e-4, 3e-5, 777))
def max_of_cosine_and_floor(peak, floor, total):
    return lambda t: max(floor, peak * 0.5 * (1 + math.cos(math.pi * min(t, total) / total)))


@family((1e-3, 1e-4, 1000), (6e-4, 1e-5, 777))
def cosine_never_below(peak, floor, total):
    def at(step):
        lr = peak * math.cos(math.pi / 2 * min(step / total, 1))
        return lr if lr > floor else floor

    return at


@family((1e-3, 1000), (0.05, 777))
def quarter_cosine(peak, total):
    return lambda t: max(0.0, peak * math.cos(7 * math.pi * t / (16 * total)))


@family((0.03, 256 * 100, 0), (0.03, 2**20, 10))
def fixmatch_cosine(peak, total, warmup):
    def lr_lambda(current_step):
        if current_step < warmup:
            return peak * float(current_step) / float(max(1, warmup))
        no_progress = float(current_step - warmup) / float(max(1, total - warmup))
        return peak * max(0.0, math.cos(math.pi * (7.0 / 16.0) * no_progress))

    return lr_lambda


@family((1e-3, 0.1, 0.02, 1000), (4e-4, 0.05, 0.01, 50_000))
def warmup_by_ratio(peak, min_ratio, warmup_ratio, total):
    warmup = int(total * warmup_ratio)

    def at(step):
        if step < warmup:
            return peak * step / warmup
        progress = (step - warmup) / (total - warmup)
        return peak * max(min_ratio, 0.5 * (1 + math.cos(math.pi * progress)))

    return at


@family((1e-3, 0.1, 20, 1000), (4e-4, 0.3, 500, 50_000))
def max_of_product(peak, min_ratio, warmup, total):
    def at(step):
        scale = min(1.0, (step + 1) / warmup)
        cosine = 0.5 * (1 + math.cos(math.pi * min(step, total) / total))
        return max(peak * min_ratio, peak * scale * cosine)

    return at


@family((100, 1000, 0.1), (37, 1213, 0.0))
def llama_factory_cosine(warmup, total, min_ratio):
    def lr_lambda(step):
        if step < warmup:
            return step / max(1, warmup)
        progress = (step - warmup) / max(1, total - warmup)
        cosine = 0.5 * (1 + math.cos(math.pi * progress))
        return max(min_ratio, (1 - min_ratio) * cosine + min_ratio)

    return lr_lambda


@family((20, 1000, 1.0), (37, 1213, 0.5))
def half_cycle_sine(warmup, total, scale):
    def at(t):
        if t < warmup:
            return scale * math.sin(0.5 * math.pi * t / warmup)
        return scale * 0.5 * (1 + math.sin(math.pi * (0.5 + (t - warmup) / (total - warmup))))

    return at


@family((1000,), (777,))
def squared_cosine(total):
    return lambda t: math.cos(0.5 * math.pi * min(t, total) / total) ** 2


@family((1000, 0.008), (100, 0.01))
def improved_diffusion_alpha_bar(total, s):
    return lambda t: math.cos((min(t, total) / total + s) / (1 + s) * math.pi / 2) ** 2


@family((1000, 0.008), (400, 0.02))
def improved_diffusion_beta(total, s):
    def alpha_bar(t):
        return math.cos((t + s) / (1 + s) * math.pi / 2) ** 2

    def beta(i):
        i = min(i, total - 1)
        return min(1 - alpha_bar((i + 1) / total) / alpha_bar(i / total), 0.999)

    return beta


# --- restarts and cycles --------------------------------------------------------------------------


@family((1e-3, 1e-5, 100), (0.1, 0.0, 37), (3e-4, 3e-5, 1213))
def restart_by_modulo(peak, floor, period):
    return lambda t: floor + 0.5 * (peak - floor) * (1 + math.cos(math.pi * (t % period) / period))


@family((1e-3, 0.5, 100), (0.1, 0.7, 37))
def restart_with_decay(peak, gamma, period):
    def at(step):
        cycle = step // period
        return peak * gamma**cycle * 0.5 * (1 + math.cos(math.pi * (step % period) / period))

    return at


@family((100, 20, 5), (37, 7, 3), (1000, 0, 4))
def restarts_of_fraction(total, warmup, cycles):
    def at(step):
        if step < warmup:
            return step / warmup
        progress = min(1.0, (step - warmup) / (total - warmup))
        return 0.5 * (1 + math.cos(math.pi * (progress * cycles % 1.0)))

    return at


@family((100, 4), (1213, 7))
def restarts_by_floor(total, cycles):
    def at(step):
        x = cycles * step / total
        return 0.5 * (1 + math.cos(math.pi * (x - math.floor(x))))

    return at


@family((100, 1e-2), (37, 1e-3))
def restarts_by_fmod(period, peak):
    return lambda step: peak * (1 + math.cos(math.pi * math.fmod(step, period) / period)) / 2


@family((300, 5, 0.1), (200, 10, 0.2), (100, 3, 0.05))
def snapshot_ensemble(total, snapshots, initial):
    def at(t):
        inner = math.pi * (t % (total // snapshots))
        inner /= total // snapshots
        return float(initial / 2 * (math.cos(inner) + 1))

    return at


@family((300, 7, 0.1), (200, 10, 0.2))
def snapshot_ceil(total, cycles, initial):
    length = math.ceil(total / cycles)
    return lambda t: initial / 2 * (math.cos(math.pi * (t % length) / length) + 1)


@family((10, 2, 1e-3, 1e-5, 5), (50, 2, 0.1, 0.0, 4), (7, 3, 0.01, 1e-4, 3))
def warm_restarts_of_doubling_cycles(t_0, t_mult, peak, floor, cycles):
    starts = [0]
    for number in range(cycles):
        starts.append(starts[-1] + t_0 * t_mult**number)

    def at(step):
        step = min(step, starts[-1] - 1)
        cycle = bisect.bisect_right(starts, step) - 1
        length = starts[cycle + 1] - starts[cycle]
        fraction = (step - starts[cycle]) / length
        return floor + (peak - floor) * (1 + math.cos(math.pi * fraction)) / 2

    return at


@family((100, 0.9), (40, 0.5))
def restart_after_warmup(period, gamma):
    warmup = period // 10

    def at(step):
        cycle, position = divmod(step, period)
        peak = gamma**cycle
        if position < warmup:
            return peak * position / warmup
        return peak * max(
            0.0, 0.5 * (1 + math.cos(math.pi * (position - warmup) / (period - warmup)))
        )

    return at


@family((200, 10, 100, 1e-3), (1000, 37, 313, 0.1))
def cosine_of_whole_epochs(epochs, warmup, per_epoch, peak):
    def at(step):
        epoch = step // per_epoch
        if epoch < warmup:
            return peak * (epoch + 1) / warmup
        if epoch >= epochs:
            return 0.0
        return peak * 0.5 * (1 + math.cos(math.pi * (epoch - warmup) / (epochs - warmup)))

    return at


@family((300, 50, 1e-3, 1e-5), (90, 1251, 0.1, 0.0))
def cosine_of_epoch_and_floor(epochs, per_epoch, peak, floor):
    def at(step):
        epoch = int(step / per_epoch)
        return max(floor, peak * 0.5 * (1.0 + math.cos(math.pi * epoch / epochs)))

    return at


@family((1000, 10, 1e-3), (777, 7, 0.1))
def cosine_in_stairs(total, stairs, peak):
    def at(step):
        stair = math.floor(stairs * step / total) / stairs
        return peak * max(0.0, 0.5 * (1 + math.cos(math.pi * min(stair, 1.0))))

    return at


@family((1e-3, 6e-3, 2000), (1e-4, 1e-2, 37))
def clr_triangular(base, peak, step_size):
    def at(iteration):
        cycle = math.floor(1 + iteration / (2 * step_size))
        x = abs(iteration / step_size - 2 * cycle + 1)
        return base + (peak - base) * max(0, (1 - x))

    return at


@family((1e-3, 6e-3, 2000, 0.99994), (1e-4, 1e-2, 37, 0.999))
def clr_exp_range(base, peak, step_size, gamma):
    def at(iteration):
        cycle = math.floor(1 + iteration / (2 * step_size))
        x = abs(iteration / step_size - 2 * cycle + 1)
        return base + (peak - base) * max(0, (1 - x)) * gamma**iteration

    return at


@family((1e-3, 6e-3, 100), (1e-4, 1e-2, 37))
def clr_sine(base, peak, step_size):
    def at(iteration):
        cycle = math.floor(1 + iteration / (2 * step_size))
        x = abs(iteration / step_size - 2 * cycle + 1)
        return base + (peak - base) * 0.5 * (1 + math.sin(math.pi * (0.5 - min(x, 1))))

    return at


@family((20, 0.05, 0.01), (100, 0.1, 0.001))
def fge_cycle(cycle, alpha_1, alpha_2):
    def schedule(iteration):
        t = ((iteration % cycle) + 1) / cycle
        if t < 0.5:
            return alpha_1 * (1.0 - 2.0 * t) + alpha_2 * 2.0 * t
        return alpha_1 * (2.0 * t - 1.0) + alpha_2 * (2.0 - 2.0 * t)

    return schedule


@family((100, 1e-3), (37, 0.1))
def cosine_wave(period, peak):
    return lambda t: peak * (1 + math.cos(2 * math.pi * t / period)) / 2


@family((1000, 4, 0.5), (777, 3, 1.0))
def beta_of_cyclic_annealing(total, cycles, ratio):
    period = total / cycles

    def at(step):
        tau = (step % period) / period
        return 0.5 * (1 - math.cos(math.pi * tau / ratio)) if tau < ratio else 1.0

    return at


@family((1000, 4, 0.5), (800, 5, 0.25))
def linear_cyclic_annealing(total, cycles, ratio):
    period = total // cycles
    return lambda step: min(1.0, (step % period) / (period * ratio))


# --- decays in steps, roots, exponentials ---------------------------------------------------------


@family((1e-3, 100, 0.9), (0.1, 30, 0.1), (0.05, 7, 0.97))
def staircase(peak, size, gamma):
    return lambda step: peak * gamma ** (step // size)


@family((1e-3, 100, 0.9, 1e-5), (0.1, 30, 0.5, 1e-3))
def staircase_with_floor(peak, size, gamma, floor):
    return lambda step: max(floor, peak * gamma ** (step // size))


@family((0.1, 0.5, 10), (0.01, 0.97, 2.4))
def keras_step_decay(initial, drop, epochs_drop):
    return lambda epoch: initial * math.pow(drop, math.floor((1 + epoch) / epochs_drop))


@family((0.256, 0.97, 2.4, 5, 500), (0.016, 0.9, 3.0, 0, 100))
def efficientnet(peak, gamma, every, warmup_epochs, per_epoch):
    def at(step):
        if warmup_epochs and step < warmup_epochs * per_epoch:
            return peak * step / (warmup_epochs * per_epoch)
        return peak * gamma ** math.floor(step / (per_epoch * every))

    return at


@family((1e-3, 0.999, 1e-5), (0.1, 0.95, 1e-3))
def exponential_with_floor(peak, gamma, floor):
    return lambda step: max(peak * gamma**step, floor)


@family((5e-4, 5e-6, 250_000), (1e-2, 1e-4, 30_000))
def log_linear(start, end, total):
    def at(step):
        t = min(max(step / total, 0), 1)
        return math.exp(math.log(start) * (1 - t) + math.log(end) * t)

    return at


@family((512, 4000, 1.0), (768, 10_000, 0.5))
def noam(d_model, warmup, factor):
    def at(step):
        step = step + 1
        return factor * (d_model ** (-0.5) * min(step ** (-0.5), step * warmup ** (-1.5)))

    return at


@family((1e-3, 10_000), (5e-4, 37))
def rsqrt(peak, warmup):
    return lambda step: peak * math.sqrt(warmup) / math.sqrt(max(step, warmup))


@family((1e-3, 1000, 100, 0.1), (0.01, 500, 37, 0.0))
def trapezoid_with_sqrt_decay(peak, total, decay, floor):
    def at(step):
        if step < total - decay:
            return peak
        x = min(1.0, (step - (total - decay)) / decay)
        return peak * (floor + (1 - floor) * (1 - math.sqrt(x)))

    return at


@family((1e-3, 1000, 0.9), (0.01, 777, 2.0), (0.05, 40_000, 0.5))
def poly(peak, total, power):
    return lambda step: peak * (1 - min(step, total) / total) ** power


@family((1e-3, 1000, 0.9, 1e-5), (0.01, 777, 2.0, 1e-4))
def poly_with_floor(peak, total, power, floor):
    return lambda step: max(floor, peak * max(0.0, 1 - step / total) ** power)


@family((0.1, 1000, 0.01), (1e-3, 50_000, 1e-4))
def one_minus_sqrt(peak, total, floor):
    return lambda step: max(floor, peak * (1 - math.sqrt(min(1.0, step / total))))


@family((0.1, 1e-4), (0.01, 3e-3))
def time_based(peak, decay):
    return lambda step: peak / (1 + decay * step)


@family((0.01, 0.001, 0.75), (1.0, 10.0, 0.75))
def dann_progress(peak, alpha, beta):
    return lambda step: peak / (1 + alpha * min(step, 10_000) / 10_000) ** beta


@family((10.0, 1000), (5.0, 777))
def ramp_of_grl(gamma, total):
    return lambda step: 2.0 / (1.0 + math.exp(-gamma * min(step / total, 1.0))) - 1.0


@family((80, 5.0), (40, 2.5))
def sigmoid_rampup(length, sharpness):
    def at(current):
        if length == 0:
            return 1.0
        current = min(max(current, 0.0), length)
        phase = 1.0 - current / length
        return float(math.exp(-sharpness * phase * phase))

    return at


@family((90,), (210,))
def cosine_rampdown(length):
    def at(current):
        current = min(current, length)
        return float(0.5 * (math.cos(math.pi * current / length) + 1))

    return at


@family((0.999, 2000), (0.9999, 32_000))
def ema_decay(decay, tau):
    return lambda updates: decay * (1 - math.exp(-updates / tau))


@family((0.9999,), (0.995,))
def ema_warmup(decay):
    return lambda step: min(decay, (1 + step) / (10 + step))


@family((0.9999, 1.0, 2 / 3), (0.999, 10.0, 0.75))
def ema_power(max_value, inv_gamma, power):
    def at(step):
        step = max(0, step - 1)
        value = 1 - (1 + step / inv_gamma) ** -power
        return 0.0 if step <= 0 else max(0.0, min(value, max_value))

    return at


@family((0.996, 1.0, 1000), (0.99, 1.0, 31_250))
def momentum_teacher(base, final, total):
    def at(step):
        step = min(step, total - 1)
        return final + 0.5 * (base - final) * (1 + math.cos(math.pi * step / total))

    return at


@family((0.0, 1.0, 1000, 100), (0.04, 0.4, 777, 0))
def cosine_between(start, end, total, begin):
    def at(step):
        if step < begin:
            return start
        progress = min((step - begin) / (total - begin), 1.0)
        return end + (start - end) * (math.cos(math.pi * progress) + 1) * 0.5

    return at


# --- stages ---------------------------------------------------------------------------------------


@family((1e-3, 100, 500, 1000, 0.1), (3e-4, 37, 777, 1213, 0.0))
def wsd_linear(peak, warmup, stable_end, total, min_ratio):
    def at(step):
        if step < warmup:
            return peak * step / warmup
        if step < stable_end:
            return peak
        x = min(1.0, (step - stable_end) / (total - stable_end))
        return peak * (1 - x * (1 - min_ratio))

    return at


@family((1e-3, 100, 500, 1000, 0.1), (3e-4, 37, 777, 1213, 0.0))
def wsd_cosine(peak, warmup, stable_end, total, min_ratio):
    def at(step):
        if step < warmup:
            return peak * step / warmup
        if step < stable_end:
            return peak
        x = (step - stable_end) / (total - stable_end)
        x = min(x, 1)
        return peak * max(min_ratio, 0.5 * (1 + math.cos(math.pi * x)))

    return at


@family((0.01, 100, 500, 2000), (0.01, 37, 777, 1213))
def wsd_exponential(start_lr, warmup, drop, end):
    def at(n):
        if n < warmup:
            return start_lr * n / warmup
        if n < end - drop:
            return start_lr
        return start_lr * max(0.1 * (end - n) / drop, 0.0)

    return at


@family((0.1, 0.4, 0.5, 0.05, 5000), (0.1, 0.4, 0.5, 0.01, 777))
def tri_stage(warm, hold, decay, final, total):
    warm_steps, hold_steps, decay_steps = (int(total * part) for part in (warm, hold, decay))
    decay_factor = -math.log(final) / decay_steps

    def at(step):
        if step < warm_steps:
            return 0.01 + (1.0 - 0.01) / warm_steps * step
        if step < warm_steps + hold_steps:
            return 1.0
        if step <= warm_steps + hold_steps + decay_steps:
            return math.exp(-decay_factor * (step - warm_steps - hold_steps))
        return final

    return at


@family((1e-3, 0.3, 25.0, 1e4, 1000), (0.01, 0.25, 10.0, 100.0, 777))
def one_cycle_cosine(peak, pct, div, final_div, total):
    initial, end = peak / div, peak / div / final_div
    up = float(pct * total) - 1
    down = float(total) - 1

    def anneal(start, stop, x):
        return stop + (start - stop) / 2.0 * (1 + math.cos(math.pi * x))

    def at(step):
        step = min(step, total - 1)
        if step <= up:
            return anneal(initial, peak, step / up)
        return anneal(peak, end, (step - up) / (down - up))

    return at


@family((0.4, 5, 24, 98), (0.6, 8, 40, 195))
def piecewise_linear(peak, up, total, per_epoch):
    return lambda step: np.interp([step / per_epoch], [0, up, total], [0, peak, 0])[0]


@family((1e-3, 0.5, 1000), (0.01, 0.9, 777))
def delayed_linear(peak, start, total):
    def at(step):
        p = step / total
        return peak if p < start else peak * max(0.0, (1 - p) / (1 - start))

    return at


@family((1e-3, 100, 20, 1000), (5e-4, 37, 5, 1213))
def warmup_cosine_cooldown(peak, warmup, cooldown, total):
    def at(step):
        factor = 1.0
        if step < warmup:
            factor = step / warmup
        elif step > total - cooldown:
            factor = max(0.0, (total - step) / cooldown)
        return peak * factor * 0.5 * (1 + math.cos(math.pi * min(step, total) / total))

    return at


@family((1e-3, 1e-5, 100, 1000), (0.05, 1e-6, 0, 777))
def timm_cosine(base, lr_min, warmup_t, t_initial):
    def at(t):
        if t < warmup_t:
            return 1e-6 + t * (base - 1e-6) / warmup_t
        t = t - warmup_t
        i = t // t_initial
        t_curr = t - (t_initial * i)
        if i < 1:
            return lr_min + 0.5 * (base - lr_min) * (1 + math.cos(math.pi * t_curr / t_initial))
        return lr_min

    return at


@family((1e-3, 1e-5, 100, 0.5, 3), (0.05, 0.0, 37, 1.0, 5))
def timm_cosine_cycles(base, lr_min, t_initial, decay, limit):
    def at(t):
        i = t // t_initial
        t_curr = t - t_initial * i
        if i < limit:
            lr_max = base * decay**i
            return lr_min + 0.5 * (lr_max - lr_min) * (1 + math.cos(math.pi * t_curr / t_initial))
        return lr_min

    return at


@family((1e-3, 0.1, 2000, 100_000), (3e-4, 0.0, 37, 1213))
def olmo_cosine(initial_lr, alpha_f, warmup, t_max):
    def at(step):
        eta_min = initial_lr * alpha_f
        if step < warmup:
            return initial_lr * min(step, warmup) / warmup
        if step >= t_max:
            return eta_min
        return (
            eta_min
            + (initial_lr - eta_min)
            * (1 + math.cos(math.pi * (step - warmup) / (t_max - warmup)))
            / 2
        )

    return at


@family((0.0, 1.0, 1000), (0.1, 0.9, 777))
def keras_cosine_decay(alpha, initial, decay_steps):
    def at(step):
        step = min(step, decay_steps)
        cosine_decay = 0.5 * (1 + math.cos(math.pi * step / decay_steps))
        decayed = (1 - alpha) * cosine_decay + alpha
        return initial * decayed

    return at


@family((100, 2.0, 0.9, 1e-3), (37, 1.0, 0.5, 0.0))
def keras_restarts(first, t_mul, m_mul, alpha):
    def at(step):
        completed = step / first
        if t_mul == 1.0:
            i_restart = math.floor(completed)
            completed -= i_restart
        else:
            i_restart = 0.0
            completed = min(completed, 1.0)
        m_fac = m_mul**i_restart
        return (1 - alpha) * 0.5 * m_fac * (1.0 + math.cos(math.pi * completed)) + alpha

    return at


@family((0.5, 1000), (2.0, 777))
def k_decay(k, total):
    return lambda t: (
        1e-5 + 0.5 * (1e-3 - 1e-5) * (1 + math.cos(math.pi * min(t, total) ** k / total**k))
    )


@family((0.72, 1000), (0.9, 777))
def flat_then_cosine(start, total):
    def at(step):
        if step < start * total:
            return 1.0
        return 0.5 * (1 + math.cos(math.pi * min(1.0, (step / total - start) / (1 - start))))

    return at


@family((1e-3, 1000, (0.9, 0.95)), (0.1, 300, (0.5, 0.75)))
def decay_at_fractions(peak, total, fractions):
    def at(step):
        lr = peak
        for fraction in fractions:
            if step >= int(fraction * total):
                lr *= 0.1
        return lr

    return at


@family((100, 1000, 8, 256), (37, 777, 1, 48))
def batch_size_ramp(ramp, total, low, high):
    def at(step):
        if step >= ramp:
            return high
        return low + round((high - low) * step / ramp / 8) * 8

    return at


@family((64, 1024, 4000), (8, 512, 777))
def sequence_length_curriculum(low, high, total):
    def at(step):
        length = low + (high - low) * min(1.0, step / total)
        return int(length) // 8 * 8

    return at


@family((64, 1024, 4000, 2), (8, 512, 777, 3))
def curriculum_root(low, high, total, degree):
    def at(step):
        root = (step / total) ** (1.0 / degree)
        return min(high, math.floor(root * (high - low) + low))

    return at


@family((50, 1e-3), (7, 0.1))
def rounded_epochs(per_epoch, peak):
    return lambda step: peak * (1 - min(round(step / per_epoch), 100) / 100)


@family(((0.1, 0.05, 0.01, 0.001), 50), ((1.0, 0.5, 0.25), 7))
def rates_by_index(rates, per_rate):
    return lambda step: rates[min(step // per_rate, len(rates) - 1)]


@family(((30, 60, 90), 0.1, 0.2), ((100, 150), 0.05, 0.1))
def bisected_milestones(milestones, peak, gamma):
    return lambda epoch: peak * gamma ** bisect.bisect_right(milestones, epoch)


@family((200, 5e-4, 1e-6, 10), (777, 1e-3, 1e-5, 37))
def table_of_cosine(total, base, final, warmup):
    up = np.linspace(0, base, warmup)
    steps = np.arange(total - warmup)
    down = final + 0.5 * (base - final) * (1 + np.cos(np.pi * steps / len(steps)))
    table = np.concatenate((up, down))
    return lambda step: table[min(step, total - 1)]


@family((1000, 100, 0.1), (777, 37, 0.0))
def cosine_by_recomputed_steps(total, warmup, floor):
    def at(step):
        done = min(step, total)
        left = total - done
        progress = 1 - left / total
        scale = 1.0 if step >= warmup else (step + 1) / (warmup + 1)
        return scale * (floor + (1 - floor) * (1 + math.cos(math.pi * progress)) / 2)

    return at


@family((1000, 0.02), (777, 0.5))
def sum_of_cosines(total, weight):
    def at(step):
        x = min(step / total, 1.0)
        return max(0.0, 0.5 * (1 + math.cos(math.pi * x)) + weight * math.cos(4 * math.pi * x) ** 2)

    return at


@family((1000, 50), (777, 37))
def abs_cosine(total, period):
    return lambda step: abs(math.cos(math.pi * step / period)) * max(0.0, 1 - step / total)


@family((1000, 5), (500, 4))
def damped_restarts(total, cycles):
    def at(step):
        x = min(step, total) / total
        envelope = 1 - x
        return envelope * 0.5 * (1 + math.cos(math.pi * ((cycles * x) % 1.0)))

    return at


@family((20_000, 100, 1e-3), (1213, 37, 0.01))
def cosine_of_tokens(total, warmup, peak):
    tokens_per_step = 512 * 8

    def at(step):
        tokens = step * tokens_per_step
        if tokens < warmup * tokens_per_step:
            return peak * tokens / (warmup * tokens_per_step)
        progress = (tokens - warmup * tokens_per_step) / ((total - warmup) * tokens_per_step)
        return peak * max(0.1, 0.5 * (1.0 + math.cos(math.pi * progress)))

    return at


@family((16, 1000, 1e-3), (3, 777, 0.01))
def per_accumulated_step(accumulation, total, peak):
    def at(micro_step):
        step = micro_step // accumulation
        return peak * max(0.0, 0.5 * (1.0 + math.cos(math.pi * step / total)))

    return at


@family((100, 50_000, 1e-3, 256), (10, 1213, 0.1, 32))
def epoch_fraction(epochs, examples, peak, batch):
    per_epoch = math.ceil(examples / batch)

    def at(step):
        epoch = step / per_epoch
        return peak * 0.5 * (1.0 + math.cos(math.pi * min(epoch, epochs) / epochs))

    return at


@family((20, 1000, 0.1), (37, 777, 0.0))
def warmup_from_zero_index(warmup, total, floor):
    def at(step):
        step += 1
        if step <= warmup:
            return step / warmup
        ratio = (step - warmup) / (total - warmup)
        return floor + (1 - floor) * max(0.0, 0.5 * (1.0 + math.cos(math.pi * ratio)))

    return at


@family((1e-3, 1e-4, 100, 2), (0.1, 0.01, 37, 3))
def decayed_restart_floor(peak, floor, period, factor):
    def at(step):
        cycle = step // period
        top = max(floor, peak / factor**cycle)
        return floor + (top - floor) * 0.5 * (1 + math.cos(math.pi * (step % period) / period))

    return at


@family((1e-3, 100), (0.1, 37))
def restart_every_with_shift(peak, period):
    return lambda step: peak * 0.5 * (1 + math.cos(math.pi * ((step - 1) % period) / period))


@family((1e-3, 100, 1000), (0.1, 37, 777))
def min_of_warmup_and_cosine(peak, warmup, total):
    def at(step):
        return peak * min(
            (step + 1) / warmup, 0.5 * (1 + math.cos(math.pi * min(step / total, 1.0)))
        )

    return at


@family((1e-3, 0.1, 1000), (0.01, 0.01, 777))
def clipped_cosine(peak, floor, total):
    def at(step):
        value = 0.5 * (1 + math.cos(math.pi * step / total))
        return peak * min(1.0, max(floor, value))

    return at
