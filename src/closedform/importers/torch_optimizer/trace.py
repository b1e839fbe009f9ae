"""The trace of one param group for parameters of one shape: every run of one step, as expressions.

The first steps run plainly, to see which numbers count steps, which change, and from when on the
optimizer stores the same kinds of things. Then one step is run for each way through its Python
branches, with symbols for parameter, gradient, states, step and hyperparameters.
"""

from __future__ import annotations

import contextlib
import math
import re
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
from closedform.importers.tensors.integers import Width, check_growth, check_start
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
    join_outcomes,
)
from closedform.importers.torch_optimizer.decisions import (
    leaves as outcomes_of,
)
from closedform.importers.torch_optimizer.environment import Environment
from closedform.importers.torch_optimizer.feasibility import Feasibility
from closedform.importers.torch_optimizer.inputs import Draws, is_mask, mask_label
from closedform.importers.torch_optimizer.interpreter import Functions, Operators
from closedform.importers.torch_optimizer.place import exception_place
from closedform.importers.torch_optimizer.reported import Reported
from closedform.importers.torch_optimizer.stand_ins import expression, plain
from closedform.importers.torch_optimizer.storages import Storages
from closedform.importers.torch_optimizer.subject import (
    ATTRIBUTE,
    DEFAULTS,
    GROUP,
    STATE,
    InDouble,
    Path,
    Subject,
    gradients,
    is_counter,
    is_number,
    number_of,
)
from closedform.language.model import GlobalSum, shared, tensor_input
from closedform.language.shapes import EPSILON, SHAPE_SYMBOLS
from closedform.language.symbols import GRAD, PARAM, hyper, state, t

# Steps that are run plainly: 4, or 16 where the stored structure still changes.
_WARM, _LONGEST = 4, 16
_RESERVED = frozenset({"t", "step", "param", "grad"})


@dataclass(frozen=True, slots=True)
class Slot:
    """A number or tensor that the rule reads before a step and writes after it.

    Attributes:
        name: Of the state.
        path: Where the optimizer stores it.
        shape: Its shape; () for a number.
        is_shared: Whether it belongs to the whole model.
        mask: The state that selects the elements that it holds; None for all.
    """

    name: str
    path: Path
    shape: Sizes
    is_shared: bool
    mask: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of one run.

    Attributes:
        results: The parameter ("param") and each state by name, after the step.
        initial: The value with which the storage of each state was made, if the step made it.
        advances: Whether the step counts.
        is_begun: Whether the step has made all states; one that is missing has its first value.
        twin_results: The results of the second parameter.
    """

    results: Mapping[str, Value]
    initial: Mapping[str, Value | None]
    advances: bool
    is_begun: bool = True
    twin_results: Mapping[str, Value] = field(default_factory=dict)


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
    starts: Mapping[str, float | None]
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
class Tracer:
    """Traces a param group.

    Args:
        subject: The optimizer, before its first step.
        axes: The shapes of its parameters.
        seed: Of the gradients.
        prover: Decides whether some step takes the decisions of a way through the step.
        dtype: The dtype that the step sees as that of the parameters.
    """

    subject: Subject
    axes: Axes
    seed: int
    prover: Prover
    dtype: torch.dtype = torch.float64
    definitions: Definitions = field(default_factory=Definitions)
    conditions: list[sp.Basic] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    is_structural: bool = False
    is_of_dtype: bool = False
    changing: set[Path] = field(default_factory=set)
    counted_from: dict[Path, int] = field(default_factory=dict)

    def trace(self) -> Trace:
        """Returns the trace.

        Raises:
            TraceError: The step does something that has no expression; the message names it.
        """
        self._warm_up(_WARM)
        # A number that turns out to change becomes a state, and the trace begins anew.
        while True:
            if not self._classify() and len(self.leaves) <= _LONGEST:
                self._warm_up(_LONGEST)
                continue
            try:
                numbers = {hyper(name): value for name, value in self.hypers.items()}
                self.feasibility = Feasibility(self.prover, numbers | self.axes.numbers())
                phases = [self._phase(step) for step in range(self.first_steady + 1)]
                self._check_clock(phases)
                self._check_symmetry(phases)
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
            {name: self._start(slot) for name, slot in self.slots.items()},
            self.conditions,
            self.is_structural,
            self.times,
        )

    # --- what the optimizer stores ---------------------------------------------------------------

    def _warm_up(self, steps: int) -> None:
        shapes = self.axes.both
        self.snapshots = [self.subject.clone()]
        for step in range(steps):
            following = self.snapshots[-1].clone()
            draws = Draws(self.seed + step)
            with InDouble(), draws, _name_place("the first steps"):
                following.step(gradients(shapes, self.seed + step))
            self.snapshots.append(following)
        self.leaves = [snapshot.leaves() for snapshot in self.snapshots]

    def _classify(self) -> bool:
        """Sorts what the optimizer stores; returns whether it keeps its structure."""
        last = self.leaves[-1]
        self.counters: dict[Path, int] = {}
        self.static: set[Path] = set()
        self.slots: dict[str, Slot] = {}
        self.hypers: dict[str, float] = {}
        self.hyper_paths: dict[Path, str] = {}
        static: list[dict[Path, str]] = [{} for _ in self.leaves]
        paths = {path: None for leaves in self.leaves for path in leaves}
        for path in paths:
            values = [leaves.get(path) for leaves in self.leaves]
            kind = self._kind(path, values)
            if kind == "static":
                for texts, leaves in zip(static, self.leaves, strict=True):
                    if path in leaves:
                        texts[path] = _text(leaves[path])
                self.static.add(path)
            elif kind == "slot" and path in last:
                for texts, leaves in zip(static, self.leaves, strict=True):
                    texts[path] = str(path in leaves)
        steps = len(self.leaves) - 1
        self.first_steady = next(
            first
            for first in range(1, steps + 1)
            if all(static[k] == static[-1] for k in range(first, steps + 1))
        )
        # At least one more step with the same structure has been seen.
        if self.first_steady < steps - 1:
            return True
        if steps == _LONGEST:
            unstable = [path for path in static[-1] if static[-1].get(path) != static[-2].get(path)]
            raise TraceError(
                f"{_spell(unstable[0]) if unstable else 'the state'} still changes in step {steps}",
                hint="what an optimizer stores must keep its structure after the first steps",
            )
        return False

    def _kind(self, path: Path, values: Sequence[Any]) -> str:
        """Sorts a leaf: a counter, a hyperparameter, a state of the rule, or static."""
        present = [value for value in values[1:] if value is not None]
        if not present or (
            len(present) < len(values) - 1 and not isinstance(present[-1], torch.Tensor)
        ):
            return "static"
        value = present[-1]
        is_of_param = path[0] == STATE
        if is_of_param and is_mask(values[0], self.axes.both[path[1]]):
            return "static"  # an input of the rule
        width = Width.of(str(value.dtype)) if isinstance(value, np.generic) else None
        if width is not None and width.is_short:
            raise TraceError(
                f"{_spell(path)} is an integer of NumPy from {width.low} to {width.high}, where it "
                "wraps",
                hint="keep it as an int, or in a tensor",
            )
        if all(is_number(item) for item in present):
            numbers = [number_of(item) for item in present]
            is_whole = len(present) == len(values) - 1 and is_counter(numbers)
            if is_whole:
                self.counted_from[path] = int(numbers[0]) - 1
            if is_whole and path not in self.changing:
                self.counters[path] = self.counted_from[path]
                return "counter"
            changes = (
                path in self.changing
                or values[0] is None
                or any(n != number_of(values[0]) for n in numbers)
            )
            is_float = (
                path in self.changing
                or isinstance(value, float)
                or (isinstance(value, torch.Tensor) and value.is_floating_point())
            )
            if is_of_param and (is_float or isinstance(value, torch.Tensor)):
                return self._slot(path, value, is_shared=False)
            if changes and is_float and values[0] is not None and path[0] != DEFAULTS:
                return self._slot(path, value, is_shared=True)
            if changes and is_float and path[0] != DEFAULTS:
                return self._slot(path, value, is_shared=True)
            is_tensor = path[0] == GROUP and isinstance(value, torch.Tensor) and is_float
            if (is_tensor or isinstance(value, float)) and math.isfinite(numbers[0]):
                self._hyper(path, numbers[0])
                return "hyper"
            return "static"
        if isinstance(value, torch.Tensor) and is_of_param and value.numel():
            return self._slot(path, value, is_shared=False)
        return "static"

    def _slot(self, path: Path, value: Any, *, is_shared: bool) -> str:
        # The second parameter has the states of the first.
        if path[0] == STATE and path[1] == 1:
            return "slot"
        keys = path[2:] if path[0] == STATE else path[1:]
        name = _identifier("_".join(map(str, keys)))
        while name in self.slots:
            name = f"{name}_"
        shape = tuple(value.shape) if isinstance(value, torch.Tensor) else ()
        # One element, and not the shape of the parameter: a scalar state such as a per-tensor step
        # size.
        is_scalar = is_shared or (math.prod(shape) == 1 and shape != self.axes.shape)
        mask = None if is_scalar else self._mask_of(path, shape)
        shape = () if is_scalar else self.axes.shape if mask is not None else shape
        self.slots[name] = Slot(name, path, shape, is_shared, mask)
        return "slot"

    def _mask_of(self, path: Path, shape: Sizes) -> str | None:
        """The mask that selects the elements that a state holds, by their number."""
        twin = self.leaves[-1].get((STATE, 1, *path[2:]))
        if path[0] != STATE or len(shape) != 1 or not isinstance(twin, torch.Tensor):
            return None
        masks = [self.snapshots[0].masks(place) for place in (0, 1)]
        for key in masks[0]:
            counts = [(int(of_place[key].sum()),) for of_place in masks if key in of_place]
            if counts == [shape, tuple(twin.shape)]:
                return key
        return None

    def _hyper(self, path: Path, value: float) -> None:
        name = _hyper_name(path[1:])
        while self.hypers.get(name, value) != value or name in _RESERVED:
            name = f"{name}_"
        self.hypers[name] = value
        self.hyper_paths[path] = name

    def _start(self, slot: Slot) -> float | None:
        """The value of a number before the first step, where the optimizer has it by then."""
        value = self.leaves[0].get(slot.path)
        if value is None and slot.path in self.counted_from:
            return float(self.counted_from[slot.path])
        if not isinstance(value, torch.Tensor | int | float):
            return None
        if isinstance(value, torch.Tensor):
            # A tensor with one value in all places has that number as its first value.
            first = value.reshape(-1)[0]
            return float(first) if bool((value == first).all()) else None
        return float(value)

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

    def _check_symmetry(self, phases: Sequence[Tree]) -> None:
        """Refuses a step that is not the same for both parameters, term for term.

        Raises:
            TraceError: The step of the second parameter, with the two exchanged, differs from the
                step of the first.
        """
        definitions = self.definitions
        exchange: dict[sp.Symbol, sp.Expr] = {}
        inputs = [symbol for symbol in definitions.shapes if symbol.name.startswith("input.")]
        names = [
            PARAM,
            GRAD,
            *inputs,
            *(state(n) for n, slot in self.slots.items() if not slot.is_shared),
        ]
        for symbol in (*names, *SHAPE_SYMBOLS):
            twin = twin_of(symbol)
            exchange |= {symbol: twin, twin: symbol}
        common = Definitions()
        common.shapes |= definitions.shapes
        sums = {s for expr in definitions.expressions.values() for s in expr.atoms(GlobalSum)}
        for tree in phases:
            for label in ("param", *(n for n, slot in self.slots.items() if not slot.is_shared)):
                pair = []
                for is_other in (False, True):
                    before = state(label) if label != "param" else PARAM

                    def value_of(
                        outcome: Outcome,
                        is_other: bool = is_other,
                        label: str = label,
                        before: sp.Symbol = before,
                    ) -> sp.Basic:
                        results = outcome.twin_results if is_other else outcome.results
                        value = results.get(label)
                        return (
                            value.expr
                            if value is not None
                            else twin_of(before)
                            if is_other
                            else before
                        )

                    expr = join_outcomes(tree, value_of, are_same=definitions.are_same)
                    same_sums = {  # what is a sum over all parameters is the same for each
                        part: definitions.rebuilt(part, common, {})
                        for part in sums | expr.atoms(GlobalSum)
                    }
                    replacements = {**exchange, **same_sums} if is_other else {}
                    pair.append(definitions.rebuilt(expr, common, replacements))
                if pair[0] != pair[1] and common.sum_over_params(pair[0]) != common.sum_over_params(
                    pair[1]
                ):
                    subject = "parameter" if label == "param" else f"state {label!r}"
                    raise TraceError(
                        f"the step has another formula for the {subject} of the second parameter",
                        hint="a rule is the same for every parameter, whatever its place",
                    )

    def _check_integers(self, steady: Tree) -> None:
        """Refuses a state in integers that may wrap.

        Raises:
            TraceError: One of 32 or 64 bits may; an integer of fewer bits wraps in its formula.
        """
        for path, first in self.counters.items():
            width = self._width(path)
            if width is not None:
                check_start(width, str(path[-1]), first)
        widths = {
            name: width
            for name, slot in self.slots.items()
            if (width := self._width(slot.path)) is not None and not width.is_short
        }
        symbols = [shared(n) if self.slots[n].is_shared else state(n) for n in widths]
        for outcome in outcomes_of(steady):
            for name in widths.keys() & outcome.results.keys():
                expr, start = outcome.results[name].expr, self._start(self.slots[name])
                check_growth(expr, widths[name], symbols, self.definitions, name, start)

    def _width(self, path: Path) -> Width | None:
        """The integers that a leaf can hold; None for a leaf of floats, or without a dtype."""
        return Width.of(str(getattr(self.leaves[-1][path], "dtype", "")))

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
            else _text(value)
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
                if run.refusal is not None:
                    raise run.refusal
            environment.check_unchanged()
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
                p: after[p] for p, text in expected.items() if _OBJECT in text and p in after
            }
        changed_paths = [p for p in {**expected, **after} if after.get(p) != expected.get(p)]
        if not changed_paths:
            return outcome
        if not is_steady and after == before:
            return replace(outcome, advances=False)  # the first step is still to be taken
        if not is_steady and all(p not in after and not expected[p] for p in changed_paths):
            return replace(outcome, is_begun=False)
        path = changed_paths[0]
        if after.get(path, "").startswith(_NUMBER) and is_number(self.leaves[-1].get(path)):
            raise _Changed(path)
        raise TraceError(
            f"{_spell(path)} changes from {expected.get(path)} to {after.get(path)} in one of "
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
            f"the step raises {type(error).__name__}: {error}", where=exception_place(error, where)
        ) from error


def _text(value: Any) -> str:
    """A text that tells static things apart."""
    if isinstance(value, torch.Tensor):
        return f"tensor {tuple(value.shape)}"
    if isinstance(value, str):
        return f"str {value!r}"
    if isinstance(value, Number):
        return f"{_NUMBER} {value.expr}"
    if value is None or isinstance(value, bool | int | float | torch.dtype):
        return f"{type(value).__name__} {value!r}"
    return f"{_OBJECT} of type {type(value).__name__}"


def _identity(value: Any) -> str:
    """A text that tells static things of one copy of the optimizer apart."""
    text = _text(value)
    if isinstance(value, torch.Tensor):
        return f"{text}, version {value._version} of {id(value)}"
    return f"{text} {id(value)}" if text.startswith(_OBJECT) else text


_OBJECT, _NUMBER = "object", "number"


def _conditions(decisions: Sequence[Decision]) -> list[sp.Basic]:
    """Decisions as conditions that hold."""
    return [condition if truth else sp.Not(condition) for condition, truth in decisions]


def _mirror_path(path: Path) -> Path:
    """The path of the same state of the first parameter."""
    return (STATE, 0, *path[2:]) if path[0] == STATE else path


def _identifier(text: str) -> str:
    identifier = re.sub(r"\W", "_", text)
    return identifier if identifier.isidentifier() else f"_{identifier}"


_PLURALS = {"betas": "beta", "eps": "eps", "etas": "eta", "nus": "nu", "gammas": "gamma"}


def _hyper_name(keys: Sequence[Any]) -> str:
    """``("betas", 0)`` is beta1."""
    name = str(keys[0])
    for key in keys[1:]:
        name = _PLURALS.get(name, name)
        name = f"{name}{key + 1}" if isinstance(key, int) else f"{name}_{key}"
    return _identifier(name)


def _spell(path: Path) -> str:
    keys = path[2:] if path[0] == STATE else path[1:]
    return f"{path[0]} {'.'.join(map(_key_text, keys))!r}"


def _key_text(key: Any) -> str:
    """A key of a container; tensors and other objects without their contents."""
    return str(key) if isinstance(key, str | int) else f"<{type(key).__name__}>"


__all__ = ["SHAPE_SYMBOLS", "Outcome", "Slot", "Trace", "Tracer", "plain"]
