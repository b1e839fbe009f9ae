"""The types of the generated classes of closedform.torch, for editors and type checkers.

``make stubs`` writes a ``.pyi`` file for each public module that generates its classes from the
tables of the frameworks; ``tests/torch/test_stubs.py`` compares them with the classes.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "src" / "closedform" / "torch" / "classes"
MODULES = ("cerebras", "lr_scheduler", "optim", "timm")

_NAMES = {
    "Mapping": "collections.abc",
    "Sequence": "collections.abc",
    "Optimizer": "torch.optim",
    "ParamsT": "torch.optim.optimizer",
    "StepFunction": "closedform.torch.compat.arguments",
    "SubScheduler": "closedform.torch.compat.arguments",
    "Tags": "closedform.torch.scheduler",
    "Tensor": "torch",
}
"""The names of annotations and their modules."""


def stub_text(module: str) -> str:
    """Returns the text of the stub of a module of closedform.torch."""
    classes = list(_classes(module))
    bodies = [_class_text(cls) for cls in classes]
    homes: dict[str, set[str]] = {}
    for name, home in _NAMES.items():
        if any(_is_used(name, body) for body in bodies):
            homes.setdefault(home, set()).add(name)
    for cls in classes:
        for base in _bases(cls):
            homes.setdefault(base.__module__, set()).add(base.__name__)
    imports = [f"from {home} import {', '.join(sorted(names))}" for home, names in homes.items()]
    head = "# Written by `make stubs` from the tables of closedform.recipes."
    listed = "".join(f'    "{cls.__name__}",\n' for cls in classes)
    return "\n".join(
        [head, "", *sorted(imports), "", f"__all__: list[str] = [\n{listed}]", "", *bodies]
    )


def _classes(module: str) -> Iterator[type]:
    """Yields the generated classes of a module, by name."""
    public = importlib.import_module(f"closedform.torch.{module}")
    for name in sorted(dir(public)):
        value = getattr(public, name)
        if isinstance(value, type) and "entry" in vars(value):
            yield value


def _bases(cls: type) -> list[type]:
    """Returns the public base classes; a private base class is replaced by its base classes."""
    bases: list[type] = []
    for base in cls.__bases__:
        bases += _bases(base) if base.__name__.startswith("_") else [base]
    return bases


def _class_text(cls: type) -> str:
    lines = [f"class {cls.__name__}({', '.join(base.__name__ for base in _bases(cls))}):"]
    lines += [f'    """{inspect.getdoc(cls)}', '    """', "", "    def __init__("]
    lines[1:2] = [
        line if number == 0 else f"    {line}".rstrip()
        for number, line in enumerate(lines[1].splitlines())
    ]
    lines.append("        self,")
    is_named = False
    for parameter in inspect.signature(cls).parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not is_named:
            lines.append("        *,")
            is_named = True
        is_required = parameter.default is inspect.Parameter.empty
        default = "" if is_required else f" = {_default(parameter.default)}"
        lines.append(f"        {parameter.name}: {parameter.annotation}{default},")
    return "\n".join([*lines, "    ) -> None: ...", ""])


def _default(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _is_used(name: str, text: str) -> bool:
    words = "".join(c if c.isalnum() or c == "_" else " " for c in text).split()
    return name in words


def main() -> None:
    """Writes the stubs."""
    FOLDER.mkdir(exist_ok=True)
    for module in MODULES:
        (FOLDER / f"{module}.pyi").write_text(stub_text(module), encoding="utf-8")


if __name__ == "__main__":
    main()
