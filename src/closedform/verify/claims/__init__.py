"""Claims, ``closedform.claims``: each is a function that returns a ``Claim``.

About a schedule: ``total``, ``finite``, ``where_safe``, ``reached``, ``unambiguous``, ``bounded``,
``at_most``, ``non_negative``, ``continuous``, ``monotone``, ``bounded_change``, ``argmax``,
``argmin``, ``ends_at``, ``periodic``, ``equal``, ``close``, ``recurrence``, ``area``,
``sum_diverges``, ``square_summable``. About its graph in floats: ``float_finite``,
``float_bounded``, ``float_monotone``, ``float_within``. About a rule: ``same_rule``,
``invariant``, ``finite_steps``, ``bounded_update``, ``after_steps``, ``capturable``. About odd
polynomials that are iterated: ``iterate_within``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from closedform.errors import unknown_attribute
from closedform.verify.claims.captured import capturable
from closedform.verify.claims.changes import argmax, argmin, bounded_change, close
from closedform.verify.claims.continuity import continuous
from closedform.verify.claims.core import Claim, Goal, Proofs
from closedform.verify.claims.defined import finite, reached, total, unambiguous, where_safe
from closedform.verify.claims.floats import (
    float_bounded,
    float_decides,
    float_finite,
    float_monotone,
    float_within,
)
from closedform.verify.claims.induction import area, recurrence
from closedform.verify.claims.iterates import iterate_within
from closedform.verify.claims.rule import (
    after_steps,
    bounded_update,
    finite_steps,
    invariant,
    same_rule,
)
from closedform.verify.claims.series import square_summable, sum_diverges
from closedform.verify.claims.values import (
    at_most,
    bounded,
    ends_at,
    monotone,
    non_negative,
    periodic,
)
from closedform.verify.claims.values import equal_to as equal

__all__ = [
    "Claim",
    "Goal",
    "Proofs",
    "after_steps",
    "area",
    "argmax",
    "argmin",
    "at_most",
    "bounded",
    "bounded_change",
    "bounded_update",
    "capturable",
    "close",
    "continuous",
    "ends_at",
    "equal",
    "finite",
    "finite_steps",
    "float_bounded",
    "float_decides",
    "float_finite",
    "float_monotone",
    "float_within",
    "invariant",
    "iterate_within",
    "monotone",
    "non_negative",
    "periodic",
    "reached",
    "recurrence",
    "same_rule",
    "square_summable",
    "sum_diverges",
    "total",
    "unambiguous",
    "where_safe",
]


if not TYPE_CHECKING:  # type checkers report unknown names themselves

    def __getattr__(name: str) -> NoReturn:
        raise unknown_attribute(__name__, name, __all__)


def __dir__() -> list[str]:
    return sorted(__all__)
