"""Parametrizations of models by width and depth, and the rates of their param groups."""
