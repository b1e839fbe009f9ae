"""Sessions that threads share take turns: no step is lost, no array is torn."""

import threading
from collections.abc import Callable

import numpy as np
import pytest

import closedform as cf
from closedform.compiler import compile_init, compile_step
from closedform.options import ModelSpec
from closedform.runtime.c_library import c_compiler

SIZE = 200_000
THREADS, STEPS = 4, 25
ENGINES = [
    "onnxruntime",
    pytest.param("c", marks=pytest.mark.skipif(c_compiler() is None, reason="no C compiler")),
]


def run_together(*tasks: Callable[[], None]) -> None:
    """Runs tasks in threads that begin at once; raises what a task raised."""
    barrier = threading.Barrier(len(tasks))
    errors: list[BaseException] = []

    def run(task: Callable[[], None]) -> None:
        barrier.wait()
        try:
            task()
        except BaseException as error:  # raised again below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in errors:
        raise error


def counting(backend: str) -> cf.OptimizerSession:
    """A session whose elements are the number of steps."""
    params = {"w": np.zeros(SIZE, np.float32)}
    return cf.OptimizerSession(cf.optimizers.sgd(lr=1.0), params, backend=backend)


@pytest.mark.parametrize("backend", ENGINES)
def test_no_step_is_lost(backend: str) -> None:
    session, grads = counting(backend), {"w": -np.ones(SIZE, np.float32)}

    def work() -> None:
        for _ in range(STEPS):
            session.step(grads)

    run_together(*[work] * THREADS)
    assert session.t == THREADS * STEPS
    assert np.array_equal(session.params["w"], np.full(SIZE, THREADS * STEPS))


@pytest.mark.parametrize("backend", ENGINES)
def test_a_state_dict_is_of_one_step(backend: str) -> None:
    session, grads = counting(backend), {"w": -np.ones(SIZE, np.float32)}
    start = session.state_dict()

    def step() -> None:
        for _ in range(STEPS):
            session.step(grads)

    def save_and_load() -> None:
        for _ in range(STEPS):
            saved = session.state_dict()
            assert np.array_equal(saved["params"]["w"], np.full(SIZE, saved["step"]))
            session.load_state_dict(start)

    run_together(step, save_and_load)
    assert np.array_equal(session.params["w"], np.full(SIZE, session.t))


def test_a_session_of_files_takes_turns() -> None:
    rule, shapes = cf.optimizers.sgd(lr=1.0), {"w": (SIZE,)}
    spec = ModelSpec(rule, shapes)
    models = compile_init(spec), compile_step(spec)
    params = {"w": np.zeros(SIZE, np.float32)}
    session = cf.OptimizerSession.from_models(*models, params, threads=1)
    grads = {"w": -np.ones(SIZE, np.float32)}

    def work() -> None:
        for _ in range(STEPS):
            session.step(grads)

    run_together(*[work] * THREADS)
    assert np.array_equal(session.params["w"], np.full(SIZE, THREADS * STEPS))


def test_threads_read_their_own_step_of_a_schedule() -> None:
    session = cf.ScheduleSession(cf.schedules.linear(0, 1, 2**20))

    def read(start: int) -> Callable[[], None]:
        def task() -> None:
            for step in range(start, start + 20_000, 7):
                assert session(step) == step / 2**20

        return task

    run_together(*[read(start) for start in (0, 300_000, 600_000)])
