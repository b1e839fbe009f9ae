"""From SymPy to the graph language: annotate, simplify, guard, lower.

The only room that knows both languages.
"""
