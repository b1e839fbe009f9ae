"""Proved goals as SMT-LIB 2 scripts, which another solver can check.

A script has what is assumed, the negation of the goal, and what is known of each function in them:
the definitions and lemmas of ``tactics/lemmas.py``, each true of the function. ``unsat`` says that
the goal holds. Where z3 finds a model, since a function is more than its lemmas say, there is no
script; so ``sat`` is a disagreement, and ``unknown`` is not an answer.

=====================  ===========================================================================
file                   content
=====================  ===========================================================================
``<n>-<claim>.smt2``   one goal of one claim
``proofs.json``        the claims with their verdicts, tactics and scripts; of goals without a
                       script it has the reason
=====================  ===========================================================================
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from closedform.effort import Effort
from closedform.errors import VerificationError
from closedform.files import files_of
from closedform.verify.claims.core import Goal
from closedform.verify.claims.report import Finding
from closedform.verify.tactics.prover import without_tensor_functions
from closedform.verify.tactics.solver import Question, SolverMode, is_too_large
from closedform.verify.terms.build import FALSE, TRUE, negate
from closedform.verify.terms.tree import Term

_WORK = 500_000
"""The work in which z3 may find a model of a script."""

MANIFEST = "proofs.json"
"""The file that lists the scripts."""


def write_proofs(findings: Iterable[Finding], folder: Path) -> list[Path]:
    """Writes the goals of the proved claims of a report as scripts; returns their paths.

    Args:
        findings: Claims with their verdicts.
        folder: Where to; it is made if it is missing.

    Raises:
        VerificationError: A file is in the place of the folder, or it cannot be written.
    """
    entries: list[dict[str, Any]] = []
    scripts: dict[str, str] = {}
    for finding in findings:
        entry: dict[str, Any] = {
            "claim": finding.claim.name,
            "sentence": finding.claim.sentence,
            "verdict": finding.shown,
            "tactics": list(finding.verdict.tactics),
        }
        entries.append(entry)
        if not finding.verdict.proved:
            continue
        entry["goals"] = []
        claim = finding.claim
        for goal in dict.fromkeys((*claim.presumes, *claim.goals)):
            goal_entry: dict[str, str] = {"goal": goal.text}
            entry["goals"].append(goal_entry)
            script = script_of(goal, claim.assume, claim.sentence)
            if not script.startswith(";"):
                goal_entry["no script"] = script
                continue
            name = f"{len(scripts) + 1:03d}-{claim.name}.smt2"
            scripts[name] = script
            goal_entry["script"] = name
        if claim.decide is not None:
            entry["no script"] = "it is about floats: see closedform.floats"
    content = json.dumps(entries, indent=1, ensure_ascii=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with files_of(folder) as place:
            for name, text in {**scripts, MANIFEST: f"{content}\n"}.items():
                (place / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise VerificationError(
            f"the proofs cannot be written: {error.strerror or error}",
            where=f"folder {str(folder)!r}",
        ) from error
    return [folder / name for name in scripts]


def script_of(goal: Goal, assume: tuple[Term, ...], sentence: str) -> str:
    """Returns the script of a goal, or why there is none.

    Args:
        goal: The goal.
        assume: What its claim assumes.
        sentence: The claim, for readers.
    """
    if goal.is_somewhere:
        return "it holds at a point"
    if goal.statement == TRUE:
        return "it holds by its form"
    statement, facts = without_tensor_functions(goal.statement, (*assume, *goal.given))
    statements = (*facts, negate(statement))
    if FALSE in statements:
        return "it holds by its form"
    if is_too_large(statements):
        return "it is too large for a solver"
    question = Question(statements, SolverMode.INTEGER)
    if question.answer(Effort.of(_WORK)).model is not None:
        return "a solver knows too little of its functions"
    lines = [f"; {sentence}", f"; goal: {goal.text}", "; unsat: it is proved", "(set-logic ALL)"]
    return "\n".join([*lines, question.text().strip(), ""])
