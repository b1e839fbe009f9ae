"""Time of exporting the whole library to ONNX, in one process.

Every schedule of the library and every scheduler class of every framework, each with one example:
the gallery's, or the first arguments of the reference records that the class takes. The bar: 30 s.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from closedform import frameworks, schedules
from closedform.compiler import compile_init, compile_schedule, compile_step
from closedform.errors import ClosedFormError
from closedform.exporters.onnx_model import serialize, to_model
from closedform.language import Schedule, UpdateRule
from closedform.options import GraphOptions, ModelSpec
from closedform.schedules.examples import EXAMPLES
from tests.recipes.test_listing import build, rows
from tests.reference.records import Row

Source = Schedule | UpdateRule


def under_all_names(row: Row) -> Iterator[Row]:
    """A record; also for the generic classes of cerebras, which have few records."""
    yield row
    others: tuple[str, ...] = ()
    if row["system"] == "cerebras" and row["class"] == "LRScheduler":
        others = ("Scheduler", "WeightDecayScheduler")
    elif row["system"] == "cerebras" and row["class"].endswith("WD"):
        others = (f"{row['class'].removesuffix('WD')}Scheduler",)
    for other in others:
        yield {**row, "class": other}


def examples() -> Iterator[tuple[str, Source]]:
    """Each schedule by its name, each class by its framework and name, once."""
    for name in schedules.__all__:
        yield name, EXAMPLES[name].make()
    seen = set()
    for row in (named for record in rows() for named in under_all_names(record)):
        name = f"{row['system']}:{row['class']}"
        known = frameworks.FRAMEWORKS[row["system"]].schedules
        if name in seen or row["class"] not in known or known[row["class"]].rule:
            continue
        try:
            made = build(row)
        except ClosedFormError:
            continue
        schedule = made if isinstance(made, Schedule) else next(s for s in made if s is not None)
        seen.add(name)
        yield name, schedule
    for system, framework in frameworks.FRAMEWORKS.items():
        for name, entry in framework.schedules.items():
            if entry.rule:
                yield f"{system}:{name}", frameworks.metric_rule(system, name, {})


def exported(source: Source) -> int:
    """The bytes of the ONNX models of a schedule or rule."""
    if isinstance(source, Schedule):
        return len(serialize(to_model(compile_schedule(source, GraphOptions(step_shape=("n",))))))
    graphs = (
        compile_init(ModelSpec(source, {"lr": ()})),
        compile_step(ModelSpec(source, {"lr": ()})),
    )
    return sum(len(serialize(to_model(graph))) for graph in graphs)


def classes_of_all_systems() -> set[str]:
    """The classes of every framework with one that builds a schedule of the library."""
    names = {
        f"{system}:{name}"
        for system, found in frameworks.FRAMEWORKS.items()
        if any(entry.builds for entry in found.schedules.values())
        for name in found.schedules
    }
    # It averages the iterates of an optimizer, which has the schedule.
    return names - {"optax:schedule_free"}


def main() -> None:
    begin = time.perf_counter()
    sizes = {name: exported(source) for name, source in examples()}
    seconds = time.perf_counter() - begin
    names = [name for name in sizes if ":" not in name]
    classes = classes_of_all_systems()
    print(f"{len(names)} of {len(schedules.__all__)} schedules of the library")
    print(
        f"{len(sizes) - len(names)} of {len(classes)} classes of {len(frameworks.FRAMEWORKS)} "
        "frameworks"
    )
    print(f"missing: {', '.join(sorted(classes - set(sizes))) or 'none'}")
    print(f"{sum(sizes.values()):,} bytes of ONNX in {seconds:.1f} s, {seconds / 30:.2f} of 30 s")


if __name__ == "__main__":
    main()
