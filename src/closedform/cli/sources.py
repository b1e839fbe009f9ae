"""The subjects of commands: a name of the library, ``framework:Class``, or a file.

A file is a config, or Python code with the name of a function: ``train.py:get_lr``.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import closedform as cf
from closedform.cli.arguments import LogOptions, SourceOptions, free_arguments, split_name
from closedform.cli.output import note_line
from closedform.cli.parser import UsageError
from closedform.errors import ArgumentError, ClosedFormError, UnknownNameError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from closedform.language import Schedule, UpdateRule
    from closedform.recipes import Recipe
    from closedform.recipes.logs import Log

KINDS = ("schedules", "optimizers")
"""The modules of the library; ``optimizer:adamw`` selects one of them."""

CONFIG_SUFFIXES = (".yaml", ".yml", ".json", ".toml", ".args", ".sh", ".gin", ".py", ".ipynb")
"""The endings of configs; a Python file with a function is named by both."""


def load_source(
    name: str,
    words: Sequence[str],
    options: SourceOptions | None = None,
    *,
    inputs: Sequence[str] = (),
) -> Schedule | UpdateRule | Recipe:
    """Returns the object that a name denotes, with its arguments from the remaining words.

    Args:
        name: A config file, an ONNX file of a schedule, a Python file with a function such as
            ``train.py:get_lr``, which is imported, that is, its code is run, ``framework:Class``,
            or a schedule or optimizer of the library, also as ``schedule:name`` and
            ``optimizer:name``.
        words: The words of the command line that are not options of the command.
        options: How it is read.
        inputs: Variables of a Python function that become hyperparameters.

    Raises:
        UsageError: The words are not arguments.
        ClosedFormError: The name is unknown, or the arguments do not fit it.
    """
    options = options or SourceOptions()
    if name == "-":
        return _load_text(None, "standard input", options)
    if name.startswith("-"):
        raise UsageError(f"the name must precede its options, got {name!r}")
    arguments = free_arguments(words)
    if name.lower().endswith(CONFIG_SUFFIXES):
        if arguments:
            first = option(next(iter(arguments)))
            way = f"name the function that takes it: {name}:FUNCTION"
            hint = way if name.lower().endswith(".py") else None
            raise UsageError(f"a config file takes no {first}", hint=hint)
        return _load_config(Path(name), options)
    if name.lower().endswith(".onnx"):
        return cf.from_onnx(name)
    # From the right: a path of Windows begins with a drive and a colon.
    file, colon, function = name.rpartition(":")
    if colon and file.lower().endswith(".py"):
        return _from_python(Path(file), function, arguments, inputs, options)
    kind, colon, own_name = name.partition(":")
    if colon and f"{kind}s" in KINDS:
        return _in_updates(_from_library(own_name, arguments, (f"{kind}s",)), options.facts)
    # A name of the library goes before a file of that name.
    is_in_library = any(_function(kind, name) is not None for kind in KINDS)
    if Path(name).is_dir() and not is_in_library:
        raise UsageError(f"{name} is a folder", hint="name a config in it")
    if Path(name).exists() and not is_in_library:
        return _load_text(None if name == "/dev/stdin" else Path(name), name, options)
    if not colon:
        return _in_updates(_from_library(name, arguments), options.facts)
    return _from_framework(kind, own_name, arguments, options)


def _load_text(path: Path | None, label: str, options: SourceOptions) -> Recipe:
    """The recipe of a file by its content, whatever its ending; None is the standard input."""
    from closedform.recipes.document import document_by_content, text_of
    from closedform.recipes.documents.limits import MAX_BYTES

    if path is not None:
        return _load_config(document_by_content(text_of(path), label), options)
    try:
        text = sys.stdin.buffer.read(MAX_BYTES + 1).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"the standard input is not UTF-8: {error}") from None
    return _load_config(document_by_content(text, label), options)


def load_curves(text: str, options: SourceOptions) -> Schedule | Recipe:
    """Returns the recipe or schedule that a text denotes, a name with its arguments.

    Raises:
        UsageError: It is an optimizer.
    """
    from closedform.language import UpdateRule

    name, words = split_name(text)
    source = load_source(name, words, options)
    if isinstance(source, UpdateRule):
        raise UsageError(f"{name} is an optimizer", hint="name a config or a schedule")
    return source


def _load_config(source: Any, options: SourceOptions) -> Recipe:
    """The recipe of a config file, or of an object that is one."""
    framework, _, version = (options.framework or "").partition("@")
    return cf.load_recipe(
        source,
        framework or None,
        version or None,
        options.facts,
        files=options.files,
        paths=options.paths,
    )


def load_log(name: str, options: LogOptions) -> Log | None:
    """Returns the log that a name denotes; None for the name of something else.

    Raises:
        ClosedFormError: It is a log that cannot be read.
    """
    from closedform.recipes.logs import is_log, read_log

    path = Path(name)
    has_pattern = options.pattern is not None and path.is_file()
    if not is_log(path) and not (has_pattern and path.suffix.lower() not in CONFIG_SUFFIXES):
        return None
    pattern = options.pattern if has_pattern else None
    log = read_log(
        path,
        options.offset,
        pattern=pattern,
        column=options.column,
        updates_per_epoch=options.updates_per_epoch,
    )
    if log.left_out:
        count, line = len(log.left_out), log.left_out[0]
        rows = "row has a rate that is" if count == 1 else "rows have rates that are"
        note_line(f"{count} {rows} infinite or not a number, left out; the first in line {line}")
    return log


def _from_framework(
    framework: str,
    name: str,
    arguments: Mapping[str, Any],
    options: SourceOptions,
) -> Schedule | UpdateRule:
    """The schedule or rule of a class of a framework."""
    from closedform.recipes.group_values import NEEDS_BASE

    key, base, as_implemented = options.key, options.base, options.as_implemented
    names = cf.frameworks.names(framework)
    entries = cf.frameworks.FRAMEWORKS[framework]
    if name in names.optimizers:
        _refuse_unknown(arguments, [p.name for p in entries.optimizers[name].parameters], name)
        return cf.frameworks.optimizer(framework, name, arguments, as_implemented=as_implemented)
    if name not in names.schedules:
        raise UnknownNameError(
            f"{framework} has no scheduler or optimizer {name!r}",
            hint=nearest(name, (*names.schedules, *names.optimizers)),
        )
    entry = entries.schedules[name]
    if entry.parameters:
        _refuse_unknown(arguments, [p.name for p in entry.parameters], name)
    try:
        if entry.rule is not None:
            return cf.frameworks.metric_rule(framework, name, arguments, base=base)
        keys = dict.fromkeys(("lr", key))
        schedules = {
            entry_key: cf.frameworks.schedule(
                framework, name, arguments, key=entry_key, base=base, as_implemented=as_implemented
            )
            for entry_key in keys
        }
        # A class ignores a key that it has not.
        is_ignored = key != "lr" and schedules[key] == schedules["lr"]
        if is_ignored and not entries.has_any_key:
            raise UnknownNameError(
                f"{framework}:{name} has no schedule for {key!r}", hint="leave --key out, for lr"
            )
        return schedules[key]
    except ArgumentError as error:
        # The hint of the library names the argument of Python; a terminal has an option for it.
        if error.hint != NEEDS_BASE:
            raise
        hint = "give --base-value, such as --base-value 0.1"
        raise ArgumentError(error.what, where=error.where, hint=hint) from None


def _refuse_unknown(arguments: Mapping[str, Any], parameters: Iterable[str], where: str) -> None:
    """Refuses an option that is not an argument, with the name as it is written here."""
    names = {option(name): name for name in parameters}
    for key in arguments:
        if key not in names.values():
            hint = nearest(option(key), [*names, *_COMMON]).replace("'", "")
            raise ArgumentError(f"unknown argument {option(key)}", where=where, hint=hint)


_MOST_MATCHES = 3
"""Names in a hint."""
_COMMON = (
    *("--as-implemented", "--base-value", "--facts", "--force", "--framework", "--json", "--key"),
    *("--output", "--scalar-dtype", "--step-dtype", "--target", "--until"),
)
"""Options of the commands that take a name with its arguments, for hints."""


def option(name: str) -> str:
    """Returns the option of an argument.

    Example:
        >>> option("total_iters")
        '--total-iters'
    """
    return f"--{name.replace('_', '-')}"


def schedule_of(source: Schedule | UpdateRule | Recipe, name: str, key: str = "lr") -> Schedule:
    """Returns the schedule itself, or the schedule of a recipe or rule for ``key``.

    Raises:
        UnknownNameError: There is no schedule for that key.
    """
    from closedform.language import Schedule

    if isinstance(source, Schedule):
        return source
    from closedform.language import UpdateRule

    # Of a recipe also what does not change: the weight decay of most configs.
    schedules = schedules_of(source) if isinstance(source, UpdateRule) else dict(source.schedules)
    if key not in schedules:
        raise UnknownNameError(
            f"no schedule for {key!r}",
            where=name,
            hint=f"select one with --key: {', '.join(schedules)}" if schedules else None,
        )
    return schedules[key]


def schedules_of(source: Schedule | UpdateRule | Recipe) -> dict[str, Schedule]:
    """Returns the schedules of a recipe or rule by key; a single schedule has the key "lr"."""
    from closedform.language import Schedule

    if isinstance(source, Schedule):
        return {"lr": source}
    from closedform.language import UpdateRule

    if isinstance(source, UpdateRule):
        values = source.hyperparameters.items()
        return {key: value for key, value in values if isinstance(value, Schedule)}
    return source.changing_schedules


def rule_of(source: Schedule | UpdateRule | Recipe) -> UpdateRule | None:
    """Returns the rule of a source; of a config whose optimizer is not modelled, None and a note.

    A schedule has none.
    """
    from closedform.language import Schedule

    if isinstance(source, Schedule):
        return None
    from closedform.cli.wording import in_terminal
    from closedform.language import UpdateRule

    if isinstance(source, UpdateRule):
        return source
    try:
        return source.optimizer()
    except UnknownNameError as error:
        note_line(in_terminal(str(error)))
        return None


def recipe_notes(source: object) -> Mapping[str, str]:
    """Returns the notes of a recipe; none of another source."""
    from closedform.recipes import Recipe

    return source.notes if isinstance(source, Recipe) else {}


def library(kind: str) -> dict[str, Callable[..., Any]]:
    """Returns the functions of the library by name; ``kind`` is "schedules" or "optimizers"."""
    module: ModuleType = getattr(cf, kind)
    return {
        name: getattr(module, name)
        for name in sorted(module.__all__)
        if inspect.isfunction(getattr(module, name))
    }


def _function(kind: str, name: str) -> Callable[..., Any] | None:
    """A function of the library; optimizers are imported only where they are asked for."""
    module: ModuleType = getattr(cf, kind)
    function = getattr(module, name) if name in module.__all__ else None
    return function if inspect.isfunction(function) else None


def _from_library(
    name: str, arguments: Mapping[str, Any], kinds: Sequence[str] = KINDS
) -> Schedule | UpdateRule:
    function = next((candidate for kind in kinds if (candidate := _function(kind, name))), None)
    if function is None:
        message = " or ".join(kind.removesuffix("s") for kind in kinds)
        library_names = [library_name for kind in kinds for library_name in library(kind)]
        raise UnknownNameError(
            f"the library has no {message} {name!r}",
            hint=f"{_suggest_names(name, library_names)} `closedform list` shows all",
        )
    signature = inspect.signature(function)
    numbers = {key: _read_value(value) for key, value in arguments.items()}
    _refuse_unknown(numbers, signature.parameters, name)
    try:
        signature.bind(**numbers)
    except TypeError as error:
        names = ((option(p.name), p) for p in signature.parameters.values())
        options = " ".join(n if p.default is p.empty else f"[{n}]" for n, p in names)
        message = str(error)
        for library_name in signature.parameters:
            message = message.replace(repr(library_name), option(library_name))
        raise ArgumentError(message, where=name, hint=f"its options are {options}") from None
    try:
        result: Schedule | UpdateRule = function(**numbers)
    except ClosedFormError as error:
        for key, value in arguments.items():
            is_named = key in error.what and "must be a number, got list" in error.what
            if isinstance(value, list) and is_named:
                hint = f"a comma makes a list: write the number of {option(key)} without it"
                raise ArgumentError(error.what, where=error.where, hint=hint) from None
        raise
    return result


def _from_python(
    path: Path,
    name: str,
    arguments: Mapping[str, Any],
    inputs: Sequence[str],
    options: SourceOptions,
) -> Schedule | UpdateRule | Recipe:
    """Returns the schedule of a function, or a scheduler, schedule or config, of a Python file."""
    from closedform.language import Schedule, UpdateRule
    from closedform.recipes.documents.objects import is_config

    note_line(f"importing {path}, which runs its code")
    module = _import_file(path)
    if not hasattr(module, name):
        names = [attribute for attribute in vars(module) if not attribute.startswith("_")]
        raise UnknownNameError(f"{path} has no {name!r}", hint=nearest(name, names))
    subject = getattr(module, name)
    if isinstance(subject, Schedule | UpdateRule):
        if arguments:
            raise UsageError(f"{name} takes no {option(next(iter(arguments)))}")
        return subject
    if is_config(subject):
        if arguments:
            raise UsageError(f"{name} takes no {option(next(iter(arguments)))}")
        return _load_config(subject, options)
    symbols = [key for key in inputs if key not in arguments]
    numbers = {key: arguments[key] for key in inputs if key in arguments}
    fixed_arguments = {key: value for key, value in arguments.items() if key not in numbers}
    schedule = cf.from_python(
        functools.partial(subject, **fixed_arguments) if fixed_arguments else subject,
        hyper=[*symbols, *numbers],
    )
    note_line(str(schedule.trace))
    return schedule.bind(**numbers) if numbers else schedule


def _import_file(path: Path) -> ModuleType:
    """The module of a file, with the imports that ``python file`` would find."""
    spec = importlib.util.spec_from_file_location(f"_imported_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ArgumentError(f"cannot read {str(path)!r}", hint="give the path of a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    # As `python file` does: the file may import its neighbours.
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    except ModuleNotFoundError as error:
        raise ArgumentError(
            f"{path} cannot be imported: {error}",
            hint=f"install {str(error.name).partition('.')[0]}, or move the function into a file "
            f"without that import; a config is read without an import: {path}",
        ) from error
    except Exception as error:
        raise ArgumentError(
            f"{path} cannot be imported: {type(error).__name__}: {error}",
            hint="put what trains below `if __name__ == '__main__':`",
        ) from error
    finally:
        sys.path.remove(str(path.parent.resolve()))
    return module


def _suggest_names(name: str, names: Iterable[str]) -> str:
    """A hint for a name that is not the library's: the same letters there, then in frameworks."""
    same_letters = [library_name for library_name in names if library_name == name.lower()]
    matches = [*same_letters, *_in_frameworks(name)]
    if not matches:
        return nearest(name, names)
    texts = " or ".join(map(repr, matches[:_MOST_MATCHES]))
    more = f", or {len(matches) - _MOST_MATCHES} more" if len(matches) > _MOST_MATCHES else ""
    return f"did you mean {texts}{more}?"


def _in_frameworks(name: str) -> list[str]:
    """The classes of frameworks with a name but for its case, torch first."""
    matches = [
        f"{framework}:{public}"
        for framework in cf.frameworks.FRAMEWORKS
        for names in [cf.frameworks.names(framework)]
        for public in (*names.schedules, *names.optimizers)
        if public.lower() == name.lower()
    ]
    # sorted is stable: the others keep the order of the table.
    return sorted(matches, key=lambda match: not match.startswith("torch:"))


def _in_updates(subject: Schedule | UpdateRule, facts: Mapping[str, Any]) -> Schedule | UpdateRule:
    """A schedule with its lengths converted to updates by the facts of the run."""
    from closedform.language.in_units import ScheduleInUnits

    if not isinstance(subject, ScheduleInUnits):
        return subject
    missing = subject.missing_facts(facts)
    if missing:
        raise ArgumentError(
            f"lengths in units need the facts {', '.join(missing)}",
            where=subject.name,
            hint=f"give --facts, such as --facts {missing[0]}=256",
        )
    return subject.resolve(facts)


def _read_value(value: Any) -> Any:
    """An argument with lengths, and schedules for each {"class": name, "kwargs": {...}}."""
    if isinstance(value, str):
        from closedform.recipes.clock import parse_length

        length = parse_length(value)
        return value if length is None else length
    if isinstance(value, list):
        return [_read_value(item) for item in value]
    if not isinstance(value, dict) or "class" not in value:
        return value
    return _from_library(str(value["class"]), value.get("kwargs", {}))
