"""Splits of the range of an integer into parts."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from closedform.verify.checker.replay import Facts
from tools.rocq.bounds import Bounds
from tools.rocq.replacements import replace_terms

if TYPE_CHECKING:
    from tools.rocq.script import Script


def _range(script: Script, rest: list[Any], facts: Facts, names_in_scope: set[int]) -> Any:
    symbol, ends = script.places[rest[0]], rest[1]
    bounds = Bounds(script, facts, names_in_scope)
    ((monomial, _),) = script.replay.forms.of(symbol).items()
    low, high = bounds.intervals.of_term(symbol)
    whole = script.definitions.integer(monomial[0][0])
    bound = "" if low is None and high is None else bounds.atom(monomial[0][0])[0]
    least = None if low is None else int(low.ceil())
    most = None if high is None else int(high.floor())
    node = script.definitions.node(symbol)
    borders = [None, *ends, None]
    lower, contexts = "", []
    for before, end in itertools.pairwise(borders):
        upper, above = (script.name(), script.name()) if end is not None else ("", "")
        is_behind = before is not None and most is not None and before >= most
        is_before = end is not None and least is not None and end < least
        opening = (
            f"destruct (split_range ({end}) {whole}) as [{upper} | {above}]; "
            f"[| simpl Z.add in {above}]."
            if end is not None
            else ""
        )
        closing = ""
        if is_behind or is_before:
            closing = f"exfalso; apply_range {bound}; lra."
        first = least if before is None else before + 1
        last = most if end is None else end
        contexts.append((opening, closing, lower, upper, before, end, first, last))
        lower = above
    parts_of_range: list[Any] = []
    pending: list[str] = []
    for opening, closing, lower, upper, before, end, first, last in contexts:
        if closing:
            is_last = end is None
            pending += [opening] if opening else []
            pending.append(closing if is_last else f"{{ {closing} }}")
            continue
        lines, pending = [*pending, opening], []
        follow = _part_of_range(
            script, symbol, node, facts, bound, (lower, upper), (before, end), (first, last)
        )
        parts_of_range.append((lines, follow))
    return parts_of_range, pending


def _part_of_range(
    script: Script, symbol: int, node: str, facts: Facts, bound: str, names: tuple[str, str],
    borders: tuple[int | None, int | None], ends: tuple[int | None, int | None],
) -> Any:  # fmt: skip
    terms = script.terms
    (lower, upper), (before, end), (first, last) = names, borders, ends

    def follow(names_in_scope: set[int]) -> None:
        if first is not None and first == last:
            number = terms.rational(first)
            name = script.name("s")
            script.write(
                f"assert ({name} : {node} = {script.definitions.node(number)}) by "
                f"({f'apply_range {bound}; ' if bound else ''}"
                f"unfold {script.definitions.node(number)}; lra)."
            )
            equation = terms.equal(symbol, number)
            replace_terms(script, {symbol: (number, name)}, facts, names_in_scope)
            script.state(equation, f"exact {name}", names_in_scope)
            return
        if before is not None:
            truth = terms.less_equal(terms.rational(before + 1), symbol)
            script.state(truth, f"exact {lower}", names_in_scope)
        if end is not None:
            truth = terms.less_equal(symbol, terms.rational(end))
            script.state(truth, f"exact {upper}", names_in_scope)

    return follow


def run_range(
    script: Script, rest: list[Any], facts: Facts, parts: Any, names_in_scope: set[int], depth: int
) -> None:
    """Writes the step ``range``: the range of an integer, split, and what follows in each part."""
    parts_of_range, pending = _range(script, rest, facts, names_in_scope)
    for place, ((part, part_facts), (lines, follow)) in enumerate(
        zip(parts, parts_of_range, strict=True)
    ):
        for line in lines:
            if line:
                script.write(line)
        is_last = place == len(parts) - 1 and not pending
        opens = lines[-1] != "" or not is_last
        if opens:
            script.write("{")
        inner = set(names_in_scope)
        follow(inner)
        script.run(part, part_facts, inner, depth + 1)
        if opens:
            script.write("}")
    for line in pending:
        script.write(line)
