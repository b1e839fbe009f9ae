"""Schedules of constants."""

import sympy as sp

from closedform.schedules import multi_step


def test_milestones_have_the_products_that_sympy_makes() -> None:
    expr = multi_step(0.1, 0.5, [3, 6, 9, 12]).expr
    names = {symbol.name: symbol for symbol in expr.free_symbols}
    for count, (value, _) in enumerate(expr.args):
        product = names["value"] * names["gamma"] ** count
        assert sp.srepr(value) == sp.srepr(product)
        assert value.args == product.args
