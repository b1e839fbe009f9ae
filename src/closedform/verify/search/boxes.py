"""The results of interval arithmetic on facts, with the facts that bound the box.

A step lists the bounds that it needs: the tightest ones of the symbols that were asked for.
"""

from __future__ import annotations

from closedform.verify.checker.intervals import Interval, Intervals
from closedform.verify.checker.replay import Facts, Replay
from closedform.verify.checker.terms import CHOICES
from closedform.verify.search.steps import Place, Step


class _RecordingIntervals(Intervals):
    """Interval arithmetic that notes whose bounds it uses."""

    def __init__(self, replay: Replay, facts: Facts) -> None:
        self.used_symbols: set[int] = set()
        super().__init__(replay, facts)

    def _make(self, atom: int) -> Interval:
        if self.forms.atoms[atom][0] == "symbol":
            self.used_symbols.add(atom)
        return super()._make(atom)


class Boxes:
    """The results of interval arithmetic where some facts hold."""

    def __init__(self, replay: Replay, facts: Facts) -> None:
        self.replay = replay
        self.facts = facts
        self._intervals = Intervals(replay, facts)

    def contradiction(self) -> Step | None:
        """Returns the step that refutes the facts; None where intervals do not."""
        if self._intervals.is_empty:
            return ["empty", self._excluding_bounds()]
        for place, fact in enumerate(self.facts):
            if self._intervals.truth(fact) is False:
                recorder = _RecordingIntervals(self.replay, self.facts)
                recorder.truth(fact)
                return ["contradiction", self._bounds(recorder.used_symbols), place]
        return None

    def decide_choices(self) -> tuple[Facts, Step | None]:
        """Returns the facts with the choices made that are decided, and the step, unfinished."""
        terms = self.replay.terms
        recorder: _RecordingIntervals | None = None
        decisions: dict[int, tuple[int, int]] = {}
        reached_terms = set(self.facts)
        pending = list(self.facts)
        while pending:
            term = pending.pop()
            decision = self._decision(term)
            op, below, _ = terms.nodes[term]
            if op == "opaque":
                continue
            if decision is not None:
                number, value, truth = decision
                # Asked once more, of intervals that are asked only for what is decided.
                recorder = recorder or _RecordingIntervals(self.replay, self.facts)
                recorder.truth(truth)
                decisions[term] = number, value
                below = (value,)
            for arg in below:
                if arg not in reached_terms:
                    reached_terms.add(arg)
                    pending.append(arg)
        if recorder is None:
            return self.facts, None
        replacements: dict[int, int] = {}
        decision_list = []
        for term in sorted(decisions):
            number, value = decisions[term]
            (replacements[term],) = terms.substitute([value], replacements)
            decision_list.append([Place(term), number])
        facts = self.replay._replace_terms(self.facts, replacements)
        return facts, ["simplify", self._bounds(recorder.used_symbols), decision_list]

    def _decision(self, term: int) -> tuple[int, int, int] | None:
        """The place of an alternative or the value of a floor, the value, and what shows it."""
        terms = self.replay.terms
        op = terms.nodes[term][0]
        if op == "floor":
            low, high = self._intervals.of_term(term)
            if low is None or low != high:
                return None
            value = terms.rational(low)
            return int(low.p), value, terms.equal(term, value)
        if op in CHOICES:
            for number, (condition, value) in enumerate(terms.alternatives(term)):
                if self._intervals.truth(condition):
                    return number, value, condition
        return None

    def _bounds(self, symbols: set[int]) -> list[int]:
        """The places of the facts that give the tightest bounds of some symbols."""
        tightest: dict[tuple[int, int], tuple[object, int]] = {}
        for place, fact in enumerate(self.facts):
            bound = self._intervals.bound_by(fact)
            if bound is None or bound[0] not in symbols:
                continue
            symbol, (low, high) = bound
            for side, end in ((0, None if low is None else -low), (1, high)):
                if end is None:
                    continue
                best = tightest.get((symbol, side))
                if best is None or end < best[0]:  # type: ignore[operator]
                    tightest[symbol, side] = end, place
        return sorted({place for _, place in tightest.values()})

    def _excluding_bounds(self) -> list[int]:
        """The places of two bounds of one symbol that exclude each other."""
        symbols = {bound[0] for fact in self.facts if (bound := self._intervals.bound_by(fact))}
        for symbol in sorted(symbols):
            places = self._bounds({symbol})
            if Intervals(self.replay, tuple(self.facts[place] for place in places)).is_empty:
                return places
        raise AssertionError("the bounds of a symbol exclude each other")
