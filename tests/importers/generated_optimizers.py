# ruff: noqa: UP031 - formatting by % is what some guards test
"""Generated classes of torch optimizers, and a judge of the rules that are traced from them.

Each class is put together from a guard (what is read, and how), an effect (what the guard does),
the place of the guard, a form of state, a form of update and an ``except`` around the guard. The
guards are listed one by one; the other parts are drawn for each by a seeded generator.
"""

import decimal
import fractions
import math
import operator
import os
import random
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import closedform as cf
from closedform.errors import TraceError

Guard = Callable[..., Any]

CALLS = {"count": 0}
TABLE = [1.0, 0.5, 0.25]
FORMAT = "%.1f"


class Tracker:
    """An object with a state."""

    seen = 0

    def __init__(self) -> None:
        self.count = 0

    def tick(self) -> int:
        self.count += 1
        return self.count


@dataclass
class Site:
    """The objects that a guard sees: optimizer, param group, parameter, its state and its place."""

    owner: Any
    group: Any
    p: Any
    g: Any
    own: Any
    index: int


def _counted_globally(site: Site) -> bool:
    CALLS["count"] += 1
    return CALLS["count"] > 30


def _counted_in_class(site: Site) -> bool:
    Tracker.seen += 1
    return Tracker.seen > 30


def _counted_in_object(site: Site) -> bool:
    return bool(site.owner.tracker.tick() > 30)


def _counted_privately(site: Site) -> bool:
    site.owner._private = getattr(site.owner, "_private", 0) + 1
    return bool(site.owner._private > 60)


def _counted_on_the_parameter(site: Site) -> bool:
    site.p.seen = getattr(site.p, "seen", 0) + 1
    return bool(site.p.seen > 30)


def _closure_counter() -> Guard:
    count = 0

    def guard(site: Site) -> bool:
        nonlocal count
        count += 1
        return count > 30

    return guard


def _three_ways(site: Site) -> bool:
    if site.g.norm() > 1e3:
        return True
    return not site.g.norm() <= 1e3


def _by_numpy_step(site: Site) -> bool:
    site.own["seen"] = np.int64(site.own.get("seen", 0)) + np.int64(1)
    return bool(site.own["seen"] > 30)


def _by_array_step(site: Site) -> bool:
    if "seen" not in site.own:
        site.own["seen"] = np.zeros(())
    site.own["seen"] += 1
    return bool(site.own["seen"] > 30)


def _by_tensor_step(read: Callable[[torch.Tensor], Any]) -> Guard:
    def guard(site: Site) -> bool:
        if "seen" not in site.own:
            site.own["seen"] = torch.tensor(0.0)
        site.own["seen"] += 1
        return bool(read(site.own["seen"]) > 30)

    return guard


def _by_int_step(decide: Callable[[int], Any]) -> Guard:
    def guard(site: Site) -> Any:
        site.own["seen"] = site.own.get("seen", 0) + 1
        return decide(site.own["seen"])

    return guard


def _by_history(site: Site) -> bool:
    last = site.own.get("last")
    site.own["last"] = site.g.norm().item()
    return last is not None and last > 1e3


def _by_flag(site: Site) -> bool:
    if site.g.norm() > 1e3:
        site.own["hot"] = True
    return bool(site.own.get("hot", False))


def _by_bad_count(site: Site) -> bool:
    site.own.setdefault("bad", 0)
    if not torch.isfinite(site.g).all():
        site.own["bad"] += 1
    return bool(site.own["bad"] > 0)


def _by_largest(site: Site) -> bool:
    site.own["largest"] = max(site.own.get("largest", 0.0), float(site.g.abs().max()))
    return bool(site.own["largest"] > 1e3)


def _counted_by_hand(site: Site) -> bool:
    place = 0
    for q in site.group["params"]:
        if q is site.p:
            return place >= 2
        place += 1  # noqa: SIM113 - enumerate is traced
    return False


def _number_by_hand(site: Site) -> bool:
    number = 0
    for _ in site.group["params"]:
        number += 1
    return number > 2


GUARDS: Mapping[str, Guard] = {
    # numbers of the gradient
    "norm item": lambda s: s.g.norm().item() > 1e3,
    "norm float": lambda s: float(s.g.norm()) > 1e3,
    "norm tensor": lambda s: s.g.norm() > 1e3,
    "largest": lambda s: s.g.abs().max() > 1e3,
    "any": lambda s: bool((s.g.abs() > 1e3).any()),
    "all": lambda s: (s.g.abs() < 1e3).all().item(),
    "mean of squares": lambda s: s.g.pow(2).mean().sqrt().item() > 1e3,
    "numpy": lambda s: np.abs(s.g.numpy()).max() > 1e3,
    "asarray": lambda s: np.abs(np.asarray(s.g)).max() > 1e3,
    "detached numpy": lambda s: s.g.detach().cpu().numpy().max() > 1e3,
    "tolist": lambda s: max(map(abs, s.g.flatten().tolist())) > 1e3,
    "iterated": lambda s: any(x.abs().item() > 1e3 for x in s.g.flatten()),
    "element": lambda s: s.g.flatten()[0].item() > 1e3,
    "contains": lambda s: 0.0 in s.g,
    "ufunc of item": lambda s: np.sqrt(s.g.norm().item()) > 30,
    "isclose": lambda s: math.isclose(s.g.norm().item(), 0.0, abs_tol=1e-6),
    "int": lambda s: int(s.g.norm().item()) > 1000,
    "round": lambda s: round(s.g.norm().item()) > 1000,
    "floor": lambda s: math.floor(s.g.norm().item()) > 1000,
    "text": lambda s: len(f"{s.g.norm().item():.0f}") > 4,
    "str": lambda s: len(str(s.g.norm().item())) > 20,
    "hash": lambda s: hash(s.g.norm().item()) % 7 == 3,
    "sorted": lambda s: torch.sort(s.g.flatten()).values[-1] > 1e3,
    "topk": lambda s: torch.topk(s.g.flatten(), 1).values.max() > 1e3,
    "median": lambda s: s.g.median() > 1e3,
    "argmax": lambda s: s.g.flatten().argmax().item() == 0,
    "dot with parameter": lambda s: (s.g * s.p).sum() > 0,
    "parameter": lambda s: s.p.norm() > 5,
    "compared twice": _three_ways,
    "not less": lambda s: not (s.g.norm() <= 1e3),
    "not any": lambda s: not (s.g.abs() > 1e3).any(),
    "less": lambda s: s.g.norm() < 1e3,
    "chained": lambda s: 1e-8 < s.g.norm().item() < 1e3,
    "max of two": lambda s: max(s.g.norm().item(), s.p.norm().item()) > 1e3,
    "zero": lambda s: s.g.norm() == 0,
    "count": lambda s: torch.count_nonzero(s.g).item() == 0,
    "equal": lambda s: torch.equal(s.g, torch.zeros_like(s.g)),
    "allclose": lambda s: torch.allclose(s.g, torch.zeros_like(s.g)),
    "truth of sum": lambda s: bool(s.g.sum() != 0),
    "history": _by_history,
    "flag": _by_flag,
    "running largest": _by_largest,
    # numbers that are not finite
    "isfinite": lambda s: not torch.isfinite(s.g).all(),
    "isfinite method": lambda s: not s.g.isfinite().all().item(),
    "isnan": lambda s: torch.isnan(s.g).any(),
    "isinf": lambda s: torch.isinf(s.g).any(),
    "math.isnan": lambda s: math.isnan(s.g.sum().item()),
    "math.isfinite": lambda s: not math.isfinite(s.g.norm().item()),
    "math.isinf": lambda s: math.isinf(s.g.abs().max().item()),
    "np.isnan": lambda s: np.isnan(s.g.sum().item()),
    "np.isfinite": lambda s: not np.isfinite(s.g.sum().item()),
    "not itself": lambda s: (s.g != s.g).any(),
    "item is not itself": lambda s: (lambda x: x != x)(s.g.sum().item()),
    "equal to infinity": lambda s: (s.g == math.inf).any(),
    "below infinity": lambda s: not (s.g.abs() < math.inf).all(),
    "item is infinity": lambda s: s.g.abs().max().item() == float("inf"),
    "bad count": _by_bad_count,
    # steps
    "int step": _by_int_step(lambda k: k > 30),
    "int step modulo": _by_int_step(lambda k: k % 10 == 0),
    "int step in tuple": _by_int_step(lambda k: k in (10, 20)),
    "int step in set": _by_int_step(lambda k: k in {10, 20}),
    "int step in range": _by_int_step(lambda k: k in range(30, 33)),
    "int step as text": _by_int_step(lambda k: len(str(k)) > 1),
    "int step in a table": _by_int_step(lambda k: TABLE[min(k, 35) // 17] < 0.4),
    "int step bits": _by_int_step(lambda k: k & (k - 1) == 0),
    "int step type": _by_int_step(lambda k: type(k) is int and k > 30),
    "int step power": _by_int_step(lambda k: pow(k, 2, 7) == 4),
    "int step by numpy": _by_int_step(lambda k: np.sqrt(k) > 5.5),
    "int step to int8": _by_int_step(lambda k: np.int8(k * 4) < 0),
    "int step to bool": _by_int_step(lambda k: bool(k // 30)),
    "int step divmod": _by_int_step(lambda k: divmod(k, 12)[1] == 5),
    "numpy step": _by_numpy_step,
    "array step": _by_array_step,
    "tensor step item": _by_tensor_step(lambda x: x.item()),
    "tensor step float": _by_tensor_step(float),
    "tensor step": _by_tensor_step(lambda x: x),
    "tensor step numpy": _by_tensor_step(lambda x: float(x.numpy())),
    "tensor step int": _by_tensor_step(int),
    # places and numbers of parameters
    "third": lambda s: s.index >= 2,
    "first": lambda s: s.index == 0,
    "odd": lambda s: s.index % 2 == 1,
    "number of parameters": lambda s: len(s.group["params"]) > 2,
    "last": lambda s: s.index == len(s.group["params"]) - 1,
    "is the first": lambda s: s.p is s.group["params"][0],
    "number of states": lambda s: len(s.owner.state) > 2,
    "place by hand": _counted_by_hand,
    "number by hand": _number_by_hand,
    "norm of all": lambda s: (
        torch.stack([q.grad.norm() for q in s.group["params"]]).norm().item() > 1e3
    ),
    "mean of norms": lambda s: (
        sum(q.grad.norm() for q in s.group["params"]) / len(s.group["params"]) > 1e3
    ),
    "largest of norms": lambda s: max(q.grad.norm().item() for q in s.group["params"]) > 1e3,
    "any bad": lambda s: any(not torch.isfinite(q.grad).all() for q in s.group["params"]),
    "vectors": lambda s: any(q.dim() < 2 for q in s.group["params"]),
    # shapes, dtypes, layouts
    "rank": lambda s: s.p.dim() == 1,
    "rows": lambda s: s.p.dim() > 0 and s.p.shape[0] > 4,
    "elements": lambda s: s.p.numel() > 20,
    "dtype": lambda s: s.p.dtype == torch.float32,
    "dtype in": lambda s: s.p.dtype in (torch.float16, torch.float64),
    "dtype text": lambda s: str(s.p.dtype) == "torch.float32",
    "epsilon": lambda s: s.g.norm() * torch.finfo(s.p.dtype).eps > 1e-10,
    "tiny": lambda s: torch.finfo(s.g.dtype).tiny > 1e-100,
    "bits": lambda s: torch.finfo(s.p.dtype).bits == 32,
    "element size": lambda s: s.p.element_size() == 4,
    "item size": lambda s: s.p.itemsize == 4,
    "type": lambda s: s.p.type() == "torch.FloatTensor",
    "default dtype": lambda s: torch.get_default_dtype() == torch.float64,
    "double": lambda s: s.p.double().dtype == s.p.dtype,
    "contiguous": lambda s: s.p.is_contiguous(),
    "stride": lambda s: s.p.dim() > 1 and s.p.stride()[-1] == 1,
    "offset": lambda s: s.p.storage_offset() == 0,
    "version": lambda s: s.p._version > 100,
    "storage": lambda s: s.p.untyped_storage().nbytes() > 100,
    # what is outside
    "random": lambda s: random.random() < 1e-4,
    "random instance": lambda s: s.owner.rng.random() < 1e-4,
    "numpy random": lambda s: np.random.rand() < 1e-4,  # noqa: NPY002
    "torch random": lambda s: torch.rand(()).item() < 1e-4,
    "seed": lambda s: torch.initial_seed() == 12345,
    "time": lambda s: time.time() > 4e9,
    "monotonic": lambda s: time.monotonic() < 0,
    "environment": lambda s: os.environ.get("NO_SUCH_NAME") is not None,
    "address": lambda s: id(s.p) % 64 == 48,
    "data pointer": lambda s: s.p.data_ptr() % 4096 == 64,
    "imported": lambda s: __import__("random").random() < 1e-4,
    "global count": _counted_globally,
    "class count": _counted_in_class,
    "object count": _counted_in_object,
    "private count": _counted_privately,
    "closure count": _closure_counter(),
    "count on the parameter": _counted_on_the_parameter,
    "stored function": lambda s: s.owner.clock() > 4e9,
    "iterator": lambda s: next(s.owner.numbers) > 60,
}
"""Conditions on what an optimizer can read; true ones have the effect."""


TEXTS: Mapping[str, Guard] = {
    "percent": lambda s: len("%f" % s.g.norm().item()) > 12,
    "percent of several": lambda s: len("%d %f" % (3, s.g.norm().item())) > 14,
    "percent of a name": lambda s: len("%(x).3f" % {"x": s.g.norm().item()}) > 8,
    "percent of a tensor": lambda s: len("%d" % s.g.norm()) > 3,
    "percent of the place": lambda s: len("%d" % s.index) > 1,
    "percent of a global": lambda s: len(FORMAT % s.g.norm().item()) > 5,
    "percent of a stored text": lambda s: len(s.owner.formats["x"] % s.g.norm().item()) > 12,
    "percent of a made text": lambda s: len((str(1) + "%f") % s.g.norm().item()) > 12,
    "percent of a cut text": lambda s: len("..%f.".strip(".") % s.g.norm().item()) > 12,
    "percent of an f-string": lambda s: len(f"%{len('abc')}f" % s.g.norm().item()) > 12,
    "percent of bytes": lambda s: len(b"%f" % s.g.norm().item()) > 12,
    "percent by operator": lambda s: len(operator.mod("%f", s.g.norm().item())) > 12,
    "percent by method": lambda s: len("%f".__mod__(s.g.norm().item())) > 12,
    "percent by type": lambda s: len(str.__mod__("%f", s.g.norm().item())) > 12,
    "format method": lambda s: len(f"{s.g.norm().item():.2f}") > 6,
    "format of a tensor": lambda s: len(f"{s.g.norm():.2f}") > 6,
    "format by type": lambda s: len(float.__format__(s.g.norm().item(), "f")) > 12,
    "repr by type": lambda s: len(float.__repr__(s.g.norm().item())) > 12,
    "hex": lambda s: len(float.hex(s.g.norm().item())) > 12,
    "conversion": lambda s: len(f"{s.g.norm().item()!r:>3}") > 12,
    "decimal": lambda s: decimal.Decimal(s.g.norm().item()) > 1000,
    "fraction": lambda s: fractions.Fraction(s.g.norm().item()) > 1000,
    "bytes of length": lambda s: len(bytes(int(s.g.norm().item()))) > 1000,
    "list of length": lambda s: len([0] * math.floor(s.g.norm().item())) > 1000,
}
"""Ways of a number of the step to a text, bytes or another number of Python, to be refused."""

ALL_GUARDS = {**GUARDS, **TEXTS}


FACTORS: Mapping[str, Guard] = {
    "copysign": lambda s: torch.copysign(torch.ones_like(s.g), s.g),
    "sign": lambda s: s.g.sign(),
    "sign by division": lambda s: torch.nan_to_num(s.g / s.g.abs()),
    "quotient": lambda s: s.g / s.g.abs(),
    "guarded quotient": lambda s: torch.where(s.g == 0, torch.zeros_like(s.g), s.g / s.g.abs()),
    "where": lambda s: torch.where(s.g > 0, s.g, s.g * 0.5),
    "where not": lambda s: torch.where(~(s.g > 0), s.g, s.g * 0.5),
    "where finite": lambda s: torch.where(torch.isfinite(s.g), s.g, torch.zeros_like(s.g)),
    "where itself": lambda s: torch.where(s.g == s.g, s.g, torch.zeros_like(s.g)),
    "where infinite": lambda s: torch.where(s.g == math.inf, torch.ones_like(s.g), s.g),
    "masked fill": lambda s: s.g.masked_fill(torch.isnan(s.g), 0.0),
    "masked fill infinite": lambda s: s.g.masked_fill(s.g.isinf(), 1.0),
    "nan to num": lambda s: torch.nan_to_num(s.g, nan=0.0, posinf=1.0, neginf=-1.0),
    "nan to num of all": lambda s: torch.nan_to_num(s.g).clamp(-1, 1),
    "clamp": lambda s: s.g.clamp(-1.0, 1.0),
    "maximum": lambda s: torch.maximum(s.g, torch.full_like(s.g, -0.5)),
    "fmax": lambda s: torch.fmax(s.g, torch.full_like(s.g, -0.5)),
    "fmin": lambda s: torch.fmin(s.g, torch.full_like(s.g, 0.5)),
    "relu": lambda s: torch.relu(s.g),
    "root": lambda s: s.g.sqrt(),
    "log": lambda s: s.g.abs().log(),
    "log1p": lambda s: s.g.abs().log1p(),
    "expm1": lambda s: s.g.clamp(-3, 3).expm1(),
    "rsqrt": lambda s: s.g * (s.g * s.g + 1e-16).rsqrt(),
    "sigmoid": lambda s: torch.sigmoid(s.g),
    "tanh": lambda s: torch.tanh(s.g),
    "atan2": lambda s: torch.atan2(s.g, torch.ones_like(s.g)),
    "floor": lambda s: torch.floor(s.g.clamp(-5, 5)),
    "remainder": lambda s: torch.remainder(s.g.clamp(-50, 50), 3.0),
    "xor": lambda s: ((s.g > 0) ^ (s.p > 0)).to(s.g.dtype),
    "mask and": lambda s: ((s.g > 0) & ~(s.p > 0)).to(s.g.dtype) * s.g,
    "any row": lambda s: s.g * (s.g > 0).any(),
    "normalized": lambda s: s.g / (s.g.norm() + 1e-8),
    "normalized without epsilon": lambda s: s.g / s.g.norm(),
    "largest": lambda s: s.g / s.g.abs().max().clamp(min=1e-3),
    "less itself": lambda s: s.g + (s.g - s.g),
    "over itself": lambda s: s.g * (s.g / s.g),
    "times zero": lambda s: s.p * 0.125 + s.g * 0.0,
    "power zero": lambda s: s.g**0 * s.p,
    "softplus": lambda s: torch.nn.functional.softplus(s.g),
    "cumsum": lambda s: s.g.flatten().cumsum(0).view_as(s.g),
    "flip": lambda s: s.g.flip(0) if s.g.dim() else s.g,
    "in double": lambda s: (s.g.double() * s.g.double()).sqrt().to(s.g.dtype),
    "epsilon": lambda s: s.g / (s.g.abs() + torch.finfo(s.p.dtype).eps * 1e6),
    "over the number of parameters": lambda s: s.g / len(s.group["params"]),
    "layerwise": lambda s: s.g * 0.5 ** (s.index // 2),
    "in numpy": lambda s: torch.from_numpy(np.tanh(s.g.numpy())),
    "by item": lambda s: s.g * min(1.0, 1.0 / max(s.g.norm().item(), 1e-6)),
    "by numpy item": lambda s: s.g * float(np.minimum(1.0, 1.0 / (s.g.norm().item() + 1e-6))),
    "rounded item": lambda s: s.g * round(min(s.g.norm().item(), 100.0)),
    "new tensor": lambda s: s.g * torch.tensor(s.g.norm().item() + 1.0),
    "new from list": lambda s: s.g * torch.tensor([x.item() for x in s.g.flatten()][:1]),
    "scaled by tensor": lambda s: torch.add(s.p * 0.1, s.g, alpha=float(s.g.norm().clamp(max=2.0))),
    "heaviside": lambda s: torch.heaviside(s.g, torch.ones_like(s.g)),
    "signbit": lambda s: torch.signbit(s.g).to(s.g.dtype),
    "isclose": lambda s: torch.isclose(s.g, torch.zeros_like(s.g)).to(s.g.dtype),
    "trunc": lambda s: s.g.clamp(-5, 5).trunc(),
    "round": lambda s: s.g.clamp(-5, 5).round(),
    "to int": lambda s: s.g.clamp(-5, 5).to(torch.int32).to(s.g.dtype),
    "deep copy": lambda s: __import__("copy").deepcopy(s.g),
    "variance": lambda s: s.g / (s.g.std() + 1e-6) if s.g.numel() > 1 else s.g,
    "strided": lambda s: torch.empty_strided(s.g.shape, s.g.stride()).copy_(s.g) * 0.5,
    "cross entropy of zero": lambda s: s.g * torch.xlogy(torch.zeros_like(s.g), s.g.abs()),
    "atan": lambda s: torch.atan(s.g),
    "atan2 of two": lambda s: torch.atan2(s.g, s.p),
    "atan2 of a root": lambda s: s.g.atan2((s.g * s.g + s.p * s.p).sqrt()),
    "atan2 of items": lambda s: s.g * math.atan2(s.g.norm().item() - 1, s.p.norm().item() - 1),
    "arctan2 of items": lambda s: s.g * float(np.arctan2(s.g.norm().item(), s.p.norm().item())),
}
"""Directions of a step that are functions of what an optimizer can read."""


# --- the other parts -----------------------------------------------------------------------------


def _skip(step: Any, is_guarded: Any) -> Any:
    return None if is_guarded else step


EFFECTS: Mapping[str, Callable[[Any, bool], Any]] = {
    "skip": _skip,
    "scale": lambda step, is_guarded: step * (0.1 if is_guarded else 1.0),
    "sign": lambda step, is_guarded: step.sign() if is_guarded else step,
    "double": lambda step, is_guarded: step * 2 if is_guarded else step,
}


def _no_state(own: Any, p: Any, g: Any) -> Any:
    return g


def _momentum(own: Any, p: Any, g: Any) -> Any:
    if "m" not in own:
        own["m"] = torch.zeros_like(p)
    return own["m"].mul_(0.9).add_(g, alpha=0.1)


def _first_gradient(own: Any, p: Any, g: Any) -> Any:
    if "m" not in own:
        own["m"] = g.clone()
    else:
        own["m"].mul_(0.9).add_(g, alpha=0.1)
    return own["m"]


def _second_moment(own: Any, p: Any, g: Any) -> Any:
    if not own:
        own["v"] = torch.zeros_like(p)
        own["step"] = 0
    own["step"] += 1
    own["v"].mul_(0.99).addcmul_(g, g, value=0.01)
    return g / ((own["v"] / (1 - 0.99 ** own["step"])).sqrt() + 1e-8)


def _tensor_count(own: Any, p: Any, g: Any) -> Any:
    if "k" not in own:
        own["k"] = torch.tensor(0.0)
        own["m"] = torch.zeros_like(p)
    own["k"] += 1
    own["m"].lerp_(g, 0.1)
    return own["m"] / (1 - 0.9 ** own["k"].item())


def _anchored(own: Any, p: Any, g: Any) -> Any:
    if "anchor" not in own:
        own["anchor"] = p.detach().clone()
    return g + 0.1 * (p - own["anchor"])


def _python_scalar(own: Any, p: Any, g: Any) -> Any:
    own["scale"] = 0.5 * own.get("scale", 1.0) + 0.5 * min(g.abs().mean().item(), 10.0)
    return g / (own["scale"] + 1.0)


STATES: Mapping[str, Callable[..., Any]] = {
    "none": _no_state,
    "momentum": _momentum,
    "first gradient": _first_gradient,
    "second moment": _second_moment,
    "tensor count": _tensor_count,
    "anchor": _anchored,
    "python scalar": _python_scalar,
}

UPDATES: Mapping[str, Callable[..., Any]] = {
    "add_": lambda p, step, lr: p.add_(step, alpha=-lr),
    "data": lambda p, step, lr: p.data.sub_(lr * step),
    "copy_": lambda p, step, lr: p.copy_(p - lr * step),
    "foreach": lambda p, step, lr: torch._foreach_add_([p], [step], alpha=-lr),
    "decay": lambda p, step, lr: p.mul_(1 - lr * 0.01).add_(step, alpha=-lr),
}


def _plainly(guard: Guard, site: Site) -> Any:
    return guard(site)


def _caught(guard: Guard, site: Site) -> Any:
    try:
        return guard(site)
    except Exception:
        return False


def _caught_base(guard: Guard, site: Site) -> Any:
    try:
        return guard(site)
    except BaseException:
        return False


def _caught_some(guard: Guard, site: Site) -> Any:
    try:
        return guard(site)
    except (TypeError, ValueError, AttributeError, RuntimeError):
        return False


CATCHES: Mapping[str, Callable[[Guard, Site], Any]] = {
    "plain": _plainly,
    "except Exception": _caught,
    "except BaseException": _caught_base,
    "except some": _caught_some,
}

_OF_GUARDS = ("begun", "seen", "last", "hot", "bad", "largest")

PLACES = ("before", "after", "later", "global")
"""Where the guard is: before the state changes, after it, from the second step on, or once a step
for all parameters."""


@dataclass(frozen=True)
class Parts:
    """The parts of a generated class."""

    name: str
    kind: str
    effect: str
    place: str
    state: str
    update: str
    catch: str

    def __str__(self) -> str:
        return "/".join(
            (self.kind, self.name, self.effect, self.place, self.state, self.update, self.catch)
        )


class Generated(torch.optim.Optimizer):
    """An optimizer of given parts."""

    parts: Parts

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1})
        self.tracker = Tracker()
        self.rng = random.Random(5)
        self.clock = time.time
        self.numbers = iter(range(10**6))
        self.formats = {"x": "%e"}

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            group["calls"] = group.get("calls", 0) + 1
            verdict = None
            for index, p in enumerate(group["params"]):
                site = Site(self, group, p, p.grad, self.state[p], index)
                if self.parts.place == "global":
                    if index == 0:
                        verdict = self.guarded(site)
                    self.update(site, verdict)
                else:
                    self.update(site)

    def guarded(self, site: Site) -> Any:
        return CATCHES[self.parts.catch](ALL_GUARDS[self.parts.name], site)

    def update(self, site: Site, verdict: Any = None) -> None:
        parts = self.parts
        own = site.own
        g = site.g
        is_first = parts.place == "later" and "begun" not in own
        if parts.place == "later":
            own["begun"] = True
        if parts.kind == "factor":
            g = CATCHES[parts.catch](FACTORS[parts.name], site)
            if g is False:
                g = site.g
        is_guarded = False
        if parts.kind == "guard" and parts.place in ("before", "global") and not is_first:
            is_guarded = self.guarded(site) if parts.place != "global" else verdict
            if EFFECTS[parts.effect](g, is_guarded) is None:
                return
        entries = {
            key: own.pop(key)
            for key in ("begun", "seen", "last", "hot", "bad", "largest")
            if key in own
        }
        step = STATES[parts.state](own, site.p, g)
        own.update(entries)
        if parts.kind == "guard" and parts.place in ("after", "later") and not is_first:
            is_guarded = self.guarded(site) if parts.place != "global" else verdict
        if parts.kind == "guard":
            step = EFFECTS[parts.effect](step, is_guarded)
        if step is not None:
            UPDATES[parts.update](site.p, step, site.group["lr"])


def generated(count: int, seed: int = 2024) -> list[Parts]:
    """Returns the parts of classes: each guard and factor once, then again in other company."""
    rng = random.Random(seed)
    kinds = [*(("guard", name) for name in GUARDS), *(("factor", name) for name in FACTORS)]
    parts: list[Parts] = []
    while len(parts) < count:
        for kind, name in kinds:
            parts.append(
                Parts(
                    name,
                    kind,
                    rng.choice(list(EFFECTS)),
                    rng.choice(PLACES if kind == "guard" else PLACES[:1]),
                    rng.choice(list(STATES)),
                    rng.choice(list(UPDATES)),
                    rng.choices(list(CATCHES), (4, 1, 1, 1))[0],
                )
            )
    return parts[:count]


NOT_EXPRESSIBLE = frozenset(
    {
        *("numpy", "asarray", "detached numpy", "tolist", "text", "str", "hash", "in numpy"),
        *("int step in set", "int step as text", "array step", "tensor step numpy"),
        *("third", "first", "odd", "number of parameters", "last", "is the first"),
        *("number of states", "place by hand", "number by hand", "mean of norms", "layerwise"),
        *("over the number of parameters", "contiguous", "stride"),
        *("offset", "version", "storage", "random", "random instance", "numpy random"),
        *("torch random", "seed", "time", "monotonic", "environment", "address"),
        *("data pointer", "imported", "global count", "class count", "closure count"),
        *("count on the parameter", "stored function", "iterator", "strided"),
    }
)
"""Guards and factors that no rule can express, in any company."""


def must_be_refused(parts: Parts) -> bool:
    """Returns whether no rule can express a class: by its guard, or by asking for the place."""
    return parts.name in NOT_EXPRESSIBLE or parts.place == "global"


def class_of(parts: Parts) -> type[Generated]:
    """Returns the class that has these parts."""
    return types.new_class(
        "Optimizer", (Generated,), {}, lambda members: members.update(parts=parts)
    )


# --- the judge -----------------------------------------------------------------------------------

SHAPES: Sequence[tuple[tuple[int, ...], ...]] = (
    ((4, 6), (6, 6)),
    ((4, 6), (5,), (3, 5)),
    ((5,), (2, 3, 2), (4, 6), (7,)),
)
SEQUENCES: Mapping[str, int] = {"normal": 36, "huge": 5, "zero": 5, "tiny": 4, "nan": 5, "inf": 5}


def gradient(kind: str, step: int, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    """One gradient of a sequence."""
    values = rng.normal(size=shape)
    flat = values.reshape(-1)
    match kind:
        case "huge" if step in (0, 2):
            return values * 1e5
        case "zero" if step in (0, 2):
            return values * 0  # zeros of both signs
        case "zero":
            flat[::2] = 0.0
        case "tiny":
            return values * 1e-20
        case "nan" if step == 1:
            flat[0] = math.nan
        case "inf" if step in (1, 3):
            flat[0] = math.inf if step == 1 else -math.inf
    return values


def parameters(
    shapes: Sequence[tuple[int, ...]], dtype: torch.dtype, *, is_strided: bool = False
) -> list[torch.nn.Parameter]:
    rng = np.random.default_rng(3)
    values = [torch.tensor(rng.normal(size=shape), dtype=dtype) for shape in shapes]
    if is_strided:
        values = [v.t().contiguous().t() if v.dim() == 2 else v for v in values]
    return [torch.nn.Parameter(value) for value in values]


def _reset() -> None:
    CALLS["count"] = 0
    Tracker.seen = 0


def refusal(parts: Parts, dtype: torch.dtype) -> tuple[str | None, Any]:
    """Why a class is refused, or its rule."""
    _reset()
    try:
        return None, cf.from_torch(class_of(parts)(parameters(SHAPES[1], dtype)))
    except TraceError as error:
        return str(error), None
    finally:
        _reset()


def differences(
    parts: Parts, rule: Any, dtype: torch.dtype, folder: Path, which: int
) -> Iterator[str]:
    """Where a rule differs from its optimizer in onnxruntime."""
    shapes = SHAPES[which % len(SHAPES)]
    names = [f"p{place}" for place in range(len(shapes))]
    tolerance = 1e-4 if dtype == torch.float32 else 1e-6
    kind = "f32" if dtype == torch.float32 else "f64"
    files = folder / kind
    try:
        cf.to_onnx(
            rule, files, params=dict(zip(names, shapes, strict=True)), dtype=kind, validate=False
        )
    except cf.errors.ClosedFormError:
        return  # the rule says that it is not for these shapes
    for sequence, steps in SEQUENCES.items():
        _reset()
        params = parameters(shapes, dtype, is_strided=sequence == "zero")
        optimizer = class_of(parts)(params)
        start = {
            n: np.ascontiguousarray(p.detach().numpy()) for n, p in zip(names, params, strict=True)
        }
        session = cf.OptimizerSession.from_files(files, start)
        rng = np.random.default_rng(7)
        for step in range(steps):
            grads = [
                torch.tensor(gradient(sequence, step, p.shape, rng), dtype=dtype) for p in params
            ]
            for p, g in zip(params, grads, strict=True):
                p.grad = g.clone()
            try:
                optimizer.step()
            except (ArithmeticError, ValueError, RuntimeError):
                break  # there is no step to follow
            session.step({n: g.numpy() for n, g in zip(names, grads, strict=True)})
            gap = max(
                _gap(session.params[n], p.detach().numpy())
                for n, p in zip(names, params, strict=True)
            )
            if not gap <= tolerance:
                yield f"{kind} {sequence} step {step}: {gap:.2g}"
                break
    _reset()


def _gap(traced: Any, expected: Any) -> float:
    same = (traced == expected) | (np.isnan(traced) & np.isnan(expected))
    if same.all():
        return 0.0
    finite = np.isfinite(expected)
    if not np.isfinite(traced[~same]).all() or not finite[~same].all():
        return math.inf
    return float(np.abs(traced[~same] - expected[~same]).max() / np.abs(expected[finite]).max())
