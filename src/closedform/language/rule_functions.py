"""Functions that return rules: a rule remembers the call that made it.

A hyperparameter that is the number 0 leaves its term out of the rule. ``UpdateRule.bind`` gives it
another value by the same call with that argument.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec

from closedform.language.lengths import with_checked_keywords
from closedform.language.update_rule import UpdateRule

P = ParamSpec("P")


def rule_function(function: Callable[P, UpdateRule]) -> Callable[P, UpdateRule]:
    """Returns a function whose rules remember their call, and that answers unknown keywords.

    Example:
        >>> from closedform.optimizers import sgd
        >>> rule = sgd(lr=0.1)
        >>> rule
        <UpdateRule 'sgd': lr = 0.1>
        >>> rule.bind(weight_decay=0.5)
        <UpdateRule 'sgd': lr = 0.1, weight_decay = 0.5>
    """
    checked_function = with_checked_keywords(function)

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> UpdateRule:
        rule = checked_function(*args, **kwargs)
        return rule.made_by(functools.partial(wrapper, *args, **kwargs))

    return wrapper
