"""1,000 drawn schedules in six kinds of graphs and four libraries, and as C.

``make compare`` runs it where jax, keras and mlx are installed; keras runs on the backend that
KERAS_BACKEND names. Steps are small ones and those around 2**31 and 2**50; where a step is outside
of the domain, every library refuses it.
"""

import importlib.util
import os
from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch

import closedform as cf
from closedform.compiler import compile_schedule
from closedform.errors import LoweringError, SessionError
from closedform.exporters.c_header import schedule_header
from closedform.ir.graph import Array
from closedform.ir.types import LAST_STEP, DType
from closedform.language import Schedule
from closedform.options import GraphOptions
from tests.exporters.drawn_schedules import (
    drawn_schedule,
    steps_to,
    values_of_kind,
    wrong_values,
)
from tests.support.c_programs import compiled
from tests.support.graph_kinds import KINDS

pytestmark = pytest.mark.packages(KERAS_BACKEND="jax")
os.environ.setdefault("KERAS_BACKEND", "torch")
BLOCK = 20
BLOCKS = [range(first, first + BLOCK) for first in range(0, 1000, BLOCK)]
NARROW = "pairs i32"
MOST_REFUSED = 2
"""Schedules of a block that a kind refuses: integers that no number of the graph holds."""

blocks = pytest.mark.parametrize("seeds", BLOCKS, ids=lambda seeds: f"{seeds.start}")


@blocks
def test_six_kinds_of_graphs(seeds: range) -> None:
    refused = 0
    for schedule in map(drawn_schedule, seeds):
        for kind in KINDS:
            try:
                results = values_of_kind(schedule, kind)
            except LoweringError:
                refused += 1
                continue
            for engine, (steps, values) in results.items():
                assert list(wrong_values(schedule, kind, steps, values)) == [], (engine, kind)
    assert refused <= MOST_REFUSED * len(KINDS)


@blocks
def test_c(seeds: range) -> None:
    headers = {}
    for schedule in map(drawn_schedule, seeds):
        for place, (kind, options) in enumerate(KINDS.items()):
            try:
                graph = compile_schedule(schedule, GraphOptions(**options))
            except LoweringError:
                continue
            header = schedule_header(schedule, graph, f"{schedule.name}_{place}")
            headers[schedule, kind] = header, LAST_STEP[graph.inputs[0].type.dtype]
    library = compiled([header for header, _ in headers.values()])
    for (schedule, kind), (header, last) in headers.items():
        steps = steps_to(last)
        function = library.function(header.name)
        values = np.array([function(int(step)) for step in steps])
        assert list(wrong_values(schedule, kind, steps, values)) == [], kind
        assert np.isnan(function(-1))


def torch_values(schedule: Schedule) -> Callable[[Array], Array]:
    module = cf.to_torch(schedule)
    return lambda steps: module(torch.from_numpy(np.asarray(steps, np.int64))).numpy()


def keras_values(schedule: Schedule) -> Callable[[Array], Array]:
    import keras

    function = cf.to_keras(schedule)
    return lambda steps: np.asarray(keras.ops.convert_to_numpy(function(steps)))


def jax_values(schedule: Schedule) -> Callable[[Array], Array]:
    function = cf.to_jax(schedule)
    return lambda steps: np.asarray(function(steps))


def mlx_values(schedule: Schedule) -> Callable[[Array], Array]:
    function = cf.to_mlx(schedule)
    return lambda steps: np.asarray(function(steps))


# The function of a library, and the kind of its graph; keras rounds to float32.
IS_WIDE_KERAS = os.environ["KERAS_BACKEND"] != "jax"
LIBRARIES: Mapping[str, tuple[Callable[[Schedule], Callable[[Array], Array]], str]] = {
    "torch": (torch_values, "f64 i64"),
    "jax": (jax_values, NARROW),
    "mlx": (mlx_values, NARROW),
    "keras": (keras_values, "pairs i64" if IS_WIDE_KERAS else NARROW),
}


@blocks
@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.filterwarnings("ignore::closedform.errors.UnprovedWarning")
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_a_library(name: str, seeds: range) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"pip install {name}")
    make, kind = LIBRARIES[name]
    last = LAST_STEP[DType(kind.split()[1])]
    steps = steps_to(last)
    refused = 0
    for schedule in map(drawn_schedule, seeds):
        try:
            function = make(schedule)
        except LoweringError:
            refused += 1
            continue
        assert list(wrong_values(schedule, kind, steps, function(steps))) == []
        for outside in (-1, last + 1, 2**60):
            with pytest.raises(SessionError, match=r"the step must be in 0\.\."):
                function(np.array([0, outside]))
    assert refused <= MOST_REFUSED
