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
from closedform.importers.tensors.values import Definitions, Sizes, Value, twin_of
from closedform.importers.torch_optimizer.algebra import TorchAlgebra
from closedform.importers.torch_optimizer.decisions import (
    Execution,
    Outcome,
    Run,
    Tree,
    explore,
    holding,
)
from closedform.importers.torch_optimizer.decisions import leaves as outcomes_of
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
    spell,
    text_of,
)
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
    at_place,
    gradients,
    is_number,
)
from closedform.importers.torch_optimizer.symmetry import check_symmetry
from closedform.language.model import shared, tensor_input
from closedform.language.shapes import EPSILON
from closedform.language.symbols import GRAD, PARAM, hyper, state, t

# Steps that are run plainly; LONGEST where the stored structure still changes.
_WARM = 4


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


@dataclass(eq=False)
class Tracer(Layout):
    """Traces a param group.

    Args:
        axes: The shapes of its parameters.
        subject: The optimizer, before its first step.
        seed: Of the gradients.
        prover: Decides whether some step takes the decisions of a way through the step.
        dtype: The dtype that the step sees as that of the parameters.

    Attributes:
        definitions: The values that the results share.
        conditions: Conditions on the shape that hold for it.
        times: Steps at which the later runs were executed.
        phases: The runs of the first steps, then of all later ones.
        starts: The values of states before the first step, by name; None where it is not known.
        is_structural: Whether the trace is only for this number of axes.
        is_of_dtype: Whether the step has asked for the dtype.
    """

    subject: Subject
    seed: int
    prover: Prover
    dtype: torch.dtype = torch.float64
    definitions: Definitions = field(default_factory=Definitions)
    conditions: list[sp.Basic] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    phases: list[Tree] = field(default_factory=list)
    starts: dict[str, sp.Expr | None] = field(default_factory=dict)
    is_structural: bool = False
    is_of_dtype: bool = False

    def trace(self) -> None:
        """Runs the step in all of its ways.

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
                self.phases = [self._phase(step) for step in range(self.first_steady + 1)]
                self._check_clock()
                check_symmetry(self.definitions, self.slots, self.phases)
                self._check_integers()
                break
            except _Changed as change:
                self.changing |= {at_place(change.path, place) for place in (0, 1)}
                self.definitions = Definitions()
                self.conditions, self.times = [], []
        self.starts = {name: self.start(slot) for name, slot in self.slots.items()}

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

    def _check_clock(self) -> None:
        """Makes counts states of each parameter where one of them may take a step by itself.

        Raises:
            _Changed: A number counts steps that other parameters do not take.
        """
        for tree in self.phases:
            condition = holding(tree, lambda outcome: outcome.advances)
            # A term that is not a sum over all parameters belongs to one of them.
            with contextlib.suppress(TraceError):  # a number other than a sum is of one parameter
                condition = self.definitions.sum_over_params(condition)
            if self.counters and self.definitions.is_of_one(condition):
                raise _Changed(next(iter(self.counters)))

    def _check_integers(self) -> None:
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
        for outcome in outcomes_of(self.phases[-1]):
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
            if path in variable_paths or at_place(path, 0) in variable_paths
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
        feasibility = self.feasibility if step == self.first_steady else None
        symbols = [EPSILON, *(hyper(name) for name in self.hypers)]

        def execute(prefix: Sequence[Decision]) -> Execution:
            run = Run(symbols, prefix, self.definitions, step, feasibility)
            time = run.time(prefix)
            if time is None:
                raise TraceError("no step takes this way through the branches")
            try:
                return self._execute(run, time), run.decisions
            except _Raised:
                return None, run.decisions

        return explore(execute, f"step {step}")

    def _execute(self, run: Run, time: int) -> Outcome:
        subject = self.snapshots[run.first].clone()
        storages = Storages()
        algebra = TorchAlgebra(self.axes, self.definitions, storages)
        # Gradients that the first steps have not seen, so that no branch is taken by chance.
        grads = gradients(self.axes.both, self.seed + 50 + len(run.prefix))
        for place, (param, gradient) in enumerate(zip(subject.params, grads, strict=True)):
            param.grad = gradient
            for tensor, symbol in ((param, PARAM), (gradient, GRAD)):
                own_symbol = twin_of(symbol) if place else symbol
                self._register(storages, tensor, own_symbol, self.axes.both[place])
        self._install(subject, run, storages, time)
        optimizer = subject.optimizer
        is_only = self.subject.form.dtype != torch.float64
        precision = Reported(self.dtype, run, is_only=is_only)
        environment = Environment(run, algebra.owner, precision)
        with _name_place(type(optimizer).__name__, run), environment.enter(optimizer):
            before = self._structure(subject.leaves(), is_same_copy=run.is_steady)
            try:
                operators = Operators(algebra, run, Draws(self.seed + run.first))
                with Functions(algebra, run, precision), operators, torch.no_grad():
                    optimizer.step()
            finally:
                environment.end_run(type(optimizer))
            attributes = [name for param in subject.params for name in vars(param)]
            if attributes:
                raise run.refuse(f"the step keeps {attributes[0]!r} as an attribute of a parameter")
            self.is_of_dtype |= precision.is_read
            outcome = self._outcome(subject, algebra, run)
            outcome = self._continue(subject, outcome, before, run)
        self._check_shapes(run, algebra)
        for condition in run.shape_conditions:
            if condition not in self.conditions:
                self.conditions.append(condition)
        self.is_structural |= algebra.is_structural
        if run.is_steady and time not in self.times:
            self.times.append(time)
        return outcome

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
        self, subject: Subject, outcome: Outcome, before: Mapping[Path, str], run: Run
    ) -> Outcome:
        """An outcome after which the next step is the one that is traced as the next.

        Raises:
            TraceError: The optimizer stores something else than after the first steps.
        """
        after = self._structure(subject.leaves(), is_same_copy=run.is_steady)
        expected = before
        if not run.is_steady:
            expected = self._structure(self.leaves[run.first + 1])
            # Other objects take the places of the optimizer's own in a run.
            expected |= {
                p: after[p] for p, text in expected.items() if OBJECT in text and p in after
            }
        changed_paths = [p for p in {**expected, **after} if after.get(p) != expected.get(p)]
        if not changed_paths:
            return outcome
        if not run.is_steady and after == before:
            return replace(outcome, advances=False)  # the first step is still to be taken
        if not run.is_steady and all(p not in after and not expected[p] for p in changed_paths):
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
        self, storages: Storages, tensor: torch.Tensor, symbol: sp.Symbol, shape: Sizes
    ) -> None:
        self.definitions.shapes[symbol] = shape
        storages.create(tensor, Value(symbol, shape))

    def _install(self, subject: Subject, run: Run, storages: Storages, time: int) -> None:
        """Replaces the numbers of the optimizer by symbolic numbers."""
        leaves = subject.leaves()

        def install(path: Path, number: Any, expr: sp.Expr) -> None:
            if isinstance(leaves[path], torch.Tensor):
                storages.create(leaves[path], Value(expr))
            else:
                subject.replace(path, run.number(number, expr))

        for path, name in self.hyper_paths.items():
            if path in leaves:
                install(path, leaves[path], hyper(name))
        for path, start in self.counters.items() if run.is_steady else ():
            if path in leaves:
                value, number = leaves[path], time + start
                # A counter in a tensor is filled in place, since the optimizer holds on to it.
                if isinstance(value, torch.Tensor):
                    value.fill_(number)
                is_plain = not isinstance(value, np.integer | torch.Tensor)
                install(path, type(value)(number) if is_plain else number, t + start)
        for slot in self.slots.values():
            for place in (0,) if slot.is_shared else (0, 1):
                path = at_place(slot.path, place)
                value = leaves.get(path)
                if not isinstance(value, torch.Tensor | int | float):
                    continue
                symbol: sp.Symbol = shared(slot.name) if slot.is_shared else state(slot.name)
                symbol = twin_of(symbol) if place else symbol
                if isinstance(value, torch.Tensor) and slot.shape:
                    shape = tuple(value.shape) if slot.mask is None else self.axes.both[place]
                    self._register(storages, value, symbol, shape)
                else:
                    install(path, value, symbol)
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

    def _outcome(self, subject: Subject, algebra: TorchAlgebra, run: Run) -> Outcome:
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
            twin_value = _value_of(leaves.get(at_place(slot.path, 1)), algebra)
            if twin_value is not None:
                twin_results[name] = algebra.real(twin_value)
            leaf = leaves.get(slot.path)
            value = _value_of(leaf, algebra)
            if value is None:
                continue
            if isinstance(leaf, torch.Tensor):
                storage = algebra.storages.of(leaf)
                initial[name] = None if storage is None else storage.initial
            if value.items is not None:
                raise TraceError(f"the state {name!r} is a vector that was stacked")
            results[name] = algebra.real(value)
        before = t if run.is_steady else sp.Integer(run.first)
        counts = {
            path: self._steps_counted(path, leaves[path], before + start, algebra)
            for path, start in self.counters.items()
            if path in leaves
        }
        if not run.is_steady and run.first == 0:  # a count that the step has not begun
            counts |= dict.fromkeys(self.counters.keys() - counts.keys(), 0)
        constant_paths = [path for path, count in counts.items() if count != 1]
        if constant_paths and len(constant_paths) < len(counts):
            raise _Changed(constant_paths[0])  # it counts something else than steps
        advances = not constant_paths
        for path, name in self.hyper_paths.items():
            after = _value_of(leaves.get(path), algebra) if path[0] in (GROUP, ATTRIBUTE) else None
            if after is not None and after.expr != hyper(name):
                raise _Changed(path)
        return Outcome(results, initial, advances, twin_results=twin_results)

    def _steps_counted(self, path: Path, leaf: Any, before: sp.Expr, algebra: TorchAlgebra) -> int:
        """How many steps a number that counts them counts in this one, 0 or 1."""
        expr = algebra.value(leaf).expr if isinstance(leaf, torch.Tensor) else expression(leaf)
        if expr - before not in (0, 1):
            raise _Changed(path)
        return int(expr - before)


def _value_of(leaf: Any, algebra: TorchAlgebra) -> Value | None:
    """The value of a tensor or number; None for anything else."""
    if isinstance(leaf, torch.Tensor):
        return algebra.value(leaf)
    return Value(expression(leaf)) if isinstance(leaf, int | float | Number) else None


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
            raise _Raised from error
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
