"""The logs of ``make_logs.py``: real runs, as files with the config that wrote them."""

import base64
import json
import lzma
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import closedform as cf
from closedform.language import Schedule
from closedform.recipes import Recipe

FILE = Path(__file__).parent / "logs.jsonl.xz"


@dataclass(frozen=True)
class GenuineLog:
    """A log that a program has written.

    Attributes:
        name: The run.
        program: The program and its version.
        config: The arguments of the run.
        file: The name of the file.
        data: Its content.
    """

    name: str
    program: str
    config: Mapping[str, Any]
    file: str
    data: bytes

    @property
    def is_of_trainer(self) -> bool:
        return self.program.startswith("transformers")

    @property
    def is_event_file(self) -> bool:
        return "tfevents" in self.file

    def write(self, folder: Path) -> Path:
        path = folder / self.file
        path.write_bytes(self.data)
        return path

    def rounded(self, folder: Path, digits: int = 6) -> Path:
        """The state of the Trainer with rates of so many digits."""
        state = json.loads(self.data)
        for row in state["log_history"]:
            if "learning_rate" in row:
                row["learning_rate"] = float(f"{row['learning_rate']:.{digits}g}")
        path = folder / self.file
        path.write_text(json.dumps(state), encoding="utf-8")
        return path

    def recipe(self, **changes: Any) -> Recipe | Schedule:
        """The recipe of the config, with some of its numbers changed."""
        if self.is_of_trainer:
            return cf.load_recipe({**self.config, **changes}, framework="transformers")
        lr = changes.pop("lr", self.config["lr"])
        arguments = {**self.config["arguments"], **changes}
        return cf.frameworks.schedule("torch", self.name, arguments, base=lr)

    def changed(self) -> dict[str, Recipe | Schedule]:
        """The config with one number of the curve changed, by the name of the number."""
        config = self.config if self.is_of_trainer else self.config["arguments"]
        numbers = [key for key in config if key in _OF_CURVES and config[key]]
        if config.get("lr_scheduler_type") in ("inverse_sqrt", "constant_with_warmup"):
            numbers.remove("max_steps")
        recipes = {key: self.recipe(**{key: _other(config[key])}) for key in numbers}
        rate = "learning_rate" if self.is_of_trainer else "lr"
        return recipes | {rate: self.recipe(**{rate: self.config[rate] * 1.01})}


_OF_CURVES = (
    *("warmup_steps", "max_steps", "T_max", "eta_min", "start_factor", "total_iters"),
    *("step_size", "gamma", "T_0", "end_factor"),
)


def _other(value: Any) -> Any:
    return value + max(1, value // 100) if isinstance(value, int) else value * 0.99


@cache
def genuine_logs() -> tuple[GenuineLog, ...]:
    """All logs."""
    lines = lzma.decompress(FILE.read_bytes()).decode().splitlines()
    return tuple(
        GenuineLog(
            record["name"],
            record["program"],
            record["config"],
            record["file"],
            base64.b64decode(record["base64"])
            if "base64" in record
            else record["text"].encode("utf-8"),
        )
        for record in map(json.loads, lines)
    )


def text_logs() -> list[GenuineLog]:
    """Those that need no extra package to be read."""
    return [log for log in genuine_logs() if not log.is_event_file]


def label(log: GenuineLog) -> str:
    return f"{log.name}-{log.file}"
