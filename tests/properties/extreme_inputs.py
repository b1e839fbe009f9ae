"""Inputs with extreme numbers over every entrance of the library, as texts of Python programs.

Each input is a subject, such as a schedule with one extreme argument, and what is done with it. It
depends on its number and nothing else, so that any of them can be run again by itself.
"""

import inspect
import json
import random
import re
from collections.abc import Callable
from typing import NamedTuple

from closedform import optimizers
from closedform.schedules.examples import EXAMPLES
from tests.recipes.mutants import FACTS, OTHERS
from tests.reference.records import corpus

PRELUDE = """
import math, os, tempfile
from decimal import Decimal
from fractions import Fraction
import numpy as np, sympy as sp
import closedform as cf
from closedform import schedules, optimizers
from closedform.schedules import *
from closedform.schedules.examples import FALL, RISE
from tests.properties.extreme_models import save_model
place = tempfile.mkdtemp()
"""
"""The first lines of each program."""

INTEGERS = (
    *("0", "-1", "2**31", "2**53 + 1", "2**63 - 1", "2**63", "-(2**63)", "10**18", "10**20"),
    *(
        "10**40",
        "10**400",
        "-(10**400)",
        "10**5000",
        "1 << 10**9",
        "10**100_000",
        "10**9",
        "10**11",
    ),
)
REALS = (
    *("1e300", "-1e300", "1e-300", "5e-324", "1.7976931348623157e308", "2.2e-308", "-0.0", "1e20"),
    *("float('nan')", "float('inf')", "-float('inf')", "1e9", "1e-9", "1e40", "1e-45", "1e-8"),
    *("2**-10**9", "2.0**-1000", "np.float32(1e-45)", "np.float32('inf')", "np.float64('nan')"),
)
EXACT = (
    *("Fraction(1, 10**400)", "Fraction(10**100_000 + 1, 3**200_000)", "Decimal('1e-1000000000')"),
    *("Decimal('1e1000000000')", "Decimal('nan')", "sp.Rational(1, 3**5000)", "sp.oo", "sp.nan"),
    *("sp.Float(10)**10**9", "sp.Float('0.1')**10**9", "sp.Integer(10)**400"),
    *("sp.exp(sp.exp(sp.exp(20)))", "sp.exp(-sp.exp(30))", "sp.Pow(2, 10**9, evaluate=False)"),
    *("sp.Pow(3, 10**12, evaluate=False)", "sp.Pow(2, -10**11, evaluate=False)", "sp.zoo"),
    *("sp.sqrt(10**3000 + 1)", "sp.pi*10**400", "sp.E**1000000", "sp.pi**(10**15)"),
)
NUMBERS = (*INTEGERS, *REALS, *EXACT)
TEXTS = (
    *("1e400", "1e-400", "1e300", "5e-324", "nan", "inf", "-inf", "-0.0", "1e20", "-1", "0", "1e9"),
    *(
        "1e1000000000",
        "1e-1000000000",
        "10**400",
        "2**-10**9",
        "10**10**10",
        "1/3",
        "1e99999999999",
    ),
    *(
        "9" * 400,
        "9" * 5000,
        "0." + "9" * 3000,
        "1e-9",
        "99999999999999999999",
        "1_0",
        "0x" + "f" * 4000,
    ),
)
"""Numbers as a command line has them."""
YAML = (
    *("1.0e+400", "1.0e-400", "1.0e+300", "5.0e-324", ".nan", ".inf", "-.inf", "-0.0", "1.0e+20"),
    *("1.0e+9", "1.0e-9", "9" * 30, "9" * 400, "9" * 5000, "100000000000", "-1", "0", "1e-45"),
    *("0." + "3" * 2000, "1.0e+1000000000", "1:59:59:59", "0x" + "f" * 300, '"1e400"', "1.0e+15"),
)

_FUNCTIONS = (
    "0.5 ** (512 / max(min(500_000, step * 512 * 0.05), {x}))",
    *("{x} ** step", "step ** {x}", "(1 - step / 1000) ** {x}", "(1 + step) ** -({x})"),
    *("math.exp(-step * {x})", "math.exp(math.exp(step * {x}))", "1 / (1 + step * {x})"),
    *("step % {x}", "step // {x}", "math.floor({x} * step)", "math.log(step + {x})"),
    *(
        "min(step, {x})",
        "max(step * {x}, 1)",
        "round(step * {x})",
        "math.cos(math.pi * step / {x})",
    ),
    *(
        "{x} ** (step // {n})",
        "math.sqrt({x} * step)",
        "0.1 if step < {x} else 0.2",
        "{x} / (step + 1)",
    ),
    *("pow(step, 3, {n})", "step << {n}", "step >> {n}", "{n} >> step", "(step & {n}) * 0.1"),
    *("2 ** -(step * {n})", "0.1 * 2.0 ** -(step / {x})", "step * {x} + {y}", "{x} * {y} * step"),
    *(
        "0.999 ** (step * {n})",
        "math.tanh(step * {x})",
        "abs(step - {x}) * 1e-3",
        "10.0 ** -{x} * step",
    ),
    *("math.exp({x})", "math.log10({x} + step)", "(step + {x}) ** 0.5", "(step + 1) ** (1 / {x})"),
    *("sum({x} ** k for k in range(3)) * step", "int(step * {x}) % 7", "np.exp(-{x} * step)"),
    *("math.floor(math.log(step + 1, {x}))", "1 - 0.5 ** (step / {x})", "np.float32({x}) * step"),
)
_COMPOSITIONS = (
    *("FALL.then(RISE, at={n})", "FALL.repeat({n})", "FALL.scale({x})", "FALL.clip(low={x})"),
    *(
        "FALL.clip(high={x})",
        "FALL.shift({n})",
        "FALL * {x}",
        "FALL / {x}",
        "FALL + {x}",
        "{x} - FALL",
    ),
    *("FALL.splice({n}, RISE)", "schedules.sequential([RISE, FALL.shift({n})])"),
    *("constant({x}) * constant({y})", "FALL.resume({n}, total={n2})", "cf.Schedule(cf.t ** {x})"),
    *(
        "cf.Schedule({x} ** cf.t)",
        "cf.Schedule(sp.exp({x} * cf.t))",
        "cf.Schedule(sp.floor(cf.t * {x}))",
    ),
    *("cf.Schedule(sp.cos(cf.t * {x}))", "cf.Schedule(sp.Piecewise((1, cf.t < {x}), (2, True)))"),
    "stages(0, [(1, {n}), ({x}, 20, 'cosine'), (0, 30)])",
    "multi_step(1, {x}, [{n}, {n2}])",
    "table([{x}, 0.1, {y}])",
    "piecewise_constant([{x}, 1, {y}], [10, {n}])",
)
_USES = (
    *(
        "s(0), s(1), s(7)",
        "s({n})",
        "s({x})",
        "s(np.arange(50))",
        "s(np.array([2**62, 2**63 - 1]))",
    ),
    *("s.exact({n})", "s.exact(3)", "print(s, repr(s), s.latex())", "s.verify()", "cf.certify(s)"),
    *(
        "cf.diff(s, FALL)",
        "cf.diff(s, FALL, until={n})",
        "cf.to_onnx(s, os.path.join(place, 'x.onnx'))",
    ),
    *("cf.to_onnx(s, step_shape=({n},))", "cf.to_onnx(s, dtype='float32')", "cf.to_c(s)"),
    *("cf.to_onnx(s, precision='double')", "cf.to_torch(s)", "s.area()", "s.area({n})"),
    *("s.plot(os.path.join(place, 'x.svg'))", "s.plot(os.path.join(place, 'x.svg'), steps={n})"),
    "cf.from_onnx(cf.to_onnx(s)).exact(2)",
    "cf.ScheduleSession(cf.to_onnx(s))({n})",
)
_RULE_USES = (
    *("print(r, repr(r))", "r.verify()", "cf.to_onnx(r, params={{'w': (3, 2)}})", "cf.to_c(r)"),
    "cf.to_onnx(r, params={{'w': ({n}, 2)}})",
    "cf.to_torch(r)",
    "cf.to_onnx(r, params={{'w': (3,)}}, scalar_dtype='float32')",
)
_RECIPE_USES = (
    *(
        "cf.lint(path{f})",
        "cf.load_recipe(path{f})",
        "cf.load_recipe(path{f}).schedule('lr').exact(3)",
    ),
    "cf.write_recipe(cf.load_recipe(path{f}), 'transformers')",
    "cf.diff(cf.load_recipe(path{f}), FALL)",
)
_COMMANDS = (
    *("show {s}", "verify {s}", "verify {s} --symbolic", "plot {s} -o {place}/x.svg", "plot {s}"),
    *("export {s} -o {place}/out", "diff {s0} 'cosine --start 1 --end 0 --steps 100'", "list {x}"),
    *("show {s} --steps {x}", "plot {s} --steps {x}", "diff {s0} {s0} --until {x}"),
    *("run {onnx} --steps {x}", "run {onnx} --steps 0:{x}:{y}", "verify {onnx} --against {s0}"),
    "solve cosine --start {x} --end 0 --steps 1000 --for steps --area {y}",
    "solve linear --start 1 --end 0 --steps 100 --for start --value {x} --at {y}",
    *("lint {config}", "show {config}", "verify {config}", "watch {log} {config}", "recover {log}"),
    *("resume {s} --at {x}", "rescale {config} --batch {x}", "convert {config} --to megatron"),
    *(
        "plot {log}",
        "recover {log} --offset {x}",
        "show {function}",
        "export {config} -o {place}/o",
    ),
)
_CONFIG = """learning_rate: {x}
warmup_steps: {n}
lr_scheduler_type: {kind}
{extra}max_steps: {m}
"""
_KINDS = {
    **dict.fromkeys(("linear", "cosine", "constant_with_warmup", "inverse_sqrt", "polynomial"), ""),
    "polynomial ": "lr_scheduler_kwargs: {{power: {y}}}\n",
    "cosine_with_restarts": "lr_scheduler_kwargs: {{num_cycles: {y}}}\n",
    "warmup_stable_decay": "lr_scheduler_kwargs: {{num_decay_steps: {y}}}\n",
    "cosine_with_min_lr": "lr_scheduler_kwargs: {{min_lr_rate: {y}}}\n",
}
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d_]*\.?\d*(?:[eE][-+]?\d+)?(?![\w.])")


class Extreme(NamedTuple):
    """An input: where it enters, and the program."""

    entrance: str
    text: str


def extreme(number: int) -> Extreme:
    """Returns one of the inputs."""
    draw = random.Random(f"extremes {number}")
    entrances = list(_ENTRANCES)
    entrance = entrances[number % len(entrances)]
    return Extreme(entrance, _ENTRANCES[entrance](draw))


def _filled(draw: random.Random, text: str, integers: tuple[str, ...] = INTEGERS) -> str:
    return text.format(
        x=f"({draw.choice(NUMBERS)})",
        y=f"({draw.choice(NUMBERS)})",
        n=f"({draw.choice(integers)})",
        n2=f"({draw.choice(integers)})",
    )


def _with_use(draw: random.Random, subject: str) -> str:
    return f"s = {subject}\n{_filled(draw, draw.choice(_USES))}"


def _library(draw: random.Random) -> str:
    example = EXAMPLES[draw.choice(sorted(EXAMPLES))]
    call = example.call
    places = list(_NUMBER.finditer(call))
    for place in sorted(
        draw.sample(places, min(len(places), draw.choice((1, 1, 2)))),
        reverse=True,
        key=lambda match: match.start(),
    ):
        call = f"{call[: place.start()]}({draw.choice(NUMBERS)}){call[place.end() :]}"
    return _with_use(draw, f"schedules.{call}")


def _composition(draw: random.Random) -> str:
    return _with_use(draw, _filled(draw, draw.choice(_COMPOSITIONS)))


def _python(draw: random.Random) -> str:
    integers = ("0", "-1", "64", "1000", "10**6", "10**9", "2**31", "10**18", "10**40", "10**400")
    reals = tuple(x for x in (*integers, *REALS) if x != "2**-10**9")
    text = draw.choice(_FUNCTIONS).format(
        x=f"({draw.choice(reals)})", y=f"({draw.choice(reals)})", n=f"({draw.choice(integers)})"
    )
    return (
        f"def f(step):\n    return {text}\n"
        f"s = cf.from_python(f)\n{_filled(draw, draw.choice(_USES))}"
    )


def _optimizer(draw: random.Random) -> str:
    name = draw.choice(sorted(optimizers.__all__))
    parameters = inspect.signature(getattr(optimizers, name)).parameters.values()
    numbers = [
        p.name
        for p in parameters
        if p.default is p.empty
        or (isinstance(p.default, int | float) and not isinstance(p.default, bool))
    ]
    chosen = draw.sample(numbers, min(len(numbers), draw.choice((1, 1, 2))))
    required = [p.name for p in parameters if p.default is p.empty and p.name not in chosen]
    arguments = [f"{key}={draw.choice(NUMBERS)}" for key in chosen] + [
        f"{key}=1" for key in required
    ]
    use = _filled(draw, draw.choice(_RULE_USES))
    return f"r = optimizers.{name}({', '.join(arguments)})\n{use}"


def _model(draw: random.Random) -> str:
    arguments = draw.randrange(10**9)
    use = draw.choice(
        (
            "cf.from_onnx(path).exact(3)",
            "print(cf.from_onnx(path))",
            "cf.verify_file(path, seconds=8)",
            "cf.to_onnx(cf.from_onnx(path))",
            "cf.ScheduleSession(path)(3)",
            "from closedform.cli.worker import work\n"
            "work(dict(path=path, against=None, source=None, ports=None, key='lr', effort=0.2, "
            "budget=None, proof=None))",
        )
    )
    return f"path = save_model(place, {arguments})\n{use}"


def _config(draw: random.Random) -> str:
    kind = draw.choice(sorted(_KINDS))
    values = {
        key: draw.choice(YAML) if draw.random() < 0.5 else normal
        for key, normal in (("x", "1.0e-3"), ("y", "2"), ("n", "100"), ("m", "1000"))
    }
    text = _CONFIG.format(kind=kind.strip(), extra=_KINDS[kind].format(**values), **values)
    return _recipe(draw, "train.yaml", text, None, {})


def _corpus(draw: random.Random) -> str:
    row = draw.choice([*corpus(), *OTHERS])
    framework, _, name = row["file"].partition("/")
    text = row["text"]
    places = [match for match in _NUMBER.finditer(text) if len(match[0]) < 12]
    for place in sorted(
        draw.sample(places, min(len(places), draw.choice((1, 2, 4)))),
        reverse=True,
        key=lambda match: match.start(),
    ):
        value = draw.choice(YAML if name.endswith((".yaml", ".yml")) else TEXTS)
        text = f"{text[: place.start()]}{value}{text[place.end() :]}"
    return _recipe(draw, name.rpartition("/")[2], text, framework, row.get("facts") or FACTS)


def _recipe(draw: random.Random, name: str, text: str, framework: str | None, facts: object) -> str:
    use = draw.choice(_RECIPE_USES)
    options = "" if framework is None else f", framework={framework!r}, facts={json.dumps(facts)}"
    if framework is not None and "lint" in use:
        options = options if draw.random() < 0.9 else ""
    return (
        f"path = os.path.join(place, {name!r})\n"
        f"open(path, 'w', encoding='utf-8').write({text!r})\n{use.format(f=options)}"
    )


def _log(draw: random.Random) -> str:
    if draw.random() < 0.5:
        count = draw.choice((1, 3, 6))
        key, value = draw.choice(NUMBERS), draw.choice(NUMBERS)
        kind = draw.randrange(3)
        # A product with this Decimal is an error of Python.
        factor = "10**400" if "e1000000000" in key else key
        log = (
            f"{{i: {value} for i in range({count})}}",
            f"{{**{{i: 0.1 - i * 1e-4 for i in range({count})}}, {key}: {value}}}",
            f"{{i * ({factor}): 0.1 for i in range({count})}}",
        )[kind]
        use = draw.choice(("cf.recover({})", "cf.recover({}, offset={n})"))
        return _filled(draw, use.replace("{}", log.replace("{", "{{").replace("}", "}}")))
    text = _log_text(draw)
    use = draw.choice(("cf.recover(path)", "cf.recover(path, digits=4)"))
    return f"path = os.path.join(place, 'log.csv')\nopen(path, 'w').write({text!r})\n{use}"


def _log_text(draw: random.Random) -> str:
    rows = [[str(i), f"{0.1 - i * 1e-4:.4f}"] for i in range(draw.choice((1, 3, 6)))]
    for _ in range(draw.choice((1, 3, 30))):
        draw.choice(rows)[draw.randrange(2)] = draw.choice(TEXTS)
    return "step,lr\n" + "\n".join(",".join(row) for row in rows) + "\n"


def _command(draw: random.Random) -> str:
    example = EXAMPLES[draw.choice(sorted(EXAMPLES))]
    name = draw.choice(
        ("cosine", "polynomial", "exponential", "warm_restarts", "wsd", "adamw", "sgd")
    )
    options = {
        "cosine": "--start {a} --end {b} --steps {c}",
        "polynomial": "--start {a} --end {b} --steps {c} --power {d}",
        "exponential": "--start {a} --factor {b} --every {c}",
        "warm_restarts": "--start {a} --end {b} --first {c} --multiplier {d}",
        "wsd": "--peak {a} --end {b} --steps {c} --warmup {d} --decay 10",
        "adamw": "--lr {a} --eps {b}",
        "sgd": "--lr {a} --momentum {b}",
    }[name]
    normal = {"a": "1", "b": "0", "c": "100", "d": "2"}
    values = {
        key: draw.choice(TEXTS) if draw.random() < 0.45 else value for key, value in normal.items()
    }
    subject = f"{name} {options.format(**values)}"
    fields = {"s": subject, "s0": f"'{subject}'", "x": draw.choice(TEXTS), "y": draw.choice(TEXTS)}
    command = draw.choice(_COMMANDS)
    del example
    kind = draw.choice(sorted(_KINDS))
    yaml = {
        key: draw.choice(YAML) if draw.random() < 0.4 else normal
        for key, normal in (("x", "1.0e-3"), ("y", "2"), ("n", "100"), ("m", "1000"))
    }
    config = _CONFIG.format(kind=kind.strip(), extra=_KINDS[kind].format(**yaml), **yaml)
    function = (
        f"def f(step):\n    return 0.1 * {draw.choice(('1e-300', '10**400', '1e300'))} ** step\n"
    )
    words = {
        **fields,
        "place": "{place}",
        "onnx": "{place}/m.onnx",
        "config": "{place}/c.yaml",
        "log": "{place}/log.csv",
        "function": "{place}/f.py:f",
    }
    files = {"c.yaml": config, "log.csv": _log_text(draw), "f.py": function}
    needed = {name: text for name, text in files.items() if name in command.format(**words)}
    lines = [f"open(os.path.join(place, {n!r}), 'w').write({t!r})" for n, t in needed.items()]
    if "{onnx}" in command:
        lines.append("cf.to_onnx(cosine(1, 0, 100), os.path.join(place, 'm.onnx'))")
    lines += [
        "import shlex\nfrom closedform.cli.application import run",
        f"run(shlex.split({command.format(**words)!r}.replace('{{place}}', place)))",
    ]
    return "\n".join(lines)


_ENTRANCES: dict[str, Callable[[random.Random], str]] = {
    "library": _library,
    "python": _python,
    "composition": _composition,
    "command": _command,
    "config": _config,
    "corpus": _corpus,
    "optimizer": _optimizer,
    "onnx": _model,
    "log": _log,
}
