"""A table of genuine logs in the formats in which people have them, and how they are judged.

Each log is compared with its own config, with the config with one number changed, and is recovered;
the three columns say whether the verdicts are right. Run: ``python -m tests.reference.judge_logs``.
"""

import csv
import io
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import closedform as cf
from closedform.analysis.recovery import recover
from closedform.errors import ClosedFormError
from closedform.recipes.logs import read_log
from tests.reference.logs import GenuineLog, label, text_logs

Rows = list[tuple[int, float]]
"""The logged steps and rates."""


def rows_of(log: GenuineLog) -> Rows:
    """The rates that a run logged."""
    if log.is_of_trainer:
        history = json.loads(log.data)["log_history"]
        return [(row["step"], row["learning_rate"]) for row in history if "learning_rate" in row]
    table = csv.DictReader(io.StringIO(log.data.decode()))
    key = next(name for name in table.fieldnames or () if name.startswith(("lr", "learning")))
    return [(int(row["step"]), float(row[key])) for row in table if row[key]]


def console(rows: Rows) -> str:
    """Lines of Megatron on a terminal, with as many digits as it prints."""
    return "".join(
        f" iteration {step:8d}/ 10000 | learning rate: {lr:.6E} | loss: 1.5\n" for step, lr in rows
    )


def keras(rows: Rows) -> str:
    """A CSVLogger's file with a column of the rate."""
    return "epoch,learning_rate,loss\n" + "".join(
        f"{step},{lr!r},{1 / (step + 1)}\n" for step, lr in rows
    )


def short(rows: Rows) -> str:
    """A CSV file with six digits."""
    return "step,lr\n" + "".join(f"{step},{lr:.6g}\n" for step, lr in rows)


def detectron(rows: Rows) -> str:
    """JSON lines with the iteration."""
    return "".join(json.dumps({"iteration": step, "lr": lr}) + "\n" for step, lr in rows)


FORMATS: dict[str, tuple[str, Callable[[Rows], str]]] = {
    "console.txt": ("console.txt", console),
    "keras.csv": ("keras.csv", keras),
    "six digits": ("log.csv", short),
    "metrics.json": ("metrics.json", detectron),
}


def logs(folder: Path) -> Iterator[tuple[str, GenuineLog, Path]]:
    """Each log as its program wrote it, and in one other format in turn."""
    for place, log in enumerate(text_logs()):
        home = folder / label(log)
        home.mkdir()
        yield f"{label(log)} as written", log, log.write(home)
        names = list(FORMATS)
        for name in (names[place % 4], names[(place + 1) % 4], names[(place + 2) % 4]):
            path = home / FORMATS[name][0]
            path.write_text(FORMATS[name][1](rows_of(log)), encoding="utf-8")
            yield f"{label(log)} as {name}", log, path


def verdicts(log: GenuineLog, path: Path) -> tuple[bool, bool, bool]:
    """Whether the own config agrees, no changed one does, and the schedule is recovered."""
    # A format that does not say which step is update 0 is read as its user does, by --log-offset.
    read = read_log(path, read_log(log.write(path.parent)).offset)
    own = log.recipe()
    is_own = cf.diff(own, read).first_step is None
    is_changed = all(
        cf.diff(other, read).first_step is not None for other in log.changed().values()
    )
    recovered = recover(read)
    schedule = own if isinstance(own, cf.Schedule) else own.schedule()
    is_recovered = recovered.schedule is not None and (
        cf.diff(recovered.schedule, schedule, until=recovered.last + 1).first_step is None
    )
    return is_own, is_changed, is_recovered


def main() -> None:
    """Prints the table."""
    total, right = 0, [0, 0, 0]
    with tempfile.TemporaryDirectory() as folder:
        for name, log, path in logs(Path(folder)):
            try:
                row = verdicts(log, path)
            except ClosedFormError as error:
                row = (False, False, False)
                name += f": {error}"
            total += 1
            right = [count + verdict for count, verdict in zip(right, row, strict=True)]
            print(*("right" if verdict else "WRONG" for verdict in row), name, flush=True)
    print(*(f"{count} of {total}" for count in right))


if __name__ == "__main__":
    main()
