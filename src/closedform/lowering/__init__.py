"""From SymPy to the graph language: annotate, simplify, guard, lower.

It is the lowest layer that knows both the language and the graphs.
"""
