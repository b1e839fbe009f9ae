"""Headers have the bits of the evaluator with every flag with which they compile."""

import os
import shutil
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest

import closedform as cf
from closedform.compiler import compile_parts, compile_schedule
from closedform.errors import SessionError
from closedform.exporters.c_header import Header, rule_header, schedule_header
from closedform.ir import naming
from closedform.ir.evaluate import evaluate
from closedform.ir.graph import Array, Graph
from closedform.ir.ops import FUNCTIONS
from closedform.options import GraphOptions
from closedform.runtime import c_library
from closedform.runtime.c_library import CLibrary
from closedform.schedules.examples import EXAMPLES
from tests.support.backends import IN_PAIRS as KEYWORDS
from tests.support.c_programs import call

COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]
pytestmark = pytest.mark.skipif(not COMPILERS, reason="there is no C compiler")

NATIVE = ("-O3", "-march=native")
COMPILED: tuple[tuple[str, ...], ...] = (
    ("-O0",),
    ("-std=c11", "-O3"),
    ("-O2", "-march=native"),
    NATIVE,
    ("-O3", "-mfma"),
    ("-std=gnu17", *NATIVE, "-funroll-loops"),
    (*NATIVE, "-ffp-contract=fast"),
    (*NATIVE, "-ffp-contract=on"),
    (*NATIVE, "-fno-math-errno"),
    (*NATIVE, "-fno-trapping-math"),
    (*NATIVE, "-fassociative-math"),
    (*NATIVE, "-frounding-math"),
    (*NATIVE, "-fexcess-precision=fast"),
)
"""Flags with which headers compile."""

REFUSED: tuple[tuple[str, ...], ...] = (
    ("-O3", "-ffast-math"),
    ("-Ofast",),
    (*NATIVE, "-funsafe-math-optimizations"),
    (*NATIVE, "-freciprocal-math"),
    (*NATIVE, "-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math"),
    (*NATIVE, "-ffinite-math-only"),
    (*NATIVE, "-fno-signed-zeros"),
    (*NATIVE, "-fsingle-precision-constant"),
    ("-O3", "-mfpmath=387"),
)
"""Flags with which gcc refuses headers."""
REFUSED_BY_CLANG = ("-ffast-math", "-Ofast", "-ffinite-math-only", "-mfpmath=387")
"""Those of them with which clang does, too; with the others its pragma gives the right bits."""

UNDEFENDED = {
    ("clang", "-ffp-contract=fast"): "clang 14 disregards its pragma under this flag: docs/c.md",
    ("clang", "-funsafe-math-optimizations"): "clang 14 links crtfastmath.o, which flushes "
    "subnormals in the whole process: docs/c.md",
}

PRECISIONS = {
    "f64": GraphOptions(dtype="f64"),
    "f32": GraphOptions(dtype="f32"),
    "pairs": GraphOptions(**KEYWORDS),
}
SCHEDULES = (
    *("chained", "cosine", "exponential", "geometric", "inverse_square_root", "linear"),
    *("multi_step", "noam", "one_cycle", "polynomial", "rex", "table", "warm_restarts", "wsd"),
)
SIZE = 37


@cache
def graphs() -> dict[str, tuple[Header, Graph]]:
    """Headers without functions of libm, which libraries round differently, by prefix."""
    found: dict[str, tuple[Header, Graph]] = {}
    for label, options in PRECISIONS.items():
        for name in SCHEDULES:
            schedule = EXAMPLES[name].make()
            assert isinstance(schedule, cf.Schedule)
            graph = compile_schedule(schedule, options)
            if not any(node.op in FUNCTIONS for node in graph.nodes):
                prefix = f"s_{name}_{label}"
                found[prefix] = schedule_header(schedule, graph, prefix), graph
    return found


@cache
def rules() -> dict[str, tuple[Header, Graph]]:
    found = {}
    for name in ("adamw", "adagrad", "lion"):
        rule = getattr(cf.optimizers, name)()
        options = PRECISIONS["pairs"]
        ((parts,),) = compile_parts(rule.name, [(rule, [("n",)])], options)
        (step,) = parts
        assert step is not None
        found[f"r_{name}"] = rule_header(rule, options, f"r_{name}"), step
    return found


def library(compiler: str, flags: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> CLibrary:
    monkeypatch.setenv("CC", compiler)
    shared = ("-DCLOSEDFORM_API=", "-shared", "-fPIC")  # neither -std nor -ffp-contract
    monkeypatch.setattr(c_library, "BASE_FLAGS", shared)
    headers = [header for header, _ in (graphs() | rules()).values()]
    return CLibrary(headers, flags)


def steps_of(graph: Graph) -> list[int]:
    far = [2**power - 1 for power in range(9, 31)]
    return [*range(0, 300, 7), *far] if graph.inputs[0].type.shape == () else []


@cache
def expected_values(prefix: str) -> list[float]:
    _, graph = graphs()[prefix]
    dtype = graph.inputs[0].type.dtype.numpy
    return [evaluate(graph, {"step": dtype.type(step)})["value"].item() for step in steps_of(graph)]


def rule_inputs(graph: Graph) -> dict[str, Array]:
    generator = np.random.default_rng(7)
    arrays: dict[str, Array] = {}
    for node in graph.inputs:
        dtype = node.type.dtype.numpy
        drawn = np.abs(generator.standard_normal(SIZE if node.type.shape else ()))
        arrays[str(node.attribute("name"))] = np.array(drawn, dtype)
    arrays["step"] = np.array(1999, arrays["step"].dtype)
    return arrays


def assert_bits(compiled: CLibrary) -> None:
    for prefix, (_, graph) in graphs().items():
        run = compiled.function(prefix)
        assert [run(step) for step in steps_of(graph)] == expected_values(prefix), prefix
    for prefix, (_, graph) in rules().items():
        arrays = rule_inputs(graph)
        expected = evaluate(graph, dict(arrays))
        call(compiled, f"{prefix}_step", arrays, SIZE)
        for key, value in expected.items():
            if value.shape:
                assert np.array_equal(arrays[key.removeprefix(naming.NEXT)], value), (prefix, key)


@pytest.mark.sample(every=6)
@pytest.mark.parametrize("flags", COMPILED, ids=" ".join)
@pytest.mark.parametrize("compiler", COMPILERS)
def test_values_have_the_bits_of_the_evaluator(
    compiler: str, flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    if (compiler, flags[-1]) in UNDEFENDED:
        pytest.skip(UNDEFENDED[compiler, flags[-1]])
    assert_bits(library(compiler, flags, monkeypatch))


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("flags", REFUSED, ids=" ".join)
@pytest.mark.parametrize("compiler", COMPILERS)
def test_flags_that_change_values_are_refused_or_without_effect(
    compiler: str, flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    if (compiler, flags[-1]) in UNDEFENDED:
        pytest.skip(UNDEFENDED[compiler, flags[-1]])
    if compiler == "gcc" or flags[-1] in REFUSED_BY_CLANG:
        with pytest.raises(SessionError, match=r"compile with|not supported"):
            library(compiler, flags, monkeypatch)
    else:
        assert_bits(library(compiler, flags, monkeypatch))


def test_contraction_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """The values differ without the pragmas, on a processor that fuses products and sums."""
    if "gcc" not in COMPILERS or os.uname().machine != "x86_64":
        pytest.skip("gcc for x86-64 is needed")
    plain = {
        prefix: (Header(header.name, header.functions, without_pragmas(header.text)), graph)
        for prefix, (header, graph) in graphs().items()
        if prefix.endswith("pairs")
    }
    monkeypatch.setenv("CC", "gcc")
    monkeypatch.setattr(c_library, "BASE_FLAGS", ("-DCLOSEDFORM_API=", "-shared", "-fPIC"))
    compiled = CLibrary([header for header, _ in plain.values()], ("-O3", "-mfma"))
    try:
        differing = [
            prefix
            for prefix, (_, graph) in plain.items()
            if [compiled.function(prefix)(step) for step in steps_of(graph)]
            != expected_values(prefix)
        ]
    except OSError:
        pytest.skip("this processor has no FMA")
    assert differing


def without_pragmas(text: str) -> str:
    return "\n".join(line for line in text.split("\n") if not line.startswith("#pragma"))
