"""C headers: every schedule and every elementwise rule of the library, compiled and run."""

import re
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy as sp

import closedform as cf
from closedform.compiler import compile_parts, compile_schedule
from closedform.errors import ExportError
from closedform.exporters.c_function import RESERVED
from closedform.exporters.c_header import Header, comment_text, rule_header, schedule_header
from closedform.ir import naming
from closedform.ir.evaluate import evaluate
from closedform.ir.graph import Array, Graph
from closedform.ir.ops import FUNCTIONS
from closedform.language import Schedule, UpdateRule
from closedform.options import ANY_STEPS, GraphOptions
from closedform.runtime.c_library import c_compiler
from closedform.schedules.examples import EXAMPLES
from closedform.verify.certificates.errors import bound_error
from tests.support.backends import IN_PAIRS as KEYWORDS
from tests.support.c_programs import call, compiled
from tests.support.unproved import expect_unproved

pytestmark = pytest.mark.skipif(c_compiler() is None, reason="there is no C compiler")

SCHEDULES = sorted(set(EXAMPLES) - {"reduce_on_plateau"})
WHOLE = (
    "adafactor adam_mini adamp adamuon came dion kron muon normuon scion sgdp shampoo sm3 soap "
    "stable_adamw"
)
"""The rules that look at shapes, or take means or maxima of tensors."""
RULES = sorted(set(cf.optimizers.__all__) - set(WHOLE.split()))
SINGLE = GraphOptions()
PAIRS = GraphOptions(**KEYWORDS)
"""Functions that libraries round differently; all other operations are prescribed by IEEE 754."""

SIZE = 37


@cache
def schedule(name: str) -> Schedule:
    made = EXAMPLES[name].make()
    assert isinstance(made, Schedule)
    return made


@cache
def rule(name: str) -> UpdateRule:
    made = getattr(cf.optimizers, name)()
    assert isinstance(made, UpdateRule)
    return made


def of_schedule(name: str, options: GraphOptions) -> Callable[[int], float]:
    header = schedule_header(schedule(name), compile_schedule(schedule(name), options), f"f_{name}")
    run: Callable[[int], float] = compiled([header]).function(f"f_{name}")
    return run


def points(name: str, last: int) -> list[int]:
    """Every step of the drawn part, and powers of two beyond it where the schedule has values."""
    domain = schedule(name).last_step
    far = [2**power for power in range(8, 50)]
    ends = [step for step in far if step <= (last if domain is None else min(domain, last))]
    return [*range(EXAMPLES[name].steps + 1), *ends]


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule(name: str) -> None:
    graph = compile_schedule(schedule(name), ANY_STEPS)
    steps = points(name, 2**50)
    expected = evaluate(graph, {"step": np.array(steps)})["value"]
    run = of_schedule(name, SINGLE)
    actual = np.array([run(step) for step in steps])
    if not any(node.op in FUNCTIONS for node in graph.nodes):
        assert np.array_equal(actual, expected)
        return
    # Both are within the bound of the exact value, for functions within 4 ulp.
    last = EXAMPLES[name].steps
    near = 2 * bound_error(graph, 0, last).absolute
    assert near < 1e-12
    assert np.abs(actual - expected)[: last + 1].max() <= near
    assert np.allclose(actual, expected, rtol=1e-9, atol=near)


IN_PAIRS = ("linear", "cosine", "exponential", "noam", "table", "multi_step", "one_cycle")


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", IN_PAIRS)
def test_double_float_has_the_bits_of_the_evaluator(name: str) -> None:
    graph = compile_schedule(schedule(name), PAIRS)
    assert not any(node.op in FUNCTIONS for node in graph.nodes)
    text = schedule_header(schedule(name), graph).text
    assert not re.search(r"\bdouble\b", text[text.index("#ifndef") :])
    run = of_schedule(name, PAIRS)
    steps = points(name, 2**31 - 1)
    expected = [evaluate(graph, {"step": np.array(step, np.int32)})["value"] for step in steps]
    assert [np.float32(run(step)) for step in steps] == expected


def graphs_of(one: UpdateRule, options: GraphOptions = SINGLE) -> tuple[Graph | None, ...]:
    ((graphs,),) = compile_parts(one.name, [(one, [("n",)])], options)
    return graphs


def start(one: UpdateRule, graphs: tuple[Graph | None, ...]) -> dict[str, Array]:
    """Random tensors, states that are neither zero nor negative, and scalars at their start."""
    rng = np.random.default_rng(3)
    found: dict[str, Array] = {}
    for graph in graphs:
        for node in () if graph is None else graph.inputs:
            name = str(node.attribute("name"))
            if node.type.shape:
                values = rng.normal(size=SIZE)
                is_state = name.startswith(naming.STATE)
                found[name] = (np.abs(values) if is_state else values).astype(np.float32)
            elif name.startswith(naming.SHARED):
                initial = float(one.shared[name.removeprefix(naming.SHARED)].initial)
                found[name] = np.array(initial, node.type.dtype.numpy)
            elif not name.startswith(naming.TOTAL):
                found[name] = np.array(6 if name == naming.STEP else 0.01, node.type.dtype.numpy)
    return found


def assert_near(actual: Array, expected: Array, label: str) -> None:
    """Equal but for the last place of scalars, of which libm and NumPy round some differently."""
    scale = np.abs(expected).max() + 1e-30
    assert np.abs(actual.astype(float) - expected).max() <= 4e-7 * scale, label


@pytest.mark.sample(every=5)
@pytest.mark.parametrize("name", RULES)
def test_every_elementwise_rule(name: str) -> None:
    library = compiled([rule_header(rule(name), SINGLE, f"r_{name}")])
    *stages, step = graphs = graphs_of(rule(name))
    assert step is not None
    arrays = start(rule(name), graphs)
    for place, graph in enumerate(stages):
        assert graph is not None
        totals = evaluate(graph, {n: arrays[n] for n in cf_inputs(graph)})
        found = {key: np.zeros(()) for key in totals}
        call(library, f"r_{name}_sums_{place}", {**arrays, **found}, SIZE)
        for key, total in totals.items():
            # The evaluator adds in single precision, C in double.
            assert np.isclose(found[key], total, rtol=1e-5, atol=1e-6), key
        arrays |= totals
    expected = evaluate(step, {n: arrays[n] for n in cf_inputs(step)})
    written = {key: value.copy() for key, value in arrays.items()}
    call(library, f"r_{name}_step", written, SIZE)
    for key, value in expected.items():
        given = key.removeprefix(naming.NEXT)
        if given in arrays and (arrays[given].shape or given.startswith(naming.STATE)):
            assert_near(written[given], value, key)
    if library.find_function(f"r_{name}_next") is not None:
        shared = {key: np.zeros_like(v) for key, v in expected.items() if naming.SHARED in key}
        following = call(library, f"r_{name}_next", {**arrays, **shared})
        assert following == expected["next.step"]
        for key, value in shared.items():
            assert np.isclose(value, expected[key], rtol=1e-12), key
    else:
        assert expected["next.step"] == arrays["step"] + 1


@pytest.mark.parametrize("name", ["nadam", "lamb"])
def test_tensors_are_flat(name: str) -> None:
    """A state that is one number, and norms of a tensor, from the first states on."""
    one = rule(name)
    header = rule_header(one, SINGLE, f"w_{name}")
    assert ("    *mu_product = 1.0f;" in header.text) == (name == "nadam")
    library = compiled([header])
    described = library.find_function(f"w_{name}_step")
    assert described is not None
    rng = np.random.default_rng(7)
    first = rng.normal(size=(5, 4)).astype(np.float32)
    session = cf.OptimizerSession(one, {"w": first}, threads=1)
    arrays: dict[str, Array] = {"param.all": first.copy()}
    arrays |= {f"state.all.{key}": value["w"].copy() for key, value in session.states.items()}
    for t in range(4):
        grad = rng.normal(size=(5, 4)).astype(np.float32)
        session.step({"w": grad})
        arrays |= {"grad.all": grad, "step": np.array(t)}
        call(library, f"w_{name}_step", arrays, first.size)
    # Sums over a tensor are added in another order; four steps.
    np.testing.assert_allclose(arrays["param.all"], session.params["w"], rtol=2e-6, atol=1e-7)
    for key, value in session.states.items():
        np.testing.assert_allclose(arrays[f"state.all.{key}"], value["w"], rtol=1e-6, atol=1e-7)


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("name", ["adamw", "adagrad", "radam", "lion", "ademamix"])
def test_rules_in_pairs_have_the_bits_of_the_evaluator(name: str) -> None:
    one = cf.optimizers.adamw(WARMUP_COSINE) if name == "adamw" else rule(name)
    header = rule_header(one, PAIRS, f"p_{name}")
    comment = " ".join(header.text.replace("\n *", " ").split())
    assert "computed in pairs of float and rounded once to float32" in comment
    code = header.text[header.text.index("#ifndef") :]
    assert not re.search(r"\bdouble\b", code)
    assert set(re.findall(r"\b(\w+)\(", code)) & RESERVED <= {"floorf", "sqrtf", "logf", "for"}
    (step,) = graphs_of(one, PAIRS)
    assert step is not None
    library = compiled([header])
    for t in (0, 1, 1999, 2**20 + 1):
        arrays = {**start(one, (step,)), "step": np.array(t, np.int32)}
        expected = evaluate(step, {key: arrays[key] for key in cf_inputs(step)})
        call(library, f"p_{name}_step", arrays, SIZE)
        for key, value in expected.items():
            if value.shape:
                assert np.array_equal(arrays[key.removeprefix(naming.NEXT)], value), (t, key)


def cf_inputs(graph: Graph) -> list[str]:
    return [str(node.attribute("name")) for node in graph.inputs]


def test_most_rules_are_elementwise() -> None:
    assert len(SCHEDULES) >= 50
    assert len(RULES) >= 35


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("name", WHOLE.split())
def test_other_rules_are_refused_by_name(name: str) -> None:
    with pytest.raises(ExportError) as caught:
        cf.to_c(rule(name))
    assert str(caught.value) == (
        "C functions are written for flat arrays and sums over their elements, and this rule looks "
        f"at shapes, or takes means or maxima (rule {rule(name).name!r}): export it with to_onnx"
    )


WARMUP_COSINE = cf.schedules.linear(0, 3e-4, 2000).then(cf.schedules.cosine(3e-4, 3e-5, 98_000))


@pytest.mark.parametrize(
    ("options", "function", "most"), [({}, "sin", 2048), (KEYWORDS, "floorf", 3500)]
)
def test_a_microcontroller_has_room(
    tmp_path: Path, options: dict[str, Any], function: str, most: int
) -> None:
    """Freestanding, with a shim of one function: 2 kB; pairs have a table of sines of 2 kB."""
    compiler = c_compiler()
    size = shutil.which("size")
    assert compiler is not None
    if size is None:
        pytest.skip("binutils are not installed")
    with expect_unproved(bool(options)):  # in pairs
        header = cf.to_c(WARMUP_COSINE, name="learning_rate", **options)
    (tmp_path / "learning_rate.h").write_text(header, encoding="ascii")
    (tmp_path / "shim.h").write_text("double sin(double);\nfloat floorf(float);\n", "ascii")
    (tmp_path / "device.c").write_text('#include "learning_rate.h"\n', encoding="ascii")
    flags = ["-std=c11", "-ffreestanding", "-Os", "-ffp-contract=off", "-Wall", "-Wextra"]
    flags += ["-Werror", "-DCLOSEDFORM_API=", '-DCLOSEDFORM_MATH_H="shim.h"', "-c"]
    place = tmp_path / "device.o"
    subprocess.run([*compiler, *flags, str(tmp_path / "device.c"), "-o", str(place)], check=True)
    printed = subprocess.run([size, str(place)], check=True, capture_output=True, text=True).stdout
    code = int(printed.splitlines()[1].split()[0])
    assert 0 < code <= most, printed
    symbols = subprocess.run(
        ["nm", "-u", str(place)], check=True, capture_output=True, text=True
    ).stdout.split()
    assert set(symbols) - {"U"} <= {function, "_GLOBAL_OFFSET_TABLE_"}


@pytest.mark.parametrize("options", [{}, {"step_dtype": "i32"}], ids=["i64", "i32"])
def test_a_step_outside_of_the_domain_is_nan(options: dict[str, Any]) -> None:
    last = 2**31 - 1 if options else 2**50
    for schedule in (cf.schedules.linear(1, 0, 100), cf.schedules.table([0.1, 0.2])):
        graph = compile_schedule(schedule, GraphOptions(**options))
        run = compiled([schedule_header(schedule, graph, "f")]).function("f")
        assert [run(0), run(last)] == [schedule(0), schedule(last)]
        assert np.isnan(run(-1))
        assert options or np.isnan(run(last + 1))


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
@pytest.mark.parametrize("standard", ["c++11", "c++17", "c++20"])
def test_headers_are_valid_in_cpp(standard: str, tmp_path: Path) -> None:
    headers = [
        source_header(source, options, f"{source.name}_{place}")
        for source in (WARMUP_COSINE, schedule("table"), rule("adamw"), rule("nadam"), rule("lamb"))
        for place, options in enumerate((SINGLE, PAIRS))
    ]
    program = "#define CLOSEDFORM_API inline\n" + "\n".join(header.text for header in headers)
    (tmp_path / "a.cpp").write_text(program, encoding="ascii")
    flags = [f"-std={standard}", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-c"]
    subprocess.run(["g++", *flags, "a.cpp", "-o", "a.o"], cwd=tmp_path, check=True)


def source_header(source: Schedule | UpdateRule, options: GraphOptions, name: str) -> Header:
    if isinstance(source, UpdateRule):
        return rule_header(source, options, name)
    return schedule_header(source, compile_schedule(source, options), name)


def test_the_comment_has_formula_clock_and_bound() -> None:
    text = cf.to_c(WARMUP_COSINE, name="learning_rate")
    comment = " ".join(text[: text.index("*/")].replace("\n *", " ").split())
    assert "learning_rate(t) = Piecewise((start_1 + t*(end_1 - start_1)/steps_1, t <" in comment
    assert "with end_1 = 3/10000" in comment
    assert "the first step runs with t = 0; 0 <= t <= 1125899906842624" in comment
    match = re.search(r"Error: at most (\S+) for t = 0..100000, proved by error analysis", comment)
    assert match is not None
    graph = compile_schedule(WARMUP_COSINE, ANY_STEPS)
    assert float(match[1]) == pytest.approx(bound_error(graph, 0, 100_000).absolute, rel=0.1)
    measured = cf.certify(WARMUP_COSINE, graph, range(0, 100_001, 97)).measured
    assert measured.ulp_of_scale.value * np.spacing(3e-4) <= float(match[1])


def test_the_comment_cannot_be_left() -> None:
    hostile = sp.Symbol("x*/ int main(void) {} /*")
    values: Any = {hostile.name: 2}
    made = Schedule(hostile * cf.t, name="hostile", **values)
    header = schedule_header(made, compile_schedule(made))
    assert header.text.count("*/") == 1
    library = compiled([header])
    assert library.function("hostile")(3) == 6


@pytest.mark.parametrize(
    "text", ["*/", "/*", "**//", "??/", "a\nb", "é", "\x00\\", "/*/", "?" * 9, "*" * 9 + "/" * 9]
)
def test_comment_text_is_safe(text: str) -> None:
    safe = comment_text(text)
    assert safe.isascii()
    assert safe.isprintable()
    assert not re.search(r"\*/|/\*|\?\?", safe)


def test_inputs_are_parameters() -> None:
    peak = cf.expr.hyper("peak")
    made = Schedule(peak * (cf.t + 1), name="open", peak=0.5)
    graph = compile_schedule(made, GraphOptions(inputs=("peak",)))
    header = schedule_header(made, graph, "slope")
    assert "double slope(int64_t t, double peak)" in header.text
    assert compiled([header]).function("slope")(3, 0.25) == 1.0
    assert "No error is stated" in cf.to_c(made, name="slope", inputs=["peak"])


@pytest.mark.parametrize("name", ["double", "2nd", "a b", "_Reserved", "__x", "sin", "", "i"])
def test_names_that_are_not_free_are_refused(name: str) -> None:
    made = schedule("linear")
    with pytest.raises(ExportError) as caught:
        schedule_header(made, compile_schedule(made), name or "9")
    assert str(caught.value) == (
        f"the name must be an identifier that is free in C, got {name or '9'!r} "
        '(schedule \'linear\'): give name="…", such as name="learning_rate"'
    )


def test_rules_of_float16_are_refused() -> None:
    stored = cf.transforms.master_weights(cf.optimizers.sgd(0.1), "f16")
    with pytest.raises(ExportError, match="C11 has no type for f16, in which the rule stores"):
        cf.to_c(stored)


def test_values_of_infinite_schedules_are_refused() -> None:
    with pytest.raises(cf.ClosedFormError, match="the value is inf at t = "):
        cf.to_c(Schedule(sp.exp(cf.t), name="grows"))


def test_fast_math_is_an_error() -> None:
    header = schedule_header(schedule("linear"), compile_schedule(schedule("linear")))
    with pytest.raises(cf.ClosedFormError, match="compile without -ffast-math"):
        compiled([header], ("-ffast-math",))
