"""The trace of one param group for parameters of one shape: every run of one step, as expressions.

The first steps run plainly, to see which numbers count steps, which change, and from when on the
optimizer stores the same kinds of things. Then one step is run for each way through its Python
branches, with symbols for parameter, gradient, states, step and hyperparameters.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import sympy as sp
import torch

from closedform.errors import ClosedFormError, TraceError
from closedform.importers.python.number import Number
from closedform.importers.python.prover import Prover
from closedform.importers.python.run import Decision
from closedform.importers.tensors.integers import check_growth, check_start
from closedform.importers.tensors.values import (
    Axes,
    Definitions,
    Sizes,
    Value,
    twin_of,
)
from closedform.importers.torch_optimizer.algebra import TorchAlgebra
from closedform.importers.torch_optimizer.decisions import (
    RAISES,
    Run,
    Tree,
    explore,
    holding,
)
from closedform.importers.torch_optimizer.decisions import (
    leaves as outcomes_of,
)
from closedform.importers.torch_optimizer.environment import Environment
from closedform.importers.torch_optimizer.feasibility import Feasibility
from closedform.importers.torch_optimizer.first_steps import take_step
from closedform.importers.torch_optimizer.inputs import Draws, mask_label
from closedform.importers.torch_optimizer.interpreter import Functions, Operators
from closedform.importers.torch_optimizer.layout import (
    LONGEST,
    NUMBER,
    OBJECT,
    Layout,
    Slot,
    spell,
    text_of,
)
from closedform.importers.torch_optimizer.outcome import Outcome
from closedform.importers.torch_optimizer.place import exception_place
from closedform.importers.torch_optimizer.reported import Reported
from closedform.importers.torch_optimizer.stand_ins import expression
from closedform.importers.torch_optimizer.storages import Storages
from closedform.importers.torch_optimizer.subject import (
    ATTRIBUTE,
    GROUP,
    STATE,
    Path,
    Subject,
    gradients,
    is_number,
)
from closedform.importers.torch_optimizer.symmetry import check_symmetry
from closedform.language.model import shared, tensor_input
from closedform.language.shapes import EPSILON
from closedform.language.symbols import GRAD, PARAM, hyper, state, t

# Steps that are run plainly; LONGEST where the stored structure still changes.
_WARM = 4


@dataclass(eq=False)
class Trace:
    """A param group, traced for one shape of its parameters.

    Attributes:
        axes: The shapes of the parameters.
        definitions: The values that the results share.
        phases: The runs of the first steps, then of all later ones.
        slots: The states, by name.
        hypers: Values of hyperparameters by name.
        conditions: Conditions on the shape that hold for it.
        is_structural: Whether it is only for this number of axes.
        times: Steps at which the later runs were executed.
    """

    axes: Axes
    definitions: Definitions
    phases: list[Tree]
    slots: Mapping[str, Slot]
    hypers: Mapping[str, float]
    starts: Mapping[str, sp.Expr | None]
    conditions: Sequence[sp.Basic]
    is_structural: bool
    times: Sequence[int]


class UnevenShapesError(TraceError):
    """A step goes another way for the second of the two traced shapes."""


# Signals within the tracer, not errors that a user sees.
class _Changed(Exception):  # noqa: N818
    """A step changes a number that the first steps did not change."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.path = path


class _Raised(Exception):  # noqa: N818
    """A step raises an exception, as it does where decisions go this way."""

    def __init__(self, decisions: Sequence[Decision]) -> None:
        super().__init__()
        self.decisions = decisions


@dataclass(eq=False)
class Tracer(Layout):
    """Traces a param group.

    Args:
        axes: The shapes of its parameters.
        subject: The optimizer, before its first step.
        seed: Of the gradients.
        prover: Decides whether some step takes the decisions of a way through the step.
        dtype: The dtype that the step sees as that of the parameters.
    """

    subject: Subject
    seed: int
    prover: Prover
    dtype: torch.dtype = torch.float64
    definitions: Definitions = field(default_factory=Definitions)
    conditions: list[sp.Basic] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    is_structural: bool = False
    is_of_dtype: bool = False

    def trace(self) -> Trace:
        """Returns the trace.

        Raises:
            TraceError: The step does something that has no expression; the message names it.
        """
        snapshots = self._warm_up(_WARM)
        # A number that turns out to change becomes a state, and the trace begins anew.
        while True:
            if not self.classify(snapshots) and len(snapshots) <= LONGEST:
                snapshots = self._warm_up(LONGEST)
                continue
            try:
                numbers = {hyper(name): value for name, value in self.hypers.items()}
                self.feasibility = Feasibility(self.prover, numbers | self.axes.numbers())
                phases = [self._phase(step) for step in range(self.first_steady + 1)]
                self._check_clock(phases)
                check_symmetry(self.definitions, self.slots, phases)
                self._check_integers(phases[-1])
                break
            except _Changed as change:
                of_both = [(STATE, place, *change.path[2:]) for place in (0, 1)]
                self.changing |= {*(of_both if change.path[0] == STATE else [change.path])}
                self.definitions = Definitions()
                self.conditions, self.times = [], []
        return Trace(
            self.axes,
            self.definitions,
            phases,
            self.slots,
            self.hypers,
            {name: self.start(slot) for name, slot in self.slots.items()},
            self.conditions,
            self.is_structural,
            self.times,
        )

    # --- first steps ---------------------------------------------------------------------------

    def _warm_up(self, steps: int) -> list[Subject]:
        """The optimizer before the first step, and after each of the first ones."""
        snapshots = [self.subject.clone()]
        for step in range(steps):
            following = snapshots[-1].clone()
            with _name_place("the first steps"):
                grads = gradients(self.axes.both, self.seed + step)
                take_step(following, grads, self.seed + step)
            snapshots.append(following)
        return snapshots

    def _check_clock(self, phases: Sequence[Tree]) -> None:
        """Makes counts states of each parameter where one of them may take a step by itself.

        Raises:
            _Changed: A number counts steps that other parameters do not take.
        """
        for tree in phases:
            condition = holding(tree, lambda outcome: outcome.advances)
            # A term that is not a sum over all parameters belongs to one of them.
            with contextlib.suppress(TraceError):  # a number other than a sum is of one parameter
                condition = self.definitions.sum_over_params(condition)
            if self.counters and self.definitions.is_of_one(condition):
                raise _Changed(next(iter(self.counters)))

    def _check_integers(self, steady: Tree) -> None:
        """Refuses a state in integers that may wrap.

        Raises:
            TraceError: One of 32 or 64 bits may; an integer of fewer bits wraps in its formula.
        """
        for path, first in self.counters.items():
            width = self.width(path)
            if width is not None:
                check_start(width, str(path[-1]), first)
        widths = {
            name: width
            for name, slot in self.slots.items()
            if (width := self.width(slot.path)) is not None and not width.is_short
        }
        symbols = [shared(n) if self.slots[n].is_shared else state(n) for n in widths]
        for outcome in outcomes_of(steady):
            for name in widths.keys() & outcome.results.keys():
                expr, start = outcome.results[name].expr, self.start(self.slots[name])
                check_growth(expr, widths[name], symbols, self.definitions, name, start)

    def _structure(
        self, leaves: Mapping[Path, Any], *, is_same_copy: bool = False
    ) -> dict[Path, str]:
        """The entries that the optimizer stores and that are not numbers or tensors of the rule."""
        variable_paths = {
            *self.counters,
            *self.hyper_paths,
            *(slot.path for slot in self.slots.values()),
        }
        return {
            path: ""
            if path in variable_paths or _mirror_path(path) in variable_paths
            else _identity(value)
            if is_same_copy
            else text_of(value)
            # Objects of the user are compared by identity within one run, by their text between
            # runs.
            for path, value in leaves.items()
        }

    # --- runs ------------------------------------------------------------------------------------

    def _phase(self, step: int) -> Tree:
        """All runs of one of the first steps, or of all later ones."""
        is_steady = step == self.first_steady

        def execute(prefix: Sequence[Decision]) -> tuple[Outcome, Sequence[Decision]]:
            time = self._time(prefix, step, is_steady=is_steady)
            if time is None:
                raise TraceError("no step takes this way through the branches")
            try:
                return self._execute(step, time, prefix, is_steady=is_steady)
            except _Raised as raised:
                return RAISES, raised.decisions

        return explore(execute, f"step {step}")

    def _time(self, decisions: Sequence[Decision], step: int, *, is_steady: bool) -> int | None:
        """A step at which decisions can be taken together, as far as they depend only on it."""
        if not is_steady:
            return step
        return self.feasibility.step(_conditions(decisions), step)

    def _execute(
        self, step: int, time: int, prefix: Sequence[Decision], *, is_steady: bool
    ) -> tuple[Outcome, Sequence[Decision]]:
        subject = self.snapshots[step].clone()
        symbols = [EPSILON, *(hyper(name) for name in self.hypers)]
        start = frozenset({sp.Ge(t, step)} if is_steady and step else ())

        def note(decisions: Sequence[Decision]) -> None:
            steps_only = [pair for pair in decisions if pair[0].free_symbols <= {t, *symbols}]
            self.definitions.here = start.union(_conditions(steps_only))

        def is_possible(decisions: Sequence[Decision]) -> bool:
            try:
                return self._time(decisions, step, is_steady=is_steady) is not None
            except TraceError as error:
                raise run.refuse(error.what, error.hint) from error.__cause__

        def is_seen(decisions: Sequence[Decision]) -> bool:
            conditions = _conditions(decisions)
            return self.feasibility.sampled_step(conditions, step) is not None

        note(())
        run = Run(
            symbols,
            prefix,
            self.definitions.normal,
            note,
            is_possible,
            is_seen,
            self.definitions.hide,
        )
        storages = Storages()
        algebra = TorchAlgebra(self.axes, self.definitions, storages)
        shapes = self.axes.both
        # Gradients that the first steps have not seen, so that no branch is taken by chance.
        grads = gradients(shapes, self.seed + 50 + len(prefix))
        for param, gradient in zip(subject.params, grads, strict=True):
            param.grad = gradient
        for place, (param, gradient) in enumerate(zip(subject.params, grads, strict=True)):
            for tensor, symbol in ((param, PARAM), (gradient, GRAD)):
                own_symbol = twin_of(symbol) if place else symbol
                self._register(storages, tensor, own_symbol)
        self._install(subject, run, storages, step, time, is_steady=is_steady)
        optimizer = subject.optimizer
        is_only = self.subject.form.dtype != torch.float64
        precision = Reported(self.dtype, run, is_only=is_only)
        environment = Environment(run, algebra, precision)
        with _name_place(type(optimizer).__name__, run), environment.enter(optimizer):
            before = self._structure(subject.leaves(), is_same_copy=is_steady)
            try:
                operators = Operators(algebra, run, Draws(self.seed + step))
                with Functions(algebra, run, precision), operators, torch.no_grad():
                    optimizer.step()
            finally:
                environment.end_run(type(optimizer))
            attributes = [name for param in subject.params for name in vars(param)]
            if attributes:
                raise run.refuse(f"the step keeps {attributes[0]!r} as an attribute of a parameter")
            self.is_of_dtype |= precision.is_read
            outcome = self._outcome(subject, algebra, step, is_steady=is_steady)
            outcome = self._continue(subject, outcome, before, step, is_steady=is_steady)
        self._check_shapes(run, algebra)
        for condition in run.shape_conditions:
            if condition not in self.conditions:
                self.conditions.append(condition)
        self.is_structural |= algebra.is_structural
        if is_steady and time not in self.times:
            self.times.append(time)
        return outcome, run.decisions

    def _check_shapes(self, run: Run, algebra: TorchAlgebra) -> None:
        """Refuses a step that asks for the shape of one parameter and takes it for others.

        Raises:
            UnevenShapesError: It does, or the two shapes go two ways.
        """
        questions = {self.definitions.mirror(condition) for condition in run.shape_questions}
        if questions != set(run.shape_conditions) or len(algebra.ranks) == 1:
            raise UnevenShapesError(
                "the step decides on the shape of one parameter for other ones",
                hint="a rule is the same for every parameter of these shapes",
            )

    def _continue(
        self,
        subject: Subject,
        outcome: Outcome,
        before: Mapping[Path, str],
        step: int,
        *,
        is_steady: bool,
    ) -> Outcome:
        """An outcome after which the next step is the one that is traced as the next.

        Raises:
            TraceError: The optimizer stores something else than after the first steps.
        """
        after = self._structure(subject.leaves(), is_same_copy=is_steady)
        expected = before
        if not is_steady:
            expected = self._structure(self.leaves[step + 1])
            # Other objects take the places of the optimizer's own in a run.
            expected |= {
                p: after[p] for p, text in expected.items() if OBJECT in text and p in after
            }
        changed_paths = [p for p in {**expected, **after} if after.get(p) != expected.get(p)]
        if not changed_paths:
            return outcome
        if not is_steady and after == before:
            return replace(outcome, advances=False)  # the first step is still to be taken
        if not is_steady and all(p not in after and not expected[p] for p in changed_paths):
            return replace(outcome, is_begun=False)
        path = changed_paths[0]
        if after.get(path, "").startswith(NUMBER) and is_number(self.leaves[-1].get(path)):
            raise _Changed(path)
        raise TraceError(
            f"{spell(path)} changes from {expected.get(path)} to {after.get(path)} in one of "
            "the ways through the step",
            hint="only numbers and tensors can be states of a rule",
        )

    def _register(
        self,
        storages: Storages,
        tensor: torch.Tensor,
        symbol: sp.Symbol,
        shape: Sizes | None = None,
    ) -> None:
        shape = tuple(tensor.shape) if shape is None else shape
        self.definitions.shapes[symbol] = shape
        storages.create(tensor, Value(symbol, shape))

    def _install(
        self,
        subject: Subject,
        run: Run,
        storages: Storages,
        step: int,
        time: int,
        *,
        is_steady: bool,
    ) -> None:
        """Replaces the numbers of the optimizer by symbolic numbers."""
        leaves = subject.leaves()
        for path, name in self.hyper_paths.items():
            if isinstance(leaves.get(path), torch.Tensor):
                storages.create(leaves[path], Value(hyper(name)))
            elif path in leaves:
                subject.replace(path, run.number(leaves[path], hyper(name)))
        for path, start in self.counters.items():
            if path in leaves and is_steady:
                self._install_counter(subject, run, storages, path, leaves[path], start, time)
        for slot in self.slots.values():
            for place in (0,) if slot.is_shared else (0, 1):
                path = (STATE, place, *slot.path[2:]) if slot.path[0] == STATE else slot.path
                if not isinstance(leaves.get(path), torch.Tensor | int | float):
                    continue
                symbol: sp.Symbol = shared(slot.name) if slot.is_shared else state(slot.name)
                symbol = twin_of(symbol) if place else symbol
                value = leaves[path]
                if not isinstance(value, torch.Tensor):
                    subject.replace(path, run.number(value, symbol))
                elif slot.shape == ():
                    storages.create(value, Value(symbol))
                elif slot.mask is not None:
                    self._register(storages, value, symbol, self.axes.both[place])
                else:
                    self._register(storages, value, symbol)
        for _, mask, symbol in self._masks(subject):
            self.definitions.shapes[symbol] = tuple(mask.shape)
            storages.create(mask, Value(sp.Ne(symbol, 0), tuple(mask.shape)))

    def _masks(self, subject: Subject) -> Iterator[tuple[str, torch.Tensor, sp.Symbol]]:
        """The masks that the constructor has made, with their symbols."""
        for place in (0, 1):
            for key, mask in subject.masks(place).items():
                if (STATE, place, key) in self.static:
                    symbol = tensor_input(mask_label(key))
                    yield key, mask, twin_of(symbol) if place else symbol

    def _install_counter(
        self,
        subject: Subject,
        run: Run,
        storages: Storages,
        path: Path,
        value: Any,
        start: int,
        time: int,
    ) -> None:
        number, expr = time + start, t + start
        # A counter in a tensor is filled in place, since the optimizer holds on to the tensor.
        if isinstance(value, torch.Tensor):
            value.fill_(number)
            storages.create(value, Value(expr))
        else:
            subject.replace(
                path,
                run.number(number if isinstance(value, np.integer) else type(value)(number), expr),
            )

    def _outcome(
        self, subject: Subject, algebra: TorchAlgebra, step: int, *, is_steady: bool
    ) -> Outcome:
        for key, mask, symbol in self._masks(subject):
            if algebra.value(mask).expr != sp.Ne(symbol, 0):
                raise TraceError(
                    f"the step changes the mask {key!r}, which the constructor has made",
                    hint="a mask that stays the same is an input of the rule",
                )
        leaves = subject.leaves()
        results = {"param": algebra.value(subject.params[0])}
        twin_results = {"param": algebra.value(subject.params[1])}
        initial: dict[str, Value | None] = {}
        for name, slot in self.slots.items():
            twin = leaves.get((STATE, 1, *slot.path[2:])) if slot.path[0] == STATE else None
            if isinstance(twin, torch.Tensor):
                twin_results[name] = algebra.real(algebra.value(twin))
            elif isinstance(twin, int | float | Number):
                twin_results[name] = Value(expression(twin))
            leaf = leaves.get(slot.path)
            if not isinstance(leaf, torch.Tensor | int | float | Number):
                continue
            if isinstance(leaf, torch.Tensor):
                value = algebra.value(leaf)
                storage = algebra.storages.of(leaf)
                initial[name] = None if storage is None else storage.initial
            else:
                value = Value(expression(leaf))
            if value.items is not None:
                raise TraceError(f"the state {name!r} is a vector that was stacked")
            if value.is_bool:
                value = algebra.real(value)
            results[name] = value
        before = t if is_steady else sp.Integer(step)
        counts = {
            path: self._steps_counted(path, leaves[path], before + start, algebra)
            for path, start in self.counters.items()
            if path in leaves
        }
        if not is_steady and step == 0:  # a count that the step has not begun
            counts |= dict.fromkeys(self.counters.keys() - counts.keys(), 0)
        constant_paths = [path for path, count in counts.items() if count != 1]
        if constant_paths and len(constant_paths) < len(counts):
            raise _Changed(constant_paths[0])  # it counts something else than steps
        advances = not constant_paths
        for path, name in self.hyper_paths.items():
            if path in leaves and path[0] in (GROUP, ATTRIBUTE):
                after = leaves[path]
                is_same = isinstance(after, Number) and after.expr == hyper(name)
                if isinstance(after, torch.Tensor):
                    is_same = algebra.value(after).expr == hyper(name)
                is_numeric = isinstance(after, torch.Tensor | int | float | Number)
                if not is_same and is_numeric:
                    raise _Changed(path)
        return Outcome(results, initial, advances, twin_results=twin_results)

    def _steps_counted(self, path: Path, leaf: Any, before: sp.Expr, algebra: TorchAlgebra) -> int:
        """How many steps a number that counts them counts in this one, 0 or 1."""
        expr = algebra.value(leaf).expr if isinstance(leaf, torch.Tensor) else expression(leaf)
        if expr - before not in (0, 1):
            raise _Changed(path)
        return int(expr - before)


@contextlib.contextmanager
def _name_place(where: str, run: Run | None = None) -> Any:
    """Names the place of the optimizer in whatever error its step raises."""
    try:
        yield
    except _Changed:
        raise
    except TraceError as error:
        if error.where is not None:
            raise
        place = exception_place(error, where)
        raise TraceError(error.what, where=place, hint=error.hint) from error.__cause__
    except ClosedFormError as error:
        raise TraceError(error.what, where=f"{where}: {error.where}", hint=error.hint) from error
    except Exception as error:
        if run is not None and run.tape.exception is error:
            raise _Raised(run.decisions) from error
        raise TraceError(
            f"the step raises {type(error).__name__}: {error}",
            where=exception_place(error, where),
            hint="it is run on random parameters and gradients, whose sizes are primes in the "
            "order of those of the optimizer's parameters",
        ) from error


def _identity(value: Any) -> str:
    """A text that tells static things of one copy of the optimizer apart."""
    text = text_of(value)
    if isinstance(value, torch.Tensor):
        return f"{text}, version {value._version} of {id(value)}"
    return f"{text} {id(value)}" if text.startswith(OBJECT) else text


def _conditions(decisions: Sequence[Decision]) -> list[sp.Basic]:
    """Decisions as conditions that hold."""
    return [condition if truth else sp.Not(condition) for condition, truth in decisions]


def _mirror_path(path: Path) -> Path:
    """The path of the same state of the first parameter."""
    return (STATE, 0, *path[2:]) if path[0] == STATE else path
