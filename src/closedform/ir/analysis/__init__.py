"""Analyses of graphs in floats: intervals, the order of values, obligations of finiteness."""
